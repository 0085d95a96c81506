/* The state of one RPC call that its connection reads and writes for each message. */
#ifndef AIOFABRIC_RPC_CALL_H
#define AIOFABRIC_RPC_CALL_H

#include "references.h"

typedef struct {
	PyObject_HEAD
	PyObject *owner, *connection, *method, *deadline, *status, *initial_metadata;
	PyObject *queue, *partial, *unread; /* see rpc/protocol/calls.py; NULL: None */
	unsigned long long id;
	long long credits, window, outstanding, receive_window, queued, owed, held;
	char over, sent_end, received_end, in_rotation, unsent;
} CallCore;

extern PyTypeObject *CallCore_Type;

int add_rpc_call(PyObject *module);

#endif
