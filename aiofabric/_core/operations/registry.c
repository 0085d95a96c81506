/*
 * Registry: finds the object of a completion, by the address that the completion names. A dict with Python numbers as
 * keys took 410 of the 12,700 instructions that a request costs among a hundred connections, and three cache lines
 * for each of a thousand.
 *
 * A hash table with at least twice as many places as entries, searched linearly from the index that an address hashes to.
 * Removing an entry moves later entries up.
 */
#include "operations/registry.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *Registry_Type;

#define LEAST 8

struct place {
	const void *address;	/* NULL: free */
	PyObject *object;
};

/* Slots lie 64 bytes apart, or a few more: Fibonacci hashing puts neighbours far from each other. */
static size_t hashed_index(const Registry *self, const void *address)
{
	return (((uintptr_t) address >> 3) * UINT64_C(0x9E3779B97F4A7C15)) >> self->shift;
}

static size_t next_to(const Registry *self, size_t index)
{
	return (index + 1) & (self->room - 1);
}

/* The index of the address, or of the free place for it. */
static size_t place_of(const Registry *self, const void *address)
{
	size_t index = hashed_index(self, address);

	while (self->places[index].address && self->places[index].address != address)
		index = next_to(self, index);
	return index;
}

PyObject *registry_find(const Registry *self, const void *address)
{
	assert(2 * self->count <= self->room); /* else a search may not end */
	return address && self->room ? self->places[place_of(self, address)].object : NULL;
}

static int grow(Registry *self)
{
	struct place *old = self->places;
	size_t room = self->room, i;

	self->room = room ? 2 * room : LEAST;
	self->places = PyMem_Calloc(self->room, sizeof(*self->places));
	if (!self->places) {
		self->places = old;
		self->room = room;
		PyErr_NoMemory();
		return -1;
	}
	self->shift = 64 - __builtin_ctzll(self->room);
	for (i = 0; i < room; i++)
		if (old[i].address)
			self->places[place_of(self, old[i].address)] = old[i];
	PyMem_Free(old);
	return 0;
}

int registry_enter(Registry *self, const void *address, PyObject *object)
{
	struct place *place;

	if (!address) {
		PyErr_SetString(PyExc_ValueError, "expected an address, got 0");
		return -1;
	}
	if (2 * (self->count + 1) > self->room && grow(self))
		return -1;
	place = &self->places[place_of(self, address)];
	self->count += !place->address;
	place->address = address;
	REPLACE(place->object, new_ref(object));
	return 0;
}

/* Move up entries whose search would otherwise end at the free place. */
static void close_gap(Registry *self, size_t gap)
{
	size_t index = gap, wanted;

	for (;;) {
		index = next_to(self, index);
		if (!self->places[index].address)
			break;
		wanted = hashed_index(self, self->places[index].address);
		if (((index - wanted) & (self->room - 1)) < ((index - gap) & (self->room - 1)))
			continue;
		self->places[gap] = self->places[index];
		gap = index;
	}
	self->places[gap] = (struct place) {NULL, NULL};
}

PyObject *registry_remove(Registry *self, const void *address)
{
	PyObject *object = registry_find(self, address);

	if (object) {
		assert(self->count > 0);
		close_gap(self, place_of(self, address));
		self->count--;
		assert(!registry_find(self, address));
	}
	return object;
}

void registry_forget(Registry *self, const void *address)
{
	Py_XDECREF(registry_remove(self, address));
}

int registry_clear(Registry *self)
{
	struct place *places = self->places; /* a destructor may use the table */
	size_t room = self->room, i;

	self->places = NULL;
	self->room = self->count = 0;
	for (i = 0; i < room; i++)
		Py_XDECREF(places[i].object);
	PyMem_Free(places);
	return 0;
}

static void *key_of(PyObject *key)
{
	void *address = PyLong_AsVoidPtr(key);

	if (!address && !PyErr_Occurred())
		PyErr_SetObject(PyExc_KeyError, key);
	return address;
}

static PyObject *Registry_subscript(Registry *self, PyObject *key)
{
	void *address = key_of(key);
	PyObject *object = registry_find(self, address);

	if (!object && !PyErr_Occurred())
		PyErr_SetObject(PyExc_KeyError, key);
	return object ? new_ref(object) : NULL;
}

static int Registry_assign(Registry *self, PyObject *key, PyObject *object)
{
	void *address = key_of(key);

	if (!address)
		return -1;
	if (object)
		return registry_enter(self, address, object);
	if (registry_find(self, address)) {
		registry_forget(self, address);
		return 0;
	}
	PyErr_SetObject(PyExc_KeyError, key);
	return -1;
}

static PyObject *Registry_get(Registry *self, PyObject *key)
{
	void *address = PyLong_AsVoidPtr(key);
	PyObject *object = registry_find(self, address);

	if (!object && PyErr_Occurred())
		return NULL;
	return new_ref(object ? object : Py_None);
}

static PyObject *Registry_pop(Registry *self, PyObject *key)
{
	void *address = PyLong_AsVoidPtr(key);
	PyObject *object = registry_remove(self, address);

	if (!object && PyErr_Occurred())
		return NULL;
	return object ? object : new_ref(Py_None);
}

static PyObject *Registry_keys(Registry *self, PyObject *unused)
{
	PyObject *keys = PyList_New(0), *key;
	size_t i;
	int rc = keys ? 0 : -1;

	for (i = 0; !rc && i < self->room; i++) {
		if (!self->places[i].address)
			continue;
		key = PyLong_FromVoidPtr((void *) self->places[i].address);
		rc = key ? PyList_Append(keys, key) : -1;
		Py_XDECREF(key);
	}
	if (rc)
		Py_CLEAR(keys);
	return keys;
}

static PyObject *Registry_iter(Registry *self)
{
	PyObject *keys = Registry_keys(self, NULL), *iterator = keys ? PyObject_GetIter(keys) : NULL;

	Py_XDECREF(keys);
	return iterator;
}

static Py_ssize_t Registry_length(Registry *self)
{
	return self->count;
}

static int Registry_traverse(Registry *self, visitproc visit, void *arg)
{
	size_t i;

	Py_VISIT(type_of(self));
	for (i = 0; i < self->room; i++)
		Py_VISIT(self->places[i].object);
	return 0;
}

static void Registry_dealloc(Registry *self)
{
	PyObject_GC_UnTrack(self);
	registry_clear(self);
	free_object(self);
}

static PyMethodDef Registry_methods[] = {
	{"get", (PyCFunction) Registry_get, METH_O, "The object of this address, or None."},
	{"pop", (PyCFunction) Registry_pop, METH_O, "Remove the address and return its object; or None."},
	{"keys", (PyCFunction) Registry_keys, METH_NOARGS, "All addresses, as a list."},
	{NULL},
};

static PyType_Slot Registry_slots[] = {
	{Py_tp_doc, "The object that gets a completion, by the address that the completion names; a mapping."},
	{Py_tp_dealloc, Registry_dealloc},
	{Py_tp_traverse, Registry_traverse},
	{Py_tp_clear, registry_clear},
	{Py_tp_iter, Registry_iter},
	{Py_mp_length, Registry_length},
	{Py_mp_subscript, Registry_subscript},
	{Py_mp_ass_subscript, Registry_assign},
	{Py_tp_methods, Registry_methods},
	{0, NULL},
};

static PyType_Spec Registry_spec = {
	"aiofabric._core.Registry", sizeof(Registry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Registry_slots,
};

int add_registry(PyObject *module)
{
	return add_type(module, &Registry_spec, NULL, &Registry_Type);
}
