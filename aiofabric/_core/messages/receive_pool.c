/* PoolCore: receives that stay posted. transport/messages/pool.py has the rest, and their purpose. */
#include "messages/receive_pool.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "messages/inbox.h"
#include "operations/slots.h"
#include "progress/arming.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <stdlib.h>

PyTypeObject *PoolCore_Type, *PoolBuffer_Type;

static PyObject *name_end_came, *name_native_open, *name_overlong, *name_post_failed, *name_exhausted,
	*name_recycle, *name_sink_failed, *name_view;

/* -- posting */

/*
 * Post the free receives, in the order of free[]. Returns how many were posted, or the error of the first. Through
 * Python a receive costs 3,700 instructions of the 27,700 that a small message takes (64 in flight, callgrind); as
 * one of eight in a call like this, 600.
 */
static long long post_each(PoolCore *self)
{
	long long i;

	for (i = 0; i < self->nfree; i++) {
		const struct receive *receive = &self->receives[self->free[i]];
		struct iovec pieces[2] = {{receive->buf, self->room}, self->overflow};
		ssize_t rc = self->overflow.iov_len ? fi_recvv(self->ep, pieces, NULL, 2, FI_ADDR_UNSPEC, receive->context)
						 : fi_recv(self->ep, receive->buf, self->room, self->descriptor,
							   FI_ADDR_UNSPEC, receive->context);

		if (rc)
			return i ? i : rc;
	}
	return i;
}

/* Post all free buffers, as far as the provider has room. */
static int post(PoolCore *self)
{
	PyObject *open;
	long long posted, i;

	if (self->inbox.ended != Py_None)
		return 0;
	open = PyObject_GetAttr(self->inbox.handle, name_native_open); /* last messages are read after fi_close */
	if (!open || open != Py_True)
		return drop(open);
	Py_DECREF(open);
	while (self->nfree) {
		posted = post_each(self);
		if (posted == -FI_EAGAIN)
			break;
		if (posted <= 0) {
			PyObject *code = PyLong_FromLongLong(posted);
			int rc = code ? drop(PyObject_CallMethodObjArgs((PyObject *) self, name_post_failed, code, NULL)) : -1;

			Py_XDECREF(code);
			return rc;
		}
		for (i = 0; i < posted; i++)
			((PoolBuffer *) PyList_GetItem(self->buffers, self->free[i]))->posted = 1;
		self->nfree -= posted;
		memmove(self->free, self->free + posted, self->nfree * sizeof(*self->free));
		self->inbox.posted += posted;
	}
	return source_schedule(self->inbox.source);
}

void pool_set_free(PoolBuffer *self)
{
	PoolCore *pool = self->pool;

	if (self->posted) {
		self->posted = 0;
		pool->inbox.posted--;
		assert(pool->inbox.posted >= 0);
	}
	if (pool->nfree < pool->capacity) /* a pool that has ended has no capacity */
		pool->free[pool->nfree++] = (uint32_t) self->index;
	assert(pool->nfree + pool->inbox.posted <= pool->capacity || !pool->capacity);
}

/*
 * Buffers are posted again in batches: one pass for eight posts instead of one for each. When the inbox is empty and
 * nothing is posted, they are posted at once.
 */
int pool_recycle(PoolBuffer *self)
{
	PoolCore *pool = self->pool;

	pool_set_free(self);
	return pool->nfree >= pool->batch || !(pool->inbox.posted || pool->inbox.inbox->count) ? post(pool) : 0;
}

int inbox_recycle(InboxCore *self, PyObject *buffer)
{
	if (PyObject_TypeCheck(buffer, PoolBuffer_Type) && ((PoolBuffer *) buffer)->pool == (PoolCore *) self)
		return pool_recycle((PoolBuffer *) buffer);
	return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_recycle, buffer, NULL));
}

/* Record that the buffer is not posted any more. */
static int came_back(PoolBuffer *self)
{
	InboxCore *inbox = &self->pool->inbox;

	if (!self->posted)
		return 0;
	self->posted = 0;
	if (--inbox->posted)
		return 0;
	if (PyList_Size(self->pool->buffers) < self->pool->capacity)
		return drop(PyObject_CallMethodObjArgs((PyObject *) inbox, name_exhausted, NULL));
	return self->pool->nfree ? post(self->pool) : 0;
}

const char *pool_contents(PoolBuffer *self)
{
	PoolCore *pool = self->pool;

	if ((unsigned long long) self->length <= pool->room)
		return pool->receives[self->index].buf;
	PyErr_Format(PyExc_RuntimeError, "expected a message of at most %lld bytes, got one of %lld", (long long) pool->room,
		     (long long) self->length);
	return NULL;
}

/*
 * Pass the message to a sink in C. The view keeps the memory, however the endpoint is closed meanwhile.
 */
static int feed(PoolBuffer *self, const struct frame_sink *kind)
{
	InboxCore *inbox = &self->pool->inbox;
	PyObject *view = PyObject_GetAttr((PyObject *) inbox, name_view), *sink, *type, *error, *traceback;
	const char *bytes = view ? pool_contents(self) : NULL;
	struct first_exception first = NO_EXCEPTION;
	int rc;

	if (!bytes) {
		Py_XDECREF(view);
		return -1;
	}
	sink = new_ref(inbox->sink);
	rc = kind->arrived(sink, (PyObject *) self, bytes, self->length, view, self->offset);
	Py_DECREF(sink);
	Py_DECREF(view);
	if (rc < 0) {
		PyErr_Fetch(&type, &error, &traceback);
		PyErr_NormalizeException(&type, &error, &traceback);
		if (drop(PyObject_CallMethodObjArgs((PyObject *) inbox, name_sink_failed, error ? error : Py_None, NULL)))
			exception_keep(&first, inbox);
		Py_XDECREF(type);
		Py_XDECREF(error);
		Py_XDECREF(traceback);
	}
	if (rc <= 0 && pool_recycle(self))
		exception_keep(&first, inbox);
	return exception_raise(&first);
}

/* The peer's last message: see cm/preface.py. */
static int end_came(PoolBuffer *self, struct first_exception *first)
{
	PyObject *inbox = (PyObject *) self->pool;

	if (pool_recycle(self))
		exception_keep(first, inbox);
	if (drop(PyObject_CallMethodObjArgs(inbox, name_end_came, NULL)))
		exception_keep(first, inbox);
	return exception_raise(first);
}

static int deliver(PoolBuffer *self)
{
	InboxCore *inbox = &self->pool->inbox;

	if (Py_IS_TYPE((PyObject *) self, PoolBuffer_Type)) { /* the message of a subclass may begin elsewhere */
		if (PyObject_TypeCheck(inbox->sink, upcalls.rpc_sink.type))
			return feed(self, &upcalls.rpc_sink);
		if (PyObject_TypeCheck(inbox->sink, upcalls.channel_sink.type))
			return feed(self, &upcalls.channel_sink);
	}
	return inbox_deliver(inbox, (PyObject *) self);
}

int pool_complete(PoolBuffer *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	InboxCore *inbox = &self->pool->inbox;
	struct first_exception first = NO_EXCEPTION;

	if (self->pool->limits && entry->len > (size_t) inbox->size) {
		PyObject *tuple = entry_tuple(entry, from), *result;

		if (!tuple)
			return -1;
		result = PyObject_CallMethodObjArgs((PyObject *) inbox, name_overlong, self, tuple, NULL);
		Py_DECREF(tuple);
		return drop(result);
	}
	self->flags = entry->flags;
	self->length = entry->len;
	self->data = entry->data;
	self->tag = entry->tag;
	if (came_back(self)) /* the message must still be delivered */
		exception_keep(&first, inbox);
	if (self->pool->end_mark && (entry->flags & FI_REMOTE_CQ_DATA) && entry->data == self->pool->end_mark &&
	    !entry->len)
		return end_came(self, &first);
	if (set_source(&self->source, from))
		exception_keep(&first, inbox);
	inbox->messages++;
	inbox->bytes += self->length;
	if (deliver(self))
		exception_keep(&first, inbox);
	return exception_raise(&first);
}

/* -- PoolCore */

static PyObject *PoolCore_prepare(PoolCore *self, PyObject *args)
{
	PyObject *ep, *descriptor, *overflow;
	Py_ssize_t room, beyond;
	long long capacity;
	int limits;

	if (!PyArg_ParseTuple(args, "OOnL(On)p", &ep, &descriptor, &room, &capacity, &overflow, &beyond, &limits))
		return NULL;
	self->ep = pointer_of(ep);
	self->descriptor = pointer_of(descriptor);
	self->overflow.iov_base = pointer_of(overflow);
	self->overflow.iov_len = beyond;
	if (PyErr_Occurred())
		return NULL;
	if (self->receives || capacity < 1) {
		PyErr_Format(PyExc_RuntimeError, self->receives ? "expected one preparation of the pool, got a second one"
			     : "expected a capacity of 1 receive or more, got %lld", (long long) capacity);
		return NULL;
	}
	self->room = room;
	self->limits = limits;
	self->receives = calloc(capacity, sizeof(*self->receives));
	self->free = calloc(capacity, sizeof(*self->free));
	self->buffers = PyList_New(0);
	if (!self->receives || !self->free || !self->buffers)
		return PyErr_NoMemory();
	self->capacity = capacity;
	self->batch = 1;
	Py_RETURN_NONE;
}

static PyObject *PoolCore_enter(PoolCore *self, PyObject *args)
{
	PyObject *buf, *context;
	PoolBuffer *buffer;
	long long count;

	if (!PyArg_ParseTuple(args, "O!OO", PoolBuffer_Type, &buffer, &buf, &context))
		return NULL;
	count = PyList_Size(self->buffers);
	if (buffer->pool != self || buffer->index != count || count >= self->capacity) {
		PyErr_Format(PyExc_IndexError, "expected buffer %lld of this pool, which has %lld, got buffer %lld of %s", count,
			     (long long) self->capacity, (long long) buffer->index, buffer->pool == self ? "it" : "another pool");
		return NULL;
	}
	self->receives[count].buf = pointer_of(buf);
	self->receives[count].context = pointer_of(context);
	if (PyErr_Occurred() || PyList_Append(self->buffers, (PyObject *) buffer))
		return NULL;
	self->free[self->nfree++] = (uint32_t) count;
	self->batch = (count + 1) / 2 > 1 ? (count + 1) / 2 : 1;
	Py_RETURN_NONE;
}

static PyObject *PoolCore_use_slot(PoolCore *self, PyObject *args)
{
	PyObject *slot, *address;
	PoolBuffer *buffer;
	void *context;

	if (!PyArg_ParseTuple(args, "O!O!", PoolBuffer_Type, &buffer, Slot_Type, &slot))
		return NULL;
	if (buffer->pool != self || buffer->index >= PyList_Size(self->buffers) || buffer->posted) {
		PyErr_SetString(PyExc_RuntimeError, "expected a buffer of this pool that is not posted");
		return NULL;
	}
	address = ((Slot *) slot)->address;
	context = address ? pointer_of(address) : NULL;
	if (!context) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_RuntimeError, "expected a slot with an address");
		return NULL;
	}
	self->receives[buffer->index].context = context;
	REPLACE(buffer->slot, new_ref(slot));
	Py_RETURN_NONE;
}

static PyObject *PoolCore_leave(PoolCore *self, PyObject *unused)
{
	PyObject *buffers = self->buffers, *none = PyList_New(0);

	if (!none)
		return NULL;
	self->buffers = none;
	self->nfree = self->capacity = 0; /* their memory stays: messages that arrived before can still be taken */
	self->inbox.posted = 0;
	return buffers;
}

static PyObject *PoolCore_post(PoolCore *self, PyObject *unused)
{
	if (post(self))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *PoolCore_recycle(PoolCore *self, PyObject *buffer)
{
	if (!PyObject_TypeCheck(buffer, PoolBuffer_Type) || ((PoolBuffer *) buffer)->pool != self) {
		raise_expected("a PoolBuffer of this pool", buffer);
		return NULL;
	}
	if (pool_recycle((PoolBuffer *) buffer))
		return NULL;
	Py_RETURN_NONE;
}

static int PoolCore_traverse(PoolCore *self, visitproc visit, void *arg)
{
	Py_VISIT(self->buffers);
	return inbox_traverse((PyObject *) self, visit, arg);
}

static int PoolCore_clear(PoolCore *self)
{
	if (self->buffers)
		PyList_SetSlice(self->buffers, 0, PyList_Size(self->buffers), NULL);
	self->nfree = self->capacity = 0;
	return inbox_clear((PyObject *) self);
}

static void PoolCore_dealloc(PoolCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->buffers);
	free(self->receives);
	free(self->free);
	inbox_release(&self->inbox);
	free_object(self);
}

static PyMethodDef PoolCore_methods[] = {
	{"_prepare", (PyCFunction) PoolCore_prepare, METH_VARARGS,
	 "The endpoint and the descriptor by address, bytes of each receive, most receives, the address and\n"
	 "length of the room behind each (0 for none), and whether `overlong` gets messages longer than `size`."},
	{"_enter", (PyCFunction) PoolCore_enter, METH_VARARGS, "Add a buffer, with its address and its slot's."},
	{"_use_slot", (PyCFunction) PoolCore_use_slot, METH_VARARGS, "Post a buffer with another slot from now on."},
	{"_leave", (PyCFunction) PoolCore_leave, METH_NOARGS, "Remove all buffers from the pool, and return them."},
	{"post", (PyCFunction) PoolCore_post, METH_NOARGS, "Post every free buffer."},
	{"recycle", (PyCFunction) PoolCore_recycle, METH_O, "The message was taken: its buffer may receive again."},
	{NULL},
};

static PyMemberDef PoolCore_members[] = {
	{"_buffers", T_OBJECT_EX, offsetof(PoolCore, buffers), READONLY},
	{"end_mark", T_ULONGLONG, offsetof(PoolCore, end_mark), 0,
	 "Remote data of the empty message by which the peer ends the connection; 0 if it has none."},
	{NULL},
};

static PyType_Slot PoolCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.transport.messages.pool.Pool`."},
	{Py_tp_dealloc, PoolCore_dealloc},
	{Py_tp_traverse, PoolCore_traverse},
	{Py_tp_clear, PoolCore_clear},
	{Py_tp_methods, PoolCore_methods},
	{Py_tp_members, PoolCore_members},
	{0, NULL},
};

static PyType_Spec PoolCore_spec = {
	"aiofabric._core.PoolCore", sizeof(PoolCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, PoolCore_slots,
};

int add_receive_pool(PyObject *module)
{
	static const struct name names[] = {
		{&name_end_came, "end_came"}, {&name_native_open, "native_open"}, {&name_overlong, "overlong"},
		{&name_post_failed, "_post_failed"}, {&name_exhausted, "exhausted"}, {&name_recycle, "recycle"},
		{&name_sink_failed, "_sink_failed"}, {&name_view, "view"}, {NULL},
	};

	return intern(names) ? -1 : add_type(module, &PoolCore_spec, (PyObject *) InboxCore_Type, &PoolCore_Type);
}
