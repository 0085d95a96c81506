/* PoolBuffer: one receive of a pool, with its slot. */
#include "messages/pool_buffer.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "messages/receive_pool.h"
#include "queue/completion_queue.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

static PyObject *name_failed, *name_view;

static int PoolBuffer_init(PoolBuffer *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"pool", "index", "offset", "slot", NULL};
	PyObject *pool, *slot;

	if (refuse_second_init(self->pool))
		return -1;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LLO", names, PoolCore_Type, &pool, &self->index, &self->offset,
					 &slot))
		return -1;
	if (self->index < 0 || self->index >= ((PoolCore *) pool)->capacity) {
		PyErr_Format(PyExc_IndexError, "expected an index from 0 to %lld, got %lld", ((PoolCore *) pool)->capacity - 1LL,
			     self->index);
		return -1;
	}
	REPLACE(self->pool, (PoolCore *) new_ref(pool));
	REPLACE(self->slot, new_ref(slot));
	REPLACE(self->source, new_ref(Py_None));
	return 0;
}

static PyObject *PoolBuffer_complete(PoolBuffer *self, PyObject *tuple)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t from;
	int sources;

	if (entry_parse(tuple, &entry, &from, &sources) || pool_complete(self, &entry, sources ? &from : NULL))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *PoolBuffer_fail(PoolBuffer *self, PyObject *entry)
{
	pool_set_free(self); /* the pool decides when to post: the endpoint may be closed */
	return PyObject_CallMethodObjArgs((PyObject *) self->pool, name_failed, self, entry, NULL);
}

static PyObject *PoolBuffer_consumed(PoolBuffer *self, PyObject *unused)
{
	if (pool_recycle(self))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *PoolBuffer_get_view(PoolBuffer *self, void *unused)
{
	PyObject *all = PyObject_GetAttr((PyObject *) self->pool, name_view), *view;

	if (!all)
		return NULL;
	view = PySequence_GetSlice(all, self->offset, self->offset + self->length);
	Py_DECREF(all);
	return view;
}

static PyObject *PoolBuffer_get_contents(PoolBuffer *self, void *unused)
{
	const char *bytes = pool_contents(self);

	return bytes ? PyBytes_FromStringAndSize(bytes, self->length) : NULL;
}

static int PoolBuffer_traverse(PoolBuffer *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->pool);
	Py_VISIT(self->slot);
	return 0;
}

static void PoolBuffer_dealloc(PoolBuffer *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->pool);
	Py_CLEAR(self->slot);
	Py_CLEAR(self->source);
	free_object(self);
}

static PyMethodDef PoolBuffer_methods[] = {
	{"complete", (PyCFunction) PoolBuffer_complete, METH_O,
	 "A message arrived: to the sink, to the task that waits longest, or into the inbox."},
	{"fail", (PyCFunction) PoolBuffer_fail, METH_O, "The receive failed; see `Pool.failed`."},
	{"consumed", (PyCFunction) PoolBuffer_consumed, METH_NOARGS,
	 "A peer's write used the receive up (FI_RX_CQ_DATA): it holds no message."},
	{NULL},
};

static PyGetSetDef PoolBuffer_getset[] = {
	{"view", (getter) PoolBuffer_get_view, NULL, "The message, in the pool's memory."},
	{"contents", (getter) PoolBuffer_get_contents, NULL, "The message, copied."},
	{NULL},
};

static PyMemberDef PoolBuffer_members[] = {
	{"pool", T_OBJECT_EX, offsetof(PoolBuffer, pool), READONLY},
	{"slot", T_OBJECT_EX, offsetof(PoolBuffer, slot), READONLY},
	{"source", T_OBJECT, offsetof(PoolBuffer, source), READONLY},
	{"index", T_LONGLONG, offsetof(PoolBuffer, index), READONLY},
	{"offset", T_LONGLONG, offsetof(PoolBuffer, offset), READONLY},
	{"length", T_LONGLONG, offsetof(PoolBuffer, length), READONLY},
	{"flags", T_ULONGLONG, offsetof(PoolBuffer, flags), READONLY},
	{"data", T_ULONGLONG, offsetof(PoolBuffer, data), READONLY},
	{"tag", T_ULONGLONG, offsetof(PoolBuffer, tag), READONLY},
	{"posted", T_BOOL, offsetof(PoolBuffer, posted), READONLY},
	{NULL},
};

static PyType_Slot PoolBuffer_slots[] = {
	{Py_tp_doc, "One buffer of a pool, with its slot; registered with the source for as long as the pool lives."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, PoolBuffer_init},
	{Py_tp_dealloc, PoolBuffer_dealloc},
	{Py_tp_traverse, PoolBuffer_traverse},
	{Py_tp_methods, PoolBuffer_methods},
	{Py_tp_getset, PoolBuffer_getset},
	{Py_tp_members, PoolBuffer_members},
	{0, NULL},
};

static PyType_Spec PoolBuffer_spec = {
	"aiofabric._core.PoolBuffer", sizeof(PoolBuffer), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, PoolBuffer_slots,
};

static int complete(PyObject *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	return pool_complete((PoolBuffer *) self, entry, from);
}

int add_pool_buffer(PyObject *module)
{
	static const struct name names[] = {{&name_failed, "failed"}, {&name_view, "view"}, {NULL}};

	if (intern(names) || add_type(module, &PoolBuffer_spec, NULL, &PoolBuffer_Type))
		return -1;
	upcalls.buffer = (struct completed) {PoolBuffer_Type, complete};
	return 0;
}
