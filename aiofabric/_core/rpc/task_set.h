/* Tasks of asyncio that belong to a server. */
#ifndef AIOFABRIC_TASK_SET_H
#define AIOFABRIC_TASK_SET_H

#include "base/references.h"

typedef struct TaskSet TaskSet;

extern PyTypeObject *TaskSet_Type;

/* A new task; NULL with an exception. `context`, `on_end` and `name` may be None. */
PyObject *task_set_start(TaskSet *self, PyObject *coroutine, PyObject *context, PyObject *on_end, PyObject *name);

int add_task_set(PyObject *module);

#endif
