/*
 * Quick: `send` and `recv` themselves, for the usual call: one from C to C.  Everything else is left to the function of
 * Python's that they replace.  As functions the two were 1,000 of the 15,300 instructions that a request costs among a
 * hundred connections, 340 of them for the defaults of what is given by keyword only.
 */
#include "fast_path.h"
#include "inbox.h"
#include "names.h"
#include "next_message.h"
#include "receive_pool.h"
#include "references.h"
#include "send.h"
#include "submission.h"
#include "thread_check.h"

static PyTypeObject *Quick_Type, *QuickMethod_Type, *ResourceCore_Type;

static PyObject *bound_method;

/* Where the calls of an endpoint go. */
typedef struct {
	PyObject_HEAD
	Gate *gate;
	LaneCore *lane;		/* what sends; NULL where that takes more than a message */
	InboxCore *inbox;	/* NULL where no pool receives */
} Quick;

/* Of a `Resource`; what is no endpoint has none. */
typedef struct {
	PyObject_HEAD
	Quick *quick;
} ResourceCore;

/* NULL without an exception: it is for the function to do. */
typedef PyObject *quick_call(Quick *self, PyObject *const *args);

static PyObject *send(Quick *self, PyObject *const *args)
{
	return self->lane ? lane_sending(self->lane, args[0], args[1]) : NULL;
}

static PyObject *receive(Quick *self, PyObject *const *args)
{
	return self->inbox && self->gate ? inbox_receiving(self->inbox, args[0], self->gate) : NULL;
}

/* -- the methods */

typedef PyObject *vector_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names);

typedef struct {
	PyObject_HEAD
	vector_call *vectorcall;
	quick_call *call;
	Py_ssize_t count;	/* arguments of the usual call, the endpoint included */
	PyObject *function, *dict;
	PyTypeObject *usual;	/* of whom it was called on last: one of ours, kept until it is another's turn */
} QuickMethod;

/* The interface of vectors is in the stable one from 3.12 on; 3.11 has it all the same, for types that say so. */
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

/* As an attribute that is looked up it took 200 instructions. */
static Quick *quick_of(QuickMethod *self, PyObject *endpoint)
{
	PyTypeObject *type = Py_TYPE(endpoint);

	if (type != self->usual) {
		if (!PyType_IsSubtype(type, ResourceCore_Type))
			return NULL;
		REPLACE(self->usual, (PyTypeObject *) new_ref(type));
	}
	return ((ResourceCore *) endpoint)->quick;
}

static PyObject *QuickMethod_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names)
{
	QuickMethod *self = (QuickMethod *) object;
	Py_ssize_t count = flagged & COUNT_MASK;
	Quick *quick = count == self->count && !names ? quick_of(self, args[0]) : NULL;
	PyObject *result = quick ? self->call(quick, args) : NULL;

	if (result || (quick && PyErr_Occurred()))
		return result;
	return call_function(self->function, args, count, names);
}

static PyObject *QuickMethod_call(QuickMethod *self, PyObject *args, PyObject *kwargs)
{
	return PyObject_Call(self->function, args, kwargs);
}

/* Who asks the class gets the function: whatever looks into functions knows what it is. */
static PyObject *QuickMethod_get(QuickMethod *self, PyObject *endpoint, PyObject *owner)
{
	return endpoint ? PyObject_CallFunctionObjArgs(bound_method, self, endpoint, NULL) : new_ref(self->function);
}

/* What is known of the function is known of this: its name, its text, that it is one of coroutines. */
static PyObject *with_attributes(PyObject *self, PyObject *function)
{
	PyObject *update = import_from("functools", "update_wrapper");
	PyObject *same = update ? PyObject_CallFunctionObjArgs(update, self, function, NULL) : NULL;

	Py_XDECREF(update);
	return same;
}

static PyObject *replacing(PyObject *function, quick_call *call, Py_ssize_t count)
{
	allocfunc alloc = PyType_GetSlot(QuickMethod_Type, Py_tp_alloc);
	QuickMethod *self = (QuickMethod *) alloc(QuickMethod_Type, 0);
	PyObject *same;

	if (!self)
		return NULL;
	self->vectorcall = QuickMethod_vectorcall;
	self->call = call;
	self->count = count;
	self->function = new_ref(function);
	same = with_attributes((PyObject *) self, function);
	Py_DECREF((PyObject *) self);
	return same;
}

static PyObject *quick_send(PyObject *module, PyObject *function)
{
	return replacing(function, send, 2);
}

static PyObject *quick_recv(PyObject *module, PyObject *function)
{
	return replacing(function, receive, 1);
}

static int QuickMethod_traverse(QuickMethod *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->function);
	Py_VISIT(self->dict);
	Py_VISIT(self->usual);
	return 0;
}

static int QuickMethod_clear(QuickMethod *self)
{
	REPLACE(self->function, new_ref(Py_None));
	Py_CLEAR(self->dict);
	Py_CLEAR(self->usual);
	return 0;
}

static void QuickMethod_dealloc(QuickMethod *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->function);
	Py_CLEAR(self->dict);
	Py_CLEAR(self->usual);
	free_object(self);
}

static PyMemberDef QuickMethod_members[] = {
	{"__vectorcalloffset__", T_PYSSIZET, offsetof(QuickMethod, vectorcall), READONLY},
	{"__dictoffset__", T_PYSSIZET, offsetof(QuickMethod, dict), READONLY},
	{NULL},
};

static PyGetSetDef QuickMethod_getset[] = {
	{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, "The function's attributes."},
	{NULL},
};

static PyType_Slot QuickMethod_slots[] = {
	{Py_tp_doc, "A function of an endpoint's whose usual call is C's."},
	{Py_tp_call, QuickMethod_call},
	{Py_tp_descr_get, QuickMethod_get},
	{Py_tp_dealloc, QuickMethod_dealloc},
	{Py_tp_traverse, QuickMethod_traverse},
	{Py_tp_clear, QuickMethod_clear},
	{Py_tp_getset, QuickMethod_getset},
	{Py_tp_members, QuickMethod_members},
	{0, NULL},
};

static PyType_Spec QuickMethod_spec = {
	"aiofabric._core.QuickMethod", sizeof(QuickMethod), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_METHOD_DESCRIPTOR | HAS_VECTORCALL,
	QuickMethod_slots,
};

/* -- where they go */

static int Quick_init(Quick *self, PyObject *args)
{
	PyObject *gate;

	if (!PyArg_ParseTuple(args, "O!", Gate_Type, &gate))
		return -1;
	REPLACE(self->gate, (Gate *) new_ref(gate));
	return 0;
}

static PyObject *Quick_open(Quick *self, PyObject *args)
{
	PyObject *lane, *inbox;

	if (!PyArg_ParseTuple(args, "OO", &lane, &inbox))
		return NULL;
	if ((lane != Py_None && !PyObject_TypeCheck(lane, LaneCore_Type)) ||
	    (inbox != Py_None && !PyObject_TypeCheck(inbox, InboxCore_Type))) {
		PyErr_SetString(PyExc_TypeError, "open(lane, inbox): each may be None");
		return NULL;
	}
	REPLACE(self->lane, lane == Py_None ? NULL : (LaneCore *) new_ref(lane));
	REPLACE(self->inbox, inbox == Py_None ? NULL : (InboxCore *) new_ref(inbox));
	Py_RETURN_NONE;
}

static int Quick_traverse(Quick *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->lane);
	Py_VISIT(self->inbox);
	return 0;
}

static int Quick_clear(Quick *self)
{
	Py_CLEAR(self->lane);
	Py_CLEAR(self->inbox);
	return 0;
}

static void Quick_dealloc(Quick *self)
{
	PyObject_GC_UnTrack(self);
	Quick_clear(self);
	Py_CLEAR(self->gate);
	free_object(self);
}

static PyMethodDef Quick_methods[] = {
	{"open", (PyCFunction) Quick_open, METH_VARARGS,
	 "open(lane, inbox): what sends, where a message is all that it takes, and what receives; or None: the function does."},
	{NULL},
};

static PyType_Slot Quick_slots[] = {
	{Py_tp_doc, "Quick(gate): where the calls of an endpoint go that are C's."},
	{Py_tp_init, Quick_init},
	{Py_tp_dealloc, Quick_dealloc},
	{Py_tp_traverse, Quick_traverse},
	{Py_tp_clear, Quick_clear},
	{Py_tp_methods, Quick_methods},
	{0, NULL},
};

static PyType_Spec Quick_spec = {
	"aiofabric._core.Quick", sizeof(Quick), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Quick_slots,
};

/* -- whose they are */

static PyObject *ResourceCore_calls_go_by(ResourceCore *self, PyObject *quick)
{
	if (!Py_IS_TYPE(quick, Quick_Type)) {
		PyErr_SetString(PyExc_TypeError, "no Quick");
		return NULL;
	}
	REPLACE(self->quick, (Quick *) new_ref(quick));
	Py_RETURN_NONE;
}

static int ResourceCore_traverse(ResourceCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->quick);
	return 0;
}

static int ResourceCore_clear(ResourceCore *self)
{
	Py_CLEAR(self->quick);
	return 0;
}

static void ResourceCore_dealloc(ResourceCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->quick);
	free_object(self);
}

static PyMethodDef ResourceCore_methods[] = {
	{"_calls_go_by", (PyCFunction) ResourceCore_calls_go_by, METH_O, "Have the usual calls go by this `Quick`."},
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
		{"quick_send", quick_send, METH_O, "quick_send(function): it, but that sending a message is C's where `Quick` has a lane."},
		{"quick_recv", quick_recv, METH_O, "quick_recv(function): it, but that receiving one is C's where `Quick` has an inbox."},
		{NULL},
	};

	bound_method = import_from("types", "MethodType");
	if (!bound_method || PyModule_AddFunctions(module, functions))
		return -1;
	if (add_type(module, &QuickMethod_spec, NULL, &QuickMethod_Type) || add_type(module, &Quick_spec, NULL, &Quick_Type))
		return -1;
	return add_type(module, &ResourceCore_spec, NULL, &ResourceCore_Type);
}
