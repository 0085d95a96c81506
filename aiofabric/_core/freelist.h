/* Objects that are used again. */
#ifndef AIOFABRIC_FREELIST_H
#define AIOFABRIC_FREELIST_H

#include "references.h"

#define SPARES 32

typedef struct {
	PyObject *objects[SPARES];
	int count;
} Spares;

/* An object of this type and size with nothing in it, that the collector knows; NULL with an exception. */
void *spares_take(Spares *self, PyTypeObject *type, size_t size);
/* The end of its tp_dealloc: what it held was given back, and the collector does not know it any more. */
void spares_give(Spares *self, void *object);

#endif
