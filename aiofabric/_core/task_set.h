/* Tasks of asyncio that belong to a server. */
#ifndef AIOFABRIC_TASK_SET_H
#define AIOFABRIC_TASK_SET_H

#include "references.h"

int add_task_set(PyObject *module);

#endif
