/* An operation of a submission queue. */
#ifndef AIOFABRIC_TRANSFER_H
#define AIOFABRIC_TRANSFER_H

#include "base/references.h"
#include "operations/operation.h"
#include "queue/completion_queue.h"

extern PyTypeObject *Transfer_Type;

Operation *transfer_new(PyObject *what, PyObject *submission, PyObject *slot, PyObject *pins, PyObject *registrations,
			long long length);
int transfer_complete(Operation *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from);

int add_transfer(PyObject *module);

#endif
