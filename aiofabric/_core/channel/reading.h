/* The half of a byte channel that gives arrived data to its readers. */
#ifndef AIOFABRIC_CHANNEL_READING_H
#define AIOFABRIC_CHANNEL_READING_H

#include "base/references.h"
#include "channel/channel.h"

/* A frame of data has arrived. 1: `buffer` is kept, the receive that holds it; -1: an exception. */
int channel_data_arrived(ChannelCore *self, PoolBuffer *buffer, const char *bytes, Py_ssize_t size);
/* All frames of a read of the queue have arrived: the protocol gets those that wait for that. */
int channel_read_ended(ChannelCore *self);
/* Data, the end or an error can be taken. */
int channel_wake_reader(ChannelCore *self);
/* 1: there is data; 0: the end; -1: an exception, or nothing was set: nothing has arrived. */
int channel_has_data(ChannelCore *self);
/* None, unless an exception is set: for a call that found nothing. */
PyObject *none_unless_raised(void);
/* Take at most so many bytes; only if there are some. */
PyObject *channel_take(ChannelCore *self, Py_ssize_t most);
/* The same, to `to`; returns how many, or -1. */
Py_ssize_t channel_take_into(ChannelCore *self, char *to, Py_ssize_t most);

int add_channel_reading(PyObject *module);

#endif
