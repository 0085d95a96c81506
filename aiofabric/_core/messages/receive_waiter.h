/* The awaitable of a message that is still to come. */
#ifndef AIOFABRIC_RECEIVE_WAITER_H
#define AIOFABRIC_RECEIVE_WAITER_H

#include "base/references.h"
#include "messages/inbox.h"

/*
 * It is in the list already. Its result is a `Message` for the `receiver`; without a receiver the buffer, unless
 * longer than `room`.
 */
ReceiveWaiter *receive_waiter_new(InboxCore *inbox, PyObject *receiver, PyObject *room);

int add_receive_waiter(PyObject *module);

#endif
