/*
 * DataWaiter: a receive that waits for data. The pass that reads the data wakes it, and it takes the data when its task
 * resumes: a cancel before that loses nothing. On asyncio it is also the task's waiter. It waits once: if there is no data
 * then, the method in Python goes on.
 */
#include "channel/data_waiter.h"
#include "base/awaitable.h"
#include "base/freelist.h"
#include "base/names.h"
#include "base/references.h"
#include "channel/arrivals.h"
#include "channel/channel.h"
#include "channel/message_reader.h"
#include "channel/reading.h"
#include "progress/arming.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"

PyTypeObject *GuardCore_Type;

static PyTypeObject *DataWaiter_Type;

static PyObject *name_close;
static Freelist freelist;

enum data_phase { DATA_WAITING, DATA_IN_PYTHON, DATA_OVER };

typedef struct {
	Waiter waiter;		/* it shares this object's head */
	ChannelCore *channel;
	GuardCore *guard;
	struct receiving_call call;
	PyObject *steps;	/* of the method in Python */
	char phase;
} DataWaiter;

PyObject *data_take(ChannelCore *channel, const struct receiving_call *call)
{
	Py_ssize_t count;

	if (!channel->arrivals.size || channel->closed != Py_None)
		return NULL;
	if (call->reader)
		return message_reader_take(call->reader);
	if (!call->memory.obj)
		return channel_take(channel, call->most);
	count = channel_take_into(channel, call->memory.buf, call->memory.len);
	return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

PyObject *data_waiter_new(ChannelCore *channel, GuardCore *guard, struct receiving_call *call)
{
	DataWaiter *self = freelist_take(&freelist, DataWaiter_Type, sizeof(*self));

	if (!self) {
		PyBuffer_Release(&call->memory);
		return NULL;
	}
	assert(channel->source && channel->source->waker && !channel->reader && !guard->busy);
	self->waiter.waker = (Waker *) new_ref(channel->source->waker);
	self->channel = (ChannelCore *) new_ref(channel);
	self->guard = (GuardCore *) new_ref(guard);
	self->call = *call;
	Py_INCREF(call->stream);
	Py_XINCREF(call->argument);
	Py_INCREF(call->method);
	Py_XINCREF((PyObject *) call->reader);
	guard->busy = 1;
	channel->reader = &self->waiter;
	if (source_prepare_wait(channel->source))
		Py_CLEAR(self); /* which leaves */
	return (PyObject *) self;
}

/* The task waits no more. */
static void leave(DataWaiter *self)
{
	if (self->phase == DATA_WAITING) {
		if (self->channel->reader == &self->waiter)
			self->channel->reader = NULL;
		self->guard->busy = 0;
	}
	self->phase = DATA_OVER;
}

static PySendResult step_in_python(DataWaiter *self, PyObject *value, PyObject **result)
{
	PySendResult how = PyIter_Send(self->steps, value, result);

	if (how != PYGEN_NEXT)
		self->phase = DATA_OVER;
	return how;
}

/* The end, an error, or data that another caller has taken. */
static PySendResult go_on_in_python(DataWaiter *self, PyObject **result)
{
	struct receiving_call *call = &self->call;

	PyBuffer_Release(&call->memory);
	self->steps = PyObject_CallMethodObjArgs(call->stream, call->method, call->argument, NULL);
	if (!self->steps)
		return PYGEN_ERROR;
	self->phase = DATA_IN_PYTHON;
	return step_in_python(self, Py_None, result);
}

static PySendResult DataWaiter_step(DataWaiter *self, PyObject *value, PyObject **result)
{
	PySendResult how;

	*result = NULL;
	if (self->phase == DATA_IN_PYTHON)
		return step_in_python(self, value, result);
	if (self->phase == DATA_OVER) {
		PyErr_SetString(PyExc_RuntimeError, "expected a receive that was not awaited yet, got one that was");
		return PYGEN_ERROR;
	}
	how = waiter_step(&self->waiter, result);
	if (how == PYGEN_NEXT)
		return how;
	Py_CLEAR(*result);
	leave(self);
	if (how == PYGEN_ERROR)
		return how;
	*result = data_take(self->channel, &self->call);
	if (*result)
		return PYGEN_RETURN;
	return PyErr_Occurred() ? PYGEN_ERROR : go_on_in_python(self, result);
}

static PyObject *DataWaiter_throw(DataWaiter *self, PyObject *args)
{
	PyObject *result;

	if (self->phase != DATA_IN_PYTHON) {
		leave(self);
		return waiter_throw(&self->waiter, args);
	}
	result = awaitable_throw(self->steps, args);
	if (!result)
		self->phase = DATA_OVER;
	return result;
}

static PyObject *DataWaiter_close(DataWaiter *self, PyObject *unused)
{
	PyObject *steps = self->phase == DATA_IN_PYTHON ? new_ref(self->steps) : NULL;
	PyObject *closed = steps ? PyObject_CallMethodObjArgs(steps, name_close, NULL) : new_ref(Py_None);

	Py_XDECREF(steps);
	Py_CLEAR(self->waiter.future);
	leave(self);
	return closed;
}

static int DataWaiter_traverse(DataWaiter *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->waiter.waker);
	Py_VISIT(self->waiter.future);
	Py_VISIT(self->waiter.result);
	Py_VISIT(self->channel);
	Py_VISIT(self->guard);
	Py_VISIT(self->call.stream);
	Py_VISIT(self->call.argument);
	Py_VISIT(self->call.reader);
	Py_VISIT(self->steps);
	return 0;
}

/* For a task that never ended: its future refers to the task. */
static int DataWaiter_clear(DataWaiter *self)
{
	Py_CLEAR(self->waiter.future);
	return 0;
}

static void DataWaiter_dealloc(DataWaiter *self)
{
	PyObject_GC_UnTrack(self);
	if (self->channel)
		leave(self);
	waiter_release(&self->waiter);
	if (self->call.memory.obj)
		PyBuffer_Release(&self->call.memory);
	Py_CLEAR(self->channel);
	Py_CLEAR(self->guard);
	Py_CLEAR(self->call.stream);
	Py_CLEAR(self->call.argument);
	Py_CLEAR(self->call.method);
	Py_CLEAR(self->call.reader);
	Py_CLEAR(self->steps);
	freelist_give(&freelist, self);
}

static PyMethodDef DataWaiter_methods[] = {
	{"send", awaitable_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) DataWaiter_throw, METH_VARARGS, "As of a generator: the data stays."},
	{"close", (PyCFunction) DataWaiter_close, METH_NOARGS, "As of a generator: the data stays."},
	{NULL},
};

static PyType_Slot DataWaiter_slots[] = {
	{Py_tp_doc, "The awaitable of data that is still to come; to be awaited once."},
	{Py_tp_dealloc, DataWaiter_dealloc},
	{Py_tp_traverse, DataWaiter_traverse},
	{Py_tp_clear, DataWaiter_clear},
	{Py_tp_iter, awaitable_self},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, awaitable_self},
	{Py_am_send, DataWaiter_step},
	{Py_tp_methods, DataWaiter_methods},
	{0, NULL},
};

static PyType_Spec DataWaiter_spec = {
	"aiofabric._core.DataWaiter", sizeof(DataWaiter), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, DataWaiter_slots,
};

static void GuardCore_dealloc(GuardCore *self)
{
	free_object(self);
}

static PyMemberDef GuardCore_members[] = {
	{"busy", T_BOOL, offsetof(GuardCore, busy), 0, "whether a task is inside"},
	{NULL},
};

static PyType_Slot GuardCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.streams.base.Guard`."},
	{Py_tp_dealloc, GuardCore_dealloc},
	{Py_tp_members, GuardCore_members},
	{0, NULL},
};

static PyType_Spec GuardCore_spec = {
	"aiofabric._core.GuardCore", sizeof(GuardCore), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, GuardCore_slots,
};

int add_data_waiter(PyObject *module)
{
	static const struct name names[] = {{&name_close, "close"}, {NULL}};

	if (intern(names) || add_type(module, &GuardCore_spec, NULL, &GuardCore_Type))
		return -1;
	return add_type(module, &DataWaiter_spec, NULL, &DataWaiter_Type);
}
