/* How long to poll a queue before sleeping on its descriptor. */
#ifndef AIOFABRIC_POLLING_H
#define AIOFABRIC_POLLING_H

#include "base/references.h"

typedef struct {
	PyObject_HEAD
	long long limit, length, skip, streak, late, hits, misses;
} Window;

typedef struct {
	PyObject_HEAD
	Window *window;
	long long deadline, awake_until, begun;
	char never, polls, asked, displaced;
} Polling;

extern PyTypeObject *Polling_Type;

void polling_open(Polling *self, long long now);
void polling_end(Polling *self);
/* The wait ended after a sleep. */
void polling_woken(Polling *self, long long now);
/* Whether completions came so late that not even one poll is due now; arming finds those that came anyway. */
int polling_is_pointless(const Polling *self);
/* Pieces of a large message are coming: another poll is due, whatever the window has learned. */
void polling_extend(Polling *self, long long now);
/* Whether the next iteration should poll again. */
int polling_continues(Polling *self, long long now, long long moved);
/* Nanoseconds of this wait's window for one poll; 0: read once. Opens the window if it is not open. */
long long polling_share(Polling *self, long long now);
void polling_learn(Polling *self, long long now, long long share, long long found, long long gap);

int add_polling(PyObject *module);

#endif
