/*
 * Coalescing: messages of one connection that belong to one batch leave together.
 *
 * Over the kernel's TCP each message is a segment of its own. Over loopback, the send call also does the work of the
 * receiver's kernel, until the segment is in the receiver's socket: 2.2 us for 64 B, and 0.35 while the socket is
 * corked (tcp(7), TCP_CORK). A batch is all messages sent before the next poll of the queue, or before the loop goes
 * round. The first message of a batch leaves at once, so a single request does not wait. The others leave when the
 * batch ends, or at once after the loop was late (base/lateness.h): the kernel keeps a corked segment for 200 ms. Sends
 * that continue for longer than COALESCE_NS, task after task, are not one batch: each send checks the clock.
 */
#include "queue/coalescing.h"
#include "base/clock.h"
#include "base/lateness.h"
#include "base/references.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void set_cork(const struct tcp_socket *socket, int on)
{
	setsockopt(socket->descriptor, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

int batch_includes(struct batch *self, struct tcp_socket *socket)
{
	if (self->corked) {
		long long now = now_ns();

		lateness_wait(&self->lateness, now);
		if (now - self->since > COALESCE_NS)
			batch_end(self);
	}
	if (socket->batch == self->number)
		return 1;
	socket->batch = self->number;
	return 0;
}

void batch_cork(struct batch *self, struct tcp_socket *socket, PyObject *owner)
{
	assert(!socket->owner && !socket->next && socket->descriptor >= 0);
	if (!self->corked)
		lateness_wait(&self->lateness, self->since = now_ns());
	set_cork(socket, 1);
	socket->owner = new_ref(owner);
	socket->next = self->corked;
	self->corked = socket;
}

void batch_end(struct batch *self)
{
	struct tcp_socket *socket;

	self->number++;
	if (self->corked)
		lateness_end(&self->lateness);
	while ((socket = self->corked)) {
		PyObject *owner = socket->owner;

		assert(owner);
		self->corked = socket->next;
		socket->next = NULL;
		socket->owner = NULL;
		set_cork(socket, 0);
		Py_DECREF(owner);
	}
}

void batch_begin_pass(struct batch *self)
{
	self->in_pass = 1;
}

void batch_end_pass(struct batch *self)
{
	self->in_pass = 0;
	batch_end(self);
}

int add_coalescing(PyObject *module)
{
	return PyModule_AddIntConstant(module, "COALESCE_NS", COALESCE_NS);
}
