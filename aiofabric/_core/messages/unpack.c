/* Unpacking: a received buffer becomes the receiver's `Message`, and is posted again. */
#include "messages/unpack.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "messages/inbox.h"
#include "messages/message.h"
#include "messages/receive_pool.h"

#include <rdma/fabric.h>

static PyObject *name_contents, *name_data, *name_flags, *name_requeue, *name_source, *name_source_of;

/* A `Message` from a buffer that is no PoolBuffer. */
static PyObject *message_in(PyObject *item, PyObject *source)
{
	PyObject *flags = PyObject_GetAttr(item, name_flags), *data = PyObject_GetAttr(item, name_data);
	PyObject *contents = PyObject_GetAttr(item, name_contents), *message = NULL;

	if (flags && data && contents) {
		uint64_t along = PyLong_AsUnsignedLongLong(data);
		int has = (PyLong_AsUnsignedLongLong(flags) & FI_REMOTE_CQ_DATA) != 0;

		if (!PyErr_Occurred() && PyBytes_Check(contents))
			message = message_new(PyBytes_AsString(contents), PyBytes_Size(contents), source, 0, has ? &along : NULL);
		else if (!PyErr_Occurred())
			raise_expected("bytes as the contents of a message", contents);
	}
	Py_XDECREF(flags);
	Py_XDECREF(data);
	Py_XDECREF(contents);
	return message;
}

/* A `Message` with the contents of the buffer and its metadata, for the endpoint that receives it. */
static PyObject *message_of(InboxCore *self, PyObject *receiver, PyObject *item)
{
	PyObject *source = self->peer, *message = NULL;

	if (source == Py_None) {
		PyObject *address = PyObject_GetAttr(item, name_source);

		source = address ? PyObject_CallMethodObjArgs(receiver, name_source_of, address, NULL) : NULL;
		Py_XDECREF(address);
		if (!source)
			return NULL;
	} else {
		Py_INCREF(source);
	}
	if (Py_IS_TYPE(item, PoolBuffer_Type)) {
		PoolBuffer *buffer = (PoolBuffer *) item;
		const char *bytes = pool_contents(buffer);
		uint64_t data = buffer->data;

		if (bytes)
			message = message_new(bytes, buffer->length, source, 0, buffer->flags & FI_REMOTE_CQ_DATA ? &data : NULL);
	} else {
		message = message_in(item, source);
	}
	Py_DECREF(source);
	return message;
}

PyObject *inbox_unpack(InboxCore *self, PyObject *receiver, PyObject *item)
{
	PyObject *message = message_of(self, receiver, item), *type, *error, *traceback;

	if (!message) { /* Ctrl-C, or a lack of memory, loses no message: it is the next one again */
		PyErr_Fetch(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs((PyObject *) self, name_requeue, item, NULL)))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
	} else if (inbox_recycle(self, item)) {
		Py_CLEAR(message);
	}
	return message;
}

static PyObject *InboxCore_unpack(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count == 2)
		return inbox_unpack(self, args[0], args[1]);
	raise_arguments("unpack(receiver, buffer)", count);
	return NULL;
}

static PyMethodDef methods[] = {
	{"unpack", (PyCFunction) (void (*)(void)) InboxCore_unpack, METH_FASTCALL,
	 "unpack(receiver, buffer): the message in a buffer, copied; the buffer is recycled."},
	{NULL},
};

int add_unpack(PyObject *module)
{
	static const struct name names[] = {
		{&name_contents, "contents"}, {&name_data, "data"}, {&name_flags, "flags"}, {&name_requeue, "_requeue"},
		{&name_source, "source"}, {&name_source_of, "_source_of"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(InboxCore_Type, methods);
}
