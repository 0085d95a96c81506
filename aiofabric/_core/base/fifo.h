/* A queue of objects, oldest first. */
#ifndef AIOFABRIC_FIFO_H
#define AIOFABRIC_FIFO_H

#include "base/references.h"

typedef struct {
	PyObject_HEAD
	PyObject **items;	/* a ring; room is a power of two, or 0 */
	Py_ssize_t room, head, count;
} Fifo;

extern PyTypeObject *Fifo_Type;

/* Borrowed; `index` is less than `count`. */
static inline PyObject *fifo_at(const Fifo *self, Py_ssize_t index)
{
	assert(index >= 0 && index < self->count && self->count <= self->room);
	return self->items[(self->head + index) & (self->room - 1)];
}

int fifo_append(Fifo *self, PyObject *item);
int fifo_insert(Fifo *self, Py_ssize_t index, PyObject *item);
PyObject *fifo_popleft(Fifo *self);

int add_fifo(PyObject *module);

#endif
