/*
 * Called by the event loop: a progress pass, and the wake-up. cq/source/source.py says which conditions must hold
 * before the loop sleeps. It also has the parts that a queue alone does not need: event queues, counters, queued
 * operations, delays.
 */
#include "progress/progress.h"
#include "base/names.h"
#include "base/references.h"
#include "progress/arming.h"
#include "progress/completions.h"
#include "progress/interest.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/polling.h"
#include "queue/wakeups.h"

static PyObject *name_not_quiet, *name_failed, *name_others, *name_end_pass;

#define EMPTY_WAKEUPS 32 /* wake-ups in a row without a completion */

/* Whether a pass has more to do than to read the queue. */
static int has_others(SourceCore *self)
{
	return self->pacing.events_due || PyDict_Size(self->polled) || PyObject_Size(self->queued);
}

static long long poll_others(SourceCore *self)
{
	PyObject *returned = PyObject_CallMethodObjArgs((PyObject *) self, name_others, NULL);
	long long moved = returned ? PyLong_AsLongLong(returned) : -1;

	Py_XDECREF(returned);
	return moved;
}

static int end_pass_by_name(SourceCore *self, long long moved)
{
	PyObject *number = PyLong_FromLongLong(moved);
	int rc = number ? drop(PyObject_CallMethodObjArgs(self->delays, name_end_pass, number, NULL)) : -1;

	Py_XDECREF(number);
	return rc;
}

static void found_completions(SourceCore *self)
{
	self->pacing.empty_polls = self->pacing.empty_streak = 0;
}

/* Arm and sleep; if that is impossible, come back later. */
static int end_pass(SourceCore *self, long long moved)
{
	int quiet;

	if (self->arming.scheduled)
		return 0;
	if (self->polls || self->pacing.empty_streak >= EMPTY_WAKEUPS || has_others(self))
		return end_pass_by_name(self, moved);
	quiet = source_is_quiet(self);
	if (quiet < 0)
		return -1;
	if (!quiet)
		return drop(PyObject_CallMethodObjArgs(self->delays, name_not_quiet, NULL));
	self->pacing.empty_polls = 0;
	return source_arm(self);
}

/* Messages sent from here on leave together at the end. */
static void enter_pass(SourceCore *self, Waker *waker)
{
	batch_begin_pass(&self->batch);
	waker_enter_pass(waker);
}

static int resume(SourceCore *self, Waker *waker)
{
	int rc = waker_resume(waker);

	batch_end_pass(&self->batch);
	return rc;
}

static int defer(SourceCore *self, Waker *waker)
{
	batch_end_pass(&self->batch);
	return waker_defer(waker);
}

/*
 * Read again if one read did not return everything. The tasks that it woke resume before the next read, while their
 * data is still in the cache. With a thousand connections, this gives 12 to 25 % more requests than up to four reads
 * before any task resumes.
 */
static long long read_on(SourceCore *self, Waker *waker, long long moved)
{
	while (source_has_more(self, moved)) {
		long long found;
		int rc;

		iteration_resume_tasks(&self->iteration);
		rc = waker_resume(waker);
		waker_enter_pass(waker);
		found = rc ? -1 : source_read(self, 0, 0);
		if (found < 0)
			return -1;
		moved += found;
	}
	return moved;
}

/* Read and dispatch the completions that are there. Returns how much moved, or -1. */
static long long read_completions(SourceCore *self, Waker *waker)
{
	int linger = self->polling->deadline && !(self->pacing.after_empty_wakeup || self->iteration.yielding);
	long long moved, more = 0, completions = self->reading.completions;

	self->pacing.after_empty_wakeup = 0;
	moved = read_on(self, waker, linger ? source_poll_once(self, self->iteration.began, 0) : source_read(self, 0, 0));
	if (moved < 0)
		return -1;
	if (!moved)
		moved = self->reading.completions - completions; /* those that no task waits for */
	iteration_resume_tasks(&self->iteration);
	if (!self->closed && has_others(self))
		more = poll_others(self);
	return more < 0 ? -1 : moved + more;
}

/*
 * Ctrl-C ends the pass, or a task that resumed in it; the loop may continue. So another pass is scheduled, which arms
 * the queue.
 */
static int schedule_after_failure(SourceCore *self)
{
	PyObject *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	if (source_schedule(self))
		PyErr_Clear(); /* the loop is closed */
	PyErr_Restore(type, error, traceback);
	return -1;
}

/*
 * Whether each of the `found` completions was a request to a server, and the reply to each was sent; or data for a
 * protocol, which has sent something. The peer's next message comes soon, and no task awaits that: a sink gets it. So it
 * is polled for here, as an awaiting call does it. If any callback waits for the loop, there is no poll, and the loop
 * runs its next iteration at once. A call of 64 B took a server 32 us of CPU without this, and 26 with it (both sides on
 * one core); a round trip took 34 and 23 (on two cores). A round trip of two asyncio protocols took 39 us on one core,
 * and 27 with it.
 */
static int all_is_answered(const SourceCore *self, long long found, long long finished_before)
{
	const Waker *waker = self->waker;

	return waker && waker->functions_finished - finished_before >= found && !waker->woken->count && !self->iteration.wakes && !self->interest.unsent &&
	       !self->closed;
}

static int poll_for_more(SourceCore *self)
{
	long long finished, completions;

	do {
		finished = self->waker->functions_finished;
		completions = self->reading.completions;
		enter_pass(self, self->waker);
		if (source_poll(self)) {
			defer(self, self->waker);
			return -1;
		}
		if (resume(self, self->waker))
			return -1;
	} while (self->reading.completions > completions && all_is_answered(self, self->reading.completions - completions, finished));
	return 0;
}

/* `waker` resumes the woken tasks before the queue is armed: they arm it themselves. NULL: they resume later. */
static int pass(SourceCore *self, Waker *waker)
{
	long long moved, finished = waker ? waker->functions_finished : 0, completions = self->reading.completions;

	self->pacing.passes++;
	source_disarm(self);
	source_begin_pass(self);
	enter_pass(self, waker);
	moved = read_completions(self, waker);
	if (resume(self, waker))
		return -1;
	if (waker && moved && all_is_answered(self, self->reading.completions - completions, finished) && poll_for_more(self))
		return -1;
	if (self->closed) /* by a callback */
		return 0;
	if (moved)
		found_completions(self);
	if (self->arming.armed && !has_others(self))
		return 0;
	return moved >= BUDGET || polling_continues(self->polling, self->iteration.began, moved) ? source_schedule(self) : end_pass(self, moved);
}

static PyObject *progress(SourceCore *self, Waker *waker)
{
	if (!self->closed && !self->reading.draining && pass(self, waker) && source_report(self, name_failed)) {
		schedule_after_failure(self);
		return NULL;
	}
	Py_RETURN_NONE;
}

/* May be called inside a task, and a task cannot resume inside another one. */
static PyObject *SourceCore_progress(SourceCore *self, PyObject *unused)
{
	return progress(self, NULL);
}

static PyObject *SourceCore_scheduled_pass(SourceCore *self, PyObject *unused)
{
	source_begin_scheduled_pass(self);
	batch_end(&self->batch);
	if (has_others(self))
		return progress(self, self->waker);
	if (self->arming.armed && !self->polling->deadline) {
		source_begin_pass(self); /* armed inline since then: only record that the loop has iterated */
		Py_RETURN_NONE;
	}
	/*
	 * On trio each await is an iteration. The next task polls, or waits and arms. A pass before that reads an
	 * empty queue, and its arming causes a wake-up for a completion that a poll has found (64 B round trip: 27 us
	 * without such a pass, 38 with it).
	 */
	if (self->checkpoints && iteration_postpones_pass(&self->iteration)) {
		source_begin_pass(self);
		return none_if(source_schedule(self));
	}
	return progress(self, self->waker);
}

/* The wake-up brought completions. Their tasks resume, and arm the queue when they wait again. */
static int woken(SourceCore *self, long long found, long long finished, int due)
{
	found_completions(self);
	iteration_resume_tasks(&self->iteration);
	if (self->busy_polls && !source_is_moving(self)) {
		polling_woken(self->polling, self->iteration.began);
		if (!self->iteration.wakes) /* all went to a sink: no task waits and opens a window */
			polling_open(self->polling, self->iteration.began);
	}
	if (due ? defer(self, self->waker) : resume(self, self->waker))
		return schedule_after_failure(self);
	if (!due && all_is_answered(self, found, finished) && poll_for_more(self))
		return schedule_after_failure(self);
	return self->arming.armed ? 0 : source_schedule(self);
}

/*
 * Dispatch completions and resume their tasks before anything else. The tasks arm the queue when they wait again
 * (prepare); otherwise the scheduled pass does it. Arming here would delay every result by 2 us.
 */
static PyObject *SourceCore_readable(SourceCore *self, PyObject *unused)
{
	char armed = self->arming.armed, due = self->arming.scheduled; /* the state before this wake-up */
	long long found, finished = self->waker ? self->waker->functions_finished : 0;

	self->pacing.wakeups++;
	source_disarm(self);
	if (self->closed || self->reading.draining)
		Py_RETURN_NONE;
	source_iterated(self);
	enter_pass(self, self->waker);
	/*
	 * Once in an iteration: with a pass already scheduled, timers of other tasks are late by no more than one run
	 * of tasks.
	 */
	found = read_on(self, due ? NULL : self->waker, source_read(self, 0, 0));
	if (found > 0)
		return none_if(woken(self, found, finished, due));
	if (resume(self, self->waker))
		return none_if(source_report(self, name_failed) ? schedule_after_failure(self) : 0);
	if (source_is_moving(self))
		return none_if(source_schedule(self));
	self->pacing.empty++;
	self->pacing.empty_streak++;
	if (armed && self->pacing.empty_streak < EMPTY_WAKEUPS) {
		int quiet = source_is_quiet(self);

		if (quiet < 0)
			return none_if(source_report(self, name_failed) ? schedule_after_failure(self) : 0);
		if (quiet) /* asyncio asked the kernel first; then a callback polled and armed */
			return none_if(source_stay_armed(self));
	}
	self->pacing.after_empty_wakeup = 1; /* uvloop calls readers before the task that the last pass woke */
	return progress(self, self->waker);
}

static PyMethodDef methods[] = {
	{"progress", (PyCFunction) SourceCore_progress, METH_NOARGS,
	 "One pass; it ends armed, or with another pass scheduled."},
	{"_readable", (PyCFunction) SourceCore_readable, METH_NOARGS,
	 "Called by the loop when the descriptor is readable."},
	{"_scheduled_pass", (PyCFunction) SourceCore_scheduled_pass, METH_NOARGS, "The pass that `touch` scheduled."},
	{NULL},
};

int add_progress(PyObject *module)
{
	static const struct name names[] = {
		{&name_not_quiet, "not_quiet"}, {&name_failed, "_failed"}, {&name_others, "_poll_others"},
		{&name_end_pass, "end_pass"}, {NULL},
	};

	if (intern(names) || PyModule_AddIntConstant(module, "EMPTY_WAKEUPS", EMPTY_WAKEUPS))
		return -1;
	return add_methods(SourceCore_Type, methods);
}
