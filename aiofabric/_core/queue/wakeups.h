/* Resumes the tasks of an asyncio loop. */
#ifndef AIOFABRIC_WAKEUPS_H
#define AIOFABRIC_WAKEUPS_H

#include "base/fifo.h"
#include "base/references.h"

#define SPARE 64 /* most futures kept for reuse */

typedef struct {
	PyObject_HEAD
	PyObject *loop, *call_soon;
	PyObject *done_future;		/* a done future: the argument of the tasks' callbacks */
	PyTypeObject *future_type;	/* of the loop's futures */
	PyObject *remove_done_callback;	/* their method */
	traverseproc traverse;	/* of asyncio's C future; NULL for another kind */
	PyObject *blocking_descriptor;	/* of asyncio's C future: the descriptor of `_asyncio_future_blocking` */
	descrsetfunc set_attribute;	/* sets the attribute through that descriptor */
	PyTypeObject *callback_type; /* type of the callback that was left last */
	PyObject *spare[SPARE];
	int nspare;
	Fifo *woken;		/* Waiters whose tasks resume soon, and functions that are called then */
	long long functions_finished;	/* functions that did all their work: handlers, and protocols that answered */
	long long passes;	/* passes under way: tasks resume when the last one ends */
	long long longest_run;	/* ns for which one callback may resume tasks */
	char scheduled;		/* whether a callback of the loop is scheduled to resume them */
	char resuming;		/* that callback is resuming tasks now */
	char overdue;		/* tasks are left that took too long for one callback: the loop iterates first */
} Waker;

typedef struct {
	PyObject_HEAD
	Waker *waker;
	PyObject *future;	/* the future that the task awaits; NULL before and afterwards */
	PyObject *result;	/* NULL before it has come */
} Waiter;

extern PyTypeObject *Waker_Type;

/* The driver's Waker, or None; NULL for an exception. */
Waker *waker_of(PyObject *driver);
/* A future that a task may await: `_asyncio_future_blocking` is set, as the future's own `__await__` does. */
PyObject *waker_acquire_future(Waker *self);
/* The task resumes at the end of the pass, or soon. */
int waker_wake(Waker *self, Waiter *waiter);
/* `function` is called at the end of the pass, or soon; outside of any task. */
int waker_call(Waker *self, PyObject *function);
/* Tasks that get results from here on resume when `waker_resume` is called. Call it outside of any task only. */
void waker_enter_pass(Waker *self);
/* An exception that is set stays set, and then the tasks resume later. */
int waker_resume(Waker *self);
/* The tasks resume together with the next ones, or in a callback of the loop. */
int waker_defer(Waker *self);

int add_wakeups(PyObject *module);

#endif
