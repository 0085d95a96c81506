/* The handler of a server's usual call, in a task of its own. */
#ifndef AIOFABRIC_RPC_HANDLER_H
#define AIOFABRIC_RPC_HANDLER_H

#include "base/references.h"

int add_rpc_handler(PyObject *module);

#endif
