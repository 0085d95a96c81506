/* Gate: which thread may use an endpoint now.  Asked by every call of the hot path, of which it was 6 % as an attribute. */
#include "thread_check.h"
#include "names.h"
#include "references.h"

PyTypeObject *Gate_Type;

static PyObject *Gate_admits(Gate *self, PyObject *unused)
{
	return PyBool_FromLong(gate_admits(self));
}

static void Gate_dealloc(Gate *self)
{
	free_object(self);
}

static PyMethodDef Gate_methods[] = {
	{"admits", (PyCFunction) Gate_admits, METH_NOARGS, "Whether the thread that calls may."},
	{NULL},
};

static PyMemberDef Gate_members[] = {
	{"thread", T_ULONG, offsetof(Gate, thread), 0, "by its identity; 0 while nobody may"},
	{NULL},
};

static PyType_Slot Gate_slots[] = {
	{Py_tp_doc, "Who may use an endpoint now; see `aiofabric.transport.handle`."},
	{Py_tp_dealloc, Gate_dealloc},
	{Py_tp_methods, Gate_methods},
	{Py_tp_members, Gate_members},
	{0, NULL},
};

static PyType_Spec Gate_spec = {"aiofabric._core.Gate", sizeof(Gate), 0, Py_TPFLAGS_DEFAULT, Gate_slots};

int add_thread_check(PyObject *module)
{
	return add_type(module, &Gate_spec, NULL, &Gate_Type);
}
