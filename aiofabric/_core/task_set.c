/*
 * TaskSet: starts tasks of asyncio, keeps them while they run, and calls a function at the end of each. Rare ends, with
 * an exception or with a task that waits for the last one, are handled in Python: rpc/runtime/tasks.py.
 */
#include "task_set.h"
#include "names.h"
#include "references.h"

typedef struct {
	PyObject_HEAD
	PyObject *create_task;	/* of the loop */
	PyObject *running;	/* dict: the function of each task, or None */
	PyObject *idle;		/* list of functions to call when no task runs */
} TaskSet;

static PyObject *name_add_done_callback, *name_cancelled, *name_context, *name_done, *name_ended, *name_exception;

static int ready(const TaskSet *self)
{
	if (self->running)
		return 1;
	PyErr_SetString(PyExc_RuntimeError, "the set of tasks was not initialised");
	return 0;
}

static PyObject *create(TaskSet *self, PyObject *coroutine, PyObject *context)
{
	PyObject *args = PyTuple_Pack(1, coroutine), *kwargs = context == Py_None ? NULL : PyDict_New(), *task = NULL;

	if (args && (context == Py_None || (kwargs && !PyDict_SetItem(kwargs, name_context, context))))
		task = PyObject_Call(self->create_task, args, kwargs);
	Py_XDECREF(args);
	Py_XDECREF(kwargs);
	return task;
}

static PyObject *TaskSet_start(TaskSet *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"coroutine", "context", "on_end", NULL};
	PyObject *coroutine, *context = Py_None, *on_end = Py_None, *task, *done;
	int rc;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", names, &coroutine, &context, &on_end) || !ready(self))
		return NULL;
	task = create(self, coroutine, context);
	if (!task)
		return NULL;
	rc = PyDict_SetItem(self->running, task, on_end);
	done = rc ? NULL : PyObject_GetAttr((PyObject *) self, name_done);
	if (done)
		rc = drop(PyObject_CallMethodObjArgs(task, name_add_done_callback, done, NULL));
	Py_XDECREF(done);
	if (!done || rc)
		Py_CLEAR(task);
	return task;
}

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
	PyObject *create_task, *running, *idle;

	if (refuse_second_init(self->running) ||
	    !PyArg_ParseTuple(args, "OO!O!", &create_task, &PyDict_Type, &running, &PyList_Type, &idle))
		return -1;
	self->create_task = new_ref(create_task);
	self->running = new_ref(running);
	self->idle = new_ref(idle);
	return 0;
}

static int TaskSet_traverse(TaskSet *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->create_task);
	Py_VISIT(self->running);
	Py_VISIT(self->idle);
	return 0;
}

static void TaskSet_dealloc(TaskSet *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->create_task);
	Py_CLEAR(self->running);
	Py_CLEAR(self->idle);
	free_object(self);
}

static PyMethodDef TaskSet_methods[] = {
	{"start", (PyCFunction) (void (*)(void)) TaskSet_start, METH_VARARGS | METH_KEYWORDS,
	 "start(coroutine, context=None, on_end=None): run a coroutine in a task of its own."},
	{"_done", (PyCFunction) TaskSet_done, METH_O, "A task has ended."},
	{NULL},
};

static PyType_Slot TaskSet_slots[] = {
	{Py_tp_doc, "TaskSet(create_task, running, idle): base of `aiofabric.rpc.runtime.tasks.AsyncioTasks`."},
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

int add_task_set(PyObject *module)
{
	static const struct name names[] = {
		{&name_add_done_callback, "add_done_callback"}, {&name_cancelled, "cancelled"}, {&name_context, "context"},
		{&name_done, "_done"}, {&name_ended, "_ended"}, {&name_exception, "exception"}, {NULL},
	};
	PyTypeObject *type;

	return intern(names) ? -1 : add_type(module, &TaskSet_spec, NULL, &type);
}
