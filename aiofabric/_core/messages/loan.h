/* Received messages whose memory the receiver uses for a while. */
#ifndef AIOFABRIC_LOAN_H
#define AIOFABRIC_LOAN_H

#include "base/references.h"

int add_loan(PyObject *module);

#endif
