/*
 * The part that `Call` and `Handling` have in common. To asyncio, anyio and trio they are coroutines
 * (collections.abc.Coroutine), so they refuse what a coroutine of Python refuses, with its words.
 */
#include "base/coroutine.h"
#include "base/names.h"
#include "base/references.h"

static PyObject *name_close, *first_frame;

int coroutine_refuses(const Coroutine *self, int over)
{
	if (self->running)
		PyErr_SetString(PyExc_ValueError, "coroutine already executing");
	else if (over && self->phase == COROUTINE_OVER)
		PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
	else
		return 0;
	return 1;
}

int coroutine_refuses_value(const Coroutine *self, PyObject *value)
{
	if (coroutine_refuses(self, 1))
		return 1;
	if (self->phase != COROUTINE_CREATED || value == Py_None)
		return 0;
	PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
	return 1;
}

int coroutine_close_steps(const Coroutine *self)
{
	PyObject *close = self->steps ? PyObject_GetAttr(self->steps, name_close) : NULL;
	int rc;

	if (!close) { /* a generator has `close`; an awaitable in C needs none */
		PyErr_Clear();
		return 0;
	}
	rc = drop(PyObject_CallNoArgs(close));
	Py_DECREF(close);
	return rc;
}

PyObject *coroutine_await(Coroutine *self)
{
	if (self->phase != COROUTINE_GOING)
		return new_ref(self);
	PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
	return NULL;
}

PyObject *coroutine_get_suspended(Coroutine *self, void *unused)
{
	return PyBool_FromLong(self->phase == COROUTINE_GOING && !self->running);
}

PyObject *coroutine_first_frame(void)
{
	return new_ref(first_frame ? first_frame : Py_None);
}

static PyObject *learn_first_frame(PyObject *module, PyObject *frame)
{
	REPLACE(first_frame, new_ref(frame));
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"learn_first_frame", learn_first_frame, METH_O, "`cr_frame` of each coroutine of C before its first step."},
	{NULL},
};

int add_coroutine(PyObject *module)
{
	static const struct name names[] = {{&name_close, "close"}, {NULL}};

	return intern(names) || PyModule_AddFunctions(module, functions) ? -1 : 0;
}
