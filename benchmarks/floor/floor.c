/* The floor: what libfabric itself gives to a C program on this machine.
 *
 *     floor tcp|shm spin|fd send|write|read server
 *     floor tcp|shm spin|fd send|write|read client ADDRESS SERVER-PID
 *
 * One program for both sides, because they share nearly everything. The server prints its address;
 * the client reads lines "workload size width seconds" and answers each with one line of JSON.
 * The workloads are those of connection.py, with the same handshake before and the same meaning:
 *
 *     ping    `width` requests in flight on one connection, each echoed by the server
 *     fan     one request of 64 B in flight on each of `width` connections, over tcp only
 *     flood   messages one way, at most `width` in flight, then the server's confirmation. They are
 *             sends into receives posted before, or RMA writes or reads of the server's memory
 *
 * Waiting is `spin` (read the queue until something is there) or `fd` (fi_trywait, then poll).
 * A program like this may assume what a library may not: one peer, one thread, no cancelling.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <time.h>
#include "endpoint.h"

/* Both fit every provider's inject size, so control messages have no completion of their own. */
struct hello { char work[8], name[64]; uint64_t size, width, count; };
struct ready { uint64_t address, key; };

static struct fi_context2 control;
static union { struct hello hello; struct ready ready; } incoming;
static const char *operation;

static void receive_control(void)
{
	POST(fi_recv(ep, &incoming, sizeof incoming, NULL, FI_ADDR_UNSPEC, &control));
}

static void send_control(const void *message, size_t size)
{
	POST(fi_inject(ep, message, size, peer));
}

/* ---- server --------------------------------------------------------------------------------- */

/* A buffer receives again only when the echo of what it held has left it. */
static void echo(uint64_t size, uint64_t width, uint64_t count)
{
	uint64_t posted = width, done = 0;
	void *context;
	size_t slot;

	while (done < count && (context = next())) {
		if (is_slot(context, received)) {
			slot = slot_of(context, received);
			if (send_from(memory + slot * size, size, slot))
				continue;
		} else {
			slot = slot_of(context, sent);
		}
		done++;
		if (posted++ < count)
			receive(slot, size);
	}
}

static void sink(uint64_t size, uint64_t width, uint64_t count)
{
	uint64_t posted = width, done = 0;
	void *context;

	while (done < count && (context = next())) {
		done++;
		if (posted++ < count)
			receive(slot_of(context, received), size);
	}
	send_control("", 1);
}

static void accept_fan(uint64_t width)
{
	struct fi_eq_cm_entry entry;
	uint64_t connected = fan;
	uint32_t event;

	open_fan();
	while (connected < width) {
		CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0));
		if (event == FI_CONNREQ) {
			CHECK(fi_accept(widen(entry.info), NULL, 0));
			fi_freeinfo(entry.info);
		} else if (event == FI_CONNECTED) {
			connected++;
		}
	}
	use_queue(single_cq);
}

static void echo_fan(uint64_t count)
{
	void *context;
	size_t i;

	use_queue(fan_cq);
	for (; count && (context = next()); count--) {
		i = slot_of(context, fanned);
		receive_letter(i);
		POST(fi_inject(fan_ep[i], letters[i], LETTER, FI_ADDR_UNSPEC));
	}
	use_queue(single_cq);
}

static void serve(void)
{
	struct hello hello;
	struct ready ready;
	uint64_t slot;

	for (receive_control(); next() == &control; receive_control()) {
		hello = incoming.hello;
		close_fan_unless(!strcmp(hello.work, "fan"), hello.width);
		if (!connects)
			meet(hello.name);
		reserve(hello.size * hello.width);
		ready.address = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t) memory : 0;
		ready.key = fi_mr_key(region);
		if (!strcmp(hello.work, "fan")) {
			accept_fan(hello.width);
			send_control(&ready, sizeof ready);
			echo_fan(hello.count);
		} else if (!strcmp(hello.work, "ping") || !strcmp(hello.work, "send")) {
			for (slot = 0; slot < hello.width; slot++)
				receive(slot, hello.size);
			send_control(&ready, sizeof ready);
			(*hello.work == 'p' ? echo : sink)(hello.size, hello.width, hello.count);
		} else {
			receive_control();
			send_control(&ready, sizeof ready);
			if (next() == &control)
				send_control("", 1);
		}
	}
}

static void server(void)
{
	struct fi_info *request;
	struct sockaddr_in name;
	struct fid_pep *pep;
	size_t length = sizeof name;

	if (!connects) {
		open_endpoint(info);
		puts(own_name);
		fflush(stdout);
		serve();
		return;
	}
	CHECK(fi_passive_ep(fabric, info, &pep, NULL));
	CHECK(fi_pep_bind(pep, &eq->fid, 0));
	CHECK(fi_listen(pep));
	CHECK(fi_getname(&pep->fid, &name, &length));
	printf("%d\n", ntohs(name.sin_port));
	fflush(stdout);
	request = await_event(FI_CONNREQ);
	open_endpoint(request);
	CHECK(fi_accept(ep, NULL, 0));
	await_event(FI_CONNECTED);
	serve();
}

/* ---- client --------------------------------------------------------------------------------- */

static void connect_fan(uint64_t width)
{
	open_fan();
	while (fan < width) {
		CHECK(fi_connect(widen(info), info->dest_addr, NULL, 0));
		await_event(FI_CONNECTED);
	}
	use_queue(single_cq);
}

static struct ready begin(const char *work, uint64_t size, uint64_t width, uint64_t count)
{
	struct hello hello = {.size = size, .width = width, .count = count};

	strcpy(hello.work, work);
	strcpy(hello.name, own_name);
	reserve(size * (width + 1)); /* the last piece is the message that is sent */
	receive_control();
	send_control(&hello, sizeof hello);
	close_fan_unless(!strcmp(work, "fan"), width);
	if (!strcmp(work, "fan"))
		connect_fan(width);
	if (next() != &control)
		die("begin", -FI_ECONNRESET);
	return incoming.ready;
}

static void *answer(void)
{
	void *context = next();

	if (!context)
		die("next", -FI_ECONNRESET);
	return context;
}

static void ping(uint64_t size, uint64_t width, uint64_t count)
{
	const char *message = memory + width * size;
	uint64_t asked, answered = 0, unsent = 0;
	void *context;
	size_t slot;

	for (asked = 0; asked < width; asked++) {
		receive(asked, size);
		unsent += send_from(message, size, asked);
	}
	while (answered < count || unsent) {
		context = answer();
		if (is_slot(context, sent)) {
			unsent--;
			continue;
		}
		answered++;
		if (asked++ < count) {
			slot = slot_of(context, received);
			receive(slot, size);
			unsent += send_from(message, size, slot);
		}
	}
}

static void ping_fan(uint64_t width, uint64_t count)
{
	static const char letter[LETTER];
	uint64_t asked, answered;
	size_t i;

	use_queue(fan_cq);
	for (asked = 0; asked < width; asked++)
		POST(fi_inject(fan_ep[asked], letter, LETTER, FI_ADDR_UNSPEC));
	for (answered = 0; answered < count; answered++) {
		i = slot_of(answer(), fanned);
		receive_letter(i);
		if (asked++ < count)
			POST(fi_inject(fan_ep[i], letter, LETTER, FI_ADDR_UNSPEC));
	}
	use_queue(single_cq);
}

static void post(const struct ready *remote, size_t slot, uint64_t size, uint64_t width)
{
	char *own = memory + slot * size, *message = memory + width * size;
	const uint64_t address = remote->address + slot * size;
	void *desc = fi_mr_desc(region), *context = &sent[slot];

	switch (*operation) {
	case 's': POST(fi_send(ep, message, size, desc, peer, context)); break;
	case 'w': POST(fi_write(ep, message, size, desc, peer, address, remote->key, context)); break;
	case 'r': POST(fi_read(ep, own, size, desc, peer, address, remote->key, context)); break;
	}
}

static void flood(const struct ready *remote, uint64_t size, uint64_t width, uint64_t count)
{
	uint64_t posted, done = 0, confirmed = 0;
	void *context;

	receive_control();
	for (posted = 0; posted < width && posted < count; posted++)
		post(remote, posted, size, width);
	while (done < count) {
		context = answer();
		if (context == &control) { /* over shm it may overtake our own completions */
			confirmed = 1;
			continue;
		}
		done++;
		if (posted++ < count)
			post(remote, slot_of(context, sent), size, width);
	}
	if (*operation != 's')
		send_control("", 1);
	while (!confirmed)
		confirmed = answer() == &control;
}

static double seconds_on(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Grows `count` until a run lasts long enough; the shorter runs are the warm-up. */
static void measure(const char *workload, uint64_t size, uint64_t width, double wanted, clockid_t server_cpu)
{
	double wall = 0, client = 0, server = 0, growth;
	const int is_ping = !strcmp(workload, "ping"), is_fan = !strcmp(workload, "fan");
	struct ready remote;
	uint64_t count;

	if (is_fan ? !connects || width > MAX_FAN || size != LETTER : width > MAX_WIDTH)
		die(workload, -FI_EINVAL);
	for (count = 4 * width; ; count = count * growth + 1) {
		remote = begin(is_ping || is_fan ? workload : operation, size, width, count);
		wall = seconds_on(CLOCK_MONOTONIC);
		client = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
		server = seconds_on(server_cpu);
		if (is_ping)
			ping(size, width, count);
		else if (is_fan)
			ping_fan(width, count);
		else
			flood(&remote, size, width, count);
		wall = seconds_on(CLOCK_MONOTONIC) - wall;
		client = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - client;
		server = seconds_on(server_cpu) - server;
		if (wall > 0.7 * wanted)
			break;
		growth = wanted / wall > 20 ? 20 : wanted / wall;
	}
	printf("{\"count\": %" PRIu64 ", \"seconds\": %.9f, \"cpu\": %.9f}\n", count, wall, client + server);
	fflush(stdout);
}

static void client(const char *address, pid_t server_pid)
{
	unsigned long long size, width;
	clockid_t server_cpu;
	char workload[8];
	double seconds;

	if (clock_getcpuclockid(server_pid, &server_cpu))
		die("clock_getcpuclockid", -FI_EINVAL);
	open_endpoint(info);
	if (connects) {
		CHECK(fi_connect(ep, info->dest_addr, NULL, 0));
		await_event(FI_CONNECTED);
	} else {
		meet(address);
	}
	while (scanf("%7s %llu %llu %lf", workload, &size, &width, &seconds) == 4)
		measure(workload, size, width, seconds, server_cpu);
}

int main(int argc, char **argv)
{
	const int serves = argc == 5 && !strcmp(argv[4], "server");
	const char *node = "127.0.0.1", *service = "0";

	if (!serves && (argc != 7 || strcmp(argv[4], "client"))) {
		fprintf(stderr, "usage: floor tcp|shm spin|fd send|write|read server | client ADDRESS SERVER-PID\n");
		return 2;
	}
	if (!serves)
		service = argv[5];
	if (strcmp(argv[1], "tcp"))
		node = service = NULL;
	sleeps = !strcmp(argv[2], "fd");
	operation = argv[3];
	find(argv[1], node, service, serves && node ? FI_SOURCE : 0);
	open_domain();
	if (serves)
		server();
	else
		client(argv[5], atoi(argv[6]));
	return 0;
}
