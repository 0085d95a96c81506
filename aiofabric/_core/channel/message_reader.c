/*
 * MessageReader: the messages of a MessageStream. Each is in the data of the channel behind its length; channel/stream.c
 * writes it. A message is put together in the `bytes` that the program gets: its data is copied once.
 *
 * In Python, with the data taken as `bytes` and cut into messages, a round trip of 64 B took 41 us of one core, and 1 MiB
 * came at 1.0 GB/s.
 */
#include "channel/message_reader.h"
#include "base/names.h"
#include "base/references.h"
#include "channel/arrivals.h"
#include "channel/channel.h"
#include "channel/reading.h"

#include <string.h>

PyTypeObject *MessageReader_Type;

/*
 * Bytes that a message gets at first, and how many times as many when they are filled: a peer that announces a long
 * message, and sends nothing, uses no more memory.
 */
#define FIRST_ROOM (1 << 20)
#define GROWTH 4

static Py_ssize_t announced(const MessageReader *self)
{
	const unsigned char *at = self->length;

	return at[0] | at[1] << 8 | at[2] << 16 | (Py_ssize_t) at[3] << 24;
}

static int knows_length(const MessageReader *self)
{
	return self->length_filled == MESSAGE_LENGTH;
}

static int is_too_long(const MessageReader *self)
{
	return knows_length(self) && announced(self) > self->longest;
}

static int take_length(MessageReader *self)
{
	Py_ssize_t missing = MESSAGE_LENGTH - self->length_filled;
	Py_ssize_t count = missing ? channel_take_into(self->channel, (char *) self->length + self->length_filled, missing) : 0;

	if (count < 0)
		return -1;
	self->length_filled += count;
	return 0;
}

/* The message has room for another byte, or for all of its bytes. */
static int make_room(MessageReader *self)
{
	Py_ssize_t size = announced(self), room = self->message ? PyBytes_Size(self->message) : 0;
	PyObject *message;

	if (self->message && (self->filled < room || room == size))
		return 0;
	room = room ? GROWTH * room : FIRST_ROOM;
	message = PyBytes_FromStringAndSize(NULL, room < size ? room : size);
	if (!message)
		return -1;
	if (self->message)
		memcpy(PyBytes_AsString(message), PyBytes_AsString(self->message), self->filled);
	REPLACE(self->message, message);
	return 0;
}

static int fill(MessageReader *self)
{
	Py_ssize_t room, count;

	if (make_room(self))
		return -1;
	room = PyBytes_Size(self->message) - self->filled;
	count = room ? channel_take_into(self->channel, PyBytes_AsString(self->message) + self->filled, room) : 0;
	if (count < 0)
		return -1;
	self->filled += count;
	return 0;
}

static void begin_next(MessageReader *self)
{
	self->message = NULL;
	self->filled = self->length_filled = 0;
}

PyObject *message_reader_take(MessageReader *self)
{
	PyObject *message;

	if (take_length(self) || !knows_length(self) || is_too_long(self))
		return NULL;
	do {
		if (fill(self))
			return NULL;
		if (self->filled == announced(self)) {
			message = self->message;
			begin_next(self);
			return message;
		}
	} while (self->channel->arrivals.size);
	return NULL;
}

/* -- the type */

static PyObject *MessageReader_take(MessageReader *self, PyObject *unused)
{
	PyObject *message = NULL;
	int has;

	if (!self->channel)
		return PyErr_Format(PyExc_RuntimeError, "expected a message reader that was initialised");
	has = channel_has_data(self->channel);
	if (has > 0)
		message = message_reader_take(self);
	if (message || PyErr_Occurred())
		return message;
	if (is_too_long(self))
		return PyErr_Format(PyExc_OverflowError, "The peer announced a message of %zd bytes", announced(self));
	if (has > 0)
		has = channel_has_data(self->channel);
	if (!has)
		return PyErr_Format(PyExc_EOFError, "the peer has ended");
	return none_unless_raised();
}

static PyObject *MessageReader_drop(MessageReader *self, PyObject *unused)
{
	PyObject *message = self->message;

	begin_next(self);
	Py_XDECREF(message);
	Py_RETURN_NONE;
}

static PyObject *MessageReader_get_within_message(MessageReader *self, void *unused)
{
	return PyBool_FromLong(self->length_filled > 0);
}

static int MessageReader_init(MessageReader *self, PyObject *args, PyObject *kwargs)
{
	PyObject *channel;

	if (refuse_second_init(self->channel))
		return -1;
	if (!PyArg_ParseTuple(args, "O!n", ChannelCore_Type, &channel, &self->longest))
		return -1;
	self->channel = (ChannelCore *) new_ref(channel);
	return 0;
}

static int MessageReader_traverse(MessageReader *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->channel);
	return 0;
}

static void MessageReader_dealloc(MessageReader *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->channel);
	Py_CLEAR(self->message);
	free_object(self);
}

static PyMethodDef MessageReader_methods[] = {
	{"take", (PyCFunction) MessageReader_take, METH_NOARGS,
	 "The next message; None if it has not arrived completely. Raises EOFError at the end of the data, OverflowError if\n"
	 "the peer announced a longer message than `longest`, and the channel's errors."},
	{"drop", (PyCFunction) MessageReader_drop, METH_NOARGS, "Forget what has arrived of a message."},
	{NULL},
};

static PyGetSetDef MessageReader_properties[] = {
	{"within_message", (getter) MessageReader_get_within_message, NULL, "Whether a part of a message has arrived."},
	{NULL},
};

static PyType_Slot MessageReader_slots[] = {
	{Py_tp_doc, "MessageReader(channel, longest): the messages in its data, of at most `longest` bytes."},
	{Py_tp_init, MessageReader_init},
	{Py_tp_dealloc, MessageReader_dealloc},
	{Py_tp_traverse, MessageReader_traverse},
	{Py_tp_methods, MessageReader_methods},
	{Py_tp_getset, MessageReader_properties},
	{0, NULL},
};

static PyType_Spec MessageReader_spec = {
	"aiofabric._core.MessageReader", sizeof(MessageReader), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, MessageReader_slots,
};

int add_message_reader(PyObject *module)
{
	return add_type(module, &MessageReader_spec, NULL, &MessageReader_Type);
}
