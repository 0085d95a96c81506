/* A coroutine whose first step is C. */
#ifndef AIOFABRIC_CALL_H
#define AIOFABRIC_CALL_H

#include "base/coroutine.h"
#include "base/references.h"

typedef struct Call Call;
/* 1: done, with the result; 0: `steps` must be awaited; -1: an exception. */
typedef int beginning(Call *self, PyObject **result);

struct Call {
	Coroutine base;
	beginning *begin;
	const char *name;	/* class and name of the called method */
	PyObject *target, *first, *second; /* the object that was called, and the arguments */
	char silent;		/* the result of its steps is dropped; the call returns None */
};

/* `first` may be NULL: the method has no argument. */
PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second);

int add_call(PyObject *module);

#endif
