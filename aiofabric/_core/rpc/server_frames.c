/* A server's call with one small message each way: its START with the request, and its STATUS. */
#include "rpc/server_frames.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "rpc/call.h"
#include "rpc/connection.h"
#include "rpc/wire.h"

static PyObject *name_started;

static int has_room(const ConnectionCore *self)
{
	const BudgetCore *budget = (BudgetCore *) self->budget;

	return self->running < self->max_calls && is_none(self->admits) && budget &&
	       PyObject_TypeCheck(self->budget, BudgetCore_Type) && budget->used + budget->running <= budget->limit;
}

/* The call is over: its metadata does not count any more. `hold` in rpc/protocol/server_call.py counted it. */
static void give_back_held(ConnectionCore *connection, CallCore *call)
{
	if (call->held && connection->budget && PyObject_TypeCheck(connection->budget, BudgetCore_Type))
		((BudgetCore *) connection->budget)->running -= call->held;
	call->held = 0;
}

int rpc_read_start(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t length)
{
	Py_ssize_t size = length - (Py_ssize_t) sizeof(uint64_t);
	PyObject *made, *message;
	uint64_t timeout;
	CallCore *call;
	int rc;

	if (flags != (WITH_MESSAGE | WITH_END) || size < 0 || size > self->max_message || id <= self->highest ||
	    !is_none(self->goaway_sent) || is_none(self->new_call) || !self->method_names || !PyList_Check(self->method_names) ||
	    field >= PyList_Size(self->method_names) || !has_room(self))
		return 0;
	self->highest = id;
	made = PyObject_CallNoArgs(self->new_call);
	if (!made)
		return -1;
	if (!PyObject_TypeCheck(made, CallCore_Type)) {
		raise_expected("a CallCore from new_call()", made);
		Py_DECREF(made);
		return -1;
	}
	call = (CallCore *) made;
	call->id = id;
	REPLACE(call->connection, new_ref(self));
	REPLACE(call->method, new_ref(PyList_GetItem(self->method_names, field)));
	call->credits = call->window = self->window;
	call->receive_window = self->receive_window;
	call->outstanding = self->receive_window - size - FRAME_COST;
	call->received_end = 1;
	timeout = get_u64(payload);
	message = PyBytes_FromStringAndSize(payload + sizeof(timeout), size);
	rc = message ? rpc_connection_enter(self, call) : -1;
	if (!rc && timeout != NO_TIMEOUT) {
		REPLACE(call->deadline, PyFloat_FromDouble(self->now + (double) timeout * 1e-6));
		rc = call->deadline ? 0 : -1;
	}
	if (!rc) {
		self->running++;
		rc = drop(PyObject_CallMethodObjArgs(made, name_started, message, NULL));
	}
	Py_XDECREF(message);
	Py_DECREF(made);
	return rc ? -1 : 1;
}

int rpc_server_conclude(ConnectionCore *self, CallCore *call, PyObject *message)
{
	PyObject *frame, *id;
	Py_ssize_t size;
	int rc;

	if (!rpc_connection_ready(self))
		return -1;
	if (!PyBytes_Check(message) || call->over || call->budget_used || !is_none(call->queue) || !is_none(call->partial) ||
	    PyBytes_Size(message) > self->small)
		return 0;
	size = PyBytes_Size(message);
	frame = PyBytes_FromStringAndSize(NULL, HEADER + size);
	id = PyLong_FromUnsignedLongLong(call->id);
	rc = frame && id ? 0 : -1;
	if (!rc) {
		put_header(PyBytes_AsString(frame), STATUS, WITH_MESSAGE, 0, size, call->id);
		memcpy(PyBytes_AsString(frame) + HEADER, PyBytes_AsString(message), size);
		rc = rpc_connection_emit(self, frame) || !rpc_connection_ready(self) ? -1 : 0;
	}
	if (!rc && PyDict_Contains(self->calls, id) > 0)
		rc = PyDict_DelItem(self->calls, id);
	call->over = 1;
	give_back_held(self, call);
	Py_XDECREF(frame);
	Py_XDECREF(id);
	return rc ? -1 : 1;
}

/* conclude(call, message) */
static PyObject *ConnectionCore_conclude(ConnectionCore *self, PyObject *const *args, Py_ssize_t count)
{
	int rc;

	if (count != 2 || !PyObject_TypeCheck(args[0], CallCore_Type)) {
		raise_arguments("conclude(CallCore, message)", count);
		return NULL;
	}
	rc = rpc_server_conclude(self, (CallCore *) args[0], args[1]);
	return rc < 0 ? NULL : PyBool_FromLong(rc);
}

/* release() */
static PyObject *CallCore_release(CallCore *self, PyObject *unused)
{
	ConnectionCore *connection = (ConnectionCore *) self->connection;

	if (connection && PyObject_TypeCheck((PyObject *) connection, ConnectionCore_Type))
		connection->running--;
	Py_RETURN_NONE;
}

static PyMethodDef connection_methods[] = {
	{"conclude", (PyCFunction) (void (*)(void)) ConnectionCore_conclude, METH_FASTCALL,
	 "conclude(call, message): end a call with OK and one small message; False if it needs more than one frame."},
	{NULL},
};

static PyMethodDef call_methods[] = {
	{"release", (PyCFunction) CallCore_release, METH_NOARGS,
	 "The handler of a server's call has ended: the call does not count against limits any more."},
	{NULL},
};

int add_rpc_server_frames(PyObject *module)
{
	static const struct name names[] = {{&name_started, "started"}, {NULL}};

	if (intern(names) || add_methods(ConnectionCore_Type, connection_methods))
		return -1;
	return add_methods(CallCore_Type, call_methods);
}
