/* The bounded look of an awaiting call, and what lets the loop sleep. */
#ifndef AIOFABRIC_ARMING_H
#define AIOFABRIC_ARMING_H

#include "source.h"

int source_poll(SourceCore *self);
int source_prepare_wait(SourceCore *self);
/* Read; look for a share of the open window if there is nothing at once. */
long long source_poll_once(SourceCore *self, long long now, int offering);
/* Whether it is safe to sleep on the descriptors; -1 for an exception. */
int source_is_quiet(SourceCore *self);
int source_arm(SourceCore *self);
int source_rest_readers(SourceCore *self);

int add_arming(PyObject *module);

#endif
