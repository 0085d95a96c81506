/* Window and Polling: how long to poll a queue before sleeping on its descriptor. cq/polling.py has the reasons. */
#include "queue/polling.h"
#include "base/names.h"
#include "base/references.h"
#include "queue/completion_queue.h"

/*
 * Longest poll inside an awaiting call or a pass; a longer one would delay other callbacks. It must be longer than
 * the usual reply takes. A completion that comes 1 us late costs an iteration of the loop on both sides, and makes
 * the next one late, too. 64 B round trip on uvloop: 29.5 us with 15, 22.9 with 20 and with 25; 25 had no outliers.
 */
#define LONGEST_POLL_NS 25000
#define PREEMPTED_NS 10000	/* a gap this long between two polls: another thread had the core */
#define FLOOR_NS 4000		/* a shorter poll is not worth its call */
#define NOISE 2			/* misses in a row that a busy machine causes in a fast pattern */
#define SOON_SKIP 16		/* most waits to skip after a sleep that ended soon */
#define LATE 4			/* times the limit: polling for a later completion is not worthwhile */
#define LATE_TWICE 2		/* such late completions in a row: the peer is slow */
#define LATE_SKIP 64		/* waits without polling after these */
#define LONGEST_SKIP 256	/* a useless poll in one of 256 waits costs 0.4 us for each wait */
#define POLL_WINDOW_NS 1000000	/* how long to poll a queue without a descriptor, over several passes: on average */

PyTypeObject *Polling_Type;
static PyTypeObject *Window_Type;

/* -- Window */

/* The length of the first window, when there are no results yet. It limits the cost if completions are slow. */
static long long trial(const Window *self)
{
	return self->limit / 2 < FLOOR_NS ? self->limit : self->limit / 2;
}

static int Window_init(Window *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"limit", NULL};

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L", names, &self->limit))
		return -1;
	self->length = trial(self);
	return 0;
}

static long long window_open(Window *self)
{
	if (self->skip) {
		self->skip--;
		return 0;
	}
	return self->length;
}

static void window_hit(Window *self)
{
	self->hits++;
	self->streak = self->late = 0;
	self->length = self->length * 2 < self->limit ? self->length * 2 : self->limit;
}

static void window_miss(Window *self)
{
	self->misses++;
	self->streak++;
	self->length /= 2;
	if (self->length < FLOOR_NS)
		self->length = trial(self);
	if (self->streak > NOISE) {
		long long doublings = self->streak - NOISE;

		self->skip = doublings < 8 ? 1 << doublings : LONGEST_SKIP;
		self->length = trial(self);
	}
}

/*
 * The sleep ended soon. If the peer sleeps, too, the delay may be only that of two wake-ups, and polling during one of
 * them keeps the peer awake. So the next window is soon, and has the full length. Shorter and rarer polls are not
 * enough where a wake-up takes 100 us: the polls of both sides missed each other for thousands of round trips. Packed
 * streams, samples of 0.1 s after a pause: without this a quarter took 118 to 198 us. With it all take 28 to 92 us,
 * three in four of them below 32.
 */
static void window_soon(Window *self)
{
	self->length = self->limit;
	self->late = 0;
	if (self->skip > SOON_SKIP)
		self->skip = SOON_SKIP;
}

/*
 * The sleep ended much later than any window. One such completion is a pause. After two in a row, the peer counts as
 * slow, and the source does not poll until a completion comes sooner. With a peer that takes 1 ms, this reduces the
 * polls in the first hundred waits from eight to two.
 */
static void window_late(Window *self)
{
	if (++self->late >= LATE_TWICE && self->skip < LATE_SKIP)
		self->skip = LATE_SKIP;
}

static PyObject *Window_open(Window *self, PyObject *unused)
{
	return PyLong_FromLongLong(window_open(self));
}

static PyObject *Window_hit(Window *self, PyObject *unused)
{
	window_hit(self);
	Py_RETURN_NONE;
}

static PyObject *Window_miss(Window *self, PyObject *unused)
{
	window_miss(self);
	Py_RETURN_NONE;
}

static PyObject *Window_soon(Window *self, PyObject *unused)
{
	window_soon(self);
	Py_RETURN_NONE;
}

static PyObject *Window_late(Window *self, PyObject *unused)
{
	window_late(self);
	Py_RETURN_NONE;
}

static void Window_dealloc(PyObject *self)
{
	free_object(self);
}

static PyMethodDef Window_methods[] = {
	{"open", (PyCFunction) Window_open, METH_NOARGS, "Nanoseconds to poll for in this wait; 0: do not poll."},
	{"hit", (PyCFunction) Window_hit, METH_NOARGS, "A completion arrived inside the window."},
	{"miss", (PyCFunction) Window_miss, METH_NOARGS,
	 "The window passed without a completion, or the thread lost its core while it was open."},
	{"soon", (PyCFunction) Window_soon, METH_NOARGS, "The completion came after the window, but soon."},
	{"late", (PyCFunction) Window_late, METH_NOARGS, "The completion came too late for any poll."},
	{NULL},
};

static PyMemberDef Window_members[] = {
	{"limit", T_LONGLONG, offsetof(Window, limit)},
	{"length", T_LONGLONG, offsetof(Window, length)},
	{"skip", T_LONGLONG, offsetof(Window, skip), 0, "waits still to pass without polling"},
	{"streak", T_LONGLONG, offsetof(Window, streak), 0, "misses in a row"},
	{"hits", T_LONGLONG, offsetof(Window, hits)},
	{"misses", T_LONGLONG, offsetof(Window, misses)},
	{NULL},
};

static PyType_Slot Window_slots[] = {
	{Py_tp_doc, "A learned polling time, in nanoseconds.\n\n"
		    "After some misses in a row polls are skipped, twice as many each time (up to 256); then half\n"
		    "the limit is tried once. So a pattern that turned fast is found again, and a slow one costs\n"
		    "next to nothing. If completions come soon after the limit, the whole limit is tried, and\n"
		    "more often."},
	{Py_tp_init, Window_init},
	{Py_tp_dealloc, Window_dealloc},
	{Py_tp_methods, Window_methods},
	{Py_tp_members, Window_members},
	{0, NULL},
};

static PyType_Spec Window_spec = {
	"aiofabric._core.Window", sizeof(Window), 0, Py_TPFLAGS_DEFAULT, Window_slots,
};

/* -- Polling */

static int Polling_init(Polling *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"limit", "never", "polls", NULL};
	PyObject *window, *limit;
	int never, polls;

	if (refuse_second_init(self->window))
		return -1;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Opp", names, &limit, &never, &polls))
		return -1;
	window = PyObject_CallFunctionObjArgs((PyObject *) Window_Type, limit, NULL);
	if (!window)
		return -1;
	REPLACE(self->window, (Window *) window);
	self->never = never;
	self->polls = polls;
	return 0;
}

void polling_open(Polling *self, long long now)
{
	long long length;

	if (self->asked || self->never)
		return;
	self->asked = 1;
	self->begun = now;
	/*
	 * Without a descriptor the alternative to polling is a delay of 1 ms. The polling time varies: two sides that
	 * poll for 1 ms and then pause for 1 ms can fall into step, so that each polls while the other pauses. They
	 * then need 2 to 4 ms for each of many messages (a sixth of the samples of 1 MiB over shm).
	 */
	length = self->polls ? POLL_WINDOW_NS / 2 + now % POLL_WINDOW_NS : window_open(self->window);
	self->deadline = length ? now + length : 0;
}

int polling_is_pointless(const Polling *self)
{
	return !self->polls && !self->deadline && self->window->late >= LATE_TWICE && self->window->skip;
}

long long polling_share(Polling *self, long long now)
{
	long long left;

	if (!self->asked)
		polling_open(self, now);
	left = self->deadline - now;
	return left > LONGEST_POLL_NS ? LONGEST_POLL_NS : left > 0 ? left : 0;
}

void polling_learn(Polling *self, long long now, long long share, long long found, long long gap)
{
	if (gap > PREEMPTED_NS && !self->polls) {
		/* Another thread had the core meanwhile, so sleeping would have been as fast. */
		window_miss(self->window);
		self->displaced = 1;
		self->deadline = 0;
	} else if (found) {
		if (gap) { /* a completion that was there at once says nothing about polling */
			window_hit(self->window);
			self->displaced = 0;
			/*
			 * The task of this completion runs now and waits for the next one: arming in between is not
			 * worth its cost.
			 */
			self->awake_until = now + self->window->limit / 2;
		} else {
			/*
			 * The window learns nothing, but misses before and after this are not in a row. Otherwise,
			 * where most completions are there at once, the few misses of a busy host stop polling for
			 * 256 waits, and again. On asyncio the mean of nine runs, each of 20,000 round trips, was 43
			 * us without this, and 29 with it.
			 */
			self->window->streak = 0;
		}
		self->deadline = 0;
	} else if (share < LONGEST_POLL_NS) {
		window_miss(self->window);
		self->displaced = 0;
		self->deadline = 0;
	}
	if (found)
		self->asked = 0;
}

int polling_continues(Polling *self, long long now, long long moved)
{
	if (moved) {
		self->asked = 0;
		polling_open(self, now);
	}
	return self->deadline != 0 || now < self->awake_until;
}

void polling_extend(Polling *self, long long now)
{
	self->asked = 1;
	if (self->deadline < now + PIECE_NS)
		self->deadline = now + PIECE_NS;
}

void polling_end(Polling *self)
{
	self->asked = 0;
	self->deadline = 0;
}

void polling_woken(Polling *self, long long now)
{
	long long took = now - self->begun;

	polling_end(self);
	if (took > LATE * self->window->limit)
		window_late(self->window);
	else if (took < self->window->limit + self->window->limit / 2 && !self->displaced)
		window_soon(self->window);
}

static PyObject *Polling_ask(Polling *self, PyObject *now)
{
	long long at = PyLong_AsLongLong(now);

	if (at == -1 && PyErr_Occurred())
		return NULL;
	polling_open(self, at);
	Py_RETURN_NONE;
}

static PyObject *Polling_over(Polling *self, PyObject *unused)
{
	polling_end(self);
	Py_RETURN_NONE;
}

static void Polling_dealloc(Polling *self)
{
	Py_CLEAR(self->window);
	free_object(self);
}

static PyMethodDef Polling_methods[] = {
	{"ask", (PyCFunction) Polling_ask, METH_O, "Open the window; once for each wait."},
	{"over", (PyCFunction) Polling_over, METH_NOARGS,
	 "The wait ended, by sleep or by a wake-up: the next one opens a new window."},
	{NULL},
};

static PyMemberDef Polling_members[] = {
	{"window", T_OBJECT_EX, offsetof(Polling, window), READONLY},
	{"deadline", T_LONGLONG, offsetof(Polling, deadline), 0, "end of the open window; 0: none is open"},
	{NULL},
};

static PyType_Slot Polling_slots[] = {
	{Py_tp_doc, "How long a source may still poll in this wait, and what its `Window` learns from the\n"
		    "outcome.\n\n"
		    "One window serves the awaiting call that begins the wait and the passes that continue it."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, Polling_init},
	{Py_tp_dealloc, Polling_dealloc},
	{Py_tp_methods, Polling_methods},
	{Py_tp_members, Polling_members},
	{0, NULL},
};

static PyType_Spec Polling_spec = {
	"aiofabric._core.Polling", sizeof(Polling), 0, Py_TPFLAGS_DEFAULT, Polling_slots,
};

int add_polling(PyObject *module)
{
	if (add_type(module, &Window_spec, NULL, &Window_Type) || add_type(module, &Polling_spec, NULL, &Polling_Type))
		return -1;
	return 0;
}
