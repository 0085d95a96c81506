/*
 * Lateness: whether messages wait too long for the event loop. Small messages of one iteration leave together, when it
 * ends. But a program may compute for seconds, or block, before it lets the loop iterate. So each message that waits,
 * and the end of the wait, are compared with the message before. If gaps of LATE_NS are frequent, messages leave one by
 * one for LATE_FACTOR times as long as the last gap. So of such a program, one message in a hundred is late, and many
 * messages of a busy iteration still leave together. A single gap shows nothing: another process may have had the core.
 */
#ifndef AIOFABRIC_LATENESS_H
#define AIOFABRIC_LATENESS_H

#include "base/clock.h"

#define LATE_NS 10000000
#define LATE_FACTOR 100
#define LATE_COST 8	/* an iteration that is late counts as much as so many that are not */
#define LATE_MOST 12	/* two of them, with at most four others between */

struct lateness {
	long long last;		/* ns: when the last message came that waits; 0: none waits */
	long long until;	/* ns: messages do not wait before that; 0: they may */
	int score;		/* of the last iterations; see LATE_COST */
};

/* Whether messages leave one by one. */
static inline int lateness_hurries(struct lateness *self)
{
	if (self->until && now_ns() >= self->until)
		self->until = 0;
	return self->until != 0;
}

/* Whether the loop was late. After the time in which messages leave one by one, one gap is enough for the next. */
static inline int lateness_compare(struct lateness *self, long long now)
{
	long long gap = now - self->last;

	if (!self->last || gap <= LATE_NS)
		return 0;
	self->score += LATE_COST;
	if (self->score >= LATE_MOST) {
		self->until = now + LATE_FACTOR * gap;
		self->score = LATE_MOST - LATE_COST;
	}
	return 1;
}

/* A message waits for the end of the iteration. */
static inline void lateness_wait(struct lateness *self, long long now)
{
	lateness_compare(self, now);
	self->last = now;
}

/* The messages that waited leave. */
static inline void lateness_end(struct lateness *self)
{
	if (self->last && !lateness_compare(self, now_ns()) && self->score)
		self->score--;
	self->last = 0;
}

/* The messages that waited have left before. */
static inline void lateness_cancel(struct lateness *self)
{
	self->last = 0;
}

#endif
