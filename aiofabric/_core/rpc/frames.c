/*
 * Reads the frames of a fabric message. A usual START or STATUS is handled in C, any other frame by its handler in
 * Python: `_handlers` of rpc/protocol/connection.py.
 */
#include "rpc/frames.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "rpc/call.h"
#include "rpc/client_frames.h"
#include "rpc/connection.h"
#include "rpc/frame_output.h"
#include "rpc/server_frames.h"
#include "rpc/wire.h"

static PyObject *name_cut_short, *name_reading_failed, *name_too_long, *name_unknown;

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

		if (!rpc_connection_ready(self)) /* a handler in Python ran */
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
			done = rpc_read_status(self, flags, field, id, bytes + at, length);
		else if (self->peer_known && kind == START)
			done = rpc_read_start(self, flags, field, id, bytes + at, length);
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

	if (!rpc_connection_ready(self))
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
		raise_arguments("receive(data, now)", count);
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

static int arrived(PyObject *self, PyObject *buffer, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset)
{
	begin_pass((ConnectionCore *) self);
	return read_message((ConnectionCore *) self, bytes, size, view, offset);
}

static PyMethodDef methods[] = {
	{"receive", (PyCFunction) (void (*)(void)) ConnectionCore_receive, METH_FASTCALL,
	 "receive(data, now): handle one fabric message. `now` in seconds, on the clock of the deadlines.\n\n"
	 "After an error of the protocol, `failed` is set, GOAWAY is in `output`, and every call has ended."},
	{NULL},
};

int add_rpc_frames(PyObject *module)
{
	static const struct name names[] = {
		{&name_cut_short, "_cut_short"}, {&name_reading_failed, "_reading_failed"}, {&name_too_long, "_too_long"},
		{&name_unknown, "_unknown"}, {NULL},
	};

	if (intern(names) || add_methods(ConnectionCore_Type, methods))
		return -1;
	upcalls.rpc_sink = (struct frame_sink) {ConnectionCore_Type, arrived};
	return 0;
}
