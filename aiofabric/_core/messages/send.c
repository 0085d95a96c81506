/* Awaited sends: the ordinary ones are posted from C; transport/route.py posts all others. */
#include "messages/send.h"
#include "base/call.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "operations/operation.h"
#include "progress/iteration.h"
#include "submission/injection.h"
#include "submission/pending_result.h"
#include "submission/posting.h"
#include "submission/submission.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

static PyObject *names[2][2]; /* name of the call, by [tagged][several pieces] */
static PyObject *name_yield_to_loop, *name_post;

/*
 * A message of up to `copies` bytes is copied, and the task goes on without waiting for the completion. So a task that
 * sends many of them leaves them in the socket together, and a pass reads their completions together. A route has so
 * many of them, and so many bytes, without a completion.
 */
#define COPIED_MOST 64
#define COPIED_BYTES (256 << 10)

struct pieces {
	struct iovec iov[PIECES];
	Py_ssize_t count, size;
};

/* Pin a piece in its place and record its address; another export might be elsewhere. NULL if it is no buffer. */
static PyObject *pinned(struct pieces *pieces, PyObject *piece)
{
	struct iovec *iov = &pieces->iov[pieces->count];
	PyObject *pin = PyBytes_CheckExact(piece) ? new_ref(piece) : PyMemoryView_FromObject(piece);
	Py_buffer view;

	if (!pin || refuse_pointers(pin) || PyObject_GetBuffer(pin, &view, PyBUF_SIMPLE)) {
		Py_XDECREF(pin);
		return NULL;
	}
	iov->iov_base = view.buf;
	iov->iov_len = view.len;
	PyBuffer_Release(&view);
	pieces->size += iov->iov_len;
	pieces->count++;
	return pin;
}

static PyObject *all_pinned(struct pieces *pieces, PyObject *data, Py_ssize_t count)
{
	PyObject *pins = PyTuple_New(count), *pin;
	Py_ssize_t i;

	for (i = 0; pins && i < count; i++) {
		PyObject *piece = PySequence_GetItem(data, i);

		pin = piece ? pinned(pieces, piece) : NULL;
		Py_XDECREF(piece);
		if (!pin || PyTuple_SetItem(pins, i, pin))
			Py_CLEAR(pins);
	}
	return pins;
}

static ssize_t call_provider(SubmissionCore *self, const struct pieces *pieces, int tagged, unsigned long long tag,
			     void *context)
{
	const struct iovec *iov = pieces->iov;

	if (pieces->count > 1)
		return tagged ? fi_tsendv(self->ep, iov, NULL, pieces->count, self->peer, tag, context)
			      : fi_sendv(self->ep, iov, NULL, pieces->count, self->peer, context);
	return tagged ? fi_tsend(self->ep, iov->iov_base, iov->iov_len, NULL, self->peer, tag, context)
		      : fi_send(self->ep, iov->iov_base, iov->iov_len, NULL, self->peer, context);
}

/* As cffi's calls, which never hold the lock: the thread check keeps other threads from this endpoint. */
static ssize_t post(SubmissionCore *self, const struct pieces *pieces, int tagged, unsigned long long tag, void *context)
{
	ssize_t rc;

	if (pieces->size < UNLOCKED_SIZE)
		return call_provider(self, pieces, tagged, tag, context);
	Py_BEGIN_ALLOW_THREADS
	rc = call_provider(self, pieces, tagged, tag, context);
	Py_END_ALLOW_THREADS
	return rc;
}

static PyObject *post_pinned(SubmissionCore *self, PyObject *pins, const struct pieces *pieces, PyObject *tag)
{
	unsigned long long number = tag == Py_None ? 0 : PyLong_AsUnsignedLongLong(tag);
	int tagged = tag != Py_None;
	Operation *transfer;
	ssize_t rc;

	if (PyErr_Occurred())
		return NULL;
	transfer = submission_prepare(self, names[tagged][pieces->count > 1], pins, pieces->size);
	if (!transfer)
		return NULL;
	submission_begin_call(self);
	rc = post(self, pieces, tagged, number, pointer_of(transfer->slot->address));
	if (rc == 0)
		submission_is_connected(self);
	return submission_call_returned(self, transfer, rc);
}

static PyObject *SubmissionCore_post_here(SubmissionCore *self, PyObject *const *args, Py_ssize_t count)
{
	struct pieces pieces = {.count = 0};
	PyObject *data, *pins, *transfer;
	Py_ssize_t many;

	if (count != 2) {
		raise_arguments("_post_here(data, tag)", count);
		return NULL;
	}
	data = args[0];
	if (!self->pieces || PyObject_Size(self->waiting) || PyDict_Size(self->posted) >= self->limit)
		Py_RETURN_NONE;
	if (PyList_CheckExact(data) || PyTuple_CheckExact(data)) {
		many = PyObject_Size(data);
		if (many < 1 || many > self->pieces)
			Py_RETURN_NONE;
		pins = all_pinned(&pieces, data, many);
	} else {
		pins = pinned(&pieces, data);
	}
	if (!pins || (size_t) pieces.size > self->max_size) {
		Py_XDECREF(pins);
		PyErr_Clear(); /* the Python method reports the error */
		Py_RETURN_NONE;
	}
	transfer = post_pinned(self, pins, &pieces, args[1]);
	Py_DECREF(pins);
	return transfer;
}

/* A copy of the buffer, or the `bytes` themselves. NULL without an exception: it is no plain buffer, or too large. */
static PyObject *unchanging(PyObject *data, Py_ssize_t most)
{
	PyObject *copy = NULL;
	Py_buffer view;

	if (PyBytes_CheckExact(data))
		return PyBytes_Size(data) > most ? NULL : new_ref(data);
	if (!PyObject_CheckBuffer(data))
		return NULL;
	if (refuse_pointers(data) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
		if (PyErr_ExceptionMatches(PyExc_Exception)) /* `post` raises */
			PyErr_Clear();
		return NULL;
	}
	if (view.len <= most)
		copy = PyBytes_FromStringAndSize(view.buf, view.len);
	PyBuffer_Release(&view);
	return copy;
}

/* 0: the message must be posted from its place, and be waited for. */
static int send_copied(SubmissionCore *self, PyObject *data)
{
	PyObject *arguments[2] = {NULL, Py_None}, *object;
	Py_ssize_t posted = PyDict_Size(self->posted), room = COPIED_BYTES - self->copied;
	Operation *transfer;

	if (self->inject_size < 0 || !self->pieces || posted >= COPIED_MOST || posted >= self->limit || PyObject_Size(self->waiting))
		return 0; /* `SubmissionCore_post_here` would post nothing */
	if (room > self->copies)
		room = self->copies;
	if ((size_t) room > self->max_size)
		room = self->max_size;
	arguments[0] = unchanging(data, room);
	if (!arguments[0])
		return PyErr_Occurred() ? -1 : 0;
	object = SubmissionCore_post_here(self, arguments, 2);
	Py_DECREF(arguments[0]);
	if (!object || object == Py_None) {
		Py_XDECREF(object);
		return object ? 0 : -1;
	}
	transfer = (Operation *) object;
	transfer->unawaited = 1;
	self->copied += transfer->length;
	Py_DECREF(object);
	return iteration_must_yield(&self->source->iteration) ? 2 : 1; /* trio's sends never come here */
}

/* Post, and wait for the outcome. */
static int begin_long(Call *call, SubmissionCore *self)
{
	PyObject *transfer = PyObject_CallMethodObjArgs((PyObject *) self, name_post, call->first, NULL);
	PyObject *finished = transfer ? SubmissionCore_finished(self, transfer) : NULL;
	int done = finished ? finished != Py_None : -1;

	call->silent = 1;
	Py_XDECREF(finished);
	if (!done && !(call->base.steps = SubmissionCore_outcome(self, transfer)))
		done = -1;
	Py_XDECREF(transfer);
	return done;
}

static int begin(Call *call, PyObject **result)
{
	SubmissionCore *self = (SubmissionCore *) call->target;
	int sent = submission_inject(self, call->first, NULL);

	if (!sent && self->copies)
		sent = send_copied(self, call->first);
	if (!sent)
		sent = begin_long(call, self);
	if (sent == 2) {
		call->base.steps = PyObject_CallMethodObjArgs((PyObject *) self->source, name_yield_to_loop, NULL);
		return call->base.steps ? 0 : -1;
	}
	if (sent > 0)
		*result = new_ref(Py_None);
	return sent;
}

PyObject *send_call(SubmissionCore *self, PyObject *sender, PyObject *data)
{
	return call_new(begin, "Sends.send", self, data, sender);
}

static PyMethodDef methods[] = {
	{"_post_here", (PyCFunction) (void (*)(void)) SubmissionCore_post_here, METH_FASTCALL,
	 "_post_here(data, tag): post a message whose memory needs no descriptor. None: use the Python method."},
	{NULL},
};

int add_send(PyObject *module)
{
	static const struct name table[] = {
		{&names[0][0], "fi_send"}, {&names[0][1], "fi_sendv"}, {&names[1][0], "fi_tsend"}, {&names[1][1], "fi_tsendv"},
		{&name_yield_to_loop, "yield_to_loop"}, {&name_post, "post"}, {NULL},
	};

	return intern(table) ? -1 : add_methods(SubmissionCore_Type, methods);
}
