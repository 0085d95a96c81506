/* An RPC connection, and its output. */
#ifndef AIOFABRIC_RPC_CONNECTION_H
#define AIOFABRIC_RPC_CONNECTION_H

#include "base/references.h"
#include "progress/source.h"
#include "rpc/call.h"

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

/* The memory that a server may use for messages, and for the metadata of calls: rpc/protocol/flow.py. */
typedef struct {
	PyObject_HEAD
	long long used, limit, running;
} BudgetCore;

extern PyTypeObject *ConnectionCore_Type, *BudgetCore_Type;

/* 0, with an exception: the connection was not initialised, or the collector has cleared it. */
int rpc_connection_ready(const ConnectionCore *self);
/* Whether another call can begin now. */
int rpc_connection_is_usable(const ConnectionCore *self);
/* Add a call to `calls`. */
int rpc_connection_enter(ConnectionCore *self, CallCore *call);
/* Send a frame now. 1: the provider has it; 0: it must wait in `output`; -1: an exception. */
int rpc_connection_send_now(ConnectionCore *self, PyObject *frame);
/* Send a frame now, or keep it in `output`. */
int rpc_connection_emit(ConnectionCore *self, PyObject *frame);
/* The source of the endpoint, not a new reference; NULL if Python sends the frames. */
SourceCore *rpc_connection_source(const ConnectionCore *self);

int add_rpc_connection(PyObject *module);

#endif
