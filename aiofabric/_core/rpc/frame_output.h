/* The way of RPC frames to the provider. */
#ifndef AIOFABRIC_FRAME_OUTPUT_H
#define AIOFABRIC_FRAME_OUTPUT_H

#include "base/references.h"
#include "progress/source.h"
#include "submission/submission.h"

typedef struct {
	PyObject_HEAD
	SourceCore *source;
	SubmissionCore *route;	/* NULL: every message passes through Python */
	PyObject *transmit;	/* of the transport: hands one fabric message to the provider, whatever its size */
	PyObject *pass_ends;	/* of the transport: the other frames of a pass leave */
	long long pass;		/* when the iteration of the loop began in which a frame left last; 0: none did */
	char scheduled;		/* `pass_ends` will be called */
	char interrupted;	/* Ctrl-C came meanwhile, and `pass_ends` raises it */
} FrameOutput;

extern PyTypeObject *FrameOutput_Type;

/* Send the first frame of an iteration at once: 1. The others wait for its end: 0. -1: an exception. */
int frame_output_send(FrameOutput *self, PyObject *frame);

int add_frame_output(PyObject *module);

#endif
