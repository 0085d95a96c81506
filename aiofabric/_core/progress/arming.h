/* The bounded poll of an awaiting call, and the steps that let the loop sleep. */
#ifndef AIOFABRIC_ARMING_H
#define AIOFABRIC_ARMING_H

#include "progress/source.h"

int source_poll(SourceCore *self);
int source_prepare_wait(SourceCore *self);
/* Read; if the queue is empty, poll for a share of the open window. */
long long source_poll_once(SourceCore *self, long long now, int offering);
/* Whether it is safe to sleep on the descriptors; -1 for an exception. */
int source_is_quiet(SourceCore *self);
int source_arm(SourceCore *self);
int source_rest_readers(SourceCore *self);

int add_arming(PyObject *module);

#endif
