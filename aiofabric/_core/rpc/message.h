/* Messages of RPC as bytes. */
#ifndef AIOFABRIC_RPC_MESSAGE_H
#define AIOFABRIC_RPC_MESSAGE_H

#include "base/references.h"

/* The bytes of a message, made by `serializer` if that is not None; NULL with an exception. */
PyObject *rpc_serialized(PyObject *message, PyObject *serializer);
/* The same on a server, whose handlers may return text, as in grpc.aio. */
PyObject *rpc_serialized_response(PyObject *message, PyObject *serializer);

int add_rpc_message(PyObject *module);

#endif
