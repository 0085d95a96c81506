/* A received buffer as a message. */
#ifndef AIOFABRIC_UNPACK_H
#define AIOFABRIC_UNPACK_H

#include "inbox.h"
#include "references.h"

/* The message in a buffer, for the endpoint that receives it; the buffer is recycled. */
PyObject *inbox_unpack(InboxCore *self, PyObject *receiver, PyObject *item);

int add_unpack(PyObject *module);

#endif
