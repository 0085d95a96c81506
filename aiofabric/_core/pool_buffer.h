/* One receive of a pool. */
#ifndef AIOFABRIC_POOL_BUFFER_H
#define AIOFABRIC_POOL_BUFFER_H

#include "receive_pool.h"
#include "references.h"

/* Address of the message; NULL with an exception if the message is longer than its receive. */
const char *pool_contents(PoolBuffer *self);

int add_pool_buffer(PyObject *module);

#endif
