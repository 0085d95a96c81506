/* FastPath: the targets of an endpoint's `send` and `recv`, for the usual call. */
#include "endpoint/fast_path.h"
#include "base/fast_method.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "messages/inbox.h"
#include "messages/next_message.h"
#include "messages/receive_pool.h"
#include "messages/send.h"
#include "submission/submission.h"

static PyTypeObject *FastPath_Type;

/* The targets of an endpoint's calls. */
typedef struct {
	PyObject_HEAD
	ThreadCheck *thread_check;
	SubmissionCore *submission;		/* sends; NULL where sending takes more than a message */
	InboxCore *inbox;	/* NULL where no pool receives */
} FastPath;

static FastPath *fast_path(PyObject *object)
{
	return Py_IS_TYPE(object, FastPath_Type) ? (FastPath *) object : NULL;
}

static PyObject *send(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
	FastPath *self = fast_path(object);

	return self && self->submission ? send_call(self->submission, args[0], args[1]) : NULL;
}

static PyObject *receive(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
	FastPath *self = fast_path(object);

	return self && self->inbox && self->thread_check ? receive_call(self->inbox, args[0], self->thread_check) : NULL;
}

static PyObject *fast_send(PyObject *module, PyObject *function)
{
	return fast_method_new(function, send, 2, 2);
}

static PyObject *fast_recv(PyObject *module, PyObject *function)
{
	return fast_method_new(function, receive, 1, 1);
}

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

	if (PyModule_AddFunctions(module, functions))
		return -1;
	return add_type(module, &FastPath_spec, NULL, &FastPath_Type);
}
