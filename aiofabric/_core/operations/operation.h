/* A posted call: slot, waiter and pins. */
#ifndef AIOFABRIC_OPERATION_H
#define AIOFABRIC_OPERATION_H

#include "base/references.h"
#include "operations/slots.h"

enum state { NEW, QUEUED, POSTED, CANCELLING, ABANDONED, FINISHED, STATES };

typedef struct {
	PyObject_HEAD
	PyObject *what, *owner, *pins, *registrations, *error, *notify, *orphaned, *post, *source;
	Slot *slot;
	unsigned long long flags, data, tag;
	unsigned long long wanted_tag; /* tag of a receive that was posted from C */
	long long room, length;
	unsigned long long memory; /* where a receive of `room` bytes into the caller's memory begins; 0: none */
	char state, tagged;
	char unawaited;		/* no task waits for its completion */
} Operation;

extern PyTypeObject *Operation_Type;

int operation_move(Operation *self, enum state state);
int operation_complete(Operation *self, PyObject *error);
int operation_release_registrations(Operation *self);
PyObject *operation_result(Operation *self);
/* Whether a receive that was posted from C got the message that was wanted. */
int operation_is_received(const Operation *self);
/* For types that begin with an Operation. */
int operation_fill(Operation *self, PyObject *what, PyObject *owner, PyObject *slot, PyObject *pins, PyObject *registrations,
		   long long length);
int operation_traverse(Operation *self, visitproc visit, void *arg);
int operation_clear(Operation *self);
void operation_dealloc(Operation *self);

int add_operation(PyObject *module);

#endif
