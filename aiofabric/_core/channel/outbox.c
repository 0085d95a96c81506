/*
 * Posted buffers, cut into frames as credits allow. A large one is sent from where it lies; small ones that lie behind
 * each other are joined. `bytes` never change, so they are free as soon as the provider has them.
 */
#include "channel/outbox.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"

static PyTypeObject *PostedBuffer_Type;

static PyObject *name_error, *name_obj;

static Py_ssize_t rest_of(const PostedBuffer *self)
{
	return self->size - self->at;
}

static int report(PostedBuffer *self, PyObject *error)
{
	PyObject *done = self->done;
	int rc;

	if (!done)
		return 0;
	self->done = NULL;
	rc = drop(PyObject_CallFunctionObjArgs(done, error, NULL));
	Py_DECREF(done);
	return rc;
}

static int fail(PostedBuffer *self, PyObject *error)
{
	self->at = self->size;
	return report(self, error);
}

/* The provider has completed a frame; the last one, or the first failure, is reported. */
static PyObject *PostedBuffer_call(PostedBuffer *self, PyObject *args, PyObject *kwargs)
{
	PyObject *transfer, *error;
	int rc = 0;

	if (!PyArg_ParseTuple(args, "O", &transfer))
		return NULL;
	error = PyObject_GetAttr(transfer, name_error);
	if (!error)
		return NULL;
	self->frames--;
	if (error != Py_None)
		rc = fail(self, error);
	else if (!self->frames && !rest_of(self))
		rc = report(self, Py_None);
	Py_DECREF(error);
	return none_if(rc);
}

static int is_of_bytes(PyObject *data)
{
	PyObject *owner = PyObject_GetAttr(data, name_obj);
	int is = owner ? PyBytes_CheckExact(owner) : -1;

	Py_XDECREF(owner);
	return is;
}

int outbox_add(struct outbox *self, PyObject *data, PyObject *done)
{
	allocfunc alloc = PyType_GetSlot(PostedBuffer_Type, Py_tp_alloc);
	Py_ssize_t size = PyObject_Size(data);
	int of_bytes = size < 0 ? -1 : is_of_bytes(data);
	PostedBuffer *posted = of_bytes < 0 ? NULL : (PostedBuffer *) alloc(PostedBuffer_Type, 0);

	if (!posted)
		return -1;
	posted->data = new_ref(data);
	posted->done = new_ref(done);
	posted->size = size;
	posted->lent = !of_bytes;
	if (self->last)
		self->last->next = posted;
	else
		self->first = posted;
	self->last = posted;
	self->size += size;
	return 0;
}

/* Remove the oldest buffer; returns its reference. */
static PostedBuffer *pop(struct outbox *self)
{
	PostedBuffer *first = self->first;

	self->first = first->next;
	first->next = NULL;
	if (!self->first)
		self->last = NULL;
	return first;
}

/* A part of the oldest buffer, in its place. */
static PyObject *cut(struct outbox *self, Py_ssize_t room, PostedBuffer **lent, PyObject *over)
{
	PostedBuffer *first = self->first;
	Py_ssize_t count = rest_of(first) < room ? rest_of(first) : room;
	PyObject *piece = PySequence_GetSlice(first->data, first->at, first->at + count);
	int rc = 0;

	if (!piece)
		return NULL;
	first->at += count;
	self->size -= count;
	Py_INCREF((PyObject *) first);
	if (!rest_of(first))
		Py_DECREF((PyObject *) pop(self));
	if (first->lent) {
		first->frames++;
		*lent = first;
		return piece;
	}
	if (!rest_of(first))
		rc = PyList_Append(over, (PyObject *) first);
	Py_DECREF((PyObject *) first);
	if (rc)
		Py_CLEAR(piece);
	return piece;
}

static int copy_rest(PostedBuffer *posted, char *to)
{
	Py_buffer view;

	if (PyObject_GetBuffer(posted->data, &view, PyBUF_SIMPLE))
		return -1;
	memcpy(to, (const char *) view.buf + posted->at, rest_of(posted));
	PyBuffer_Release(&view);
	return 0;
}

/* The rests of the oldest buffers, as many as fit. */
static PyObject *join(struct outbox *self, Py_ssize_t room, PyObject *over)
{
	const PostedBuffer *each;
	Py_ssize_t size = 0, at = 0;
	PyObject *joined;

	for (each = self->first; each && rest_of(each) <= room - size; each = each->next)
		size += rest_of(each);
	joined = PyBytes_FromStringAndSize(NULL, size);
	while (joined && at < size) {
		PostedBuffer *first = self->first;
		Py_ssize_t rest = rest_of(first);

		if (copy_rest(first, PyBytes_AsString(joined) + at) || (!first->frames && PyList_Append(over, (PyObject *) first)))
			Py_CLEAR(joined);
		at += rest;
		self->size -= rest;
		first->at = first->size;
		Py_DECREF((PyObject *) pop(self));
	}
	return joined;
}

PyObject *outbox_next_frame(struct outbox *self, Py_ssize_t room, PostedBuffer **lent, PyObject *over)
{
	const PostedBuffer *second = self->first->next;

	*lent = NULL;
	if (!second || rest_of(self->first) + rest_of(second) > room)
		return cut(self, room, lent, over);
	return join(self, room, over);
}

int outbox_report(PyObject *over)
{
	struct first_exception first = NO_EXCEPTION;
	Py_ssize_t i;

	for (i = 0; i < PyList_Size(over); i++)
		if (report((PostedBuffer *) PyList_GetItem(over, i), Py_None))
			exception_keep(&first, PostedBuffer_Type);
	return exception_raise(&first);
}

int outbox_fail(struct outbox *self, PyObject *error)
{
	struct first_exception first = NO_EXCEPTION;

	self->size = 0;
	while (self->first) {
		PostedBuffer *posted = pop(self);

		if (fail(posted, error))
			exception_keep(&first, PostedBuffer_Type);
		Py_DECREF((PyObject *) posted);
	}
	return exception_raise(&first);
}

void outbox_release(struct outbox *self)
{
	self->size = 0;
	while (self->first)
		Py_DECREF((PyObject *) pop(self));
}

int outbox_traverse(const struct outbox *self, visitproc visit, void *arg)
{
	const PostedBuffer *each;

	for (each = self->first; each; each = each->next)
		Py_VISIT(each);
	return 0;
}

static int PostedBuffer_traverse(PostedBuffer *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->done);
	return 0;
}

static int PostedBuffer_clear(PostedBuffer *self)
{
	Py_CLEAR(self->done);
	return 0;
}

static void PostedBuffer_dealloc(PostedBuffer *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->data);
	Py_CLEAR(self->done);
	free_object(self);
}

static PyType_Slot PostedBuffer_slots[] = {
	{Py_tp_doc, "A buffer that waits to be sent; a frame of it notifies it."},
	{Py_tp_call, PostedBuffer_call},
	{Py_tp_dealloc, PostedBuffer_dealloc},
	{Py_tp_traverse, PostedBuffer_traverse},
	{Py_tp_clear, PostedBuffer_clear},
	{0, NULL},
};

static PyType_Spec PostedBuffer_spec = {
	"aiofabric._core.PostedBuffer", sizeof(PostedBuffer), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, PostedBuffer_slots,
};

int add_outbox(PyObject *module)
{
	static const struct name names[] = {{&name_error, "error"}, {&name_obj, "obj"}, {NULL}};

	return intern(names) ? -1 : add_type(module, &PostedBuffer_spec, NULL, &PostedBuffer_Type);
}
