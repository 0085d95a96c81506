/*
 * Waker: resumes the tasks of one asyncio loop whose results have come. waiter.c has the object that each task
 * awaits.
 *
 * A future passes through the loop for each result. Of the 15,600 instructions that a request costs among a hundred
 * connections, making the future took 1,500, setting its result 1,500 and the loop's handle 800. Here a task awaits a
 * future that never gets a result and can be used again. The task leaves a callback with the future. The core calls
 * it at the end of the pass that had the result. For results that arrive outside a pass, one callback of the loop
 * resumes all tasks.
 *
 * To the task, to code that cancels it and to code that inspects it, this is an ordinary future. It is pending as
 * long as the task waits. This matters for anyio, which skips tasks whose future is done: otherwise, anyio could never
 * cancel a task whose results are always available when anyio checks.
 *
 * trio has its own waiters, in cq/loops/drivers.py.
 */
#include "queue/wakeups.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"

PyTypeObject *Waker_Type;

static PyObject *name_blocking, *name_call_exception_handler, *name_call_soon, *name_callbacks, *name_create_future,
	*name_resume_tasks, *name_remove_done_callback, *name_set_result;

static PyTypeObject *context_type, *c_future; /* contextvars.Context; asyncio.Future in C, or NULL */
static PyObject *context_run, *get_running_loop;

/* One callback of the loop resumes all tasks whose results have come. */
static int schedule(Waker *self)
{
	PyObject *callback;
	int rc;

	if (self->scheduled || self->passes || !self->woken->count)
		return 0;
	callback = PyObject_GetAttr((PyObject *) self, name_resume_tasks);
	if (!callback)
		return -1;
	rc = call_soon_despite_interrupt(self->call_soon, callback);
	Py_DECREF(callback);
	self->scheduled = !rc;
	return rc;
}

/* Report an exception that a callback raised. Ctrl-C and SystemExit propagate, as from any callback of the loop. */
static int report_to_loop(Waker *self)
{
	PyObject *type, *error, *traceback, *context;
	int rc = -1;

	if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return -1;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (error && traceback)
		PyException_SetTraceback(error, traceback);
	context = Py_BuildValue("{sssO}", "message", "aiofabric: a task could not be resumed", "exception", error);
	if (context)
		rc = drop(PyObject_CallMethodObjArgs(self->loop, name_call_exception_handler, context, NULL));
	Py_XDECREF(context);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

/* An attribute lookup took 180 of the 10,800 instructions of a request among a hundred connections. */
static int set_blocking(Waker *self, PyObject *future)
{
	if (self->set_attribute && Py_IS_TYPE(future, self->future_type))
		return self->set_attribute(self->blocking_descriptor, future, Py_True);
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
 * Keep the future only if no other code refers to it and may cancel it. Python 3.14 and later never keep one: there a
 * future refers to its awaiting task until that very future wakes the task.
 */
static void release_future(Waker *self, PyObject *future)
{
	if (Py_Version < 0x030E0000 && (uint32_t) Py_REFCNT(future) == 1 && self->nspare < SPARE)
		self->spare[self->nspare++] = future; /* the only reference to it */
	else
		Py_DECREF(future);
}

/* Call the callback that a task left with the future, without setting a result of the future. */
static int call_back(Waker *self, PyObject *future, PyObject *callback, PyObject *context)
{
	int rc;

	Py_INCREF(callback); /* the future may hold the only reference to them */
	Py_INCREF(context);
	if (Py_IS_TYPE(future, self->future_type))
		rc = drop(PyObject_CallFunctionObjArgs(self->remove_done_callback, future, callback, NULL));
	else
		rc = drop(PyObject_CallMethodObjArgs(future, name_remove_done_callback, callback, NULL));
	if (!rc)
		rc = drop(PyObject_CallFunctionObjArgs(context_run, context, callback, self->done_future, NULL));
	Py_DECREF(callback);
	Py_DECREF(context);
	return rc;
}

/* The objects that a future reports to the collector. */
struct referents {
	PyTypeObject *callback_type;	/* of the callbacks that tasks leave */
	PyObject *callback, *context;
	int more;
};

static int note(PyObject *object, void *referents)
{
	struct referents *self = referents;

	if (Py_IS_TYPE(object, self->callback_type)) {
		self->more += self->callback != NULL;
		self->callback = object;
	} else if (Py_IS_TYPE(object, context_type)) {
		self->more += self->context != NULL;
		self->context = object;
	} else if (PyList_CheckExact(object)) { /* a list of further callbacks */
		self->more++;
	}
	return 0;
}

/*
 * Whether a C future has exactly one callback, of the kind that tasks leave. If so, `referents` holds it. Reading it
 * from `_callbacks`, a list of tuples, took 750 of the 12,000 instructions that a request costs among a hundred
 * connections.
 */
static int only_callback(Waker *self, PyObject *future, struct referents *referents)
{
	*referents = (struct referents) {.callback_type = self->callback_type};
	if (!self->traverse || !self->callback_type || !Py_IS_TYPE(future, self->future_type))
		return 0;
	self->traverse(future, note, referents);
	return referents->callback && referents->context && !referents->more;
}

static int call_pair(Waker *self, PyObject *future, PyObject *pair)
{
	PyObject *callback = PyTuple_GetItem(pair, 0), *context = callback ? PyTuple_GetItem(pair, 1) : NULL;

	if (!context)
		return -1;
	REPLACE(self->callback_type, (PyTypeObject *) new_ref(type_of(callback)));
	return call_back(self, future, callback, context);
}

/* A task leaves one callback. The list may be a copy; a future in Python returns its own list. */
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

/* 1: the future can be used again; 0: its task is cancelled already; -1: an exception. */
static int call_waiting_task(Waker *self, PyObject *future)
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

	if (!future) /* the task has left */
		return 0;
	assert(waiter->waker == self && waiter->result);
	waiter->future = NULL;
	called = call_waiting_task(self, future);
	if (called > 0)
		release_future(self, future);
	else
		Py_DECREF(future);
	return called < 0 ? report_to_loop(self) : 0;
}

int waker_call(Waker *self, PyObject *function)
{
	return fifo_append(self->woken, function) || schedule(self) ? -1 : 0;
}

int waker_wake(Waker *self, Waiter *waiter)
{
	return waker_call(self, (PyObject *) waiter);
}

static int wake_or_call(Waker *self, PyObject *item)
{
	if (!PyCallable_Check(item))
		return wake(self, (Waiter *) item);
	return drop(PyObject_CallNoArgs(item)) ? report_to_loop(self) : 0;
}

/*
 * Tasks that get their results during this call resume in a later callback, because other callbacks need the loop, too.
 * After a millisecond, the remaining tasks also resume later: without this limit, 64 handlers that compute for 1 ms
 * each made timers 200 ms late.
 */
#define LONGEST_RUN_NS 1000000

static int resume_tasks(Waker *self)
{
	Py_ssize_t count = self->woken->count;
	long long begun = count > 1 ? now_ns() : 0;
	int rc = 0;

	for (; !rc && count > 0 && self->woken->count; count--) { /* a nested loop may have taken some */
		PyObject *item = fifo_popleft(self->woken);

		rc = item ? wake_or_call(self, item) : -1;
		Py_XDECREF(item);
		self->overdue = count > 1 && now_ns() - begun > self->longest_run;
		if (self->overdue)
			break;
	}
	return rc;
}

static int schedule_after(Waker *self)
{
	struct first_exception first = NO_EXCEPTION;

	if (PyErr_Occurred())
		exception_keep(&first, self);
	if (schedule(self))
		exception_keep(&first, self);
	return exception_raise(&first);
}

void waker_enter_pass(Waker *self)
{
	if (self)
		self->passes++;
}

/*
 * Whether tasks can resume here. From Python 3.14 on, a task of a loop that does not run raises before its step, and
 * would never get its result. A pass that Python code calls outside of the loop leaves the tasks to the loop there.
 */
static int tasks_can_resume(const Waker *self)
{
	PyObject *running;

	if (Py_Version < 0x030E0000)
		return 1;
	running = PyObject_CallNoArgs(get_running_loop);
	if (!running)
		PyErr_Clear();
	Py_XDECREF(running);
	return running && running == self->loop;
}

int waker_resume(Waker *self)
{
	if (!self)
		return PyErr_Occurred() ? -1 : 0;
	assert(self->passes > 0);
	if (!--self->passes && !self->overdue && !PyErr_Occurred() && tasks_can_resume(self))
		resume_tasks(self);
	return schedule_after(self);
}

int waker_defer(Waker *self)
{
	if (self)
		self->passes--;
	return self ? schedule_after(self) : 0;
}

static PyObject *Waker_resume_tasks(Waker *self, PyObject *unused)
{
	self->scheduled = self->overdue = 0;
	self->resuming = 1;
	resume_tasks(self);
	self->resuming = 0;
	if (schedule_after(self))
		return NULL;
	Py_RETURN_NONE;
}

Waker *waker_of(PyObject *driver)
{
	PyObject *waker = PyObject_GetAttrString(driver, "waker");

	if (waker && waker != Py_None && !Py_IS_TYPE(waker, Waker_Type)) {
		raise_expected("a Waker or None as the waker of a driver", waker);
		Py_CLEAR(waker);
	}
	return (Waker *) waker;
}

/* Shortcuts to attributes of asyncio's C future: they are faster than calls. */
static int know_future(Waker *self)
{
	self->traverse = PyType_GetSlot(c_future, Py_tp_traverse);
	REPLACE(self->blocking_descriptor, PyObject_GetAttr((PyObject *) c_future, name_blocking));
	if (!self->blocking_descriptor)
		return -1;
	self->set_attribute = PyType_GetSlot(type_of(self->blocking_descriptor), Py_tp_descr_set);
	return 0;
}

static int Waker_init(Waker *self, PyObject *args)
{
	PyObject *loop;

	if (!PyArg_ParseTuple(args, "O", &loop) || refuse_second_init(self->woken))
		return -1;
	self->woken = (Fifo *) PyObject_CallNoArgs((PyObject *) Fifo_Type);
	if (!self->woken)
		return -1;
	self->longest_run = LONGEST_RUN_NS;
	REPLACE(self->loop, new_ref(loop));
	REPLACE(self->call_soon, PyObject_GetAttr(loop, name_call_soon));
	if (!self->call_soon)
		return -1;
	REPLACE(self->done_future, PyObject_CallMethodObjArgs(loop, name_create_future, NULL));
	if (!self->done_future)
		return -1;
	REPLACE(self->future_type, (PyTypeObject *) new_ref(type_of(self->done_future)));
	REPLACE(self->remove_done_callback, PyObject_GetAttr((PyObject *) self->future_type, name_remove_done_callback));
	if (!self->remove_done_callback)
		return -1;
	if (self->future_type == c_future && know_future(self))
		return -1;
	return drop(PyObject_CallMethodObjArgs(self->done_future, name_set_result, Py_None, NULL));
}

static int Waker_traverse(Waker *self, visitproc visit, void *arg)
{
	int i;

	Py_VISIT(type_of(self));
	Py_VISIT(self->loop);
	Py_VISIT(self->call_soon);
	Py_VISIT(self->woken);
	Py_VISIT(self->done_future);
	Py_VISIT(self->future_type);
	Py_VISIT(self->remove_done_callback);
	Py_VISIT(self->callback_type);
	Py_VISIT(self->blocking_descriptor);
	for (i = 0; i < self->nspare; i++)
		Py_VISIT(self->spare[i]);
	return 0;
}

/* The collector calls this when the loop and its tasks are garbage, too. */
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
	Py_CLEAR(self->woken);
	Py_CLEAR(self->done_future);
	Py_CLEAR(self->future_type);
	Py_CLEAR(self->remove_done_callback);
	Py_CLEAR(self->callback_type);
	Py_CLEAR(self->blocking_descriptor);
	while (self->nspare)
		Py_DECREF(self->spare[--self->nspare]);
	free_object(self);
}

static PyMethodDef Waker_methods[] = {
	{"_resume_tasks", (PyCFunction) Waker_resume_tasks, METH_NOARGS,
	 "Called by the loop: resumes all tasks whose results have come."},
	{NULL},
};

static PyMemberDef Waker_members[] = {
	{"longest_run", T_LONGLONG, offsetof(Waker, longest_run), 0,
	 "ns for which one callback may resume tasks; then the loop iterates"},
	{NULL},
};

static PyType_Slot Waker_slots[] = {
	{Py_tp_doc, "Waker(loop): resumes the tasks of one asyncio loop whose results have come."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, Waker_init},
	{Py_tp_dealloc, Waker_dealloc},
	{Py_tp_traverse, Waker_traverse},
	{Py_tp_clear, Waker_clear},
	{Py_tp_methods, Waker_methods},
	{Py_tp_members, Waker_members},
	{0, NULL},
};

static PyType_Spec Waker_spec = {
	"aiofabric._core.Waker", sizeof(Waker), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Waker_slots,
};

static int import_types(void)
{
	context_type = (PyTypeObject *) import_from("contextvars", "Context");
	context_run = context_type ? PyObject_GetAttrString((PyObject *) context_type, "run") : NULL;
	if (!context_run || drop(PyImport_ImportModule("asyncio"))) /* before _asyncio, or asyncio does not use it */
		return -1;
	get_running_loop = import_from("asyncio", "_get_running_loop");
	if (!get_running_loop)
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
		{&name_callbacks, "_callbacks"}, {&name_create_future, "create_future"}, {&name_resume_tasks, "_resume_tasks"},
		{&name_remove_done_callback, "remove_done_callback"}, {&name_set_result, "set_result"}, {NULL},
	};

	return intern(names) || import_types() ? -1 : add_type(module, &Waker_spec, NULL, &Waker_Type);
}
