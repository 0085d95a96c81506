/*
 * TaskSet: starts tasks of asyncio, keeps them while they run, and calls a function at the end of each. Rare ends, with
 * an exception or with a task that waits for the last one, are handled in Python: rpc/runtime/tasks.py.
 *
 * The loop takes the first step of a task in its next iteration, and calls the done callback in one after that. Here
 * the Waker takes the first step, at the end of the pass that started the task, and a task that has ended then needs no
 * callback. So a server can poll for the next request instead of running another loop iteration: see progress.c.
 */
#include "rpc/task_set.h"
#include "base/exceptions.h"
#include "base/names.h"
#include "base/references.h"
#include "queue/wakeups.h"

struct TaskSet {
	PyObject_HEAD
	PyObject *loop;
	PyObject *create_task;	/* of the loop */
	Waker *waker;		/* takes the first steps; NULL: the loop does */
	PyObject *running;	/* dict: the function of each task, or None */
	PyObject *idle;		/* list of functions to call when no task runs */
};

/* Stands in for the loop while a task is made: it gets the task's first step. Calling it takes that step. */
typedef struct {
	PyObject_HEAD
	TaskSet *set;
	PyObject *task, *step, *context;
	char set_aside;		/* the task could not be scheduled, and takes no step */
} FirstStep;

PyTypeObject *TaskSet_Type;

static PyTypeObject *FirstStep_Type;
static PyObject *task_type, *future_init, *context_run;
static PyObject *name_add_done_callback, *name_cancel, *name_cancelled, *name_context, *name_done, *name_ended, *name_exception,
	*name_get_task_factory, *name_is_done, *name_log_destroy_pending, *name_loop, *name_name;

static int ready(const TaskSet *self)
{
	if (self->running)
		return 1;
	PyErr_SetString(PyExc_RuntimeError, "the TaskSet was not initialised");
	return 0;
}

/* The keyword arguments of a task; NULL with an exception. */
static PyObject *options(PyObject *loop, PyObject *context, PyObject *name)
{
	PyObject *options = PyDict_New();

	if (options && ((loop && PyDict_SetItem(options, name_loop, loop)) ||
			(context != Py_None && PyDict_SetItem(options, name_context, context)) ||
			(name != Py_None && PyDict_SetItem(options, name_name, name))))
		Py_CLEAR(options);
	return options;
}

static PyObject *call_with(PyObject *function, PyObject *argument, PyObject *kwargs)
{
	PyObject *args = kwargs ? PyTuple_Pack(1, argument) : NULL;
	PyObject *result = args ? PyObject_Call(function, args, kwargs) : NULL;

	Py_XDECREF(args);
	Py_XDECREF(kwargs);
	return result;
}

/* -- the first step */

static FirstStep *first_step_new(TaskSet *set)
{
	allocfunc alloc = PyType_GetSlot(FirstStep_Type, Py_tp_alloc);
	FirstStep *self = (FirstStep *) alloc(FirstStep_Type, 0);

	if (self)
		self->set = (TaskSet *) new_ref(set);
	return self;
}

static PyObject *FirstStep_call_soon(FirstStep *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"callback", "context", NULL};
	PyObject *step, *context = NULL;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O", names, &step, &context))
		return NULL;
	REPLACE(self->step, new_ref(step));
	REPLACE(self->context, context ? new_ref(context) : NULL);
	Py_RETURN_NONE;
}

static PyObject *FirstStep_get_debug(FirstStep *self, PyObject *unused)
{
	Py_RETURN_FALSE; /* the loop itself is asked when the task is given to it */
}

static int await_end(TaskSet *set, PyObject *task)
{
	PyObject *done = PyObject_GetAttr((PyObject *) set, name_done);
	int rc = done ? drop(PyObject_CallMethodObjArgs(task, name_add_done_callback, done, NULL)) : -1;

	Py_XDECREF(done);
	return rc;
}

static PyObject *TaskSet_done(TaskSet *self, PyObject *task);

static PyObject *FirstStep_call(FirstStep *self, PyObject *args, PyObject *kwargs)
{
	PyObject *step = self->step, *context = self->context;
	int done;

	if (self->set_aside)
		Py_RETURN_NONE;
	if (!step || !context || !self->task) {
		PyErr_SetString(PyExc_RuntimeError, "expected a first step that was not taken yet, got one that was");
		return NULL;
	}
	self->step = self->context = NULL;
	done = drop(PyObject_CallFunctionObjArgs(context_run, context, step, NULL));
	Py_DECREF(step);
	Py_DECREF(context);
	if (done) { /* Ctrl-C, which the loop gets; the task has ended */
		PyObject *type, *error, *traceback;

		PyErr_Fetch(&type, &error, &traceback);
		if (await_end(self->set, self->task))
			PyErr_Clear();
		PyErr_Restore(type, error, traceback);
		return NULL;
	}
	done = truth_of(PyObject_CallMethodObjArgs(self->task, name_is_done, NULL));
	if (done > 0)
		self->set->waker->functions_finished++;
	return done < 0 ? NULL : done ? TaskSet_done(self->set, self->task) : none_if(await_end(self->set, self->task));
}

/* -- starting */

/* Whether the Waker can take the first step: a task factory would not know of it. 1, 0, or -1 with an exception. */
static int takes_first_steps(const TaskSet *self)
{
	PyObject *factory = self->waker ? PyObject_CallMethodObjArgs(self->loop, name_get_task_factory, NULL) : new_ref(Py_False);
	int none = factory == Py_None;

	Py_XDECREF(factory);
	return factory ? none : -1;
}

/*
 * A task was made, but not scheduled: its coroutine does not run, and its end calls nothing, because the caller gets the
 * exception. That stays set.
 */
static void set_aside(TaskSet *self, PyObject *task)
{
	PyObject *type, *error, *traceback;

	PyErr_Fetch(&type, &error, &traceback);
	if (PyDict_DelItem(self->running, task))
		PyErr_Clear(); /* it is not there yet */
	if (drop(PyObject_CallMethodObjArgs(task, name_cancel, NULL))) /* the loop may have its first step */
		PyErr_WriteUnraisable(task);
	if (PyObject_SetAttr(task, name_log_destroy_pending, Py_False))
		PyErr_Clear(); /* not asyncio's own */
	PyErr_Restore(type, error, traceback);
}

/* A task of the loop whose first step the Waker takes. `Future.__init__` gives the task to its loop. */
static PyObject *start_here(TaskSet *self, PyObject *coroutine, PyObject *context, PyObject *on_end, PyObject *name)
{
	FirstStep *first = first_step_new(self);
	PyObject *task = first ? call_with(task_type, coroutine, options((PyObject *) first, context, name)) : NULL;

	if (task && (drop(call_with(future_init, task, options(self->loop, Py_None, Py_None))) ||
		     PyDict_SetItem(self->running, task, on_end)))
		Py_CLEAR(task);
	if (task) {
		first->task = new_ref(task);
		if (waker_call(self->waker, (PyObject *) first)) {
			first->set_aside = 1; /* the Waker may have it */
			set_aside(self, task);
			Py_CLEAR(task);
		}
	}
	Py_XDECREF((PyObject *) first);
	return task;
}

static PyObject *start_in_loop(TaskSet *self, PyObject *coroutine, PyObject *context, PyObject *on_end, PyObject *name)
{
	PyObject *task = call_with(self->create_task, coroutine, options(NULL, context, name));

	if (task && (PyDict_SetItem(self->running, task, on_end) || await_end(self, task))) {
		set_aside(self, task);
		Py_CLEAR(task);
	}
	return task;
}

PyObject *task_set_start(TaskSet *self, PyObject *coroutine, PyObject *context, PyObject *on_end, PyObject *name)
{
	int here = ready(self) ? takes_first_steps(self) : -1;

	if (here < 0)
		return NULL;
	return (here ? start_here : start_in_loop)(self, coroutine, context, on_end, name);
}

static PyObject *TaskSet_start(TaskSet *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"coroutine", "context", "on_end", "name", NULL};
	PyObject *coroutine, *context = Py_None, *on_end = Py_None, *name = Py_None;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO", names, &coroutine, &context, &on_end, &name))
		return NULL;
	return task_set_start(self, coroutine, context, on_end, name);
}

/* -- the end */

/* The exception of a task that has ended, or None; NULL with an exception. */
static PyObject *error_of(PyObject *task)
{
	int cancelled = truth_of(PyObject_CallMethodObjArgs(task, name_cancelled, NULL));

	if (cancelled)
		return cancelled < 0 ? NULL : new_ref(Py_None);
	return PyObject_CallMethodObjArgs(task, name_exception, NULL);
}

/* The usual end: nothing to report, and no waiter. */
static PyObject *forget(TaskSet *self, PyObject *task)
{
	PyObject *on_end = PyDict_GetItemWithError(self->running, task);
	int rc;

	if (!on_end) /* it was forgotten already */
		return PyErr_Occurred() ? NULL : new_ref(Py_None);
	Py_INCREF(on_end);
	rc = PyDict_DelItem(self->running, task);
	if (!rc && on_end != Py_None)
		rc = drop(PyObject_CallNoArgs(on_end));
	Py_DECREF(on_end);
	return none_if(rc);
}

static PyObject *TaskSet_done(TaskSet *self, PyObject *task)
{
	PyObject *error, *result;

	if (!ready(self))
		return NULL;
	error = error_of(task);
	if (!error)
		return NULL;
	if (error == Py_None && !PyList_Size(self->idle))
		result = forget(self, task);
	else
		result = PyObject_CallMethodObjArgs((PyObject *) self, name_ended, task, error, NULL);
	Py_DECREF(error);
	return result;
}

static int TaskSet_init(TaskSet *self, PyObject *args, PyObject *kwargs)
{
	PyObject *loop, *create_task, *waker, *running, *idle;

	if (refuse_second_init(self->running) ||
	    !PyArg_ParseTuple(args, "OOOO!O!", &loop, &create_task, &waker, &PyDict_Type, &running, &PyList_Type, &idle))
		return -1;
	if (waker != Py_None && !Py_IS_TYPE(waker, Waker_Type)) {
		raise_expected("a Waker or None for the TaskSet", waker);
		return -1;
	}
	self->loop = new_ref(loop);
	self->create_task = new_ref(create_task);
	self->waker = waker == Py_None ? NULL : (Waker *) new_ref(waker);
	self->running = new_ref(running);
	self->idle = new_ref(idle);
	return 0;
}

static int TaskSet_traverse(TaskSet *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->loop);
	Py_VISIT(self->create_task);
	Py_VISIT(self->waker);
	Py_VISIT(self->running);
	Py_VISIT(self->idle);
	return 0;
}

static void TaskSet_dealloc(TaskSet *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->loop);
	Py_CLEAR(self->create_task);
	Py_CLEAR(self->waker);
	Py_CLEAR(self->running);
	Py_CLEAR(self->idle);
	free_object(self);
}

static PyMethodDef TaskSet_methods[] = {
	{"start", (PyCFunction) (void (*)(void)) TaskSet_start, METH_VARARGS | METH_KEYWORDS,
	 "start(coroutine, context=None, on_end=None, name=None): run a coroutine in a task of its own."},
	{"_done", (PyCFunction) TaskSet_done, METH_O, "A task has ended."},
	{NULL},
};

static PyType_Slot TaskSet_slots[] = {
	{Py_tp_doc, "TaskSet(loop, create_task, waker, running, idle): base of `aiofabric.rpc.runtime.tasks.AsyncioTasks`."},
	{Py_tp_init, TaskSet_init},
	{Py_tp_dealloc, TaskSet_dealloc},
	{Py_tp_traverse, TaskSet_traverse},
	{Py_tp_methods, TaskSet_methods},
	{0, NULL},
};

static PyType_Spec TaskSet_spec = {
	"aiofabric._core.TaskSet", sizeof(TaskSet), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	TaskSet_slots,
};

/* -- FirstStep's type */

static int FirstStep_traverse(FirstStep *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->set);
	Py_VISIT(self->task);
	Py_VISIT(self->step);
	Py_VISIT(self->context);
	return 0;
}

static int FirstStep_clear(FirstStep *self)
{
	Py_CLEAR(self->task);
	Py_CLEAR(self->step);
	Py_CLEAR(self->context);
	return 0;
}

static void FirstStep_dealloc(FirstStep *self)
{
	PyObject_GC_UnTrack(self);
	FirstStep_clear(self);
	Py_CLEAR(self->set);
	free_object(self);
}

static PyMethodDef FirstStep_methods[] = {
	{"call_soon", (PyCFunction) (void (*)(void)) FirstStep_call_soon, METH_VARARGS | METH_KEYWORDS, NULL},
	{"get_debug", (PyCFunction) FirstStep_get_debug, METH_NOARGS, NULL},
	{NULL},
};

static PyType_Slot FirstStep_slots[] = {
	{Py_tp_call, FirstStep_call},
	{Py_tp_dealloc, FirstStep_dealloc},
	{Py_tp_traverse, FirstStep_traverse},
	{Py_tp_clear, FirstStep_clear},
	{Py_tp_methods, FirstStep_methods},
	{0, NULL},
};

static PyType_Spec FirstStep_spec = {
	"aiofabric._core.FirstStep", sizeof(FirstStep), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, FirstStep_slots,
};

static int import_types(void)
{
	PyObject *future = import_from("asyncio", "Future"), *context = import_from("contextvars", "Context");

	task_type = import_from("asyncio", "Task");
	future_init = future ? PyObject_GetAttrString(future, "__init__") : NULL;
	context_run = context ? PyObject_GetAttrString(context, "run") : NULL;
	Py_XDECREF(future);
	Py_XDECREF(context);
	return task_type && future_init && context_run ? 0 : -1;
}

int add_task_set(PyObject *module)
{
	static const struct name names[] = {
		{&name_add_done_callback, "add_done_callback"}, {&name_cancel, "cancel"},
		{&name_cancelled, "cancelled"}, {&name_log_destroy_pending, "_log_destroy_pending"}, {&name_context, "context"},
		{&name_done, "_done"}, {&name_ended, "_ended"}, {&name_exception, "exception"},
		{&name_get_task_factory, "get_task_factory"}, {&name_is_done, "done"}, {&name_loop, "loop"}, {&name_name, "name"},
		{NULL},
	};
	if (intern(names) || import_types() || add_type(module, &FirstStep_spec, NULL, &FirstStep_Type))
		return -1;
	return add_type(module, &TaskSet_spec, NULL, &TaskSet_Type);
}
