/* Fifo: a queue of objects, oldest first. A deque takes 760 bytes while it is empty, and most inboxes are. */
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *Fifo_Type;

#define AT(self, i) ((self)->items[((self)->head + (i)) & ((self)->room - 1)])

static int grow(Fifo *self)
{
	Py_ssize_t room = self->room ? 2 * self->room : 4, i;
	PyObject **items = PyMem_Malloc(room * sizeof(*items));

	if (!items) {
		PyErr_NoMemory();
		return -1;
	}
	for (i = 0; i < self->count; i++)
		items[i] = AT(self, i);
	PyMem_Free(self->items);
	self->items = items;
	self->room = room;
	self->head = 0;
	return 0;
}

int fifo_append(Fifo *self, PyObject *item)
{
	if (self->count == self->room && grow(self))
		return -1;
	AT(self, self->count) = new_ref(item);
	self->count++;
	return 0;
}

PyObject *fifo_popleft(Fifo *self)
{
	PyObject *item;

	if (!self->count) {
		PyErr_SetString(PyExc_IndexError, "expected a Fifo with items, got an empty one");
		return NULL;
	}
	item = fifo_at(self, 0);
	self->head = (self->head + 1) & (self->room - 1);
	self->count--;
	return item;
}

int fifo_insert(Fifo *self, Py_ssize_t index, PyObject *item)
{
	Py_ssize_t i;

	if (self->count == self->room && grow(self))
		return -1;
	index = index < 0 ? 0 : index > self->count ? self->count : index;
	if (!index) {
		self->head = (self->head - 1) & (self->room - 1);
	} else {
		for (i = self->count; i > index; i--)
			AT(self, i) = AT(self, i - 1);
	}
	AT(self, index) = new_ref(item);
	self->count++;
	return 0;
}

static int Fifo_clear(Fifo *self)
{
	while (self->count)
		Py_DECREF(fifo_popleft(self));
	return 0;
}

static PyObject *Fifo_append(Fifo *self, PyObject *item)
{
	if (fifo_append(self, item))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *Fifo_popleft(Fifo *self, PyObject *unused)
{
	return fifo_popleft(self);
}

static PyObject *Fifo_insert(Fifo *self, PyObject *args)
{
	Py_ssize_t index;
	PyObject *item;

	if (!PyArg_ParseTuple(args, "nO", &index, &item) || fifo_insert(self, index, item))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *Fifo_remove(Fifo *self, PyObject *item)
{
	Py_ssize_t i = self->count;

	while (i--)
		if (AT(self, i) == item) {
			for (; i < self->count - 1; i++)
				AT(self, i) = AT(self, i + 1);
			self->count--;
			Py_DECREF(item);
			Py_RETURN_NONE;
		}
	PyErr_Format(PyExc_ValueError, "expected an item of the Fifo, got another %R", (PyObject *) type_of(item));
	return NULL;
}

static PyObject *Fifo_empty(Fifo *self, PyObject *unused)
{
	Fifo_clear(self);
	Py_RETURN_NONE;
}

static Py_ssize_t Fifo_length(Fifo *self)
{
	return self->count;
}

static PyObject *Fifo_item(Fifo *self, Py_ssize_t index)
{
	if (index < 0 || index >= self->count) {
		PyErr_Format(PyExc_IndexError, "expected an index from 0 to %zd, got %zd", self->count - 1, index);
		return NULL;
	}
	return new_ref(fifo_at(self, index));
}

static int Fifo_traverse(Fifo *self, visitproc visit, void *arg)
{
	Py_ssize_t i;

	Py_VISIT(type_of(self));
	for (i = 0; i < self->count; i++)
		Py_VISIT(AT(self, i));
	return 0;
}

static void Fifo_dealloc(Fifo *self)
{
	PyObject_GC_UnTrack(self);
	Fifo_clear(self);
	PyMem_Free(self->items);
	free_object(self);
}

static PyMethodDef Fifo_methods[] = {
	{"append", (PyCFunction) Fifo_append, METH_O, "Add an item behind all others."},
	{"popleft", (PyCFunction) Fifo_popleft, METH_NOARGS, "Remove and return the oldest item."},
	{"insert", (PyCFunction) Fifo_insert, METH_VARARGS,
	 "insert(index, item): insert before the item that has this index."},
	{"remove", (PyCFunction) Fifo_remove, METH_O, "Remove this item; of several equal references the newest."},
	{"clear", (PyCFunction) Fifo_empty, METH_NOARGS, "Remove all items."},
	{NULL},
};

static PyType_Slot Fifo_slots[] = {
	{Py_tp_doc, "A queue, oldest first: a deque that allocates nothing while it is empty."},
	{Py_tp_dealloc, Fifo_dealloc},
	{Py_tp_traverse, Fifo_traverse},
	{Py_tp_clear, Fifo_clear},
	{Py_tp_methods, Fifo_methods},
	{Py_sq_length, Fifo_length},
	{Py_sq_item, Fifo_item},
	{0, NULL},
};

static PyType_Spec Fifo_spec = {
	"aiofabric._core.Fifo", sizeof(Fifo), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Fifo_slots,
};

int add_fifo(PyObject *module)
{
	return add_type(module, &Fifo_spec, NULL, &Fifo_Type);
}
