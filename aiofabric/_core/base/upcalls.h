/* Calls from a lower layer to a higher one: functions that the higher one sets when the module is made. */
#ifndef AIOFABRIC_UPCALLS_H
#define AIOFABRIC_UPCALLS_H

#include "base/references.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

/* A type whose objects take their completions without Python. */
struct completed {
	PyTypeObject *type;
	int (*complete)(PyObject *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);
};

/*
 * A type whose objects are sinks of an inbox without Python: `bytes` are those of `view` from `offset` on, in the memory of
 * `buffer`. 0; -1 with an exception; 1: the sink keeps a reference to `buffer`, and passes it to `pool_recycle` itself.
 */
struct frame_sink {
	PyTypeObject *type;
	int (*arrived)(PyObject *self, PyObject *buffer, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset);
	int (*read_ended)(PyObject *self); /* called if `source_call_after_read` was, when all completions of the read are dispatched */
};

struct upcalls {
	int (*wake)(PyObject *owner, PyObject *waiter); /* used by operation.c: wakes a waiter; the owner counts the wake-up */
	struct completed buffer, transfer;		/* for completions; set by pool_buffer and transfer */
	struct frame_sink rpc_sink, channel_sink;	/* for receive_pool; set by the two files that read frames */
};

extern struct upcalls upcalls;

#endif
