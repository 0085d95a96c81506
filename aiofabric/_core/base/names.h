/* Interned strings for attributes and methods; and making types. */
#ifndef AIOFABRIC_NAMES_H
#define AIOFABRIC_NAMES_H

#include "base/references.h"

/* Names to intern once. The last one's `name` is NULL. */
struct name {
	PyObject **name;
	const char *text;
};

int intern(const struct name *names);

/* An attribute of another module; NULL with an exception. */
PyObject *import_from(const char *name, const char *what);

/*
 * An attribute that Python may set, but not delete: C relies on an object being there. For a table of PyGetSetDef;
 * `T_OBJECT_EX` in one of PyMemberDef allows `del`.
 */
#define OBJECT_FIELD(name, type, field, doc) {name, field_get, field_set, doc, (void *) offsetof(type, field)}
PyObject *field_get(PyObject *self, void *offset);
int field_set(PyObject *self, PyObject *value, void *offset);

/* Make a type, add it to the module and keep a pointer to it. */
int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type);
/*
 * A tp_new for types whose methods rely on their tp_init. `add_type` hides it: `Type.__new__(Type)`, which copy and
 * pickle call, is refused, because a method would crash after it.
 */
PyObject *new_with_arguments(PyTypeObject *type, PyObject *args, PyObject *kwargs);
/* Add methods of another file to a type: the type's own file does not name them. */
int add_methods(PyTypeObject *type, PyMethodDef *methods);
int add_properties(PyTypeObject *type, PyGetSetDef *properties);

#endif
