/* One `bytes` from pieces. */
#ifndef AIOFABRIC_ASSEMBLY_H
#define AIOFABRIC_ASSEMBLY_H

#include "base/references.h"

int add_assembly(PyObject *module);

#endif
