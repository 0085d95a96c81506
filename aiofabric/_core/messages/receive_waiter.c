/*
 * ReceiveWaiter: the awaitable of a message that has not arrived yet, and a node in the inbox's list of waiters. On
 * asyncio it is also the task's waiter. With a separate waiter, and a Python list of them, a message took 500
 * instructions and five cache lines more.
 */
#include "messages/receive_waiter.h"
#include "base/awaitable.h"
#include "base/freelist.h"
#include "base/names.h"
#include "base/references.h"
#include "messages/inbox.h"
#include "messages/unpack.h"
#include "progress/interest.h"
#include "progress/source.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"

static PyTypeObject *ReceiveWaiter_Type;

static PyObject *name_close, *name_create_waiter, *name_done, *name_return_message, *name_requeue, *name_result, *name_message_refused;
static Freelist freelist;

ReceiveWaiter *receive_waiter_new(InboxCore *inbox, PyObject *receiver, PyObject *room)
{
	ReceiveWaiter *self = freelist_take(&freelist, ReceiveWaiter_Type, sizeof(*self));
	SourceCore *source = inbox->source;

	if (!self)
		return NULL;
	self->inbox = (InboxCore *) new_ref(inbox);
	self->receiver = receiver ? new_ref(receiver) : NULL;
	self->room = room ? new_ref(room) : NULL;
	if (source->waker)
		self->waiter.waker = (Waker *) new_ref(source->waker);
	else
		self->other = PyObject_CallMethodObjArgs(source->driver, name_create_waiter, NULL);
	if (!self->waiter.waker && !self->other) {
		self->over = 1;
		Py_CLEAR(self);
		return NULL;
	}
	interest_begin(&source->interest);
	inbox_enlist(inbox, self);
	return self;
}

/* The item that was handed out, and not taken: a new reference, or NULL, perhaps with an exception. */
static PyObject *in_hand(ReceiveWaiter *self)
{
	int done;

	if (!self->other)
		return self->waiter.result ? new_ref(self->waiter.result) : NULL;
	done = truth_of(PyObject_CallMethodObjArgs(self->other, name_done, NULL));
	return done > 0 ? PyObject_CallMethodObjArgs(self->other, name_result, NULL) : NULL;
}

static void finish(ReceiveWaiter *self)
{
	assert(!self->over);
	self->over = 1;
	if (self->enlisted) /* a driver's waiter that resumed without a result */
		inbox_unlist(self->inbox, self);
	interest_end(&self->inbox->source->interest);
}

/*
 * Called when the task stops waiting. If it was already given a message, the message goes to the next task. An
 * exception that is set stays set.
 */
static void leave(ReceiveWaiter *self)
{
	PyObject *item, *type, *error, *traceback;

	if (self->over)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	item = self->enlisted ? NULL : in_hand(self);
	finish(self);
	if (item) {
		drop(PyObject_CallMethodObjArgs((PyObject *) self->inbox, name_return_message, item, NULL));
		Py_DECREF(item);
	}
	if (PyErr_Occurred())
		PyErr_WriteUnraisable((PyObject *) self->inbox);
	PyErr_Restore(type, error, traceback);
}

/* Convert the item that was handed out: raise it if it is an error, else return the message or the buffer. */
static PyObject *result_of(ReceiveWaiter *self, PyObject *item)
{
	PyObject *inbox = (PyObject *) self->inbox, *type, *error, *traceback;

	finish(self);
	if (PyExceptionInstance_Check(item)) {
		if (!drop(PyObject_CallMethodObjArgs(inbox, name_message_refused, NULL)))
			PyErr_SetObject((PyObject *) type_of(item), item);
		return NULL;
	}
	if (self->room && inbox_too_long(self->inbox, item, self->room)) {
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs(inbox, name_requeue, item, NULL)))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
		return NULL;
	}
	return self->receiver ? inbox_unpack(self->inbox, self->receiver, item) : new_ref(item);
}

static int is_over(ReceiveWaiter *self)
{
	if (self->over)
		PyErr_SetString(PyExc_RuntimeError, "expected a receive that was not awaited yet, got one that was");
	return self->over;
}

/* The steps of a driver's waiter. */
static PyObject *steps(ReceiveWaiter *self)
{
	if (!self->steps)
		self->steps = awaitable_of(self->other);
	return self->steps;
}

static PySendResult ReceiveWaiter_step(ReceiveWaiter *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_ERROR;
	PyObject *item = NULL;

	*result = NULL;
	if (is_over(self))
		return PYGEN_ERROR;
	if (!self->other)
		how = waiter_step(&self->waiter, &item);
	else if (steps(self))
		how = PyIter_Send(self->steps, value, &item);
	if (how == PYGEN_ERROR)
		leave(self);
	if (how != PYGEN_RETURN) {
		*result = item;
		return how;
	}
	*result = result_of(self, item);
	Py_DECREF(item);
	return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* The caller is interrupted; waiters let every exception pass. */
static PyObject *ReceiveWaiter_throw(ReceiveWaiter *self, PyObject *args)
{
	PyObject *result = NULL;

	if (is_over(self))
		return NULL;
	if (!self->other)
		waiter_throw(&self->waiter, args);
	else if (steps(self))
		result = awaitable_throw(self->steps, args);
	if (!result)
		leave(self);
	return result;
}

static PyObject *ReceiveWaiter_close(ReceiveWaiter *self, PyObject *unused)
{
	int generator = self->steps && PyObject_HasAttr(self->steps, name_close);
	PyObject *closed = generator ? PyObject_CallMethodObjArgs(self->steps, name_close, NULL) : new_ref(Py_None);

	Py_CLEAR(self->waiter.future);
	leave(self);
	return closed;
}

static int ReceiveWaiter_traverse(ReceiveWaiter *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->waiter.waker);
	Py_VISIT(self->waiter.future);
	Py_VISIT(self->waiter.result);
	Py_VISIT(self->inbox);
	Py_VISIT(self->other);
	Py_VISIT(self->steps);
	Py_VISIT(self->receiver);
	return 0;
}

/* For a task that never ended: its future refers to the task. */
static int ReceiveWaiter_clear(ReceiveWaiter *self)
{
	Py_CLEAR(self->waiter.future);
	return 0;
}

static void ReceiveWaiter_dealloc(ReceiveWaiter *self)
{
	PyObject_GC_UnTrack(self);
	leave(self); /* a task that never ended, or Ctrl-C before the await */
	waiter_release(&self->waiter);
	Py_CLEAR(self->inbox);
	Py_CLEAR(self->other);
	Py_CLEAR(self->steps);
	Py_CLEAR(self->receiver);
	Py_CLEAR(self->room);
	freelist_give(&freelist, self);
}

static PyMethodDef ReceiveWaiter_methods[] = {
	{"send", awaitable_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) ReceiveWaiter_throw, METH_VARARGS,
	 "As of a generator: the message goes to the next task."},
	{"close", (PyCFunction) ReceiveWaiter_close, METH_NOARGS,
	 "As of a generator: the message goes to the next task."},
	{NULL},
};

static PyType_Slot ReceiveWaiter_slots[] = {
	{Py_tp_doc, "The awaitable of a message that is still to come; to be awaited once."},
	{Py_tp_dealloc, ReceiveWaiter_dealloc},
	{Py_tp_traverse, ReceiveWaiter_traverse},
	{Py_tp_clear, ReceiveWaiter_clear},
	{Py_tp_iter, awaitable_self},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, awaitable_self},
	{Py_am_send, ReceiveWaiter_step},
	{Py_tp_methods, ReceiveWaiter_methods},
	{0, NULL},
};

static PyType_Spec ReceiveWaiter_spec = {
	"aiofabric._core.ReceiveWaiter", sizeof(ReceiveWaiter), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, ReceiveWaiter_slots,
};

int add_receive_waiter(PyObject *module)
{
	static const struct name names[] = {
		{&name_close, "close"}, {&name_create_waiter, "create_waiter"}, {&name_done, "done"},
		{&name_return_message, "_return_message"}, {&name_requeue, "_requeue"}, {&name_result, "result"}, {&name_message_refused, "message_refused"},
		{NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &ReceiveWaiter_spec, NULL, &ReceiveWaiter_Type);
}
