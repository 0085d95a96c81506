/*
 * Message: the bytes of a message, and its metadata behind them.
 *
 * The text of a `bytes` is at its end, so a Python class that inherits from `bytes` keeps its attributes in a
 * dictionary. With such a dictionary, and one copy more, a message takes 2,600 of the 10,500 instructions that a
 * request of 64 in flight costs. This type takes 600.
 */
#include "messages/message.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *Message_Type;

struct along {
	PyObject *source;
	unsigned long long tag, data;
	char has_data;
};

#define ALIGNED(address) (((uintptr_t) (address) + _Alignof(struct along) - 1) & ~(uintptr_t) (_Alignof(struct along) - 1))

static struct along *along(PyObject *self)
{
	return (struct along *) ALIGNED(PyBytes_AsString(self) + PyBytes_Size(self) + 1);
}

/*
 * `bytes` keeps its hash in a field in front of its text (CPython's bytesobject.h). This type must set that field
 * itself.
 */
static int hash_is_before_text;

static int find_hash(void)
{
	PyObject *probe = PyBytes_FromString("where is the hash of this?");
	Py_hash_t hash = probe ? PyObject_Hash(probe) : -1, found;

	if (hash == -1) {
		Py_XDECREF(probe);
		return -1;
	}
	memcpy(&found, PyBytes_AsString(probe) - sizeof(found), sizeof(found));
	hash_is_before_text = found == hash;
	Py_DECREF(probe);
	return 0;
}

PyObject *message_new(const char *bytes, Py_ssize_t size, PyObject *source, unsigned long long tag, const uint64_t *data)
{
	PyObject *self = (PyObject *) PyObject_GC_NewVar(PyVarObject, Message_Type, size);
	struct along *rest;
	char *text;

	if (!self)
		return NULL;
	text = PyBytes_AsString(self);
	if (hash_is_before_text)
		memset(text - sizeof(Py_hash_t), 0xff, sizeof(Py_hash_t)); /* -1: not computed yet */
	memcpy(text, bytes, size);
	text[size] = 0;
	rest = along(self);
	rest->source = new_ref(source);
	rest->tag = tag;
	rest->has_data = data != NULL;
	rest->data = data ? *data : 0;
	PyObject_GC_Track(self);
	return self;
}

static PyObject *Message_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"data", "source", "tag", "remote_data", NULL};
	PyObject *source = Py_None, *tag = NULL, *data = Py_None, *self = NULL;
	unsigned long long number = 0;
	uint64_t along = 0;
	Py_buffer view;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|OO!O", names, &view, &source, &PyLong_Type, &tag, &data))
		return NULL;
	if (tag)
		number = PyLong_AsUnsignedLongLong(tag);
	if (data != Py_None && !PyErr_Occurred())
		along = PyLong_AsUnsignedLongLong(data);
	if (!PyErr_Occurred())
		self = message_new(view.buf, view.len, source, number, data == Py_None ? NULL : &along);
	PyBuffer_Release(&view);
	return self;
}

static int Message_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(along(self)->source);
	return 0;
}

static void Message_dealloc(PyObject *self)
{
	PyObject_GC_UnTrack(self);
	Py_DECREF(along(self)->source);
	free_object(self);
}

/* The hash of equal `bytes`: the field in which `bytes` keeps it has no public interface. */
static Py_hash_t Message_hash(PyObject *self)
{
	PyObject *copy = PyBytes_FromStringAndSize(PyBytes_AsString(self), PyBytes_Size(self));
	Py_hash_t hash = copy ? PyObject_Hash(copy) : -1;

	Py_XDECREF(copy);
	return hash;
}

static PyObject *Message_get_source(PyObject *self, void *unused)
{
	return new_ref(along(self)->source);
}

static PyObject *Message_get_tag(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLongLong(along(self)->tag);
}

static PyObject *Message_get_remote_data(PyObject *self, void *unused)
{
	if (!along(self)->has_data)
		Py_RETURN_NONE;
	return PyLong_FromUnsignedLongLong(along(self)->data);
}

static PyObject *Message_reduce(PyObject *self, PyObject *unused)
{
	const struct along *rest = along(self);
	PyObject *data = Message_get_remote_data(self, NULL);

	if (!data)
		return NULL;
	return Py_BuildValue("O(y#OKN)", type_of(self), PyBytes_AsString(self), PyBytes_Size(self), rest->source, rest->tag,
			     data);
}

static PyMethodDef Message_methods[] = {
	{"__reduce__", Message_reduce, METH_NOARGS, "For copy and pickle."},
	{NULL},
};

static PyGetSetDef Message_getset[] = {
	{"source", Message_get_source, NULL,
	 "The sender, where the endpoint was opened with FI_SOURCE or is connected; else None."},
	{"tag", Message_get_tag, NULL, "The tag of a tagged message; 0 otherwise."},
	{"remote_data", Message_get_remote_data, NULL, "The sender's remote completion data; None when it sent none."},
	{NULL},
};

static PyType_Slot Message_slots[] = {
	{Py_tp_doc, "Message(data, source=None, tag=0, remote_data=None)\n"
		    "--\n\n"
		    "A received message: immutable `bytes` of its own, with its metadata."},
	{Py_tp_new, Message_new},
	{Py_tp_dealloc, Message_dealloc},
	{Py_tp_free, PyObject_GC_Del},
	{Py_tp_traverse, Message_traverse},
	{Py_tp_hash, Message_hash},
	{Py_tp_methods, Message_methods},
	{Py_tp_getset, Message_getset},
	{Py_tp_richcompare, NULL}, /* that of bytes: it is not inherited without the hash */
	{0, NULL},
};

int add_message(PyObject *module)
{
	PyObject *size = PyObject_GetAttrString((PyObject *) &PyBytes_Type, "__basicsize__");
	PyType_Spec spec = {
		"aiofabric.Message", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Message_slots,
	};
	PyType_Slot *compare = Message_slots;

	if (!size || find_hash())
		return -1;
	spec.basicsize = PyLong_AsLong(size) + sizeof(struct along) + _Alignof(struct along) - 1;
	Py_DECREF(size);
	while (compare->slot != Py_tp_richcompare)
		compare++;
	compare->pfunc = PyType_GetSlot(&PyBytes_Type, Py_tp_richcompare);
	return PyErr_Occurred() ? -1 : add_type(module, &spec, (PyObject *) &PyBytes_Type, &Message_Type);
}
