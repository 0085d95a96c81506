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
#define READS 4 /* before a call that may connect */

/*
 * A call that makes a connection also handles the ends of others. rxm crashes in it if it has not handled a large
 * message that came over such a connection before (features.py: CONNECTING_CRASHES). So it gets the chance to do so.
 */
enum reads_first {
	READS_NEVER,
	READS_NEXT,	/* the peer may not be connected: nothing was accepted yet, or the last call was refused */
	READS_LATER,	/* the last call was accepted, so the peer is connected */
};

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
	char reads_first; /* enum reads_first: whether the next call lets the provider handle first what has arrived */
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
void submission_read_first(SubmissionCore *self);

/* Call this before posting: a message may have to leave with others, and the provider may have to look before. */
static inline void submission_begin_call(SubmissionCore *self)
{
	if (self->socket.descriptor >= 0)
		submission_joins_batch(self);
	if (self->reads_first == READS_NEXT)
		submission_read_first(self);
}

/* Call this after the provider has accepted one. */
static inline void submission_is_connected(SubmissionCore *self)
{
	if (self->reads_first)
		self->reads_first = READS_LATER;
}

int add_submission(PyObject *module);

#endif
