/* Lets the tasks of an asyncio loop go on. */
#ifndef AIOFABRIC_WAKEUPS_H
#define AIOFABRIC_WAKEUPS_H

#include "fifo.h"
#include "references.h"

#define SPARE 64 /* most futures that are kept to be used again */

typedef struct {
	PyObject_HEAD
	PyObject *loop, *call_soon;
	PyObject *done_future;		/* the future that tasks are told of when they go on: a done one */
	PyTypeObject *kind;	/* of the loop's futures */
	PyObject *remove;	/* its remove_done_callback */
	traverseproc traverse;	/* of asyncio's in C; NULL for another kind */
	PyObject *blocking;	/* of asyncio's in C: its descriptor of `_asyncio_future_blocking` */
	descrsetfunc set;	/* what sets by that */
	PyTypeObject *callback_kind; /* of the callback that was left last */
	PyObject *spare[SPARE];
	int nspare;
	Fifo *answered;		/* Waiters whose tasks go on soon */
	long long held;		/* turns at whose end they do */
	char scheduled;		/* whether a callback of the loop's will see to them */
	char going;		/* they go on now, in that callback */
} Waker;

typedef struct {
	PyObject_HEAD
	Waker *waker;
	PyObject *future;	/* what the task waits for; NULL before it does, and afterwards */
	PyObject *result;	/* NULL before it is answered */
} Waiter;

extern PyTypeObject *Waker_Type;

/* A driver's, or None; NULL for an exception. */
Waker *waker_of(PyObject *driver);
/* One that a task may await: `_asyncio_future_blocking` is set, as its own `__await__` does. */
PyObject *waker_acquire_future(Waker *self);
/* It goes on at the end of the turn, or soon. */
int waker_wake(Waker *self, Waiter *waiter);
/* Those who are answered from here on go on when `waker_resume` is called: outside of any task only. */
void waker_hold(Waker *self);
/* An exception that is set stays so, and they go on later. */
int waker_resume(Waker *self);
/* They go on with the next who do, or in a callback of the loop's. */
int waker_defer(Waker *self);

int add_wakeups(PyObject *module);

#endif
