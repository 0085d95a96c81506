/*
 * Waker: lets the tasks of one asyncio loop go on that were answered; waiter.c has what each of them waits with.
 *
 * A future goes through the loop for each answer: of the 15,600 instructions that a request costs among a hundred
 * connections, 1,500 made it, 1,500 told it and 800 were the loop's handle.  Here a task waits for a future that is
 * never told and can be used again: what the task left with it is called as soon as the turn is over that answered, or,
 * for an answer from anywhere else, in one callback of the loop's for all of them.  To the task, to who cancels it and
 * to who looks at it, it is a future as any other, and it is pending as long as the task waits: anyio passes over tasks
 * whose future is done, and one whose every answer is there when it looks was never cancelled.
 *
 * trio has its own waiters, in cq/drivers.py.
 */
#include "wakeups.h"
#include "fifo.h"
#include "names.h"
#include "references.h"

PyTypeObject *Waker_Type;

static PyObject *name_blocking, *name_call_exception_handler, *name_call_soon, *name_callbacks, *name_create_future,
	*name_go_on, *name_remove_done_callback, *name_set_result;

static PyTypeObject *context_type, *c_future; /* contextvars.Context; the asyncio.Future that is C's, if there is one */
static PyObject *context_run;

/* All who were answered go on in a callback of the loop's. */
static int schedule(Waker *self)
{
	PyObject *callback;
	int rc;

	if (self->scheduled || self->held || !self->answered->count)
		return 0;
	callback = PyObject_GetAttr((PyObject *) self, name_go_on);
	if (!callback)
		return -1;
	rc = drop(PyObject_CallFunctionObjArgs(self->call_soon, callback, NULL));
	Py_DECREF(callback);
	self->scheduled = !rc;
	return rc;
}

/* What a callback raised: Ctrl-C and the like go on by themselves, as out of any callback of the loop's. */
static int tell_loop(Waker *self)
{
	PyObject *type, *error, *traceback, *context;
	int rc = -1;

	if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return -1;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	context = Py_BuildValue("{sssO}", "message", "aiofabric: a task could not go on", "exception", error);
	if (context)
		rc = drop(PyObject_CallMethodObjArgs(self->loop, name_call_exception_handler, context, NULL));
	Py_XDECREF(context);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

/* As an attribute that is looked up it was 180 of the 10,800 instructions of a request among a hundred connections. */
static int set_blocking(Waker *self, PyObject *future)
{
	if (self->set && Py_IS_TYPE(future, self->kind))
		return self->set(self->blocking, future, Py_True);
	return PyObject_SetAttr(future, name_blocking, Py_True);
}

PyObject *waker_acquire_future(Waker *self)
{
	PyObject *future = self->nspare ? self->spare[--self->nspare]
					: PyObject_CallMethodObjArgs(self->loop, name_create_future, NULL);

	if (future && set_blocking(self, future))
		Py_CLEAR(future);
	return future;
}

/*
 * Not if somebody else still knows it, and may cancel it.  Nor on 3.14 and later: there a future keeps who awaits it until
 * the task is told of that very future.
 */
static void release_future(Waker *self, PyObject *future)
{
	if (Py_Version < 0x030E0000 && (uint32_t) Py_REFCNT(future) == 1 && self->nspare < SPARE)
		self->spare[self->nspare++] = future; /* the only reference to it */
	else
		Py_DECREF(future);
}

/* Who left its callback with the future is called, but not told by the future. */
static int call_back(Waker *self, PyObject *future, PyObject *callback, PyObject *context)
{
	int rc;

	Py_INCREF(callback); /* the future may have no other reference to them */
	Py_INCREF(context);
	if (Py_IS_TYPE(future, self->kind))
		rc = drop(PyObject_CallFunctionObjArgs(self->remove, future, callback, NULL));
	else
		rc = drop(PyObject_CallMethodObjArgs(future, name_remove_done_callback, callback, NULL));
	if (!rc)
		rc = drop(PyObject_CallFunctionObjArgs(context_run, context, callback, self->done_future, NULL));
	Py_DECREF(callback);
	Py_DECREF(context);
	return rc;
}

/* What a future tells the collector. */
struct referents {
	PyTypeObject *kind;	/* of the callbacks that tasks leave */
	PyObject *callback, *context;
	int more;
};

static int note(PyObject *object, void *referents)
{
	struct referents *self = referents;

	if (Py_IS_TYPE(object, self->kind)) {
		self->more += self->callback != NULL;
		self->callback = object;
	} else if (Py_IS_TYPE(object, context_type)) {
		self->more += self->context != NULL;
		self->context = object;
	} else if (PyList_CheckExact(object)) { /* of callbacks behind the first */
		self->more++;
	}
	return 0;
}

/*
 * Whether a future of C's has one callback only, and it is such as tasks leave: these are the future's then.  To have them
 * told by `_callbacks`, in a list of tuples, was 750 of the 12,000 instructions that a request costs among a hundred
 * connections.
 */
static int only_callback(Waker *self, PyObject *future, struct referents *referents)
{
	*referents = (struct referents) {.kind = self->callback_kind};
	if (!self->traverse || !self->callback_kind || !Py_IS_TYPE(future, self->kind))
		return 0;
	self->traverse(future, note, referents);
	return referents->callback && referents->context && !referents->more;
}

static int call_pair(Waker *self, PyObject *future, PyObject *pair)
{
	PyObject *callback = PyTuple_GetItem(pair, 0), *context = callback ? PyTuple_GetItem(pair, 1) : NULL;

	if (!context)
		return -1;
	REPLACE(self->callback_kind, (PyTypeObject *) new_ref(type_of(callback)));
	return call_back(self, future, callback, context);
}

/* Tasks leave one.  The list may be a copy, or, of a future in Python, its own. */
static int call_all_back(Waker *self, PyObject *future, PyObject *callbacks)
{
	Py_ssize_t left = PyList_Size(callbacks);
	int rc = 0;

	for (; !rc && left > 0 && left <= PyList_Size(callbacks); left--) {
		PyObject *pair = new_ref(PyList_GetItem(callbacks, PyList_Size(callbacks) - left));

		rc = call_pair(self, future, pair);
		Py_DECREF(pair);
	}
	return rc;
}

/* 1: it can be used again; 0: the task is cancelled already. */
static int call_who_waits(Waker *self, PyObject *future)
{
	struct referents referents;
	PyObject *callbacks;
	int rc;

	if (only_callback(self, future, &referents))
		return call_back(self, future, referents.callback, referents.context) ? -1 : 1;
	callbacks = PyObject_GetAttr(future, name_callbacks);
	rc = !callbacks ? -1 : callbacks == Py_None ? 0 : call_all_back(self, future, callbacks) ? -1 : 1;
	Py_XDECREF(callbacks);
	return rc;
}

static int wake(Waker *self, Waiter *waiter)
{
	PyObject *future = waiter->future;
	int called;

	if (!future) /* it left */
		return 0;
	assert(waiter->waker == self && waiter->result);
	waiter->future = NULL;
	called = call_who_waits(self, future);
	if (called > 0)
		release_future(self, future);
	else
		Py_DECREF(future);
	return called < 0 ? tell_loop(self) : 0;
}

int waker_wake(Waker *self, Waiter *waiter)
{
	return fifo_append(self->answered, (PyObject *) waiter) || schedule(self) ? -1 : 0;
}

/* Those who are answered meanwhile go on later: others want the loop as well. */
static int go_on(Waker *self)
{
	Py_ssize_t count = self->answered->count;
	int rc = 0;

	for (; !rc && count > 0 && self->answered->count; count--) { /* a loop inside the loop may have been here */
		PyObject *waiter = fifo_popleft(self->answered);

		rc = waiter ? wake(self, (Waiter *) waiter) : -1;
		Py_XDECREF(waiter);
	}
	return rc;
}

static int schedule_after(Waker *self)
{
	PyObject *type, *error, *traceback;
	int rc;

	PyErr_Fetch(&type, &error, &traceback);
	rc = schedule(self);
	if (type) { /* tells more */
		PyErr_Clear();
		PyErr_Restore(type, error, traceback);
	}
	return rc || type ? -1 : 0;
}

void waker_hold(Waker *self)
{
	if (self)
		self->held++;
}

int waker_resume(Waker *self)
{
	if (!self)
		return PyErr_Occurred() ? -1 : 0;
	assert(self->held > 0);
	if (!--self->held && !PyErr_Occurred())
		go_on(self);
	return schedule_after(self);
}

int waker_defer(Waker *self)
{
	if (self)
		self->held--;
	return self ? schedule_after(self) : 0;
}

static PyObject *Waker_go_on(Waker *self, PyObject *unused)
{
	self->scheduled = 0;
	self->going = 1;
	go_on(self);
	self->going = 0;
	if (schedule_after(self))
		return NULL;
	Py_RETURN_NONE;
}

Waker *waker_of(PyObject *driver)
{
	PyObject *waker = PyObject_GetAttrString(driver, "waker");

	if (waker && waker != Py_None && !Py_IS_TYPE(waker, Waker_Type)) {
		PyErr_SetString(PyExc_TypeError, "a driver's waker is a Waker, or None");
		Py_CLEAR(waker);
	}
	return (Waker *) waker;
}

/* What asyncio's future in C is asked by something shorter than a call. */
static int know_future(Waker *self)
{
	self->traverse = PyType_GetSlot(c_future, Py_tp_traverse);
	REPLACE(self->blocking, PyObject_GetAttr((PyObject *) c_future, name_blocking));
	if (!self->blocking)
		return -1;
	self->set = PyType_GetSlot(type_of(self->blocking), Py_tp_descr_set);
	return 0;
}

static int Waker_init(Waker *self, PyObject *args)
{
	PyObject *loop;

	if (!PyArg_ParseTuple(args, "O", &loop) || refuse_second_init(self->answered))
		return -1;
	self->answered = (Fifo *) PyObject_CallNoArgs((PyObject *) Fifo_Type);
	if (!self->answered)
		return -1;
	REPLACE(self->loop, new_ref(loop));
	REPLACE(self->call_soon, PyObject_GetAttr(loop, name_call_soon));
	if (!self->call_soon)
		return -1;
	REPLACE(self->done_future, PyObject_CallMethodObjArgs(loop, name_create_future, NULL));
	if (!self->done_future)
		return -1;
	REPLACE(self->kind, (PyTypeObject *) new_ref(type_of(self->done_future)));
	REPLACE(self->remove, PyObject_GetAttr((PyObject *) self->kind, name_remove_done_callback));
	if (!self->remove)
		return -1;
	if (self->kind == c_future && know_future(self))
		return -1;
	return drop(PyObject_CallMethodObjArgs(self->done_future, name_set_result, Py_None, NULL));
}

static int Waker_traverse(Waker *self, visitproc visit, void *arg)
{
	int i;

	Py_VISIT(type_of(self));
	Py_VISIT(self->loop);
	Py_VISIT(self->call_soon);
	Py_VISIT(self->answered);
	Py_VISIT(self->done_future);
	Py_VISIT(self->kind);
	Py_VISIT(self->remove);
	Py_VISIT(self->callback_kind);
	Py_VISIT(self->blocking);
	for (i = 0; i < self->nspare; i++)
		Py_VISIT(self->spare[i]);
	return 0;
}

/* As the collector finds it: with its loop, and the tasks of that. */
static int Waker_clear(Waker *self)
{
	REPLACE(self->loop, new_ref(Py_None));
	REPLACE(self->call_soon, new_ref(Py_None));
	while (self->nspare)
		Py_DECREF(self->spare[--self->nspare]);
	return 0;
}

static void Waker_dealloc(Waker *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->loop);
	Py_CLEAR(self->call_soon);
	Py_CLEAR(self->answered);
	Py_CLEAR(self->done_future);
	Py_CLEAR(self->kind);
	Py_CLEAR(self->remove);
	Py_CLEAR(self->callback_kind);
	Py_CLEAR(self->blocking);
	while (self->nspare)
		Py_DECREF(self->spare[--self->nspare]);
	free_object(self);
}

static PyMethodDef Waker_methods[] = {
	{"_go_on", (PyCFunction) Waker_go_on, METH_NOARGS, "What the loop calls: all who were answered go on."},
	{NULL},
};

static PyType_Slot Waker_slots[] = {
	{Py_tp_doc, "Waker(loop): lets the tasks of one asyncio loop go on that were answered here."},
	{Py_tp_init, Waker_init},
	{Py_tp_dealloc, Waker_dealloc},
	{Py_tp_traverse, Waker_traverse},
	{Py_tp_clear, Waker_clear},
	{Py_tp_methods, Waker_methods},
	{0, NULL},
};

static PyType_Spec Waker_spec = {
	"aiofabric._core.Waker", sizeof(Waker), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Waker_slots,
};

static int import_types(void)
{
	context_type = (PyTypeObject *) import_from("contextvars", "Context");
	context_run = context_type ? PyObject_GetAttrString((PyObject *) context_type, "run") : NULL;
	if (!context_run || drop(PyImport_ImportModule("asyncio"))) /* which would do without the other if that came first */
		return -1;
	c_future = (PyTypeObject *) import_from("_asyncio", "Future");
	if (!c_future)
		PyErr_Clear(); /* an interpreter without it */
	return 0;
}

int add_wakeups(PyObject *module)
{
	static const struct name names[] = {
		{&name_blocking, "_asyncio_future_blocking"}, {&name_call_exception_handler, "call_exception_handler"},
		{&name_call_soon, "call_soon"},
		{&name_callbacks, "_callbacks"}, {&name_create_future, "create_future"}, {&name_go_on, "_go_on"},
		{&name_remove_done_callback, "remove_done_callback"}, {&name_set_result, "set_result"}, {NULL},
	};

	return intern(names) || import_types() ? -1 : add_type(module, &Waker_spec, NULL, &Waker_Type);
}
