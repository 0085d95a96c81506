/* The submission queue of one direction of an endpoint: posted operations, and those that wait for room. */
#ifndef AIOFABRIC_SUBMISSION_H
#define AIOFABRIC_SUBMISSION_H

#include "base/references.h"
#include "base/thread_check.h"
#include "operations/operation.h"
#include "progress/source.h"
#include "queue/coalescing.h"

#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#define PIECES 4 /* most buffers of one message */

typedef struct SubmissionCore {
	PyObject_HEAD
	SourceCore *source;
	PyObject *owner;	/* the endpoint's handle */
	PyObject *waiting;	/* deque: queued operations */
	PyObject *posted;	/* dict as a set: operations that the provider has */
	PyObject *idle;		/* list: waiters for an empty queue */
	struct fid_ep *ep;
	ThreadCheck *thread_check;		/* the endpoint's; NULL until `_send_here` or `_receive_here` */
	unsigned long long peer, max_size;
	unsigned long long completed; /* operations, without those that have failed */
	long long limit, inject_size, unfenced;
	long long pieces;	/* most buffers of a message that C posts; 0: C posts none */
	long long copies;	/* bytes of a message that is copied instead of being waited for */
	long long copied;	/* bytes of such messages that have no completion yet */
	char receives, refused;
	char direct;		/* whether C sends small messages and posts plain receives */
	struct iovec overflow;	/* room behind each receive, if it has a length: see transport/messages/overflow.py */
	char plain_retire, plain_try; /* whether the subclass does not override them */
	struct tcp_socket socket; /* the kernel's TCP socket beneath, which may be corked */
} SubmissionCore;

extern PyTypeObject *SubmissionCore_Type;

/* Its completion was read: the slot may be used again. */
int submission_completed(SubmissionCore *self, Operation *transfer);
/*
 * Give up an operation that was not posted, and will not be. An exception that is set on entry stays set, and the
 * result is -1.
 */
int submission_discard(SubmissionCore *self, Operation *transfer);
/*
 * Register an operation before the provider's call: whatever interrupts the caller after the call, a buffer that the
 * provider has stays pinned. -1: an exception, and the operation is not registered.
 */
int submission_register(SubmissionCore *self, Operation *transfer);
/* The provider accepted a registered operation. -1: an exception, and the operation stays posted. */
int submission_accepted(SubmissionCore *self, Operation *transfer);
/* The provider refused a registered operation: as `submission_discard`. */
int submission_refused(SubmissionCore *self, Operation *transfer);
/*
 * Register, then post. 1: done; 0: the provider has no room now; -1: an exception, and it is not registered any more, unless
 * the state is POSTED.
 */
int submission_try_post(SubmissionCore *self, Operation *transfer);
void submission_joins_batch(SubmissionCore *self);

/* Call this before posting a message: it may have to leave with others. */
static inline void submission_coalesce(SubmissionCore *self)
{
	if (self->socket.descriptor >= 0)
		submission_joins_batch(self);
}

int add_submission(PyObject *module);

#endif
