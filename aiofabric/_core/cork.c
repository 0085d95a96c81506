/*
 * Cork: what one connection sends in a volley leaves together.
 *
 * Over the kernel's TCP each message is a segment of its own, and over loopback the sender's send carries it all the way
 * into the receiver's socket: 2.2 us for 64 B, and 0.35 where the socket is corked meanwhile (tcp(7), TCP_CORK). A volley
 * is what is sent before the next look at the queue, or before the loop goes round. Its first message leaves at once, so
 * a request alone waits for nothing; those behind it leave when the volley is over. What the queue's users send for
 * longer than VOLLEY_NS, task after task, is not one volley: each send looks at the clock.
 */
#include "core.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define VOLLEY_NS 100000

static void set_cork(const LaneCore *lane, int on)
{
	setsockopt(lane->socket, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

/* A turn has to be on its way, outside of one: it ends the volley at the latest. */
static int will_end(SourceCore *source)
{
	PyObject *type, *error, *traceback;
	int rc;

	if (source->passing)
		return 1;
	PyErr_Fetch(&type, &error, &traceback);
	rc = source_touch(source);
	if (rc && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		PyErr_SetInterrupt(); /* comes again after the message has left */
	PyErr_Clear(); /* or the loop is closed: it can leave all the same */
	PyErr_Restore(type, error, traceback);
	return !rc;
}

void lane_joins_volley(LaneCore *self)
{
	SourceCore *source = self->source;

	if (source->corked && now_ns() - source->corked_since > VOLLEY_NS)
		source_uncork(source);
	if (self->volley != source->volley) {
		self->volley = source->volley; /* its first message */
		return;
	}
	if (self->corked || !will_end(source))
		return;
	if (!source->corked)
		source->corked_since = now_ns();
	set_cork(self, 1);
	self->corked = 1;
	self->next_corked = source->corked;
	source->corked = (LaneCore *) new_ref(self);
}

void source_uncork(SourceCore *self)
{
	LaneCore *lane;

	self->volley++;
	while ((lane = self->corked)) {
		self->corked = lane->next_corked;
		lane->next_corked = NULL;
		lane->corked = 0;
		set_cork(lane, 0);
		Py_DECREF((PyObject *) lane);
	}
}

PyObject *LaneCore_keep_socket(LaneCore *self, PyObject *number)
{
	long descriptor = PyLong_AsLong(number);

	if (PyErr_Occurred())
		return NULL;
	if (self->corked)
		source_uncork(self->source);
	self->socket = (int) descriptor;
	Py_RETURN_NONE;
}

int add_cork(PyObject *module)
{
	return PyModule_AddIntConstant(module, "VOLLEY_NS", VOLLEY_NS);
}
