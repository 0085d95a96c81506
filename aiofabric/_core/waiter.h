/* What a task waits with on asyncio. */
#ifndef AIOFABRIC_WAITER_H
#define AIOFABRIC_WAITER_H

#include "references.h"
#include "wakeups.h"

extern PyTypeObject *Waiter_Type;

PyObject *waiter_new(Waker *waker);
/* Whether it waited for this answer: 1 or 0; -1 for an exception. */
int waiter_set_result(Waiter *self, PyObject *result);
/* For those that have one within, too. */
PySendResult waiter_step(Waiter *self, PyObject **result);
PyObject *waiter_throw(Waiter *self, PyObject *args);
void waiter_release(Waiter *self);

int add_waiter(PyObject *module);

#endif
