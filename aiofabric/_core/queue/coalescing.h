/* Sockets of the kernel whose messages leave together (TCP_CORK). */
#ifndef AIOFABRIC_COALESCING_H
#define AIOFABRIC_COALESCING_H

#include "base/lateness.h"
#include "base/references.h"

#define COALESCE_NS 100000

/* A connection's socket. It is corked while `owner` is set: a reference that the batch holds. */
struct tcp_socket {
	int descriptor;		/* -1: no socket */
	long long batch;	/* number of the batch in which it sent last */
	PyObject *owner;
	struct tcp_socket *next;
};

/* All messages sent before the next poll of a queue, or before the loop iterates. */
struct batch {
	long long number;
	struct tcp_socket *corked; /* a list */
	long long since;	/* ns: time of the first of them */
	struct lateness lateness; /* of its messages */
	char in_pass;		/* tasks resume within a pass, whose end sends the batch */
};

/* Whether the socket has sent in this batch before. Records that it has now. */
int batch_includes(struct batch *self, struct tcp_socket *socket);
/* Messages sent there from now on leave when the batch ends. */
void batch_cork(struct batch *self, struct tcp_socket *socket, PyObject *owner);
void batch_end(struct batch *self);
/* A pass begins to resume tasks; it has resumed them, which ends the batch. */
void batch_begin_pass(struct batch *self);
void batch_end_pass(struct batch *self);

int add_coalescing(PyObject *module);

#endif
