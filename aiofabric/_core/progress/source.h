/* The part of a source that each wait passes through. */
#ifndef AIOFABRIC_SOURCE_H
#define AIOFABRIC_SOURCE_H

#include "base/references.h"
#include "operations/registry.h"
#include "operations/slots.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"

typedef struct {
	PyObject_HEAD
	PyObject *driver, *queue, *readers;
	Registry *operations;	/* by the address of the slot that a completion names */
	PyObject *queued, *attached_queues, *polled;
	PyObject *unmatched, *delays; /* parts in Python */
	Polling *polling;
	NativeQueue *native;	/* of `queue`, if it is libfabric's; NULL for a queue that is called through Python */
	PyObject *unread;	/* completions that such a queue returned and that were not dispatched yet; or NULL */
	PyObject *call_soon;
	Waker *waker;		/* asyncio's; NULL for other drivers, which make waiters */
	SlotsCore *slots;
	long long passes, iteration_began, streak, wakes, interest, abandoned, completions, wakeups, empty, empty_polls, empty_streak;
	long long yielding;	/* tasks that could continue, and only let the loop iterate */
	long long postponements;	/* how often the scheduled pass may still be put off for them */
	long long poll_refused_at;	/* ns: a poll was refused then, so that the loop iterates; 0: none, or it may sleep */
	long long shared;	/* iterations for which other tasks are still assumed to have work */
	long long behind;	/* tasks that were woken when a pass was scheduled already: they run after it */
	long long unsent;	/* outputs whose frames leave in the next iteration of the loop */
	struct batch batch;	/* of messages that leave together */
	char closed, draining, armed, must_iterate, last_poll_hit, others_woken, scheduled, after_empty_wakeup, events_due, recheck, paused;
	char polls, busy_polls, sleeps_when_quiet;
	char arming_failed;		/* arming failed in this iteration: the next pass reads first */
	char checkpoints;	/* every await needs one (trio) */
	char full;		/* whether the last read returned as many as it can */
	char passing;		/* tasks resume within a pass, whose end sends their batches */
} SourceCore;

#define STREAK 64 /* most awaits in a row that may return without an iteration of the loop */

extern PyTypeObject *SourceCore_Type;

/* An operation was posted: schedule a pass. */
int source_schedule(SourceCore *self);
PyObject *source_waiter(SourceCore *self);
/*
 * 1: the waiter waited and has its result now; 0: it had one already; -1: an exception. Counts the wake-up for the
 * source, if any.
 */
int source_wake(SourceCore *self, PyObject *waiter, PyObject *result);
int source_wake_waiter(SourceCore *self, Waiter *waiter, PyObject *result);
/* The loop has iterated. */
void source_iterated(SourceCore *self);
/*
 * Whether pieces of a large message are coming: completions.c has scheduled another poll. A source that only polls
 * does so in any case.
 */
int source_is_moving(SourceCore *self);

int add_source(PyObject *module);

#endif
