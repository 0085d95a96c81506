/* Which thread may use an endpoint now. */
#ifndef AIOFABRIC_THREAD_CHECK_H
#define AIOFABRIC_THREAD_CHECK_H

#include "references.h"

typedef struct {
	PyObject_HEAD
	unsigned long thread;
} Gate;

extern PyTypeObject *Gate_Type;

static inline int gate_admits(const Gate *self)
{
	return self->thread == PyThread_get_thread_ident();
}

int add_thread_check(PyObject *module);

#endif
