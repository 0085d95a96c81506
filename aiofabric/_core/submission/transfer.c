/* Transfer: an operation of a submission queue. Its completion gives the slot back to the queue. */
#include "submission/transfer.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "operations/operation.h"
#include "progress/completions.h"
#include "queue/completion_queue.h"
#include "submission/submission.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

PyTypeObject *Transfer_Type;

static PyObject *name_consumed, *name_failed, *name_retire, *name_finish;

Operation *transfer_new(PyObject *what, PyObject *submission, PyObject *slot, PyObject *pins, PyObject *registrations,
			long long length)
{
	allocfunc alloc = PyType_GetSlot(Transfer_Type, Py_tp_alloc);
	PyObject *self = alloc(Transfer_Type, 0);

	if (self && operation_fill((Operation *) self, what, submission, slot, pins, registrations, length))
		Py_CLEAR(self);
	return (Operation *) self;
}

static SubmissionCore *submission_of(Operation *self)
{
	if (PyObject_TypeCheck(self->owner, SubmissionCore_Type))
		return (SubmissionCore *) self->owner;
	raise_expected("a SubmissionCore as the owner of a transfer", self->owner);
	return NULL;
}

int transfer_complete(Operation *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	SubmissionCore *submission = submission_of(self);
	struct first_exception first = NO_EXCEPTION;
	int rc;

	if (!submission)
		return -1;
	submission->completed++;
	if (self->unawaited) {
		submission->copied -= self->length;
		source_count_unawaited(submission->source);
	}
	if (submission->receives)
		self->length = entry->len;
	self->flags = entry->flags;
	self->data = entry->data;
	self->tag = entry->tag;
	if (set_source(&self->source, from))
		exception_keep(&first, self);
	Py_INCREF((PyObject *) submission);
	if (submission->plain_retire)
		rc = submission_completed(submission, self);
	else
		rc = drop(PyObject_CallMethodObjArgs((PyObject *) submission, name_retire, self, NULL));
	Py_DECREF((PyObject *) submission);
	if (rc) /* Ctrl-C in a Python method, or no memory: the caller must still get its result */
		exception_keep(&first, self);
	if (Py_IS_TYPE((PyObject *) self, Transfer_Type))
		rc = operation_complete(self, NULL);
	else
		rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_finish, NULL));
	if (rc)
		exception_keep(&first, self);
	return exception_raise(&first);
}

static PyObject *Transfer_complete(Operation *self, PyObject *tuple)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t from;
	int sources;

	if (entry_parse(tuple, &entry, &from, &sources) || transfer_complete(self, &entry, sources ? &from : NULL))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *Transfer_fail(Operation *self, PyObject *entry)
{
	return PyObject_CallMethodObjArgs(self->owner, name_failed, self, entry, NULL);
}

static PyObject *Transfer_consumed(Operation *self, PyObject *unused)
{
	return PyObject_CallMethodObjArgs(self->owner, name_consumed, self, NULL);
}

static PyMethodDef Transfer_methods[] = {
	{"complete", (PyCFunction) Transfer_complete, METH_O, "It succeeded: give the slot back, and finish."},
	{"fail", (PyCFunction) Transfer_fail, METH_O, "It failed; see `SubmissionQueue.failed`."},
	{"consumed", (PyCFunction) Transfer_consumed, METH_NOARGS,
	 "A peer's write used it up; see `SubmissionQueue.consumed`."},
	{NULL},
};

static PyType_Slot Transfer_slots[] = {
	{Py_tp_doc, "An operation of a submission queue: its completion gives the slot back and finishes it."},
	{Py_tp_traverse, operation_traverse},
	{Py_tp_clear, operation_clear},
	{Py_tp_dealloc, operation_dealloc},
	{Py_tp_methods, Transfer_methods},
	{0, NULL},
};

static PyType_Spec Transfer_spec = {
	"aiofabric._core.Transfer", sizeof(Operation), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, Transfer_slots,
};

static int complete(PyObject *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	return transfer_complete((Operation *) self, entry, from);
}

int add_transfer(PyObject *module)
{
	static const struct name names[] = {
		{&name_consumed, "consumed"}, {&name_failed, "failed"}, {&name_retire, "retire"}, {&name_finish, "finish"}, {NULL},
	};

	if (intern(names) || add_type(module, &Transfer_spec, (PyObject *) Operation_Type, &Transfer_Type))
		return -1;
	upcalls.transfer = (struct completed) {Transfer_Type, complete};
	return 0;
}
