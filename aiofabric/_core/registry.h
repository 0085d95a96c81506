/* Which object a completion is for. */
#ifndef AIOFABRIC_REGISTRY_H
#define AIOFABRIC_REGISTRY_H

#include "references.h"

typedef struct {
	PyObject_HEAD
	struct place *places;
	size_t room, count;	/* room: a power of two, or 0 */
	int shift;
} Registry;

extern PyTypeObject *Registry_Type;

/* Borrowed; NULL for nobody. */
PyObject *registry_find(const Registry *self, const void *address);
int registry_enter(Registry *self, const void *address, PyObject *object);
/* Whoever was told: the caller's reference now; NULL for nobody. */
PyObject *registry_remove(Registry *self, const void *address);
void registry_forget(Registry *self, const void *address);
int registry_clear(Registry *self);

int add_registry(PyObject *module);

#endif
