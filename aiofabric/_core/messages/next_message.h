/* The next message of an inbox. */
#ifndef AIOFABRIC_NEXT_MESSAGE_H
#define AIOFABRIC_NEXT_MESSAGE_H

#include "base/references.h"
#include "base/thread_check.h"
#include "messages/inbox.h"

/* A coroutine that returns the next message, copied, for this receiver. */
PyObject *receive_call(InboxCore *self, PyObject *receiver, ThreadCheck *thread_check);

int add_next_message(PyObject *module);

#endif
