/* The bounded poll of an awaiting call, and how the next pass comes. */
#ifndef AIOFABRIC_ARMING_H
#define AIOFABRIC_ARMING_H

#include "progress/source.h"

/* An operation was posted: schedule a pass. */
int source_schedule(SourceCore *self);
/* The pass that was scheduled has begun. */
void source_begin_scheduled_pass(SourceCore *self);
/* The queue must be armed again before the loop sleeps. */
void source_disarm(SourceCore *self);
/* The loop has iterated. */
void source_iterated(SourceCore *self);
/* The same at the beginning of a pass, before the tasks behind it have run. */
void source_begin_pass(SourceCore *self);
int source_poll(SourceCore *self);
int source_prepare_wait(SourceCore *self);
/* Read; if the queue is empty, poll for a share of the open window. 0: nothing came that a task may wait for. */
long long source_poll_once(SourceCore *self, long long now, int offering);
/* Whether it is safe to sleep on the descriptors; -1 for an exception. */
int source_is_quiet(SourceCore *self);
int source_arm(SourceCore *self);
/* The queue was found quiet, and nothing was read since: the loop may sleep. */
int source_stay_armed(SourceCore *self);
/* Before a task lets the loop iterate: arm the queue if it is quiet. 0 or -1. */
int source_arm_if_quiet(SourceCore *self);

int add_arming(PyObject *module);

#endif
