/* Messages that arrived, and those who wait for one. */
#ifndef AIOFABRIC_INBOX_H
#define AIOFABRIC_INBOX_H

#include "fifo.h"
#include "references.h"
#include "source.h"
#include "waiter.h"

struct InboxCore;

/* What is awaited, and its place among those who wait: receive_waiter.c. */
typedef struct ReceiveWaiter {
	Waiter waiter;		/* what its task waits with on asyncio: the head is this object's own */
	struct InboxCore *inbox;
	PyObject *other, *steps; /* what a driver's task waits with elsewhere, and its iterator once somebody awaits */
	PyObject *receiver, *room; /* who gets a `Message`, or NULL for the buffer; how long it may be, or NULL */
	struct ReceiveWaiter *before, *behind; /* among those who wait: not counted as references */
	char enlisted, over;
} ReceiveWaiter;

typedef struct InboxCore {
	PyObject_HEAD
	PyObject *handle;
	SourceCore *source;
	Fifo *inbox;
	PyObject *ended, *sink, *on_end, *peer;
	ReceiveWaiter *waiting, *last; /* who waits for the next message, by `behind` */
	long long nwaiting, size, count, posted, messages, bytes, returned, lent;
} InboxCore;

extern PyTypeObject *InboxCore_Type;

int inbox_deliver(InboxCore *self, PyObject *item);
/* Among those who wait, the last; and not any more. */
void inbox_enlist(InboxCore *self, ReceiveWaiter *arrival);
void inbox_unlist(InboxCore *self, ReceiveWaiter *arrival);
/* Whether it is longer than the caller's `room`, with the error set; -1 for another exception. */
int inbox_too_long(InboxCore *self, PyObject *item, PyObject *room);
/* For the types that begin with one. */
int inbox_traverse(PyObject *self, visitproc visit, void *arg);
int inbox_clear(PyObject *self);
void inbox_release(InboxCore *self);

int add_inbox(PyObject *module);

#endif
