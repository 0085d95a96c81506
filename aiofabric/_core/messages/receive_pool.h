/* Receives that stay posted. */
#ifndef AIOFABRIC_RECEIVE_POOL_H
#define AIOFABRIC_RECEIVE_POOL_H

#include "base/references.h"
#include "messages/inbox.h"

#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

struct receive {
	void *buf;
	void *context;
};

typedef struct {
	InboxCore inbox;
	PyObject *buffers;	/* list of PoolBuffer, by index */
	struct fid_ep *ep;
	void *descriptor;
	size_t room;		/* bytes of each receive */
	struct receive *receives;
	uint32_t *free;		/* indexes of buffers that are not posted, filled or lent */
	long long capacity, nfree, batch;
	struct iovec overflow;	/* room behind each, if it has a length: see transport/messages/overflow.py */
	uint64_t end_mark;	/* remote data of the empty message that ends the connection; 0: none does */
	char limits;		/* whether messages longer than `size` may complete, for `overlong` */
} PoolCore;

extern PyTypeObject *PoolCore_Type;

typedef struct {
	PyObject_HEAD
	PoolCore *pool;
	PyObject *slot, *source;
	long long index, offset, length;
	unsigned long long flags, data, tag;
	char posted;
} PoolBuffer;

extern PyTypeObject *PoolBuffer_Type;

int pool_recycle(PoolBuffer *self);
/* The message in this buffer of an inbox was taken: its memory may be filled again. */
int inbox_recycle(InboxCore *self, PyObject *buffer);
/* The buffer may be posted again. */
void pool_set_free(PoolBuffer *self);
/* Its message has come: to the sink, to the task that waits longest, or into the inbox. */
int pool_complete(PoolBuffer *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);

/* Address of the message; NULL with an exception if the message is longer than its receive. */
const char *pool_contents(PoolBuffer *self);

int add_receive_pool(PyObject *module);

#endif
