/* How long to look at a queue before sleeping on its descriptor. */
#ifndef AIOFABRIC_POLLING_H
#define AIOFABRIC_POLLING_H

#include "references.h"

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
/* The wait ended after sleep. */
void polling_woken(Polling *self, long long now);
/* Whether answers have come so late that not even a glance is due now; arming tells of what came all the same. */
int polling_is_pointless(const Polling *self);
/* Pieces of a large message are coming: another look is due, whatever the window has learned. */
void polling_extend(Polling *self, long long now);
/* Whether the next iteration should look again. */
int polling_continues(Polling *self, long long now, long long moved);
/* Nanoseconds of this wait's window for one look, opened if it was not yet; 0 for a glance. */
long long polling_share(Polling *self, long long now);
void polling_learn(Polling *self, long long now, long long share, long long found, long long gap);

int add_polling(PyObject *module);

#endif
