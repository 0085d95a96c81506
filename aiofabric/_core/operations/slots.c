/* Slot and SlotsCore: the fi_contexts of one queue, in use and free. cq/slots.py has the purpose, and makes them. */
#include "operations/slots.h"
#include "base/exceptions.h"
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *Slot_Type, *SlotsCore_Type;

static PyObject *name_grow;

static int Slot_init(Slot *self, PyObject *args, PyObject *kwargs)
{
	PyObject *pointer, *address;

	if (refuse_second_init(self->pointer))
		return -1;
	if (!PyArg_ParseTuple(args, "OO", &pointer, &address))
		return -1;
	REPLACE(self->pointer, new_ref(pointer));
	REPLACE(self->address, new_ref(address));
	return 0;
}

static void Slot_dealloc(Slot *self)
{
	Py_CLEAR(self->pointer);
	Py_CLEAR(self->address);
	free_object(self);
}

static PyMemberDef Slot_members[] = {
	{"pointer", T_OBJECT_EX, offsetof(Slot, pointer), READONLY, "the pointer that is posted"},
	{"address", T_OBJECT_EX, offsetof(Slot, address), READONLY, "the address that the completion names"},
	{NULL},
};

static PyType_Slot Slot_slots[] = {
	{Py_tp_doc, "One fi_context: the pointer that is posted and the address that comes back."},
	{Py_tp_init, Slot_init},
	{Py_tp_dealloc, Slot_dealloc},
	{Py_tp_members, Slot_members},
	{0, NULL},
};

static PyType_Spec Slot_spec = {"aiofabric._core.Slot", sizeof(Slot), 0, Py_TPFLAGS_DEFAULT, Slot_slots};

/*
 * Slots that stay free, so that none is used again at once: rxm reports the failure of a large receive twice, and the second
 * report must not name another operation.
 */
#define LEFT_FREE 16

Slot *slots_acquire(SlotsCore *self)
{
	PyObject *slot;

	if (self->free->count <= LEFT_FREE && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_grow, NULL)))
		return NULL;
	slot = fifo_popleft(self->free);
	if (slot && !Py_IS_TYPE(slot, Slot_Type)) {
		raise_expected("a Slot in the list of free slots", slot);
		Py_CLEAR(slot);
	}
	self->in_use += slot != NULL;
	return (Slot *) slot;
}

/* In a debug build: a slot that is released twice would get two operations. */
static inline int is_free(const SlotsCore *self, PyObject *slot)
{
	Py_ssize_t i;

	for (i = 0; i < self->free->count; i++)
		if (fifo_at(self->free, i) == slot)
			return 1;
	return 0;
}

int slots_release(SlotsCore *self, PyObject *slot)
{
	assert(self->in_use > 0);
	assert(!is_free(self, slot));
	self->in_use--;
	return fifo_append(self->free, slot);
}

static PyObject *SlotsCore_acquire(SlotsCore *self, PyObject *unused)
{
	return (PyObject *) slots_acquire(self);
}

static PyObject *SlotsCore_release(SlotsCore *self, PyObject *slot)
{
	if (slots_release(self, slot))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *SlotsCore_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	allocfunc alloc = PyType_GetSlot(type, Py_tp_alloc);
	SlotsCore *self = (SlotsCore *) alloc(type, 0);

	if (self && !(self->free = (Fifo *) PyObject_CallNoArgs((PyObject *) Fifo_Type)))
		Py_CLEAR(self);
	return (PyObject *) self;
}

static int SlotsCore_traverse(SlotsCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->free);
	return 0;
}

static void SlotsCore_dealloc(SlotsCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->free);
	free_object(self);
}

static PyMethodDef SlotsCore_methods[] = {
	{"acquire", (PyCFunction) SlotsCore_acquire, METH_NOARGS, "Take the slot that was released first."},
	{"release", (PyCFunction) SlotsCore_release, METH_O,
	 "The completion was read, or the operation was never posted: the slot may be used again."},
	{NULL},
};

static PyMemberDef SlotsCore_members[] = {
	{"_free", T_OBJECT_EX, offsetof(SlotsCore, free), READONLY},
	{"in_use", T_LONGLONG, offsetof(SlotsCore, in_use)},
	{NULL},
};

static PyType_Slot SlotsCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.cq.slots.Slots`."},
	{Py_tp_new, SlotsCore_new},
	{Py_tp_dealloc, SlotsCore_dealloc},
	{Py_tp_traverse, SlotsCore_traverse},
	{Py_tp_methods, SlotsCore_methods},
	{Py_tp_members, SlotsCore_members},
	{0, NULL},
};

static PyType_Spec SlotsCore_spec = {
	"aiofabric._core.SlotsCore", sizeof(SlotsCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, SlotsCore_slots,
};

int add_slots(PyObject *module)
{
	static const struct name names[] = {{&name_grow, "_grow"}, {NULL}};

	if (intern(names) || add_type(module, &Slot_spec, NULL, &Slot_Type))
		return -1;
	return add_type(module, &SlotsCore_spec, NULL, &SlotsCore_Type);
}
