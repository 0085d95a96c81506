/*
 * ConnectionCore: reads RPC frames, and has the short way of a call with one small message each way. Everything else
 * goes to the methods in Python, which have all rules: rpc/protocol/connection.py, client.py, server.py. A frame that
 * the short way does not take is handled there as if there were no short way.
 *
 * `make bench`, a unary call of the grpc interface, CPU of both sides on one core, when nothing else of a call was in C:
 * 69 us with all frames in Python, 43 with this, of which the endpoint took 14.
 */
#include "rpc_connection.h"
#include "clock.h"
#include "frame_output.h"
#include "names.h"
#include "references.h"
#include "rpc_call.h"
#include "source.h"
#include "upcalls.h"
#include "waiter.h"
#include "wakeups.h"

#include <endian.h>

/* rpc/protocol/frames.py */
enum { START = 3, STATUS = 7 };
enum { WITH_END = 0x01, WITH_MESSAGE = 0x02 };
#define HEADER 16
#define NO_INDEX 0xffff
#define NO_TIMEOUT UINT64_MAX
#define FRAME_COST 64

/*
 * Frames after which gathered output leaves before the pass ends, so that the peer works meanwhile. With 64 calls in
 * flight, a call took 20 us without this limit and 12.6 us with it.
 */
#define GATHERED 16

typedef struct {
	PyObject_HEAD
	long long used, limit;
} BudgetCore;

PyTypeObject *ConnectionCore_Type;

static PyTypeObject *BudgetCore_Type;
static PyObject *name_answered, *name_cut_short, *name_hold_start, *name_reading_failed, *name_started,
	*name_too_long, *name_unknown, *name_wake, *name_wake_all;

static int ready(const ConnectionCore *self)
{
	if (self->calls && PyDict_Check(self->calls) && self->output && PyList_Check(self->output) && self->handlers &&
	    PyDict_Check(self->handlers))
		return 1;
	PyErr_SetString(PyExc_RuntimeError, "the connection was not initialised");
	return 0;
}

/* -- numbers of the wire, which are little-endian */

static uint64_t get_u64(const char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static uint32_t get_u32(const char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint16_t get_u16(const char *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static void put_header(char *at, int kind, int flags, uint16_t field, uint32_t length, uint64_t id)
{
	field = htole16(field);
	length = htole32(length);
	id = htole64(id);
	at[0] = (char) kind;
	at[1] = (char) flags;
	memcpy(at + 2, &field, sizeof(field));
	memcpy(at + 4, &length, sizeof(length));
	memcpy(at + 8, &id, sizeof(id));
}

/* -- output */

/* 1: the provider has the frame; 0: it must wait in `output`; -1: an exception */
static int send_now(ConnectionCore *self, PyObject *frame)
{
	if (is_none(self->send_now))
		return 0;
	if (Py_IS_TYPE(self->send_now, FrameOutput_Type))
		return frame_output_send((FrameOutput *) self->send_now, frame);
	return truth_of(PyObject_CallFunctionObjArgs(self->send_now, frame, NULL));
}

static int hold(ConnectionCore *self, PyObject *frame)
{
	if (PyList_Append(self->output, frame))
		return -1;
	if (PyList_Size(self->output) < GATHERED || is_none(self->flush))
		return 0;
	return drop(PyObject_CallNoArgs(self->flush));
}

static int emit(ConnectionCore *self, PyObject *frame)
{
	int sent = PyList_Size(self->output) ? 0 : send_now(self, frame);

	if (sent)
		return sent < 0 ? -1 : 0;
	return ready(self) ? hold(self, frame) : -1; /* `send_now` may be Python */
}

static PyObject *ConnectionCore_emit(ConnectionCore *self, PyObject *frame)
{
	return ready(self) ? none_if(emit(self, frame)) : NULL;
}

static PyObject *ConnectionCore_hold(ConnectionCore *self, PyObject *frame)
{
	return ready(self) ? none_if(hold(self, frame)) : NULL;
}

/* -- the client's calls */

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

/* The microseconds that a call may take; 0: none are left, or the numbers are none. */
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

static int enter(ConnectionCore *self, CallCore *call)
{
	PyObject *id = PyLong_FromUnsignedLongLong(call->id);
	int rc = id ? PyDict_SetItem(self->calls, id, (PyObject *) call) : -1;

	Py_XDECREF(id);
	return rc;
}

/* 1: the call has begun; 0: it needs more than START, and nothing has happened; -1: an exception */
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
	sent = enter(self, call) ? -1 : PyList_Size(self->output) ? 0 : send_now(self, frame);
	if (!sent)
		sent = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_hold_start, call, frame, NULL));
	Py_DECREF(frame);
	return sent < 0 ? -1 : 1;
}

int rpc_connection_begin(ConnectionCore *self, CallCore *call, PyObject *method, PyObject *message)
{
	return ready(self) ? begin(self, call, method, message, 1, Py_None, NO_TIMEOUT) : -1;
}

int rpc_connection_is_usable(const ConnectionCore *self)
{
	return !self->retired && self->calls && PyDict_Check(self->calls) && PyDict_Size(self->calls) < self->peer_max_calls;
}

static PyObject *ConnectionCore_get_usable(ConnectionCore *self, void *unused)
{
	return ready(self) ? PyBool_FromLong(rpc_connection_is_usable(self)) : NULL;
}

/* begin(call, method, message, end, deadline, now) */
static PyObject *ConnectionCore_begin(ConnectionCore *self, PyObject *const *args, Py_ssize_t count)
{
	uint64_t timeout;
	int end, begun;

	if (count != 6 || !PyObject_TypeCheck(args[0], CallCore_Type)) {
		PyErr_SetString(PyExc_TypeError, "begin(call, method, message, end, deadline, now)");
		return NULL;
	}
	timeout = timeout_of(args[4], args[5]);
	end = PyObject_IsTrue(args[3]);
	if (end < 0 || !ready(self)) /* the arguments' own methods may have run */
		return NULL;
	begun = begin(self, (CallCore *) args[0], args[1], args[2], end, args[4], timeout);
	return begun < 0 ? NULL : PyBool_FromLong(begun);
}

/* -- the task that waits for a call's response */

SourceCore *rpc_connection_source(const ConnectionCore *self)
{
	if (!self->send_now || !Py_IS_TYPE(self->send_now, FrameOutput_Type))
		return NULL;
	return ((FrameOutput *) self->send_now)->source;
}

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

/* Whether the answer is only stored: the connection goes on, and no other call waited for this one's place. */
static int is_plain(const ConnectionCore *self, const CallCore *call)
{
	return PyObject_TypeCheck((PyObject *) call, ClientCallCore_Type) && ((ClientCallCore *) call)->plain && !self->retired &&
	       PyDict_Size(self->calls) < self->peer_max_calls - 1;
}

/* The answer of most calls with one reply: OK, and the reply. 1: done; 0: the Python method is needed. */
static int read_status(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t size)
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
	if (!call || !PyObject_TypeCheck((PyObject *) call, CallCore_Type) || call->held || !is_none(call->initial_metadata) ||
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

/* -- the server's calls */

static int has_room(const ConnectionCore *self)
{
	const BudgetCore *budget = (BudgetCore *) self->budget;

	return self->running < self->max_calls && is_none(self->admits) && budget &&
	       PyObject_TypeCheck(self->budget, BudgetCore_Type) && budget->used <= budget->limit;
}

/* A call with one small request, and nothing else. 1: done; 0: the Python method is needed. */
static int read_start(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t length)
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
		PyErr_SetString(PyExc_TypeError, "new_call() must make a Call");
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
	rc = message ? enter(self, call) : -1;
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

int rpc_connection_conclude(ConnectionCore *self, CallCore *call, PyObject *message)
{
	PyObject *frame, *id;
	Py_ssize_t size;
	int rc;

	if (!ready(self))
		return -1;
	if (!PyBytes_Check(message) || call->over || call->held || !is_none(call->queue) || !is_none(call->partial) ||
	    PyBytes_Size(message) > self->small)
		return 0;
	size = PyBytes_Size(message);
	frame = PyBytes_FromStringAndSize(NULL, HEADER + size);
	id = PyLong_FromUnsignedLongLong(call->id);
	rc = frame && id ? 0 : -1;
	if (!rc) {
		put_header(PyBytes_AsString(frame), STATUS, WITH_MESSAGE, 0, size, call->id);
		memcpy(PyBytes_AsString(frame) + HEADER, PyBytes_AsString(message), size);
		rc = emit(self, frame) || !ready(self) ? -1 : 0;
	}
	if (!rc && PyDict_Contains(self->calls, id) > 0)
		rc = PyDict_DelItem(self->calls, id);
	call->over = 1;
	Py_XDECREF(frame);
	Py_XDECREF(id);
	return rc ? -1 : 1;
}

/* conclude(call, message) */
static PyObject *ConnectionCore_conclude(ConnectionCore *self, PyObject *const *args, Py_ssize_t count)
{
	int rc;

	if (count != 2 || !PyObject_TypeCheck(args[0], CallCore_Type)) {
		PyErr_SetString(PyExc_TypeError, "conclude(call, message)");
		return NULL;
	}
	rc = rpc_connection_conclude(self, (CallCore *) args[0], args[1]);
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

/* -- input */

/* Raise the protocol's error: a method in Python does that. */
static int refuse(ConnectionCore *self, PyObject *name, unsigned long number)
{
	PyObject *argument = PyLong_FromUnsignedLong(number);

	if (argument)
		drop(PyObject_CallMethodObjArgs((PyObject *) self, name, argument, NULL));
	Py_XDECREF(argument);
	return PyErr_Occurred() ? -1 : 0;
}

/* The handler in Python of a frame whose payload is the slice of `view` from `from` to `to`. */
static int hand_over(ConnectionCore *self, int kind, int flags, int field, uint64_t id, PyObject *view, Py_ssize_t from,
		     Py_ssize_t to)
{
	PyObject *key = PyLong_FromLong(kind), *handler = key ? PyDict_GetItemWithError(self->handlers, key) : NULL, *payload;
	int rc;

	Py_XDECREF(key);
	if (!handler)
		return PyErr_Occurred() ? -1 : refuse(self, name_unknown, kind);
	payload = PySequence_GetSlice(view, from, to);
	if (!payload)
		return -1;
	Py_INCREF(handler);
	rc = drop(PyObject_CallFunction(handler, "iiKO", flags, field, (unsigned long long) id, payload));
	Py_DECREF(handler);
	Py_DECREF(payload);
	return rc;
}

/* Read the frames of one fabric message: `size` bytes, which are those of `view` from `offset` on. */
static int read_frames(ConnectionCore *self, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset)
{
	Py_ssize_t at = 0;

	while (at < size) {
		int kind, flags, field, done = 0;
		uint32_t length;
		uint64_t id;

		if (!ready(self)) /* a handler in Python ran */
			return -1;
		if (size - at < HEADER)
			return refuse(self, name_cut_short, (unsigned long) (size - at));
		kind = (unsigned char) bytes[at];
		flags = (unsigned char) bytes[at + 1];
		field = get_u16(bytes + at + 2);
		length = get_u32(bytes + at + 4);
		id = get_u64(bytes + at + 8);
		at += HEADER;
		if (length > (size_t) (size - at))
			return refuse(self, name_too_long, length);
		if (self->peer_known && kind == STATUS)
			done = read_status(self, flags, field, id, bytes + at, length);
		else if (self->peer_known && kind == START)
			done = read_start(self, flags, field, id, bytes + at, length);
		if (done < 0 || (!done && hand_over(self, kind, flags, field, id, view, offset + at, offset + at + length)))
			return -1;
		at += length;
	}
	return 0;
}

/* As `read_frames`; errors of the protocol end the connection, which `_reading_failed` does. */
static int read_message(ConnectionCore *self, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset)
{
	PyObject *type, *value, *traceback, *handled;

	if (!ready(self))
		return -1;
	if (!is_none(self->failed) || !read_frames(self, bytes, size, view, offset))
		return 0;
	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	if (value && traceback)
		PyException_SetTraceback(value, traceback);
	handled = PyObject_CallMethodObjArgs((PyObject *) self, name_reading_failed, value ? value : Py_None, NULL);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
	return drop(handled);
}

static PyObject *ConnectionCore_receive(ConnectionCore *self, PyObject *const *args, Py_ssize_t count)
{
	Py_buffer data;
	double now;
	int rc;

	if (count != 2) {
		PyErr_SetString(PyExc_TypeError, "receive(data, now)");
		return NULL;
	}
	now = PyFloat_AsDouble(args[1]);
	if ((now == -1.0 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE))
		return NULL;
	self->now = now;
	rc = read_message(self, data.buf, data.len, args[0], 0);
	PyBuffer_Release(&data);
	return none_if(rc);
}

/* A fabric message has arrived: a new pass begins for the output, so that a task that waits alone is never delayed. */
static void begin_pass(ConnectionCore *self)
{
	self->now = (double) now_ns() * 1e-9;
	if (self->output && PyList_Check(self->output) && !PyList_Size(self->output) && self->send_now &&
	    Py_IS_TYPE(self->send_now, FrameOutput_Type))
		((FrameOutput *) self->send_now)->pass = 0;
}

static PyObject *ConnectionCore_call(ConnectionCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *view;
	Py_buffer data;
	int rc;

	if (!PyArg_ParseTuple(args, "O", &view) || PyObject_GetBuffer(view, &data, PyBUF_SIMPLE))
		return NULL;
	begin_pass(self);
	rc = read_message(self, data.buf, data.len, view, 0);
	PyBuffer_Release(&data);
	return none_if(rc);
}

static int arrived(PyObject *self, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset)
{
	begin_pass((ConnectionCore *) self);
	return read_message((ConnectionCore *) self, bytes, size, view, offset);
}

/* -- the types */

#define FOR_EACH_OBJECT(self, DO)                                                                          \
	do {                                                                                              \
		DO(self->calls); DO(self->handlers); DO(self->output); DO(self->send_now); DO(self->flush); \
		DO(self->failed); DO(self->goaway_sent); DO(self->budget); DO(self->method_indexes);         \
		DO(self->status_ok); DO(self->method_names); DO(self->new_call); DO(self->admits);           \
	} while (0)

static int ConnectionCore_traverse(ConnectionCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	FOR_EACH_OBJECT(self, Py_VISIT);
	return 0;
}

static int ConnectionCore_clear(ConnectionCore *self)
{
	FOR_EACH_OBJECT(self, Py_CLEAR);
	return 0;
}

static void ConnectionCore_dealloc(ConnectionCore *self)
{
	PyObject_GC_UnTrack(self);
	ConnectionCore_clear(self);
	free_object(self);
}

static PyMethodDef ConnectionCore_methods[] = {
	{"emit", (PyCFunction) ConnectionCore_emit, METH_O, "Send a frame now, or with the next output."},
	{"hold", (PyCFunction) ConnectionCore_hold, METH_O,
	 "Keep a frame until the pass ends, or until there are enough for one fabric message."},
	{"begin", (PyCFunction) (void (*)(void)) ConnectionCore_begin, METH_FASTCALL,
	 "begin(call, method, message, end, deadline, now): start a call that needs nothing but a START frame; False if\n"
	 "it needs more."},
	{"conclude", (PyCFunction) (void (*)(void)) ConnectionCore_conclude, METH_FASTCALL,
	 "conclude(call, message): end a call with OK and one small message; False if it needs more than one frame."},
	{"receive", (PyCFunction) (void (*)(void)) ConnectionCore_receive, METH_FASTCALL,
	 "receive(data, now): handle one fabric message. `now` in seconds, on the clock of the deadlines.\n\n"
	 "After an error of the protocol, `failed` is set, GOAWAY is in `output`, and every call has ended."},
	{NULL},
};

static PyMethodDef call_methods[] = {
	{"release", (PyCFunction) CallCore_release, METH_NOARGS,
	 "The handler of a server's call has ended: the call does not count against limits any more."},
	{NULL},
};

static PyMethodDef client_call_methods[] = {
	{"_wake", (PyCFunction) ClientCallCore_wake, METH_NOARGS, "Wake the tasks that wait for the call."},
	{NULL},
};

static PyGetSetDef ConnectionCore_getset[] = {
	{"usable", (getter) ConnectionCore_get_usable, NULL,
	 "Whether a call can begin now: not after GOAWAY, and not above the server's number of calls."},
	{NULL},
};

#define OBJECT(name, field) {name, T_OBJECT, offsetof(ConnectionCore, field)}
#define COUNT(name, field) {name, T_LONGLONG, offsetof(ConnectionCore, field)}

static PyMemberDef ConnectionCore_members[] = {
	OBJECT("calls", calls),
	OBJECT("_handlers", handlers),
	OBJECT("output", output),
	OBJECT("send_now", send_now),
	OBJECT("flush", flush),
	OBJECT("failed", failed),
	OBJECT("goaway_sent", goaway_sent),
	OBJECT("budget", budget),
	OBJECT("method_indexes", method_indexes),
	OBJECT("status_ok", status_ok),
	OBJECT("method_names", method_names),
	OBJECT("new_call", new_call),
	OBJECT("admits", admits),
	{"next_id", T_ULONGLONG, offsetof(ConnectionCore, next_id)},
	{"highest", T_ULONGLONG, offsetof(ConnectionCore, highest)},
	COUNT("small", small),
	COUNT("window", window),
	COUNT("receive_window", receive_window),
	COUNT("most_in_status", most_in_status),
	COUNT("max_message", max_message),
	COUNT("max_calls", max_calls),
	COUNT("running", running),
	COUNT("peer_max_calls", peer_max_calls),
	{"now", T_DOUBLE, offsetof(ConnectionCore, now)},
	{"peer_known", T_BOOL, offsetof(ConnectionCore, peer_known)},
	{"retired", T_BOOL, offsetof(ConnectionCore, retired)},
	{NULL},
};

static PyType_Slot ConnectionCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.rpc.protocol.connection.Connection`. Calling it with a fabric message handles that."},
	{Py_tp_call, ConnectionCore_call},
	{Py_tp_dealloc, ConnectionCore_dealloc},
	{Py_tp_traverse, ConnectionCore_traverse},
	{Py_tp_clear, ConnectionCore_clear},
	{Py_tp_methods, ConnectionCore_methods},
	{Py_tp_getset, ConnectionCore_getset},
	{Py_tp_members, ConnectionCore_members},
	{0, NULL},
};

static PyType_Spec ConnectionCore_spec = {
	"aiofabric._core.ConnectionCore", sizeof(ConnectionCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ConnectionCore_slots,
};

static PyMemberDef BudgetCore_members[] = {
	{"used", T_LONGLONG, offsetof(BudgetCore, used)},
	{"limit", T_LONGLONG, offsetof(BudgetCore, limit)},
	{NULL},
};

static void BudgetCore_dealloc(BudgetCore *self)
{
	free_object(self);
}

static PyType_Slot BudgetCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.rpc.protocol.flow.Budget`."},
	{Py_tp_dealloc, BudgetCore_dealloc},
	{Py_tp_members, BudgetCore_members},
	{0, NULL},
};

static PyType_Spec BudgetCore_spec = {
	"aiofabric._core.BudgetCore", sizeof(BudgetCore), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, BudgetCore_slots,
};

int add_rpc_connection(PyObject *module)
{
	static const struct name names[] = {
		{&name_answered, "answered"}, {&name_cut_short, "_cut_short"}, {&name_hold_start, "hold_start"},
		{&name_reading_failed, "_reading_failed"}, {&name_started, "started"}, {&name_too_long, "_too_long"},
		{&name_unknown, "_unknown"}, {&name_wake, "wake"}, {&name_wake_all, "_wake_all"}, {NULL},
	};

	if (intern(names) || add_type(module, &BudgetCore_spec, NULL, &BudgetCore_Type) ||
	    add_type(module, &ConnectionCore_spec, NULL, &ConnectionCore_Type) ||
	    add_methods(CallCore_Type, call_methods) || add_methods(ClientCallCore_Type, client_call_methods))
		return -1;
	upcalls.frame_sink.type = ConnectionCore_Type;
	upcalls.frame_sink.arrived = arrived;
	return 0;
}
