/*
 * Call: the return value of `send` and `recv`. It is a coroutine whose first step is in C, and mostly the only step.
 * If that step must wait, the Call awaits its other steps. While `send` and `recv` were coroutines of Python, they took
 * 1,300 of the 16,400 instructions of a request among a hundred connections, and each waiting task needed one more
 * frame.
 *
 * To asyncio, anyio and trio it is a coroutine (collections.abc.Coroutine): a task can be made of it.
 */
#include "base/call.h"
#include "base/awaitable.h"
#include "base/coroutine.h"
#include "base/freelist.h"
#include "base/names.h"
#include "base/references.h"

static PyTypeObject *Call_Type;

static Freelist freelist;

PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second)
{
	Call *self = freelist_take(&freelist, Call_Type, sizeof(*self));

	if (!self)
		return NULL;
	self->begin = begin;
	self->name = name;
	self->target = new_ref(target);
	self->first = Py_XNewRef(first);
	self->second = new_ref(second);
	return (PyObject *) self;
}

/* The call has ended: release its arguments, as a coroutine does when its frame is cleared. */
static void end(Call *self)
{
	self->base.phase = COROUTINE_OVER;
	Py_CLEAR(self->target);
	Py_CLEAR(self->first);
	Py_CLEAR(self->second);
	Py_CLEAR(self->base.steps);
}

static PySendResult begin(Call *self, PyObject **result)
{
	int done;

	assert(self->base.phase == COROUTINE_CREATED && self->base.running && !self->base.steps);
	self->base.phase = COROUTINE_GOING;
	done = self->begin(self, result);
	return done > 0 ? PYGEN_RETURN : done < 0 ? PYGEN_ERROR : PYGEN_NEXT;
}

static PySendResult Call_step(Call *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_NEXT;

	*result = NULL;
	if (coroutine_refuses_value(&self->base, value))
		return PYGEN_ERROR;
	self->base.running = 1;
	if (self->base.phase == COROUTINE_CREATED)
		how = begin(self, result);
	if (how == PYGEN_NEXT)
		how = PyIter_Send(self->base.steps, value, result);
	self->base.running = 0;
	if (how == PYGEN_RETURN && self->silent)
		REPLACE(*result, new_ref(Py_None));
	if (how != PYGEN_NEXT)
		end(self);
	return how;
}

static PyObject *Call_throw(Call *self, PyObject *args)
{
	PyObject *result;

	if (coroutine_refuses(&self->base, 1))
		return NULL;
	self->base.running = 1;
	result = self->base.steps ? awaitable_throw(self->base.steps, args) : awaitable_raise(args);
	self->base.running = 0;
	if (!result)
		end(self);
	return result;
}

static int close_steps(Call *self)
{
	int rc;

	self->base.running = 1;
	rc = coroutine_close_steps(&self->base);
	self->base.running = 0;
	end(self);
	return rc;
}

static PyObject *Call_close(Call *self, PyObject *unused)
{
	return coroutine_refuses(&self->base, 0) ? NULL : none_if(close_steps(self));
}

static PyObject *Call_get_name(Call *self, void *unused)
{
	return PyUnicode_FromString(strchr(self->name, '.') + 1);
}

static PyObject *Call_get_qualname(Call *self, void *unused)
{
	return PyUnicode_FromString(self->name);
}

/* A call has no frame of its own. */
static PyObject *Call_get_frame(Call *self, void *unused)
{
	return self->base.phase == COROUTINE_CREATED ? coroutine_first_frame() : new_ref(Py_None);
}

static int Call_traverse(Call *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->target);
	Py_VISIT(self->first);
	Py_VISIT(self->second);
	Py_VISIT(self->base.steps);
	return 0;
}

/*
 * As for any coroutine: warn about a message that was never sent, and stop waiting at once. Other code, such as a
 * pass that has the result already, may still refer to the object that the call awaits.
 */
static void abandon(Call *self)
{
	PyObject *type, *error, *traceback;
	int rc;

	if (self->base.phase == COROUTINE_OVER)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	if (self->base.phase == COROUTINE_CREATED)
		rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%s' was never awaited", self->name);
	else
		rc = close_steps(self);
	if (rc)
		PyErr_WriteUnraisable((PyObject *) Call_Type);
	PyErr_Restore(type, error, traceback);
}

static void Call_dealloc(Call *self)
{
	PyObject_GC_UnTrack(self);
	if (self->base.weak)
		PyObject_ClearWeakRefs((PyObject *) self);
	abandon(self);
	end(self);
	freelist_give(&freelist, self);
}

static PyMethodDef Call_methods[] = {
	{"send", awaitable_send, METH_O, "As of a coroutine."},
	{"throw", (PyCFunction) Call_throw, METH_VARARGS, "As of a coroutine."},
	{"close", (PyCFunction) Call_close, METH_NOARGS, "As of a coroutine."},
	{NULL},
};

static PyGetSetDef Call_getset[] = {
	{"__name__", (getter) Call_get_name, NULL, "The name of the called method."},
	{"__qualname__", (getter) Call_get_qualname, NULL, "The name of the called method, with its class."},
	{"cr_suspended", (getter) coroutine_get_suspended, NULL, "As of a coroutine."},
	{"cr_frame", (getter) Call_get_frame, NULL,
	 "As of a coroutine, but a call has no frame of its own: None once it has begun."},
	{NULL},
};

static PyMemberDef Call_members[] = {
	COROUTINE_MEMBERS,
	{NULL},
};

static PyType_Slot Call_slots[] = {
	{Py_tp_doc, "A call of an endpoint's method: a coroutine, to be awaited once."},
	{Py_tp_dealloc, Call_dealloc},
	{Py_tp_traverse, Call_traverse},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, coroutine_await},
	{Py_am_send, Call_step},
	{Py_tp_methods, Call_methods},
	{Py_tp_getset, Call_getset},
	{Py_tp_members, Call_members},
	{0, NULL},
};

static PyType_Spec Call_spec = {
	"aiofabric._core.Call", sizeof(Call), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, Call_slots,
};

int add_call(PyObject *module)
{
	return add_type(module, &Call_spec, NULL, &Call_Type);
}
