/* cores A B: how far apart two cores are, and bringing them together.
 *
 * In a virtual machine it is the host that decides where a core is, and it changes its mind. While two of them are not
 * behind one cache of the third level, whatever goes between them takes several times as long: a stream over loopback
 * falls from 5 or 6 GB/s to 2 or 3. So this is watched. Each line "LIMIT SECONDS" of the standard input is answered with
 * the nanoseconds that a cache line needs from one core to the other and back. While that is more than LIMIT, the
 * two sleep and wake each other, for at most so many seconds: a scheduler puts who is woken near to who wakes it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TRIPS = 100, BATCHES = 20, CALLS = 10 };

static const struct timespec nap = {.tv_nsec = 5000000};
static _Alignas(128) atomic_int ball;
static int there[2], back[2];

static void bind_to(const char *core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(core), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		exit(1);
}

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void give(int pipe[2], char what)
{
	if (write(pipe[1], &what, 1) != 1)
		exit(1);
}

static char take(int pipe[2])
{
	char what;

	if (read(pipe[0], &what, 1) != 1)
		exit(1);
	return what;
}

static void *other(void *core)
{
	int trip;

	bind_to(core);
	for (;;) {
		if (take(there) == 'w') {
			give(back, 'w');
			continue;
		}
		for (trip = 0; trip < BATCHES * TRIPS; trip++) {
			while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * trip + 1)
				;
			atomic_store_explicit(&ball, 2 * trip + 2, memory_order_release);
		}
	}
	return NULL;
}

/* The best batch: in the others another process had one of the cores. */
static double distance(void)
{
	double begin, took, best = 1;
	int batch, trip = 0;

	atomic_store(&ball, 0);
	give(there, 'd');
	for (batch = 1; batch <= BATCHES; batch++) {
		begin = seconds_now();
		for (; trip < batch * TRIPS; trip++) {
			atomic_store_explicit(&ball, 2 * trip + 1, memory_order_release);
			while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * trip + 2)
				;
		}
		took = (seconds_now() - begin) / TRIPS;
		best = took < best ? took : best;
	}
	return best * 1e9;
}

static void wake_each_other(void)
{
	int call;

	for (call = 0; call < CALLS; call++) {
		nanosleep(&nap, NULL);
		give(there, 'w');
		take(back);
	}
}

int main(int argc, char **argv)
{
	double limit, seconds, end, found;
	pthread_t thread;

	if (argc != 3 || pipe(there) || pipe(back) || pthread_create(&thread, NULL, other, argv[1])) {
		fprintf(stderr, "usage: cores A B\n");
		return 2;
	}
	bind_to(argv[2]);
	while (scanf("%lf %lf", &limit, &seconds) == 2) {
		end = seconds_now() + seconds;
		while ((found = distance()) > limit && seconds_now() < end)
			wake_each_other();
		printf("%.1f\n", found);
		fflush(stdout);
	}
	return 0;
}
