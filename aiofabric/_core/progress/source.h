/* The part of a source that each wait passes through. */
#ifndef AIOFABRIC_SOURCE_H
#define AIOFABRIC_SOURCE_H

#include "base/fifo.h"
#include "base/lateness.h"
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

/* How the next pass comes. Changed by arming.c; `paused` by Python's delays. */
struct arming {
	char armed;		/* the descriptors wake the loop */
	char scheduled;		/* a callback of the loop begins a pass; both may be set */
	char failed;		/* the queue was not quiet in this iteration: the next pass reads first */
	char paused;		/* the readers of the descriptors were switched off; on again before the loop sleeps */
	char recheck;		/* the event queues may have events: ask them before the loop sleeps */
	char sleeps_when_quiet;	/* the descriptors need no call before the loop sleeps */
};

/* The results of reads. Changed by completions.c. */
struct reading {
	long long completions;
	long long unawaited;	/* of these, those that no task waits for */
	long long behind;	/* completions of the read behind the one that is dispatched now */
	char draining;		/* a read is under way and must not be entered again */
	char full;		/* whether the last read returned as many as it can */
};

/* The results of passes and wake-ups. Changed by progress.c and Python's delays. */
struct pacing {
	long long passes, wakeups;
	long long empty;	/* wake-ups without a completion */
	long long empty_streak;	/* of these, in a row */
	long long empty_polls;	/* polls in a row that found nothing; sets the delay of the next one */
	char after_empty_wakeup; /* the next pass reads once and does not poll */
	char events_due;	/* the next pass reads the event queues */
};

typedef struct {
	PyObject_HEAD
	PyObject *driver, *queue, *readers;
	Registry *operations;	/* by the address of the slot that a completion names */
	PyObject *queued, *attached_queues, *polled;
	PyObject *unmatched, *delays; /* parts in Python */
	Polling *polling;
	NativeQueue *native;	/* of `queue`, if it is libfabric's; NULL for a queue that is called through Python */
	PyObject *unread;	/* completions that such a queue returned and that were not dispatched yet; or NULL */
	Fifo *sinks;		/* those that are called when all completions of the read are dispatched */
	PyObject *call_soon;
	Waker *waker;		/* asyncio's; NULL for other drivers, which make waiters */
	SlotsCore *slots;
	struct batch batch;	/* of messages that leave together */
	struct lateness gathered; /* messages that wait for the end of the iteration, to leave as one */
	struct iteration iteration;
	struct interest interest;
	struct arming arming;
	struct reading reading;
	struct pacing pacing;
	char closed;		/* no further call into the queue */
	/* set by the constructor */
	char polls, busy_polls;	/* it never sleeps on a descriptor; an awaiting call may poll */
	char checkpoints;	/* every await needs one (trio) */
} SourceCore;

extern PyTypeObject *SourceCore_Type;

/* Whether messages leave one by one, because the loop was late. */
static inline int source_hurries(SourceCore *self)
{
	return lateness_hurries(&self->gathered) || lateness_hurries(&self->batch.lateness);
}

PyObject *source_waiter(SourceCore *self);
/*
 * 1: the waiter waited and has its result now; 0: it had one already; -1: an exception. Counts the wake-up for the
 * source, if any.
 */
int source_wake(SourceCore *self, PyObject *waiter, PyObject *result);
int source_wake_waiter(SourceCore *self, Waiter *waiter, PyObject *result);
/*
 * Whether pieces of a large message are coming: completions.c has scheduled another poll. A source that only polls
 * does so in any case.
 */
int source_is_moving(SourceCore *self);

int add_source(PyObject *module);

#endif
