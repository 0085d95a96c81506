/* The object that a task awaits on asyncio. */
#ifndef AIOFABRIC_WAITER_H
#define AIOFABRIC_WAITER_H

#include "base/references.h"
#include "queue/wakeups.h"

extern PyTypeObject *Waiter_Type;

PyObject *waiter_new(Waker *waker);
/* 1: the waiter has this result now; 0: it had one already; -1: an exception. */
int waiter_set_result(Waiter *self, PyObject *result);
/* Also for types that begin with a Waiter. */
PySendResult waiter_step(Waiter *self, PyObject **result);
PyObject *waiter_throw(Waiter *self, PyObject *args);
void waiter_release(Waiter *self);

int add_waiter(PyObject *module);

#endif
