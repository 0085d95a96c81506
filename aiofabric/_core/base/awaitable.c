/* Steps: the coroutine protocol of all awaitable objects of the core, and delegation from one to another. */
#include "base/awaitable.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"

static PyObject *name_throw;

PyObject *awaitable_self(PyObject *self)
{
	return new_ref(self);
}

PyObject *awaitable_value(PySendResult how, PyObject *result)
{
	PyObject *stop;

	if (how != PYGEN_RETURN)
		return result;
	stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
	Py_DECREF(result);
	if (stop)
		PyErr_SetObject(PyExc_StopIteration, stop);
	Py_XDECREF(stop);
	return NULL;
}

PyObject *awaitable_send(PyObject *self, PyObject *value)
{
	PyObject *result;
	PySendResult how = PyIter_Send(self, value, &result);

	return awaitable_value(how, result);
}

PyObject *awaitable_next(PyObject *self)
{
	return awaitable_send(self, Py_None);
}

PyObject *awaitable_raise(PyObject *args)
{
	PyObject *type, *error = NULL, *traceback = NULL;

	if (!PyArg_ParseTuple(args, "O|OO", &type, &error, &traceback))
		return NULL;
	if (PyExceptionInstance_Check(type))
		PyErr_SetObject((PyObject *) type_of(type), type);
	else if (PyExceptionClass_Check(type))
		PyErr_SetObject(type, error ? error : Py_None);
	else
		raise_expected("an exception or its class", type);
	return NULL;
}

PyObject *awaitable_throw(PyObject *steps, PyObject *args)
{
	PyObject *method = PyObject_GetAttr(steps, name_throw), *result;

	if (!method && PyErr_ExceptionMatches(PyExc_AttributeError)) {
		PyErr_Clear();
		return awaitable_raise(args); /* as `await` does for an iterator without the method */
	}
	result = method ? PyObject_Call(method, args, NULL) : NULL;
	Py_XDECREF(method);
	return result;
}

PyObject *awaitable_of(PyObject *waiter)
{
	unaryfunc await = PyType_GetSlot(type_of(waiter), Py_am_await);

	if (await)
		return await(waiter);
	raise_expected("an awaitable", waiter);
	return NULL;
}

int add_awaitable(PyObject *module)
{
	static const struct name names[] = {{&name_throw, "throw"}, {NULL}};

	return intern(names);
}
