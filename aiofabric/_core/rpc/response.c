/*
 * ResponseCore: the call object of a call with one response, which is awaited. rpc/grpc/client/calls.py has the rest
 * of it, and the cases that this file leaves to Python: another task that waits, a call without a connection, trio.
 *
 * Most responses are found by the poll before the first wait, and the next most after one iteration of the loop.
 */
#include "rpc/response.h"
#include "base/awaitable.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/arming.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"
#include "rpc/call.h"
#include "rpc/connection.h"

static PyTypeObject *CallObject_Type, *ResponseCore_Type, *ResponseWaiter_Type;
static PyObject *CancelledError;
static PyObject *name_cancel_locally, *name_check, *name_close, *name_outcome_later, *name_wait;

/* YIELDING: the loop iterates once; WAITING: for the waiter; IN_PYTHON: `steps` has the rest */
enum { CREATED, YIELDING, WAITING, IN_PYTHON, OVER };

typedef struct {
	PyObject_HEAD
	CallObject *call;
	PyObject *waiter;	/* while this task is the call's receiver */
	ConnectionCore *connection;
	SourceCore *source;
	PyObject *steps;
	char phase;
} ResponseWaiter;

static int has_ended(const CallObject *call)
{
	return !is_none(((ClientCallCore *) call->rpc)->final);
}

/* The response of a call that has ended, or its error. */
static PyObject *outcome(CallObject *self)
{
	ClientCallCore *rpc = (ClientCallCore *) self->rpc;
	PyObject *received, *response;

	if (!rpc->answered && drop(PyObject_CallMethodObjArgs(self->rpc, name_check, NULL)))
		return NULL;
	if (self->response)
		return new_ref(self->response);
	received = new_ref(is_none(rpc->received) ? Py_None : rpc->received);
	response = is_none(self->deserializer) ? new_ref(received)
					       : PyObject_CallFunctionObjArgs(self->deserializer, received, NULL);
	Py_DECREF(received);
	if (response)
		REPLACE(self->response, new_ref(response));
	return response;
}

/* -- ResponseWaiter */

/* The connection of a call that has one whose frames C sends, on asyncio; NULL otherwise. */
static ConnectionCore *connection_of(const ClientCallCore *rpc)
{
	PyObject *connection = rpc->call.connection;
	SourceCore *source;

	if (!rpc->attached || !connection || !PyObject_TypeCheck(connection, ConnectionCore_Type))
		return NULL;
	source = rpc_connection_source((ConnectionCore *) connection);
	return source && source->waker && !source->checkpoints ? (ConnectionCore *) connection : NULL;
}

/* As RpcTransport.poll: send what is gathered and poll the queue, unless other tasks are about to run. */
static int poll_once(ConnectionCore *connection, SourceCore *source)
{
	if (source->iteration.others_woken)
		return 0;
	if (connection->output && PyList_Check(connection->output) && PyList_Size(connection->output) &&
	    !is_none(connection->flush) && drop(PyObject_CallNoArgs(connection->flush)))
		return -1;
	return source_poll(source);
}

/* This task waits no more. Other tasks that wait for the call are woken at its end. */
static void leave(ResponseWaiter *self)
{
	ClientCallCore *rpc = (ClientCallCore *) self->call->rpc;

	if (self->phase == YIELDING)
		iteration_continue(&self->source->iteration);
	self->phase = OVER;
	if (self->waiter && rpc->receiver == self->waiter)
		REPLACE(rpc->receiver, NULL);
	Py_CLEAR(self->waiter);
}

/* An exception ends the wait. If the waiting task is cancelled, so is the call. */
static PySendResult interrupted(ResponseWaiter *self)
{
	PyObject *type, *error, *traceback;

	leave(self);
	if (PyErr_ExceptionMatches(CancelledError)) {
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs(self->call->rpc, name_cancel_locally, NULL)))
			PyErr_WriteUnraisable(self->call->rpc);
		PyErr_Restore(type, error, traceback);
	}
	return PYGEN_ERROR;
}

static PySendResult over(ResponseWaiter *self, PyObject **result)
{
	leave(self);
	*result = outcome(self->call);
	return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

static PySendResult elsewhere(ResponseWaiter *self, PyObject *value, PyObject **result)
{
	PySendResult how = PyIter_Send(self->steps, value, result);

	if (how != PYGEN_NEXT)
		self->phase = OVER;
	return how;
}

/* A generator in Python has the rest. */
static PySendResult continue_elsewhere(ResponseWaiter *self, PyObject *name, PyObject **result)
{
	leave(self);
	REPLACE(self->steps, PyObject_CallMethodObjArgs((PyObject *) self->call, name, NULL));
	if (!self->steps)
		return PYGEN_ERROR;
	self->phase = IN_PYTHON;
	return elsewhere(self, Py_None, result);
}

/* The response was found without a wait. After many such awaits in a row, other tasks run first. */
static PySendResult found(ResponseWaiter *self, PyObject **result)
{
	if (self->source && iteration_must_yield(&self->source->iteration))
		return continue_elsewhere(self, name_outcome_later, result);
	return over(self, result);
}

static PySendResult woken(ResponseWaiter *self, PyObject **result)
{
	return has_ended(self->call) ? over(self, result) : continue_elsewhere(self, name_wait, result);
}

/* Also where Python ran meanwhile, such as in a poll, and closed this. */
static PySendResult used_up(void)
{
	PyErr_SetString(PyExc_RuntimeError, "expected an await that has not ended, got one that has");
	return PYGEN_ERROR;
}

static PySendResult suspend(ResponseWaiter *self, PyObject **result)
{
	PySendResult how;

	self->phase = WAITING;
	if (source_prepare_wait(self->source))
		return interrupted(self);
	if (self->phase != WAITING)
		return used_up();
	how = waiter_step((Waiter *) self->waiter, result);
	if (how == PYGEN_RETURN) {
		Py_CLEAR(*result);
		return woken(self, result);
	}
	return how == PYGEN_ERROR ? interrupted(self) : how;
}

static PySendResult loop_iterated(ResponseWaiter *self, PyObject **result)
{
	self->phase = WAITING;
	iteration_continue(&self->source->iteration);
	source_iterated(self->source);
	if (!has_ended(self->call) && poll_once(self->connection, self->source))
		return interrupted(self);
	if (self->phase != WAITING)
		return used_up();
	return has_ended(self->call) ? found(self, result) : suspend(self, result);
}

/* As Source.yield_to_loop. */
static PySendResult yield_to_loop(ResponseWaiter *self, PyObject **result)
{
	if (source_arm_if_quiet(self->source))
		return interrupted(self);
	if (self->phase != CREATED)
		return used_up();
	iteration_yield(&self->source->iteration);
	self->phase = YIELDING;
	*result = new_ref(Py_None);
	return PYGEN_NEXT;
}

static PySendResult begin(ResponseWaiter *self, PyObject **result)
{
	ClientCallCore *rpc = (ClientCallCore *) self->call->rpc;
	ConnectionCore *connection = connection_of(rpc);

	if (has_ended(self->call))
		return over(self, result);
	if (!connection)
		return continue_elsewhere(self, name_wait, result);
	REPLACE(self->connection, (ConnectionCore *) new_ref(connection));
	REPLACE(self->source, (SourceCore *) new_ref(rpc_connection_source(connection)));
	if (poll_once(connection, self->source))
		return interrupted(self);
	if (self->phase != CREATED)
		return used_up();
	if (has_ended(self->call))
		return found(self, result);
	if (!is_none(rpc->receiver) || connection_of(rpc) != self->connection) /* another task waits; Python ran in the poll */
		return continue_elsewhere(self, name_wait, result);
	REPLACE(self->waiter, waiter_new(self->source->waker));
	if (!self->waiter)
		return interrupted(self);
	REPLACE(rpc->receiver, new_ref(self->waiter));
	return self->source->iteration.must_iterate ? yield_to_loop(self, result) : suspend(self, result);
}

static PySendResult ResponseWaiter_step(ResponseWaiter *self, PyObject *value, PyObject **result)
{
	PySendResult how;

	*result = NULL;
	switch (self->phase) {
	case CREATED:
		return begin(self, result);
	case YIELDING:
		return loop_iterated(self, result);
	case WAITING:
		how = waiter_step((Waiter *) self->waiter, result);
		Py_CLEAR(*result);
		return how == PYGEN_RETURN ? woken(self, result) : interrupted(self);
	case IN_PYTHON:
		return elsewhere(self, value, result);
	default:
		return used_up();
	}
}

static PyObject *ResponseWaiter_throw(ResponseWaiter *self, PyObject *args)
{
	PyObject *result;

	if (self->phase == IN_PYTHON) {
		result = awaitable_throw(self->steps, args);
		if (!result)
			self->phase = OVER;
		return result;
	}
	if (self->phase == WAITING)
		waiter_throw((Waiter *) self->waiter, args);
	else
		awaitable_raise(args);
	if (self->phase == YIELDING || self->phase == WAITING)
		interrupted(self);
	else
		self->phase = OVER;
	return NULL;
}

static PyObject *ResponseWaiter_close(ResponseWaiter *self, PyObject *unused)
{
	PyObject *steps = self->phase == IN_PYTHON ? new_ref(self->steps) : NULL;
	PyObject *closed = steps ? PyObject_CallMethodObjArgs(steps, name_close, NULL) : new_ref(Py_None);

	Py_XDECREF(steps);
	leave(self);
	return closed;
}

static int ResponseWaiter_traverse(ResponseWaiter *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->call);
	Py_VISIT(self->waiter);
	Py_VISIT(self->connection);
	Py_VISIT(self->source);
	Py_VISIT(self->steps);
	return 0;
}

static void ResponseWaiter_dealloc(ResponseWaiter *self)
{
	PyObject_GC_UnTrack(self);
	leave(self); /* a task that never ended */
	Py_CLEAR(self->call);
	Py_CLEAR(self->connection);
	Py_CLEAR(self->source);
	Py_CLEAR(self->steps);
	free_object(self);
}

static PyMethodDef ResponseWaiter_methods[] = {
	{"send", awaitable_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) ResponseWaiter_throw, METH_VARARGS, "As of a generator."},
	{"close", (PyCFunction) ResponseWaiter_close, METH_NOARGS, "As of a generator."},
	{NULL},
};

static PyType_Slot ResponseWaiter_slots[] = {
	{Py_tp_doc, "The steps of an await of a call with one response."},
	{Py_tp_dealloc, ResponseWaiter_dealloc},
	{Py_tp_traverse, ResponseWaiter_traverse},
	{Py_tp_iter, awaitable_self},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, awaitable_self},
	{Py_am_send, ResponseWaiter_step},
	{Py_tp_methods, ResponseWaiter_methods},
	{0, NULL},
};

static PyType_Spec ResponseWaiter_spec = {
	"aiofabric._core.ResponseWaiter", sizeof(ResponseWaiter), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, ResponseWaiter_slots,
};

/* -- call objects */

static int initialised(const CallObject *self)
{
	if (self->rpc && PyObject_TypeCheck(self->rpc, ClientCallCore_Type))
		return 1;
	PyErr_SetString(PyExc_RuntimeError, "the call was not initialised");
	return 0;
}

static PyObject *ResponseCore_await(CallObject *self)
{
	allocfunc alloc = PyType_GetSlot(ResponseWaiter_Type, Py_tp_alloc);
	ResponseWaiter *steps = initialised(self) ? (ResponseWaiter *) alloc(ResponseWaiter_Type, 0) : NULL;

	if (steps)
		steps->call = (CallObject *) new_ref(self);
	return (PyObject *) steps;
}

static PyObject *ResponseCore_outcome(CallObject *self, PyObject *unused)
{
	return initialised(self) ? outcome(self) : NULL;
}

int rpc_response_is_type(PyObject *type)
{
	return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *) type, ResponseCore_Type);
}

PyObject *rpc_response_new(PyTypeObject *type, ClientCallCore *rpc, PyObject *deserializer)
{
	allocfunc alloc = PyType_GetSlot(type, Py_tp_alloc);
	CallObject *self = (CallObject *) alloc(type, 0);

	if (!self)
		return NULL;
	self->rpc = new_ref(rpc);
	self->deserializer = new_ref(deserializer ? deserializer : Py_None);
	return (PyObject *) self;
}

static int CallObject_init(CallObject *self, PyObject *args, PyObject *kwargs)
{
	PyObject *rpc, *deserializer;

	if (refuse_second_init(self->rpc) || !PyArg_ParseTuple(args, "O!O", ClientCallCore_Type, &rpc, &deserializer))
		return -1;
	self->rpc = new_ref(rpc);
	REPLACE(self->deserializer, new_ref(deserializer));
	return 0;
}

static int CallObject_traverse(CallObject *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->rpc);
	Py_VISIT(self->deserializer);
	Py_VISIT(self->response);
	return 0;
}

/* `rpc` stays: methods use it. It does not refer to this object. */
static int CallObject_clear(CallObject *self)
{
	Py_CLEAR(self->deserializer);
	Py_CLEAR(self->response);
	return 0;
}

static void CallObject_dealloc(CallObject *self)
{
	PyObject_GC_UnTrack(self);
	if (self->weak)
		PyObject_ClearWeakRefs((PyObject *) self);
	CallObject_clear(self);
	Py_CLEAR(self->rpc);
	free_object(self);
}

static PyMemberDef CallObject_members[] = {
	{"_rpc", T_OBJECT_EX, offsetof(CallObject, rpc), READONLY},
	{"_deserializer", T_OBJECT, offsetof(CallObject, deserializer), READONLY},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(CallObject, weak), READONLY},
	{NULL},
};

static PyType_Slot CallObject_slots[] = {
	{Py_tp_doc, "CallObject(rpc, deserializer): base of `aiofabric.rpc.grpc.client.call.Call`."},
	{Py_tp_init, CallObject_init},
	{Py_tp_dealloc, CallObject_dealloc},
	{Py_tp_traverse, CallObject_traverse},
	{Py_tp_clear, CallObject_clear},
	{Py_tp_members, CallObject_members},
	{0, NULL},
};

static PyType_Spec CallObject_spec = {
	"aiofabric._core.CallObject", sizeof(CallObject), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, CallObject_slots,
};

static PyMethodDef ResponseCore_methods[] = {
	{"_outcome", (PyCFunction) ResponseCore_outcome, METH_NOARGS, "The response of a call that has ended, or its error."},
	{NULL},
};

static PyType_Slot ResponseCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.rpc.grpc.client.calls.OneResponse`."},
	{Py_am_await, ResponseCore_await},
	{Py_tp_traverse, CallObject_traverse},
	{Py_tp_clear, CallObject_clear},
	{Py_tp_methods, ResponseCore_methods},
	{0, NULL},
};

static PyType_Spec ResponseCore_spec = {
	"aiofabric._core.ResponseCore", sizeof(CallObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	ResponseCore_slots,
};

int add_rpc_response(PyObject *module)
{
	static const struct name names[] = {
		{&name_cancel_locally, "cancel_locally"}, {&name_check, "check"}, {&name_close, "close"},
		{&name_outcome_later, "_outcome_later"}, {&name_wait, "_wait"}, {NULL},
	};

	CancelledError = import_from("asyncio.exceptions", "CancelledError");
	if (!CancelledError || intern(names) || add_type(module, &CallObject_spec, NULL, &CallObject_Type))
		return -1;
	if (add_type(module, &ResponseCore_spec, (PyObject *) CallObject_Type, &ResponseCore_Type))
		return -1;
	return add_type(module, &ResponseWaiter_spec, NULL, &ResponseWaiter_Type);
}
