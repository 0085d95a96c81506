/* A message as its receiver gets it. */
#ifndef AIOFABRIC_MESSAGE_H
#define AIOFABRIC_MESSAGE_H

#include "base/references.h"

extern PyTypeObject *Message_Type;

/* A copy of these bytes; `data` is the sender's remote data, or NULL. */
PyObject *message_new(const char *bytes, Py_ssize_t size, PyObject *source, unsigned long long tag, const uint64_t *data);

int add_message(PyObject *module);

#endif
