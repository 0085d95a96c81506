/* Methods whose usual call runs in C. */
#ifndef AIOFABRIC_FAST_METHOD_H
#define AIOFABRIC_FAST_METHOD_H

#include "base/references.h"

/*
 * The usual call, with the targets that the object's `_calls_go_by` got: check their type. NULL without an exception: the
 * Python function handles the call. `args[0]` is the object.
 */
typedef PyObject *fast_call(PyObject *fast_path, PyObject *const *args, Py_ssize_t count);

/* The function, except that `call` serves calls with `least` to `most` positional arguments, the object included. */
PyObject *fast_method_new(PyObject *function, fast_call *call, Py_ssize_t least, Py_ssize_t most);

int add_fast_method(PyObject *module);

#endif
