/* Small messages: the provider copies them, and reports no completion. cq/submission.py has the rest. */
#include "submission/injection.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "progress/iteration.h"
#include "submission/submission.h"

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

static PyObject *name_fence, *name_inject, *name_inject_failed, *name_inject_other;

#define FENCE_EVERY 64 /* after so many injected messages one follows whose completion is counted */

static PyObject *by_method(SubmissionCore *self, PyObject *name, const char *bytes, Py_ssize_t size, PyObject *tag)
{
	PyObject *copy = PyBytes_FromStringAndSize(bytes, size), *result;

	if (!copy)
		return NULL;
	result = PyObject_CallMethodObjArgs((PyObject *) self, name, copy, tag ? tag : Py_None, NULL);
	Py_DECREF(copy);
	return result;
}

static PyObject *inject(SubmissionCore *self, const char *bytes, Py_ssize_t size, PyObject *tag)
{
	unsigned long long number = 0;
	ssize_t rc;

	if (size > self->inject_size || PyObject_Size(self->waiting))
		Py_RETURN_FALSE;
	if (!self->direct)
		return by_method(self, name_inject, bytes, size, tag);
	if (self->unfenced >= FENCE_EVERY)
		return by_method(self, name_fence, bytes, size, tag);
	submission_begin_call(self);
	if (tag) {
		number = PyLong_AsUnsignedLongLong(tag);
		if (number == (unsigned long long) -1 && PyErr_Occurred())
			return NULL;
		rc = fi_tinject(self->ep, bytes, size, self->peer, number);
	} else {
		rc = fi_inject(self->ep, bytes, size, self->peer);
	}
	if (rc == 0) {
		submission_is_connected(self);
		self->unfenced++;
		Py_RETURN_TRUE;
	}
	if (rc != -FI_EAGAIN) {
		PyObject *code = PyLong_FromSsize_t(rc), *result;

		if (!code)
			return NULL;
		result = PyObject_CallMethodObjArgs((PyObject *) self, name_inject_failed, code, tag ? tag : Py_None, NULL);
		Py_DECREF(code);
		if (!result)
			return NULL;
		Py_DECREF(result);
	}
	Py_RETURN_FALSE;
}

/* Whether a list has pieces of `bytes` that are together too long: 1 us less than the Python method. */
static int is_long_list(SubmissionCore *self, PyObject *data)
{
	Py_ssize_t size = 0, i;

	if (!PyList_CheckExact(data))
		return 0;
	for (i = 0; i < PyList_Size(data) && size <= self->inject_size; i++) {
		PyObject *piece = PyList_GetItem(data, i); /* borrowed */

		if (PyBytes_CheckExact(piece))
			size += PyBytes_Size(piece);
	}
	return size > self->inject_size;
}

static PyObject *inject_any(SubmissionCore *self, PyObject *data, PyObject *tag)
{
	PyObject *result;
	Py_buffer view;

	if (PyBytes_Check(data))
		return inject(self, PyBytes_AsString(data), PyBytes_Size(data), tag);
	if (is_long_list(self, data))
		Py_RETURN_FALSE;
	if (refuse_pointers(data))
		return NULL;
	if (!PyObject_CheckBuffer(data) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
		PyErr_Clear(); /* a list of buffers; or no buffer, and the Python method raises */
		return PyObject_CallMethodObjArgs((PyObject *) self, name_inject_other, data, tag ? tag : Py_None, NULL);
	}
	result = inject(self, view.buf, view.len, tag);
	PyBuffer_Release(&view);
	return result;
}

static int optional_tag(PyObject *const *args, Py_ssize_t count, PyObject **tag)
{
	if (count < 1 || count > 2) {
		raise_arguments("data, and optionally a tag", count);
		return -1;
	}
	*tag = count > 1 && args[1] != Py_None ? args[1] : NULL;
	return 0;
}

static PyObject *SubmissionCore_inject(SubmissionCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *tag;

	return optional_tag(args, count, &tag) ? NULL : inject_any(self, args[0], tag);
}

int submission_try_inject(SubmissionCore *self, PyObject *data)
{
	return truth_of(inject_any(self, data, NULL));
}

int submission_inject(SubmissionCore *self, PyObject *data, PyObject *tag)
{
	PyObject *error;
	int sent;

	if (!self->thread_check || !thread_check_admits(self->thread_check)) {
		error = PyObject_CallMethod(self->owner, "refuse", "s", tag ? "fi_tsend" : "fi_send");
		if (error)
			PyErr_SetObject((PyObject *) type_of(error), error);
		Py_XDECREF(error);
		return -1;
	}
	sent = truth_of(inject_any(self, data, tag));
	if (sent <= 0)
		return sent;
	return iteration_must_yield(&self->source->iteration) || self->source->checkpoints ? 2 : 1;
}

static PyObject *SubmissionCore_send(SubmissionCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *tag;
	int sent = optional_tag(args, count, &tag) ? -1 : submission_inject(self, args[0], tag);

	if (sent < 0)
		return NULL;
	if (!sent)
		Py_RETURN_NONE;
	return PyBool_FromLong(sent > 1);
}

static PyMethodDef methods[] = {
	{"inject", (PyCFunction) (void (*)(void)) SubmissionCore_inject, METH_FASTCALL,
	 "inject(data, tag=None): copy a small message into the provider; no completion, no slot. False: `post`\n"
	 "is needed."},
	{"send", (PyCFunction) (void (*)(void)) SubmissionCore_send, METH_FASTCALL,
	 "send(data, tag=None): as `inject`, for a task. True: the task should let the loop iterate now. None:\n"
	 "`post` is needed.\n\n"
	 "Raises the handle's error if it does not admit this thread."},
	{NULL},
};

int add_injection(PyObject *module)
{
	static const struct name names[] = {
		{&name_fence, "_fence"}, {&name_inject, "_inject"}, {&name_inject_failed, "_inject_failed"},
		{&name_inject_other, "_inject_other"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(SubmissionCore_Type, methods);
}
