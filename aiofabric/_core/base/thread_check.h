/* The thread that may use an endpoint now. */
#ifndef AIOFABRIC_THREAD_CHECK_H
#define AIOFABRIC_THREAD_CHECK_H

#include "base/references.h"

typedef struct {
	PyObject_HEAD
	unsigned long thread;
} ThreadCheck;

extern PyTypeObject *ThreadCheck_Type;

static inline int thread_check_admits(const ThreadCheck *self)
{
	return self->thread == PyThread_get_thread_ident();
}

int add_thread_check(PyObject *module);

#endif
