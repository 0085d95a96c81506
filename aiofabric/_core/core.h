/*
 * The hot path: what every message passes through, in C.  See __init__.py for what it is and why.
 *
 * Built against the limited API of Python 3.11, so that one binary serves all later versions. libfabric's calls that
 * are made here are inline functions of its headers, which call through the objects: nothing is linked.
 */
#ifndef AIOFABRIC_CORE_H
#define AIOFABRIC_CORE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

/* For our own types: the limited interface takes a PyObject * and nothing else. */
static inline PyTypeObject *type_of(void *object)
{
	return Py_TYPE((PyObject *) object);
}

static inline PyObject *new_ref(void *object)
{
	return Py_NewRef((PyObject *) object);
}

/* ---- waiting.c: how long to look ---- */

typedef struct {
	PyObject_HEAD
	long long limit, length, skip, streak, late, hits, misses;
} Window;

typedef struct {
	PyObject_HEAD
	Window *window;
	long long deadline, awake_until, begun;
	char never, polls, asked, displaced;
} Looking;

extern PyTypeObject *Looking_Type;

long long now_ns(void);
void looking_ask(Looking *self, long long now);
void looking_over(Looking *self);
/* The wait ended after sleep. */
void looking_woken(Looking *self, long long now);
/* Whether answers have come so late that not even a glance is due now; arming tells of what came all the same. */
int looking_is_vain(const Looking *self);
/* Pieces of a large message are coming: another look is due, whatever the window has learned. */
void looking_more(Looking *self, long long now);
/* Whether the next iteration should look again. */
int looking_goes_on(Looking *self, long long now, long long moved);
/* Nanoseconds of this wait's window for one look, opened if it was not yet; 0 for a glance. */
long long looking_share(Looking *self, long long now);
void looking_judge(Looking *self, long long now, long long share, long long found, long long gap);

/* ---- queue.c: reading a completion queue ---- */

#define BATCH 64 /* completions of one read */
#define PIECE_NS 50000 /* how long the next piece of a large message is waited for */

typedef struct {
	PyObject_HEAD
	struct fid_cq *cq;
	struct fid_fabric *fabric;
	int sources; /* whether the sender's address is read with each */
	long long gap;	/* ns: the longest from one look to the next, of the last call */
	long long vain;	/* ns: of one that finds nothing, learned from all calls; only compared with */
	char moving;	/* whether the last look ended although pieces of a large message were coming */
	long long kept;	/* how often the core is still not offered; see queue.c */
	long long useless; /* offers in a row that brought nothing */
	struct fi_cq_tagged_entry entries[BATCH];
	fi_addr_t from[BATCH];
} NativeQueue;

extern PyTypeObject *NativeQueue_Type;

ssize_t queue_look(NativeQueue *self, long long window);
/* Whether the core should be offered to others before this wait.  Counts. */
int queue_offers(NativeQueue *self);
/* As queue_look, but that it offers the core where there is nothing at once. */
ssize_t queue_look_after_offer(NativeQueue *self, long long window);
int queue_quiet(NativeQueue *self);
/* A completion as Python has it: op_context, flags, len, buf, data, tag and, with sources, fi_addr. */
PyObject *entry_tuple(const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);
int entry_parse(PyObject *tuple, struct fi_cq_tagged_entry *entry, fi_addr_t *from, int *sources);

/* ---- fifo.c: what waits to be taken ---- */

typedef struct {
	PyObject_HEAD
	PyObject **items;	/* a ring; room is a power of two, or 0 */
	Py_ssize_t room, head, count;
} Fifo;

extern PyTypeObject *Fifo_Type;

int fifo_append(Fifo *self, PyObject *item);
int fifo_insert(Fifo *self, Py_ssize_t index, PyObject *item);
PyObject *fifo_popleft(Fifo *self);

/* ---- slots.c: what operations lend to the provider ---- */

typedef struct {
	PyObject_HEAD
	PyObject *pointer, *address;
} Slot;

typedef struct {
	PyObject_HEAD
	Fifo *shelf;
	long long lent;
} SlotsCore;

extern PyTypeObject *Slot_Type, *SlotsCore_Type;

Slot *slots_lend(SlotsCore *self);
int slots_take_back(SlotsCore *self, PyObject *slot);

/* ---- spares.c: objects that are used again ---- */

#define SPARES 32

typedef struct {
	PyObject *objects[SPARES];
	int count;
} Spares;

/* An object of this type and size with nothing in it, that the collector knows; NULL with an exception. */
void *spares_take(Spares *self, PyTypeObject *type, size_t size);
/* The end of its tp_dealloc: what it held was given back, and the collector does not know it any more. */
void spares_give(Spares *self, void *object);

/* ---- steps.c: what is awaited ---- */

/* Of a type with am_send: its __iter__ and am_await, __next__, and send. */
PyObject *steps_self(PyObject *self);
PyObject *steps_next(PyObject *self);
PyObject *steps_send(PyObject *self, PyObject *value);
/* What am_send gave, as `send` and `throw` give it. */
PyObject *steps_value(PySendResult how, PyObject *result);
/* What `throw` does that has nobody else to throw it to: NULL. */
PyObject *steps_raise(PyObject *args);
/* What somebody else's `throw` does. */
PyObject *steps_throw(PyObject *steps, PyObject *args);
/* Those of a driver's waiter. */
PyObject *steps_of(PyObject *waiter);

/* ---- call.c: a coroutine whose first step is C ---- */

typedef struct Call Call;
/* 1: it is done, with the result; 0: `steps` is to be awaited; -1: an exception. */
typedef int beginning(Call *self, PyObject **result);

struct Call {
	PyObject_HEAD
	beginning *begin;
	const char *name;	/* what was called, behind its class */
	PyObject *target, *first, *second; /* whose, and with what */
	PyObject *steps;	/* NULL before it has begun, and when it is over */
	PyObject *weak;		/* weak references to it */
	char phase;
	char running;		/* a step of it is under way */
	char silent;		/* what `steps` returns is nobody's */
};

PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second);

/* ---- waker.c, waiter.c: who lets the tasks of an asyncio loop go on, and what they wait with ---- */

#define SPARE 64 /* most futures that are kept to be used again */

typedef struct {
	PyObject_HEAD
	PyObject *loop, *call_soon;
	PyObject *told;		/* the future that tasks are told of when they go on: a done one */
	PyTypeObject *kind;	/* of the loop's futures */
	PyObject *remove;	/* its remove_done_callback */
	traverseproc traverse;	/* of asyncio's in C; NULL for another kind */
	PyObject *blocking;	/* of asyncio's in C: its descriptor of `_asyncio_future_blocking` */
	descrsetfunc set;	/* what sets by that */
	PyTypeObject *callback_kind; /* of the callback that was left last */
	PyObject *spare[SPARE];
	int nspare;
	Fifo *answered;		/* Waiters whose tasks go on soon */
	long long held;		/* turns at whose end they do */
	char scheduled;		/* whether a callback of the loop's will see to them */
	char going;		/* they go on now, in that callback */
} Waker;

typedef struct {
	PyObject_HEAD
	Waker *waker;
	PyObject *future;	/* what the task waits for; NULL before it does, and afterwards */
	PyObject *result;	/* NULL before it is answered */
} Waiter;

extern PyTypeObject *Waiter_Type;

/* A driver's, or None; NULL for an exception. */
Waker *waker_of(PyObject *driver);
/* One that a task may await: `_asyncio_future_blocking` is set, as its own `__await__` does. */
PyObject *waker_borrow_future(Waker *self);
/* It goes on at the end of the turn, or soon. */
int waker_answered(Waker *self, Waiter *waiter);
PyObject *waiter_new(Waker *waker);
/* Whether it waited for this answer: 1 or 0; -1 for an exception. */
int waiter_answer(Waiter *self, PyObject *result);
/* For those that have one within, too. */
PySendResult waiter_step(Waiter *self, PyObject **result);
PyObject *waiter_throw(Waiter *self, PyObject *args);
void waiter_release(Waiter *self);
/* Those who are answered from here on go on when `waker_let_go` is called: outside of any task only. */
void waker_hold(Waker *self);
/* An exception that is set stays so, and they go on later. */
int waker_let_go(Waker *self);
/* They go on with the next who do, or in a callback of the loop's. */
int waker_put_off(Waker *self);

/* ---- registry.c: who is told of a completion ---- */

typedef struct {
	PyObject_HEAD
	struct place *places;
	size_t room, count;	/* room: a power of two, or 0 */
	int shift;
} Registry;

extern PyTypeObject *Registry_Type;

/* Borrowed; NULL for nobody. */
PyObject *registry_find(const Registry *self, const void *address);
int registry_enter(Registry *self, const void *address, PyObject *who);
/* Whoever was told: the caller's reference now; NULL for nobody. */
PyObject *registry_remove(Registry *self, const void *address);
void registry_forget(Registry *self, const void *address);
int registry_clear(Registry *self);

/* ---- source.c: the part of a source that each wait passes through ---- */

typedef struct {
	PyObject_HEAD
	PyObject *driver, *queue, *readers;
	Registry *operations;	/* by the address of the slot that a completion names */
	PyObject *parked, *companions, *watched;
	Looking *looking;
	NativeQueue *native;	/* of `queue`, if it is libfabric's; NULL for one that is asked through Python */
	PyObject *call_soon;
	Waker *waker;		/* of asyncio's; NULL for others, whose drivers make waiters */
	SlotsCore *slots;
	long long turns, breath, streak, wakes, interest, abandoned, completions, wakeups, empty, fruitless, vain;
	long long breathing;	/* tasks that could go on, and only let the loop go round */
	long long respite;	/* how often the turn that is on its way may still be put off for them */
	long long ceded;	/* ns: when a look was refused for the loop to go round; 0: it was not, or it may sleep */
	long long shared;	/* iterations for which others are still believed to have work */
	long long behind;	/* tasks that were woken when a turn was on its way already: they go on after it */
	long long volley;	/* see cork.c */
	struct LaneCore *corked; /* a list of lanes, by `next_corked` */
	long long corked_since;	/* ns: the first of them */
	char closed, draining, armed, winded, paid, crowd, scheduled, hurried, events_due, unsettled, paused;
	char polls, looks, at_rest_when_quiet;
	char restless;		/* whether it could not be armed in this iteration: the next one's turn is to read first */
	char checkpoints;	/* every await owes one */
	char full;		/* whether the last read brought as much as one can */
	char passing;		/* tasks go on within a turn, which sees to what they send */
} SourceCore;

#define BUDGET 256 /* completions of one turn, then other callbacks get their chance */
#define STREAK 64 /* most awaits in a row that may be answered without an iteration of the loop */

extern PyTypeObject *SourceCore_Type;

/* settling.c: read the queue once, and settle that; how many completions it were, or -1.  `offering`: the core first. */
long long source_read(SourceCore *self, long long window, int offering);
/* Whether there is probably more than the last read brought, with room for that after so many. */
int source_has_more(const SourceCore *self, long long moved);
/* Have an exception told by a method of the source's, and go on; Ctrl-C and the like go on by themselves: -1. */
int source_tell(SourceCore *self, PyObject *name);
int source_touch(SourceCore *self);
int source_look(SourceCore *self);
int source_prepare(SourceCore *self);
PyObject *source_waiter(SourceCore *self);
/* Whether the waiter waited, and has its answer now: 1 or 0; -1 for an exception.  Counts whom the source woke, if any. */
int source_answer(SourceCore *self, PyObject *waiter, PyObject *result);
int source_answer_waiter(SourceCore *self, Waiter *waiter, PyObject *result);
/* The loop went round. */
void source_breathed(SourceCore *self);
/* Read; look for a share of the open window if there is nothing at once. */
long long source_look_once(SourceCore *self, long long now, int offering);
/* Whether pieces of a large message are coming: settling.c saw to another look.  Who polls looks in any case. */
int source_is_moving(SourceCore *self);
/* Whether it is safe to sleep on the descriptors; -1 for an exception. */
int source_quiet(SourceCore *self);
int source_sleep(SourceCore *self);
int source_rest_readers(SourceCore *self);

/* turning.c: what the event loop calls. */
PyObject *SourceCore_turn(SourceCore *self, PyObject *unused);
PyObject *SourceCore_scheduled_turn(SourceCore *self, PyObject *unused);
PyObject *SourceCore_readable(SourceCore *self, PyObject *unused);

/* ---- message.c: a message as its receiver gets it ---- */

extern PyTypeObject *Message_Type;

/* A copy of these bytes; `data` is the sender's remote data, or NULL. */
PyObject *message_new(const char *bytes, Py_ssize_t size, PyObject *source, unsigned long long tag, const uint64_t *data);

/* ---- gate.c: who may use an endpoint now ---- */

typedef struct {
	PyObject_HEAD
	unsigned long thread;
} Gate;

extern PyTypeObject *Gate_Type;

static inline int gate_admits(const Gate *self)
{
	return self->thread == PyThread_get_thread_ident();
}

/* ---- inbox.c: messages that arrived ---- */

typedef struct {
	PyObject_HEAD
	PyObject *handle;
	SourceCore *source;
	Fifo *inbox;
	PyObject *ended, *sink, *on_end, *peer;
	struct Arrival *waiting, *last; /* who waits for the next message, by `behind` */
	long long nwaiting, size, count, posted, messages, bytes, returned, lent;
} InboxCore;

extern PyTypeObject *InboxCore_Type;

int inbox_deliver(InboxCore *self, PyObject *item);
/* A coroutine that returns the next message, copied, for this receiver. */
PyObject *inbox_receiving(InboxCore *self, PyObject *receiver, Gate *gate);
/* Whether it is longer than the caller's `room`, with the error set; -1 for another exception. */
int inbox_too_long(InboxCore *self, PyObject *item, PyObject *room);
/* The message in a buffer, for the endpoint that receives it; the buffer is recycled. */
PyObject *inbox_unpack(InboxCore *self, PyObject *receiver, PyObject *item);
/* For the types that begin with one. */
int inbox_traverse(PyObject *self, visitproc visit, void *arg);
int inbox_clear(PyObject *self);
void inbox_release(InboxCore *self);

/* ---- arrival.c: what is awaited of an inbox ---- */

typedef struct Arrival {
	Waiter waiter;		/* what its task waits with on asyncio: the head is this object's own */
	InboxCore *inbox;
	PyObject *other, *steps; /* what a driver's task waits with elsewhere, and its iterator once somebody awaits */
	PyObject *receiver, *room; /* who gets a `Message`, or NULL for the buffer; how long it may be, or NULL */
	struct Arrival *before, *behind; /* among those who wait: not counted as references */
	char enlisted, over;
} Arrival;

/* It waits already.  The `receiver` gets a `Message`; without one it is the buffer, if that is no longer than `room`, or NULL. */
Arrival *arrival_new(InboxCore *inbox, PyObject *receiver, PyObject *room);
/* Whether it waited for this item: 1 or 0; -1 for an exception. */
int arrival_answer(Arrival *self, PyObject *item);
/* inbox.c: among those who wait, the last; and not any more. */
void inbox_enlist(InboxCore *self, Arrival *arrival);
void inbox_strike(InboxCore *self, Arrival *arrival);

/* ---- pool.c: receives that stay posted ---- */

struct receive {
	void *buf;
	void *context;
};

typedef struct {
	InboxCore inbox;
	PyObject *buffers;	/* list of PoolBuffer, by index */
	struct fid_ep *ep;
	void *descriptor;
	size_t room;		/* bytes of each receive */
	struct receive *receives;
	uint32_t *free;		/* indexes of what is not posted, filled or lent */
	long long capacity, nfree, batch;
	struct iovec spill;	/* room behind each, if it has a length: see transport/spill.py */
	uint64_t end_mark;	/* remote data of the empty message by which the peer ends the connection; 0: none does */
	char limits;		/* whether longer messages than `size` may complete, for `overlong` */
	char by_hand;		/* `_post_each` posts: for tests that stand in for fi_recv */
} PoolCore;

extern PyTypeObject *PoolCore_Type;

typedef struct {
	PyObject_HEAD
	PoolCore *pool;
	PyObject *slot, *source;
	long long index, offset, length;
	unsigned long long flags, data, tag;
	char posted;
} PoolBuffer;

extern PyTypeObject *PoolBuffer_Type;

/* Where its message is; NULL with an exception if it is longer than its receive. */
const char *pool_contents(PoolBuffer *self);
int pool_recycle(PoolBuffer *self);
int pool_complete(PoolBuffer *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);

/* ---- operation.c: what is posted ---- */

enum state { NEW, PARKED, POSTED, CANCELLING, ABANDONED, SETTLED, STATES };

typedef struct {
	PyObject_HEAD
	PyObject *what, *owner, *pins, *held, *error, *notify, *orphaned, *post, *source;
	Slot *slot;
	unsigned long long flags, data, tag;
	unsigned long long asked; /* of a receive that was posted from here: its tag, and its bytes */
	long long room, length;
	unsigned long long memory; /* where a receive into the caller's memory begins, of `room` bytes; 0: it is none */
	char state, tagged;
} Operation;

extern PyTypeObject *Operation_Type, *Transfer_Type;

Operation *transfer_new(PyObject *what, PyObject *lane, PyObject *slot, PyObject *pins, PyObject *held, long long length);
int transfer_complete(Operation *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);
int operation_move(Operation *self, enum state state);
int operation_settle(Operation *self, PyObject *error);
int operation_let_go(Operation *self);
PyObject *operation_result(Operation *self);

/* ---- lane.c: posting, and what a small message passes through on its way out ---- */

typedef struct LaneCore {
	PyObject_HEAD
	SourceCore *source;
	PyObject *owner;	/* the endpoint's handle */
	PyObject *waiting;	/* deque: what is parked */
	PyObject *posted;	/* dict as a set: what the provider has */
	PyObject *idle;		/* list: who waits for nothing to be posted */
	struct fid_ep *ep;
	Gate *gate;		/* the endpoint's; NULL until `_lead` or `_receive_here` */
	unsigned long long peer, max_size;
	long long limit, inject_size, unfenced;
	long long pieces;	/* most buffers of a message that is posted from here; 0: none is */
	char receives, refused;
	char direct;		/* whether small messages are sent, and plain receives posted, from here */
	struct iovec spill;	/* room behind each receive, if it has a length: see transport/spill.py */
	char plain_home, plain_try; /* whether the subclass has none of its own */
	int socket;		/* the kernel's TCP socket beneath, to be corked; -1 where there is none */
	char corked;
	long long volley;	/* in which it sent last */
	struct LaneCore *next_corked;
} LaneCore;

extern PyTypeObject *LaneCore_Type;

/*
 * Have the provider copy a small message, for a task.  1: the task goes on; 2: it should let the loop go round first;
 * 0: `post` is needed; -1: an exception.
 */
int lane_send(LaneCore *self, PyObject *data, PyObject *tag);
/* Its completion was read: the slot may be lent again. */
int lane_home(LaneCore *self, Operation *transfer);
/* A new operation that `operations` knows, to be posted now; and then it, or None where the provider did not take it. */
Operation *lane_prepare(LaneCore *self, PyObject *what, PyObject *pins, Py_ssize_t size);
PyObject *lane_answered(LaneCore *self, Operation *transfer, ssize_t rc);

/* cork.c */
void lane_joins_volley(LaneCore *self);
/* The volley is over. */
void source_uncork(SourceCore *self);
PyObject *LaneCore_keep_socket(LaneCore *self, PyObject *number);

/* A message is about to be posted, which may have to leave with others. */
static inline void lane_sends(LaneCore *self)
{
	if (self->socket >= 0)
		lane_joins_volley(self);
}

PyObject *LaneCore_settled(LaneCore *self, PyObject *transfer);

/* sending.c */
#define PIECES 4 /* most buffers of one message */
/* A coroutine that returns when the message is sent, as `Sends.send` says; where awaits owe no checkpoint. */
PyObject *lane_sending(LaneCore *self, PyObject *sender, PyObject *data);
PyObject *LaneCore_post_here(LaneCore *self, PyObject *const *args, Py_ssize_t count);

/* receiving.c */
/* Raises ValueError where a posted receive may write to these bytes as well. */
int lane_keep_apart(LaneCore *self, unsigned long long memory, unsigned long long size);
PyObject *LaneCore_keep_apart(LaneCore *self, PyObject *args);
PyObject *LaneCore_receive_here(LaneCore *self, PyObject *args);
PyObject *LaneCore_receive(LaneCore *self, PyObject *const *args, Py_ssize_t count);
PyObject *LaneCore_received(LaneCore *self, PyObject *transfer);

/* Whether a receive that was posted from here got a message as it was wanted. */
int operation_is_received(const Operation *self);

/* outcome.c */
PyObject *LaneCore_outcome(LaneCore *self, PyObject *transfer);
PyObject *LaneCore_arrives(LaneCore *self, PyObject *const *args, Py_ssize_t count);

/* ---- all of them ---- */

int add_steps(PyObject *module);
int add_waiting(PyObject *module);
int add_queue(PyObject *module);
int add_waker(PyObject *module);
int add_waiter(PyObject *module);
int add_settling(PyObject *module);
int add_turning(PyObject *module);
int add_source(PyObject *module);
int add_fifo(PyObject *module);
int add_slots(PyObject *module);
int add_operation(PyObject *module);
int add_gate(PyObject *module);
int add_message(PyObject *module);
int add_call(PyObject *module);
int add_arrival(PyObject *module);
int add_inbox(PyObject *module);
int add_pool(PyObject *module);
int add_quick(PyObject *module);
int add_registry(PyObject *module);
int add_receiving(PyObject *module);
int add_sending(PyObject *module);
int add_outcome(PyObject *module);
int add_lane(PyObject *module);
int add_cork(PyObject *module);
int add_lengths(PyObject *module);

/* Names that are asked for, made once. The last one's is NULL. */
struct name {
	PyObject **name;
	const char *text;
};

int intern(const struct name *names);

/* What another module has; NULL with an exception. */
PyObject *import_from(const char *name, const char *what);

/* Make a type, add it to the module and keep a pointer to it. */
int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type);

/* CPython's own, which the limited API leaves out. */
#define REPLACE(field, value)                       \
	do {                                        \
		PyObject *old_ = (PyObject *) (field); \
		(field) = (value);                  \
		Py_XDECREF(old_);                   \
	} while (0)

/* The end of a tp_dealloc. */
static inline void free_object(void *self)
{
	PyTypeObject *type = type_of(self);
	freefunc release = PyType_GetSlot(type, Py_tp_free);

	release(self);
	Py_DECREF((PyObject *) type);
}

static inline void *pointer_of(PyObject *address)
{
	return PyLong_AsVoidPtr(address);
}

/* Note who sent it, where that was read. */
static inline int set_source(PyObject **source, const fi_addr_t *from)
{
	PyObject *number = from ? PyLong_FromUnsignedLongLong(*from) : NULL;

	if (number)
		REPLACE(*source, number);
	return from && !number ? -1 : 0;
}

/* Of an answer that is not needed otherwise: 0, 1, or -1 with the exception set. */
static inline int truth_of(PyObject *result)
{
	int truth = result ? PyObject_IsTrue(result) : -1;

	Py_XDECREF(result);
	return truth;
}

/* For the results of calls that nobody wants: 0, or -1 with the exception set. */
static inline int drop(PyObject *result)
{
	if (!result)
		return -1;
	Py_DECREF(result);
	return 0;
}

#endif
