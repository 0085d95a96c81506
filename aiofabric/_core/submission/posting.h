/* Making operations and posting them. */
#ifndef AIOFABRIC_POSTING_H
#define AIOFABRIC_POSTING_H

#include "base/references.h"
#include "operations/operation.h"
#include "submission/submission.h"

/*
 * tcp copies into the socket while it posts: 12 us for 64 KiB, 30 for 256 KiB, 95 for 1 MiB, 190 for 4 MiB. From this
 * size on other threads may run meanwhile. A shorter post ends before another thread has woken up; this thread would
 * then wait for the lock behind it.
 */
#define UNLOCKED_SIZE (512 << 10)

/* Make a registered operation, to be posted now; then return it, or None if the provider did not accept it. */
Operation *submission_prepare(SubmissionCore *self, PyObject *what, PyObject *pins, Py_ssize_t size);
PyObject *submission_call_returned(SubmissionCore *self, Operation *transfer, ssize_t rc);
/*
 * The finished operation if its completion is there, or comes during a poll, and the loop need not iterate first;
 * else None.
 */
PyObject *SubmissionCore_finished(SubmissionCore *self, PyObject *transfer);

int add_posting(PyObject *module);

#endif
