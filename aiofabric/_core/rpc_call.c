/*
 * CallCore: the state of one RPC call that its connection reads and writes for each message. rpc/protocol/calls.py has
 * the rules; the connection's usual cases are in rpc_connection.c.
 */
#include "rpc_call.h"
#include "names.h"
#include "references.h"

PyTypeObject *CallCore_Type;

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
	COUNT("_held", held),
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

int add_rpc_call(PyObject *module)
{
	return add_type(module, &CallCore_spec, NULL, &CallCore_Type);
}
