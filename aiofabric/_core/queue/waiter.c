/* Waiter: waits for one result, on asyncio. Its task awaits a future that never gets a result: see wakeups.c. */
#include "queue/waiter.h"
#include "base/awaitable.h"
#include "base/names.h"
#include "base/references.h"
#include "queue/wakeups.h"

PyTypeObject *Waiter_Type;

static PyObject *InvalidStateError;

PyObject *waiter_new(Waker *waker)
{
	allocfunc alloc = PyType_GetSlot(Waiter_Type, Py_tp_alloc);
	Waiter *self = (Waiter *) alloc(Waiter_Type, 0);

	if (!self)
		return NULL;
	self->waker = (Waker *) new_ref(waker);
	return (PyObject *) self;
}

int waiter_set_result(Waiter *self, PyObject *result)
{
	if (self->result)
		return 0;
	self->result = new_ref(result);
	return self->future && waker_wake(self->waker, self) ? -1 : 1;
}

static PyObject *Waiter_set_result(Waiter *self, PyObject *result)
{
	int waited = waiter_set_result(self, result);

	if (waited > 0)
		Py_RETURN_NONE;
	if (!waited)
		PyErr_SetString(InvalidStateError, "expected a Waiter without a result, got one whose result is set already");
	return NULL;
}

static PyObject *Waiter_result(Waiter *self, PyObject *unused)
{
	if (self->result)
		return new_ref(self->result);
	PyErr_SetString(InvalidStateError, "expected a Waiter with a result, got one whose result is not set yet");
	return NULL;
}

static PyObject *Waiter_done(Waiter *self, PyObject *unused)
{
	return PyBool_FromLong(self->result != NULL);
}

PySendResult waiter_step(Waiter *self, PyObject **result)
{
	*result = NULL;
	if (self->result) {
		*result = new_ref(self->result);
		return PYGEN_RETURN;
	}
	if (self->future) {
		PyErr_SetString(PyExc_RuntimeError, "resumed without a result: only a task of asyncio may await it");
		return PYGEN_ERROR;
	}
	self->future = waker_acquire_future(self->waker);
	if (!self->future)
		return PYGEN_ERROR;
	*result = new_ref(self->future);
	return PYGEN_NEXT;
}

static PySendResult Waiter_step(Waiter *self, PyObject *value, PyObject **result)
{
	return waiter_step(self, result);
}

PyObject *waiter_throw(Waiter *self, PyObject *args)
{
	Py_CLEAR(self->future); /* cancelled: it cannot be used again */
	return awaitable_raise(args);
}

static int Waiter_traverse(Waiter *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->waker);
	Py_VISIT(self->future);
	Py_VISIT(self->result);
	return 0;
}

static int Waiter_clear(Waiter *self)
{
	Py_CLEAR(self->future);
	Py_CLEAR(self->result);
	return 0;
}

void waiter_release(Waiter *self)
{
	Py_CLEAR(self->waker);
	Py_CLEAR(self->future);
	Py_CLEAR(self->result);
}

static void Waiter_dealloc(Waiter *self)
{
	PyObject_GC_UnTrack(self);
	waiter_release(self);
	free_object(self);
}

static PyMethodDef Waiter_methods[] = {
	{"set_result", (PyCFunction) Waiter_set_result, METH_O, "Set the result; the waiting task resumes soon."},
	{"result", (PyCFunction) Waiter_result, METH_NOARGS, "The result."},
	{"done", (PyCFunction) Waiter_done, METH_NOARGS, "Whether the result is set."},
	{"send", awaitable_send, METH_O, "As of a generator."},
	{"throw", (PyCFunction) waiter_throw, METH_VARARGS, "As of a generator."},
	{NULL},
};

static PyType_Slot Waiter_slots[] = {
	{Py_tp_doc, "Waits for one result, on asyncio."},
	{Py_tp_dealloc, Waiter_dealloc},
	{Py_tp_traverse, Waiter_traverse},
	{Py_tp_clear, Waiter_clear},
	{Py_tp_iter, awaitable_self},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, awaitable_self},
	{Py_am_send, Waiter_step},
	{Py_tp_methods, Waiter_methods},
	{0, NULL},
};

static PyType_Spec Waiter_spec = {
	"aiofabric._core.Waiter", sizeof(Waiter), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, Waiter_slots,
};

static PyObject *Waker_create_waiter(Waker *self, PyObject *unused)
{
	return waiter_new(self);
}

static PyMethodDef waker_methods[] = {
	{"create_waiter", (PyCFunction) Waker_create_waiter, METH_NOARGS, "A waiter for one result."},
	{NULL},
};

int add_waiter(PyObject *module)
{
	InvalidStateError = import_from("asyncio.exceptions", "InvalidStateError");
	if (!InvalidStateError || add_methods(Waker_Type, waker_methods))
		return -1;
	return add_type(module, &Waiter_spec, NULL, &Waiter_Type);
}
