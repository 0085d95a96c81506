/* The awaitable of an operation. */
#ifndef AIOFABRIC_PENDING_RESULT_H
#define AIOFABRIC_PENDING_RESULT_H

#include "base/references.h"
#include "submission/submission.h"

PyObject *SubmissionCore_outcome(SubmissionCore *self, PyObject *transfer);

int add_pending_result(PyObject *module);

#endif
