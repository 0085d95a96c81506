/* Objects that are used again. */
#ifndef AIOFABRIC_FREELIST_H
#define AIOFABRIC_FREELIST_H

#include "references.h"

#define FREELIST_ROOM 32

typedef struct {
	PyObject *objects[FREELIST_ROOM];
	int count;
} Freelist;

/* An object of this type and size with nothing in it, that the collector knows; NULL with an exception. */
void *freelist_take(Freelist *self, PyTypeObject *type, size_t size);
/* The end of its tp_dealloc: what it held was given back, and the collector does not know it any more. */
void freelist_give(Freelist *self, void *object);

#endif
