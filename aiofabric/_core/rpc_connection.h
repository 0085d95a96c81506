/* The frames of the usual RPC calls. */
#ifndef AIOFABRIC_RPC_CONNECTION_H
#define AIOFABRIC_RPC_CONNECTION_H

#include "references.h"
#include "rpc_call.h"
#include "source.h"

typedef struct {
	PyObject_HEAD
	PyObject *calls, *handlers;		/* dicts: by id, and by kind of frame */
	PyObject *output;			/* list of frames that wait */
	PyObject *send_now, *flush, *failed, *goaway_sent;
	PyObject *budget;
	PyObject *method_indexes, *status_ok;	/* of a client */
	PyObject *method_names, *new_call, *admits; /* of a server */
	unsigned long long next_id, highest;
	long long small, window, receive_window, most_in_status, max_message, max_calls, running, peer_max_calls;
	double now;
	char peer_known, retired;
} ConnectionCore;

extern PyTypeObject *ConnectionCore_Type;

/* Whether another call can begin now. */
int rpc_connection_is_usable(const ConnectionCore *self);
/*
 * Begin a call with one message, without a deadline, on a usable connection. 1: it has begun; 0: it needs more than a
 * START frame, and nothing has happened; -1: an exception.
 */
int rpc_connection_begin(ConnectionCore *self, CallCore *call, PyObject *method, PyObject *message);
/* End a server's call with OK and one small message. 1: done; 0: it needs more than one frame; -1: an exception. */
int rpc_connection_conclude(ConnectionCore *self, CallCore *call, PyObject *message);
/* The source of the endpoint, not a new reference; NULL if Python sends the frames. */
SourceCore *rpc_connection_source(const ConnectionCore *self);

int add_rpc_connection(PyObject *module);

#endif
