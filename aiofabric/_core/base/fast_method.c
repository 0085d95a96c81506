/*
 * FastMethod: a method whose usual call runs in C: one call from C to C. Every other call goes to the Python function that
 * it replaces. As functions, `send` and `recv` of endpoints took 1,000 of the 15,300 instructions that a request costs
 * among a hundred connections, 340 of them for the defaults of keyword-only arguments.
 */
#include "base/fast_method.h"
#include "base/names.h"
#include "base/references.h"

static PyTypeObject *FastMethod_Type, *ResourceCore_Type;

static PyObject *bound_method;

/* Base of `Resource` and of streams; not all of them have a fast path. */
typedef struct {
	PyObject_HEAD
	PyObject *fast_path;
} ResourceCore;

typedef PyObject *vector_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names);

typedef struct {
	PyObject_HEAD
	vector_call *vectorcall;
	fast_call *call;
	Py_ssize_t least, most;	/* arguments of the usual call, the object included */
	PyObject *function, *dict;
	PyTypeObject *usual;	/* class of the last object, derived from ResourceCore; a reference */
} FastMethod;

/* Vectorcall is in the limited API from 3.12 on; 3.11 has it as well, for types with this flag. */
#define HAS_VECTORCALL (1UL << 11)
#define COUNT_MASK (~((size_t) 1 << (8 * sizeof(size_t) - 1)))

static PyObject *call_function(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0, i;
	PyObject *positional = PyTuple_New(count), *keywords = named ? PyDict_New() : NULL, *result = NULL;
	int rc = positional && (keywords || !named) ? 0 : -1;

	for (i = 0; !rc && i < count; i++)
		rc = PyTuple_SetItem(positional, i, new_ref(args[i]));
	for (i = 0; !rc && i < named; i++)
		rc = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]);
	if (!rc)
		result = PyObject_Call(function, positional, keywords);
	Py_XDECREF(positional);
	Py_XDECREF(keywords);
	return result;
}

/* An attribute lookup took 200 instructions. */
static PyObject *fast_path_of(FastMethod *self, PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	if (type != self->usual) {
		if (!PyType_IsSubtype(type, ResourceCore_Type))
			return NULL;
		REPLACE(self->usual, (PyTypeObject *) new_ref(type));
	}
	return ((ResourceCore *) object)->fast_path;
}

static PyObject *FastMethod_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names)
{
	FastMethod *self = (FastMethod *) object;
	Py_ssize_t count = flagged & COUNT_MASK;
	int usual = count >= self->least && count <= self->most && !names;
	PyObject *fast_path = usual ? fast_path_of(self, args[0]) : NULL;
	PyObject *result = fast_path ? self->call(fast_path, args, count) : NULL;

	if (result || (fast_path && PyErr_Occurred()))
		return result;
	return call_function(self->function, args, count, names);
}

static PyObject *FastMethod_call(FastMethod *self, PyObject *args, PyObject *kwargs)
{
	return PyObject_Call(self->function, args, kwargs);
}

/* On the class the attribute is the Python function, so tools that inspect functions recognise it. */
static PyObject *FastMethod_get(FastMethod *self, PyObject *object, PyObject *owner)
{
	return object ? PyObject_CallFunctionObjArgs(bound_method, self, object, NULL) : new_ref(self->function);
}

/* Copy the function's attributes: its name, its docstring, that it is a coroutine function. */
static PyObject *with_attributes(PyObject *self, PyObject *function)
{
	PyObject *update = import_from("functools", "update_wrapper");
	PyObject *same = update ? PyObject_CallFunctionObjArgs(update, self, function, NULL) : NULL;

	Py_XDECREF(update);
	return same;
}

PyObject *fast_method_new(PyObject *function, fast_call *call, Py_ssize_t least, Py_ssize_t most)
{
	allocfunc alloc = PyType_GetSlot(FastMethod_Type, Py_tp_alloc);
	FastMethod *self = (FastMethod *) alloc(FastMethod_Type, 0);
	PyObject *same;

	if (!self)
		return NULL;
	self->vectorcall = FastMethod_vectorcall;
	self->call = call;
	self->least = least;
	self->most = most;
	self->function = new_ref(function);
	same = with_attributes((PyObject *) self, function);
	Py_DECREF((PyObject *) self);
	return same;
}

static int FastMethod_traverse(FastMethod *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->function);
	Py_VISIT(self->dict);
	Py_VISIT(self->usual);
	return 0;
}

static int FastMethod_clear(FastMethod *self)
{
	REPLACE(self->function, new_ref(Py_None));
	Py_CLEAR(self->dict);
	Py_CLEAR(self->usual);
	return 0;
}

static void FastMethod_dealloc(FastMethod *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->function);
	Py_CLEAR(self->dict);
	Py_CLEAR(self->usual);
	free_object(self);
}

static PyMemberDef FastMethod_members[] = {
	{"__vectorcalloffset__", T_PYSSIZET, offsetof(FastMethod, vectorcall), READONLY},
	{"__dictoffset__", T_PYSSIZET, offsetof(FastMethod, dict), READONLY},
	{NULL},
};

static PyGetSetDef FastMethod_getset[] = {
	{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, "The function's attributes."},
	{NULL},
};

static PyType_Slot FastMethod_slots[] = {
	{Py_tp_doc, "A method whose usual call runs in C."},
	{Py_tp_call, FastMethod_call},
	{Py_tp_descr_get, FastMethod_get},
	{Py_tp_dealloc, FastMethod_dealloc},
	{Py_tp_traverse, FastMethod_traverse},
	{Py_tp_clear, FastMethod_clear},
	{Py_tp_getset, FastMethod_getset},
	{Py_tp_members, FastMethod_members},
	{0, NULL},
};

static PyType_Spec FastMethod_spec = {
	"aiofabric._core.FastMethod", sizeof(FastMethod), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_METHOD_DESCRIPTOR | HAS_VECTORCALL,
	FastMethod_slots,
};

static PyObject *ResourceCore_calls_go_by(ResourceCore *self, PyObject *fast_path)
{
	REPLACE(self->fast_path, new_ref(fast_path));
	Py_RETURN_NONE;
}

static int ResourceCore_traverse(ResourceCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->fast_path);
	return 0;
}

static int ResourceCore_clear(ResourceCore *self)
{
	Py_CLEAR(self->fast_path);
	return 0;
}

static void ResourceCore_dealloc(ResourceCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->fast_path);
	free_object(self);
}

static PyMethodDef ResourceCore_methods[] = {
	{"_calls_go_by", (PyCFunction) ResourceCore_calls_go_by, METH_O, "Let the usual calls use this `FastPath` or `StreamPath`."},
	{NULL},
};

static PyType_Slot ResourceCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.resource.Resource`, and of streams."},
	{Py_tp_dealloc, ResourceCore_dealloc},
	{Py_tp_traverse, ResourceCore_traverse},
	{Py_tp_clear, ResourceCore_clear},
	{Py_tp_methods, ResourceCore_methods},
	{0, NULL},
};

static PyType_Spec ResourceCore_spec = {
	"aiofabric._core.ResourceCore", sizeof(ResourceCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ResourceCore_slots,
};

int add_fast_method(PyObject *module)
{
	bound_method = import_from("types", "MethodType");
	if (!bound_method || add_type(module, &FastMethod_spec, NULL, &FastMethod_Type))
		return -1;
	return add_type(module, &ResourceCore_spec, NULL, &ResourceCore_Type);
}
