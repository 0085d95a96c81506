/* Messages that arrived, and tasks that wait for one. */
#ifndef AIOFABRIC_INBOX_H
#define AIOFABRIC_INBOX_H

#include "base/fifo.h"
#include "base/references.h"
#include "progress/source.h"
#include "queue/waiter.h"

struct InboxCore;

/* The object that a receiving task awaits, a link of the inbox's list: receive_waiter.c. */
typedef struct ReceiveWaiter {
	Waiter waiter;		/* the task's waiter on asyncio; it shares this object's head */
	struct InboxCore *inbox;
	PyObject *other, *steps; /* the driver's waiter elsewhere, and its iterator once it is awaited */
	PyObject *receiver, *room; /* of a `Message`, or NULL for the buffer; longest message, or NULL */
	struct ReceiveWaiter *before, *behind; /* neighbours in the list; not counted as references */
	char enlisted, over;
} ReceiveWaiter;

typedef struct InboxCore {
	PyObject_HEAD
	PyObject *handle;
	SourceCore *source;
	Fifo *inbox;
	PyObject *ended, *sink, *on_end, *peer;
	PyObject *fed;		/* the buffer whose message the sink has now; None: none, or it was lent */
	ReceiveWaiter *waiting, *last; /* the tasks that wait for the next message, linked by `behind` */
	long long nwaiting, size, count, posted, messages, bytes, returned, lent;
} InboxCore;

extern PyTypeObject *InboxCore_Type;

int inbox_deliver(InboxCore *self, PyObject *item);
/* Append to the list of waiting tasks, and remove from it. */
void inbox_enlist(InboxCore *self, ReceiveWaiter *arrival);
void inbox_unlist(InboxCore *self, ReceiveWaiter *arrival);
/* Whether the message is longer than the caller's `room`, with the error set; -1 for another exception. */
int inbox_too_long(InboxCore *self, PyObject *item, PyObject *room);
/* For types that begin with an InboxCore. */
int inbox_traverse(PyObject *self, visitproc visit, void *arg);
int inbox_clear(PyObject *self);
void inbox_release(InboxCore *self);

int add_inbox(PyObject *module);

#endif
