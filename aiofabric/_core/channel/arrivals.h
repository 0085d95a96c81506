/* Data that arrived and was not taken yet. */
#ifndef AIOFABRIC_ARRIVALS_H
#define AIOFABRIC_ARRIVALS_H

#include "base/references.h"
#include "messages/receive_pool.h"

#define LEND_FROM 8192 /* bytes; a smaller frame is copied, which costs less than a receive that is missing */

struct chunk;

struct arrivals {
	struct chunk *first, *last;	/* oldest first */
	struct chunk *offered;		/* the one whose memory is valid only while its frame is handled */
	Py_ssize_t size;		/* bytes of all frames */
	Py_ssize_t left;		/* bytes of the first frame that were not taken; 0: it has not begun */
	long long lent;			/* receives whose memory is used */
};

/* Append a frame. -1: no memory. `buffer` is the receive that holds the frame, or NULL. 1: it is kept until the data was taken. */
int arrivals_append(struct arrivals *self, const char *bytes, Py_ssize_t size, PoolBuffer *buffer);
/* Append a frame without a copy, for a callback; then call `arrivals_settle`, which keeps the rest as `arrivals_append` does. */
int arrivals_offer(struct arrivals *self, const char *bytes, Py_ssize_t size);
int arrivals_settle(struct arrivals *self, PoolBuffer *buffer);
/* Copy the oldest bytes; returns how many, and adds the credits that they cost. */
Py_ssize_t arrivals_take(struct arrivals *self, char *to, Py_ssize_t most, long long *credits);
/* Forget everything. The receives are posted again. */
void arrivals_drop(struct arrivals *self);
/* The same, for an object that the collector frees: no receive is posted. */
void arrivals_release(struct arrivals *self);
int arrivals_traverse(const struct arrivals *self, visitproc visit, void *arg);

#endif
