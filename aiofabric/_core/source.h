/* The part of a source that each wait passes through. */
#ifndef AIOFABRIC_SOURCE_H
#define AIOFABRIC_SOURCE_H

#include "coalescing.h"
#include "completion_queue.h"
#include "polling.h"
#include "references.h"
#include "registry.h"
#include "slots.h"
#include "wakeups.h"
#include "waiter.h"

typedef struct {
	PyObject_HEAD
	PyObject *driver, *queue, *readers;
	Registry *operations;	/* by the address of the slot that a completion names */
	PyObject *queued, *attached_queues, *polled;
	Polling *polling;
	NativeQueue *native;	/* of `queue`, if it is libfabric's; NULL for one that is asked through Python */
	PyObject *call_soon;
	Waker *waker;		/* of asyncio's; NULL for others, whose drivers make waiters */
	SlotsCore *slots;
	long long passes, breath, streak, wakes, interest, abandoned, completions, wakeups, empty, fruitless, empty_streak;
	long long breathing;	/* tasks that could go on, and only let the loop go round */
	long long respite;	/* how often the turn that is on its way may still be put off for them */
	long long ceded;	/* ns: when a look was refused for the loop to go round; 0: it was not, or it may sleep */
	long long shared;	/* iterations for which others are still believed to have work */
	long long behind;	/* tasks that were woken when a turn was on its way already: they go on after it */
	struct batch batch;	/* of messages that leave together */
	char closed, draining, armed, winded, paid, crowd, scheduled, hurried, events_due, recheck, paused;
	char polls, busy_polls, at_rest_when_quiet;
	char restless;		/* whether it could not be armed in this iteration: the next one's turn is to read first */
	char checkpoints;	/* every await owes one */
	char full;		/* whether the last read brought as much as one can */
	char passing;		/* tasks go on within a turn, which sees to what they send */
} SourceCore;

#define STREAK 64 /* most awaits in a row that may be answered without an iteration of the loop */

extern PyTypeObject *SourceCore_Type;

/* Something was posted: have a turn on its way. */
int source_schedule(SourceCore *self);
PyObject *source_waiter(SourceCore *self);
/* Whether the waiter waited, and has its answer now: 1 or 0; -1 for an exception.  Counts whom the source woke, if any. */
int source_wake(SourceCore *self, PyObject *waiter, PyObject *result);
int source_wake_waiter(SourceCore *self, Waiter *waiter, PyObject *result);
/* The loop went round. */
void source_iterated(SourceCore *self);
/* Whether pieces of a large message are coming: completions.c saw to another look.  Who polls looks in any case. */
int source_is_moving(SourceCore *self);

int add_source(PyObject *module);

#endif
