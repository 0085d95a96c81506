/* Buffers that may travel: their bytes mean the same in another process. */
#ifndef AIOFABRIC_PLAIN_BUFFER_H
#define AIOFABRIC_PLAIN_BUFFER_H

#include "base/references.h"

/* 0, or -1 with a TypeError if the object is a buffer whose format holds pointers. */
int refuse_pointers(PyObject *object);

int add_plain_buffer(PyObject *module);

#endif
