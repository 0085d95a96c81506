/* What is awaited: the protocol of coroutines. */
#ifndef AIOFABRIC_AWAITABLE_H
#define AIOFABRIC_AWAITABLE_H

#include "references.h"

/* Of a type with am_send: its __iter__ and am_await, __next__, and send. */
PyObject *awaitable_self(PyObject *self);
PyObject *awaitable_next(PyObject *self);
PyObject *awaitable_send(PyObject *self, PyObject *value);
/* What am_send gave, as `send` and `throw` give it. */
PyObject *awaitable_value(PySendResult how, PyObject *result);
/* What `throw` does that has nobody else to throw it to: NULL. */
PyObject *awaitable_raise(PyObject *args);
/* What somebody else's `throw` does. */
PyObject *awaitable_throw(PyObject *steps, PyObject *args);
/* Those of a driver's waiter. */
PyObject *awaitable_of(PyObject *waiter);

int add_awaitable(PyObject *module);

#endif
