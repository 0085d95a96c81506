/*
 * The handler of one call, on asyncio. `ServerRpcCore` is the call with what its handler has set. A `HandlerPlan` says
 * how the calls of one method are handled. `Handling` is the coroutine that handles a call with one request and one
 * response. `handle` in rpc/grpc/server/handling.py handles every other call, and has the functions that end a call
 * whose handler raised.
 *
 * In Python the same took 3 us more, of the 26 us that a call of 64 B cost a server (protobuf, both sides on one core).
 */
#include "rpc_handler.h"
#include "awaitable.h"
#include "names.h"
#include "references.h"
#include "rpc_call.h"
#include "rpc_connection.h"
#include "rpc_message.h"
#include "task_set.h"

typedef struct {
	CallCore call;
	PyObject *first;	/* the request that came with START */
	PyObject *task;
	PyObject *aborted;	/* the AbortError that `abort` has raised */
	PyObject *code, *details, *trailing, *trailing_given; /* the status, as the handler gave it; NULL: not yet */
	PyObject *callbacks, *burst;
	long long code_number;
	char decided, gone;
} ServerRpcCore;

typedef struct {
	PyObject_HEAD
	PyObject *behaviour, *deserializer, *serializer, *context_type;
	PyObject *whole;	/* handles any call */
	PyObject *failed;	/* ends a call whose handler raised; false: raise it again */
	PyObject *ended;	/* calls the done callbacks */
	TaskSet *tasks;
	PyObject *context;	/* each task gets a copy */
} HandlerPlan;

enum { CREATED, GOING, OVER };

typedef struct {
	PyObject_HEAD
	HandlerPlan *plan;
	ServerRpcCore *rpc;
	PyObject *steps;	/* of the handler */
	PyObject *weak;
	char phase, running;
} Handling;

static PyTypeObject *ServerRpcCore_Type, *HandlerPlan_Type, *Handling_Type, *coroutine_type;
static PyObject *name_begin, *name_close, *name_conclude, *name_copy, *name_code, *name_cr_code, *name_cr_frame, *name_failed_to_begin, *name_metadata,
	*name_plans, *name_qualname, *name_release, *name_respond;

/* -- Handling */

static PyObject *handling_new(HandlerPlan *plan, ServerRpcCore *rpc)
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

static void let_go(Handling *self)
{
	self->phase = OVER;
	Py_CLEAR(self->plan);
	Py_CLEAR(self->rpc);
	Py_CLEAR(self->steps);
}

/* After the end of the handler, whatever it was. An exception that is set stays set. */
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
	let_go(self);
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
		rc = rpc_connection_conclude((ConnectionCore *) connection, &rpc->call, message);
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

	self->phase = GOING;
	self->rpc->first = NULL;
	if (!data) {
		PyErr_SetString(PyExc_RuntimeError, "the request of the call was taken already");
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
		self->steps = steps_of(awaited);
	Py_XDECREF(request);
	Py_XDECREF(context);
	Py_XDECREF(awaited);
	return self->steps ? 0 : -1;
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

/* A call from within a running step fails and changes nothing. */
static int refuses(const Handling *self)
{
	if (self->running)
		PyErr_SetString(PyExc_ValueError, "coroutine already executing");
	else if (self->phase == OVER)
		PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
	else
		return 0;
	return 1;
}

static PySendResult Handling_step(Handling *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_ERROR;

	*result = NULL;
	if (refuses(self))
		return PYGEN_ERROR;
	if (self->phase == CREATED && value != Py_None) {
		PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
		return PYGEN_ERROR;
	}
	self->running = 1;
	if (self->phase == GOING || !call_handler(self))
		how = PyIter_Send(self->steps, value, result);
	how = stepped(self, how, result);
	self->running = 0;
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

	if (refuses(self))
		return NULL;
	if (self->phase == CREATED) {
		let_go(self);
		return awaitable_raise(args);
	}
	self->running = 1;
	result = awaitable_throw(self->steps, args);
	if (!result && PyErr_ExceptionMatches(PyExc_StopIteration)) {
		result = returned_value();
		how = result ? PYGEN_RETURN : PYGEN_ERROR;
	} else if (!result) {
		how = PYGEN_ERROR;
	}
	how = stepped(self, how, &result);
	self->running = 0;
	return awaitable_value(how, result);
}

static int close_steps(Handling *self)
{
	PyObject *close;
	int rc;

	assert(self->steps);
	self->running = 1;
	close = PyObject_GetAttr(self->steps, name_close);
	if (!close) /* an awaitable in C needs none */
		PyErr_Clear();
	rc = close && drop(PyObject_CallNoArgs(close)) ? handler_failed(self) : 0;
	Py_XDECREF(close);
	finish(self);
	self->running = 0;
	return rc || PyErr_Occurred() ? -1 : 0;
}

static PyObject *Handling_close(Handling *self, PyObject *unused)
{
	if (self->running)
		return refuses(self), NULL;
	if (self->phase == GOING)
		return none_if(close_steps(self));
	let_go(self);
	Py_RETURN_NONE;
}

static PyObject *Handling_await(Handling *self)
{
	if (self->phase != GOING)
		return new_ref(self);
	PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
	return NULL;
}

static int Handling_traverse(Handling *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->plan);
	Py_VISIT(self->rpc);
	Py_VISIT(self->steps);
	return 0;
}

/* As for any coroutine, the handler's `finally` runs now. The collector calls this before it clears any object. */
static void Handling_finalize(Handling *self)
{
	PyObject *type, *error, *traceback;

	if (self->phase != GOING)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	if (close_steps(self))
		PyErr_WriteUnraisable((PyObject *) Handling_Type);
	PyErr_Restore(type, error, traceback);
}

static void Handling_dealloc(Handling *self)
{
	PyObject_GC_UnTrack(self);
	if (self->weak)
		PyObject_ClearWeakRefs((PyObject *) self);
	Handling_finalize(self);
	let_go(self);
	free_object(self);
}

static PyObject *Handling_get_qualname(Handling *self, void *unused)
{
	PyObject *name = self->plan ? PyObject_GetAttr(self->plan->behaviour, name_qualname) : NULL;

	PyErr_Clear();
	return name ? name : PyUnicode_FromString("Handling");
}

/* The handler's own frame. Before the first step the attribute is missing: `inspect` takes None for closed. */
static PyObject *Handling_get_frame(Handling *self, void *unused)
{
	if (self->phase == CREATED) {
		PyErr_SetString(PyExc_AttributeError, "the handler has no frame yet");
		return NULL;
	}
	return self->steps ? PyObject_GetAttr(self->steps, name_cr_frame) : new_ref(Py_None);
}

static PyObject *Handling_get_code(Handling *self, void *unused)
{
	if (self->steps)
		return PyObject_GetAttr(self->steps, name_cr_code);
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

static PyObject *Handling_get_suspended(Handling *self, void *unused)
{
	return PyBool_FromLong(self->phase == GOING && !self->running);
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
	{"cr_suspended", (getter) Handling_get_suspended, NULL, "As of a coroutine."},
	{"cr_frame", (getter) Handling_get_frame, NULL, "The handler's frame."},
	{"cr_code", (getter) Handling_get_code, NULL, "The handler's code."},
	{NULL},
};

static PyMemberDef Handling_members[] = {
	{"cr_running", T_BOOL, offsetof(Handling, running), READONLY, "As of a coroutine."},
	{"cr_await", T_OBJECT, offsetof(Handling, steps), READONLY, "As of a coroutine: the handler, or None."},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(Handling, weak), READONLY},
	{NULL},
};

static PyType_Slot Handling_slots[] = {
	{Py_tp_doc, "Handles one call: a coroutine, to be awaited once."},
	{Py_tp_repr, Handling_repr},
	{Py_tp_dealloc, Handling_dealloc},
	{Py_tp_finalize, Handling_finalize},
	{Py_tp_traverse, Handling_traverse},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, Handling_await},
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

/* -- HandlerPlan */

#define FOR_EACH_OBJECT(self, DO)                                                                       \
	do {                                                                                           \
		DO(self->behaviour); DO(self->deserializer); DO(self->serializer); DO(self->context_type); \
		DO(self->whole); DO(self->failed); DO(self->ended); DO(self->tasks); DO(self->context);   \
	} while (0)

static int HandlerPlan_init(HandlerPlan *self, PyObject *args, PyObject *kwargs)
{
	PyObject *behaviour, *deserializer, *serializer, *context_type, *whole, *failed, *ended, *tasks, *context;

	if (refuse_second_init(self->behaviour) ||
	    !PyArg_ParseTuple(args, "OOOOOOOO!O", &behaviour, &deserializer, &serializer, &context_type, &whole, &failed, &ended,
			      TaskSet_Type, &tasks, &context))
		return -1;
	self->behaviour = new_ref(behaviour);
	self->deserializer = new_ref(deserializer);
	self->serializer = new_ref(serializer);
	self->context_type = new_ref(context_type);
	self->whole = new_ref(whole);
	self->failed = new_ref(failed);
	self->ended = new_ref(ended);
	self->tasks = (TaskSet *) new_ref(tasks);
	self->context = new_ref(context);
	return 0;
}

/* The coroutine that handles a call. */
static PyObject *coroutine_for(HandlerPlan *self, PyObject *rpc)
{
	if (PyObject_TypeCheck(rpc, ServerRpcCore_Type) && !is_none(((ServerRpcCore *) rpc)->first))
		return handling_new(self, (ServerRpcCore *) rpc);
	return PyObject_CallFunctionObjArgs(self->whole, rpc, NULL); /* the request has not arrived yet */
}

static PyObject *HandlerPlan_call(HandlerPlan *self, PyObject *args, PyObject *kwargs)
{
	PyObject *rpc;

	if (!PyArg_ParseTuple(args, "O", &rpc))
		return NULL;
	if (self->behaviour)
		return coroutine_for(self, rpc);
	PyErr_SetString(PyExc_RuntimeError, "the plan was not initialised");
	return NULL;
}

static int HandlerPlan_traverse(HandlerPlan *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	FOR_EACH_OBJECT(self, Py_VISIT);
	return 0;
}

static void HandlerPlan_dealloc(HandlerPlan *self)
{
	PyObject_GC_UnTrack(self);
	FOR_EACH_OBJECT(self, Py_CLEAR);
	free_object(self);
}

static PyType_Slot HandlerPlan_slots[] = {
	{Py_tp_doc, "HandlerPlan(behaviour, deserializer, serializer, context_type, whole, failed, ended, tasks, context): how\n"
		    "the calls of one method are handled. Calling it with a call makes the coroutine."},
	{Py_tp_init, HandlerPlan_init},
	{Py_tp_call, HandlerPlan_call},
	{Py_tp_dealloc, HandlerPlan_dealloc},
	{Py_tp_traverse, HandlerPlan_traverse},
	{0, NULL},
};

static PyType_Spec HandlerPlan_spec = {
	"aiofabric._core.HandlerPlan", sizeof(HandlerPlan), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, HandlerPlan_slots,
};

/* -- ServerRpcCore */

/* The plan for a call without deadline and metadata, borrowed; NULL: there is none, or an exception is set. */
static HandlerPlan *plan_for(ServerRpcCore *self)
{
	PyObject *metadata, *plans, *plan = NULL;
	int any;

	if (!is_none(self->call.deadline))
		return NULL;
	metadata = PyObject_GetAttr((PyObject *) self, name_metadata);
	any = truth_of(metadata);
	plans = any ? NULL : PyObject_GetAttr(self->call.owner, name_plans);
	if (plans && PyDict_Check(plans) && self->call.method)
		plan = PyDict_GetItemWithError(plans, self->call.method);
	Py_XDECREF(plans);
	return plan && Py_IS_TYPE(plan, HandlerPlan_Type) ? (HandlerPlan *) plan : NULL;
}

static int run(ServerRpcCore *self, HandlerPlan *plan)
{
	PyObject *coroutine = coroutine_for(plan, (PyObject *) self), *context = NULL, *release = NULL;

	if (coroutine)
		context = PyObject_CallMethodObjArgs(plan->context, name_copy, NULL);
	if (context)
		release = PyObject_GetAttr((PyObject *) self, name_release);
	if (release)
		REPLACE(self->task, task_set_start(plan->tasks, coroutine, context, release, self->call.method));
	Py_XDECREF(coroutine);
	Py_XDECREF(context);
	Py_XDECREF(release);
	return release && self->task ? 0 : -1;
}

/* Other calls of the same message begin all the same. */
static int report_failure(ServerRpcCore *self)
{
	PyObject *type, *error, *traceback;
	int rc;

	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	rc = drop(PyObject_CallMethodObjArgs(self->call.owner, name_failed_to_begin, (PyObject *) self, error ? error : Py_None,
					     NULL));
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

static PyObject *ServerRpcCore_started(ServerRpcCore *self, PyObject *message)
{
	HandlerPlan *plan;
	int rc;

	REPLACE(self->first, new_ref(message));
	if (!self->call.owner) {
		PyErr_SetString(PyExc_RuntimeError, "the call was not initialised");
		return NULL;
	}
	plan = plan_for(self);
	Py_XINCREF((PyObject *) plan);
	if (plan)
		rc = run(self, plan);
	else
		rc = PyErr_Occurred() ? -1 : drop(PyObject_CallMethodObjArgs((PyObject *) self, name_begin, NULL));
	Py_XDECREF((PyObject *) plan);
	return none_if(rc ? report_failure(self) : 0);
}

#undef FOR_EACH_OBJECT
#define FOR_EACH_OBJECT(self, DO)                                                                  \
	do {                                                                                      \
		DO(self->first); DO(self->task); DO(self->aborted); DO(self->code); DO(self->details); \
		DO(self->trailing); DO(self->trailing_given); DO(self->callbacks); DO(self->burst);  \
	} while (0)

static int ServerRpcCore_traverse(ServerRpcCore *self, visitproc visit, void *arg)
{
	traverseproc base = PyType_GetSlot(CallCore_Type, Py_tp_traverse);

	FOR_EACH_OBJECT(self, Py_VISIT);
	return base((PyObject *) self, visit, arg);
}

static int ServerRpcCore_clear(ServerRpcCore *self)
{
	inquiry base = PyType_GetSlot(CallCore_Type, Py_tp_clear);

	FOR_EACH_OBJECT(self, Py_CLEAR);
	return base((PyObject *) self);
}

static void ServerRpcCore_dealloc(ServerRpcCore *self)
{
	PyObject_GC_UnTrack(self);
	ServerRpcCore_clear(self);
	free_object(self);
}

static PyMethodDef ServerRpcCore_methods[] = {
	{"started", (PyCFunction) ServerRpcCore_started, METH_O,
	 "started(message): the call has begun; run its handler. `begin` does it for a method without a plan."},
	{NULL},
};

#define OBJECT(name, field) {name, T_OBJECT, offsetof(ServerRpcCore, field)}

static PyMemberDef ServerRpcCore_members[] = {
	OBJECT("first", first),
	OBJECT("task", task),
	OBJECT("aborted", aborted),
	OBJECT("code", code),
	OBJECT("details", details),
	OBJECT("trailing", trailing),
	OBJECT("trailing_given", trailing_given),
	OBJECT("callbacks", callbacks),
	OBJECT("burst", burst),
	{"code_number", T_LONGLONG, offsetof(ServerRpcCore, code_number)},
	{"decided", T_BOOL, offsetof(ServerRpcCore, decided)},
	{"gone", T_BOOL, offsetof(ServerRpcCore, gone)},
	{NULL},
};

static PyType_Slot ServerRpcCore_slots[] = {
	{Py_tp_doc, "ServerRpcCore(owner=None): base of `aiofabric.rpc.grpc.server.rpc.ServerRpc`."},
	{Py_tp_dealloc, ServerRpcCore_dealloc},
	{Py_tp_traverse, ServerRpcCore_traverse},
	{Py_tp_clear, ServerRpcCore_clear},
	{Py_tp_methods, ServerRpcCore_methods},
	{Py_tp_members, ServerRpcCore_members},
	{0, NULL},
};

static PyType_Spec ServerRpcCore_spec = {
	"aiofabric._core.ServerRpcCore", sizeof(ServerRpcCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ServerRpcCore_slots,
};

int add_rpc_handler(PyObject *module)
{
	static const struct name names[] = {
		{&name_begin, "begin"}, {&name_close, "close"}, {&name_conclude, "conclude"}, {&name_copy, "copy"},
		{&name_code, "__code__"}, {&name_cr_code, "cr_code"}, {&name_cr_frame, "cr_frame"}, {&name_failed_to_begin, "failed_to_begin"}, {&name_metadata, "metadata"},
		{&name_plans, "plans"}, {&name_qualname, "__qualname__"}, {&name_release, "release"}, {&name_respond, "respond"},
		{NULL},
	};

	coroutine_type = (PyTypeObject *) import_from("types", "CoroutineType");
	if (!coroutine_type || intern(names) || add_type(module, &Handling_spec, NULL, &Handling_Type) ||
	    add_type(module, &HandlerPlan_spec, NULL, &HandlerPlan_Type))
		return -1;
	return add_type(module, &ServerRpcCore_spec, (PyObject *) CallCore_Type, &ServerRpcCore_Type);
}
