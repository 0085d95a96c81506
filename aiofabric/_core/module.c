/* The module: its types are made in the files named after them. */
#include "core.h"

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

PyObject *import_from(const char *name, const char *what)
{
	PyObject *module = PyImport_ImportModule(name), *found = module ? PyObject_GetAttrString(module, what) : NULL;

	Py_XDECREF(module);
	return found;
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_core", "See aiofabric/_core/__init__.py.", -1, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
	/* A type that inherits from another one comes after it. */
	static int (*const add[])(PyObject *) = {
		add_steps, add_call, add_waiting, add_queue, add_fifo, add_slots, add_waker, add_waiter, add_settling, add_turning,
		add_registry, add_source, add_operation, add_gate, add_message, add_arrival, add_inbox, add_pool, add_receiving,
		add_sending, add_outcome, add_lane, add_cork, add_quick, add_lengths,
	};
	PyObject *module = PyModule_Create(&definition);

	for (size_t i = 0; module && i < sizeof(add) / sizeof(*add); i++)
		if (add[i](module))
			Py_CLEAR(module);
	return module;
}
