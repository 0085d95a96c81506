/* The half of a byte channel that sends. */
#ifndef AIOFABRIC_CHANNEL_SENDING_H
#define AIOFABRIC_CHANNEL_SENDING_H

#include "base/references.h"
#include "channel/channel.h"

/* Data to send: memory of `object`; in front of it a `prefix`, such as the length of a message. */
struct outgoing {
	PyObject *object;
	const char *bytes, *prefix;
	Py_ssize_t size, prefix_size;
};

/* Send as much as can leave at once, which is all or nothing. 1: all was sent; 0: nothing; -1: an exception. */
int channel_try_send(ChannelCore *self, const struct outgoing *data);
/* The small sends that were gathered leave now. */
int channel_flush(ChannelCore *self);
/* Send posted data as far as credits allow, then the end if it is due. */
int channel_pump(ChannelCore *self);
/* Data was taken that cost so many credits. */
int channel_grant(ChannelCore *self, long long credits);
/* Send a frame without data. */
int channel_say(ChannelCore *self, int kind);
/* Raise the error; its traceback would refer to the caller's memory. */
int channel_raise(PyObject *error);

int add_channel_sending(PyObject *module);

#endif
