/*
 * CallCore: the state of one RPC call that its connection reads and writes for each message. rpc/protocol/calls.py has
 * the rules; the connection's usual cases are in rpc_*_frames.c. ClientCallCore: the same on a client, and what its
 * channel and its waiting tasks need.
 */
#include "rpc/call.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *CallCore_Type, *ClientCallCore_Type;

static int CallCore_init(CallCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *owner = Py_None;

	if (!PyArg_ParseTuple(args, "|O", &owner))
		return -1;
	REPLACE(self->owner, new_ref(owner));
	return 0;
}

static int CallCore_traverse(CallCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->owner);
	Py_VISIT(self->connection);
	Py_VISIT(self->method);
	Py_VISIT(self->deadline);
	Py_VISIT(self->status);
	Py_VISIT(self->initial_metadata);
	Py_VISIT(self->queue);
	Py_VISIT(self->partial);
	Py_VISIT(self->unread);
	return 0;
}

static int CallCore_clear(CallCore *self)
{
	Py_CLEAR(self->owner);
	Py_CLEAR(self->connection);
	Py_CLEAR(self->method);
	Py_CLEAR(self->deadline);
	Py_CLEAR(self->status);
	Py_CLEAR(self->initial_metadata);
	Py_CLEAR(self->queue);
	Py_CLEAR(self->partial);
	Py_CLEAR(self->unread);
	return 0;
}

static void CallCore_dealloc(CallCore *self)
{
	PyObject_GC_UnTrack(self);
	CallCore_clear(self);
	free_object(self);
}

#define OBJECT(name, field) {name, T_OBJECT, offsetof(CallCore, field)}
#define COUNT(name, field) {name, T_LONGLONG, offsetof(CallCore, field)}
#define FLAG(name, field) {name, T_BOOL, offsetof(CallCore, field)}

static PyMemberDef CallCore_members[] = {
	OBJECT("owner", owner),
	OBJECT("connection", connection),
	OBJECT("method", method),
	OBJECT("deadline", deadline),
	OBJECT("status", status),
	OBJECT("initial_metadata", initial_metadata),
	OBJECT("_queue", queue),
	OBJECT("_partial", partial),
	OBJECT("_unread", unread),
	{"id", T_ULONGLONG, offsetof(CallCore, id)},
	COUNT("credits", credits),
	COUNT("window", window),
	COUNT("outstanding", outstanding),
	COUNT("receive_window", receive_window),
	COUNT("queued", queued),
	COUNT("_owed", owed),
	COUNT("_budget_used", budget_used),
	COUNT("held", held),
	FLAG("over", over),
	FLAG("sent_end", sent_end),
	FLAG("received_end", received_end),
	FLAG("in_rotation", in_rotation),
	FLAG("unsent", unsent),
	{NULL},
};

static PyType_Slot CallCore_slots[] = {
	{Py_tp_doc, "CallCore(owner=None): base of `aiofabric.rpc.protocol.calls.Call`."},
	{Py_tp_init, CallCore_init},
	{Py_tp_dealloc, CallCore_dealloc},
	{Py_tp_traverse, CallCore_traverse},
	{Py_tp_clear, CallCore_clear},
	{Py_tp_members, CallCore_members},
	{0, NULL},
};

static PyType_Spec CallCore_spec = {
	"aiofabric._core.CallCore", sizeof(CallCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, CallCore_slots,
};

/* -- ClientCallCore */

#define FOR_EACH_OBJECT(self, DO)                                                                          \
	do {                                                                                              \
		DO(self->channel); DO(self->wait_for_ready); DO(self->replay); DO(self->retries);            \
		DO(self->final); DO(self->received); DO(self->receiver); DO(self->waiters); DO(self->running); \
	} while (0)

static int ClientCallCore_traverse(ClientCallCore *self, visitproc visit, void *arg)
{
	FOR_EACH_OBJECT(self, Py_VISIT);
	return CallCore_traverse(&self->call, visit, arg);
}

static int ClientCallCore_clear(ClientCallCore *self)
{
	FOR_EACH_OBJECT(self, Py_CLEAR);
	return CallCore_clear(&self->call);
}

static void ClientCallCore_dealloc(ClientCallCore *self)
{
	PyObject_GC_UnTrack(self);
	ClientCallCore_clear(self);
	free_object(self);
}

#undef OBJECT
#undef FLAG
#define OBJECT(name, field) {name, T_OBJECT, offsetof(ClientCallCore, field)}
#define FLAG(name, field) {name, T_BOOL, offsetof(ClientCallCore, field)}

static PyMemberDef ClientCallCore_members[] = {
	OBJECT("channel", channel),
	OBJECT("wait_for_ready", wait_for_ready),
	OBJECT("replay", replay),
	OBJECT("retries", retries),
	OBJECT("final", final),
	OBJECT("received", received),
	OBJECT("_receiver", receiver),
	OBJECT("_waiters", waiters),
	{"replay_size", T_LONGLONG, offsetof(ClientCallCore, replay_size)},
	FLAG("attached", attached),
	FLAG("_wants_end", wants_end),
	FLAG("plain", plain),
	{NULL},
};

static PyType_Slot ClientCallCore_slots[] = {
	{Py_tp_doc, "ClientCallCore(owner=None): base of `aiofabric.rpc.protocol.client_call.ClientCall`."},
	{Py_tp_dealloc, ClientCallCore_dealloc},
	{Py_tp_traverse, ClientCallCore_traverse},
	{Py_tp_clear, ClientCallCore_clear},
	{Py_tp_members, ClientCallCore_members},
	{0, NULL},
};

static PyType_Spec ClientCallCore_spec = {
	"aiofabric._core.ClientCallCore", sizeof(ClientCallCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ClientCallCore_slots,
};

int add_rpc_call(PyObject *module)
{
	if (add_type(module, &CallCore_spec, NULL, &CallCore_Type))
		return -1;
	return add_type(module, &ClientCallCore_spec, (PyObject *) CallCore_Type, &ClientCallCore_Type);
}
