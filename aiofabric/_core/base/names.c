/* Names: interned strings for attributes and methods; and making types. */
#include "base/names.h"
#include "base/references.h"

static int has_own_new(const PyType_Spec *spec)
{
	const PyType_Slot *slot;

	for (slot = spec->slots; slot->slot; slot++)
		if (slot->slot == Py_tp_new)
			return 1;
	return 0;
}

/*
 * A type with a tp_new loses its attribute `__new__`, with which Python could skip tp_init: `Type.__new__(Type, 1)` then
 * calls that of object, which refuses types with a tp_new of their own. Calling the type still works.
 */
int add_type(PyObject *module, PyType_Spec *spec, PyObject *base, PyTypeObject **type)
{
	PyObject *made = PyType_FromModuleAndSpec(module, spec, base);

	if (!made)
		return -1;
	*type = (PyTypeObject *) made; /* kept for ever, as the module is */
	if (has_own_new(spec) && PyObject_DelAttrString(made, "__new__"))
		return -1;
	return PyModule_AddType(module, *type);
}

PyObject *new_with_arguments(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	allocfunc alloc = PyType_GetSlot(type, Py_tp_alloc);

	if (PyTuple_Size(args) || (kwargs && PyDict_Size(kwargs)))
		return alloc(type, 0);
	PyErr_Format(PyExc_TypeError, "expected arguments for a new %R, got none", (PyObject *) type);
	return NULL;
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

int add_methods(PyTypeObject *type, PyMethodDef *methods)
{
	for (; methods->ml_name; methods++) {
		PyObject *method = PyDescr_NewMethod(type, methods);
		int rc = method ? PyObject_SetAttrString((PyObject *) type, methods->ml_name, method) : -1;

		Py_XDECREF(method);
		if (rc)
			return -1;
	}
	return 0;
}

int add_properties(PyTypeObject *type, PyGetSetDef *properties)
{
	for (; properties->name; properties++) {
		PyObject *property = PyDescr_NewGetSet(type, properties);
		int rc = property ? PyObject_SetAttrString((PyObject *) type, properties->name, property) : -1;

		Py_XDECREF(property);
		if (rc)
			return -1;
	}
	return 0;
}

static PyObject **field_of(PyObject *self, void *offset)
{
	return (PyObject **) ((char *) self + (size_t) offset);
}

PyObject *field_get(PyObject *self, void *offset)
{
	PyObject *value = *field_of(self, offset);

	if (value)
		return new_ref(value);
	PyErr_SetString(PyExc_AttributeError, "expected an attribute with a value, got one that is not set");
	return NULL;
}

int field_set(PyObject *self, PyObject *value, void *offset)
{
	PyObject **field = field_of(self, offset);

	if (!value) {
		PyErr_SetString(PyExc_TypeError, "expected a new value for the attribute, got its deletion");
		return -1;
	}
	REPLACE(*field, new_ref(value));
	return 0;
}
