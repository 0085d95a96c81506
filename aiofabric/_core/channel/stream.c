/*
 * StreamPath: `send`, `receive` and `receive_into` of a stream, for the usual call: one that need not wait, or that waits
 * for data. Everything else is in Python (streams/byte.py, streams/message.py): ends, errors, other loops than asyncio's, a
 * second task.
 *
 * A round trip of 64 B, CPU of both sides on one core: 40 us with the channel and these calls in Python; the endpoint below
 * took 24 of them.
 */
#include "channel/stream.h"
#include "base/call.h"
#include "base/fast_method.h"
#include "base/names.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "channel/arrivals.h"
#include "channel/channel.h"
#include "channel/data_waiter.h"
#include "channel/message_reader.h"
#include "channel/sending.h"
#include "progress/arming.h"
#include "progress/iteration.h"
#include "progress/source.h"

static PyTypeObject *StreamPath_Type;

static PyObject *name_checkpoint, *name_receive, *name_receive_into, *name_send;

#define DEFAULT_MOST 65536 /* bytes of a receive() without an argument */

typedef struct {
	PyObject_HEAD
	ChannelCore *channel;
	GuardCore *sending, *receiving;
	MessageReader *reader;	/* NULL: a stream of bytes */
	long long longest;	/* bytes of a message that is sent here */
} StreamPath;

/* NULL: its awaits are in Python. */
static StreamPath *path_of(PyObject *object)
{
	StreamPath *self = (StreamPath *) object;
	const SourceCore *source;

	if (!Py_IS_TYPE(object, StreamPath_Type) || !self->channel || !self->channel->closed)
		return NULL;
	if (self->channel->loop_thread && !thread_check_admits(self->channel->loop_thread))
		return NULL; /* the method in Python raises */
	source = self->channel->source;
	return source && source->waker && !source->checkpoints ? self : NULL;
}

/* The method in Python does the whole call. */
static int elsewhere(Call *call, PyObject *name)
{
	call->base.steps = PyObject_CallMethodObjArgs(call->second, name, call->first, NULL);
	return call->base.steps ? 0 : -1;
}

/* -- sending */

/* A message of up to `longest` bytes is sent behind its length, little-endian: streams/message.py. */
static int try_message(StreamPath *self, struct outgoing *data)
{
	unsigned char length[MESSAGE_LENGTH] = {
		data->size & 0xff, data->size >> 8 & 0xff, data->size >> 16 & 0xff, data->size >> 24 & 0xff,
	};

	if (data->size > self->longest)
		return 0;
	data->prefix = (const char *) length;
	data->prefix_size = sizeof(length);
	return channel_try_send(self->channel, data);
}

static int try_send(StreamPath *self, PyObject *object)
{
	struct outgoing data = {.object = object, .prefix = ""};
	Py_buffer view;
	int sent;

	if (refuse_pointers(object) || PyObject_GetBuffer(object, &view, PyBUF_SIMPLE)) {
		PyErr_Clear(); /* the method in Python raises */
		return 0;
	}
	data.bytes = view.buf;
	data.size = view.len;
	sent = self->reader ? try_message(self, &data) : channel_try_send(self->channel, &data);
	PyBuffer_Release(&view);
	return sent;
}

static int begin_to_send(Call *call, PyObject **result)
{
	StreamPath *self = (StreamPath *) call->target;
	ChannelCore *channel = self->channel;
	int sent = 0;

	if (!self->sending->busy && channel->refusal == Py_None)
		sent = try_send(self, call->first);
	if (sent < 0 && channel->refusal == Py_None)
		return -1;
	if (sent <= 0) { /* if the stream was lost just now, the method raises the stream's own error */
		PyErr_Clear();
		return elsewhere(call, name_send);
	}
	if (iteration_must_yield(&channel->source->iteration)) {
		call->silent = 1;
		call->base.steps = PyObject_CallMethodObjArgs((PyObject *) channel, name_checkpoint, NULL);
		return call->base.steps ? 0 : -1;
	}
	*result = new_ref(Py_None);
	return 1;
}

static PyObject *send(PyObject *path, PyObject *const *args, Py_ssize_t count)
{
	StreamPath *self = path_of(path);
	const char *name = self && self->reader ? "MessageStream.send" : "FabricStream.send";

	return self ? call_new(begin_to_send, name, self, args[1], args[0]) : NULL;
}

/* -- receiving */

/* 1: it may take data, or poll; 0: the method in Python goes on. */
static int may_receive(const StreamPath *self)
{
	const ChannelCore *channel = self->channel;

	return !self->receiving->busy && channel->closed == Py_None && !iteration_must_yield(&channel->source->iteration) &&
	       (channel->arrivals.size || (!channel->end_received && channel->gone == Py_None && !channel->reader));
}

/* The answer to what was sent comes only if that leaves. */
static int poll_for_answer(ChannelCore *channel)
{
	return channel_flush(channel) || source_poll(channel->source) ? -1 : 0;
}

/* As `beginning`. It takes over the memory of `asked`. */
static int begin_to_receive(Call *call, struct receiving_call *asked, PyObject **result)
{
	StreamPath *self = (StreamPath *) call->target;
	ChannelCore *channel = self->channel;
	int may = may_receive(self), rc = 0;

	if (may)
		*result = data_take(channel, asked);
	if (may && !*result && !PyErr_Occurred()) {
		rc = poll_for_answer(channel);
		*result = rc ? NULL : data_take(channel, asked);
		may = !channel->source->iteration.must_iterate && may_receive(self);
	}
	if (*result || rc || PyErr_Occurred()) {
		PyBuffer_Release(&asked->memory);
		return *result ? 1 : -1;
	}
	if (may && !channel->arrivals.size) {
		call->base.steps = data_waiter_new(channel, self->receiving, asked);
		return call->base.steps ? 0 : -1;
	}
	PyBuffer_Release(&asked->memory);
	return elsewhere(call, asked->method);
}

static int begin_receive(Call *call, PyObject **result)
{
	struct receiving_call asked = {.stream = call->second, .argument = call->first, .method = name_receive};

	asked.most = PyLong_AsSsize_t(call->first);
	return begin_to_receive(call, &asked, result);
}

static PyObject *receive_bytes(PyObject *path, PyObject *const *args, Py_ssize_t count)
{
	StreamPath *self = path_of(path);
	Py_ssize_t most = DEFAULT_MOST;
	PyObject *number, *call;

	if (!self)
		return NULL;
	if (count > 1) {
		most = PyLong_CheckExact(args[1]) ? PyLong_AsSsize_t(args[1]) : 0;
		if (most < 1) { /* also a number that is too long */
			PyErr_Clear();
			return NULL;
		}
	}
	number = count > 1 ? new_ref(args[1]) : PyLong_FromSsize_t(most);
	call = number ? call_new(begin_receive, "FabricStream.receive", self, number, args[0]) : NULL;
	Py_XDECREF(number);
	return call;
}

static int begin_receive_into(Call *call, PyObject **result)
{
	struct receiving_call asked = {.stream = call->second, .argument = call->first, .method = name_receive_into};

	if (refuse_pointers(call->first) || PyObject_GetBuffer(call->first, &asked.memory, PyBUF_WRITABLE) || !asked.memory.len) {
		PyErr_Clear();
		PyBuffer_Release(&asked.memory);
		return elsewhere(call, name_receive_into);
	}
	return begin_to_receive(call, &asked, result);
}

static PyObject *receive_into(PyObject *path, PyObject *const *args, Py_ssize_t count)
{
	StreamPath *self = path_of(path);

	return self ? call_new(begin_receive_into, "FabricStream.receive_into", self, args[1], args[0]) : NULL;
}

static int begin_receive_message(Call *call, PyObject **result)
{
	StreamPath *self = (StreamPath *) call->target;
	struct receiving_call asked = {.stream = call->second, .method = name_receive, .reader = self->reader};

	return begin_to_receive(call, &asked, result);
}

static PyObject *receive_message(PyObject *path, PyObject *const *args, Py_ssize_t count)
{
	StreamPath *self = path_of(path);

	return self && self->reader ? call_new(begin_receive_message, "MessageStream.receive", self, NULL, args[0]) : NULL;
}

/* -- the type */

static int StreamPath_init(StreamPath *self, PyObject *args, PyObject *kwargs)
{
	PyObject *channel, *sending, *receiving, *reader = NULL;

	if (refuse_second_init(self->channel))
		return -1;
	if (!PyArg_ParseTuple(args, "O!O!O!|O!L", ChannelCore_Type, &channel, GuardCore_Type, &sending, GuardCore_Type, &receiving,
			      MessageReader_Type, &reader, &self->longest))
		return -1;
	if (reader && ((MessageReader *) reader)->channel != (ChannelCore *) channel) {
		PyErr_SetString(PyExc_ValueError, "expected a message reader of the same channel");
		return -1;
	}
	self->channel = (ChannelCore *) new_ref(channel);
	self->sending = (GuardCore *) new_ref(sending);
	self->receiving = (GuardCore *) new_ref(receiving);
	if (reader)
		self->reader = (MessageReader *) new_ref(reader);
	return 0;
}

static int StreamPath_traverse(StreamPath *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->channel);
	Py_VISIT(self->reader);
	return 0;
}

static void StreamPath_dealloc(StreamPath *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->channel);
	Py_CLEAR(self->sending);
	Py_CLEAR(self->receiving);
	Py_CLEAR(self->reader);
	free_object(self);
}

static PyType_Slot StreamPath_slots[] = {
	{Py_tp_doc, "StreamPath(channel, sending, receiving[, reader, longest]): the targets of those calls of a stream that run in C:\n"
		    "guards; of messages also their reader, and the bytes of the longest that is sent there."},
	{Py_tp_init, StreamPath_init},
	{Py_tp_dealloc, StreamPath_dealloc},
	{Py_tp_traverse, StreamPath_traverse},
	{0, NULL},
};

static PyType_Spec StreamPath_spec = {
	"aiofabric._core.StreamPath", sizeof(StreamPath), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, StreamPath_slots,
};

static PyObject *fast_stream_send(PyObject *module, PyObject *function)
{
	return fast_method_new(function, send, 2, 2);
}

static PyObject *fast_stream_receive(PyObject *module, PyObject *function)
{
	return fast_method_new(function, receive_bytes, 1, 2);
}

static PyObject *fast_stream_receive_into(PyObject *module, PyObject *function)
{
	return fast_method_new(function, receive_into, 2, 2);
}

static PyObject *fast_message_receive(PyObject *module, PyObject *function)
{
	return fast_method_new(function, receive_message, 1, 1);
}

int add_stream(PyObject *module)
{
	static PyMethodDef functions[] = {
		{"fast_stream_send", fast_stream_send, METH_O, "The function, except that C sends where `StreamPath` can."},
		{"fast_stream_receive", fast_stream_receive, METH_O, "The function, except that C receives where `StreamPath` can."},
		{"fast_stream_receive_into", fast_stream_receive_into, METH_O,
		 "The function, except that C receives where `StreamPath` can."},
		{"fast_message_receive", fast_message_receive, METH_O, "The function, except that C receives where `StreamPath` can."},
		{NULL},
	};
	static const struct name names[] = {
		{&name_checkpoint, "checkpoint"}, {&name_receive, "_receive"}, {&name_receive_into, "_receive_into"},
		{&name_send, "_send"}, {NULL},
	};

	if (intern(names) || PyModule_AddFunctions(module, functions))
		return -1;
	return add_type(module, &StreamPath_spec, NULL, &StreamPath_Type);
}
