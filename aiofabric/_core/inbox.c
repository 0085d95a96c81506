/* InboxCore: taking a message that is there, and handing one to whoever waits.  transport/inbox.py has the rest. */
#include "core.h"

PyTypeObject *InboxCore_Type;

static PyObject *name_all_lent, *name_check_receivable, *name_contents, *name_data, *name_feed, *name_flags,
	*name_length, *name_next_after, *name_put_back, *name_recycle, *name_source,
	*name_source_of, *name_told, *name_too_long;

void inbox_enlist(InboxCore *self, Arrival *arrival)
{
	arrival->before = self->last;
	if (self->last)
		self->last->behind = arrival;
	else
		self->waiting = arrival;
	self->last = arrival;
	self->nwaiting++;
	arrival->enlisted = 1;
}

void inbox_strike(InboxCore *self, Arrival *arrival)
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
}

/* Whether whoever waits the longest took it: 1 or 0; -1 for an exception. */
static int answer_first(InboxCore *self, PyObject *item)
{
	Arrival *first = (Arrival *) new_ref(self->waiting);
	int given;

	inbox_strike(self, first);
	given = arrival_answer(first, item);
	Py_DECREF((PyObject *) first);
	return given;
}

/* Give an item to whoever waits the longest, or keep it. */
static int hand_out(InboxCore *self, PyObject *item)
{
	while (self->waiting) {
		int given = answer_first(self, item);

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

/* The message that is there.  `room` is the caller's, or NULL. */
static PyObject *first(InboxCore *self, PyObject *room)
{
	PyObject *item = fifo_popleft(self->inbox);

	if (!item)
		return NULL;
	if (PyExceptionInstance_Check(item)) {
		self->returned -= self->returned > 0;
		if (!drop(PyObject_CallMethodObjArgs((PyObject *) self, name_told, NULL)))
			PyErr_SetObject((PyObject *) type_of(item), item);
		Py_DECREF(item);
		return NULL;
	}
	if (room && inbox_too_long(self, item, room)) {
		fifo_insert(self->inbox, 0, item);
		Py_DECREF(item);
		return NULL;
	}
	self->returned -= self->returned > 0;
	return item;
}

static int optional_room(PyObject *args, PyObject **room)
{
	*room = NULL;
	if (!PyArg_ParseTuple(args, "|O", room))
		return -1;
	if (*room == Py_None)
		*room = NULL;
	return 0;
}

/* The next message if it is there, or comes while we look; NULL without an exception for none. */
static PyObject *take(InboxCore *self, PyObject *room)
{
	SourceCore *source = self->source;

	if (!self->inbox->count) {
		if (source->checkpoints || self->ended != Py_None || source_look(source) || !self->inbox->count)
			return NULL;
	} else if (source->streak >= STREAK || source->checkpoints) {
		return NULL;
	}
	source->streak++;
	return first(self, room);
}

static PyObject *none_unless(PyObject *item)
{
	if (item || PyErr_Occurred())
		return item;
	Py_RETURN_NONE;
}

static PyObject *InboxCore_take(InboxCore *self, PyObject *args)
{
	PyObject *room;

	return optional_room(args, &room) ? NULL : none_unless(take(self, room));
}

static int recycle(InboxCore *self, PyObject *item)
{
	if (PyObject_TypeCheck(item, PoolBuffer_Type) && ((PoolBuffer *) item)->pool == (PoolCore *) self)
		return pool_recycle((PoolBuffer *) item);
	return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_recycle, item, NULL));
}

/* A `Message` with what is in a buffer that is none of a pool's. */
static PyObject *message_in(PyObject *item, PyObject *source)
{
	PyObject *flags = PyObject_GetAttr(item, name_flags), *data = PyObject_GetAttr(item, name_data);
	PyObject *contents = PyObject_GetAttr(item, name_contents), *message = NULL;

	if (flags && data && contents) {
		uint64_t along = PyLong_AsUnsignedLongLong(data);
		int has = (PyLong_AsUnsignedLongLong(flags) & FI_REMOTE_CQ_DATA) != 0;

		if (!PyErr_Occurred() && PyBytes_Check(contents))
			message = message_new(PyBytes_AsString(contents), PyBytes_Size(contents), source, 0, has ? &along : NULL);
		else if (!PyErr_Occurred())
			PyErr_SetString(PyExc_TypeError, "the contents of a message are bytes");
	}
	Py_XDECREF(flags);
	Py_XDECREF(data);
	Py_XDECREF(contents);
	return message;
}

/* A `Message` with what is in the buffer, and what came along, for the endpoint that receives it. */
static PyObject *message_of(InboxCore *self, PyObject *receiver, PyObject *item)
{
	PyObject *source = self->peer, *message = NULL;

	if (source == Py_None) {
		PyObject *address = PyObject_GetAttr(item, name_source);

		source = address ? PyObject_CallMethodObjArgs(receiver, name_source_of, address, NULL) : NULL;
		Py_XDECREF(address);
		if (!source)
			return NULL;
	} else {
		Py_INCREF(source);
	}
	if (Py_IS_TYPE(item, PoolBuffer_Type)) {
		PoolBuffer *buffer = (PoolBuffer *) item;
		const char *bytes = pool_contents(buffer);
		uint64_t data = buffer->data;

		if (bytes)
			message = message_new(bytes, buffer->length, source, 0, buffer->flags & FI_REMOTE_CQ_DATA ? &data : NULL);
	} else {
		message = message_in(item, source);
	}
	Py_DECREF(source);
	return message;
}

PyObject *inbox_unpack(InboxCore *self, PyObject *receiver, PyObject *item)
{
	PyObject *message = message_of(self, receiver, item), *type, *error, *traceback;

	if (!message) { /* nothing is lost to Ctrl-C, or to a lack of memory: it is the next one again */
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs((PyObject *) self, name_put_back, item, NULL)))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
	} else if (recycle(self, item)) {
		Py_CLEAR(message);
	}
	return message;
}

static PyObject *InboxCore_unpack(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count == 2)
		return inbox_unpack(self, args[0], args[1]);
	PyErr_SetString(PyExc_TypeError, "unpack(receiver, buffer)");
	return NULL;
}

static PyObject *InboxCore_first(InboxCore *self, PyObject *args)
{
	PyObject *room;

	return optional_room(args, &room) ? NULL : first(self, room);
}

/* Be the next to get a message: what is to be awaited for it. */
static PyObject *enlist(InboxCore *self, PyObject *room, PyObject *receiver)
{
	Arrival *arrival;

	if (self->lent && self->lent >= self->count
	    && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_all_lent, NULL)))
		return NULL;
	arrival = arrival_new(self, receiver, room);
	if (arrival && source_prepare(self->source)) {
		Py_DECREF((PyObject *) arrival); /* it leaves */
		return NULL;
	}
	return (PyObject *) arrival;
}

static int next_arguments(PyObject *const *args, Py_ssize_t count, PyObject **room, PyObject **receiver)
{
	*room = count > 0 && args[0] != Py_None ? args[0] : NULL;
	*receiver = count > 1 && args[1] != Py_None ? args[1] : NULL;
	if (count <= 2)
		return 0;
	PyErr_SetString(PyExc_TypeError, "room and receiver at most");
	return -1;
}

static PyObject *InboxCore_enlist(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *room, *receiver;

	return next_arguments(args, count, &room, &receiver) ? NULL : enlist(self, room, receiver);
}

static PyObject *next(InboxCore *self, PyObject *room, PyObject *receiver)
{
	SourceCore *source = self->source;

	if (source->checkpoints || self->inbox->count || source->winded || self->ended != Py_None)
		return PyObject_CallMethodObjArgs((PyObject *) self, name_next_after, room ? room : Py_None,
						  receiver ? receiver : Py_None, NULL);
	return enlist(self, room, receiver);
}

static PyObject *InboxCore_next(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *room, *receiver;

	return next_arguments(args, count, &room, &receiver) ? NULL : next(self, room, receiver);
}

static int begin_to_receive(Call *call, PyObject **result)
{
	InboxCore *self = (InboxCore *) call->target;
	PyObject *receiver = call->first, *item;

	if (!gate_admits((Gate *) call->second) && drop(PyObject_CallMethodObjArgs(receiver, name_check_receivable, NULL)))
		return -1;
	item = take(self, NULL);
	if (item) {
		*result = inbox_unpack(self, receiver, item);
		Py_DECREF(item);
		return *result ? 1 : -1;
	}
	if (PyErr_Occurred())
		return -1;
	call->steps = next(self, NULL, receiver);
	return call->steps ? 0 : -1;
}

PyObject *inbox_receiving(InboxCore *self, PyObject *receiver, Gate *gate)
{
	return call_new(begin_to_receive, "Receives.recv", self, receiver, (PyObject *) gate);
}

static PyObject *InboxCore_receiving(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count == 2 && Py_IS_TYPE(args[1], Gate_Type))
		return inbox_receiving(self, args[0], (Gate *) args[1]);
	PyErr_SetString(PyExc_TypeError, "receiving(receiver, gate)");
	return NULL;
}

static PyObject *InboxCore_deliver(InboxCore *self, PyObject *item)
{
	if (inbox_deliver(self, item))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *InboxCore_answer_first(InboxCore *self, PyObject *item)
{
	int given = self->waiting ? answer_first(self, item) : 0;

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
	return 0;
}

/* Only what makes cycles and may be None: the methods go on to work on the rest. */
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
}

static void InboxCore_dealloc(InboxCore *self)
{
	PyObject_GC_UnTrack(self);
	inbox_release(self);
	free_object(self);
}

static PyMethodDef InboxCore_methods[] = {
	{"take", (PyCFunction) InboxCore_take, METH_VARARGS,
	 "The next message's buffer if it is there, or comes while we look; None: ask `next`."},
	{"receiving", (PyCFunction) (void (*)(void)) InboxCore_receiving, METH_FASTCALL,
	 "receiving(receiver, gate): a coroutine that returns the next message, copied, for this receiver."},
	{"unpack", (PyCFunction) (void (*)(void)) InboxCore_unpack, METH_FASTCALL,
	 "unpack(receiver, buffer): the message in a buffer, copied; the buffer is recycled."},
	{"first", (PyCFunction) InboxCore_first, METH_VARARGS, "The message that is there; as `next` otherwise."},
	{"next", (PyCFunction) (void (*)(void)) InboxCore_next, METH_FASTCALL,
	 "next(room=None, receiver=None): where `take` had none. Awaited at once, it is the next message's\n"
	 "buffer, to be given back with `recycle` or `take_back`, or the receiver's `Message`, in order of arrival.\n\n"
	 "Raises:\n    TruncatedMessageError: it is longer than `room` bytes; it stays the next one.\n"
	 "    BaseException: as the endpoint ended, once everything that arrived before was handed out."},
	{"_enlist", (PyCFunction) (void (*)(void)) InboxCore_enlist, METH_FASTCALL, "As `next`, where nothing comes first."},
	{"deliver", (PyCFunction) InboxCore_deliver, METH_O, "A message: to the sink; else as `hand_out`."},
	{"_answer_first", (PyCFunction) InboxCore_answer_first, METH_O, "Whether whoever waits the longest took it."},
	{"hand_out", (PyCFunction) InboxCore_hand_out, METH_O, "To whoever waits the longest, or into the inbox."},
	{NULL},
};

static PyMemberDef InboxCore_members[] = {
	{"handle", T_OBJECT_EX, offsetof(InboxCore, handle), READONLY},
	{"source", T_OBJECT_EX, offsetof(InboxCore, source), READONLY},
	{"inbox", T_OBJECT_EX, offsetof(InboxCore, inbox), READONLY},
	{"waiting", T_LONGLONG, offsetof(InboxCore, nwaiting), READONLY, "how many wait for the next message"},
	{"peer", T_OBJECT, offsetof(InboxCore, peer), 0, "whom every message is from; None: the receiver's `_source_of` knows"},
	{"ended", T_OBJECT, offsetof(InboxCore, ended)},
	{"sink", T_OBJECT, offsetof(InboxCore, sink)},
	{"_on_end", T_OBJECT, offsetof(InboxCore, on_end)},
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
	{Py_tp_doc, "Base of `aiofabric.transport.inbox.Inbox`."},
	{Py_tp_init, InboxCore_init},
	{Py_tp_dealloc, InboxCore_dealloc},
	{Py_tp_traverse, inbox_traverse},
	{Py_tp_clear, inbox_clear},
	{Py_tp_methods, InboxCore_methods},
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
		{&name_all_lent, "_all_lent"}, {&name_check_receivable, "_check_receivable"}, {&name_contents, "contents"},
		{&name_data, "data"}, {&name_feed, "feed"},
		{&name_flags, "flags"}, {&name_length, "length"}, {&name_next_after, "_next_after"}, {&name_put_back, "_put_back"},
		{&name_recycle, "recycle"},
		{&name_source, "source"}, {&name_source_of, "_source_of"}, {&name_told, "told"},
		{&name_too_long, "_too_long"}, {NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &InboxCore_spec, NULL, &InboxCore_Type);
}
