/*
 * Completions: reading the queue of a source, and dispatching each completion to its object. cq/source/unmatched.py
 * handles the exceptions.
 */
#include "progress/completions.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "operations/registry.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

static PyObject *name_callback_failed, *name_complete, *name_read_error, *name_read, *name_read_failed, *name_arrived;

/*
 * A peer's access to local memory (a write with data). Its context is meaningless: tcp leaves an earlier transfer's
 * there.
 */
#define OF_THE_PEER (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define FAILED (-FI_ERRNO_OFFSET - 100000) /* no error of libfabric's: a Python exception is set */

/* The completions of one read. */
struct found {
	struct fi_cq_tagged_entry entries[BATCH];
	fi_addr_t from[BATCH];
	int sources;
};

int source_report(SourceCore *self, PyObject *name)
{
	PyObject *type, *error, *traceback;
	int rc;

	if (!PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (traceback)
		PyException_SetTraceback(error, traceback);
	rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name, error, NULL));
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

/* The entries behind it belong to other objects. */
static int callback_failed(SourceCore *self)
{
	return source_report(self, name_callback_failed);
}

/* Dispatch a completion to its object. */
static int dispatch(SourceCore *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	PyObject *operation = registry_find(self->operations, entry->op_context), *tuple;
	int rc = -1;

	Py_XINCREF(operation);
	if (operation && Py_IS_TYPE(operation, upcalls.buffer.type) && !(entry->flags & OF_THE_PEER)) {
		rc = upcalls.buffer.complete(operation, entry, from);
	} else if (operation && Py_IS_TYPE(operation, upcalls.transfer.type) && !(entry->flags & OF_THE_PEER)) {
		rc = upcalls.transfer.complete(operation, entry, from);
	} else if ((tuple = entry_tuple(entry, from))) {
		if (operation && !(entry->flags & OF_THE_PEER))
			rc = drop(PyObject_CallMethodObjArgs(operation, name_complete, tuple, NULL));
		else
			rc = drop(PyObject_CallMethodObjArgs(self->unmatched, name_arrived,
							     operation ? operation : Py_None, tuple, NULL));
		Py_DECREF(tuple);
	}
	Py_XDECREF(operation);
	return rc ? callback_failed(self) : 0;
}

/* Read a queue that is not a NativeQueue. It may return more completions than one read takes: the next has the rest. */
static ssize_t fetch_by_name(SourceCore *self, long long window, struct found *found)
{
	PyObject *share = PyLong_FromLongLong(window), *entries, *entry;
	Py_ssize_t count, i;
	int rc = 0;

	if (!share)
		return FAILED;
	entries = self->unread ? self->unread : PyObject_CallMethodObjArgs(self->queue, name_read, share, NULL);
	self->unread = NULL;
	Py_DECREF(share);
	if (!entries)
		return FAILED;
	if (entries == Py_None) {
		Py_DECREF(entries);
		return -FI_EAVAIL;
	}
	count = PySequence_Size(entries);
	if (count > BATCH) {
		self->unread = PySequence_GetSlice(entries, BATCH, count);
		rc = self->unread ? 0 : -1;
		count = BATCH;
	}
	for (i = 0; !rc && i < count; i++) {
		entry = PySequence_GetItem(entries, i);
		rc = entry ? entry_parse(entry, &found->entries[i], &found->from[i], &found->sources) : -1;
		Py_XDECREF(entry);
	}
	Py_DECREF(entries);
	return rc || count < 0 ? FAILED : count;
}

static ssize_t fetch(SourceCore *self, long long window, int offering, struct found *found)
{
	NativeQueue *native = self->native;
	ssize_t got;

	if (!native)
		return fetch_by_name(self, window, found);
	got = offering ? queue_poll_after_yield(native, window) : queue_poll(native, window);
	assert(got <= BATCH);
	if (got > 0) {
		memcpy(found->entries, native->entries, got * sizeof(*found->entries));
		found->sources = native->sources;
		if (found->sources)
			memcpy(found->from, native->from, got * sizeof(*found->from));
	}
	return got;
}

/* Dispatch an entry of the error queue; returns whether there was one. */
static int dispatch_error(SourceCore *self)
{
	return truth_of(PyObject_CallMethodObjArgs(self->unmatched, name_read_error, NULL));
}

static int read_failed(SourceCore *self, ssize_t error)
{
	PyObject *code = error == FAILED ? NULL : PyLong_FromSsize_t(error);

	if (code) {
		drop(PyObject_CallMethodObjArgs((PyObject *) self, name_read_failed, code, NULL));
		Py_DECREF(code);
	}
	return PyErr_Occurred() ? -1 : 0;
}

static int call_sink(SourceCore *self)
{
	PyObject *sink = fifo_popleft(self->sinks);
	int rc = sink ? upcalls.channel_sink.read_ended(sink) : -1;

	Py_XDECREF(sink);
	return rc ? callback_failed(self) : 0;
}

int source_call_after_read(SourceCore *self, PyObject *sink)
{
	assert(source_reads_on(self));
	return fifo_append(self->sinks, sink);
}

/* Ctrl-C in one dispatch does not skip the completions behind it. */
static int dispatch_all(SourceCore *self, const struct found *found, ssize_t count)
{
	struct first_exception first = NO_EXCEPTION;
	ssize_t i;

	for (i = 0; i < count; i++) {
		self->reading.behind = count - 1 - i;
		if (dispatch(self, &found->entries[i], found->sources ? &found->from[i] : NULL))
			exception_keep(&first, self);
	}
	while (self->sinks->count)
		if (call_sink(self))
			exception_keep(&first, self);
	return exception_raise(&first);
}

static long long read_once(SourceCore *self, long long window, int offering)
{
	struct found found;
	ssize_t got = fetch(self, window, offering, &found);
	int more;

	if (got == -FI_EAGAIN)
		return 0;
	if (got == -FI_EAVAIL) {
		more = dispatch_error(self);
		self->reading.full = more > 0;
		return more;
	}
	if (got < 0)
		return read_failed(self, got);
	self->reading.completions += got;
	self->reading.full = got == BATCH; /* otherwise fi_trywait proves emptiness: a further read would cost one more poll */
	return dispatch_all(self, &found, got) ? -1 : got;
}

long long source_read(SourceCore *self, long long window, int offering)
{
	long long count;

	self->reading.full = 0;
	if (self->reading.draining || self->closed || self->queue == Py_None)
		return 0;
	batch_end(&self->batch);
	assert(!self->reading.draining && !self->closed);
	self->reading.draining = 1;
	count = read_once(self, window, offering);
	self->reading.draining = 0;
	if (count >= 0 && source_is_moving(self))
		polling_extend(self->polling, now_ns());
	return count;
}

void source_count_unawaited(SourceCore *self)
{
	self->reading.unawaited++;
}

int source_has_more(const SourceCore *self, long long moved)
{
	return moved >= 0 && moved < BUDGET && self->reading.full && !self->closed;
}

static PyObject *SourceCore_drain(SourceCore *self, PyObject *unused)
{
	long long count = 0, found;

	do {
		found = source_read(self, 0, 0);
		if (found < 0)
			return NULL;
		count += found;
	} while (source_has_more(self, count));
	return PyLong_FromLongLong(count);
}

static PyMethodDef methods[] = {
	{"_drain", (PyCFunction) SourceCore_drain, METH_NOARGS,
	 "Dispatch all completions; returns how many were read."},
	{NULL},
};

int add_completions(PyObject *module)
{
	static const struct name names[] = {
		{&name_callback_failed, "_callback_failed"}, {&name_complete, "complete"}, {&name_read_error, "read_error"},
		{&name_read, "read"}, {&name_read_failed, "_read_failed"}, {&name_arrived, "arrived"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(SourceCore_Type, methods);
}
