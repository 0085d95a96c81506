/* The state of one RPC call that its connection reads and writes for each message. */
#ifndef AIOFABRIC_RPC_CALL_H
#define AIOFABRIC_RPC_CALL_H

#include "base/references.h"

typedef struct {
	PyObject_HEAD
	PyObject *owner, *connection, *method, *deadline, *status, *initial_metadata;
	PyObject *queue, *partial, *unread; /* see rpc/protocol/calls.py; NULL: None */
	unsigned long long id;
	long long credits, window, outstanding, receive_window, queued, owed, budget_used;
	long long held;	/* of a server's budget, for the call's metadata */
	char over, sent_end, received_end, in_rotation, unsent;
} CallCore;

/* The call of a client, with all its attempts: see rpc/channel/call.py. */
typedef struct {
	CallCore call;
	PyObject *channel, *wait_for_ready;
	PyObject *replay, *retries;	/* the messages for another attempt; the rules for it */
	PyObject *final, *received;	/* a unary call's: the status and the response that the program sees */
	PyObject *receiver, *waiters;	/* the task that waits for the response; tasks that wait for anything else */
	PyObject *running;		/* of a plain call: the set of its channel's running calls */
	long long replay_size;
	char attached, wants_end;
	char plain;			/* a response with OK is only stored, and its tasks are woken */
	char answered;			/* that has happened */
} ClientCallCore;

extern PyTypeObject *CallCore_Type, *ClientCallCore_Type;

/* Whether a field holds nothing: T_OBJECT reads NULL as None. */
static inline int is_none(const PyObject *field)
{
	return !field || field == Py_None;
}

int add_rpc_call(PyObject *module);

#endif
