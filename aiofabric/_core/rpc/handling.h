/* The coroutine that handles one call of a server, and the objects that it works on. */
#ifndef AIOFABRIC_RPC_HANDLING_H
#define AIOFABRIC_RPC_HANDLING_H

#include "base/references.h"
#include "rpc/call.h"
#include "rpc/task_set.h"

/* The call, with all that its handler has set: see rpc/grpc/server/rpc.py. */
typedef struct {
	CallCore call;
	PyObject *first;	/* the request that came with START */
	PyObject *task;
	PyObject *aborted;	/* the AbortError that `abort` has raised */
	PyObject *code, *details, *trailing, *trailing_given; /* the status, as the handler gave it; NULL: not yet */
	PyObject *callbacks, *burst;
	long long code_number;
	char decided, gone;
} ServerRpcCore;

/* How the calls of one method are handled. */
typedef struct {
	PyObject_HEAD
	PyObject *behaviour, *deserializer, *serializer, *context_type;
	PyObject *handle_any;	/* handles any call */
	PyObject *failed;	/* ends a call whose handler raised; false: raise it again */
	PyObject *ended;	/* calls the done callbacks */
	TaskSet *tasks;
	PyObject *context;	/* each task gets a copy */
} HandlerPlan;

/* For a call whose request has arrived. */
PyObject *handling_new(HandlerPlan *plan, ServerRpcCore *rpc);

int add_rpc_handling(PyObject *module);

#endif
