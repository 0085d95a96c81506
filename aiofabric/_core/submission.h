/* The submission queue of one direction of an endpoint: what is posted, and what waits for room. */
#ifndef AIOFABRIC_SUBMISSION_H
#define AIOFABRIC_SUBMISSION_H

#include "coalescing.h"
#include "operation.h"
#include "references.h"
#include "source.h"
#include "thread_check.h"

#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#define PIECES 4 /* most buffers of one message */

typedef struct SubmissionCore {
	PyObject_HEAD
	SourceCore *source;
	PyObject *owner;	/* the endpoint's handle */
	PyObject *waiting;	/* deque: what is parked */
	PyObject *posted;	/* dict as a set: what the provider has */
	PyObject *idle;		/* list: who waits for nothing to be posted */
	struct fid_ep *ep;
	ThreadCheck *thread_check;		/* the endpoint's; NULL until `_lead` or `_receive_here` */
	unsigned long long peer, max_size;
	long long limit, inject_size, unfenced;
	long long pieces;	/* most buffers of a message that is posted from here; 0: none is */
	char receives, refused;
	char direct;		/* whether small messages are sent, and plain receives posted, from here */
	struct iovec spill;	/* room behind each receive, if it has a length: see transport/messages/overflow.py */
	char plain_home, plain_try; /* whether the subclass has none of its own */
	struct held_socket socket; /* the kernel's TCP socket beneath, to be corked */
} SubmissionCore;

extern PyTypeObject *SubmissionCore_Type;

/* Its completion was read: the slot may be lent again. */
int submission_completed(SubmissionCore *self, Operation *transfer);
/* It was not posted, and will not be. */
int submission_discard(SubmissionCore *self, Operation *transfer);
/* As that, of one that `operations` knows. */
int submission_undo_post(SubmissionCore *self, Operation *transfer);
int submission_note_posted(SubmissionCore *self, Operation *transfer);
/* Register, then post.  1: done; 0: the provider has no room now; -1: an exception, and nothing is held any more. */
int submission_try_post(SubmissionCore *self, Operation *transfer);
void submission_joins_batch(SubmissionCore *self);

/* A message is about to be posted, which may have to leave with others. */
static inline void submission_coalesce(SubmissionCore *self)
{
	if (self->socket.descriptor >= 0)
		submission_joins_batch(self);
}

int add_submission(PyObject *module);

#endif
