/* The frames of the usual RPC calls. */
#ifndef AIOFABRIC_RPC_CONNECTION_H
#define AIOFABRIC_RPC_CONNECTION_H

#include "references.h"

int add_rpc_connection(PyObject *module);

#endif
