/* One receive of a pool. */
#ifndef AIOFABRIC_POOL_BUFFER_H
#define AIOFABRIC_POOL_BUFFER_H

#include "base/references.h"

int add_pool_buffer(PyObject *module);

#endif
