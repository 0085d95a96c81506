/* Multi-callables, and the fast path to begin their calls. */
#ifndef AIOFABRIC_RPC_STUB_H
#define AIOFABRIC_RPC_STUB_H

#include "base/references.h"

int add_rpc_stub(PyObject *module);

#endif
