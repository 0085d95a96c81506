/* A coroutine whose first step is C. */
#ifndef AIOFABRIC_CALL_H
#define AIOFABRIC_CALL_H

#include "references.h"

typedef struct Call Call;
/* 1: it is done, with the result; 0: `steps` is to be awaited; -1: an exception. */
typedef int beginning(Call *self, PyObject **result);

struct Call {
	PyObject_HEAD
	beginning *begin;
	const char *name;	/* what was called, behind its class */
	PyObject *target, *first, *second; /* whose, and with what */
	PyObject *steps;	/* NULL before it has begun, and when it is over */
	PyObject *weak;		/* weak references to it */
	char phase;
	char running;		/* a step of it is under way */
	char silent;		/* what `steps` returns is nobody's */
};

PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second);

int add_call(PyObject *module);

#endif
