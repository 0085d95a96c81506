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

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_hot", "See aiofabric/_hot/__init__.py.", -1, NULL,
};

PyMODINIT_FUNC PyInit__hot(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module || add_waiting(module) || add_queue(module) || add_fifo(module) || add_slots(module) ||
	    add_settling(module) || add_turning(module) || add_source(module) || add_operation(module) ||
	    add_gate(module) || add_message(module) || add_arrival(module) || add_inbox(module) || add_pool(module) || add_receiving(module) || add_sending(module) || add_lane(module)) {
		Py_XDECREF(module);
		return NULL;
	}
	return module;
}
