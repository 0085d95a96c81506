/*
 * SourceCore: the part of a source that each wait passes through. arming.c has the bounded poll, completions.c reads
 * the queue, progress.c is called by the event loop. Rare events are handled in Python: by
 * cq/source/source.py, whose class inherits from this one, and by its parts (cq/source/unmatched.py,
 * cq/source/delays.py).
 */
#include "progress/source.h"
#include "base/clock.h"
#include "base/fifo.h"
#include "base/lateness.h"
#include "base/names.h"
#include "base/references.h"
#include "operations/registry.h"
#include "operations/slots.h"
#include "progress/interest.h"
#include "progress/iteration.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"

PyTypeObject *SourceCore_Type;

static PyObject *name_create_waiter, *name_done, *name_set_result;

int source_is_moving(SourceCore *self)
{
	return self->native && self->native->moving && !self->polls;
}

PyObject *source_waiter(SourceCore *self)
{
	if (self->waker)
		return waiter_new(self->waker);
	return PyObject_CallMethodObjArgs(self->driver, name_create_waiter, NULL);
}

int source_wake_waiter(SourceCore *self, Waiter *waiter, PyObject *result)
{
	int waited = waiter_set_result(waiter, result);

	if (waited > 0 && self)
		iteration_wake(&self->iteration);
	return waited;
}

int source_wake(SourceCore *self, PyObject *waiter, PyObject *result)
{
	int waited;

	if (Py_IS_TYPE(waiter, Waiter_Type))
		return source_wake_waiter(self, (Waiter *) waiter, result);
	waited = truth_of(PyObject_CallMethodObjArgs(waiter, name_done, NULL));
	if (waited >= 0)
		waited = waited ? 0 : drop(PyObject_CallMethodObjArgs(waiter, name_set_result, result, NULL)) ? -1 : 1;
	if (waited > 0 && self)
		iteration_wake(&self->iteration);
	return waited;
}

/* -- the methods */

static PyObject *SourceCore_woke(SourceCore *self, PyObject *unused)
{
	iteration_wake(&self->iteration);
	Py_RETURN_NONE;
}

static PyObject *SourceCore_get_must_yield(SourceCore *self, void *unused)
{
	return PyBool_FromLong(iteration_must_yield(&self->iteration));
}

/* -- the type */

static int SourceCore_init(SourceCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"driver", "queue", "readers", "queued", "polling", "slots", "polls", "busy_polls", NULL};
	PyObject *driver, *queue, *readers, *queued, *polling, *slots, *native, *demand, *call_soon, *checkpoint, *waker;
	int polls, busy_polls;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO!O!pp", names, &driver, &queue, &readers, &queued,
					 Polling_Type, &polling, SlotsCore_Type, &slots, &polls, &busy_polls))
		return -1;
	if (refuse_second_init(self->operations))
		return -1;
	demand = PyObject_GetAttrString(driver, "demand");
	call_soon = PyObject_GetAttrString(driver, "call_soon");
	checkpoint = PyObject_GetAttrString(driver, "checkpoint_if_cancelled");
	native = queue == Py_None ? new_ref(Py_None) : PyObject_GetAttrString(queue, "native_queue");
	waker = (PyObject *) waker_of(driver);
	if (!demand || !call_soon || !checkpoint || !native || !waker) {
		Py_XDECREF(waker);
		Py_XDECREF(demand);
		Py_XDECREF(call_soon);
		Py_XDECREF(checkpoint);
		Py_XDECREF(native);
		return -1;
	}
	self->driver = new_ref(driver);
	self->queue = new_ref(queue);
	self->readers = new_ref(readers);
	self->queued = new_ref(queued);
	self->polling = (Polling *) new_ref(polling);
	self->slots = (SlotsCore *) new_ref(slots);
	self->call_soon = call_soon;
	if (waker != Py_None)
		self->waker = (Waker *) new_ref(waker);
	if (PyObject_TypeCheck(native, NativeQueue_Type))
		self->native = (NativeQueue *) new_ref(native);
	self->polls = polls;
	self->busy_polls = busy_polls;
	self->arming.sleeps_when_quiet = !polls && demand == Py_None;
	self->checkpoints = checkpoint != Py_None;
	self->arming.recheck = 1;
	self->batch.number = 1; /* no submission queue has sent in it */
	iteration_begin(&self->iteration);
	Py_DECREF(waker);
	Py_DECREF(demand);
	Py_DECREF(checkpoint);
	Py_DECREF(native);
	self->operations = (Registry *) PyObject_CallNoArgs((PyObject *) Registry_Type);
	self->sinks = (Fifo *) PyObject_CallNoArgs((PyObject *) Fifo_Type);
	self->polled = PyDict_New();
	self->unmatched = new_ref(Py_None);
	self->delays = new_ref(Py_None);
	self->attached_queues = PyList_New(0);
	return self->operations && self->sinks && self->polled && self->attached_queues ? 0 : -1;
}

static int SourceCore_traverse(SourceCore *self, visitproc visit, void *arg)
{
	struct tcp_socket *socket;

	Py_VISIT(type_of(self));
	Py_VISIT(self->driver);
	Py_VISIT(self->queue);
	Py_VISIT(self->readers);
	Py_VISIT(self->operations);
	Py_VISIT(self->queued);
	Py_VISIT(self->attached_queues);
	Py_VISIT(self->polled);
	Py_VISIT(self->unmatched);
	Py_VISIT(self->delays);
	Py_VISIT(self->polling);
	Py_VISIT(self->native);
	Py_VISIT(self->unread);
	Py_VISIT(self->sinks);
	Py_VISIT(self->call_soon);
	Py_VISIT(self->waker);
	Py_VISIT(self->slots);
	for (socket = self->batch.corked; socket; socket = socket->next)
		Py_VISIT(socket->owner);
	return 0;
}

/* Fields that the methods need are replaced, not cleared: a source may be called after the collector cleared it. */
static int SourceCore_clear(SourceCore *self)
{
	self->closed = 1;
	Py_CLEAR(self->unread);
	batch_end(&self->batch);
	if (self->operations) {
		registry_clear(self->operations);
		PyDict_Clear(self->polled);
		PyList_SetSlice(self->attached_queues, 0, PyList_Size(self->attached_queues), NULL);
	}
	REPLACE(self->unmatched, new_ref(Py_None));
	REPLACE(self->delays, new_ref(Py_None));
	REPLACE(self->readers, new_ref(Py_None));
	REPLACE(self->call_soon, new_ref(Py_None));
	REPLACE(self->driver, new_ref(Py_None));
	return 0;
}

static void SourceCore_dealloc(SourceCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->driver);
	Py_CLEAR(self->queue);
	Py_CLEAR(self->readers);
	Py_CLEAR(self->operations);
	Py_CLEAR(self->queued);
	Py_CLEAR(self->attached_queues);
	Py_CLEAR(self->polled);
	Py_CLEAR(self->unmatched);
	Py_CLEAR(self->delays);
	Py_CLEAR(self->polling);
	Py_CLEAR(self->native);
	Py_CLEAR(self->unread);
	Py_CLEAR(self->sinks);
	Py_CLEAR(self->call_soon);
	Py_CLEAR(self->waker);
	Py_CLEAR(self->slots);
	free_object(self);
}

static PyObject *SourceCore_get_hurries(SourceCore *self, void *unused)
{
	return PyBool_FromLong(source_hurries(self));
}

static PyObject *SourceCore_message_waits(SourceCore *self, PyObject *unused)
{
	lateness_wait(&self->gathered, now_ns());
	Py_RETURN_NONE;
}

static PyObject *SourceCore_messages_leave(SourceCore *self, PyObject *unused)
{
	lateness_end(&self->gathered);
	Py_RETURN_NONE;
}

static PyMethodDef SourceCore_methods[] = {
	{"woke", (PyCFunction) SourceCore_woke, METH_NOARGS,
	 "A suspended task was woken: no task may poll while that one waits to run."},
	{"message_waits", (PyCFunction) SourceCore_message_waits, METH_NOARGS,
	 "A message waits for the end of the iteration."},
	{"messages_leave", (PyCFunction) SourceCore_messages_leave, METH_NOARGS,
	 "Those that waited leave, because the iteration has ended."},
	{NULL},
};

static PyGetSetDef SourceCore_getset[] = {
	OBJECT_FIELD("unmatched", SourceCore, unmatched, "Handles completions that finish no operation, and errors."),
	OBJECT_FIELD("delays", SourceCore, delays, "Decides when the next pass comes if the loop cannot just sleep."),
	{"hurries", (getter) SourceCore_get_hurries, NULL,
	 "Whether messages leave one by one, because some have waited too long for the end of an iteration."},
	{"must_yield", (getter) SourceCore_get_must_yield, NULL,
	 "Whether so many awaits returned at once that the next one should let the loop iterate. Counts each call."},
	{NULL},
};

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(SourceCore, name), READONLY}
#define COUNT(name, field) {name, T_LONGLONG, offsetof(SourceCore, field)}
#define FLAG(name, field) {name, T_BOOL, offsetof(SourceCore, field)}

static PyMemberDef SourceCore_members[] = {
	OBJECT(driver),
	OBJECT(queue),
	OBJECT(readers),
	OBJECT(operations),
	OBJECT(queued),
	OBJECT(attached_queues),
	OBJECT(polled),
	OBJECT(polling),
	OBJECT(slots),
	COUNT("iteration_began", iteration.began),
	COUNT("streak", iteration.streak),
	COUNT("wakes", iteration.wakes),
	COUNT("interest", interest.count),
	COUNT("abandoned", interest.abandoned),
	COUNT("_yielding", iteration.yielding),
	{"unsent", T_LONGLONG, offsetof(SourceCore, interest.unsent), READONLY, "outputs that send in the next iteration of the loop"},
	COUNT("completions", reading.completions),
	COUNT("_passes", pacing.passes),
	COUNT("_wakeups", pacing.wakeups),
	COUNT("_empty", pacing.empty),
	COUNT("empty_polls", pacing.empty_polls),
	COUNT("empty_streak", pacing.empty_streak),
	FLAG("closed", closed),
	FLAG("armed", arming.armed),
	FLAG("must_iterate", iteration.must_iterate),
	FLAG("_draining", reading.draining),
	FLAG("_others_woken", iteration.others_woken),
	FLAG("_after_empty_wakeup", pacing.after_empty_wakeup),
	FLAG("events_due", pacing.events_due),
	FLAG("recheck", arming.recheck),
	FLAG("paused", arming.paused),
	FLAG("polls", polls),
	FLAG("_busy_polls", busy_polls),
	{NULL},
};

static PyType_Slot SourceCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.cq.source.source.Source`."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, SourceCore_init},
	{Py_tp_dealloc, SourceCore_dealloc},
	{Py_tp_traverse, SourceCore_traverse},
	{Py_tp_clear, SourceCore_clear},
	{Py_tp_methods, SourceCore_methods},
	{Py_tp_getset, SourceCore_getset},
	{Py_tp_members, SourceCore_members},
	{0, NULL},
};

static PyType_Spec SourceCore_spec = {
	"aiofabric._core.SourceCore", sizeof(SourceCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, SourceCore_slots,
};

int add_source(PyObject *module)
{
	static const struct name names[] = {
		{&name_create_waiter, "create_waiter"}, {&name_done, "done"}, {&name_set_result, "set_result"}, {NULL},
	};

	if (intern(names) || PyModule_AddIntConstant(module, "STREAK", STREAK))
		return -1;
	return add_type(module, &SourceCore_spec, NULL, &SourceCore_Type);
}
