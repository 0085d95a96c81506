/* The messages of a MessageStream, out of the data of its channel. */
#ifndef AIOFABRIC_MESSAGE_READER_H
#define AIOFABRIC_MESSAGE_READER_H

#include "base/references.h"
#include "channel/channel.h"

#define MESSAGE_LENGTH 4 /* bytes of the length in front of a message, little-endian */

typedef struct {
	PyObject_HEAD
	ChannelCore *channel;
	Py_ssize_t longest;	/* bytes of a message that is accepted */
	/* the message that is arriving */
	unsigned char length[MESSAGE_LENGTH];
	Py_ssize_t length_filled; /* bytes of `length` that have arrived */
	PyObject *message;	/* NULL before its length has arrived */
	Py_ssize_t filled;	/* bytes of `message` that have arrived */
} MessageReader;

extern PyTypeObject *MessageReader_Type;

/*
 * The next message. NULL without an exception: it has not arrived completely, and then all data was taken; or it is too
 * long, and then nothing is taken any more.
 */
PyObject *message_reader_take(MessageReader *self);

int add_message_reader(PyObject *module);

#endif
