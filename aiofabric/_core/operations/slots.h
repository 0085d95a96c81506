/* The fi_contexts that operations pass to the provider. */
#ifndef AIOFABRIC_SLOTS_H
#define AIOFABRIC_SLOTS_H

#include "base/fifo.h"
#include "base/references.h"

typedef struct {
	PyObject_HEAD
	PyObject *pointer, *address;
} Slot;

typedef struct {
	PyObject_HEAD
	Fifo *free;
	long long in_use;
} SlotsCore;

extern PyTypeObject *Slot_Type, *SlotsCore_Type;

Slot *slots_acquire(SlotsCore *self);
int slots_release(SlotsCore *self, PyObject *slot);

int add_slots(PyObject *module);

#endif
