/*
 * FastPath: `send` and `recv` themselves, for the usual call: one call from C to C. Every other call goes to the
 * Python function that they replace. As functions the two took 1,000 of the 15,300 instructions that a request costs
 * among a hundred connections, 340 of them for the defaults of keyword-only arguments.
 */
#include "endpoint/fast_path.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "messages/inbox.h"
#include "messages/next_message.h"
#include "messages/receive_pool.h"
#include "messages/send.h"
#include "submission/submission.h"

static PyTypeObject *FastPath_Type, *FastMethod_Type, *ResourceCore_Type;

static PyObject *bound_method;

/* The targets of an endpoint's calls. */
typedef struct {
	PyObject_HEAD
	ThreadCheck *thread_check;
	SubmissionCore *submission;		/* sends; NULL where sending takes more than a message */
	InboxCore *inbox;	/* NULL where no pool receives */
} FastPath;

/* Base of `Resource`; only endpoints have a fast path. */
typedef struct {
	PyObject_HEAD
	FastPath *fast_path;
} ResourceCore;

/* NULL without an exception: the Python function handles the call. */
typedef PyObject *fast_call(FastPath *self, PyObject *const *args);

static PyObject *send(FastPath *self, PyObject *const *args)
{
	return self->submission ? send_call(self->submission, args[0], args[1]) : NULL;
}

static PyObject *receive(FastPath *self, PyObject *const *args)
{
	return self->inbox && self->thread_check ? receive_call(self->inbox, args[0], self->thread_check) : NULL;
}

/* -- the methods */

typedef PyObject *vector_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names);

typedef struct {
	PyObject_HEAD
	vector_call *vectorcall;
	fast_call *call;
	Py_ssize_t count;	/* arguments of the usual call, the endpoint included */
	PyObject *function, *dict;
	PyTypeObject *usual;	/* class of the last endpoint, derived from ResourceCore; a reference */
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
static FastPath *fast_path_of(FastMethod *self, PyObject *endpoint)
{
	PyTypeObject *type = Py_TYPE(endpoint);

	if (type != self->usual) {
		if (!PyType_IsSubtype(type, ResourceCore_Type))
			return NULL;
		REPLACE(self->usual, (PyTypeObject *) new_ref(type));
	}
	return ((ResourceCore *) endpoint)->fast_path;
}

static PyObject *FastMethod_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names)
{
	FastMethod *self = (FastMethod *) object;
	Py_ssize_t count = flagged & COUNT_MASK;
	FastPath *fast_path = count == self->count && !names ? fast_path_of(self, args[0]) : NULL;
	PyObject *result = fast_path ? self->call(fast_path, args) : NULL;

	if (result || (fast_path && PyErr_Occurred()))
		return result;
	return call_function(self->function, args, count, names);
}

static PyObject *FastMethod_call(FastMethod *self, PyObject *args, PyObject *kwargs)
{
	return PyObject_Call(self->function, args, kwargs);
}

/* On the class the attribute is the Python function, so tools that inspect functions recognise it. */
static PyObject *FastMethod_get(FastMethod *self, PyObject *endpoint, PyObject *owner)
{
	return endpoint ? PyObject_CallFunctionObjArgs(bound_method, self, endpoint, NULL) : new_ref(self->function);
}

/* Copy the function's attributes: its name, its docstring, that it is a coroutine function. */
static PyObject *with_attributes(PyObject *self, PyObject *function)
{
	PyObject *update = import_from("functools", "update_wrapper");
	PyObject *same = update ? PyObject_CallFunctionObjArgs(update, self, function, NULL) : NULL;

	Py_XDECREF(update);
	return same;
}

static PyObject *replacing(PyObject *function, fast_call *call, Py_ssize_t count)
{
	allocfunc alloc = PyType_GetSlot(FastMethod_Type, Py_tp_alloc);
	FastMethod *self = (FastMethod *) alloc(FastMethod_Type, 0);
	PyObject *same;

	if (!self)
		return NULL;
	self->vectorcall = FastMethod_vectorcall;
	self->call = call;
	self->count = count;
	self->function = new_ref(function);
	same = with_attributes((PyObject *) self, function);
	Py_DECREF((PyObject *) self);
	return same;
}

static PyObject *fast_send(PyObject *module, PyObject *function)
{
	return replacing(function, send, 2);
}

static PyObject *fast_recv(PyObject *module, PyObject *function)
{
	return replacing(function, receive, 1);
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
	{Py_tp_doc, "A method of an endpoint whose usual call runs in C."},
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

/* -- the targets */

static int FastPath_init(FastPath *self, PyObject *args)
{
	PyObject *thread_check;

	if (!PyArg_ParseTuple(args, "O!", ThreadCheck_Type, &thread_check))
		return -1;
	REPLACE(self->thread_check, (ThreadCheck *) new_ref(thread_check));
	return 0;
}

static PyObject *FastPath_open(FastPath *self, PyObject *args)
{
	PyObject *submission, *inbox;

	if (!PyArg_ParseTuple(args, "OO", &submission, &inbox))
		return NULL;
	if ((submission != Py_None && !PyObject_TypeCheck(submission, SubmissionCore_Type)) ||
	    (inbox != Py_None && !PyObject_TypeCheck(inbox, InboxCore_Type))) {
		PyErr_Format(PyExc_TypeError, "expected open(SubmissionCore or None, InboxCore or None), got %R and %R",
			     (PyObject *) type_of(submission), (PyObject *) type_of(inbox));
		return NULL;
	}
	REPLACE(self->submission, submission == Py_None ? NULL : (SubmissionCore *) new_ref(submission));
	REPLACE(self->inbox, inbox == Py_None ? NULL : (InboxCore *) new_ref(inbox));
	Py_RETURN_NONE;
}

static int FastPath_traverse(FastPath *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->submission);
	Py_VISIT(self->inbox);
	return 0;
}

static int FastPath_clear(FastPath *self)
{
	Py_CLEAR(self->submission);
	Py_CLEAR(self->inbox);
	return 0;
}

static void FastPath_dealloc(FastPath *self)
{
	PyObject_GC_UnTrack(self);
	FastPath_clear(self);
	Py_CLEAR(self->thread_check);
	free_object(self);
}

static PyMethodDef FastPath_methods[] = {
	{"open", (PyCFunction) FastPath_open, METH_VARARGS,
	 "open(submission, inbox): the submission queue, if sending takes only a message, and the inbox. None:\n"
	 "the function does it."},
	{NULL},
};

static PyType_Slot FastPath_slots[] = {
	{Py_tp_doc, "FastPath(thread_check): the targets of those calls of an endpoint that run in C."},
	{Py_tp_init, FastPath_init},
	{Py_tp_dealloc, FastPath_dealloc},
	{Py_tp_traverse, FastPath_traverse},
	{Py_tp_clear, FastPath_clear},
	{Py_tp_methods, FastPath_methods},
	{0, NULL},
};

static PyType_Spec FastPath_spec = {
	"aiofabric._core.FastPath", sizeof(FastPath), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, FastPath_slots,
};

/* -- the owner */

static PyObject *ResourceCore_calls_go_by(ResourceCore *self, PyObject *fast_path)
{
	if (!Py_IS_TYPE(fast_path, FastPath_Type)) {
		raise_expected("a FastPath", fast_path);
		return NULL;
	}
	REPLACE(self->fast_path, (FastPath *) new_ref(fast_path));
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
	{"_calls_go_by", (PyCFunction) ResourceCore_calls_go_by, METH_O, "Let the usual calls use this `FastPath`."},
	{NULL},
};

static PyType_Slot ResourceCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.resource.Resource`."},
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

int add_fast_path(PyObject *module)
{
	static PyMethodDef functions[] = {
		{"fast_send", fast_send, METH_O,
		 "fast_send(function): the function, except that C sends a plain message where `FastPath` may."},
		{"fast_recv", fast_recv, METH_O,
		 "fast_recv(function): the function, except that C receives a plain message where `FastPath` has\n"
		 "an inbox."},
		{NULL},
	};

	bound_method = import_from("types", "MethodType");
	if (!bound_method || PyModule_AddFunctions(module, functions))
		return -1;
	if (add_type(module, &FastMethod_spec, NULL, &FastMethod_Type) || add_type(module, &FastPath_spec, NULL, &FastPath_Type))
		return -1;
	return add_type(module, &ResourceCore_spec, NULL, &ResourceCore_Type);
}
