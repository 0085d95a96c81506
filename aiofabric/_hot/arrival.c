/*
 * Arrival: what a task awaits for a message that is still to come.  A coroutine of its own for that took 1,900 of the
 * 19,500 instructions that a request costs among a hundred connections.
 */
#include "hot.h"

static PyTypeObject *Arrival_Type;

static PyObject *name_close, *name_put_back, *name_told, *name_withdraw;

typedef struct {
	PyObject_HEAD
	InboxCore *inbox;
	PyObject *waiter, *steps;	/* steps: its iterator, once somebody awaits; waiter: NULL when it is over */
	PyObject *receiver, *room;	/* who gets a `Message`, or NULL for the buffer; how long it may be, or NULL */
} Arrival;

PyObject *arrival_new(InboxCore *inbox, PyObject *waiter, PyObject *receiver, PyObject *room)
{
	allocfunc alloc = PyType_GetSlot(Arrival_Type, Py_tp_alloc);
	Arrival *self = (Arrival *) alloc(Arrival_Type, 0);

	if (!self)
		return NULL;
	self->inbox = (InboxCore *) new_ref(inbox);
	self->waiter = new_ref(waiter);
	self->receiver = receiver ? new_ref(receiver) : NULL;
	self->room = room ? new_ref(room) : NULL;
	return (PyObject *) self;
}

/* Nobody waits any more.  The exception that is set stays so. */
static void leave(Arrival *self)
{
	PyObject *waiter = self->waiter, *type, *error, *traceback;

	if (!waiter)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	self->waiter = NULL;
	self->inbox->source->interest--;
	if (drop(PyObject_CallMethodObjArgs((PyObject *) self->inbox, name_withdraw, waiter, NULL)))
		PyErr_WriteUnraisable((PyObject *) self->inbox);
	Py_DECREF(waiter);
	PyErr_Restore(type, error, traceback);
}

/* What was handed out: the error that it is, or the message as it was asked for. */
static PyObject *answer(Arrival *self, PyObject *item)
{
	PyObject *inbox = (PyObject *) self->inbox, *type, *error, *traceback;

	Py_CLEAR(self->waiter);
	self->inbox->source->interest--;
	if (PyExceptionInstance_Check(item)) {
		if (!drop(PyObject_CallMethodObjArgs(inbox, name_told, NULL)))
			PyErr_SetObject((PyObject *) type_of(item), item);
		return NULL;
	}
	if (self->room && inbox_too_long(self->inbox, item, self->room)) {
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs(inbox, name_put_back, item, NULL)))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
		return NULL;
	}
	return self->receiver ? inbox_unpack(self->inbox, self->receiver, item) : new_ref(item);
}

static int begun(Arrival *self)
{
	if (!self->waiter) {
		PyErr_SetString(PyExc_RuntimeError, "a message is awaited once");
		return 0;
	}
	if (!self->steps)
		self->steps = steps_of(self->waiter);
	return self->steps != NULL;
}

static PySendResult Arrival_step(Arrival *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_ERROR;
	PyObject *item = NULL;

	if (begun(self))
		how = PyIter_Send(self->steps, value, &item);
	if (how == PYGEN_ERROR)
		leave(self);
	if (how != PYGEN_RETURN) {
		*result = item;
		return how;
	}
	*result = answer(self, item);
	Py_DECREF(item);
	return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* The caller is interrupted; waiters let every exception pass. */
static PyObject *Arrival_throw(Arrival *self, PyObject *args)
{
	PyObject *result = begun(self) ? steps_throw(self->steps, args) : NULL;

	if (!result)
		leave(self);
	return result;
}

static PyObject *Arrival_close(Arrival *self, PyObject *unused)
{
	int generator = self->steps && PyObject_HasAttr(self->steps, name_close);
	PyObject *closed = generator ? PyObject_CallMethodObjArgs(self->steps, name_close, NULL) : new_ref(Py_None);

	leave(self);
	return closed;
}

static int Arrival_traverse(Arrival *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->inbox);
	Py_VISIT(self->waiter);
	Py_VISIT(self->steps);
	Py_VISIT(self->receiver);
	return 0;
}

static void Arrival_dealloc(Arrival *self)
{
	PyObject_GC_UnTrack(self);
	leave(self); /* a task that never ended, or Ctrl-C before the await */
	Py_CLEAR(self->inbox);
	Py_CLEAR(self->steps);
	Py_CLEAR(self->receiver);
	Py_CLEAR(self->room);
	free_object(self);
}

static PyMethodDef Arrival_methods[] = {
	{"send", steps_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) Arrival_throw, METH_VARARGS, "As of a generator: the message is the next one's."},
	{"close", (PyCFunction) Arrival_close, METH_NOARGS, "As of a generator: the message is the next one's."},
	{NULL},
};

static PyType_Slot Arrival_slots[] = {
	{Py_tp_doc, "A message that is still to come: to be awaited, once."},
	{Py_tp_dealloc, Arrival_dealloc},
	{Py_tp_traverse, Arrival_traverse},
	{Py_tp_iter, steps_self},
	{Py_tp_iternext, steps_next},
	{Py_am_await, steps_self},
	{Py_am_send, Arrival_step},
	{Py_tp_methods, Arrival_methods},
	{0, NULL},
};

static PyType_Spec Arrival_spec = {
	"aiofabric._hot.Arrival", sizeof(Arrival), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, Arrival_slots,
};

int add_arrival(PyObject *module)
{
	static const struct name names[] = {
		{&name_close, "close"}, {&name_put_back, "_put_back"}, {&name_told, "told"},
		{&name_withdraw, "_withdraw"}, {NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &Arrival_spec, NULL, &Arrival_Type);
}
