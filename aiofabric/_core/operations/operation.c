/* Operation: slot, waiter and pins of a posted call. cq/operation.py has the states and their meaning. */
#include "operations/operation.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "base/upcalls.h"
#include "operations/slots.h"

PyTypeObject *Operation_Type;

static PyObject *name_end_use;

/* Set by cq/operation.py: the states in the order of `enum state`, and the possible moves of each. */
static PyObject *states[STATES], *impossible;
static unsigned moves[STATES];

static PyObject *learn_states(PyObject *module, PyObject *args)
{
	PyObject *all, *table, *call;
	int i, j;

	if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &all, &PyDict_Type, &table, &call))
		return NULL;
	if (PyTuple_Size(all) != STATES) {
		PyErr_Format(PyExc_ValueError, "expected %d states of an operation, got %zd", STATES, PyTuple_Size(all));
		return NULL;
	}
	for (i = 0; i < STATES; i++) {
		PyObject *state = PyTuple_GetItem(all, i), *possible = PyDict_GetItemWithError(table, state);

		if (!possible) {
			if (!PyErr_Occurred())
				PyErr_SetObject(PyExc_KeyError, state);
			return NULL;
		}
		moves[i] = 0;
		for (j = 0; j < STATES; j++) {
			int has = PySequence_Contains(possible, PyTuple_GetItem(all, j));

			if (has < 0)
				return NULL;
			moves[i] |= (unsigned) has << j;
		}
		REPLACE(states[i], new_ref(state));
	}
	REPLACE(impossible, new_ref(call));
	Py_RETURN_NONE;
}

int operation_move(Operation *self, enum state state)
{
	assert((unsigned) state < STATES && (unsigned) self->state < STATES);
	if (moves[(int) self->state] & 1u << state) {
		self->state = state;
		return 0;
	}
	drop(PyObject_CallFunctionObjArgs(impossible, self->what, states[(int) self->state], states[state], NULL));
	return -1;
}

int operation_release_registrations(Operation *self)
{
	PyObject *registrations = self->registrations;
	Py_ssize_t count = PyObject_Size(registrations), i;
	struct first_exception first = NO_EXCEPTION;

	if (count <= 0)
		return count < 0 ? -1 : 0;
	self->registrations = PyTuple_New(0);
	if (!self->registrations)
		exception_keep(&first, Operation_Type);
	for (i = 0; i < count; i++) {
		PyObject *each = PySequence_GetItem(registrations, i);

		if (!each || drop(PyObject_CallMethodObjArgs(each, name_end_use, NULL)))
			exception_keep(&first, Operation_Type);
		Py_XDECREF(each);
	}
	Py_DECREF(registrations);
	return exception_raise(&first);
}

/* `notify` is a callable, or a waiter: a closure for each wait would cost more than the waiting. */
static int wake(Operation *self, PyObject *notify)
{
	if (PyCallable_Check(notify))
		return drop(PyObject_CallFunctionObjArgs(notify, self, NULL));
	return upcalls.wake(self->owner, notify);
}

int operation_complete(Operation *self, PyObject *error)
{
	int left = self->state == CANCELLING || self->state == ABANDONED;
	struct first_exception first = NO_EXCEPTION;
	PyObject *notify;

	if (operation_move(self, FINISHED))
		return -1;
	if (error && self->error == Py_None) /* the caller may get an error before the provider's completion arrives */
		REPLACE(self->error, new_ref(error));
	REPLACE(self->post, new_ref(Py_None));
	if (left && !error && self->orphaned != Py_None &&
	    drop(PyObject_CallFunctionObjArgs(self->orphaned, self, NULL)))
		exception_keep(&first, Operation_Type);
	if (left || error) /* otherwise, an exception may still interrupt the caller before it has the message */
		REPLACE(self->orphaned, new_ref(Py_None));
	REPLACE(self->pins, new_ref(Py_None));
	if (operation_release_registrations(self))
		exception_keep(&first, Operation_Type);
	assert(self->state == FINISHED && self->pins == Py_None && self->post == Py_None);
	notify = self->notify;
	if (notify != Py_None) {
		self->notify = new_ref(Py_None);
		if (wake(self, notify))
			exception_keep(&first, Operation_Type);
		Py_DECREF(notify);
	}
	return exception_raise(&first);
}

int operation_fill(Operation *self, PyObject *what, PyObject *owner, PyObject *slot, PyObject *pins,
			  PyObject *registrations, long long length)
{
	if (!impossible) {
		PyErr_SetString(PyExc_TypeError, "expected learn_states() before the first operation, got an operation");
		return -1;
	}
	if (!Py_IS_TYPE(slot, Slot_Type)) {
		raise_expected("a Slot for the operation", slot);
		return -1;
	}
	REPLACE(self->what, new_ref(what));
	REPLACE(self->owner, new_ref(owner));
	REPLACE(self->slot, (Slot *) new_ref(slot));
	REPLACE(self->pins, new_ref(pins));
	REPLACE(self->registrations, new_ref(registrations));
	REPLACE(self->error, new_ref(Py_None));
	REPLACE(self->notify, new_ref(Py_None));
	REPLACE(self->orphaned, new_ref(Py_None));
	REPLACE(self->post, new_ref(Py_None));
	REPLACE(self->source, new_ref(Py_None));
	self->length = length;
	self->state = NEW;
	return 0;
}

static int Operation_init(Operation *self, PyObject *args, PyObject *kwargs)
{
	PyObject *what, *owner, *slot, *pins, *registrations = NULL, *none;
	long long length;
	int rc;

	if (refuse_second_init(self->slot))
		return -1;
	if (!PyArg_ParseTuple(args, "OOOOL|O", &what, &owner, &slot, &pins, &length, &registrations))
		return -1;
	none = registrations ? new_ref(registrations) : PyTuple_New(0);
	rc = none ? operation_fill(self, what, owner, slot, pins, none, length) : -1;
	Py_XDECREF(none);
	return rc;
}

static PyObject *Operation_move(Operation *self, PyObject *state)
{
	int i;

	for (i = 0; i < STATES; i++)
		if (states[i] == state) {
			if (operation_move(self, i))
				return NULL;
			Py_RETURN_NONE;
		}
	PyErr_SetObject(PyExc_TypeError, state);
	return NULL;
}

static PyObject *Operation_get_state(Operation *self, void *unused)
{
	return new_ref(states[(int) self->state]);
}

static int Operation_set_state(Operation *self, PyObject *state, void *unused)
{
	int i;

	for (i = 0; i < STATES; i++)
		if (states[i] == state) {
			self->state = i;
			return 0;
		}
	raise_expected("a State of an operation", state);
	return -1;
}

static PyObject *Operation_finish(Operation *self, PyObject *args)
{
	PyObject *error = Py_None;

	if (!PyArg_ParseTuple(args, "|O", &error) || operation_complete(self, error == Py_None ? NULL : error))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *Operation_wake_waiter(Operation *self, PyObject *notify)
{
	if (notify != Py_None && wake(self, notify))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *Operation_release_registrations(Operation *self, PyObject *unused)
{
	if (operation_release_registrations(self))
		return NULL;
	Py_RETURN_NONE;
}

PyObject *operation_result(Operation *self)
{
	if (self->error == Py_None)
		return new_ref(self);
	if (PyExceptionInstance_Check(self->error))
		PyErr_SetObject((PyObject *) type_of(self->error), self->error);
	else
		raise_expected("an exception as the error of the operation", self->error);
	return NULL;
}

static PyObject *Operation_result(Operation *self, PyObject *unused)
{
	return operation_result(self);
}

/*
 * Not `pins` and `post`: until the operation is finished, the provider may use these buffers. For the collector they are
 * then in use from outside, and it clears none of them: it crashes if it clears a memoryview that has an export (CPython
 * gh-77894), at the exit of a process that sends, for example.
 */
int operation_traverse(Operation *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->what);
	Py_VISIT(self->owner);
	Py_VISIT(self->registrations);
	Py_VISIT(self->error);
	Py_VISIT(self->notify);
	Py_VISIT(self->orphaned);
	Py_VISIT(self->source);
	return 0;
}

int operation_clear(Operation *self)
{
	REPLACE(self->error, new_ref(Py_None));
	REPLACE(self->notify, new_ref(Py_None));
	REPLACE(self->orphaned, new_ref(Py_None));
	REPLACE(self->post, new_ref(Py_None));
	REPLACE(self->pins, new_ref(Py_None));
	return 0;
}

void operation_dealloc(Operation *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->what);
	Py_CLEAR(self->owner);
	Py_CLEAR(self->slot);
	Py_CLEAR(self->pins);
	Py_CLEAR(self->registrations);
	Py_CLEAR(self->error);
	Py_CLEAR(self->notify);
	Py_CLEAR(self->orphaned);
	Py_CLEAR(self->post);
	Py_CLEAR(self->source);
	free_object(self);
}

static PyMethodDef Operation_methods[] = {
	{"move", (PyCFunction) Operation_move, METH_O,
	 "Change state; an impossible move is a bug in aiofabric and raises."},
	{"finish", (PyCFunction) Operation_finish, METH_VARARGS,
	 "finish(error=None): set the operation's outcome: drop the pins, then wake the waiter."},
	{"wake_waiter", (PyCFunction) Operation_wake_waiter, METH_O, "Call `notify`, or wake it; None: do nothing."},
	{"release_registrations", (PyCFunction) Operation_release_registrations, METH_NOARGS,
	 "The provider does not use the operation any more: release the registrations."},
	{"result", (PyCFunction) Operation_result, METH_NOARGS, "The finished operation itself; or raises its error."},
	{NULL},
};

static PyGetSetDef Operation_getset[] = {
	{"state", (getter) Operation_get_state, (setter) Operation_set_state, "a `State`"},
	OBJECT_FIELD("owner", Operation, owner, NULL),
	OBJECT_FIELD("pins", Operation, pins, "keeps buffers exported"),
	OBJECT_FIELD("registrations", Operation, registrations, "the registrations of its descriptors and keys"),
	OBJECT_FIELD("error", Operation, error, NULL),
	OBJECT_FIELD("notify", Operation, notify, "called once, when the operation is finished; or a waiter"),
	OBJECT_FIELD("orphaned", Operation, orphaned, "called instead if the caller has left"),
	OBJECT_FIELD("post", Operation, post, "function and arguments, until the operation is finished"),
	OBJECT_FIELD("source", Operation, source, "the fi_addr of the sender, if it is read"),
	{NULL},
};

static PyMemberDef Operation_members[] = {
	{"what", T_OBJECT_EX, offsetof(Operation, what), READONLY, "the libfabric call, for error texts"},
	{"slot", T_OBJECT_EX, offsetof(Operation, slot), READONLY},
	{"length", T_LONGLONG, offsetof(Operation, length), 0,
	 "bytes: of a send the caller's, of a receive the provider's; tcp reports 0 for sends"},
	{"memory", T_ULONGLONG, offsetof(Operation, memory), 0,
	 "address of a receive into the caller's memory; 0: none"},
	{"room", T_LONGLONG, offsetof(Operation, room), 0, "bytes of that memory"},
	{"wanted_tag", T_ULONGLONG, offsetof(Operation, wanted_tag), READONLY,
	 "the tag of a receive that `SubmissionCore.receive` posted"},
	{"tagged", T_BOOL, offsetof(Operation, tagged), READONLY, "whether it has a tag"},
	{"unawaited", T_BOOL, offsetof(Operation, unawaited), READONLY, "whether no task waits for its completion"},
	{"flags", T_ULONGLONG, offsetof(Operation, flags)},
	{"data", T_ULONGLONG, offsetof(Operation, data)},
	{"tag", T_ULONGLONG, offsetof(Operation, tag)},
	{NULL},
};

static PyType_Slot Operation_slots[] = {
	{Py_tp_doc, "One transfer; see `aiofabric.cq.operation`.\n\n"
		    "Operation(what, owner, slot, pins, length, registrations=())"},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, Operation_init},
	{Py_tp_dealloc, operation_dealloc},
	{Py_tp_traverse, operation_traverse},
	{Py_tp_clear, operation_clear},
	{Py_tp_methods, Operation_methods},
	{Py_tp_getset, Operation_getset},
	{Py_tp_members, Operation_members},
	{0, NULL},
};

static PyType_Spec Operation_spec = {
	"aiofabric._core.Operation", sizeof(Operation), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, Operation_slots,
};

static PyMethodDef functions[] = {
	{"learn_states", learn_states, METH_VARARGS,
	 "learn_states(states, moves, impossible): the possible moves of operations; `impossible(what, old, new)`\n"
	 "raises."},
	{NULL},
};

int operation_is_received(const Operation *self)
{
	/*
	 * 1.17's shm matches messages that came before their receive by the mask of an earlier one
	 * (smr_match_tagged).
	 */
	return self->state == FINISHED && self->error == Py_None && self->length <= self->room &&
	       (!self->tagged || self->tag == self->wanted_tag);
}

int add_operation(PyObject *module)
{
	static const struct name names[] = {{&name_end_use, "end_use"}, {NULL}};

	if (intern(names) || PyModule_AddFunctions(module, functions))
		return -1;
	return add_type(module, &Operation_spec, NULL, &Operation_Type);
}
