/* Making operations and posting them. */
#ifndef AIOFABRIC_POSTING_H
#define AIOFABRIC_POSTING_H

#include "operation.h"
#include "references.h"
#include "submission.h"

/* A new operation that `operations` knows, to be posted now; and then it, or None where the provider did not take it. */
Operation *submission_prepare(SubmissionCore *self, PyObject *what, PyObject *pins, Py_ssize_t size);
PyObject *submission_call_returned(SubmissionCore *self, Operation *transfer, ssize_t rc);
/* The answer is there, or comes while we look, and the loop need not go round first: the operation.  Else None. */
PyObject *SubmissionCore_finished(SubmissionCore *self, PyObject *transfer);

int add_posting(PyObject *module);

#endif
