/*
 * ThreadCheck: the thread that may use an endpoint now. Each call of the hot path checks it: as a Python attribute it
 * took 6 %.
 */
#include "base/thread_check.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *ThreadCheck_Type;

static PyObject *ThreadCheck_admits(ThreadCheck *self, PyObject *unused)
{
	return PyBool_FromLong(thread_check_admits(self));
}

static void ThreadCheck_dealloc(ThreadCheck *self)
{
	free_object(self);
}

static PyMethodDef ThreadCheck_methods[] = {
	{"admits", (PyCFunction) ThreadCheck_admits, METH_NOARGS, "Whether the calling thread may use the endpoint."},
	{NULL},
};

static PyMemberDef ThreadCheck_members[] = {
	{"thread", T_ULONG, offsetof(ThreadCheck, thread), 0, "the thread's identity; 0 while no thread may"},
	{NULL},
};

static PyType_Slot ThreadCheck_slots[] = {
	{Py_tp_doc, "The thread that may use an endpoint now; see `aiofabric.transport.handle`."},
	{Py_tp_dealloc, ThreadCheck_dealloc},
	{Py_tp_methods, ThreadCheck_methods},
	{Py_tp_members, ThreadCheck_members},
	{0, NULL},
};

static PyType_Spec ThreadCheck_spec = {
	"aiofabric._core.ThreadCheck", sizeof(ThreadCheck), 0, Py_TPFLAGS_DEFAULT, ThreadCheck_slots,
};

int add_thread_check(PyObject *module)
{
	return add_type(module, &ThreadCheck_spec, NULL, &ThreadCheck_Type);
}
