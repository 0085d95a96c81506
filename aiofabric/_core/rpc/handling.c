/*
 * Handling: the coroutine that handles a call with one request and one response on asyncio. `handle` in
 * rpc/grpc/server/handling.py handles every other call, and has the functions that end a call whose handler raised.
 *
 * In Python the same took 3 us more, of the 26 us that a call of 64 B cost a server (protobuf, both sides on one core).
 */
#include "rpc/handling.h"
#include "base/awaitable.h"
#include "base/coroutine.h"
#include "base/names.h"
#include "base/references.h"
#include "rpc/call.h"
#include "rpc/connection.h"
#include "rpc/message.h"
#include "rpc/server_frames.h"

typedef struct {
	Coroutine base;		/* its steps are the handler's */
	HandlerPlan *plan;
	ServerRpcCore *rpc;
} Handling;

static PyTypeObject *Handling_Type, *coroutine_type;
static PyObject *name_code, *name_conclude, *name_cr_code, *name_cr_frame, *name_qualname, *name_respond;

PyObject *handling_new(HandlerPlan *plan, ServerRpcCore *rpc)
{
	/* Not from a free list: the collector finalizes an object once. */
	allocfunc alloc = PyType_GetSlot(Handling_Type, Py_tp_alloc);
	Handling *self = (Handling *) alloc(Handling_Type, 0);

	if (self) {
		self->plan = (HandlerPlan *) new_ref(plan);
		self->rpc = (ServerRpcCore *) new_ref(rpc);
	}
	return (PyObject *) self;
}

static void drop_references(Handling *self)
{
	self->base.phase = COROUTINE_OVER;
	Py_CLEAR(self->plan);
	Py_CLEAR(self->rpc);
	Py_CLEAR(self->base.steps);
}

/* Called after the handler has returned, raised or was cancelled. An exception that is set stays set. */
static void finish(Handling *self)
{
	PyObject *type, *error, *traceback;

	if (!is_none(self->rpc->callbacks)) {
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallFunctionObjArgs(self->plan->ended, (PyObject *) self->rpc, NULL)) && type)
			PyErr_Clear(); /* the first exception says more */
		if (type)
			PyErr_Restore(type, error, traceback);
	}
	drop_references(self);
}

/* The handler raised. 0: the call has ended with that; -1: the exception goes on. */
static int handler_failed(Handling *self)
{
	PyObject *type, *error, *traceback;
	int handled;

	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (error && traceback)
		PyException_SetTraceback(error, traceback);
	handled = truth_of(PyObject_CallFunctionObjArgs(self->plan->failed, (PyObject *) self->rpc, error ? error : Py_None, NULL));
	if (!handled) {
		PyErr_Restore(type, error, traceback);
		return -1;
	}
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return handled > 0 ? 0 : -1;
}

static int has_items(PyObject *field)
{
	return !is_none(field) && PyObject_Size(field);
}

/* End the call with the handler's response. */
static int conclude(Handling *self, PyObject *response)
{
	ServerRpcCore *rpc = self->rpc;
	PyObject *message, *connection = rpc->call.connection;
	int rc;

	if (rpc->code_number) /* `abort` sets one, too */
		return drop(PyObject_CallMethodObjArgs((PyObject *) rpc, name_respond, response, self->plan->serializer, NULL));
	message = rpc_serialized_response(response, self->plan->serializer);
	if (!message)
		return -1;
	if (has_items(rpc->details) || has_items(rpc->trailing) || is_none(connection) ||
	    !PyObject_TypeCheck(connection, ConnectionCore_Type))
		rc = 0;
	else
		rc = rpc_server_conclude((ConnectionCore *) connection, &rpc->call, message);
	if (rc > 0)
		rpc->decided = 1;
	else if (!rc)
		rc = drop(PyObject_CallMethodObjArgs((PyObject *) rpc, name_conclude, message, NULL));
	Py_DECREF(message);
	return rc < 0 ? -1 : 0;
}

/* As `await` finds them. */
static PyObject *steps_of(PyObject *awaited)
{
	unaryfunc await;
	PyObject *name;

	if (Py_IS_TYPE(awaited, coroutine_type))
		return new_ref(awaited);
	await = PyType_GetSlot(type_of(awaited), Py_am_await);
	if (await)
		return await(awaited);
	name = PyType_GetName(type_of(awaited));
	if (name)
		PyErr_Format(PyExc_TypeError, "a handler must return an awaitable, not %U", name);
	Py_XDECREF(name);
	return NULL;
}

static int call_handler(Handling *self)
{
	HandlerPlan *plan = self->plan;
	PyObject *data = self->rpc->first, *request, *context = NULL, *awaited = NULL;

	self->base.phase = COROUTINE_GOING;
	self->rpc->first = NULL;
	if (!data) {
		PyErr_SetString(PyExc_RuntimeError, "expected a call with its request, got one whose request was taken");
		return -1;
	}
	request = plan->deserializer == Py_None ? new_ref(data) : PyObject_CallFunctionObjArgs(plan->deserializer, data, NULL);
	Py_DECREF(data);
	if (request)
		context = PyObject_CallFunctionObjArgs(plan->context_type, (PyObject *) self->rpc, plan->deserializer,
						       plan->serializer, NULL);
	if (context)
		awaited = PyObject_CallFunctionObjArgs(plan->behaviour, request, context, NULL);
	if (awaited)
		self->base.steps = steps_of(awaited);
	Py_XDECREF(request);
	Py_XDECREF(context);
	Py_XDECREF(awaited);
	return self->base.steps ? 0 : -1;
}

/* The outcome of one step of the handler. */
static PySendResult stepped(Handling *self, PySendResult how, PyObject **result)
{
	int rc;

	if (how == PYGEN_NEXT)
		return how;
	rc = how == PYGEN_RETURN ? conclude(self, *result) : -1;
	Py_CLEAR(*result);
	if (rc)
		rc = handler_failed(self);
	finish(self);
	if (rc || PyErr_Occurred())
		return PYGEN_ERROR;
	*result = new_ref(Py_None);
	return PYGEN_RETURN;
}

static PySendResult Handling_step(Handling *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_ERROR;

	*result = NULL;
	if (coroutine_refuses_value(&self->base, value))
		return PYGEN_ERROR;
	self->base.running = 1;
	if (self->base.phase == COROUTINE_GOING || !call_handler(self))
		how = PyIter_Send(self->base.steps, value, result);
	how = stepped(self, how, result);
	self->base.running = 0;
	return how;
}

/* The value of the StopIteration that is set. */
static PyObject *returned_value(void)
{
	PyObject *type, *error, *traceback, *value;

	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	value = error ? PyObject_GetAttrString(error, "value") : NULL;
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return value;
}

static PyObject *Handling_throw(Handling *self, PyObject *args)
{
	PySendResult how = PYGEN_NEXT;
	PyObject *result;

	if (coroutine_refuses(&self->base, 1))
		return NULL;
	if (self->base.phase == COROUTINE_CREATED) {
		drop_references(self);
		return awaitable_raise(args);
	}
	self->base.running = 1;
	result = awaitable_throw(self->base.steps, args);
	if (!result && PyErr_ExceptionMatches(PyExc_StopIteration)) {
		result = returned_value();
		how = result ? PYGEN_RETURN : PYGEN_ERROR;
	} else if (!result) {
		how = PYGEN_ERROR;
	}
	how = stepped(self, how, &result);
	self->base.running = 0;
	return awaitable_value(how, result);
}

static int close_steps(Handling *self)
{
	int rc;

	assert(self->base.steps);
	self->base.running = 1;
	rc = coroutine_close_steps(&self->base) ? handler_failed(self) : 0;
	finish(self);
	self->base.running = 0;
	return rc || PyErr_Occurred() ? -1 : 0;
}

static PyObject *Handling_close(Handling *self, PyObject *unused)
{
	if (coroutine_refuses(&self->base, 0))
		return NULL;
	if (self->base.phase == COROUTINE_GOING)
		return none_if(close_steps(self));
	drop_references(self);
	Py_RETURN_NONE;
}

static int Handling_traverse(Handling *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->plan);
	Py_VISIT(self->rpc);
	Py_VISIT(self->base.steps);
	return 0;
}

/* As for any coroutine, the handler's `finally` runs now. The collector calls this before it clears any object. */
static void Handling_finalize(Handling *self)
{
	PyObject *type, *error, *traceback;

	if (self->base.phase != COROUTINE_GOING)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	if (close_steps(self))
		PyErr_WriteUnraisable((PyObject *) Handling_Type);
	PyErr_Restore(type, error, traceback);
}

static void Handling_dealloc(Handling *self)
{
	PyObject_GC_UnTrack(self);
	if (self->base.weak)
		PyObject_ClearWeakRefs((PyObject *) self);
	Handling_finalize(self);
	drop_references(self);
	free_object(self);
}

static PyObject *Handling_get_qualname(Handling *self, void *unused)
{
	PyObject *name = self->plan ? PyObject_GetAttr(self->plan->behaviour, name_qualname) : NULL;

	PyErr_Clear();
	return name ? name : PyUnicode_FromString("Handling");
}

/* The handler's own frame, from its first step on. */
static PyObject *Handling_get_frame(Handling *self, void *unused)
{
	if (self->base.phase == COROUTINE_CREATED)
		return coroutine_first_frame();
	return self->base.steps ? PyObject_GetAttr(self->base.steps, name_cr_frame) : new_ref(Py_None);
}

static PyObject *Handling_get_code(Handling *self, void *unused)
{
	if (self->base.steps)
		return PyObject_GetAttr(self->base.steps, name_cr_code);
	if (self->plan)
		return PyObject_GetAttr(self->plan->behaviour, name_code);
	PyErr_SetString(PyExc_AttributeError, "the handler has ended");
	return NULL;
}

static PyObject *Handling_repr(Handling *self)
{
	PyObject *name = Handling_get_qualname(self, NULL);
	PyObject *repr = name ? PyUnicode_FromFormat("<coroutine of the handler %U at %p>", name, self) : NULL;

	Py_XDECREF(name);
	return repr;
}

static PyMethodDef Handling_methods[] = {
	{"send", awaitable_send, METH_O, "As of a coroutine."},
	{"throw", (PyCFunction) Handling_throw, METH_VARARGS, "As of a coroutine."},
	{"close", (PyCFunction) Handling_close, METH_NOARGS, "As of a coroutine."},
	{NULL},
};

static PyGetSetDef Handling_getset[] = {
	{"__name__", (getter) Handling_get_qualname, NULL, "The name of the handler."},
	{"__qualname__", (getter) Handling_get_qualname, NULL, "The name of the handler."},
	{"cr_suspended", (getter) coroutine_get_suspended, NULL, "As of a coroutine."},
	{"cr_frame", (getter) Handling_get_frame, NULL, "The handler's frame."},
	{"cr_code", (getter) Handling_get_code, NULL, "The handler's code."},
	{NULL},
};

static PyMemberDef Handling_members[] = {
	COROUTINE_MEMBERS,
	{NULL},
};

static PyType_Slot Handling_slots[] = {
	{Py_tp_doc, "Handles one call: a coroutine, to be awaited once."},
	{Py_tp_repr, Handling_repr},
	{Py_tp_dealloc, Handling_dealloc},
	{Py_tp_finalize, Handling_finalize},
	{Py_tp_traverse, Handling_traverse},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, coroutine_await},
	{Py_am_send, Handling_step},
	{Py_tp_methods, Handling_methods},
	{Py_tp_getset, Handling_getset},
	{Py_tp_members, Handling_members},
	{0, NULL},
};

static PyType_Spec Handling_spec = {
	"aiofabric._core.Handling", sizeof(Handling), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, Handling_slots,
};

int add_rpc_handling(PyObject *module)
{
	static const struct name names[] = {
		{&name_code, "__code__"}, {&name_conclude, "conclude"}, {&name_cr_code, "cr_code"},
		{&name_cr_frame, "cr_frame"}, {&name_qualname, "__qualname__"}, {&name_respond, "respond"},
		{NULL},
	};

	coroutine_type = (PyTypeObject *) import_from("types", "CoroutineType");
	return !coroutine_type || intern(names) ? -1 : add_type(module, &Handling_spec, NULL, &Handling_Type);
}
