/* Call objects of programs, and the wait for the one response of a call. */
#ifndef AIOFABRIC_RPC_RESPONSE_H
#define AIOFABRIC_RPC_RESPONSE_H

#include "base/references.h"
#include "rpc/call.h"

typedef struct {
	PyObject_HEAD
	PyObject *rpc;		/* a ClientCallCore */
	PyObject *deserializer;
	PyObject *response;	/* NULL: it was not awaited yet */
	PyObject *weak;
} CallObject;

/* A call object of this type, which inherits from ResponseCore; NULL with an exception. */
PyObject *rpc_response_new(PyTypeObject *type, ClientCallCore *rpc, PyObject *deserializer);
/* Whether a type inherits from ResponseCore. */
int rpc_response_is_type(PyObject *type);

int add_rpc_response(PyObject *module);

#endif
