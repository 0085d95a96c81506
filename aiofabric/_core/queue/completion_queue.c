/* NativeQueue: reads a completion queue of libfabric, and polls it for a while (man page: fi_cq). */
#include "queue/completion_queue.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/references.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <sched.h>
#include <string.h>
#include <sys/resource.h>

PyTypeObject *NativeQueue_Type;

#define YIELD_NS 5000
#define MOVED_NS 4000
#define MOVING_NS 200000

_Static_assert(sizeof(struct fi_cq_tagged_entry) == 48, "an entry is read as six numbers of 64 bits");

/* Whether the kernel gave this thread's core to another thread since the last call. */
static int displaced(void)
{
	static __thread long known = -1;
	struct rusage usage;
	int since;

	getrusage(RUSAGE_THREAD, &usage);
	since = known >= 0 && usage.ru_nivcsw != known;
	known = usage.ru_nivcsw;
	return since;
}

/* The entries were read as those of FI_CQ_FORMAT_DATA: put each in its place, and give it a tag. */
static void widen(struct fi_cq_tagged_entry *entries, ssize_t count)
{
	const char *read = (const char *) entries;

	while (count-- > 0) {
		memmove(&entries[count], read + count * sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_data_entry));
		entries[count].tag = 0;
	}
}

static ssize_t read_once(NativeQueue *self)
{
	ssize_t got = self->sources ? fi_cq_readfrom(self->cq, self->entries, BATCH, self->from)
				    : fi_cq_read(self->cq, self->entries, BATCH);

	if (!self->tagged)
		widen(self->entries, got);
	return got;
}

/*
 * Poll the queue until a read returns anything but -FI_EAGAIN, or for `window` nanoseconds, and at least once. The
 * interpreter lock is free meanwhile. `gap` receives the longest time between two polls. A long gap means that the
 * kernel gave the core to another thread during the poll. That thread, possibly the peer, needs the core, so polling
 * delays it. 0 means that the first poll found something, so longer polling gained nothing.
 * A poll that takes far longer than empty polls, and keeps its core, has moved a piece of a large message. That is
 * not a gap. The function then waits for the next piece: 50 us for each and 200 us in all, whatever the window.
 * Otherwise the peer wakes this process for each piece, in the middle of its sendmsg. With messages of 1 MiB and
 * Waiting.FD, a sendmsg then took 388 us, and the bandwidth was 2.5 GB/s. With this wait, a sendmsg took 190 us, and
 * the bandwidth was 5.4 GB/s. 50 us is the cost of a wake-up on both sides
 * together. With 20 us, adaptive waiting was 12 % slower, and writes of remote memory 30 %. If pieces still arrive
 * after the 200 us, `moving` is set: the loop runs one iteration, and then polls again.
 * The thread yields its core every 5 us. On one core the peer cannot reply otherwise, and an empty poll of 100 us
 * cost twice that.
 */
static ssize_t poll_queue(NativeQueue *self, long long window)
{
	long long begin = now_ns(), start = begin, last = begin, yielded = begin, now, took, longest = 0, came = 0;
	ssize_t got;
	int moved;

	self->moving = 0;
	for (;;) {
		got = read_once(self);
		if (got != -FI_EAGAIN && last == begin)
			break;
		now = now_ns();
		took = now - last;
		moved = took > MOVED_NS && took > 4 * self->empty_ns;
		if (moved && displaced()) {
			longest = took > longest ? took : longest;
		} else {
			if (moved)
				came = now;
			if (moved && now - begin < MOVING_NS) {
				start = now;
				window = window < PIECE_NS ? PIECE_NS : window;
			} else if (!moved && took > longest) {
				longest = took;
			}
			/* Rises slowly: with more endpoints every poll takes longer. */
			self->empty_ns = took < self->empty_ns ? took : self->empty_ns + self->empty_ns / 64 + 64;
		}
		last = now;
		if (got != -FI_EAGAIN || now - start >= window) {
			self->moving = came && now - came < PIECE_NS;
			break;
		}
		if (now - yielded >= YIELD_NS) {
			sched_yield();
			yielded = now;
		}
	}
	self->gap = longest;
	return got;
}

/*
 * Before a wait, the thread yields its core once. If the peer shares the core, as on a machine with fewer cores than
 * processes, it replies meanwhile, and neither side sleeps (64 B on one core: a round trip takes 47 us with sleeping,
 * 27 with a yield). A yield that no thread takes, because the peer runs on another core, costs 0.5 us. A yield that
 * an unrelated thread takes costs that thread's time slice, and sleeping is faster. So a useless yield is followed by
 * waits without one: twice as many after each further useless yield. A peer with much to do may need two turns on the
 * core, so a yield was useful also if the completion came later in the window.
 */
#define TAKEN_NS 1500		/* a shorter yield: no other thread has run */
#define OFFERED_NS 100000	/* longer than a peer needs to reply: an unrelated thread had the core */
#define KEPT_MOST 8		/* doublings: 256 waits */

int queue_yields(NativeQueue *self)
{
	return !self->kept || (self->kept--, 0);
}

ssize_t queue_poll_after_yield(NativeQueue *self, long long window)
{
	ssize_t got;
	long long begin, away;

	Py_BEGIN_ALLOW_THREADS
	/*
	 * After a useful yield the next one is probably useful, too: a poll before it finds nothing, and takes 0.9
	 * us.
	 */
	got = self->useless ? read_once(self) : -FI_EAGAIN;
	self->gap = 0;
	self->moving = 0;
	if (got == -FI_EAGAIN) {
		begin = now_ns();
		sched_yield();
		away = now_ns() - begin;
		got = poll_queue(self, window);
		if (got != -FI_EAGAIN && away > TAKEN_NS && away < OFFERED_NS)
			self->useless = 0;
		else
			self->kept = 1ll << (self->useless < KEPT_MOST ? ++self->useless : KEPT_MOST);
	}
	Py_END_ALLOW_THREADS
	return got;
}

ssize_t queue_poll(NativeQueue *self, long long window)
{
	ssize_t got;

	Py_BEGIN_ALLOW_THREADS
	got = poll_queue(self, window);
	Py_END_ALLOW_THREADS
	return got;
}

int queue_try_wait(NativeQueue *self)
{
	struct fid *fids[1] = {&self->cq->fid};

	return fi_trywait(self->fabric, fids, 1);
}

PyObject *entry_tuple(const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	unsigned long long values[] = {
		(uintptr_t) entry->op_context, entry->flags, entry->len, (uintptr_t) entry->buf, entry->data, entry->tag,
		from ? *from : 0,
	};
	Py_ssize_t count = from ? 7 : 6, i;
	PyObject *tuple = PyTuple_New(count), *value;

	for (i = 0; tuple && i < count; i++) {
		value = PyLong_FromUnsignedLongLong(values[i]);
		if (!value || PyTuple_SetItem(tuple, i, value))
			Py_CLEAR(tuple);
	}
	return tuple;
}

int entry_parse(PyObject *tuple, struct fi_cq_tagged_entry *entry, fi_addr_t *from, int *sources)
{
	unsigned long long context, flags, len, buf, data, tag, source = 0;

	if (!PyArg_ParseTuple(tuple, "KKKKKK|K", &context, &flags, &len, &buf, &data, &tag, &source))
		return -1;
	entry->op_context = (void *) (uintptr_t) context;
	entry->flags = flags;
	entry->len = len;
	entry->buf = (void *) (uintptr_t) buf;
	entry->data = data;
	entry->tag = tag;
	*from = source;
	*sources = PyTuple_Size(tuple) > 6;
	return 0;
}

static int NativeQueue_init(NativeQueue *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"cq", "fabric", "sources", "tagged", NULL};
	PyObject *cq, *fabric;
	int i;

	if (refuse_second_init(self->cq))
		return -1;
	self->tagged = 1;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOp|p", names, &cq, &fabric, &self->sources, &self->tagged))
		return -1;
	self->cq = pointer_of(cq);
	self->fabric = pointer_of(fabric);
	if (PyErr_Occurred())
		return -1;
	for (i = 0; i < BATCH; i++)
		self->from[i] = FI_ADDR_NOTAVAIL;
	return 0;
}

static PyObject *NativeQueue_read(NativeQueue *self, PyObject *args)
{
	long long window = 0;
	int offering = 0;
	ssize_t got, i;
	PyObject *found, *entry;

	if (!PyArg_ParseTuple(args, "|Lp", &window, &offering))
		return NULL;
	got = offering && queue_yields(self) ? queue_poll_after_yield(self, window) : queue_poll(self, window);
	if (got < 0)
		return PyLong_FromSsize_t(got);
	found = PyList_New(got);
	assert(got <= BATCH);
	for (i = 0; found && i < got; i++) {
		entry = entry_tuple(&self->entries[i], self->sources ? &self->from[i] : NULL);
		if (!entry || PyList_SetItem(found, i, entry))
			Py_CLEAR(found);
	}
	return found;
}

static PyObject *NativeQueue_try_wait(NativeQueue *self, PyObject *unused)
{
	return PyLong_FromLong(queue_try_wait(self));
}

static void NativeQueue_dealloc(PyObject *self)
{
	free_object(self);
}

static PyMethodDef NativeQueue_methods[] = {
	{"read", (PyCFunction) NativeQueue_read, METH_VARARGS,
	 "read(window=0, offering=False): returns up to 64 completions, or libfabric's negative error.\n"
	 "Polls for `window` nanoseconds; with `offering` it may yield the core first."},
	{"try_wait", (PyCFunction) NativeQueue_try_wait, METH_NOARGS,
	 "fi_trywait: 0 if it is safe to sleep on the descriptor; else libfabric's negative error."},
	{NULL},
};

static PyMemberDef NativeQueue_members[] = {
	{"gap", T_LONGLONG, offsetof(NativeQueue, gap), READONLY,
	 "ns: the longest time between two reads of the last poll"},
	{"moving", T_BOOL, offsetof(NativeQueue, moving), READONLY,
	 "whether pieces of a large message were still coming"},
	{"useless", T_LONGLONG, offsetof(NativeQueue, useless), READONLY,
	 "yields of the core in a row without a result"},
	{NULL},
};

static PyType_Slot NativeQueue_slots[] = {
	{Py_tp_doc, "A fid_cq with entries of FI_CQ_FORMAT_TAGGED, or else FI_CQ_FORMAT_DATA, and its\n"
		    "fid_fabric, by address. The owner keeps both open."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, NativeQueue_init},
	{Py_tp_dealloc, NativeQueue_dealloc},
	{Py_tp_methods, NativeQueue_methods},
	{Py_tp_members, NativeQueue_members},
	{0, NULL},
};

static PyType_Spec NativeQueue_spec = {
	"aiofabric._core.NativeQueue", sizeof(NativeQueue), 0, Py_TPFLAGS_DEFAULT, NativeQueue_slots,
};

int add_completion_queue(PyObject *module)
{
	return add_type(module, &NativeQueue_spec, NULL, &NativeQueue_Type);
}
