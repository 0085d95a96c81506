/* The calls of byte streams that run in C. */
#ifndef AIOFABRIC_STREAM_H
#define AIOFABRIC_STREAM_H

#include "base/references.h"

int add_stream(PyObject *module);

#endif
