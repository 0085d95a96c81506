/* Awaited sends. */
#ifndef AIOFABRIC_SEND_H
#define AIOFABRIC_SEND_H

#include "base/references.h"
#include "submission/submission.h"

/* A coroutine that returns when the message is sent, see `Sends.send`. For loops whose awaits need no checkpoint. */
PyObject *send_call(SubmissionCore *self, PyObject *sender, PyObject *data);

int add_send(PyObject *module);

#endif
