/*
 * Reads the frames of a byte channel, in the pass that read them from the queue: channel/frames.py specifies them. A
 * frame that breaks the protocol, and the rare kinds, go to methods in Python.
 */
#include "channel/frames.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "channel/channel.h"
#include "channel/reading.h"
#include "channel/sending.h"
#include "channel/wire.h"
#include "messages/receive_pool.h"

static PyObject *name_misbehaved, *name_peer_closed, *name_peer_has_read;

#define MISBEHAVED 2 /* the channel has ended: no other return value of these functions */

static int misbehaved(ChannelCore *self, PyObject *what)
{
	int rc = what ? drop(PyObject_CallMethodObjArgs((PyObject *) self, name_misbehaved, what, NULL)) : -1;

	Py_XDECREF(what);
	return rc ? -1 : MISBEHAVED;
}

static int misbehaved_by(ChannelCore *self, const char *what)
{
	return misbehaved(self, PyUnicode_FromString(what));
}

static int data(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size)
{
	self->outstanding -= size + CREDITS_OF_FRAME;
	if (self->outstanding < 0 || !size || self->end_received)
		return misbehaved_by(self, "it sent data without credit, without bytes, or after the end");
	self->got_frames++;
	self->got_bytes += size;
	if (self->closed != Py_None) /* it is closing: no call takes the data, and no credits are granted */
		return 0;
	if (!self->gather.size) /* a new pass begins: a task that waits alone is never delayed */
		self->gather.pass = 0;
	return channel_data_arrived(self, buffer, bytes, size);
}

static int memory_was_read(ChannelCore *self)
{
	int exposed = truth_of(PyObject_CallMethodObjArgs((PyObject *) self, name_peer_has_read, NULL));

	if (exposed)
		return exposed < 0 ? -1 : 0;
	return misbehaved_by(self, "it said that it had read memory, and none was exposed");
}

static int other(ChannelCore *self, int kind)
{
	switch (kind) {
	case KIND_GRANT:
		return 0;
	case KIND_END:
		self->end_received = 1;
		return channel_wake_reader(self);
	case KIND_CLOSE:
		return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_peer_closed, NULL));
	case KIND_READ:
		return memory_was_read(self);
	default:
		return misbehaved(self, PyUnicode_FromFormat("it sent a frame of unknown kind %d", kind));
	}
}

/* 1: `buffer` is kept, the receive that holds the frame; -1: an exception. */
static int read_frame(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size)
{
	const unsigned char *head = (const unsigned char *) bytes;
	long long granted;
	int kept;

	if (!channel_ready(self))
		return -1;
	if (self->closed != Py_None && self->on_closed == Py_None)
		return 0;
	if (size < FRAME_HEADER)
		return misbehaved(self, PyUnicode_FromFormat("it sent a frame of %zd bytes", size)) < 0 ? -1 : 0;
	granted = head[1] | head[2] << 8 | head[3] << 16;
	self->credits += granted;
	if (self->credits > self->most_credits)
		return misbehaved_by(self, "it granted more credits than it was sent bytes") < 0 ? -1 : 0;
	if (head[0] == KIND_DATA)
		kept = data(self, buffer, bytes + FRAME_HEADER, size - FRAME_HEADER);
	else
		kept = other(self, head[0]);
	if (kept == MISBEHAVED)
		return 0;
	if (kept >= 0 && granted && channel_ready(self) && channel_pump(self)) {
		if (!kept)
			return -1;
		PyErr_WriteUnraisable((PyObject *) self); /* the receive is in use: it must not be posted again */
	}
	return kept;
}

static int arrived(PyObject *self, PyObject *buffer, const char *bytes, Py_ssize_t size, PyObject *view, Py_ssize_t offset)
{
	return read_frame((ChannelCore *) self, (PoolBuffer *) buffer, bytes, size);
}

static int read_ended(PyObject *self)
{
	return channel_read_ended((ChannelCore *) self);
}

int add_channel_frames(PyObject *module)
{
	static const struct name names[] = {
		{&name_misbehaved, "_misbehaved"}, {&name_peer_closed, "_peer_closed"},
		{&name_peer_has_read, "_peer_has_read"}, {NULL},
	};

	if (intern(names))
		return -1;
	upcalls.channel_sink = (struct frame_sink) {ChannelCore_Type, arrived, read_ended};
	return 0;
}
