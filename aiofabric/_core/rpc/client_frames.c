/* A client's call with one small message each way: its START, and its STATUS with the response. */
#include "rpc/client_frames.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/source.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"
#include "rpc/call.h"
#include "rpc/connection.h"
#include "rpc/wire.h"

static PyObject *name_answered, *name_hold_start, *name_wake, *name_wake_all;

/* START of a call; NULL with an exception. */
static PyObject *start_frame(const ConnectionCore *self, uint16_t index, uint64_t timeout, PyObject *message, int flags)
{
	Py_ssize_t size = PyBytes_Size(message);
	PyObject *frame = PyBytes_FromStringAndSize(NULL, HEADER + sizeof(timeout) + size);
	char *at = frame ? PyBytes_AsString(frame) : NULL;

	if (!frame)
		return NULL;
	timeout = htole64(timeout);
	put_header(at, START, flags, index, sizeof(timeout) + size, self->next_id);
	memcpy(at + HEADER, &timeout, sizeof(timeout));
	memcpy(at + HEADER + sizeof(timeout), PyBytes_AsString(message), size);
	return frame;
}

/* The microseconds that a call may take; 0 if the deadline has passed, or if the arguments are not numbers. */
static uint64_t timeout_of(PyObject *deadline, PyObject *now)
{
	double left;

	if (deadline == Py_None)
		return NO_TIMEOUT;
	left = (PyFloat_AsDouble(deadline) - PyFloat_AsDouble(now)) * 1e6;
	if (PyErr_Occurred()) {
		PyErr_Clear();
		return 0;
	}
	return left >= 1 && left < 1e18 ? (uint64_t) left : 0;
}

static int begin(ConnectionCore *self, CallCore *call, PyObject *method, PyObject *message, int end, PyObject *deadline,
		 uint64_t timeout)
{
	PyObject *known, *frame;
	Py_ssize_t size;
	long index;
	int sent;

	if (self->retired || !self->peer_known || !PyBytes_Check(message) || !PyUnicode_CheckExact(method) ||
	    !self->method_indexes || !PyDict_Check(self->method_indexes))
		return 0;
	size = PyBytes_Size(message);
	known = PyDict_GetItemWithError(self->method_indexes, method);
	if (PyErr_Occurred())
		return -1;
	if (!known || !timeout || size > self->small || size + FRAME_COST > self->window)
		return 0;
	index = PyLong_AsLong(known);
	if (index < 0 || index >= NO_INDEX) {
		PyErr_Clear();
		return 0;
	}
	frame = start_frame(self, (uint16_t) index, timeout, message, WITH_MESSAGE | (end ? WITH_END : 0));
	if (!frame)
		return -1;
	REPLACE(call->connection, new_ref(self));
	call->id = self->next_id++;
	call->window = self->window;
	call->credits = self->window - size - FRAME_COST;
	call->outstanding = call->receive_window = self->receive_window;
	if (end)
		call->sent_end = 1;
	if (deadline != Py_None)
		REPLACE(call->deadline, new_ref(deadline));
	sent = rpc_connection_enter(self, call) ? -1 : PyList_Size(self->output) ? 0 : rpc_connection_send_now(self, frame);
	if (!sent)
		sent = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_hold_start, call, frame, NULL));
	Py_DECREF(frame);
	return sent < 0 ? -1 : 1;
}

int rpc_client_begin(ConnectionCore *self, CallCore *call, PyObject *method, PyObject *message)
{
	return rpc_connection_ready(self) ? begin(self, call, method, message, 1, Py_None, NO_TIMEOUT) : -1;
}

/* begin(call, method, message, end, deadline, now) */
static PyObject *ConnectionCore_begin(ConnectionCore *self, PyObject *const *args, Py_ssize_t count)
{
	uint64_t timeout;
	int end, begun;

	if (count != 6 || !PyObject_TypeCheck(args[0], CallCore_Type)) {
		raise_arguments("begin(CallCore, method, message, end, deadline, now)", count);
		return NULL;
	}
	timeout = timeout_of(args[4], args[5]);
	end = PyObject_IsTrue(args[3]);
	if (end < 0 || !rpc_connection_ready(self)) /* the arguments' own methods may have run */
		return NULL;
	begun = begin(self, (CallCore *) args[0], args[1], args[2], end, args[4], timeout);
	return begun < 0 ? NULL : PyBool_FromLong(begun);
}

/* -- the task that waits for a call's response */

/* Wake the tasks that wait for a call. */
static int wake_tasks(ClientCallCore *call)
{
	ConnectionCore *connection = (ConnectionCore *) call->call.connection;
	PyObject *receiver = is_none(call->receiver) ? NULL : new_ref(call->receiver);
	SourceCore *source = NULL;
	int rc = 0;

	if (connection && PyObject_TypeCheck((PyObject *) connection, ConnectionCore_Type))
		source = rpc_connection_source(connection);
	if (receiver && Py_IS_TYPE(receiver, Waiter_Type)) /* of a ResponseWaiter */
		rc = source_wake_waiter(source, (Waiter *) receiver, Py_None) < 0 ? -1 : 0;
	else if (receiver)
		rc = drop(PyObject_CallMethodObjArgs(receiver, name_wake, NULL));
	Py_XDECREF(receiver);
	if (!rc && !is_none(call->waiters))
		rc = drop(PyObject_CallMethodObjArgs((PyObject *) call, name_wake_all, NULL));
	return rc;
}

static PyObject *ClientCallCore_wake(ClientCallCore *self, PyObject *unused)
{
	return none_if(wake_tasks(self));
}

/* A plain call has ended with its answer: `ClientRpc.answered` in rpc/grpc/client/rpc.py does the same for others. */
static int store_answer(ClientCallCore *call, PyObject *message)
{
	call->answered = 1;
	Py_CLEAR(call->replay);
	REPLACE(call->received, new_ref(message));
	REPLACE(call->final, new_ref(call->call.status));
	if (call->running && PySet_Discard(call->running, (PyObject *) call) < 0)
		return -1;
	Py_CLEAR(call->running);
	return wake_tasks(call);
}

/*
 * Whether the response only has to be stored: the connection stays open, and no other call waits for this call to end.
 */
static int is_plain(const ConnectionCore *self, const CallCore *call)
{
	return PyObject_TypeCheck((PyObject *) call, ClientCallCore_Type) && ((ClientCallCore *) call)->plain && !self->retired &&
	       PyDict_Size(self->calls) < self->peer_max_calls - 1;
}

int rpc_read_status(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t size)
{
	PyObject *key, *message;
	CallCore *call;
	int rc = 0;

	if (flags != WITH_MESSAGE || field || size > self->most_in_status || is_none(self->status_ok))
		return 0;
	key = PyLong_FromUnsignedLongLong(id);
	if (!key)
		return -1;
	call = (CallCore *) PyDict_GetItemWithError(self->calls, key);
	if (!call || !PyObject_TypeCheck((PyObject *) call, CallCore_Type) || call->budget_used || !is_none(call->initial_metadata) ||
	    !is_none(call->queue) || !is_none(call->partial) || !is_none(call->unread)) {
		Py_DECREF(key);
		return PyErr_Occurred() ? -1 : 0;
	}
	Py_INCREF((PyObject *) call);
	message = PyBytes_FromStringAndSize(payload, size);
	rc = message ? PyDict_DelItem(self->calls, key) : -1;
	if (!rc) {
		call->over = call->received_end = 1;
		REPLACE(call->status, new_ref(self->status_ok));
		if (is_plain(self, call))
			rc = store_answer((ClientCallCore *) call, message);
		else
			rc = drop(PyObject_CallMethodObjArgs((PyObject *) call, name_answered, message, NULL));
	}
	Py_XDECREF(message);
	Py_DECREF((PyObject *) call);
	Py_DECREF(key);
	return rc ? -1 : 1;
}

static PyMethodDef connection_methods[] = {
	{"begin", (PyCFunction) (void (*)(void)) ConnectionCore_begin, METH_FASTCALL,
	 "begin(call, method, message, end, deadline, now): start a call that needs nothing but a START frame; False if\n"
	 "it needs more."},
	{NULL},
};

static PyMethodDef client_call_methods[] = {
	{"_wake", (PyCFunction) ClientCallCore_wake, METH_NOARGS, "Wake the tasks that wait for the call."},
	{NULL},
};

int add_rpc_client_frames(PyObject *module)
{
	static const struct name names[] = {
		{&name_answered, "answered"}, {&name_hold_start, "hold_start"}, {&name_wake, "wake"},
		{&name_wake_all, "_wake_all"}, {NULL},
	};

	if (intern(names) || add_methods(ConnectionCore_Type, connection_methods))
		return -1;
	return add_methods(ClientCallCore_Type, client_call_methods);
}
