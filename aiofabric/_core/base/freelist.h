/* Objects that are reused. */
#ifndef AIOFABRIC_FREELIST_H
#define AIOFABRIC_FREELIST_H

#include "base/references.h"

#define FREELIST_ROOM 32

typedef struct {
	PyObject *objects[FREELIST_ROOM];
	int count;
} Freelist;

/* A zeroed object of this type and size, tracked by the collector; NULL with an exception. */
void *freelist_take(Freelist *self, PyTypeObject *type, size_t size);
/*
 * The end of the object's tp_dealloc: its references are released already, and the collector does not track it any
 * more.
 */
void freelist_give(Freelist *self, void *object);

#endif
