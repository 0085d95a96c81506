/* The frames of a client's usual calls. */
#ifndef AIOFABRIC_RPC_CLIENT_FRAMES_H
#define AIOFABRIC_RPC_CLIENT_FRAMES_H

#include "base/references.h"
#include "rpc/call.h"
#include "rpc/connection.h"

/*
 * Begin a call with one message, without a deadline, on a usable connection. 1: it has begun; 0: it needs more than a
 * START frame, and nothing has happened; -1: an exception.
 */
int rpc_client_begin(ConnectionCore *self, CallCore *call, PyObject *method, PyObject *message);
/* A STATUS with OK and the response of a call. 1: done; 0: the method in Python is needed; -1: an exception. */
int rpc_read_status(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t size);

int add_rpc_client_frames(PyObject *module);

#endif
