/* NativeQueue: reading a completion queue of libfabric, and looking at it for a while (man page: fi_cq). */
#include "completion_queue.h"
#include "clock.h"
#include "names.h"
#include "references.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <sched.h>
#include <sys/resource.h>

PyTypeObject *NativeQueue_Type;

#define YIELD_NS 5000
#define MOVED_NS 4000
#define MOVING_NS 200000

_Static_assert(sizeof(struct fi_cq_tagged_entry) == 48, "an entry is read as six numbers of 64 bits");

/* Whether this thread lost its core to somebody else since it was asked last. */
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

static ssize_t read_once(NativeQueue *self)
{
	return self->sources ? fi_cq_readfrom(self->cq, self->entries, BATCH, self->from)
			     : fi_cq_read(self->cq, self->entries, BATCH);
}

/*
 * Look at the queue until it answers anything but -FI_EAGAIN, or for so many nanoseconds; always at least once.
 * The interpreter lock is free meanwhile.  `gap` receives the longest time from one look to the
 * next: a long one means that the thread lost its core while it spun, so somebody else needs that core
 * (possibly the peer), and spinning is harmful.  0: the first look found something, so nothing was gained by
 * looking for longer.
 * A look that takes far longer than those that find nothing, and keeps its core, has moved a piece of a large
 * message.  That is no gap, and the next piece is waited for, 50 us for each and 200 us in all, whatever the window:
 * whoever sleeps between pieces is woken for each of them by the peer, in the midst of its sendmsg (1 MiB on fds:
 * 388 us a sendmsg and 2.5 GB/s; waiting 190 us and 5.4). 50 us is what a wake-up costs both sides together; with 20
 * the same was 12 % slower with adaptive waiting, and writes of remote memory 30 %.
 * If they still come after that, `moving` says so: the loop goes round, and then there is the next look.
 * Whoever shares the core gets it after every 5 us: on one core the peer cannot answer otherwise, and a
 * look of 100 us in vain cost twice that.
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
			/* Creeps up: with more endpoints every look takes longer. */
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
 * Who is about to wait offers its core once: if the peer shares it, as on a machine with fewer cores than processes, it
 * answers meanwhile, and nobody has to sleep and be woken (64 B on one core: 47 us a round trip sleeping, 27 so). An offer
 * that nobody takes, because the peer is elsewhere, costs 0.5 us; one that somebody else takes costs that one's time
 * slice, where sleeping would have been quicker. So after some of those in a row it is left out, twice as often each
 * time.
 */
#define TAKEN_NS 1500		/* sooner than that nobody else has run */
#define OFFERED_NS 100000	/* longer than a peer needs for an answer: somebody else had the core */
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
	/* Where the last offer was answered, so will this one be: to look before it finds nothing, for 0.9 us. */
	got = self->useless ? read_once(self) : -FI_EAGAIN;
	self->gap = 0;
	self->moving = 0;
	if (got == -FI_EAGAIN) {
		begin = now_ns();
		sched_yield();
		away = now_ns() - begin;
		got = poll_queue(self, window);
		if (got != -FI_EAGAIN && !self->gap && away > TAKEN_NS && away < OFFERED_NS)
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
	static char *names[] = {"cq", "fabric", "sources", NULL};
	PyObject *cq, *fabric;
	int i;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOp", names, &cq, &fabric, &self->sources))
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
	 "read(window=0, offering=False): up to 64 completions, looking for so many nanoseconds, perhaps after an offer of the\n"
	 "core; or libfabric's negative error."},
	{"try_wait", (PyCFunction) NativeQueue_try_wait, METH_NOARGS,
	 "fi_trywait: 0 if it is safe to sleep on the descriptor; or libfabric's negative error."},
	{NULL},
};

static PyMemberDef NativeQueue_members[] = {
	{"gap", T_LONGLONG, offsetof(NativeQueue, gap), READONLY, "ns: the longest between two reads of the last look"},
	{"moving", T_BOOL, offsetof(NativeQueue, moving), READONLY, "whether pieces of a large message still came"},
	{"useless", T_LONGLONG, offsetof(NativeQueue, useless), READONLY, "offers of the core in a row that brought nothing"},
	{NULL},
};

static PyType_Slot NativeQueue_slots[] = {
	{Py_tp_doc, "A fid_cq with entries of FI_CQ_FORMAT_TAGGED, and its fid_fabric, by address. The owner keeps both open."},
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
