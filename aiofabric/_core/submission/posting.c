/* Posting: an operation is made, registered and handed to the provider, or queued behind those that wait. */
#include "submission/posting.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "operations/operation.h"
#include "operations/slots.h"
#include "progress/arming.h"
#include "progress/iteration.h"
#include "submission/submission.h"
#include "submission/transfer.h"

static PyObject *name_context, *name_wait_for_credits, *name_try;

/* Give the slot back because no operation was made; the exception stays set. */
static void return_slot(SubmissionCore *self, Slot *slot)
{
	struct first_exception first = NO_EXCEPTION;

	exception_keep(&first, self);
	if (slots_release(self->source->slots, (PyObject *) slot))
		exception_keep(&first, self);
	exception_raise(&first);
}

Operation *submission_prepare(SubmissionCore *self, PyObject *what, PyObject *pins, Py_ssize_t size)
{
	PyObject *registrations = PyTuple_New(0);
	Slot *slot = registrations ? slots_acquire(self->source->slots) : NULL;
	Operation *transfer = slot ? transfer_new(what, (PyObject *) self, (PyObject *) slot, pins, registrations, size) : NULL;

	if (transfer && submission_register(self, transfer)) {
		Py_DECREF((PyObject *) transfer);
		transfer = NULL;
	}
	if (!transfer && slot)
		return_slot(self, slot);
	Py_XDECREF(registrations);
	Py_XDECREF((PyObject *) slot);
	return transfer;
}

PyObject *submission_call_returned(SubmissionCore *self, Operation *transfer, ssize_t rc)
{
	if (!(rc ? submission_refused(self, transfer) : submission_accepted(self, transfer))) {
		if (!rc)
			return (PyObject *) transfer;
		Py_DECREF((PyObject *) transfer);
		Py_RETURN_NONE; /* the Python method then queues the operation, or raises */
	}
	Py_DECREF((PyObject *) transfer);
	return NULL;
}

/* The arguments of the call, followed by the context. */
static PyObject *with_context(PyObject *args, Slot *slot)
{
	Py_ssize_t count = PyTuple_Size(args), i;
	PyObject *all = PyTuple_New(count + 1);

	if (!all)
		return NULL;
	for (i = 0; i < count; i++)
		PyTuple_SetItem(all, i, new_ref(PyTuple_GetItem(args, i)));
	PyTuple_SetItem(all, count, new_ref(slot->pointer));
	return all;
}

/* Function and arguments for `submission_try_post`. A structure such as fi_msg has the context itself. */
static PyObject *call_with_context(PyObject *function, PyObject *args, PyObject *message, Slot *slot)
{
	PyObject *all, *post;

	if (message == Py_None)
		all = with_context(args, slot);
	else
		all = PyObject_SetAttr(message, name_context, slot->pointer) ? NULL : new_ref(args);
	post = all ? PyTuple_Pack(2, function, all) : NULL;
	Py_XDECREF(all);
	return post;
}

static PyObject *SubmissionCore_submit(SubmissionCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"what", "function", "args", "pins", "length", "registrations", "kind", "slot", "message", NULL};
	PyObject *what, *function, *arguments, *pins, *registrations = NULL, *kind = Py_None, *given = Py_None, *message = Py_None;
	PyObject *post;
	Operation *transfer;
	long long length;
	int posted = 0;
	Slot *slot;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!OL|O$OOO", names, &what, &function, &PyTuple_Type, &arguments,
					 &pins, &length, &registrations, &kind, &given, &message))
		return NULL;
	if (given != Py_None && !PyObject_TypeCheck(given, Slot_Type)) {
		raise_expected("a Slot or None for slot=", given);
		return NULL;
	}
	slot = given == Py_None ? slots_acquire(self->source->slots) : (Slot *) new_ref(given);
	registrations = registrations ? new_ref(registrations) : PyTuple_New(0);
	if (!slot || !registrations)
		transfer = NULL;
	else if (kind == Py_None)
		transfer = transfer_new(what, (PyObject *) self, (PyObject *) slot, pins, registrations, length);
	else
		transfer = (Operation *) PyObject_CallFunction(kind, "OOOOLO", what, self, slot, pins, length, registrations);
	if (transfer && !PyObject_TypeCheck((PyObject *) transfer, Operation_Type)) {
		raise_expected("a class of operations for kind=, such as Transfer, which makes an Operation", (PyObject *) transfer);
		Py_DECREF((PyObject *) transfer);
		transfer = NULL;
	}
	post = transfer ? call_with_context(function, arguments, message, slot) : NULL;
	Py_XDECREF(registrations);
	if (!post) {
		if (slot && given == Py_None)
			return_slot(self, slot);
		Py_XDECREF((PyObject *) slot);
		Py_XDECREF((PyObject *) transfer);
		return NULL;
	}
	Py_DECREF((PyObject *) slot);
	REPLACE(transfer->post, post);
	if (!PyObject_Size(self->waiting) && PyDict_Size(self->posted) < self->limit) {
		if (self->plain_try)
			posted = submission_try_post(self, transfer);
		else
			posted = truth_of(PyObject_CallMethodObjArgs((PyObject *) self, name_try, transfer, NULL));
	}
	if (!posted)
		posted = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_wait_for_credits, transfer, NULL));
	if (posted < 0) {
		Py_DECREF((PyObject *) transfer);
		return NULL;
	}
	return (PyObject *) transfer;
}

/*
 * The finished operation if its completion is there, or comes during a poll, and the loop need not iterate first;
 * else None.
 */
PyObject *SubmissionCore_finished(SubmissionCore *self, PyObject *object)
{
	Operation *transfer = (Operation *) object;

	if (!PyObject_TypeCheck(object, Operation_Type)) {
		raise_expected("an Operation", object);
		return NULL;
	}
	if (transfer->state == POSTED && source_poll(self->source))
		return NULL;
	if (transfer->state != FINISHED || !iteration_allows_return(&self->source->iteration))
		Py_RETURN_NONE;
	return operation_result(transfer);
}

static PyMethodDef methods[] = {
	{"submit", (PyCFunction) (void (*)(void)) SubmissionCore_submit, METH_VARARGS | METH_KEYWORDS,
	 "submit(what, function, args, pins, length, registrations=(), *, kind=None, slot=None, message=None)\n\n"
	 "Post function(*args, context) now, or queue it behind the operations that wait already. The function\n"
	 "must be libfabric's: after it has accepted an operation, a function in Python could still raise\n"
	 "KeyboardInterrupt.\n\n"
	 "Args:\n"
	 "    kind: the class of the operation; `Transfer` by default.\n"
	 "    slot: a slot that the caller kept, instead of a new one.\n"
	 "    message: a structure among the arguments whose field `context` is set, instead of the argument.\n\n"
	 "Raises:\n"
	 "    FabricError: the provider refused the call, or the submission queue is closed. Nothing was\n"
	 "        posted, and nothing stays pinned or registered."},
	{"finished", (PyCFunction) SubmissionCore_finished, METH_O,
	 "The result of `outcome` if it is there, or comes during a poll; None: use `outcome`. Raises the\n"
	 "operation's error."},
	{NULL},
};

int add_posting(PyObject *module)
{
	static const struct name names[] = {
		{&name_context, "context"}, {&name_wait_for_credits, "_wait_for_credits"}, {&name_try, "_try"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(SubmissionCore_Type, methods);
}
