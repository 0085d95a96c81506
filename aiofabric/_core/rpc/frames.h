/* Reads the frames of a fabric message. */
#ifndef AIOFABRIC_RPC_FRAMES_H
#define AIOFABRIC_RPC_FRAMES_H

#include "base/references.h"

int add_rpc_frames(PyObject *module);

#endif
