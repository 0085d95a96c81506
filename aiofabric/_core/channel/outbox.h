/* Posted buffers that wait to be sent. */
#ifndef AIOFABRIC_OUTBOX_H
#define AIOFABRIC_OUTBOX_H

#include "base/references.h"

/* One posted buffer. It is also the callable that a frame of it notifies when the provider has sent that. */
typedef struct PostedBuffer {
	PyObject_HEAD
	PyObject *data;		/* a memoryview */
	PyObject *done;		/* NULL: it was called */
	Py_ssize_t at, size;	/* bytes that were handed over, and all bytes */
	long long frames;	/* with the provider */
	struct PostedBuffer *next;
	char lent;		/* its memory may change: it is free when the provider has sent all frames */
} PostedBuffer;

struct outbox {
	PostedBuffer *first, *last;	/* oldest first; each one is a reference */
	Py_ssize_t size;		/* bytes that wait */
};

int outbox_add(struct outbox *self, PyObject *data, PyObject *done);
/*
 * The data of the next frame, at most `room` bytes: a part of a buffer in its place, or several small ones joined.
 * `lent` gets the buffer that the frame must notify, a reference, or NULL. `over` is a list that gets those to be reported
 * as free when the frame was handed over.
 */
PyObject *outbox_next_frame(struct outbox *self, Py_ssize_t room, PostedBuffer **lent, PyObject *over);
/* Report the buffers of that list as free. */
int outbox_report(PyObject *over);
/* No more data can be sent. */
int outbox_fail(struct outbox *self, PyObject *error);
void outbox_release(struct outbox *self);
int outbox_traverse(const struct outbox *self, visitproc visit, void *arg);

int add_outbox(PyObject *module);

#endif
