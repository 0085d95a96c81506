/* Reading a completion queue of libfabric. */
#ifndef AIOFABRIC_COMPLETION_QUEUE_H
#define AIOFABRIC_COMPLETION_QUEUE_H

#include "base/references.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#define BATCH 64 /* most completions of one read */
#define PIECE_NS 50000 /* how long to wait for the next piece of a large message */

typedef struct {
	PyObject_HEAD
	struct fid_cq *cq;
	struct fid_fabric *fabric;
	int sources; /* whether the sender's address is read with each */
	int tagged; /* whether the entries have FI_CQ_FORMAT_TAGGED; otherwise FI_CQ_FORMAT_DATA */
	long long gap;	/* ns: the longest time between two polls of the last call */
	long long empty_ns;	/* ns: duration of an empty poll, learned from all calls; only for comparison */
	char moving;	/* whether the last poll ended while pieces of a large message were coming */
	long long kept;	/* waits that still skip the yield; see completion_queue.c */
	long long useless; /* yields in a row without a result */
	struct fi_cq_tagged_entry entries[BATCH];
	fi_addr_t from[BATCH];
} NativeQueue;

extern PyTypeObject *NativeQueue_Type;

ssize_t queue_poll(NativeQueue *self, long long window);
/* Whether to yield the core before this wait. Counts each call. */
int queue_yields(NativeQueue *self);
/* Yield the core, then poll as queue_poll does. After useless yields it reads the queue once before the yield. */
ssize_t queue_poll_after_yield(NativeQueue *self, long long window);
/* fi_trywait: 0 if it is safe to sleep on the descriptor, -FI_EAGAIN if not, or an error. */
int queue_try_wait(NativeQueue *self);
/* A completion as a Python tuple: op_context, flags, len, buf, data, tag and, with sources, fi_addr. */
PyObject *entry_tuple(const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);
int entry_parse(PyObject *tuple, struct fi_cq_tagged_entry *entry, fi_addr_t *from, int *sources);

/* Record the sender's address, if it was read. */
static inline int set_source(PyObject **source, const fi_addr_t *from)
{
	PyObject *number = from ? PyLong_FromUnsignedLongLong(*from) : NULL;

	if (number)
		REPLACE(*source, number);
	return from && !number ? -1 : 0;
}

int add_completion_queue(PyObject *module);

#endif
