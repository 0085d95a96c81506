/* Arming: the bounded poll of an awaiting call, and the steps that let the loop sleep on the descriptors. */
#include "progress/arming.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/completions.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"

#include <rdma/fi_errno.h>

static PyObject *name_reset, *name_longest_gap, *name_quiet, *name_quiet_failed, *name_sleep;

/*
 * An awaiting call may poll only if the last iteration of the loop began less than this time ago. An iteration costs a
 * few us (10 to 20 on asyncio), and other tasks wait for it. Some tasks need three iterations: beside a busy connection
 * on asyncio, 1 % of them were 0.85 ms late. So the limit is a third of this while the length of the iterations shows
 * that other tasks have work; then those tasks are 0.5 ms late. With a third in all cases, a round trip on asyncio took
 * 27 us instead of 24.5.
 */
#define LONGEST_ITERATION_NS 180000
#define LONGEST_SHARED_ITERATION_NS 60000
#define POSTPONEMENTS 3 /* iterations after a useful poll: the reply's send, the next receive, and one more */

long long source_poll_once(SourceCore *self, long long now, int offering)
{
	Polling *polling = self->polling;
	long long share = polling_share(polling, now), found = source_read(self, share, offering), gap;

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
	long long now, found;
	int offers;

	if (self->others_woken || self->closed)
		return 0;
	offers = self->native && queue_yields(self->native);
	if (!offers && (!self->busy_polls || polling_is_pointless(self->polling)))
		return 0;
	now = now_ns();
	if (now - self->iteration_began > (self->shared ? LONGEST_SHARED_ITERATION_NS : LONGEST_ITERATION_NS)) {
		self->must_iterate = self->last_poll_hit;
		self->poll_refused_at = now;
		return 0;
	}
	self->wakes = 0;
	self->armed = 0;
	found = source_poll_once(self, now, offers);
	if (found < 0)
		return -1;
	self->last_poll_hit = found > 0;
	if (!self->last_poll_hit)
		return 0;
	self->others_woken = self->wakes > 0;
	self->postponements = POSTPONEMENTS;
	if (!self->scheduled)
		return source_schedule(self);
	self->behind += self->wakes;
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
 * The descriptor of an event queue stays readable until the queue is drained. Once found quiet, it needs no check
 * before that (0.6 us in the kernel each time).
 */
int source_is_quiet(SourceCore *self)
{
	Py_ssize_t i;
	int quiet;

	if (self->closed) /* a task that has resumed meanwhile closed the source: the queue may be freed, too */
		return 0;
	if (self->queue != Py_None) {
		quiet = queue_is_quiet(self);
		if (quiet <= 0)
			return quiet;
	}
	for (i = 0; self->recheck && i < PyList_Size(self->attached_queues); i++) {
		quiet = truth_of(PyObject_CallMethodObjArgs(PyList_GetItem(self->attached_queues, i), name_quiet, NULL));
		if (quiet <= 0)
			return quiet;
	}
	self->recheck = 0;
	return 1;
}

int source_rest_readers(SourceCore *self)
{
	if (self->sleeps_when_quiet && !self->paused)
		return 0;
	self->paused = 0;
	return drop(PyObject_CallMethodObjArgs(self->readers, name_sleep, NULL));
}

int source_arm(SourceCore *self)
{
	batch_end(&self->batch);
	self->armed = 1;
	self->poll_refused_at = 0; /* the loop may sleep now: its next iteration says nothing about other tasks */
	if (self->busy_polls)
		polling_end(self->polling);
	return source_rest_readers(self);
}

int source_prepare_wait(SourceCore *self)
{
	Polling *polling = self->polling;
	int quiet;

	/*
	 * Other tasks of this pass may still send, and its end ends the batch. While the loop resumes tasks, a
	 * scheduled pass ends it.
	 */
	if (!self->passing && !(self->waker && self->waker->resuming))
		batch_end(&self->batch);
	self->streak = 0; /* other tasks run now. Without this, every third send among 100 connections would wait for a pass */
	if (self->polls && drop(PyObject_CallMethodObjArgs(self->delays, name_reset, NULL)))
		return -1;
	if (self->armed || (self->scheduled && (self->others_woken || self->arming_failed || polling->deadline)))
		return 0;
	if (self->busy_polls)
		polling_open(polling, now_ns());
	if (polling->deadline || self->polls)
		return source_schedule(self);
	quiet = source_is_quiet(self);
	self->arming_failed = !quiet;
	return quiet < 0 ? -1 : quiet ? source_arm(self) : source_schedule(self);
}

/* -- the methods */

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
		{&name_quiet_failed, "_quiet_failed"}, {&name_sleep, "sleep"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(SourceCore_Type, methods);
}
