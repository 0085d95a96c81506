/* Reading the queue of a source, and settling what it has. */
#ifndef AIOFABRIC_COMPLETIONS_H
#define AIOFABRIC_COMPLETIONS_H

#include "source.h"

#define BUDGET 256 /* completions of one turn, then other callbacks get their chance */

/* Read the queue once, and settle that; how many completions it were, or -1.  `offering`: the core first. */
long long source_read(SourceCore *self, long long window, int offering);
/* Whether there is probably more than the last read brought, with room for that after so many. */
int source_has_more(const SourceCore *self, long long moved);
/* Have an exception told by a method of the source's, and go on; Ctrl-C and the like go on by themselves: -1. */
int source_report(SourceCore *self, PyObject *name);

int add_completions(PyObject *module);

#endif
