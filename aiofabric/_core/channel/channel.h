/* A byte channel: ordered bytes both ways over an endpoint. */
#ifndef AIOFABRIC_CHANNEL_H
#define AIOFABRIC_CHANNEL_H

#include "base/references.h"
#include "base/thread_check.h"
#include "channel/arrivals.h"
#include "channel/outbox.h"
#include "progress/source.h"
#include "queue/wakeups.h"
#include "submission/submission.h"

/* Small sends of one pass of the loop, which leave as one frame. */
struct gather {
	char *bytes;
	Py_ssize_t size, room;
	long long count;	/* sends */
	long long began;	/* when the first of them came */
	long long longest;	/* ns after which their frame leaves before the pass ends; 0: each leaves as a frame */
	long long pass;		/* when the iteration of the loop began in which a frame left last; 0: none did */
	char scheduled;		/* `_pass_ends` will be called */
	char counted;		/* in `unsent` of the source: nothing may poll before the frame has left */
};

/* Where an asyncio protocol gets its data: `data_received`, or `get_buffer` and `buffer_updated`. */
struct consumer {
	PyObject *data_received, *get_buffer, *buffer_updated;
	PyObject *failed;	/* called with the exception of one of them */
};

typedef struct {
	PyObject_HEAD
	PyObject *handle, *tx;	/* of the endpoint: refuses calls, and sends */
	SourceCore *source;	/* NULL: it is written in Python, and so are the awaits */
	SubmissionCore *route;	/* `tx`, if it is one */
	ThreadCheck *loop_thread; /* NULL: the handle has none */
	/* receiving */
	struct arrivals arrivals;
	struct consumer consumer;
	PyObject *watcher;
	Waiter *reader;		/* of the task that waits for data, not counted; or NULL */
	long long window, taken, outstanding, got_bytes, got_frames;
	long long joined;	/* frames that the protocol gets together when the read of the queue ends */
	char end_received, close_received;
	/* sending */
	struct gather gather;
	struct outbox outbox;
	PyObject *on_writable;
	long long payload, copied, least, credits, most_credits, sent_bytes, sent_frames;
	int end_frame;		/* KIND_END or KIND_CLOSE, to be sent after all posted data; -1: neither */
	char said_end, said_close;
	/* the end */
	PyObject *gone, *closed, *refusal, *on_closed;
} ChannelCore;

extern PyTypeObject *ChannelCore_Type;

/* 0, with an exception: it was not initialised, or the collector has cleared it. */
int channel_ready(const ChannelCore *self);

int add_channel(PyObject *module);

#endif
