/* For steps that must all run, also after an exception: see exceptions.h. */
#include "base/exceptions.h"
#include "base/references.h"

void exception_keep(struct first_exception *first, void *where)
{
	assert(PyErr_Occurred());
	if (first->type)
		PyErr_WriteUnraisable((PyObject *) where);
	else
		PyErr_Fetch(&first->type, &first->error, &first->traceback);
}

int exception_raise(struct first_exception *first)
{
	if (!first->type)
		return 0;
	PyErr_Restore(first->type, first->error, first->traceback);
	return -1;
}

void raise_expected(const char *what, PyObject *got)
{
	PyObject *type = got ? PyType_GetName(type_of(got)) : NULL;

	if (type)
		PyErr_Format(PyExc_TypeError, "expected %s, got an object of the type %U", what, type);
	else if (!got)
		PyErr_Format(PyExc_TypeError, "expected %s, got nothing", what);
	Py_XDECREF(type);
}

void raise_arguments(const char *what, Py_ssize_t count)
{
	PyErr_Format(PyExc_TypeError, "expected %s, got %zd arguments, or arguments of other types", what, count);
}

int call_soon_despite_interrupt(PyObject *call_soon, PyObject *callback)
{
	struct first_exception interrupt = NO_EXCEPTION;
	int rc = drop(PyObject_CallFunctionObjArgs(call_soon, callback, NULL));

	if (!rc || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return rc;
	exception_keep(&interrupt, call_soon);
	if (drop(PyObject_CallFunctionObjArgs(call_soon, callback, NULL)))
		exception_keep(&interrupt, call_soon);
	return exception_raise(&interrupt);
}
