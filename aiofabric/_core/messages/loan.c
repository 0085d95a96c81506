/*
 * LoanCore: a received message that stays in the memory of its inbox while the receiver uses it. A slice of a view is a
 * view of its own, so the views are those of an object that counts them: the message's memory goes back after the
 * loan's end, when no view is left. transport/messages/loans.py has the rest.
 */
#include "messages/loan.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "messages/inbox.h"
#include "messages/receive_pool.h"

/*
 * The object that the views are of. It refers to the memory, and to nothing that could refer to a view: a cycle through a
 * memoryview that has an export crashes the collector of Debian's 3.11.2 (CPython gh-77894).
 */
typedef struct {
	PyObject_HEAD
	PyObject *memory;	/* a view of the inbox's memory, which keeps it */
	char *start;
	Py_ssize_t length, views;
	PyObject *inbox, *buffer; /* to be told when the last view is gone: set at the end of a loan that has some */
	char readonly;
} LentMessage;

typedef struct {
	PyObject_HEAD
	InboxCore *inbox;
	PyObject *buffer;	/* NULL after the end */
	LentMessage *message;
} LoanCore;

static PyTypeObject *LentMessage_Type, *LoanCore_Type;
static PyObject *name_loop_thread, *name_unused_later, *name_view;

/* -- LentMessage */

/* Have the loop give the buffer back, from any thread, and inside a garbage collection. */
static void give_back_later(PyObject *inbox, PyObject *buffer)
{
	PyObject *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	if (drop(PyObject_CallMethodObjArgs(inbox, name_unused_later, buffer, NULL)))
		PyErr_WriteUnraisable(inbox);
	PyErr_Restore(type, error, traceback);
}

static int LentMessage_getbuffer(LentMessage *self, Py_buffer *view, int flags)
{
	if (PyBuffer_FillInfo(view, (PyObject *) self, self->start, self->length, self->readonly, flags))
		return -1;
	self->views++;
	return 0;
}

static void LentMessage_releasebuffer(LentMessage *self, Py_buffer *view)
{
	PyObject *inbox = self->inbox, *buffer = self->buffer;

	assert(self->views > 0);
	if (--self->views || !buffer)
		return;
	self->inbox = self->buffer = NULL;
	give_back_later(inbox, buffer);
	Py_DECREF(inbox);
	Py_DECREF(buffer);
}

static void LentMessage_dealloc(LentMessage *self)
{
	Py_CLEAR(self->memory);
	Py_CLEAR(self->inbox);
	Py_CLEAR(self->buffer);
	free_object(self);
}

static LentMessage *lent_message_new(PyObject *buffer, Py_ssize_t start, int readonly)
{
	PyObject *memory = PyObject_GetAttr(buffer, name_view);
	LentMessage *self = NULL;
	Py_buffer view;

	if (!memory || PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)) {
		Py_XDECREF(memory);
		return NULL;
	}
	if (start < 0 || start > view.len)
		PyErr_Format(PyExc_IndexError, "expected a start within a message of %zd bytes, got %zd", view.len, start);
	else
		self = (LentMessage *) ((allocfunc) PyType_GetSlot(LentMessage_Type, Py_tp_alloc))(LentMessage_Type, 0);
	if (self) {
		self->memory = new_ref(memory);
		self->start = (char *) view.buf + start;
		self->length = view.len - start;
		self->readonly = readonly != 0;
	}
	PyBuffer_Release(&view); /* the memory is kept by the reference: no view has an export */
	Py_DECREF(memory);
	return self;
}

static PyType_Slot LentMessage_slots[] = {
	{Py_tp_doc, "What the views of a loan are of."},
	{Py_tp_dealloc, LentMessage_dealloc},
	{Py_bf_getbuffer, LentMessage_getbuffer},
	{Py_bf_releasebuffer, LentMessage_releasebuffer},
	{0, NULL},
};

static PyType_Spec LentMessage_spec = {
	"aiofabric._core.LentMessage", sizeof(LentMessage), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	LentMessage_slots,
};

/* -- LoanCore */

static int LoanCore_init(LoanCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *inbox, *buffer;
	Py_ssize_t start = 0;
	int readonly = 0;

	if (refuse_second_init(self->inbox))
		return -1;
	if (!PyArg_ParseTuple(args, "O!O|np", InboxCore_Type, &inbox, &buffer, &start, &readonly))
		return -1;
	self->message = lent_message_new(buffer, start, readonly);
	if (!self->message)
		return -1;
	self->inbox = (InboxCore *) new_ref(inbox);
	self->buffer = new_ref(buffer);
	self->inbox->lent++;
	return 0;
}

/* Whether this is the thread of the inbox's loop; -1 with an exception. */
static int is_loop_thread(InboxCore *inbox)
{
	PyObject *check = PyObject_GetAttr(inbox->handle, name_loop_thread);
	int admits;

	if (!check)
		return -1;
	admits = PyObject_TypeCheck(check, ThreadCheck_Type) && thread_check_admits((ThreadCheck *) check);
	Py_DECREF(check);
	return admits;
}

static PyObject *LoanCore_end(LoanCore *self, PyObject *unused)
{
	PyObject *buffer = self->buffer;
	int here, rc = 0;

	if (!buffer)
		Py_RETURN_TRUE;
	if (self->message->views) {
		self->buffer = NULL;
		self->message->inbox = new_ref(self->inbox);
		self->message->buffer = buffer;
		Py_RETURN_FALSE;
	}
	here = is_loop_thread(self->inbox);
	if (here < 0)
		return NULL;
	self->buffer = NULL;
	if (here) {
		self->inbox->lent--;
		rc = inbox_recycle(self->inbox, buffer);
	} else {
		give_back_later((PyObject *) self->inbox, buffer);
	}
	Py_DECREF(buffer);
	return rc ? NULL : PyBool_FromLong(1);
}

static PyObject *LoanCore_get_view(LoanCore *self, void *unused)
{
	return PyMemoryView_FromObject((PyObject *) self->message);
}

static int LoanCore_traverse(LoanCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->inbox);
	Py_VISIT(self->buffer);
	return 0;
}

/* The program has dropped the loan before its end. */
static void LoanCore_dealloc(LoanCore *self)
{
	PyObject_GC_UnTrack(self);
	if (self->buffer && self->message->views) {
		self->message->inbox = new_ref(self->inbox);
		self->message->buffer = new_ref(self->buffer);
	} else if (self->buffer) {
		give_back_later((PyObject *) self->inbox, self->buffer);
	}
	Py_CLEAR(self->inbox);
	Py_CLEAR(self->buffer);
	Py_CLEAR(self->message);
	free_object(self);
}

static PyMethodDef LoanCore_methods[] = {
	{"end", (PyCFunction) LoanCore_end, METH_NOARGS,
	 "The receiver does not use the message any more. False: views of it exist, and its memory goes back with the last."},
	{NULL},
};

static PyGetSetDef LoanCore_getset[] = {
	{"view", (getter) LoanCore_get_view, NULL, "A new view of the message."},
	{NULL},
};

static PyType_Slot LoanCore_slots[] = {
	{Py_tp_doc,
	 "LoanCore(inbox, buffer, start=0, readonly=False): the message from `start` on, in a received buffer that is in use."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, LoanCore_init},
	{Py_tp_dealloc, LoanCore_dealloc},
	{Py_tp_traverse, LoanCore_traverse},
	{Py_tp_methods, LoanCore_methods},
	{Py_tp_getset, LoanCore_getset},
	{0, NULL},
};

static PyType_Spec LoanCore_spec = {
	"aiofabric._core.LoanCore", sizeof(LoanCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, LoanCore_slots,
};

int add_loan(PyObject *module)
{
	static const struct name names[] = {
		{&name_loop_thread, "loop_thread"}, {&name_unused_later, "unused_later"}, {&name_view, "view"}, {NULL},
	};

	if (intern(names) || add_type(module, &LentMessage_spec, NULL, &LentMessage_Type))
		return -1;
	return add_type(module, &LoanCore_spec, NULL, &LoanCore_Type);
}
