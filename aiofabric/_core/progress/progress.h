/* Called by the event loop. */
#ifndef AIOFABRIC_PROGRESS_H
#define AIOFABRIC_PROGRESS_H

#include "base/references.h"

int add_progress(PyObject *module);

#endif
