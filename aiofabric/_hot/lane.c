/* LaneCore: how a small message leaves (man pages: fi_msg, fi_tagged).  cq/lane.py and transport/route.py have the rest. */
#include "hot.h"

PyTypeObject *LaneCore_Type;

static PyObject *name_fence, *name_inject, *name_inject_failed, *name_inject_other;

#define FENCE_EVERY 64 /* injected messages that are followed by one whose completion is counted */

typedef struct {
	PyObject_HEAD
	SourceCore *source;
	PyObject *owner;	/* the endpoint's handle */
	PyObject *waiting;	/* deque: what is parked */
	struct fid_ep *ep;
	unsigned long long peer;
	long long inject_size, unfenced;
	char direct;		/* whether the provider is called from here; else `_inject` of the subclass */
} LaneCore;

static PyObject *by_method(LaneCore *self, PyObject *name, const char *bytes, Py_ssize_t size, PyObject *tag)
{
	PyObject *copy = PyBytes_FromStringAndSize(bytes, size), *result;

	if (!copy)
		return NULL;
	result = PyObject_CallMethodObjArgs((PyObject *) self, name, copy, tag ? tag : Py_None, NULL);
	Py_DECREF(copy);
	return result;
}

static PyObject *inject(LaneCore *self, const char *bytes, Py_ssize_t size, PyObject *tag)
{
	unsigned long long number = 0;
	ssize_t rc;

	if (size > self->inject_size || PyObject_Size(self->waiting))
		Py_RETURN_FALSE;
	if (!self->direct)
		return by_method(self, name_inject, bytes, size, tag);
	if (self->unfenced >= FENCE_EVERY)
		return by_method(self, name_fence, bytes, size, tag);
	if (tag) {
		number = PyLong_AsUnsignedLongLong(tag);
		if (number == (unsigned long long) -1 && PyErr_Occurred())
			return NULL;
		rc = fi_tinject(self->ep, bytes, size, self->peer, number);
	} else {
		rc = fi_inject(self->ep, bytes, size, self->peer);
	}
	if (rc == 0) {
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

static PyObject *inject_any(LaneCore *self, PyObject *data, PyObject *tag)
{
	PyObject *result;
	Py_buffer view;

	if (PyBytes_Check(data))
		return inject(self, PyBytes_AsString(data), PyBytes_Size(data), tag);
	if (!PyObject_CheckBuffer(data) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
		PyErr_Clear(); /* a list of buffers; or none, and it is said there why */
		return PyObject_CallMethodObjArgs((PyObject *) self, name_inject_other, data, tag ? tag : Py_None, NULL);
	}
	result = inject(self, view.buf, view.len, tag);
	PyBuffer_Release(&view);
	return result;
}

static int optional_tag(PyObject *const *args, Py_ssize_t count, PyObject **tag)
{
	if (count < 1 || count > 2) {
		PyErr_SetString(PyExc_TypeError, "data, and perhaps a tag");
		return -1;
	}
	*tag = count > 1 && args[1] != Py_None ? args[1] : NULL;
	return 0;
}

static PyObject *LaneCore_inject(LaneCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *tag;

	return optional_tag(args, count, &tag) ? NULL : inject_any(self, args[0], tag);
}

static PyObject *LaneCore_send(LaneCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *tag, *sent, *error;
	int may, done;

	if (optional_tag(args, count, &tag))
		return NULL;
	may = admitted(self->owner);
	if (may < 0)
		return NULL;
	if (!may) {
		error = PyObject_CallMethod(self->owner, "refuse", "s", tag ? "fi_tsend" : "fi_send");
		if (error)
			PyErr_SetObject((PyObject *) type_of(error), error);
		Py_XDECREF(error);
		return NULL;
	}
	sent = inject_any(self, args[0], tag);
	if (!sent)
		return NULL;
	done = PyObject_IsTrue(sent);
	Py_DECREF(sent);
	if (!done)
		Py_RETURN_NONE;
	return PyBool_FromLong(++self->source->streak > STREAK || self->source->checkpoints);
}

static int LaneCore_init(LaneCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *source, *owner;

	if (!PyArg_ParseTuple(args, "O!O", SourceCore_Type, &source, &owner))
		return -1;
	REPLACE(self->source, (SourceCore *) new_ref(source));
	REPLACE(self->owner, new_ref(owner));
	return 0;
}

static int LaneCore_traverse(LaneCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->source);
	Py_VISIT(self->owner);
	Py_VISIT(self->waiting);
	return 0;
}

static int LaneCore_clear(LaneCore *self)
{
	REPLACE(self->owner, new_ref(Py_None));
	return 0;
}

static void LaneCore_dealloc(LaneCore *self)
{
	PyTypeObject *type = type_of(self);
	freefunc release = PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->source);
	Py_CLEAR(self->owner);
	Py_CLEAR(self->waiting);
	release(self);
	Py_DECREF(type);
}

static PyObject *LaneCore_lead(LaneCore *self, PyObject *args)
{
	PyObject *ep;
	int direct;

	if (!PyArg_ParseTuple(args, "OKLp", &ep, &self->peer, &self->inject_size, &direct))
		return NULL;
	self->ep = pointer_of(ep);
	if (PyErr_Occurred())
		return NULL;
	self->direct = direct;
	Py_RETURN_NONE;
}

static PyMethodDef LaneCore_methods[] = {
	{"inject", (PyCFunction) (void (*)(void)) LaneCore_inject, METH_FASTCALL,
	 "inject(data, tag=None): copy a small message into the provider; no completion, no slot. False: `post` is needed."},
	{"send", (PyCFunction) (void (*)(void)) LaneCore_send, METH_FASTCALL,
	 "send(data, tag=None): as `inject`, for a task: whether it should let the loop go round now; None: `post` is needed.\n\n"
	 "Raises as the handle refuses, where it does not admit this thread."},
	{"_lead", (PyCFunction) LaneCore_lead, METH_VARARGS,
	 "The endpoint by address, the peer's fi_addr, bytes that may be injected, and whether that is done here."},
	{NULL},
};

static PyMemberDef LaneCore_members[] = {
	{"source", T_OBJECT_EX, offsetof(LaneCore, source), READONLY},
	{"owner", T_OBJECT_EX, offsetof(LaneCore, owner), READONLY, "the endpoint's handle"},
	{"waiting", T_OBJECT_EX, offsetof(LaneCore, waiting), 0, "what is parked"},
	{"peer", T_ULONGLONG, offsetof(LaneCore, peer), READONLY, "the peer's fi_addr"},
	{"inject_size", T_LONGLONG, offsetof(LaneCore, inject_size), 0, "bytes; -1 where nothing may be injected"},
	{"unfenced", T_LONGLONG, offsetof(LaneCore, unfenced), 0, "injected since the last fence"},
	{NULL},
};

static PyType_Slot LaneCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.cq.lane.Lane`."},
	{Py_tp_init, LaneCore_init},
	{Py_tp_dealloc, LaneCore_dealloc},
	{Py_tp_traverse, LaneCore_traverse},
	{Py_tp_clear, LaneCore_clear},
	{Py_tp_methods, LaneCore_methods},
	{Py_tp_members, LaneCore_members},
	{0, NULL},
};

static PyType_Spec LaneCore_spec = {
	"aiofabric._hot.LaneCore", sizeof(LaneCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, LaneCore_slots,
};

int add_lane(PyObject *module)
{
	static const struct name names[] = {
		{&name_fence, "_fence"}, {&name_inject, "_inject"}, {&name_inject_failed, "_inject_failed"},
		{&name_inject_other, "_inject_other"}, {NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &LaneCore_spec, NULL, &LaneCore_Type);
}
