/* The module: its types are made in the files named after them. */
#include "hot.h"

int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type)
{
	PyObject *made = PyType_FromModuleAndSpec(module, spec, base);

	if (!made)
		return -1;
	*type = (PyTypeObject *) made; /* kept for good, as the module is */
	return PyModule_AddType(module, *type);
}

int intern(const struct name *names)
{
	for (; names->name; names++)
		if (!(*names->name = PyUnicode_InternFromString(names->text)))
			return -1;
	return 0;
}

PyObject *value_or_stop(PySendResult how, PyObject *result)
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

PyObject *raise_thrown(PyObject *args)
{
	PyObject *type, *error = NULL, *traceback = NULL;

	if (!PyArg_ParseTuple(args, "O|OO", &type, &error, &traceback))
		return NULL;
	if (PyExceptionInstance_Check(type))
		PyErr_SetObject((PyObject *) type_of(type), type);
	else if (PyExceptionClass_Check(type))
		PyErr_SetObject(type, error ? error : Py_None);
	else
		PyErr_SetString(PyExc_TypeError, "an exception is thrown");
	return NULL;
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_hot", "See aiofabric/_hot/__init__.py.", -1, NULL,
};

PyMODINIT_FUNC PyInit__hot(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module || add_waiting(module) || add_queue(module) || add_fifo(module) || add_slots(module) ||
	    add_waker(module) || add_waiter(module) || add_settling(module) || add_turning(module) || add_source(module) || add_operation(module) ||
	    add_gate(module) || add_message(module) || add_arrival(module) || add_inbox(module) || add_pool(module) || add_receiving(module) || add_sending(module) || add_outcome(module) || add_lane(module)) {
		Py_XDECREF(module);
		return NULL;
	}
	return module;
}
