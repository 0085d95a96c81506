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

/* Make a type, add it to the module and keep a pointer to it. */
int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type);
/* What another file adds to a type: each has its own methods, and the type knows none of them. */
int add_methods(PyTypeObject *type, PyMethodDef *methods);

#endif
