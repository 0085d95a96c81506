/* The part that the core's coroutines, `Call` and `Handling`, have in common: phases, and the answers to `inspect`. */
#ifndef AIOFABRIC_COROUTINE_H
#define AIOFABRIC_COROUTINE_H

#include "base/references.h"

enum coroutine_phase { COROUTINE_CREATED, COROUTINE_GOING, COROUTINE_OVER };

/* The beginning of such an object. */
typedef struct {
	PyObject_HEAD
	PyObject *steps;	/* the awaited object; NULL before the first step, and when all are over */
	PyObject *weak;		/* weak references to the coroutine */
	char phase;
	char running;		/* a step is running now */
} Coroutine;

/*
 * 1, with an exception: a step is running, and its objects are in use; or, if `over`, the last step was taken. A refused
 * call changes nothing. The second form is for `send`.
 */
int coroutine_refuses(const Coroutine *self, int over);
int coroutine_refuses_value(const Coroutine *self, PyObject *value);
/* `close` of the awaited object, if it has one. 0, or -1 with an exception. */
int coroutine_close_steps(const Coroutine *self);

/* Slots and attributes of a type. */
PyObject *coroutine_await(Coroutine *self);
PyObject *coroutine_get_suspended(Coroutine *self, void *unused);
/* `cr_frame` before the first step: there is no frame of its own yet, but `inspect` takes None for closed. */
PyObject *coroutine_first_frame(void);

#define COROUTINE_MEMBERS                                                                                              \
	{"cr_running", T_BOOL, offsetof(Coroutine, running), READONLY, "As of a coroutine."},                          \
	{"cr_await", T_OBJECT, offsetof(Coroutine, steps), READONLY, "As of a coroutine: the awaited object, or None."}, \
	{"__weaklistoffset__", T_PYSSIZET, offsetof(Coroutine, weak), READONLY}

int add_coroutine(PyObject *module);

#endif
