/* The uses of a source: operations, waiters, and outputs. Only these functions change the counts in C. */
#ifndef AIOFABRIC_INTEREST_H
#define AIOFABRIC_INTEREST_H

#include "base/references.h"

struct interest {
	long long count;	/* operations, and waiters that need a completion */
	long long abandoned;	/* operations whose caller has left */
	long long unsent;	/* outputs whose frames leave in the next iteration of the loop: nothing may poll before that */
};

static inline void interest_begin(struct interest *self)
{
	self->count++;
}

static inline void interest_end(struct interest *self)
{
	assert(self->count > 0);
	self->count--;
}

/* An operation whose caller has left was completed. */
static inline void interest_end_abandoned(struct interest *self)
{
	assert(self->abandoned > 0);
	self->abandoned--;
}

/* An output keeps frames for the next iteration; they leave, or are dropped. */
static inline void interest_gather(struct interest *self)
{
	self->unsent++;
}

static inline void interest_send(struct interest *self)
{
	self->unsent--;
}

#endif
