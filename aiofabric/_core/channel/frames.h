/* Reads the frames of a byte channel. */
#ifndef AIOFABRIC_CHANNEL_FRAMES_H
#define AIOFABRIC_CHANNEL_FRAMES_H

#include "base/references.h"

int add_channel_frames(PyObject *module);

#endif
