/*
 * PendingResult: the awaitable of an operation that is not finished yet. cq/submission.py handles an interrupted
 * caller. When this, and the rest of a receive into the caller's memory, were coroutines of Python, they took 24,000
 * instructions for each message of 64 KiB.
 */
#include "submission/pending_result.h"
#include "base/awaitable.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "operations/operation.h"
#include "progress/arming.h"
#include "progress/interest.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "submission/submission.h"

static PyTypeObject *PendingResult_Type;

static PyObject *name_yield_to_loop, *name_close, *name_leave, *name_left_behind;

enum { CREATED, WAITING, LEAVING, OVER };

typedef struct {
	PyObject_HEAD
	SubmissionCore *submission;
	Operation *transfer;
	PyObject *steps;	/* steps of the inner awaitable */
	PyObject *reason;	/* LEAVING: the exception that interrupted the caller */
	char phase;
	char counted;		/* counted in the source's `interest` */
	char received;		/* the result is only whether the wanted message came */
} PendingResult;

static PyObject *pending_result_new(SubmissionCore *submission, Operation *transfer, int received)
{
	allocfunc alloc = PyType_GetSlot(PendingResult_Type, Py_tp_alloc);
	PendingResult *self = (PendingResult *) alloc(PendingResult_Type, 0);

	if (!self)
		return NULL;
	self->submission = (SubmissionCore *) new_ref(submission);
	self->transfer = (Operation *) new_ref(transfer);
	self->received = received;
	return (PyObject *) self;
}

static int stop_waiting(PendingResult *self, char phase)
{
	int waited = self->phase == WAITING || (self->phase == CREATED && self->received); /* Ctrl-C before the await */

	self->phase = phase;
	if (self->counted)
		interest_end(&self->submission->source->interest);
	self->counted = 0;
	Py_CLEAR(self->steps);
	return waited;
}

static PySendResult result_of(PendingResult *self, PyObject **result)
{
	stop_waiting(self, OVER);
	if (self->transfer->state != FINISHED && self->transfer->error == Py_None)
		PyErr_SetString(PyExc_RuntimeError, "expected a finished operation, got one that has no result yet");
	else if (self->received)
		*result = PyBool_FromLong(operation_is_received(self->transfer));
	else
		*result = operation_result(self->transfer);
	return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* No task waits any more, and nothing can be awaited: abandon the operation without a native call. */
static int leave_behind(PendingResult *self)
{
	if (!stop_waiting(self, OVER))
		return 0;
	return drop(PyObject_CallMethodObjArgs((PyObject *) self->submission, name_left_behind, self->transfer, NULL));
}

/* Leaving is complete: raise the exception that interrupted the caller, unless another one is set. */
static void left(PendingResult *self)
{
	PyObject *reason = self->reason;

	stop_waiting(self, OVER);
	self->reason = NULL;
	if (!PyErr_Occurred())
		PyErr_SetObject((PyObject *) type_of(reason), reason);
	Py_DECREF(reason);
}

static PySendResult leave(PendingResult *self, PyObject *value, PyObject **result)
{
	PySendResult how = PyIter_Send(self->steps, value, result);

	if (how == PYGEN_NEXT)
		return how;
	Py_CLEAR(*result);
	left(self);
	return PYGEN_ERROR;
}

/* An exception interrupts the caller: cancel the operation if that is possible, then raise the exception. */
static PySendResult interrupted(PendingResult *self, PyObject **result)
{
	PyObject *type, *reason, *traceback;

	*result = NULL;
	if (self->phase != WAITING)
		return PYGEN_ERROR;
	PyErr_Fetch(&type, &reason, &traceback);
	PyErr_NormalizeException(&type, &reason, &traceback);
	if (traceback)
		PyException_SetTraceback(reason, traceback);
	Py_XDECREF(traceback);
	if (PyErr_GivenExceptionMatches(type, PyExc_GeneratorExit)) { /* the collector found a task that never ended */
		Py_DECREF(type);
		if (leave_behind(self))
			PyErr_WriteUnraisable((PyObject *) self->submission);
		PyErr_SetObject((PyObject *) type_of(reason), reason);
		Py_DECREF(reason);
		return PYGEN_ERROR;
	}
	Py_DECREF(type);
	stop_waiting(self, LEAVING);
	self->reason = reason;
	self->steps = PyObject_CallMethodObjArgs((PyObject *) self->submission, name_leave, self->transfer, NULL);
	if (!self->steps) {
		self->phase = OVER;
		Py_CLEAR(self->reason);
		return PYGEN_ERROR;
	}
	return leave(self, Py_None, result);
}

/* 0: it waits now; -1: an exception. */
static int wait(PendingResult *self)
{
	SourceCore *source = self->submission->source;
	PyObject *waiter = source_waiter(source);

	if (!waiter)
		return -1;
	REPLACE(self->transfer->notify, new_ref(waiter));
	interest_begin(&source->interest);
	self->counted = 1;
	self->phase = WAITING;
	if (!source_prepare_wait(source))
		self->steps = awaitable_of(waiter);
	Py_DECREF(waiter);
	return self->steps ? 0 : -1;
}

/* 1: it must wait, or let the loop iterate; 0: the result is there; -1: an exception. */
static int begin(PendingResult *self)
{
	SourceCore *source = self->submission->source;
	Operation *transfer = self->transfer;

	if (self->phase == OVER) {
		PyErr_SetString(PyExc_RuntimeError, "expected an outcome that was not awaited yet, got one that was");
		return -1;
	}
	if (!self->received && transfer->state == POSTED && source_poll(source))
		return -1;
	if (transfer->state == POSTED || transfer->state == QUEUED)
		return wait(self) ? -1 : 1;
	if (!iteration_must_yield(&source->iteration))
		return 0;
	self->phase = WAITING;
	self->steps = PyObject_CallMethodObjArgs((PyObject *) source, name_yield_to_loop, NULL);
	return self->steps ? 1 : -1;
}

static PySendResult PendingResult_step(PendingResult *self, PyObject *value, PyObject **result)
{
	PySendResult how;
	int begun;

	*result = NULL;
	if (self->phase == LEAVING)
		return leave(self, value, result);
	if (self->phase != WAITING) {
		begun = begin(self);
		if (begun <= 0)
			return begun ? interrupted(self, result) : result_of(self, result);
	}
	how = PyIter_Send(self->steps, value, result);
	if (how == PYGEN_NEXT)
		return how;
	if (how == PYGEN_ERROR)
		return interrupted(self, result);
	Py_CLEAR(*result);
	return result_of(self, result);
}

/*
 * Throw the exception into the inner awaitable. A waiter raises every exception again. A cancel scope of anyio catches
 * its own cancellation, and then the inner awaitable ends.
 */
static PyObject *PendingResult_throw(PendingResult *self, PyObject *args)
{
	PyObject *steps = self->steps ? new_ref(self->steps) : NULL, *result;
	int leaving = self->phase == LEAVING;
	PySendResult how;

	if (!steps)
		return awaitable_raise(args);
	result = awaitable_throw(steps, args);
	Py_DECREF(steps);
	if (result)
		return result;
	if (!leaving) {
		how = interrupted(self, &result);
		return awaitable_value(how, result);
	}
	if (PyErr_ExceptionMatches(PyExc_StopIteration))
		PyErr_Clear();
	left(self);
	return NULL;
}

static PyObject *PendingResult_close(PendingResult *self, PyObject *unused)
{
	PyObject *steps = self->phase == LEAVING && self->steps ? new_ref(self->steps) : NULL;
	int rc = steps ? drop(PyObject_CallMethodObjArgs(steps, name_close, NULL)) : 0;

	Py_XDECREF(steps);
	if (leave_behind(self) || rc)
		return NULL;
	Py_RETURN_NONE;
}

static int PendingResult_traverse(PendingResult *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->submission);
	Py_VISIT(self->transfer);
	Py_VISIT(self->steps);
	Py_VISIT(self->reason);
	return 0;
}

static void PendingResult_dealloc(PendingResult *self)
{
	PyObject *type, *error, *traceback;

	PyObject_GC_UnTrack(self);
	PyErr_Fetch(&type, &error, &traceback);
	if (leave_behind(self)) /* a task that never ended */
		PyErr_WriteUnraisable((PyObject *) self->submission);
	PyErr_Restore(type, error, traceback);
	Py_CLEAR(self->submission);
	Py_CLEAR(self->transfer);
	Py_CLEAR(self->steps);
	Py_CLEAR(self->reason);
	free_object(self);
}

PyObject *SubmissionCore_outcome(SubmissionCore *self, PyObject *transfer)
{
	if (PyObject_TypeCheck(transfer, Operation_Type))
		return pending_result_new(self, (Operation *) transfer, 0);
	raise_expected("an Operation", transfer);
	return NULL;
}

static PyObject *SubmissionCore_arrives(SubmissionCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count == 2 && PyObject_TypeCheck(args[0], Operation_Type)) {
		REPLACE(((Operation *) args[0])->orphaned, new_ref(args[1]));
		return pending_result_new(self, (Operation *) args[0], 1);
	}
	raise_arguments("arrives(Operation, orphaned)", count);
	return NULL;
}

static PyMethodDef PendingResult_methods[] = {
	{"send", awaitable_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) PendingResult_throw, METH_VARARGS,
	 "As of a generator: cancels the operation at the provider first."},
	{"close", (PyCFunction) PendingResult_close, METH_NOARGS, "As of a generator: the operation is abandoned."},
	{NULL},
};

static PyType_Slot PendingResult_slots[] = {
	{Py_tp_doc, "The outcome of an operation: to be awaited once."},
	{Py_tp_dealloc, PendingResult_dealloc},
	{Py_tp_traverse, PendingResult_traverse},
	{Py_tp_iter, awaitable_self},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, awaitable_self},
	{Py_am_send, PendingResult_step},
	{Py_tp_methods, PendingResult_methods},
	{0, NULL},
};

static PyType_Spec PendingResult_spec = {
	"aiofabric._core.PendingResult", sizeof(PendingResult), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, PendingResult_slots,
};

static PyMethodDef methods[] = {
	{"outcome", (PyCFunction) SubmissionCore_outcome, METH_O,
	 "Awaited: the operation, once it is finished; or raises its error. Cancelling asks the provider and\n"
	 "waits a little."},
	{"arrives", (PyCFunction) (void (*)(void)) SubmissionCore_arrives, METH_FASTCALL,
	 "arrives(transfer, orphaned): to be awaited if `received` returned False. Returns whether the message\n"
	 "arrived as wanted; if not, use `outcome`. `orphaned` is called with a message that came although the\n"
	 "caller was cancelled."},
	{NULL},
};

int add_pending_result(PyObject *module)
{
	static const struct name names[] = {
		{&name_yield_to_loop, "yield_to_loop"}, {&name_close, "close"}, {&name_leave, "_leave"},
		{&name_left_behind, "_left_behind"}, {NULL},
	};

	if (intern(names) || add_methods(SubmissionCore_Type, methods))
		return -1;
	return add_type(module, &PendingResult_spec, NULL, &PendingResult_Type);
}
