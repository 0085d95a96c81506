/*
 * Python headers and helpers for every file of the core.
 *
 * Built against the limited API of Python 3.11, so that one binary serves all later versions.
 */
#ifndef AIOFABRIC_REFERENCES_H
#define AIOFABRIC_REFERENCES_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <assert.h> /* on in debug builds: see setup.py */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For the core's own types: the limited API takes only a PyObject *. */
static inline PyTypeObject *type_of(void *object)
{
	return Py_TYPE((PyObject *) object);
}

static inline PyObject *new_ref(void *object)
{
	return Py_NewRef((PyObject *) object);
}

/* As Py_XSETREF of CPython, which the limited API leaves out. */
#define REPLACE(field, value)                       \
	do {                                        \
		PyObject *old_ = (PyObject *) (field); \
		(field) = (value);                  \
		Py_XDECREF(old_);                   \
	} while (0)

/* The end of a tp_dealloc. */
static inline void free_object(void *self)
{
	PyTypeObject *type = type_of(self);
	freefunc release = PyType_GetSlot(type, Py_tp_free);

	release(self);
	Py_DECREF((PyObject *) type);
}

static inline void *pointer_of(PyObject *address)
{
	return PyLong_AsVoidPtr(address);
}

/* Truth of a result that is not needed otherwise: 0, 1, or -1 with the exception set. */
static inline int truth_of(PyObject *result)
{
	int truth = result ? PyObject_IsTrue(result) : -1;

	Py_XDECREF(result);
	return truth;
}

/* Drop the result of a call: 0, or -1 with the exception set. */
static inline int drop(PyObject *result)
{
	if (!result)
		return -1;
	Py_DECREF(result);
	return 0;
}

/*
 * A second `__init__` would change fields that other objects rely on. Call this first in a tp_init, with a field that
 * it sets.
 */
static inline int refuse_second_init(const void *field)
{
	if (field)
		PyErr_SetString(PyExc_RuntimeError, "expected one __init__: an object of the native core is initialised once");
	return field != NULL;
}

/* The return value of a method without a result. */
static inline PyObject *none_if(int rc)
{
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

#endif
