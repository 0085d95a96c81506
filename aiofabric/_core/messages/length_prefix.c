/*
 * Messages with their lengths in front, four bytes little-endian each: the format of a MessageStream in a stream of
 * bytes. As a Python loop each message took 0.12 us to join and 0.2 to cut, of 1.7 for a request of 64 in flight.
 */
#include "messages/length_prefix.h"
#include "base/references.h"

#define LENGTH 4

static void put_length(unsigned char *at, size_t length)
{
	at[0] = length;
	at[1] = length >> 8;
	at[2] = length >> 16;
	at[3] = length >> 24;
}

static Py_ssize_t get_length(const unsigned char *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (Py_ssize_t) at[3] << 24;
}

static PyObject *join_messages(PyObject *module, PyObject *messages)
{
	Py_ssize_t count = PyList_Check(messages) ? PyList_Size(messages) : 0, total = 0, length, i;
	PyObject *joined, *message = messages;
	char *at, *bytes;
	int right = PyList_Check(messages);

	for (i = 0; right && i < count; i++) {
		message = PyList_GetItem(messages, i);
		right = PyBytes_Check(message);
		total += right ? LENGTH + PyBytes_Size(message) : 0;
	}
	if (!right) {
		PyErr_Format(PyExc_TypeError, "expected a list of bytes, got an object of %R", (PyObject *) type_of(message));
		return NULL;
	}
	joined = PyBytes_FromStringAndSize(NULL, total);
	if (!joined)
		return NULL;
	at = PyBytes_AsString(joined);
	for (i = 0; i < count; i++) {
		if (PyBytes_AsStringAndSize(PyList_GetItem(messages, i), &bytes, &length)) {
			Py_DECREF(joined);
			return NULL;
		}
		put_length((unsigned char *) at, length);
		memcpy(at + LENGTH, bytes, length);
		at += LENGTH + length;
	}
	return joined;
}

static PyObject *cut_messages(PyObject *module, PyObject *args)
{
	PyObject *messages, *message;
	const char *chunk;
	Py_ssize_t size, start, length;
	int rc = 0;

	if (!PyArg_ParseTuple(args, "y#n", &chunk, &size, &start))
		return NULL;
	if (start < 0 || start > size) {
		PyErr_Format(PyExc_ValueError, "expected a start from 0 to %zd, got %zd", size, start);
		return NULL;
	}
	messages = PyList_New(0);
	while (messages && !rc && size - start >= LENGTH) {
		length = get_length((const unsigned char *) chunk + start);
		if (length > size - start - LENGTH)
			break;
		message = PyBytes_FromStringAndSize(chunk + start + LENGTH, length);
		rc = message ? PyList_Append(messages, message) : -1;
		Py_XDECREF(message);
		start += LENGTH + length;
	}
	if (!messages || rc) {
		Py_XDECREF(messages);
		return NULL;
	}
	return Py_BuildValue("Nn", messages, start);
}

int add_length_prefix(PyObject *module)
{
	static PyMethodDef functions[] = {
		{"join_messages", join_messages, METH_O,
		 "join_messages(messages): one `bytes` of a list of bytes, each behind its length."},
		{"cut_messages", cut_messages, METH_VARARGS,
		 "cut_messages(chunk, start): the complete messages, and the offset of the first incomplete one."},
		{NULL},
	};

	return PyModule_AddFunctions(module, functions);
}
