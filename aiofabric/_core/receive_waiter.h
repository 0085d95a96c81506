/* What is awaited for a message that is still to come. */
#ifndef AIOFABRIC_RECEIVE_WAITER_H
#define AIOFABRIC_RECEIVE_WAITER_H

#include "inbox.h"
#include "references.h"

/* It waits already.  Without a `receiver`, who gets a `Message`, the answer is the buffer, unless longer than `room`. */
ReceiveWaiter *receive_waiter_new(InboxCore *inbox, PyObject *receiver, PyObject *room);

int add_receive_waiter(PyObject *module);

#endif
