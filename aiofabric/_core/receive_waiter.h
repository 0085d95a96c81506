/* What is awaited for a message that is still to come. */
#ifndef AIOFABRIC_RECEIVE_WAITER_H
#define AIOFABRIC_RECEIVE_WAITER_H

#include "inbox.h"
#include "references.h"

/* It waits already.  The `receiver` gets a `Message`; without one it is the buffer, if that is no longer than `room`, or NULL. */
Arrival *arrival_new(InboxCore *inbox, PyObject *receiver, PyObject *room);

int add_receive_waiter(PyObject *module);

#endif
