/* Messages with their lengths in front. */
#ifndef AIOFABRIC_LENGTH_PREFIX_H
#define AIOFABRIC_LENGTH_PREFIX_H

#include "base/references.h"

int add_length_prefix(PyObject *module);

#endif
