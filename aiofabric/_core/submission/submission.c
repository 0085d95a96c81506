/*
 * SubmissionCore: posting operations, and sending small messages. cq/submission.py and transport/route.py have the
 * rest.
 */
#include "submission/submission.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "base/upcalls.h"
#include "operations/operation.h"
#include "operations/registry.h"
#include "operations/slots.h"
#include "progress/arming.h"
#include "progress/interest.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

PyTypeObject *SubmissionCore_Type;

static PyObject *name_call_failed, *name_retire, *name_wake_waiters, *name_try;

/* -- batches */

/*
 * Schedule a pass, while the caller must not be interrupted: Ctrl-C is raised again at the next bytecode. -1: another
 * exception, for example because the loop is closed.
 */
static int schedule_uninterrupted(SourceCore *source)
{
	if (!source_schedule(source))
		return 0;
	if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return -1;
	PyErr_Clear();
	PyErr_SetInterrupt();
	return 0;
}

/* Outside of a pass, a pass must be scheduled: it ends the batch at the latest. */
static int batch_will_end(SourceCore *source)
{
	if (source->batch.in_pass || !schedule_uninterrupted(source))
		return 1;
	PyErr_Clear(); /* the loop is closed: the message can still be sent */
	return 0;
}

void submission_joins_batch(SubmissionCore *self)
{
	struct batch *batch = &self->source->batch;

	if (batch_includes(batch, &self->socket) && !self->socket.owner && !source_hurries(self->source) &&
	    batch_will_end(self->source))
		batch_cork(batch, &self->socket, (PyObject *) self);
}

static PyObject *SubmissionCore_keep_socket(SubmissionCore *self, PyObject *number)
{
	long descriptor = PyLong_AsLong(number);

	if (PyErr_Occurred())
		return NULL;
	if (self->socket.owner)
		batch_end(&self->source->batch);
	self->socket.descriptor = (int) descriptor;
	Py_RETURN_NONE;
}

/* -- posting */

/* Its completion was read, or the provider refused it. */
static void unregister(SubmissionCore *self, Operation *transfer)
{
	SourceCore *source = self->source;

	registry_forget(source->operations, pointer_of(transfer->slot->address));
	if (PyDict_DelItem(self->posted, (PyObject *) transfer))
		PyErr_Clear(); /* no key: `hand_over` or `end` has removed it */
	interest_end(&source->interest);
}

int submission_completed(SubmissionCore *self, Operation *transfer)
{
	SourceCore *source = self->source;

	struct first_exception first = NO_EXCEPTION;

	unregister(self, transfer);
	if (transfer->state == ABANDONED)
		interest_end_abandoned(&source->interest);
	if (slots_release(source->slots, (PyObject *) transfer->slot))
		exception_keep(&first, self);
	if (PyList_Size(self->idle) && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_wake_waiters, NULL)))
		exception_keep(&first, self);
	return exception_raise(&first);
}

/* Give up an operation that was not posted, and will not be. */
int submission_discard(SubmissionCore *self, Operation *transfer)
{
	struct first_exception first = NO_EXCEPTION;

	if (PyErr_Occurred())
		exception_keep(&first, self);
	if (slots_release(self->source->slots, (PyObject *) transfer->slot))
		exception_keep(&first, self);
	REPLACE(transfer->pins, new_ref(Py_None));
	if (operation_release_registrations(transfer))
		exception_keep(&first, self);
	return exception_raise(&first);
}

int submission_register(SubmissionCore *self, Operation *transfer)
{
	SourceCore *source = self->source;
	struct first_exception first = NO_EXCEPTION;

	if (registry_enter(source->operations, pointer_of(transfer->slot->address), (PyObject *) transfer))
		return -1;
	interest_begin(&source->interest);
	if (!PyDict_SetItem(self->posted, (PyObject *) transfer, Py_None))
		return 0;
	exception_keep(&first, self);
	unregister(self, transfer);
	return exception_raise(&first);
}

/* rxm handles at most 32 messages in each read. The completions stay in the queue: nothing is dispatched here. */
void submission_read_first(SubmissionCore *self)
{
	NativeQueue *native = self->source->native;
	int i;

	for (i = 0; native && i < READS; i++)
		fi_cq_read(native->cq, NULL, 0);
}

int submission_accepted(SubmissionCore *self, Operation *transfer)
{
	return operation_move(transfer, POSTED) ? -1 : schedule_uninterrupted(self->source);
}

int submission_refused(SubmissionCore *self, Operation *transfer)
{
	struct first_exception first = NO_EXCEPTION;

	if (PyErr_Occurred()) /* `unregister` clears its own */
		exception_keep(&first, self);
	unregister(self, transfer);
	exception_raise(&first);
	return submission_discard(self, transfer);
}

int submission_try_post(SubmissionCore *self, Operation *transfer)
{
	PyObject *returned;
	long long rc;

	if (!PyTuple_Check(transfer->post) || PyTuple_Size(transfer->post) != 2) {
		raise_expected("a tuple of a function and its arguments", transfer->post);
		return -1;
	}
	if (submission_register(self, transfer))
		return submission_discard(self, transfer);
	submission_begin_call(self);
	returned = PyObject_Call(PyTuple_GetItem(transfer->post, 0), PyTuple_GetItem(transfer->post, 1), NULL);
	rc = returned ? PyLong_AsLongLong(returned) : 0;
	Py_XDECREF(returned);
	if (PyErr_Occurred()) /* an argument that is no C number */
		return submission_refused(self, transfer);
	if (rc == 0) {
		submission_is_connected(self);
		return submission_accepted(self, transfer) ? -1 : 1;
	}
	unregister(self, transfer);
	if (self->reads_first)
		self->reads_first = READS_NEXT;
	if (rc == -FI_EAGAIN || (rc == -FI_ENOMEM && self->receives)) { /* 1.17's shm: its queue of receives is full */
		self->refused = 1;
		return 0;
	}
	if (!submission_discard(self, transfer)) {
		PyObject *code = PyLong_FromLongLong(rc);

		if (code)
			drop(PyObject_CallMethodObjArgs((PyObject *) self, name_call_failed, code, transfer->what, NULL));
		Py_XDECREF(code);
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_SystemError, "expected an exception from _call_failed(), got none");
	}
	return -1;
}

static PyObject *SubmissionCore_try(SubmissionCore *self, PyObject *transfer)
{
	int posted;

	if (!PyObject_TypeCheck(transfer, Operation_Type)) {
		raise_expected("an Operation", transfer);
		return NULL;
	}
	posted = submission_try_post(self, (Operation *) transfer);
	return posted < 0 ? NULL : PyBool_FromLong(posted);
}

static PyObject *SubmissionCore_retire(SubmissionCore *self, PyObject *transfer)
{
	if (!PyObject_TypeCheck(transfer, Operation_Type)) {
		raise_expected("an Operation", transfer);
		return NULL;
	}
	if (submission_completed(self, (Operation *) transfer))
		return NULL;
	Py_RETURN_NONE;
}

/* Whether the subclass does not override this method. */
static int is_plain(SubmissionCore *self, PyObject *name)
{
	PyObject *ours = PyObject_GetAttr((PyObject *) SubmissionCore_Type, name);
	PyObject *theirs = PyObject_GetAttr((PyObject *) type_of(self), name);

	Py_XDECREF(ours);
	Py_XDECREF(theirs);
	return ours && ours == theirs; /* compared, not used */
}

static int SubmissionCore_init(SubmissionCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *source, *owner, *waiting;
	int receives;

	if (refuse_second_init(self->source))
		return -1;
	if (!PyArg_ParseTuple(args, "O!OOLp", SourceCore_Type, &source, &owner, &waiting, &self->limit, &receives))
		return -1;
	self->receives = receives;
	self->socket.descriptor = -1;
	self->plain_retire = is_plain(self, name_retire);
	self->plain_try = is_plain(self, name_try);
	REPLACE(self->source, (SourceCore *) new_ref(source));
	REPLACE(self->owner, new_ref(owner));
	REPLACE(self->waiting, new_ref(waiting));
	REPLACE(self->posted, PyDict_New());
	REPLACE(self->idle, PyList_New(0));
	return self->posted && self->idle ? 0 : -1;
}

static int SubmissionCore_traverse(SubmissionCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->source);
	Py_VISIT(self->owner);
	Py_VISIT(self->waiting);
	Py_VISIT(self->posted);
	Py_VISIT(self->idle);
	return 0;
}

static int SubmissionCore_clear(SubmissionCore *self)
{
	REPLACE(self->owner, new_ref(Py_None));
	return 0;
}

static void SubmissionCore_dealloc(SubmissionCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->source);
	Py_CLEAR(self->owner);
	Py_CLEAR(self->waiting);
	Py_CLEAR(self->posted);
	Py_CLEAR(self->idle);
	Py_CLEAR(self->thread_check);
	free_object(self);
}

static PyObject *SubmissionCore_send_here(SubmissionCore *self, PyObject *args)
{
	PyObject *ep, *thread_check;
	long long pieces;
	int direct;

	if (!PyArg_ParseTuple(args, "OO!KLpKLL", &ep, ThreadCheck_Type, &thread_check, &self->peer, &self->inject_size, &direct,
			      &self->max_size, &pieces, &self->copies))
		return NULL;
	self->pieces = pieces < PIECES ? pieces : PIECES;
	if (!direct || !self->plain_try)
		self->pieces = 0;
	self->ep = pointer_of(ep);
	REPLACE(self->thread_check, (ThreadCheck *) new_ref(thread_check));
	if (PyErr_Occurred())
		return NULL;
	self->direct = direct;
	Py_RETURN_NONE;
}

static PyMethodDef SubmissionCore_methods[] = {
	{"retire", (PyCFunction) SubmissionCore_retire, METH_O, "Its completion was read: the slot may be used again."},
	{"keep_socket", (PyCFunction) SubmissionCore_keep_socket, METH_O,
	 "The descriptor of the kernel's TCP socket beneath: messages of one batch leave together. -1: no socket\n"
	 "any more."},
	{"_try", (PyCFunction) SubmissionCore_try, METH_O, "Register, then post. False: the provider has no room now."},
	{"_send_here", (PyCFunction) SubmissionCore_send_here, METH_VARARGS,
	 "The endpoint by address, its thread check, the peer's fi_addr, bytes that may be injected, whether C\n"
	 "injects, bytes of the longest message, most buffers of a message, and bytes of a message that is copied\n"
	 "instead of being waited for."},
	{NULL},
};

static PyObject *SubmissionCore_get_posted(SubmissionCore *self, void *unused)
{
	return new_ref(self->posted);
}

static int SubmissionCore_set_posted(SubmissionCore *self, PyObject *posted, void *unused)
{
	if (!posted || !PyDict_Check(posted)) {
		raise_expected("a dict of the posted operations", posted);
		return -1;
	}
	REPLACE(self->posted, new_ref(posted));
	return 0;
}

static PyGetSetDef SubmissionCore_getset[] = {
	{"posted", (getter) SubmissionCore_get_posted, (setter) SubmissionCore_set_posted,
	 "operations that the provider has; a dict as a set"},
	OBJECT_FIELD("waiting", SubmissionCore, waiting, "queued operations"),
	{NULL},
};

static PyMemberDef SubmissionCore_members[] = {
	{"source", T_OBJECT_EX, offsetof(SubmissionCore, source), READONLY},
	{"owner", T_OBJECT_EX, offsetof(SubmissionCore, owner), READONLY, "the endpoint's handle"},
	{"idle", T_OBJECT_EX, offsetof(SubmissionCore, idle), READONLY,
	 "waiters for an empty queue: nothing posted or queued"},
	{"completed", T_ULONGLONG, offsetof(SubmissionCore, completed), READONLY,
	 "operations that have completed so far, without those that have failed"},
	{"limit", T_LONGLONG, offsetof(SubmissionCore, limit), 0, "most operations posted at once"},
	{"receives", T_BOOL, offsetof(SubmissionCore, receives), READONLY, "whether the provider reports the length"},
	{"reads_first", T_BOOL, offsetof(SubmissionCore, reads_first), 0,
	 "whether the provider may have to handle what has arrived before a call that connects"},
	{"refused", T_BOOL, offsetof(SubmissionCore, refused), 0,
	 "the provider returned -FI_EAGAIN for the oldest queued operation"},
	{"peer", T_ULONGLONG, offsetof(SubmissionCore, peer), READONLY, "the peer's fi_addr"},
	{"inject_size", T_LONGLONG, offsetof(SubmissionCore, inject_size), 0, "bytes; -1 where nothing may be injected"},
	{"max_size", T_ULONGLONG, offsetof(SubmissionCore, max_size), 0, "bytes of the longest message"},
	{"socket", T_INT, offsetof(SubmissionCore, socket.descriptor), READONLY,
	 "the descriptor of the kernel's TCP socket beneath, or -1"},
	{"unfenced", T_LONGLONG, offsetof(SubmissionCore, unfenced), 0, "messages injected since the last fence"},
	{NULL},
};

static PyType_Slot SubmissionCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.cq.submission.SubmissionQueue`."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, SubmissionCore_init},
	{Py_tp_dealloc, SubmissionCore_dealloc},
	{Py_tp_traverse, SubmissionCore_traverse},
	{Py_tp_clear, SubmissionCore_clear},
	{Py_tp_methods, SubmissionCore_methods},
	{Py_tp_getset, SubmissionCore_getset},
	{Py_tp_members, SubmissionCore_members},
	{0, NULL},
};

static PyType_Spec SubmissionCore_spec = {
	"aiofabric._core.SubmissionCore", sizeof(SubmissionCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, SubmissionCore_slots,
};

static int wake(PyObject *owner, PyObject *waiter)
{
	SourceCore *source = PyObject_TypeCheck(owner, SubmissionCore_Type) ? ((SubmissionCore *) owner)->source : NULL;

	return source_wake(source, waiter, Py_None) < 0 ? -1 : 0;
}

int add_submission(PyObject *module)
{
	static const struct name names[] = {
		{&name_call_failed, "_call_failed"}, {&name_retire, "retire"}, {&name_wake_waiters, "_wake_waiters"},
		{&name_try, "_try"}, {NULL},
	};

	if (intern(names))
		return -1;
	upcalls.wake = wake;
	return add_type(module, &SubmissionCore_spec, NULL, &SubmissionCore_Type);
}
