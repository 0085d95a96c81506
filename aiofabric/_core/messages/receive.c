/*
 * Receives into the caller's memory: the ordinary ones are posted from C. transport/messages/receive.py posts all
 * others; over shm posting there took 260 of the 560 bytecodes of a round trip.
 */
#include "messages/receive.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "messages/receive_pool.h"
#include "operations/operation.h"
#include "progress/arming.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "submission/posting.h"
#include "submission/submission.h"

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

static PyObject *names[2][2]; /* name of the call, by [tagged][room behind the caller's memory] */

static PyObject *SubmissionCore_receive_here(SubmissionCore *self, PyObject *args)
{
	PyObject *ep, *thread_check, *overflow;
	Py_ssize_t beyond;

	if (!PyArg_ParseTuple(args, "OO!(On)", &ep, ThreadCheck_Type, &thread_check, &overflow, &beyond))
		return NULL;
	self->ep = pointer_of(ep);
	self->overflow.iov_base = pointer_of(overflow);
	self->overflow.iov_len = beyond;
	if (PyErr_Occurred())
		return NULL;
	REPLACE(self->thread_check, (ThreadCheck *) new_ref(thread_check));
	self->direct = 1;
	Py_RETURN_NONE;
}

static ssize_t call_provider(SubmissionCore *self, const struct iovec *pieces, int tagged, unsigned long long tag,
			     void *context)
{
	if (tagged)
		return self->overflow.iov_len
			       ? fi_trecvv(self->ep, pieces, NULL, 2, FI_ADDR_UNSPEC, tag, 0, context)
			       : fi_trecv(self->ep, pieces->iov_base, pieces->iov_len, NULL, FI_ADDR_UNSPEC, tag, 0, context);
	return self->overflow.iov_len
		       ? fi_recvv(self->ep, pieces, NULL, 2, FI_ADDR_UNSPEC, context)
		       : fi_recv(self->ep, pieces->iov_base, pieces->iov_len, NULL, FI_ADDR_UNSPEC, context);
}

/* shm copies a message that has arrived already while the receive is posted: 26 ms for 128 MiB. */
static ssize_t post(SubmissionCore *self, const Operation *transfer, void *memory, size_t size)
{
	struct iovec pieces[2] = {{memory, size}, self->overflow};
	void *context = pointer_of(transfer->slot->address);
	unsigned long long tag = transfer->wanted_tag;
	int tagged = transfer->tagged;
	ssize_t rc;

	if (size < UNLOCKED_SIZE)
		return call_provider(self, pieces, tagged, tag, context);
	Py_BEGIN_ALLOW_THREADS
	rc = call_provider(self, pieces, tagged, tag, context);
	Py_END_ALLOW_THREADS
	return rc;
}

static int keep_apart(SubmissionCore *self, unsigned long long memory, unsigned long long size)
{
	PyObject *posted, *none;
	Py_ssize_t at = 0;

	while (PyDict_Next(self->posted, &at, &posted, &none)) {
		const Operation *other = (const Operation *) posted;

		if (other->memory && other->memory < memory + size && memory < other->memory + other->room) {
			PyErr_SetString(PyExc_ValueError,
					"a receive into overlapping memory is under way: each message needs memory of its own");
			return -1;
		}
	}
	return 0;
}

static PyObject *SubmissionCore_keep_apart(SubmissionCore *self, PyObject *args)
{
	unsigned long long memory, size;

	if (!PyArg_ParseTuple(args, "KK", &memory, &size) || keep_apart(self, memory, size))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *receive(SubmissionCore *self, PyObject *pins, int tagged, unsigned long long tag)
{
	Operation *transfer;
	Py_buffer view;
	ssize_t rc;

	/* The address is that of the pin: another export of the buffer could have another one. */
	if (PyObject_GetBuffer(pins, &view, PyBUF_WRITABLE)) {
		PyErr_Clear();
		Py_RETURN_NONE;
	}
	transfer = keep_apart(self, (uintptr_t) view.buf, view.len)
			   ? NULL
			   : submission_prepare(self, names[tagged][self->overflow.iov_len > 0], pins, view.len);
	if (!transfer) {
		PyBuffer_Release(&view);
		return NULL;
	}
	transfer->memory = (uintptr_t) view.buf;
	transfer->room = view.len;
	transfer->tagged = tagged;
	transfer->wanted_tag = tag;
	rc = post(self, transfer, view.buf, view.len);
	PyBuffer_Release(&view);
	return submission_call_returned(self, transfer, rc);
}

static PyObject *SubmissionCore_receive(SubmissionCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *pins = NULL, *transfer;
	unsigned long long tag = 0;
	int tagged = count > 1;

	if (count < 1 || count > 2) {
		raise_arguments("receive(buffer) or receive(buffer, tag)", count);
		return NULL;
	}
	if (!self->direct || !self->thread_check || !thread_check_admits(self->thread_check) || self->source->checkpoints ||
	    PyObject_Size(self->waiting) || PyDict_Size(self->posted) >= self->limit)
		Py_RETURN_NONE;
	if (tagged)
		tag = PyLong_AsUnsignedLongLong(args[1]);
	if (!PyErr_Occurred())
		pins = PyMemoryView_FromObject(args[0]);
	if (!pins || refuse_pointers(pins)) {
		Py_XDECREF(pins);
		PyErr_Clear(); /* the Python method reports the error */
		Py_RETURN_NONE;
	}
	transfer = receive(self, pins, tagged, tag);
	Py_DECREF(pins);
	return transfer;
}

static PyObject *SubmissionCore_received(SubmissionCore *self, PyObject *object)
{
	Operation *transfer = (Operation *) object;
	SourceCore *source = self->source;

	if (!PyObject_TypeCheck(object, Operation_Type)) {
		raise_expected("an Operation", object);
		return NULL;
	}
	if (transfer->state == POSTED && source_poll(source))
		return NULL;
	return PyBool_FromLong(operation_is_received(transfer) && iteration_allows_return(&source->iteration));
}

static PyMethodDef methods[] = {
	{"receive", (PyCFunction) (void (*)(void)) SubmissionCore_receive, METH_FASTCALL,
	 "receive(buffer), or receive(buffer, tag): post a receive into the caller's memory, which is exported\n"
	 "until the receive is finished. None: use the Python method, which also reports errors."},
	{"keep_apart", (PyCFunction) SubmissionCore_keep_apart, METH_VARARGS,
	 "keep_apart(address, size): raise ValueError if a posted receive may write to these bytes, too."},
	{"received", (PyCFunction) SubmissionCore_received, METH_O,
	 "Whether such a receive got its message, after a poll, and the caller may continue at once; else use\n"
	 "`outcome`."},
	{"_receive_here", (PyCFunction) SubmissionCore_receive_here, METH_VARARGS,
	 "The endpoint by address, its thread check, and the address and length of the room behind each receive.\n"
	 "Enables `receive`."},
	{NULL},
};

int add_receive(PyObject *module)
{
	static const struct name table[] = {
		{&names[0][0], "fi_recv"}, {&names[0][1], "fi_recvv"}, {&names[1][0], "fi_trecv"}, {&names[1][1], "fi_trecvv"},
		{NULL},
	};

	return intern(table) ? -1 : add_methods(SubmissionCore_Type, methods);
}
