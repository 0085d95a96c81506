/*
 * The half of a byte channel that sends: it spends the peer's credits, and grants new ones in the headers of its frames.
 *
 * The first send of a pass of the loop leaves at once. Further small ones are gathered, and leave as one frame: when the
 * pass ends, when a task waits for the answer (stream.c), when there are enough, or after 0.2 ms. An arriving frame
 * begins a new pass, so a task that sends one message and waits is never delayed.
 *
 * `bytes` never change, so large ones are sent without a copy, and the send returns as soon as the provider has them.
 * With fifteen frames in flight, one poll collects the completions of all of them; waiting for each cost 25 us of the
 * 50 us that a frame of 64 KiB took. Other large memory is posted: lent until its frames have left.
 */
#include "channel/sending.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/lateness.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "channel/channel.h"
#include "channel/outbox.h"
#include "channel/wire.h"
#include "progress/interest.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "submission/injection.h"

#include <stdlib.h>

#define GATHERED 64 /* sends after which a frame leaves before the pass ends, so that the peer works meanwhile */

static PyObject *name_admits, *name_inject, *name_notify, *name_pass_ends, *name_post, *name_refuse, *name_thread_check,
	*name_transmit_failed, *name_traceback;

int channel_raise(PyObject *error)
{
	if (PyExceptionInstance_Check(error) && !PyObject_SetAttr(error, name_traceback, Py_None))
		PyErr_SetObject((PyObject *) type_of(error), error);
	else if (!PyErr_Occurred())
		raise_expected("an exception as the state of a channel", error);
	return -1;
}

/* -- frames leave */

static int admits(ChannelCore *self)
{
	PyObject *check;
	int may;

	if (self->route)
		return self->route->thread_check && thread_check_admits(self->route->thread_check);
	check = PyObject_GetAttr(self->handle, name_thread_check);
	may = check ? truth_of(PyObject_CallMethodObjArgs(check, name_admits, NULL)) : -1;
	Py_XDECREF(check);
	return may;
}

/* 0, or -1 with the endpoint's error: it is closed, or belongs to another thread. */
static int check_admission(ChannelCore *self)
{
	int may = admits(self);
	PyObject *what, *error;

	if (may)
		return may < 0 ? -1 : 0;
	what = PyUnicode_FromString("fi_send");
	error = what ? PyObject_CallMethodObjArgs(self->handle, name_refuse, what, NULL) : NULL;
	Py_XDECREF(what);
	if (error)
		PyErr_SetObject((PyObject *) type_of(error), error);
	Py_XDECREF(error);
	return -1;
}

static int inject(ChannelCore *self, PyObject *frame)
{
	if (!PyBytes_CheckExact(frame))
		return 0;
	return self->route ? submission_try_inject(self->route, frame)
			   : truth_of(PyObject_CallMethodObjArgs(self->tx, name_inject, frame, NULL));
}

static int hand_over(ChannelCore *self, PyObject *frame, PyObject *notify)
{
	int sent = check_admission(self) ? -1 : inject(self, frame);
	PyObject *transfer;

	if (sent)
		return sent < 0 ? -1 : 0;
	transfer = PyObject_CallMethodObjArgs(self->tx, name_post, frame, NULL);
	if (transfer && notify && PyObject_SetAttr(transfer, name_notify, notify))
		Py_CLEAR(transfer);
	return drop(transfer);
}

/*
 * Hand a frame to the provider: bytes, or a list of buffers. `notify` is for a frame whose memory is lent. If the
 * connection has ended since the last pass, or the provider refuses the frame, the stream is lost: the method in Python
 * does that, and raises any other error again.
 */
static int transmit(ChannelCore *self, PyObject *frame, PyObject *notify)
{
	PyObject *type, *error, *traceback;
	int rc;

	if (!hand_over(self, frame, notify))
		return 0;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_transmit_failed, error ? error : Py_None,
					     notify ? notify : Py_None, NULL));
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

/* All credits that are due, for a frame that leaves now. */
static long long all_due(ChannelCore *self)
{
	long long due = self->taken;

	self->taken = 0;
	self->outstanding += due;
	return due;
}

/* For a data frame: once a quarter of the window is due. */
static long long due(ChannelCore *self)
{
	return self->taken * 4 < self->window ? 0 : all_due(self);
}

static PyObject *header(ChannelCore *self, int kind, long long granted)
{
	char bytes[FRAME_HEADER];

	put_frame_header(bytes, kind, granted);
	return PyBytes_FromStringAndSize(bytes, FRAME_HEADER);
}

int channel_say(ChannelCore *self, int kind)
{
	PyObject *frame;
	int rc;

	if (self->said_close || self->gone != Py_None)
		return 0;
	self->said_end |= kind == KIND_END;
	self->said_close |= kind == KIND_CLOSE;
	frame = header(self, kind, all_due(self));
	rc = frame ? transmit(self, frame, NULL) : -1;
	Py_XDECREF(frame);
	return rc;
}

int channel_grant(ChannelCore *self, long long credits)
{
	self->taken += credits;
	if (self->taken * 2 < self->window)
		return 0;
	return self->gather.size ? channel_flush(self) : channel_say(self, KIND_GRANT);
}

static int transmit_data(ChannelCore *self, PyObject *frame, Py_ssize_t size, PyObject *notify)
{
	self->sent_frames++;
	self->sent_bytes += size;
	return transmit(self, frame, notify);
}

static Py_ssize_t size_of(const struct outgoing *data)
{
	return data->prefix_size + data->size;
}

static void copy_to(char *to, const struct outgoing *data)
{
	memcpy(to, data->prefix, data->prefix_size);
	memcpy(to + data->prefix_size, data->bytes, data->size);
}

static PyObject *small_frame(ChannelCore *self, const struct outgoing *data)
{
	PyObject *frame = PyBytes_FromStringAndSize(NULL, FRAME_HEADER + size_of(data));
	char *to = frame ? PyBytes_AsString(frame) : NULL;

	if (!frame)
		return NULL;
	put_frame_header(to, KIND_DATA, due(self));
	copy_to(to + FRAME_HEADER, data);
	return frame;
}

/* The header, and the data in its place. */
static PyObject *large_frame(ChannelCore *self, PyObject *data)
{
	PyObject *first = header(self, KIND_DATA, due(self)), *frame = first ? PyList_New(2) : NULL;

	if (!frame) {
		Py_XDECREF(first);
		return NULL;
	}
	PyList_SetItem(frame, 0, first);
	PyList_SetItem(frame, 1, new_ref(data));
	return frame;
}

/* -- small sends of one pass */

int channel_flush(ChannelCore *self)
{
	struct gather *gather = &self->gather;
	Py_ssize_t size = gather->size;
	PyObject *frame;
	int rc;

	if (!size)
		return 0;
	frame = small_frame(self, &(struct outgoing) {.bytes = gather->bytes, .size = size, .prefix = gather->bytes});
	if (!frame)
		return -1;
	gather->size = gather->count = 0;
	if (gather->counted)
		interest_send(&self->source->interest);
	gather->counted = 0;
	if (!gather->scheduled) { /* otherwise more may come in this pass */
		free(gather->bytes);
		gather->bytes = NULL;
		gather->room = 0;
	}
	rc = transmit_data(self, frame, size, NULL);
	Py_DECREF(frame);
	return rc;
}

static int make_room(struct gather *gather, Py_ssize_t need)
{
	Py_ssize_t room = gather->room ? gather->room : 1000;
	char *bytes;

	if (need <= gather->room)
		return 0;
	while (room < need)
		room *= 2;
	bytes = realloc(gather->bytes, room);
	if (!bytes) {
		PyErr_NoMemory();
		return -1;
	}
	gather->bytes = bytes;
	gather->room = room;
	return 0;
}

/* 1: the loop will call `_pass_ends`; 0: it is closed. Ctrl-C is raised at the next bytecode. */
static int schedule(ChannelCore *self)
{
	PyObject *callback;
	int rc;

	if (self->gather.scheduled)
		return 1;
	callback = PyObject_GetAttr((PyObject *) self, name_pass_ends);
	rc = callback ? call_soon_despite_interrupt(self->source->call_soon, callback) : -1;
	Py_XDECREF(callback);
	if (rc && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
		PyErr_SetInterrupt();
		rc = 0;
	}
	PyErr_Clear();
	return self->gather.scheduled = !rc;
}

/* Add to the frame that leaves when the pass ends. */
static int gather(ChannelCore *self, const struct outgoing *data)
{
	struct gather *gather = &self->gather;
	Py_ssize_t size = size_of(data);
	long long now = now_ns();

	if (make_room(gather, gather->size + size))
		return -1;
	if (!gather->size)
		gather->began = now;
	self->credits -= size + (gather->size ? 0 : CREDITS_OF_FRAME);
	copy_to(gather->bytes + gather->size, data);
	gather->size += size;
	gather->count++;
	lateness_wait(&self->source->gathered, now);
	if (!schedule(self))
		return channel_flush(self);
	if (!gather->counted)
		interest_gather(&self->source->interest);
	gather->counted = 1;
	if (gather->count < GATHERED && now - gather->began < gather->longest && gather->size < self->copied)
		return 0;
	return channel_flush(self);
}

/* Whether a small send must wait for others. Records that one leaves otherwise. */
static int joins_others(ChannelCore *self)
{
	if (!self->source || !self->gather.longest)
		return 0;
	if (self->gather.size)
		return 1;
	if (self->gather.pass == self->source->iteration.began)
		return !source_hurries(self->source);
	self->gather.pass = self->source->iteration.began;
	return 0;
}

static int send_frame(ChannelCore *self, const struct outgoing *data)
{
	Py_ssize_t size = size_of(data);
	PyObject *frame;
	int rc;

	self->credits -= size + CREDITS_OF_FRAME;
	frame = size <= self->copied ? small_frame(self, data) : large_frame(self, data->object);
	rc = frame ? transmit_data(self, frame, size, NULL) : -1;
	Py_XDECREF(frame);
	return rc;
}

static int is_sendable(ChannelCore *self, const struct outgoing *data)
{
	Py_ssize_t size = size_of(data);

	return size > 0 && size <= self->payload && size + CREDITS_OF_FRAME <= self->credits && !self->outbox.first &&
	       (size <= self->copied || (PyBytes_CheckExact(data->object) && !data->prefix_size));
}

int channel_try_send(ChannelCore *self, const struct outgoing *data)
{
	Py_ssize_t size = size_of(data);
	int rc;

	if (self->refusal != Py_None)
		return channel_raise(self->refusal);
	if (self->gather.size && self->gather.size + size > self->copied && channel_flush(self))
		return -1;
	if (!is_sendable(self, data))
		return 0;
	if (size <= self->copied && joins_others(self))
		rc = check_admission(self) ? -1 : gather(self, data);
	else
		rc = send_frame(self, data);
	if (rc)
		return -1;
	return self->gone != Py_None ? channel_raise(self->gone) : 1;
}

/* -- posted data */

static int wake_writer(ChannelCore *self)
{
	PyObject *callback = self->on_writable;

	if (callback == Py_None)
		return 0;
	self->on_writable = new_ref(Py_None);
	return drop(PyObject_CallNoArgs(callback)) | drop(callback);
}

static int send_posted(ChannelCore *self, long long room)
{
	PyObject *over = PyList_New(0), *piece, *frame;
	PostedBuffer *lent = NULL;
	Py_ssize_t size;
	int rc;

	piece = over ? outbox_next_frame(&self->outbox, room, &lent, over) : NULL;
	size = piece ? PyObject_Size(piece) : 0;
	self->credits -= size + CREDITS_OF_FRAME;
	frame = piece ? large_frame(self, piece) : NULL;
	rc = frame ? transmit_data(self, frame, size, (PyObject *) lent) : -1;
	if (!rc) /* only now: the callback may send at once */
		rc = outbox_report(over);
	Py_XDECREF(over);
	Py_XDECREF(piece);
	Py_XDECREF(frame);
	Py_XDECREF((PyObject *) lent);
	return rc;
}

int channel_pump(ChannelCore *self)
{
	if ((self->outbox.first || self->end_frame >= 0) && channel_flush(self))
		return -1;
	while (self->outbox.first) {
		/* No tiny frame at the end of the credits: the peer grants at least a quarter of the window at a time. */
		long long most = self->credits - CREDITS_OF_FRAME, room = most < self->payload ? most : self->payload;

		if (room < 1 || room < (self->outbox.size < self->least ? self->outbox.size : self->least))
			return 0;
		if (send_posted(self, room))
			return -1;
	}
	if ((self->end_frame == KIND_END && !self->said_end) || (self->end_frame == KIND_CLOSE && !self->said_close))
		if (channel_say(self, self->end_frame))
			return -1;
	return self->credits > CREDITS_OF_FRAME ? wake_writer(self) : 0;
}

/* -- the methods */

static PyObject *ChannelCore_try_send(ChannelCore *self, PyObject *object)
{
	struct outgoing data = {.object = object, .prefix = ""};
	Py_buffer view;
	int sent;

	if (!channel_ready(self) || PyObject_GetBuffer(object, &view, PyBUF_SIMPLE))
		return NULL;
	data.bytes = view.buf;
	data.size = view.len;
	sent = channel_try_send(self, &data);
	PyBuffer_Release(&view);
	return sent < 0 ? NULL : PyLong_FromSsize_t(sent ? data.size : 0);
}

static PyObject *ChannelCore_post(ChannelCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count != 2 || !PyMemoryView_Check(args[0])) {
		raise_arguments("post(memoryview, done)", count);
		return NULL;
	}
	if (!channel_ready(self))
		return NULL;
	if (self->refusal != Py_None) {
		channel_raise(self->refusal);
		return NULL;
	}
	if (!PyObject_Size(args[0]))
		return PyObject_CallFunctionObjArgs(args[1], Py_None, NULL);
	return none_if(outbox_add(&self->outbox, args[0], args[1]) || channel_pump(self));
}

static int flows(const ChannelCore *self)
{
	return self->credits > CREDITS_OF_FRAME && !self->outbox.first && self->refusal == Py_None;
}

static PyObject *ChannelCore_get_flowing(ChannelCore *self, void *unused)
{
	return channel_ready(self) ? PyBool_FromLong(flows(self)) : NULL;
}

static PyObject *ChannelCore_when_writable(ChannelCore *self, PyObject *callback)
{
	if (!channel_ready(self))
		return NULL;
	REPLACE(self->on_writable, new_ref(callback));
	return none_if(self->closed != Py_None || self->gone != Py_None || flows(self) ? wake_writer(self) : 0);
}

static PyObject *ChannelCore_wake_writer(ChannelCore *self, PyObject *unused)
{
	return channel_ready(self) ? none_if(wake_writer(self)) : NULL;
}

static PyObject *ChannelCore_pump(ChannelCore *self, PyObject *unused)
{
	return channel_ready(self) ? none_if(channel_pump(self)) : NULL;
}

static PyObject *ChannelCore_flush(ChannelCore *self, PyObject *unused)
{
	return channel_ready(self) ? none_if(channel_flush(self)) : NULL;
}

static PyObject *ChannelCore_pass_ends(ChannelCore *self, PyObject *unused)
{
	if (!channel_ready(self))
		return NULL;
	self->gather.scheduled = 0;
	self->gather.pass = 0;
	if (self->gather.size)
		lateness_end(&self->source->gathered);
	else
		lateness_cancel(&self->source->gathered);
	return none_if(channel_flush(self));
}

static PyObject *ChannelCore_say(ChannelCore *self, PyObject *kind)
{
	long number = PyLong_AsLong(kind);

	if ((number == -1 && PyErr_Occurred()) || !channel_ready(self))
		return NULL;
	return none_if(channel_say(self, (int) number));
}

/* Waiting data is not sent any more: its buffers are reported with the error. */
static PyObject *ChannelCore_fail_posted(ChannelCore *self, PyObject *error)
{
	if (self->gather.counted && self->source)
		interest_send(&self->source->interest);
	self->gather.counted = 0;
	self->gather.size = self->gather.count = 0;
	return none_if(outbox_fail(&self->outbox, error));
}

static PyMethodDef methods[] = {
	{"try_send", (PyCFunction) ChannelCore_try_send, METH_O, "See `ByteChannel.try_send`."},
	{"post", (PyCFunction) (void (*)(void)) ChannelCore_post, METH_FASTCALL, "See `ByteChannel.post`."},
	{"when_writable", (PyCFunction) ChannelCore_when_writable, METH_O, "See `ByteChannel.when_writable`."},
	{"flush", (PyCFunction) ChannelCore_flush, METH_NOARGS, "The small sends of this pass leave now."},
	{"_wake_writer", (PyCFunction) ChannelCore_wake_writer, METH_NOARGS, "Call the callback of `when_writable`."},
	{"_pump", (PyCFunction) ChannelCore_pump, METH_NOARGS, "Send posted data as far as credits allow, then the end if it is due."},
	{"_pass_ends", (PyCFunction) ChannelCore_pass_ends, METH_NOARGS, "The loop calls this at the end of a pass."},
	{"_say", (PyCFunction) ChannelCore_say, METH_O, "Send a frame without data, unless CLOSE was sent or the peer is lost."},
	{"_fail_posted", (PyCFunction) ChannelCore_fail_posted, METH_O, "No data can be sent any more: report this error to its owners."},
	{NULL},
};

static PyGetSetDef properties[] = {
	{"flowing", (getter) ChannelCore_get_flowing, NULL,
	 "Whether only the provider delays new data: no earlier data is posted, and credits are left."},
	{NULL},
};

int add_channel_sending(PyObject *module)
{
	static const struct name names[] = {
		{&name_admits, "admits"}, {&name_inject, "inject"}, {&name_notify, "notify"}, {&name_pass_ends, "_pass_ends"},
		{&name_post, "post"}, {&name_refuse, "refuse"}, {&name_thread_check, "thread_check"},
		{&name_transmit_failed, "_transmit_failed"}, {&name_traceback, "__traceback__"}, {NULL},
	};

	return intern(names) || add_methods(ChannelCore_Type, methods) || add_properties(ChannelCore_Type, properties) ? -1 : 0;
}
