/*
 * The start of a call's handler on asyncio. `ServerRpcCore` is the call with all that its handler has set. A `HandlerPlan`
 * says how the calls of one method are handled, and makes the coroutine of a call: see handling.c.
 */
#include "rpc/handler.h"
#include "base/names.h"
#include "base/references.h"
#include "rpc/call.h"
#include "rpc/handling.h"
#include "rpc/task_set.h"

static PyTypeObject *ServerRpcCore_Type, *HandlerPlan_Type;
static PyObject *name_begin, *name_close, *name_copy, *name_failed_to_begin, *name_metadata, *name_plans, *name_release;

/* -- HandlerPlan */

#define FOR_EACH_OBJECT(self, DO)                                                                       \
	do {                                                                                           \
		DO(self->behaviour); DO(self->deserializer); DO(self->serializer); DO(self->context_type); \
		DO(self->handle_any); DO(self->failed); DO(self->ended); DO(self->tasks); DO(self->context);   \
	} while (0)

static int HandlerPlan_init(HandlerPlan *self, PyObject *args, PyObject *kwargs)
{
	PyObject *behaviour, *deserializer, *serializer, *context_type, *handle_any, *failed, *ended, *tasks, *context;

	if (refuse_second_init(self->behaviour) ||
	    !PyArg_ParseTuple(args, "OOOOOOOO!O", &behaviour, &deserializer, &serializer, &context_type, &handle_any, &failed, &ended,
			      TaskSet_Type, &tasks, &context))
		return -1;
	self->behaviour = new_ref(behaviour);
	self->deserializer = new_ref(deserializer);
	self->serializer = new_ref(serializer);
	self->context_type = new_ref(context_type);
	self->handle_any = new_ref(handle_any);
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
	return PyObject_CallFunctionObjArgs(self->handle_any, rpc, NULL); /* the request has not arrived yet */
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
	{Py_tp_doc, "HandlerPlan(behaviour, deserializer, serializer, context_type, handle_any, failed, ended, tasks, context): how\n"
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

/* The coroutine cannot run. It is closed, so that it does not warn that it was never awaited. The exception stays set. */
static void discard(PyObject *coroutine)
{
	PyObject *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	if (drop(PyObject_CallMethodObjArgs(coroutine, name_close, NULL)))
		PyErr_Clear();
	PyErr_Restore(type, error, traceback);
}

static int run(ServerRpcCore *self, HandlerPlan *plan)
{
	PyObject *coroutine = coroutine_for(plan, (PyObject *) self), *context = NULL, *release = NULL, *task = NULL;

	if (coroutine)
		context = PyObject_CallMethodObjArgs(plan->context, name_copy, NULL);
	if (context)
		release = PyObject_GetAttr((PyObject *) self, name_release);
	if (release)
		task = task_set_start(plan->tasks, coroutine, context, release, self->call.method);
	if (task)
		REPLACE(self->task, task);
	else if (coroutine)
		discard(coroutine);
	Py_XDECREF(coroutine);
	Py_XDECREF(context);
	Py_XDECREF(release);
	return task ? 0 : -1;
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
		{&name_begin, "begin"}, {&name_close, "close"}, {&name_copy, "copy"},
		{&name_failed_to_begin, "failed_to_begin"}, {&name_metadata, "metadata"}, {&name_plans, "plans"},
		{&name_release, "release"},
		{NULL},
	};

	if (intern(names) || add_type(module, &HandlerPlan_spec, NULL, &HandlerPlan_Type))
		return -1;
	return add_type(module, &ServerRpcCore_spec, (PyObject *) CallCore_Type, &ServerRpcCore_Type);
}
