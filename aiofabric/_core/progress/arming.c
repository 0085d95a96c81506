/* Arming: the bounded poll of an awaiting call, and how the next pass comes: the descriptors wake the loop, or a callback. */
#include "progress/arming.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/completions.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"

#include <rdma/fi_errno.h>

static PyObject *name_reset, *name_longest_gap, *name_quiet, *name_quiet_failed, *name_scheduled_pass, *name_sleep;

int source_schedule(SourceCore *self)
{
	struct arming *arming = &self->arming;
	PyObject *progress;
	int rc;

	arming->armed = 0;
	if (arming->scheduled || self->closed)
		return 0;
	progress = PyObject_GetAttr((PyObject *) self, name_scheduled_pass);
	if (!progress)
		return -1;
	arming->scheduled = 1;
	rc = call_soon_despite_interrupt(self->call_soon, progress);
	if (rc)
		arming->scheduled = 0;
	Py_DECREF(progress);
	return rc;
}

void source_begin_scheduled_pass(SourceCore *self)
{
	self->arming.scheduled = 0;
}

void source_disarm(SourceCore *self)
{
	self->arming.armed = 0;
}

void source_iterated(SourceCore *self)
{
	iteration_begin(&self->iteration);
	self->arming.failed = 0;
}

void source_begin_pass(SourceCore *self)
{
	iteration_begin_pass(&self->iteration);
	self->arming.failed = 0;
}

/*
 * Read until something comes that a task may wait for, or `share` ns are over, or BUDGET completions were read. Without
 * the further reads, a round trip of 256 B whose sends are copied takes an iteration of the loop on both sides.
 */
static long long read_awaited(SourceCore *self, long long now, long long share, int offering)
{
	long long found, unawaited, left = share, budget = BUDGET;

	for (;;) {
		unawaited = self->reading.unawaited;
		found = source_read(self, left, offering);
		if (found <= 0 || found > self->reading.unawaited - unawaited || (budget -= found) <= 0)
			return found;
		left = now + share - now_ns();
		if (left < 0)
			left = 0;
	}
}

long long source_poll_once(SourceCore *self, long long now, int offering)
{
	Polling *polling = self->polling;
	long long share = polling_share(polling, now), found = read_awaited(self, now, share, offering), gap;

	if (found < 0 || !polling->deadline || source_is_moving(self))
		return found;
	if (self->native) {
		gap = self->native->gap;
	} else {
		PyObject *returned = PyObject_CallMethodObjArgs(self->queue, name_longest_gap, NULL);

		gap = returned ? PyLong_AsLongLong(returned) : -1;
		Py_XDECREF(returned);
		if (gap < 0)
			return -1;
	}
	polling_learn(polling, now, share, found, gap);
	return found;
}

int source_poll(SourceCore *self)
{
	long long now, found, completions;
	int offers;

	if (self->iteration.others_woken || self->closed)
		return 0;
	offers = self->native && queue_yields(self->native);
	if (!offers && (!self->busy_polls || polling_is_pointless(self->polling)))
		return 0;
	now = now_ns();
	if (iteration_refuses_poll(&self->iteration, now))
		return 0;
	iteration_begin_poll(&self->iteration);
	source_disarm(self);
	completions = self->reading.completions;
	found = source_poll_once(self, now, offers);
	if (found < 0)
		return -1;
	iteration_end_poll(&self->iteration, found > 0);
	if (!found) /* completions that no task waits for make room for queued operations, too */
		return self->reading.completions > completions && PyObject_Size(self->queued) ? source_schedule(self) : 0;
	if (!self->arming.scheduled)
		return source_schedule(self);
	iteration_run_behind_pass(&self->iteration);
	return 0;
}

static int queue_is_quiet(SourceCore *self)
{
	PyObject *code;
	int rc;

	if (!self->native)
		return truth_of(PyObject_CallMethodObjArgs(self->queue, name_quiet, NULL));
	rc = queue_try_wait(self->native);
	if (rc == 0 || rc == -FI_EAGAIN)
		return rc == 0;
	code = PyLong_FromLong(rc);
	if (code) /* `_quiet_failed` raises, unless the code is no error */
		rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_quiet_failed, code, NULL));
	Py_XDECREF(code);
	return rc ? -1 : 0;
}

/*
 * The descriptor of an event queue stays readable until the queue is drained and found quiet. After that, it needs no
 * check before it is drained again (0.6 us in the kernel each time). Event queues come first: a busy completion queue
 * would keep them from this check, and each iteration of the loop would call their reader (6 us of a round trip).
 */
int source_is_quiet(SourceCore *self)
{
	Py_ssize_t i;
	int quiet;

	if (self->closed) /* a task that has resumed meanwhile closed the source: the queue may be freed, too */
		return 0;
	for (i = 0; self->arming.recheck && i < PyList_Size(self->attached_queues); i++) {
		quiet = truth_of(PyObject_CallMethodObjArgs(PyList_GetItem(self->attached_queues, i), name_quiet, NULL));
		if (quiet <= 0)
			return quiet;
	}
	self->arming.recheck = 0;
	return self->queue == Py_None ? 1 : queue_is_quiet(self);
}

static int rest_readers(SourceCore *self)
{
	if (self->arming.sleeps_when_quiet && !self->arming.paused)
		return 0;
	self->arming.paused = 0;
	return drop(PyObject_CallMethodObjArgs(self->readers, name_sleep, NULL));
}

int source_arm(SourceCore *self)
{
	batch_end(&self->batch);
	self->arming.armed = 1;
	iteration_may_sleep(&self->iteration);
	if (self->busy_polls)
		polling_end(self->polling);
	return rest_readers(self);
}

int source_stay_armed(SourceCore *self)
{
	self->arming.armed = 1;
	return rest_readers(self);
}

/* After a successful poll the descriptor is still readable. Its reset here takes 1.5 us. An empty wake-up would take
 * 20 us, and the peer's polling would end too early. */
int source_arm_if_quiet(SourceCore *self)
{
	int quiet = !self->arming.armed && self->arming.sleeps_when_quiet ? source_is_quiet(self) : 0;

	if (quiet > 0)
		self->arming.armed = 1;
	return quiet < 0 ? -1 : 0;
}

int source_prepare_wait(SourceCore *self)
{
	struct arming *arming = &self->arming;
	Polling *polling = self->polling;
	int quiet;

	/*
	 * Other tasks of this pass may still send, and its end ends the batch. While the loop resumes tasks, a
	 * scheduled pass ends it.
	 */
	if (!self->batch.in_pass && !(self->waker && self->waker->resuming))
		batch_end(&self->batch);
	iteration_suspend(&self->iteration); /* without this, every third send among 100 connections would wait for a pass */
	if (self->polls && drop(PyObject_CallMethodObjArgs(self->delays, name_reset, NULL)))
		return -1;
	if (arming->armed || (arming->scheduled && (self->iteration.others_woken || arming->failed || polling->deadline)))
		return 0;
	if (self->busy_polls)
		polling_open(polling, now_ns());
	if (polling->deadline || self->polls)
		return source_schedule(self);
	quiet = source_is_quiet(self);
	arming->failed = !quiet;
	return quiet < 0 ? -1 : quiet ? source_arm(self) : source_schedule(self);
}

/* -- the methods */

static PyObject *SourceCore_touch(SourceCore *self, PyObject *unused)
{
	return none_if(source_schedule(self));
}

static PyObject *SourceCore_loop_iterated(SourceCore *self, PyObject *unused)
{
	source_iterated(self);
	Py_RETURN_NONE;
}

static PyObject *SourceCore_arm_if_quiet(SourceCore *self, PyObject *unused)
{
	return none_if(source_arm_if_quiet(self));
}

static PyObject *SourceCore_poll(SourceCore *self, PyObject *unused)
{
	return none_if(source_poll(self));
}

static PyObject *SourceCore_prepare(SourceCore *self, PyObject *unused)
{
	return none_if(source_prepare_wait(self));
}

static PyObject *SourceCore_quiet(SourceCore *self, PyObject *unused)
{
	int quiet = source_is_quiet(self);

	return quiet < 0 ? NULL : PyBool_FromLong(quiet);
}

static PyObject *SourceCore_sleep(SourceCore *self, PyObject *unused)
{
	return none_if(source_arm(self));
}

static PyMethodDef methods[] = {
	{"touch", (PyCFunction) SourceCore_touch, METH_NOARGS,
	 "An operation was posted: schedule a pass, one for all posts of this iteration."},
	{"loop_iterated", (PyCFunction) SourceCore_loop_iterated, METH_NOARGS,
	 "A new iteration of the loop has begun: reset the count of awaits that returned at once."},
	{"_arm_if_quiet", (PyCFunction) SourceCore_arm_if_quiet, METH_NOARGS,
	 "Before a task lets the loop iterate: arm the queue if it is quiet."},
	{"poll", (PyCFunction) SourceCore_poll, METH_NOARGS,
	 "Inside an awaiting call, before it suspends: a bounded poll of the queue."},
	{"prepare", (PyCFunction) SourceCore_prepare, METH_NOARGS,
	 "A task is about to suspend: make sure that its completion wakes the loop."},
	{"quiet", (PyCFunction) SourceCore_quiet, METH_NOARGS, "Whether it is safe to sleep on the descriptors."},
	{"sleep", (PyCFunction) SourceCore_sleep, METH_NOARGS, "The queue is quiet: the descriptors wake the loop."},
	{NULL},
};

int add_arming(PyObject *module)
{
	static const struct name names[] = {
		{&name_reset, "reset"}, {&name_longest_gap, "longest_gap"}, {&name_quiet, "quiet"},
		{&name_quiet_failed, "_quiet_failed"}, {&name_scheduled_pass, "_scheduled_pass"}, {&name_sleep, "sleep"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(SourceCore_Type, methods);
}
