/* Which object a completion is for. */
#ifndef AIOFABRIC_REGISTRY_H
#define AIOFABRIC_REGISTRY_H

#include "base/references.h"

typedef struct {
	PyObject_HEAD
	struct place *places;
	size_t room, count;	/* room: a power of two, or 0 */
	int shift;
} Registry;

extern PyTypeObject *Registry_Type;

/* Borrowed; NULL if there is none. */
PyObject *registry_find(const Registry *self, const void *address);
int registry_enter(Registry *self, const void *address, PyObject *object);
/* Remove and return the object, a new reference for the caller; NULL if there is none. */
PyObject *registry_remove(Registry *self, const void *address);
void registry_forget(Registry *self, const void *address);
int registry_clear(Registry *self);

int add_registry(PyObject *module);

#endif
