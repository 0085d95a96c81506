/* A coroutine whose first step is C. */
#ifndef AIOFABRIC_CALL_H
#define AIOFABRIC_CALL_H

#include "references.h"

typedef struct Call Call;
/* 1: done, with the result; 0: `steps` must be awaited; -1: an exception. */
typedef int beginning(Call *self, PyObject **result);

struct Call {
	PyObject_HEAD
	beginning *begin;
	const char *name;	/* class and name of the called method */
	PyObject *target, *first, *second; /* the object that was called, and the arguments */
	PyObject *steps;	/* NULL before the call begins, and when it is over */
	PyObject *weak;		/* weak references to it */
	char phase;
	char running;		/* a step is running now */
	char silent;		/* the result of `steps` is dropped; the call returns None */
};

PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second);

int add_call(PyObject *module);

#endif
