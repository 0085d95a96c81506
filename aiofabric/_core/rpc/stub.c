/*
 * StubCore: a multi-callable. A unary call that gets its request and nothing else, on a channel with one connection,
 * begins here: rpc/grpc/client/multicallable.py has every other call.
 *
 * In Python, the way from the stub to the frame took 19,000 of the 121,000 instructions that both sides of such a call
 * executed in user space (callgrind).
 */
#include "rpc/stub.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "rpc/call.h"
#include "rpc/client_frames.h"
#include "rpc/connection.h"
#include "rpc/message.h"
#include "rpc/response.h"

/* The part of a channel's state that its stubs read. */
typedef struct {
	PyObject_HEAD
	PyObject *calls;	/* set of the channel's running calls */
	PyObject *connection;	/* the one that every new call takes; None: the channel must choose */
	PyObject *loop;		/* of the channel; None: it was not used yet */
} DirectPath;

typedef struct {
	PyObject_HEAD
	PyObject *channel, *method, *serializer, *deserializer, *chain;
	PyObject *core, *direct;	/* the runtime's channel, and its DirectPath; None: none of the calls is plain */
	PyObject *rpc_type, *call_type;
} StubCore;

static PyTypeObject *DirectPath_Type, *StubCore_Type;
static PyObject *get_running_loop;
static PyObject *name_begin_call, *name_begin_unary, *name_refused;

/* -- a plain call */

/* The connection that a call can take now; NULL: the channel must choose. */
static ConnectionCore *connection_of(const StubCore *self)
{
	const DirectPath *direct = (DirectPath *) self->direct;
	PyObject *running;
	int here;

	if (is_none(self->direct) || !PyObject_TypeCheck(self->direct, DirectPath_Type) || is_none(direct->connection) ||
	    !PyObject_TypeCheck(direct->connection, ConnectionCore_Type) || !PySet_Check(direct->calls) || !is_none(self->chain))
		return NULL;
	running = PyObject_CallNoArgs(get_running_loop);
	if (!running)
		PyErr_Clear(); /* the Python method says what is wrong */
	here = running && running == direct->loop;
	Py_XDECREF(running);
	return here && rpc_connection_is_usable((ConnectionCore *) direct->connection) ? (ConnectionCore *) direct->connection
										      : NULL;
}

/* The serializer has raised: the call object has the exception, as in grpc.aio. */
static PyObject *refused(StubCore *self)
{
	PyObject *type, *error, *traceback, *call;

	if (!PyErr_ExceptionMatches(PyExc_Exception))
		return NULL;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (error && traceback)
		PyException_SetTraceback(error, traceback);
	call = PyObject_CallMethodObjArgs((PyObject *) self, name_refused, error ? error : Py_None, NULL);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return call;
}

/* Begin a call whose message is set. 1: it has begun; 0: it is not a plain call, and is unchanged; -1: an exception. */
static int begin(StubCore *self, ClientCallCore *rpc, ConnectionCore *connection, PyObject *calls, PyObject *message)
{
	PyObject *replay = PyList_New(1);
	int begun;

	if (!replay)
		return -1;
	PyList_SetItem(replay, 0, new_ref(message));
	REPLACE(rpc->replay, replay);
	rpc->replay_size = PyBytes_Size(message);
	REPLACE(rpc->channel, new_ref(self->core));
	REPLACE(rpc->call.method, new_ref(self->method));
	REPLACE(rpc->running, new_ref(calls));
	rpc->attached = rpc->wants_end = rpc->plain = 1;
	if (PySet_Add(calls, (PyObject *) rpc))
		return -1;
	begun = rpc_client_begin(connection, &rpc->call, self->method, message);
	if (begun < 0 && PySet_Discard(calls, (PyObject *) rpc) < 0)
		return -1;
	if (!begun)
		rpc->attached = rpc->plain = 0;
	return begun;
}

/* The call object of a call on a connection of the channel; NULL with an exception. */
static PyObject *call_on(StubCore *self, ConnectionCore *connection, PyObject *request)
{
	DirectPath *direct = (DirectPath *) self->direct;
	PyObject *loop = new_ref(direct->loop), *calls = new_ref(direct->calls); /* the serializer may run anything */
	PyObject *message = rpc_serialized(request, self->serializer), *rpc = NULL, *call = NULL;
	int begun = -1;

	if (message)
		rpc = PyObject_CallFunctionObjArgs(self->rpc_type, loop, NULL);
	if (rpc && !PyObject_TypeCheck(rpc, ClientCallCore_Type))
		raise_expected("a type of calls that inherits from ClientCallCore", rpc);
	else if (rpc)
		begun = begin(self, (ClientCallCore *) rpc, connection, calls, message);
	if (rpc && !begun)
		begun = drop(PyObject_CallMethodObjArgs(rpc, name_begin_unary, self->core, self->method, message, NULL)) ? -1 : 1;
	if (begun > 0)
		call = rpc_response_new((PyTypeObject *) self->call_type, (ClientCallCore *) rpc, self->deserializer);
	else if (!message)
		call = refused(self);
	Py_XDECREF(message);
	Py_DECREF(loop);
	Py_DECREF(calls);
	Py_XDECREF(rpc);
	return call;
}

static PyObject *StubCore_call(StubCore *self, PyObject *args, PyObject *kwargs)
{
	ConnectionCore *connection = NULL;
	PyObject *result, *method;

	if (PyTuple_Size(args) == 1 && (!kwargs || !PyDict_Size(kwargs)))
		connection = connection_of(self);
	if (connection) {
		Py_INCREF((PyObject *) connection);
		result = call_on(self, connection, PyTuple_GetItem(args, 0));
		Py_DECREF((PyObject *) connection);
		return result;
	}
	method = PyObject_GetAttr((PyObject *) self, name_begin_call);
	result = method ? PyObject_Call(method, args, kwargs) : NULL;
	Py_XDECREF(method);
	return result;
}

/* -- the types */

#define FOR_EACH_OBJECT(self, DO)                                                                    \
	do {                                                                                        \
		DO(self->channel); DO(self->method); DO(self->serializer); DO(self->deserializer);     \
		DO(self->chain); DO(self->core); DO(self->direct); DO(self->rpc_type); DO(self->call_type); \
	} while (0)

static int StubCore_init(StubCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *channel, *method, *serializer, *deserializer, *rpc_type, *call_type;

	if (refuse_second_init(self->channel) || !PyArg_ParseTuple(args, "OUOOOO", &channel, &method, &serializer, &deserializer,
								    &rpc_type, &call_type))
		return -1;
	if (call_type != Py_None && !rpc_response_is_type(call_type)) {
		PyErr_Format(PyExc_TypeError, "expected a type that inherits from ResponseCore, or None, got %R", call_type);
		return -1;
	}
	self->channel = new_ref(channel);
	self->method = new_ref(method);
	self->serializer = new_ref(serializer);
	self->deserializer = new_ref(deserializer);
	self->chain = new_ref(Py_None);
	self->core = new_ref(Py_None);
	self->direct = new_ref(Py_None);
	self->rpc_type = new_ref(rpc_type);
	self->call_type = new_ref(call_type);
	return 0;
}

static int StubCore_traverse(StubCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	FOR_EACH_OBJECT(self, Py_VISIT);
	return 0;
}

/* The other fields are used by calls, and none of them refers to a stub. */
static int StubCore_clear(StubCore *self)
{
	Py_CLEAR(self->direct);
	return 0;
}

static void StubCore_dealloc(StubCore *self)
{
	PyObject_GC_UnTrack(self);
	FOR_EACH_OBJECT(self, Py_CLEAR);
	free_object(self);
}

static PyMemberDef StubCore_members[] = {
	{"_channel", T_OBJECT_EX, offsetof(StubCore, channel), READONLY},
	{"_method", T_OBJECT_EX, offsetof(StubCore, method), READONLY},
	{"_serializer", T_OBJECT_EX, offsetof(StubCore, serializer), READONLY},
	{"_deserializer", T_OBJECT_EX, offsetof(StubCore, deserializer), READONLY},
	{NULL},
};

static PyGetSetDef StubCore_getset[] = {
	OBJECT_FIELD("_chain", StubCore, chain, "The interceptors; None: there are none."),
	OBJECT_FIELD("_core", StubCore, core, "The runtime's channel; None before the first call."),
	OBJECT_FIELD("_direct", StubCore, direct, "The channel's `DirectPath`; None: each call begins in Python."),
	{NULL},
};

static PyType_Slot StubCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.rpc.grpc.client.multicallable.MultiCallable`."},
	{Py_tp_init, StubCore_init},
	{Py_tp_call, StubCore_call},
	{Py_tp_dealloc, StubCore_dealloc},
	{Py_tp_traverse, StubCore_traverse},
	{Py_tp_clear, StubCore_clear},
	{Py_tp_members, StubCore_members},
	{Py_tp_getset, StubCore_getset},
	{0, NULL},
};

static PyType_Spec StubCore_spec = {
	"aiofabric._core.StubCore", sizeof(StubCore), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	StubCore_slots,
};

static int DirectPath_init(DirectPath *self, PyObject *args, PyObject *kwargs)
{
	PyObject *calls;

	if (refuse_second_init(self->calls) || !PyArg_ParseTuple(args, "O!", &PySet_Type, &calls))
		return -1;
	self->calls = new_ref(calls);
	self->connection = new_ref(Py_None);
	self->loop = new_ref(Py_None);
	return 0;
}

static int DirectPath_traverse(DirectPath *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->calls);
	Py_VISIT(self->connection);
	Py_VISIT(self->loop);
	return 0;
}

static int DirectPath_clear(DirectPath *self)
{
	REPLACE(self->connection, new_ref(Py_None));
	return 0;
}

static void DirectPath_dealloc(DirectPath *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->calls);
	Py_CLEAR(self->connection);
	Py_CLEAR(self->loop);
	free_object(self);
}

static PyGetSetDef DirectPath_getset[] = {
	OBJECT_FIELD("connection", DirectPath, connection, "The connection that every new call takes; None: see the channel."),
	OBJECT_FIELD("loop", DirectPath, loop, "The loop of the channel; None before its first use."),
	{NULL},
};

static PyType_Slot DirectPath_slots[] = {
	{Py_tp_doc, "DirectPath(calls): what a channel tells its stubs. `calls` is the set of its running calls."},
	{Py_tp_init, DirectPath_init},
	{Py_tp_dealloc, DirectPath_dealloc},
	{Py_tp_traverse, DirectPath_traverse},
	{Py_tp_clear, DirectPath_clear},
	{Py_tp_getset, DirectPath_getset},
	{0, NULL},
};

static PyType_Spec DirectPath_spec = {
	"aiofabric._core.DirectPath", sizeof(DirectPath), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, DirectPath_slots,
};

int add_rpc_stub(PyObject *module)
{
	static const struct name names[] = {
		{&name_begin_call, "_begin_call"}, {&name_begin_unary, "begin_unary"}, {&name_refused, "_refused"}, {NULL},
	};

	get_running_loop = import_from("asyncio", "get_running_loop");
	if (!get_running_loop || intern(names))
		return -1;
	if (add_type(module, &DirectPath_spec, NULL, &DirectPath_Type))
		return -1;
	return add_type(module, &StubCore_spec, NULL, &StubCore_Type);
}
