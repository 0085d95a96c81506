/*
 * InboxCore: taking a message, and handing one to the task that waits longest. transport/messages/inbox.py has the
 * rest.
 */
#include "messages/inbox.h"
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/source.h"

PyTypeObject *InboxCore_Type;

static PyObject *name_feed, *name_length, *name_too_long;

/* In a debug build: the list's ends, its count and its links agree. */
static inline int list_is_consistent(const InboxCore *self)
{
	const ReceiveWaiter *each, *before = NULL;
	long long count = 0;

	for (each = self->waiting; each; each = each->behind) {
		if (each->before != before || !each->enlisted || each->over)
			return 0;
		before = each;
		count++;
	}
	return before == self->last && count == self->nwaiting;
}

void inbox_enlist(InboxCore *self, ReceiveWaiter *arrival)
{
	assert(!arrival->enlisted && !arrival->before && !arrival->behind && list_is_consistent(self));
	arrival->before = self->last;
	if (self->last)
		self->last->behind = arrival;
	else
		self->waiting = arrival;
	self->last = arrival;
	self->nwaiting++;
	arrival->enlisted = 1;
}

void inbox_unlist(InboxCore *self, ReceiveWaiter *arrival)
{
	if (arrival->before)
		arrival->before->behind = arrival->behind;
	else
		self->waiting = arrival->behind;
	if (arrival->behind)
		arrival->behind->before = arrival->before;
	else
		self->last = arrival->before;
	arrival->before = arrival->behind = NULL;
	self->nwaiting--;
	arrival->enlisted = 0;
	assert(list_is_consistent(self));
}

static int wake_receiver(ReceiveWaiter *self, PyObject *item)
{
	SourceCore *source = self->inbox->source;

	return self->other ? source_wake(source, self->other, item) : source_wake_waiter(source, &self->waiter, item);
}

/* Offer an item to the task that waits longest. 1: it took the item; 0: it did not; -1: an exception. */
static int wake_first(InboxCore *self, PyObject *item)
{
	ReceiveWaiter *first = (ReceiveWaiter *) new_ref(self->waiting);
	int given;

	inbox_unlist(self, first);
	given = wake_receiver(first, item);
	Py_DECREF((PyObject *) first);
	return given;
}

/* Give an item to the task that waits longest, or keep it. */
static int hand_out(InboxCore *self, PyObject *item)
{
	while (self->waiting) {
		int given = wake_first(self, item);

		if (given)
			return given < 0 ? -1 : 0;
	}
	return fifo_append(self->inbox, item);
}

int inbox_deliver(InboxCore *self, PyObject *item)
{
	if (self->sink != Py_None)
		return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_feed, item, NULL));
	return hand_out(self, item);
}

int inbox_too_long(InboxCore *self, PyObject *item, PyObject *room)
{
	PyObject *length = PyObject_GetAttr(item, name_length);
	int over = length ? PyObject_RichCompareBool(length, room, Py_GT) : -1;

	if (over > 0)
		drop(PyObject_CallMethodObjArgs((PyObject *) self, name_too_long, length, room, NULL)); /* it raises */
	Py_XDECREF(length);
	return over;
}

static PyObject *InboxCore_deliver(InboxCore *self, PyObject *item)
{
	if (inbox_deliver(self, item))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *InboxCore_wake_first(InboxCore *self, PyObject *item)
{
	int given = self->waiting ? wake_first(self, item) : 0;

	return given < 0 ? NULL : PyBool_FromLong(given);
}

static PyObject *InboxCore_hand_out(InboxCore *self, PyObject *item)
{
	if (hand_out(self, item))
		return NULL;
	Py_RETURN_NONE;
}

static int InboxCore_init(InboxCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"handle", "source", "size", "count", NULL};
	PyObject *handle, *source;

	if (refuse_second_init(self->source))
		return -1;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!LL", names, &handle, SourceCore_Type, &source, &self->size,
					 &self->count))
		return -1;
	REPLACE(self->handle, new_ref(handle));
	REPLACE(self->source, (SourceCore *) new_ref(source));
	REPLACE(self->inbox, (Fifo *) PyObject_CallNoArgs((PyObject *) Fifo_Type));
	REPLACE(self->ended, new_ref(Py_None));
	REPLACE(self->sink, new_ref(Py_None));
	REPLACE(self->on_end, new_ref(Py_None));
	REPLACE(self->peer, new_ref(Py_None));
	REPLACE(self->fed, new_ref(Py_None));
	return self->inbox ? 0 : -1;
}

int inbox_traverse(PyObject *object, visitproc visit, void *arg)
{
	InboxCore *self = (InboxCore *) object;

	Py_VISIT(type_of(self));
	Py_VISIT(self->handle);
	Py_VISIT(self->source);
	Py_VISIT(self->ended);
	Py_VISIT(self->inbox);
	Py_VISIT(self->sink);
	Py_VISIT(self->on_end);
	Py_VISIT(self->peer);
	Py_VISIT(self->fed);
	return 0;
}

/* Clear only fields that make cycles and may be None: the methods still work on the rest. */
int inbox_clear(PyObject *object)
{
	InboxCore *self = (InboxCore *) object;

	REPLACE(self->handle, new_ref(Py_None));
	REPLACE(self->ended, new_ref(Py_None));
	REPLACE(self->sink, new_ref(Py_None));
	REPLACE(self->on_end, new_ref(Py_None));
	return 0;
}

void inbox_release(InboxCore *self)
{
	Py_CLEAR(self->handle);
	Py_CLEAR(self->source);
	Py_CLEAR(self->ended);
	Py_CLEAR(self->inbox);
	Py_CLEAR(self->sink);
	Py_CLEAR(self->on_end);
	Py_CLEAR(self->peer);
	Py_CLEAR(self->fed);
}

static void InboxCore_dealloc(InboxCore *self)
{
	PyObject_GC_UnTrack(self);
	inbox_release(self);
	free_object(self);
}

static PyMethodDef InboxCore_methods[] = {
	{"deliver", (PyCFunction) InboxCore_deliver, METH_O,
	 "A message: to the sink if there is one, else as `hand_out`."},
	{"_wake_first", (PyCFunction) InboxCore_wake_first, METH_O,
	 "Whether the task that waits longest took the item."},
	{"hand_out", (PyCFunction) InboxCore_hand_out, METH_O, "To the task that waits longest, or into the inbox."},
	{NULL},
};

static PyGetSetDef InboxCore_getset[] = {
	OBJECT_FIELD("peer", InboxCore, peer,
	 "the sender of every message; None: the receiver's `_source_of` finds it"),
	OBJECT_FIELD("ended", InboxCore, ended, NULL),
	OBJECT_FIELD("sink", InboxCore, sink, NULL),
	OBJECT_FIELD("_on_end", InboxCore, on_end, NULL),
	OBJECT_FIELD("_fed", InboxCore, fed, "the buffer whose message the sink has now; None: none, or it was lent"),
	{NULL},
};

static PyMemberDef InboxCore_members[] = {
	{"handle", T_OBJECT_EX, offsetof(InboxCore, handle), READONLY},
	{"source", T_OBJECT_EX, offsetof(InboxCore, source), READONLY},
	{"inbox", T_OBJECT_EX, offsetof(InboxCore, inbox), READONLY},
	{"waiting", T_LONGLONG, offsetof(InboxCore, nwaiting), READONLY, "tasks that wait for the next message"},
	{"size", T_LONGLONG, offsetof(InboxCore, size)},
	{"count", T_LONGLONG, offsetof(InboxCore, count)},
	{"posted", T_LONGLONG, offsetof(InboxCore, posted)},
	{"messages", T_LONGLONG, offsetof(InboxCore, messages)},
	{"bytes", T_LONGLONG, offsetof(InboxCore, bytes)},
	{"_returned", T_LONGLONG, offsetof(InboxCore, returned)},
	{"_lent", T_LONGLONG, offsetof(InboxCore, lent)},
	{NULL},
};

static PyType_Slot InboxCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.transport.messages.inbox.Inbox`."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, InboxCore_init},
	{Py_tp_dealloc, InboxCore_dealloc},
	{Py_tp_traverse, inbox_traverse},
	{Py_tp_clear, inbox_clear},
	{Py_tp_methods, InboxCore_methods},
	{Py_tp_getset, InboxCore_getset},
	{Py_tp_members, InboxCore_members},
	{0, NULL},
};

static PyType_Spec InboxCore_spec = {
	"aiofabric._core.InboxCore", sizeof(InboxCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, InboxCore_slots,
};

int add_inbox(PyObject *module)
{
	static const struct name names[] = {
		{&name_feed, "feed"}, {&name_length, "length"}, {&name_too_long, "_too_long"}, {NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &InboxCore_spec, NULL, &InboxCore_Type);
}
