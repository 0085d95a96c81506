/*
 * Assembly: one `bytes` from pieces, each copied once. Joining a list of pieces copies twice, and for 1 MiB the memory
 * of both copies had to be mapped each time: 415 us of the 1.1 ms of a call.
 */
#include "messages/assembly.h"
#include "base/names.h"
#include "base/references.h"

typedef struct {
	PyObject_HEAD
	PyObject *bytes;	/* the only reference, until `take` */
	Py_ssize_t size, have;
} Assembly;

static int Assembly_init(Assembly *self, PyObject *args, PyObject *kwargs)
{
	Py_ssize_t size;

	if (!PyArg_ParseTuple(args, "n", &size))
		return -1;
	if (size < 0 || self->bytes || self->have) { /* after take() its bytes are gone, and `have` is not 0 */
		PyErr_Format(PyExc_ValueError, self->bytes || self->have ? "an Assembly has one size: it was initialised before"
			     : "expected a size of 0 bytes or more, got %zd", size);
		return -1;
	}
	self->bytes = PyBytes_FromStringAndSize(NULL, size);
	if (!self->bytes)
		return -1;
	self->size = size;
	return 0;
}

static PyObject *Assembly_add(Assembly *self, PyObject *piece)
{
	Py_buffer view;

	if (!self->bytes) {
		PyErr_SetString(PyExc_ValueError, "expected an Assembly that holds its bytes, got one whose take() was called");
		return NULL;
	}
	if (PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE))
		return NULL;
	if (view.len > self->size - self->have) {
		PyBuffer_Release(&view);
		PyErr_Format(PyExc_ValueError, "expected %zd more bytes at most, got a piece of %zd", self->size - self->have,
			     view.len);
		return NULL;
	}
	memcpy(PyBytes_AsString(self->bytes) + self->have, view.buf, view.len);
	self->have += view.len;
	PyBuffer_Release(&view);
	return PyLong_FromSsize_t(self->have);
}

static PyObject *Assembly_take(Assembly *self, PyObject *unused)
{
	PyObject *bytes = self->bytes;

	if (!bytes || self->have != self->size) {
		PyErr_Format(PyExc_ValueError, bytes ? "expected pieces of %zd bytes together, got %zd"
			     : "expected an Assembly that holds its bytes, got one whose take() was called", self->size, self->have);
		return NULL;
	}
	self->bytes = NULL;
	return bytes;
}

static void Assembly_dealloc(Assembly *self)
{
	Py_XDECREF(self->bytes);
	free_object(self);
}

static PyMethodDef Assembly_methods[] = {
	{"add", (PyCFunction) Assembly_add, METH_O, "Copy a piece behind the others; return how many bytes are there."},
	{"take", (PyCFunction) Assembly_take, METH_NOARGS, "The bytes, once all are there."},
	{NULL},
};

static PyType_Slot Assembly_slots[] = {
	{Py_tp_doc, "Assembly(size): makes one `bytes` from pieces."},
	{Py_tp_init, Assembly_init},
	{Py_tp_dealloc, Assembly_dealloc},
	{Py_tp_methods, Assembly_methods},
	{0, NULL},
};

static PyType_Spec Assembly_spec = {
	"aiofabric._core.Assembly", sizeof(Assembly), 0, Py_TPFLAGS_DEFAULT, Assembly_slots,
};

int add_assembly(PyObject *module)
{
	static PyTypeObject *type;

	return add_type(module, &Assembly_spec, NULL, &type);
}
