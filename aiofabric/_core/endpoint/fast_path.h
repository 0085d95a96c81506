/* `send` and `recv` themselves. */
#ifndef AIOFABRIC_FAST_PATH_H
#define AIOFABRIC_FAST_PATH_H

#include "base/references.h"

int add_fast_path(PyObject *module);

#endif
