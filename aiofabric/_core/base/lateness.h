/*
 * Lateness: whether messages wait too long for the event loop. Small messages of one iteration leave together, when it
 * ends. But a program may compute for seconds, or block, before it lets the loop iterate. Each message that waits, and
 * the end of the wait, are compared with the message before. After a gap of LATE_NS, messages leave one by one for
 * LATE_FACTOR times as long as the gap. So such a program has at most one gap in a hundred, and many messages of a busy
 * iteration still leave together.
 */
#ifndef AIOFABRIC_LATENESS_H
#define AIOFABRIC_LATENESS_H

#include "base/clock.h"

#define LATE_NS 5000000
#define LATE_FACTOR 100

struct lateness {
	long long last;		/* ns: when the last message came that waits; 0: none waits */
	long long until;	/* ns: messages do not wait before that; 0: they may */
};

/* Whether messages leave one by one. */
static inline int lateness_hurries(struct lateness *self)
{
	if (self->until && now_ns() >= self->until)
		self->until = 0;
	return self->until != 0;
}

static inline void lateness_compare(struct lateness *self, long long now)
{
	long long gap = now - self->last;

	if (self->last && gap > LATE_NS)
		self->until = now + LATE_FACTOR * gap;
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
	if (!self->last)
		return;
	lateness_compare(self, now_ns());
	self->last = 0;
}

/* The messages that waited have left before. */
static inline void lateness_cancel(struct lateness *self)
{
	self->last = 0;
}

#endif
