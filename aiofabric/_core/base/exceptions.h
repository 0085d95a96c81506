/* For steps that must all run, also after an exception: the first exception is raised at the end. */
#ifndef AIOFABRIC_EXCEPTIONS_H
#define AIOFABRIC_EXCEPTIONS_H

#include "base/references.h"

/* Initialise it with NO_EXCEPTION. */
struct first_exception {
	PyObject *type, *error, *traceback;
};

#define NO_EXCEPTION {NULL, NULL, NULL}

/* Take the exception that is set. If there was one before, sys.unraisablehook gets this one, with `where`. */
void exception_keep(struct first_exception *first, void *where);
/* -1, with the first exception set; 0 if there was none. */
int exception_raise(struct first_exception *first);

/* Raise TypeError: expected `what`, got an object of another type. `got` may be NULL: an attribute that is deleted. */
void raise_expected(const char *what, PyObject *got);
/* Raise TypeError: expected the arguments `what`, got `count`, or some of other types. */
void raise_arguments(const char *what, Py_ssize_t count);

/*
 * Pass the callback to the loop's call_soon. Ctrl-C may interrupt call_soon before it has queued the callback, and the
 * tasks that wait for it would wait for ever. So call_soon is called once more, and then the exception is raised. The
 * callback must bear a second call.
 */
int call_soon_despite_interrupt(PyObject *call_soon, PyObject *callback);

#endif
