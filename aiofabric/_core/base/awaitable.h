/* The coroutine protocol of awaitable objects. */
#ifndef AIOFABRIC_AWAITABLE_H
#define AIOFABRIC_AWAITABLE_H

#include "base/references.h"

/* For a type with am_send: its __iter__ and am_await, __next__, and send. */
PyObject *awaitable_self(PyObject *self);
PyObject *awaitable_next(PyObject *self);
PyObject *awaitable_send(PyObject *self, PyObject *value);
/* Turn the outcome of am_send into that of `send` and `throw`. */
PyObject *awaitable_value(PySendResult how, PyObject *result);
/* `throw` without an inner awaitable: sets the exception and returns NULL. */
PyObject *awaitable_raise(PyObject *args);
/* Pass `throw` on to an inner awaitable. */
PyObject *awaitable_throw(PyObject *steps, PyObject *args);
/* The steps of a driver's waiter. */
PyObject *awaitable_of(PyObject *waiter);

int add_awaitable(PyObject *module);

#endif
