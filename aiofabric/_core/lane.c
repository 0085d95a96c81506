/* LaneCore: posting operations, and sending small messages.  cq/lane.py and transport/route.py have the rest. */
#include "core.h"

PyTypeObject *LaneCore_Type;

static PyObject *name_call_failed, *name_fence, *name_inject, *name_inject_failed, *name_inject_other, *name_park,
	*name_submit, *name_tell, *name_try;

#define FENCE_EVERY 64 /* injected messages that are followed by one whose completion is counted */

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
	lane_sends(self);
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

int lane_send(LaneCore *self, PyObject *data, PyObject *tag)
{
	PyObject *error;
	int sent;

	if (!self->gate || !gate_admits(self->gate)) {
		error = PyObject_CallMethod(self->owner, "refuse", "s", tag ? "fi_tsend" : "fi_send");
		if (error)
			PyErr_SetObject((PyObject *) type_of(error), error);
		Py_XDECREF(error);
		return -1;
	}
	sent = truth_of(inject_any(self, data, tag));
	if (sent <= 0)
		return sent;
	return ++self->source->streak > STREAK || self->source->checkpoints ? 2 : 1;
}

static PyObject *LaneCore_send(LaneCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *tag;
	int sent = optional_tag(args, count, &tag) ? -1 : lane_send(self, args[0], tag);

	if (sent < 0)
		return NULL;
	if (!sent)
		Py_RETURN_NONE;
	return PyBool_FromLong(sent > 1);
}

/* -- posting */

/* Forget what a dict has under a key, if anything. */
static int forget(PyObject *dict, PyObject *key)
{
	if (!PyDict_DelItem(dict, key))
		return 0;
	if (!PyErr_ExceptionMatches(PyExc_KeyError))
		return -1;
	PyErr_Clear();
	return 0;
}

int lane_home(LaneCore *self, Operation *transfer)
{
	SourceCore *source = self->source;

	registry_forget(source->operations, pointer_of(transfer->slot->address));
	if (slots_take_back(source->slots, (PyObject *) transfer->slot) || forget(self->posted, (PyObject *) transfer))
		return -1;
	source->interest--;
	source->abandoned -= transfer->state == ABANDONED;
	if (PyList_Size(self->idle))
		return drop(PyObject_CallMethodObjArgs((PyObject *) self, name_tell, NULL));
	return 0;
}

/* It was not posted, and will not be. */
static int give_up(LaneCore *self, Operation *transfer)
{
	if (slots_take_back(self->source->slots, (PyObject *) transfer->slot))
		return -1;
	REPLACE(transfer->pins, new_ref(Py_None));
	return operation_let_go(transfer);
}

/* No operation was made for it; the exception stays. */
static void return_slot(LaneCore *self, Slot *slot)
{
	PyObject *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	if (slots_take_back(self->source->slots, (PyObject *) slot))
		PyErr_Clear();
	PyErr_Restore(type, error, traceback);
}

Operation *lane_prepare(LaneCore *self, PyObject *what, PyObject *pins, Py_ssize_t size)
{
	PyObject *held = PyTuple_New(0);
	Slot *slot = held ? slots_lend(self->source->slots) : NULL;
	Operation *transfer = slot ? transfer_new(what, (PyObject *) self, (PyObject *) slot, pins, held, size) : NULL;

	if (transfer && registry_enter(self->source->operations, pointer_of(slot->address), (PyObject *) transfer)) {
		Py_DECREF((PyObject *) transfer);
		transfer = NULL;
	}
	if (!transfer && slot)
		return_slot(self, slot);
	Py_XDECREF(held);
	Py_XDECREF((PyObject *) slot);
	return transfer;
}

static int note_posted(LaneCore *self, Operation *transfer)
{
	self->source->interest++;
	if (PyDict_SetItem(self->posted, (PyObject *) transfer, Py_None) || operation_move(transfer, POSTED))
		return -1;
	return source_touch(self->source);
}

static int undo_post(LaneCore *self, Operation *transfer)
{
	registry_forget(self->source->operations, pointer_of(transfer->slot->address));
	return give_up(self, transfer);
}

PyObject *lane_answered(LaneCore *self, Operation *transfer, ssize_t rc)
{
	if (!(rc ? undo_post(self, transfer) : note_posted(self, transfer))) {
		if (!rc)
			return (PyObject *) transfer;
		Py_DECREF((PyObject *) transfer);
		Py_RETURN_NONE; /* the long way parks it, or raises */
	}
	Py_DECREF((PyObject *) transfer);
	return NULL;
}

/* Register, then post.  1: done; 0: the provider has no room now; -1: an exception, and nothing is held any more. */
static int try_post(LaneCore *self, Operation *transfer)
{
	SourceCore *source = self->source;
	void *address = pointer_of(transfer->slot->address);
	PyObject *answer, *type, *error, *traceback;
	long long rc;

	if (!PyTuple_Check(transfer->post) || PyTuple_Size(transfer->post) != 2) {
		PyErr_SetString(PyExc_TypeError, "a function and its arguments are posted");
		return -1;
	}
	if (registry_enter(source->operations, address, (PyObject *) transfer)) {
		PyErr_Fetch(&type, &error, &traceback);
		if (give_up(self, transfer))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
		return -1;
	}
	lane_sends(self);
	answer = PyObject_Call(PyTuple_GetItem(transfer->post, 0), PyTuple_GetItem(transfer->post, 1), NULL);
	rc = answer ? PyLong_AsLongLong(answer) : 0;
	Py_XDECREF(answer);
	if (PyErr_Occurred()) { /* an argument that is no number of C's */
		PyErr_Fetch(&type, &error, &traceback);
		if (undo_post(self, transfer))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
		return -1;
	}
	if (rc == 0)
		return note_posted(self, transfer) ? -1 : 1;
	registry_forget(source->operations, address);
	if (rc == -FI_EAGAIN || (rc == -FI_ENOMEM && self->receives)) { /* 1.17's shm: its queue of receives is full */
		self->refused = 1;
		return 0;
	}
	if (!give_up(self, transfer)) {
		PyObject *code = PyLong_FromLongLong(rc);

		if (code)
			drop(PyObject_CallMethodObjArgs((PyObject *) self, name_call_failed, code, transfer->what, NULL));
		Py_XDECREF(code);
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_SystemError, "a call that failed without an error");
	}
	return -1;
}

static PyObject *LaneCore_try(LaneCore *self, PyObject *transfer)
{
	int posted;

	if (!PyObject_TypeCheck(transfer, Operation_Type)) {
		PyErr_SetString(PyExc_TypeError, "no operation");
		return NULL;
	}
	posted = try_post(self, (Operation *) transfer);
	return posted < 0 ? NULL : PyBool_FromLong(posted);
}

static PyObject *LaneCore_home(LaneCore *self, PyObject *transfer)
{
	if (!PyObject_TypeCheck(transfer, Operation_Type)) {
		PyErr_SetString(PyExc_TypeError, "no operation");
		return NULL;
	}
	if (lane_home(self, (Operation *) transfer))
		return NULL;
	Py_RETURN_NONE;
}

/* The arguments of the call, and behind them the context. */
static PyObject *with_context(PyObject *function, PyObject *args, Slot *slot)
{
	Py_ssize_t count = PyTuple_Size(args), i;
	PyObject *all = PyTuple_New(count + 1), *post = NULL;

	if (!all)
		return NULL;
	for (i = 0; i < count; i++)
		PyTuple_SetItem(all, i, new_ref(PyTuple_GetItem(args, i)));
	PyTuple_SetItem(all, count, new_ref(slot->pointer));
	post = PyTuple_Pack(2, function, all);
	Py_DECREF(all);
	return post;
}

static PyObject *LaneCore_submit(LaneCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"what", "function", "args", "pins", "length", "held", "kind", "slot", NULL};
	PyObject *what, *function, *arguments, *pins, *held = NULL, *kind = Py_None, *lent = Py_None, *post;
	Operation *transfer;
	long long length;
	int posted = 0;
	Slot *slot;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!OL|O$OO", names, &what, &function, &PyTuple_Type, &arguments,
					 &pins, &length, &held, &kind, &lent))
		return NULL;
	slot = lent == Py_None ? slots_lend(self->source->slots) : (Slot *) new_ref(lent);
	held = held ? new_ref(held) : PyTuple_New(0);
	if (!slot || !held)
		transfer = NULL;
	else if (kind == Py_None)
		transfer = transfer_new(what, (PyObject *) self, (PyObject *) slot, pins, held, length);
	else
		transfer = (Operation *) PyObject_CallFunction(kind, "OOOOLO", what, self, slot, pins, length, held);
	post = transfer ? with_context(function, arguments, slot) : NULL;
	Py_XDECREF(held);
	if (!post) {
		if (slot && lent == Py_None)
			return_slot(self, slot);
		Py_XDECREF((PyObject *) slot);
		Py_XDECREF((PyObject *) transfer);
		return NULL;
	}
	Py_DECREF((PyObject *) slot);
	REPLACE(transfer->post, post);
	if (!PyObject_Size(self->waiting) && PyDict_Size(self->posted) < self->limit) {
		if (self->plain_try)
			posted = try_post(self, transfer);
		else
			posted = truth_of(PyObject_CallMethodObjArgs((PyObject *) self, name_try, transfer, NULL));
	}
	if (!posted)
		posted = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_park, transfer, NULL));
	if (posted < 0) {
		Py_DECREF((PyObject *) transfer);
		return NULL;
	}
	return (PyObject *) transfer;
}

/* The answer is there, or comes while we look, and the loop need not go round first: the operation.  Else None. */
PyObject *LaneCore_settled(LaneCore *self, PyObject *object)
{
	Operation *transfer = (Operation *) object;

	if (!PyObject_TypeCheck(object, Operation_Type)) {
		PyErr_SetString(PyExc_TypeError, "no operation");
		return NULL;
	}
	if (transfer->state == POSTED && source_look(self->source))
		return NULL;
	if (transfer->state != SETTLED || self->source->streak >= STREAK)
		Py_RETURN_NONE;
	self->source->streak++;
	return operation_result(transfer);
}

/* Whether the subclass has no method of its own by that name. */
static int is_plain(LaneCore *self, PyObject *name)
{
	PyObject *ours = PyObject_GetAttr((PyObject *) LaneCore_Type, name);
	PyObject *theirs = PyObject_GetAttr((PyObject *) type_of(self), name);

	Py_XDECREF(ours);
	Py_XDECREF(theirs);
	return ours && ours == theirs; /* compared, not used */
}

static int LaneCore_init(LaneCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *source, *owner, *waiting, *home = PyUnicode_FromString("home");
	int receives;

	if (!home || !PyArg_ParseTuple(args, "O!OOLp", SourceCore_Type, &source, &owner, &waiting, &self->limit, &receives)) {
		Py_XDECREF(home);
		return -1;
	}
	self->receives = receives;
	self->socket = -1;
	self->plain_home = is_plain(self, home);
	self->plain_try = is_plain(self, name_try);
	Py_DECREF(home);
	REPLACE(self->source, (SourceCore *) new_ref(source));
	REPLACE(self->owner, new_ref(owner));
	REPLACE(self->waiting, new_ref(waiting));
	REPLACE(self->posted, PyDict_New());
	REPLACE(self->idle, PyList_New(0));
	return self->posted && self->idle ? 0 : -1;
}

static int LaneCore_traverse(LaneCore *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->source);
	Py_VISIT(self->owner);
	Py_VISIT(self->waiting);
	Py_VISIT(self->posted);
	Py_VISIT(self->idle);
	return 0;
}

static int LaneCore_clear(LaneCore *self)
{
	REPLACE(self->owner, new_ref(Py_None));
	return 0;
}

static void LaneCore_dealloc(LaneCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->source);
	Py_CLEAR(self->owner);
	Py_CLEAR(self->waiting);
	Py_CLEAR(self->posted);
	Py_CLEAR(self->idle);
	Py_CLEAR(self->gate);
	free_object(self);
}

static PyObject *LaneCore_lead(LaneCore *self, PyObject *args)
{
	PyObject *ep, *gate;
	long long pieces;
	int direct;

	if (!PyArg_ParseTuple(args, "OO!KLpKL", &ep, Gate_Type, &gate, &self->peer, &self->inject_size, &direct,
			      &self->max_size, &pieces))
		return NULL;
	self->pieces = pieces < PIECES ? pieces : PIECES;
	if (!direct || !self->plain_try || !is_plain(self, name_submit))
		self->pieces = 0;
	self->ep = pointer_of(ep);
	REPLACE(self->gate, (Gate *) new_ref(gate));
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
	{"submit", (PyCFunction) (void (*)(void)) LaneCore_submit, METH_VARARGS | METH_KEYWORDS,
	 "submit(what, function, args, pins, length, held=(), *, kind=None, slot=None): post function(*args, context)\n"
	 "now, or park it behind those that wait already.\n\n"
	 "Args:\n    kind: what it is, if no ordinary `Transfer`.\n    slot: one that the caller kept, instead of a fresh one.\n\n"
	 "Raises:\n    FabricError: the provider refused the call, or the lane was closed to all; nothing was posted and\n"
	 "        nothing stays pinned or held."},
	{"settled", (PyCFunction) LaneCore_settled, METH_O,
	 "What `outcome` would return at once, after a look; None: ask `outcome`. Raises its error."},
	{"outcome", (PyCFunction) LaneCore_outcome, METH_O,
	 "Awaited: the operation, once it is settled, or its error raised. Cancelling asks the provider and waits a little."},
	{"home", (PyCFunction) LaneCore_home, METH_O, "Its completion was read: the slot may be lent again."},
	{"receive", (PyCFunction) (void (*)(void)) LaneCore_receive, METH_FASTCALL,
	 "receive(buffer), or receive(buffer, tag): post a receive into the caller's memory, which is exported until it is\n"
	 "settled. None: the long way is needed, which also says why if that is an error."},
	{"keep_apart", (PyCFunction) LaneCore_keep_apart, METH_VARARGS,
	 "keep_apart(address, size): raise ValueError where a posted receive may write to these bytes as well."},
	{"received", (PyCFunction) LaneCore_received, METH_O,
	 "Whether such a receive has got its message, after a look, and nothing else is to be seen to; else ask `outcome`."},
	{"arrives", (PyCFunction) (void (*)(void)) LaneCore_arrives, METH_FASTCALL,
	 "arrives(transfer, orphaned): awaited where `received` said no, whether it has come well; else ask `outcome`.\n"
	 "`orphaned` is called with a message that came though the caller was cancelled."},
	{"_receive_here", (PyCFunction) LaneCore_receive_here, METH_VARARGS,
	 "The endpoint by address, its gate, and the address and length of what is behind each receive: `receive` may post."},
	{"keep_socket", (PyCFunction) LaneCore_keep_socket, METH_O,
	 "The descriptor of the kernel's TCP socket beneath: what is sent in a volley leaves together. -1: no more."},
	{"_try", (PyCFunction) LaneCore_try, METH_O, "Register, then post. False: the provider has no room now."},
	{"_lead", (PyCFunction) LaneCore_lead, METH_VARARGS,
	 "The endpoint by address, its gate, the peer's fi_addr, bytes that may be injected, whether that is done here, bytes\n"
	 "of the longest message, and its most buffers."},
	{"_post_here", (PyCFunction) (void (*)(void)) LaneCore_post_here, METH_FASTCALL,
	 "_post_here(data, tag): post a message whose memory needs no descriptor. None: the long way is needed."},
	{NULL},
};

static PyObject *LaneCore_get_posted(LaneCore *self, void *unused)
{
	return new_ref(self->posted);
}

static int LaneCore_set_posted(LaneCore *self, PyObject *posted, void *unused)
{
	if (!posted || !PyDict_Check(posted)) {
		PyErr_SetString(PyExc_TypeError, "what is posted is a dict");
		return -1;
	}
	REPLACE(self->posted, new_ref(posted));
	return 0;
}

static PyGetSetDef LaneCore_getset[] = {
	{"posted", (getter) LaneCore_get_posted, (setter) LaneCore_set_posted, "what the provider has; a dict as a set"},
	{NULL},
};

static PyMemberDef LaneCore_members[] = {
	{"source", T_OBJECT_EX, offsetof(LaneCore, source), READONLY},
	{"owner", T_OBJECT_EX, offsetof(LaneCore, owner), READONLY, "the endpoint's handle"},
	{"waiting", T_OBJECT_EX, offsetof(LaneCore, waiting), 0, "what is parked"},
	{"idle", T_OBJECT_EX, offsetof(LaneCore, idle), READONLY, "who waits for nothing to be posted or parked"},
	{"limit", T_LONGLONG, offsetof(LaneCore, limit), 0, "most operations posted at once"},
	{"receives", T_BOOL, offsetof(LaneCore, receives), READONLY, "whether the provider reports the length"},
	{"refused", T_BOOL, offsetof(LaneCore, refused), 0, "the provider said -FI_EAGAIN to the oldest parked operation"},
	{"peer", T_ULONGLONG, offsetof(LaneCore, peer), READONLY, "the peer's fi_addr"},
	{"inject_size", T_LONGLONG, offsetof(LaneCore, inject_size), 0, "bytes; -1 where nothing may be injected"},
	{"max_size", T_ULONGLONG, offsetof(LaneCore, max_size), 0, "bytes of the longest message"},
	{"socket", T_INT, offsetof(LaneCore, socket), READONLY, "the descriptor of the kernel's TCP socket beneath, or -1"},
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
	{Py_tp_getset, LaneCore_getset},
	{Py_tp_members, LaneCore_members},
	{0, NULL},
};

static PyType_Spec LaneCore_spec = {
	"aiofabric._core.LaneCore", sizeof(LaneCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, LaneCore_slots,
};

int add_lane(PyObject *module)
{
	static const struct name names[] = {
		{&name_call_failed, "_call_failed"}, {&name_fence, "_fence"}, {&name_inject, "_inject"},
		{&name_inject_failed, "_inject_failed"}, {&name_inject_other, "_inject_other"}, {&name_park, "_park"},
		{&name_submit, "submit"}, {&name_tell, "_tell"}, {&name_try, "_try"}, {NULL},
	};

	if (intern(names))
		return -1;
	return add_type(module, &LaneCore_spec, NULL, &LaneCore_Type);
}
