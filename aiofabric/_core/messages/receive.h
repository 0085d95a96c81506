/* Receives into the caller's memory. */
#ifndef AIOFABRIC_RECEIVE_H
#define AIOFABRIC_RECEIVE_H

#include "base/references.h"

int add_receive(PyObject *module);

#endif
