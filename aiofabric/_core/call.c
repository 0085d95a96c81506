/*
 * Call: the return value of `send` and `recv`. It is a coroutine whose first step is in C, and mostly the only step.
 * If that step must wait, the Call awaits its other steps. As coroutines of Python, `send` and `recv` took 1,300 of
 * the 16,400 instructions that a request costs among a hundred connections, and one frame more for each waiting task.
 *
 * To asyncio, anyio and trio it is a coroutine (collections.abc.Coroutine): a task can be made of it.
 */
#include "call.h"
#include "awaitable.h"
#include "freelist.h"
#include "names.h"
#include "references.h"

static PyTypeObject *Call_Type;

static PyObject *name_close;
static Freelist freelist;

enum { CREATED, GOING, OVER };

PyObject *call_new(beginning *begin, const char *name, void *target, PyObject *first, PyObject *second)
{
	Call *self = freelist_take(&freelist, Call_Type, sizeof(*self));

	if (!self)
		return NULL;
	self->begin = begin;
	self->name = name;
	self->target = new_ref(target);
	self->first = new_ref(first);
	self->second = new_ref(second);
	return (PyObject *) self;
}

/* The call has ended: release its arguments, as a coroutine does when its frame is cleared. */
static void end(Call *self)
{
	self->phase = OVER;
	Py_CLEAR(self->target);
	Py_CLEAR(self->first);
	Py_CLEAR(self->second);
	Py_CLEAR(self->steps);
}

static PySendResult begin(Call *self, PyObject **result)
{
	int done;

	assert(self->phase == CREATED && self->running && !self->steps);
	self->phase = GOING;
	done = self->begin(self, result);
	return done > 0 ? PYGEN_RETURN : done < 0 ? PYGEN_ERROR : PYGEN_NEXT;
}

/* A call from within a running step fails and changes nothing: the step's objects are in use. */
static int refuses(const Call *self, int over)
{
	if (self->running)
		PyErr_SetString(PyExc_ValueError, "coroutine already executing");
	else if (over && self->phase == OVER)
		PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
	else
		return 0;
	return 1;
}

static PySendResult Call_step(Call *self, PyObject *value, PyObject **result)
{
	PySendResult how = PYGEN_NEXT;

	*result = NULL;
	if (refuses(self, 1))
		return PYGEN_ERROR;
	if (self->phase == CREATED && value != Py_None) {
		PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
		return PYGEN_ERROR;
	}
	self->running = 1;
	if (self->phase == CREATED)
		how = begin(self, result);
	if (how == PYGEN_NEXT)
		how = PyIter_Send(self->steps, value, result);
	self->running = 0;
	if (how == PYGEN_RETURN && self->silent)
		REPLACE(*result, new_ref(Py_None));
	if (how != PYGEN_NEXT)
		end(self);
	return how;
}

static PyObject *Call_await(Call *self)
{
	if (self->phase != GOING)
		return new_ref(self);
	PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
	return NULL;
}

static PyObject *Call_throw(Call *self, PyObject *args)
{
	PyObject *result;

	if (refuses(self, 1))
		return NULL;
	self->running = 1;
	result = self->steps ? awaitable_throw(self->steps, args) : awaitable_raise(args);
	self->running = 0;
	if (!result)
		end(self);
	return result;
}

static PyObject *close_steps(Call *self)
{
	PyObject *close, *closed;

	self->running = 1;
	close = self->steps ? PyObject_GetAttr(self->steps, name_close) : NULL;
	if (!close) /* a generator has `close`; an awaitable in C needs none */
		PyErr_Clear();
	closed = close ? PyObject_CallNoArgs(close) : new_ref(Py_None);
	Py_XDECREF(close);
	self->running = 0;
	end(self);
	return closed;
}

static PyObject *Call_close(Call *self, PyObject *unused)
{
	return refuses(self, 0) ? NULL : close_steps(self);
}

static PyObject *Call_get_name(Call *self, void *unused)
{
	return PyUnicode_FromString(strchr(self->name, '.') + 1);
}

static PyObject *Call_get_qualname(Call *self, void *unused)
{
	return PyUnicode_FromString(self->name);
}

static PyObject *Call_get_suspended(Call *self, void *unused)
{
	return PyBool_FromLong(self->phase == GOING && !self->running);
}

/*
 * There is no frame. `inspect.getcoroutinestate` takes None for closed, so before the first step the attribute is
 * missing.
 */
static PyObject *Call_get_frame(Call *self, void *unused)
{
	if (self->phase != CREATED)
		Py_RETURN_NONE;
	PyErr_SetString(PyExc_AttributeError, "a call has no frame");
	return NULL;
}

static int Call_traverse(Call *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->target);
	Py_VISIT(self->first);
	Py_VISIT(self->second);
	Py_VISIT(self->steps);
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

	if (self->phase == OVER)
		return;
	PyErr_Fetch(&type, &error, &traceback);
	if (self->phase == CREATED)
		rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%s' was never awaited", self->name);
	else
		rc = drop(close_steps(self));
	if (rc)
		PyErr_WriteUnraisable((PyObject *) Call_Type);
	PyErr_Restore(type, error, traceback);
}

static void Call_dealloc(Call *self)
{
	PyObject_GC_UnTrack(self);
	if (self->weak)
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
	{"cr_suspended", (getter) Call_get_suspended, NULL, "As of a coroutine."},
	{"cr_frame", (getter) Call_get_frame, NULL,
	 "As of a coroutine, but there is no frame: None once the call has begun."},
	{NULL},
};

static PyMemberDef Call_members[] = {
	{"cr_running", T_BOOL, offsetof(Call, running), READONLY, "As of a coroutine."},
	{"cr_await", T_OBJECT, offsetof(Call, steps), READONLY, "As of a coroutine: the awaited object, or None."},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(Call, weak), READONLY},
	{NULL},
};

static PyType_Slot Call_slots[] = {
	{Py_tp_doc, "A call of an endpoint's method: a coroutine, to be awaited once."},
	{Py_tp_dealloc, Call_dealloc},
	{Py_tp_traverse, Call_traverse},
	{Py_tp_iternext, awaitable_next},
	{Py_am_await, Call_await},
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
	static const struct name names[] = {{&name_close, "close"}, {NULL}};

	return intern(names) ? -1 : add_type(module, &Call_spec, NULL, &Call_Type);
}
