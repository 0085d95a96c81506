/* The awaitable of data that has not arrived yet. */
#ifndef AIOFABRIC_DATA_WAITER_H
#define AIOFABRIC_DATA_WAITER_H

#include "base/references.h"
#include "channel/channel.h"
#include "channel/message_reader.h"

/* Whether a task sends, or receives: `Guard` in streams/base.py. */
typedef struct {
	PyObject_HEAD
	char busy;
} GuardCore;

extern PyTypeObject *GuardCore_Type;

/* The arguments of a receive. */
struct receiving_call {
	PyObject *stream, *argument; /* for its method in Python */
	PyObject *method;	/* name of that method, which raises, and waits in other cases */
	Py_ssize_t most;
	Py_buffer memory;	/* of the caller, if `obj` is set */
	MessageReader *reader;	/* of messages; NULL: bytes are received */
};

/*
 * The data, if some is there: bytes, a message, or the number of bytes in the caller's memory. NULL without an exception:
 * none, or no complete message.
 */
PyObject *data_take(ChannelCore *channel, const struct receiving_call *call);

/* Its result is that of the receive. It takes over the memory of `call`, also if it fails. */
PyObject *data_waiter_new(ChannelCore *channel, GuardCore *guard, struct receiving_call *call);

int add_data_waiter(PyObject *module);

#endif
