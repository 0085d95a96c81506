/*
 * What the event loop calls: a turn, and the wake-up.  cq/progress.py says what must hold before the loop sleeps, and has
 * what a queue alone does not need: event queues, counters, what is parked, delays.
 */
#include "progress.h"
#include "arming.h"
#include "coalescing.h"
#include "completions.h"
#include "names.h"
#include "polling.h"
#include "references.h"
#include "source.h"
#include "wakeups.h"

static PyObject *name_disquiet, *name_failed, *name_others, *name_rest;

#define EMPTY_WAKEUPS 32 /* wake-ups in a row that brought nothing */

/* Whether a turn has more to do than to read the queue. */
static int has_others(SourceCore *self)
{
	return self->events_due || PyDict_Size(self->polled) || PyObject_Size(self->queued);
}

static long long poll_others(SourceCore *self)
{
	PyObject *answer = PyObject_CallMethodObjArgs((PyObject *) self, name_others, NULL);
	long long moved = answer ? PyLong_AsLongLong(answer) : -1;

	Py_XDECREF(answer);
	return moved;
}

static int rest_by_name(SourceCore *self, long long moved)
{
	PyObject *number = PyLong_FromLongLong(moved);
	int rc = number ? drop(PyObject_CallMethodObjArgs((PyObject *) self, name_rest, number, NULL)) : -1;

	Py_XDECREF(number);
	return rc;
}

/* Arm and sleep; or, where that is impossible, come back later. */
static int rest(SourceCore *self, long long moved)
{
	int calm;

	if (self->scheduled)
		return 0;
	if (self->polls || self->empty_streak >= EMPTY_WAKEUPS || has_others(self))
		return rest_by_name(self, moved);
	calm = source_is_quiet(self);
	if (calm < 0)
		return -1;
	if (!calm)
		return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_disquiet, NULL));
	self->fruitless = 0;
	return source_arm(self);
}

/* What is sent from here on leaves together at the end. */
static void hold(SourceCore *self, Waker *waker)
{
	self->passing = 1;
	waker_hold(waker);
}

static int resume(SourceCore *self, Waker *waker)
{
	int rc = waker_resume(waker);

	self->passing = 0;
	batch_end(&self->batch);
	return rc;
}

static int defer(SourceCore *self, Waker *waker)
{
	self->passing = 0;
	batch_end(&self->batch);
	return waker_defer(waker);
}

/*
 * Read on where one read did not bring everything.  Those whom it answered go on before the next one, while what they
 * need is near: a thousand connections make 12 to 25 % more requests than with up to four reads before anybody goes on.
 */
static long long read_on(SourceCore *self, Waker *waker, long long moved)
{
	while (source_has_more(self, moved)) {
		long long found;
		int rc;

		self->crowd = self->wakes > 1;
		rc = waker_resume(waker);
		waker_hold(waker);
		found = rc ? -1 : source_read(self, 0, 0);
		if (found < 0)
			return -1;
		moved += found;
	}
	return moved;
}

/* A turn: the loop went round, but not yet for the tasks that stand behind it. */
static void begin_pass(SourceCore *self)
{
	source_iterated(self);
	self->wakes = self->behind;
	self->behind = 0;
	self->crowd = self->wakes > 1;
}

/* Settle what there is; how much of it moved, or -1. */
static long long read_completions(SourceCore *self, Waker *waker)
{
	int linger = self->polling->deadline && !(self->hurried || self->breathing);
	long long moved, more = 0;

	self->hurried = 0;
	moved = read_on(self, waker, linger ? source_poll_once(self, self->breath, 0) : source_read(self, 0, 0));
	if (moved < 0)
		return -1;
	self->crowd = self->wakes > 1;
	if (!self->closed && has_others(self))
		more = poll_others(self);
	return more < 0 ? -1 : moved + more;
}

/*
 * Ctrl-C ends the turn, or the task that went on in it, and perhaps not the loop: another turn arms what this one did
 * not.
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

/* `waker`: lets those go on who were answered, before the queue is armed, which they see to themselves; or NULL. */
static int pass(SourceCore *self, Waker *waker)
{
	long long moved;

	self->passes++;
	self->armed = 0;
	begin_pass(self);
	hold(self, waker);
	moved = read_completions(self, waker);
	if (resume(self, waker))
		return -1;
	if (self->closed) /* by a callback */
		return 0;
	if (moved)
		self->fruitless = self->empty_streak = 0;
	if (self->armed && !has_others(self))
		return 0;
	return moved >= BUDGET || polling_continues(self->polling, self->breath, moved) ? source_schedule(self) : rest(self, moved);
}

static PyObject *progress(SourceCore *self, Waker *waker)
{
	if (!self->closed && !self->draining && pass(self, waker) && source_report(self, name_failed)) {
		schedule_after_failure(self);
		return NULL;
	}
	Py_RETURN_NONE;
}

/* Called from anywhere, and a task cannot go on inside of another one. */
static PyObject *SourceCore_progress(SourceCore *self, PyObject *unused)
{
	return progress(self, NULL);
}

static PyObject *SourceCore_scheduled_pass(SourceCore *self, PyObject *unused)
{
	self->scheduled = 0;
	batch_end(&self->batch);
	if (has_others(self))
		return progress(self, self->waker);
	if (self->armed && !self->polling->deadline) {
		begin_pass(self); /* armed inline since then: nothing to do but to note that the loop went round */
		Py_RETURN_NONE;
	}
	/*
	 * On trio each await is an iteration.  Whoever takes it will look, or wait and arm: a turn before that reads in vain,
	 * and what it arms wakes us for what a look found (64 B round trip 27 us; 38 with that).
	 */
	if (self->checkpoints && self->breathing && self->respite) {
		self->respite--;
		begin_pass(self);
		return none_if(source_schedule(self));
	}
	return progress(self, self->waker);
}

/* The descriptor woke us for something: the tasks that it was for go on, and arm the queue when they wait again. */
static int woken(SourceCore *self, int due)
{
	self->fruitless = self->empty_streak = 0;
	self->crowd = self->wakes > 1;
	if (self->busy_polls && !source_is_moving(self)) {
		polling_woken(self->polling, self->breath);
		if (!self->wakes) /* handed to a sink: nobody asks for a window by waiting */
			polling_open(self->polling, self->breath);
	}
	if (due ? defer(self, self->waker) : resume(self, self->waker))
		return schedule_after_failure(self);
	return self->armed ? 0 : source_schedule(self);
}

/*
 * Settle, and let the tasks go on before anything else.  They arm the queue themselves when they wait again (prepare);
 * the turn that is on its way sees to it otherwise.  Arming here would make every answer 2 us later.
 */
static PyObject *SourceCore_readable(SourceCore *self, PyObject *unused)
{
	char armed = self->armed, due = self->scheduled; /* what was true before we were woken */
	long long found;

	self->wakeups++;
	self->armed = 0;
	if (self->closed || self->draining)
		Py_RETURN_NONE;
	source_iterated(self);
	hold(self, self->waker);
	/* Once in an iteration: with the turn that is on its way, others' timers are late by no more than one run of tasks. */
	found = read_on(self, due ? NULL : self->waker, source_read(self, 0, 0));
	if (found > 0)
		return none_if(woken(self, due));
	if (resume(self, self->waker))
		return none_if(source_report(self, name_failed) ? schedule_after_failure(self) : 0);
	if (source_is_moving(self))
		return none_if(source_schedule(self));
	self->empty++;
	self->empty_streak++;
	if (armed && self->empty_streak < EMPTY_WAKEUPS) {
		int calm = source_is_quiet(self);

		if (calm < 0)
			return none_if(source_report(self, name_failed) ? schedule_after_failure(self) : 0);
		if (calm) { /* asyncio asked the kernel before what it ran meanwhile looked, and then armed */
			self->armed = 1;
			return none_if(source_rest_readers(self));
		}
	}
	self->hurried = 1; /* uvloop calls readers before the task that the last turn woke */
	return progress(self, self->waker);
}

static PyMethodDef methods[] = {
	{"progress", (PyCFunction) SourceCore_progress, METH_NOARGS, "One pass; ends armed, or with another turn on its way."},
	{"_readable", (PyCFunction) SourceCore_readable, METH_NOARGS, "The descriptor woke us."},
	{"_scheduled_pass", (PyCFunction) SourceCore_scheduled_pass, METH_NOARGS, "What `touch` has put on its way."},
	{NULL},
};

int add_progress(PyObject *module)
{
	static const struct name names[] = {
		{&name_disquiet, "_disquiet"}, {&name_failed, "_failed"}, {&name_others, "_poll_others"},
		{&name_rest, "_rest"}, {NULL},
	};

	if (intern(names) || PyModule_AddIntConstant(module, "EMPTY_WAKEUPS", EMPTY_WAKEUPS))
		return -1;
	return add_methods(SourceCore_Type, methods);
}
