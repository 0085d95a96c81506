/* The frames of a server's usual calls. */
#ifndef AIOFABRIC_RPC_SERVER_FRAMES_H
#define AIOFABRIC_RPC_SERVER_FRAMES_H

#include "base/references.h"
#include "rpc/call.h"
#include "rpc/connection.h"

/* A START with one small request and nothing else. 1: done; 0: the method in Python is needed; -1: an exception. */
int rpc_read_start(ConnectionCore *self, int flags, int field, uint64_t id, const char *payload, Py_ssize_t length);
/* End a call with OK and one small message. 1: done; 0: it needs more than one frame; -1: an exception. */
int rpc_server_conclude(ConnectionCore *self, CallCore *call, PyObject *message);

int add_rpc_server_frames(PyObject *module);

#endif
