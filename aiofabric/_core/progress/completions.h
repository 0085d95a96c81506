/* Reading the queue of a source, and dispatching its completions. */
#ifndef AIOFABRIC_COMPLETIONS_H
#define AIOFABRIC_COMPLETIONS_H

#include "progress/source.h"

#define BUDGET 256 /* completions of one pass, then other callbacks run */

/* Read the queue once and dispatch; returns how many completions, or -1. `offering`: yield the core first. */
long long source_read(SourceCore *self, long long window, int offering);
/*
 * Whether the read that dispatches now has further completions. Then `source_call_after_read` calls the function
 * `read_ended` of this sink behind them.
 */
static inline int source_reads_on(const SourceCore *self)
{
	return self->reading.behind > 0;
}

int source_call_after_read(SourceCore *self, PyObject *sink);
/* A completion that is dispatched is of an operation that no task waits for. */
void source_count_unawaited(SourceCore *self);
/* Whether the queue probably has more than the last read returned, and `moved` is still below BUDGET. */
int source_has_more(const SourceCore *self, long long moved);
/* Report an exception through a method of the source, and go on. Ctrl-C and SystemExit propagate: -1. */
int source_report(SourceCore *self, PyObject *name);

int add_completions(PyObject *module);

#endif
