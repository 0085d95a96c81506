/* Strings that Python is asked by, made once; and making types. */
#ifndef AIOFABRIC_NAMES_H
#define AIOFABRIC_NAMES_H

#include "references.h"

/* Names that are asked for, made once. The last one's is NULL. */
struct name {
	PyObject **name;
	const char *text;
};

int intern(const struct name *names);

/* What another module has; NULL with an exception. */
PyObject *import_from(const char *name, const char *what);

/*
 * An attribute that Python may set, but not delete: C takes it for an object. For a table of PyGetSetDef; `T_OBJECT_EX`
 * in one of PyMemberDef allows `del`.
 */
#define OBJECT_FIELD(name, type, field, doc) {name, field_get, field_set, doc, (void *) offsetof(type, field)}
PyObject *field_get(PyObject *self, void *offset);
int field_set(PyObject *self, PyObject *value, void *offset);

/* Make a type, add it to the module and keep a pointer to it. */
int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type);
/* What another file adds to a type: each has its own methods, and the type knows none of them. */
int add_methods(PyTypeObject *type, PyMethodDef *methods);

#endif
