/* Small messages, which the provider copies. */
#ifndef AIOFABRIC_INJECTION_H
#define AIOFABRIC_INJECTION_H

#include "base/references.h"
#include "submission/submission.h"

/*
 * Let the provider copy a small message, for a task. 1: the task continues; 2: it should let the loop iterate first;
 * 0: `post` is needed; -1: an exception.
 */
int submission_inject(SubmissionCore *self, PyObject *data, PyObject *tag);

/* As the method `inject`: 1: sent; 0: `post` is needed; -1: an exception. The caller has checked the thread. */
int submission_try_inject(SubmissionCore *self, PyObject *data);

int add_injection(PyObject *module);

#endif
