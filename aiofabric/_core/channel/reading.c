/*
 * The half of a byte channel that gives arrived data to its readers. A frame goes to an asyncio protocol in the pass that
 * read it, with one copy; a watcher may take it from the pool's memory; otherwise it is kept (arrivals.c), and the task
 * that waits for data is woken.
 *
 * A protocol gets the small frames of one read of the queue together, as it gets what a socket has: each call of
 * `data_received` costs HTTP/2 in Python some 30 us. With 32 calls of grpclib at a time, 6,100 calls made 1,100 of them
 * instead of 5,800.
 */
#include "channel/reading.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "channel/arrivals.h"
#include "channel/channel.h"
#include "channel/sending.h"
#include "messages/receive_pool.h"
#include "progress/completions.h"
#include "progress/source.h"
#include "queue/wakeups.h"

/*
 * Bytes of the longest call of `data_received`. Longer `bytes`, and what protocols make of them, are memory that malloc
 * gets from the kernel and gives back each time. uvicorn took 100 MB of an upload at 0.7 GB/s with calls of 256 KiB. With
 * these it is 1.8 GB/s.
 */
#define READ_SIZE 65536

static PyObject *any_size; /* the argument of `get_buffer` */

Py_ssize_t channel_take_into(ChannelCore *self, char *to, Py_ssize_t most)
{
	long long credits = 0;
	Py_ssize_t count = arrivals_take(&self->arrivals, to, most, &credits);

	return channel_grant(self, credits) ? -1 : count;
}

PyObject *channel_take(ChannelCore *self, Py_ssize_t most)
{
	PyObject *data = PyBytes_FromStringAndSize(NULL, most < self->arrivals.size ? most : self->arrivals.size);

	if (data && channel_take_into(self, PyBytes_AsString(data), PyBytes_Size(data)) < 0)
		Py_CLEAR(data);
	return data;
}

/* -- asyncio's protocols */

static int fill_buffer(ChannelCore *self)
{
	struct consumer *consumer = &self->consumer;
	PyObject *updated = new_ref(consumer->buffer_updated), *number;
	PyObject *memory = PyObject_CallFunctionObjArgs(consumer->get_buffer, any_size, NULL);
	Py_ssize_t count = -1;
	Py_buffer view;
	int rc;

	if (memory && !refuse_pointers(memory) && !PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)) {
		if (!view.len)
			PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
		else
			count = channel_take_into(self, view.buf, view.len);
		PyBuffer_Release(&view);
	}
	Py_XDECREF(memory);
	number = count > 0 ? PyLong_FromSsize_t(count) : NULL;
	rc = number ? drop(PyObject_CallFunctionObjArgs(updated, number, NULL)) : count ? -1 : 0;
	Py_XDECREF(number);
	Py_DECREF(updated);
	return rc;
}

static int hand_over(ChannelCore *self)
{
	PyObject *receive = new_ref(self->consumer.data_received), *data = channel_take(self, READ_SIZE);
	int rc = data ? drop(PyObject_CallFunctionObjArgs(receive, data, NULL)) : -1;

	Py_XDECREF(data);
	Py_DECREF(receive);
	return rc;
}

/* The protocol failed to take data: its transport reports that, and ends. */
static int consumer_failed(ChannelCore *self)
{
	PyObject *type, *error, *traceback, *failed = self->consumer.failed ? new_ref(self->consumer.failed) : NULL;
	int rc = -1;

	if (!failed)
		return -1;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (error && traceback)
		PyException_SetTraceback(error, traceback);
	rc = drop(PyObject_CallFunctionObjArgs(failed, error ? error : Py_None, NULL));
	Py_DECREF(failed);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

static int has_protocol(const ChannelCore *self)
{
	return self->consumer.data_received || self->consumer.get_buffer;
}

/*
 * Each call may pause the transport, or end it. A protocol that has answered waits for the peer, and no task awaits that:
 * progress.c polls then.
 */
static int feed(ChannelCore *self)
{
	long long sent = self->sent_frames, frames = self->joined;

	self->joined = 0;
	while (self->arrivals.size && has_protocol(self))
		if (self->consumer.data_received ? hand_over(self) : fill_buffer(self))
			return consumer_failed(self);
	if (self->sent_frames > sent && self->source && self->source->waker)
		self->source->waker->functions_finished += frames;
	return 0;
}

/* -- the others */

int channel_wake_reader(ChannelCore *self)
{
	Waiter *reader = self->reader;
	PyObject *watcher;
	int rc = 0;

	if (reader) {
		self->reader = NULL;
		Py_INCREF((PyObject *) reader);
		rc = source_wake_waiter(self->source, reader, Py_None) < 0 ? -1 : 0;
		Py_DECREF((PyObject *) reader);
	}
	if (self->watcher != Py_None) {
		watcher = new_ref(self->watcher);
		rc |= drop(PyObject_CallNoArgs(watcher));
		Py_DECREF(watcher);
	}
	return rc;
}

static int is_consumed(const ChannelCore *self)
{
	return has_protocol(self) || self->watcher != Py_None;
}

/* The first frame, to a callback: it may take the data while it is in the pool's memory. */
static int offer(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size)
{
	struct first_exception first = NO_EXCEPTION;
	int kept;

	if (arrivals_offer(&self->arrivals, bytes, size))
		return -1;
	self->joined = 1;
	if (feed(self))
		exception_keep(&first, self);
	if (self->arrivals.size && channel_wake_reader(self))
		exception_keep(&first, self);
	kept = arrivals_settle(&self->arrivals, buffer);
	if (kept < 0)
		exception_keep(&first, self);
	return exception_raise(&first) ? (kept > 0 ? 1 : -1) : kept;
}

/* Whether a frame waits for those behind it; or, if it is not copied, goes to the protocol at once with those that wait. */
static int joins_others(const ChannelCore *self, Py_ssize_t size)
{
	if (self->joined)
		return 1;
	return size < LEND_FROM && !self->arrivals.size && has_protocol(self) && self->source && source_reads_on(self->source);
}

int channel_read_ended(ChannelCore *self)
{
	struct first_exception first = NO_EXCEPTION;

	if (feed(self))
		exception_keep(&first, self);
	if (self->arrivals.size && channel_wake_reader(self))
		exception_keep(&first, self);
	return exception_raise(&first);
}

static int join(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size)
{
	int kept = arrivals_append(&self->arrivals, bytes, size, buffer);

	if (kept < 0)
		return -1;
	if (!self->joined && source_call_after_read(self->source, (PyObject *) self))
		return -1;
	self->joined++;
	if (size < LEND_FROM)
		return kept;
	if (feed(self)) {
		if (!kept)
			return -1;
		PyErr_WriteUnraisable((PyObject *) self); /* the receive is in use: it must not be posted again */
	}
	return kept;
}

int channel_data_arrived(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size)
{
	int kept;

	if (joins_others(self, size))
		return join(self, buffer, bytes, size);
	if (!self->arrivals.size && is_consumed(self))
		return offer(self, buffer, bytes, size);
	kept = arrivals_append(&self->arrivals, bytes, size, buffer);
	if (kept >= 0 && self->reader && channel_wake_reader(self))
		PyErr_WriteUnraisable((PyObject *) self);
	return kept;
}

/* -- the methods */

int channel_has_data(ChannelCore *self)
{
	if (!channel_ready(self))
		return -1;
	if (self->closed != Py_None)
		return channel_raise(self->closed);
	if (self->arrivals.size)
		return 1;
	if (self->end_received)
		return 0;
	return self->gone != Py_None ? channel_raise(self->gone) : -1;
}

PyObject *none_unless_raised(void)
{
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *ChannelCore_try_recv(ChannelCore *self, PyObject *most)
{
	Py_ssize_t count = PyNumber_AsSsize_t(most, PyExc_OverflowError);
	int has;

	if (count == -1 && PyErr_Occurred())
		return NULL;
	if (count < 0) {
		PyErr_Format(PyExc_ValueError, "expected a number of bytes from 0 on, got %zd", count);
		return NULL;
	}
	has = channel_has_data(self);
	if (has < 0)
		return none_unless_raised();
	return has ? channel_take(self, count) : PyBytes_FromStringAndSize(NULL, 0);
}

static PyObject *ChannelCore_try_recv_into(ChannelCore *self, PyObject *memory)
{
	int has = channel_has_data(self);
	Py_ssize_t count = 0;
	Py_buffer view;

	if (has < 0)
		return none_unless_raised();
	if (has) {
		if (refuse_pointers(memory) || PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE))
			return NULL;
		count = channel_take_into(self, view.buf, view.len);
		PyBuffer_Release(&view);
	}
	return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

static int only_the_end(const ChannelCore *self)
{
	return !self->arrivals.size && (self->end_received || self->gone != Py_None || self->closed != Py_None);
}

static PyObject *ChannelCore_get_ended(ChannelCore *self, void *unused)
{
	return channel_ready(self) ? PyBool_FromLong(only_the_end(self)) : NULL;
}

static PyObject *ChannelCore_get_readable(ChannelCore *self, void *unused)
{
	return channel_ready(self) ? PyBool_FromLong(self->arrivals.size || only_the_end(self)) : NULL;
}

static PyObject *optional(PyObject *object)
{
	return object == Py_None ? NULL : new_ref(object);
}

static PyObject *ChannelCore_feed_to(ChannelCore *self, PyObject *args)
{
	PyObject *data_received, *get_buffer, *buffer_updated, *failed;
	struct consumer *consumer = &self->consumer;

	if (!PyArg_ParseTuple(args, "OOOO", &data_received, &get_buffer, &buffer_updated, &failed) || !channel_ready(self))
		return NULL;
	REPLACE(consumer->data_received, optional(data_received));
	REPLACE(consumer->get_buffer, optional(get_buffer));
	REPLACE(consumer->buffer_updated, new_ref(buffer_updated));
	REPLACE(consumer->failed, optional(failed));
	Py_RETURN_NONE;
}

static PyObject *ChannelCore_wake_reader(ChannelCore *self, PyObject *unused)
{
	return channel_ready(self) ? none_if(channel_wake_reader(self)) : NULL;
}

static PyObject *ChannelCore_drop_received(ChannelCore *self, PyObject *unused)
{
	arrivals_drop(&self->arrivals);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"try_recv", (PyCFunction) ChannelCore_try_recv, METH_O, "See `ByteChannel.try_recv`."},
	{"try_recv_into", (PyCFunction) ChannelCore_try_recv_into, METH_O, "See `ByteChannel.try_recv_into`."},
	{"feed_to", (PyCFunction) ChannelCore_feed_to, METH_VARARGS,
	 "feed_to(data_received, get_buffer, buffer_updated, failed): an asyncio protocol gets data in the pass that read\n"
	 "it, by the first of these, or by the next two; the last one gets the exception of such a call."},
	{"_wake_reader", (PyCFunction) ChannelCore_wake_reader, METH_NOARGS, "Wake the task that waits for data, and the watcher."},
	{"_drop_received", (PyCFunction) ChannelCore_drop_received, METH_NOARGS, "Forget the data that was not taken."},
	{NULL},
};

static PyGetSetDef properties[] = {
	{"readable", (getter) ChannelCore_get_readable, NULL, "Whether bytes, the end or an error can be taken right now."},
	{"ended", (getter) ChannelCore_get_ended, NULL, "Whether nothing but the end or an error can be taken any more."},
	{NULL},
};

int add_channel_reading(PyObject *module)
{
	any_size = PyLong_FromLong(-1);
	if (!any_size || PyModule_AddIntConstant(module, "READ_SIZE", READ_SIZE))
		return -1;
	return add_methods(ChannelCore_Type, methods) || add_properties(ChannelCore_Type, properties) ? -1 : 0;
}
