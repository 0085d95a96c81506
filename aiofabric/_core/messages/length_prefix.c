/*
 * Messages with their lengths in front, four bytes little-endian each: the format of a MessageStream in a stream of
 * bytes; channel/stream.c writes it. As a Python loop each message took 0.2 us to cut, of 1.7 for a request of 64 in flight.
 */
#include "messages/length_prefix.h"
#include "base/references.h"

#define LENGTH 4

static Py_ssize_t get_length(const unsigned char *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (Py_ssize_t) at[3] << 24;
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
		{"cut_messages", cut_messages, METH_VARARGS,
		 "cut_messages(chunk, start): the complete messages, and the offset of the first incomplete one."},
		{NULL},
	};

	return PyModule_AddFunctions(module, functions);
}
