/* A received buffer as a message. */
#ifndef AIOFABRIC_UNPACK_H
#define AIOFABRIC_UNPACK_H

#include "base/references.h"
#include "messages/inbox.h"

/* The message in a buffer, for the endpoint that receives it; the buffer is recycled. */
PyObject *inbox_unpack(InboxCore *self, PyObject *receiver, PyObject *item);

int add_unpack(PyObject *module);

#endif
