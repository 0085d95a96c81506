/* Sockets of the kernel whose messages leave together (TCP_CORK). */
#ifndef AIOFABRIC_COALESCING_H
#define AIOFABRIC_COALESCING_H

#include "references.h"

#define COALESCE_NS 100000

/* A connection's socket. Held back while `owner` is set: that is a reference of the batch's. */
struct held_socket {
	int descriptor;		/* -1 where there is none */
	long long batch;	/* in which it sent last */
	PyObject *owner;
	struct held_socket *next;
};

/* What is sent before the next look at a queue, or before the loop goes round. */
struct batch {
	long long number;
	struct held_socket *held; /* a list */
	long long since;	/* ns: the first of them */
};

/* Whether the socket has sent in this batch before; now it has. */
int batch_includes(struct batch *self, struct held_socket *socket);
/* What is sent there from now on leaves when the batch ends. */
void batch_hold(struct batch *self, struct held_socket *socket, PyObject *owner);
void batch_end(struct batch *self);

int add_coalescing(PyObject *module);

#endif
