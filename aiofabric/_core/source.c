/*
 * SourceCore: what each wait passes through.  The bounded look and arming; settling.c reads the queue, turning.c is what
 * the event loop calls.  What happens now and then is in Python: cq/settling.py, cq/turning.py and cq/source.py, whose
 * classes these are the base of, and which say what must hold.
 */
#include "core.h"

PyTypeObject *SourceCore_Type;

static PyObject *name_begin_anew, *name_create_waiter, *name_done, *name_longest_gap, *name_quiet,
	*name_scheduled_turn, *name_set_result, *name_sleep;

/*
 * Longest time without an iteration of the loop after which an awaiting call may still look.  An iteration costs a few
 * us (10 to 20 on asyncio), and others wait for it: some need three, and beside a busy connection on asyncio 1 % of them
 * were 0.85 ms late.  So it is a third for as long as iterations take the time that they take when others have work: 0.5
 * ms then.  A third always made a round trip on asyncio 27 us instead of 24.5.
 */
#define BREATH_NS 180000
#define SHARED_BREATH_NS 60000
#define SHARED_NS 40000
#define SHARED_FOR 32 /* iterations after the last one that was so long */
#define RESPITE 3 /* iterations after a look that paid: that of the reply's send, of the next receive, and one more */

int source_touch(SourceCore *self)
{
	PyObject *turn;
	int rc;

	self->armed = 0;
	if (self->scheduled || self->closed)
		return 0;
	turn = PyObject_GetAttr((PyObject *) self, name_scheduled_turn);
	if (!turn)
		return -1;
	self->scheduled = 1;
	rc = drop(PyObject_CallFunctionObjArgs(self->call_soon, turn, NULL));
	if (rc)
		self->scheduled = 0;
	Py_DECREF(turn);
	return rc;
}

int source_is_moving(SourceCore *self)
{
	return self->native && self->native->moving && !self->polls;
}

void source_breathed(SourceCore *self)
{
	self->breath = now_ns();
	if (self->ceded && self->breath - self->ceded > SHARED_NS)
		self->shared = SHARED_FOR;
	else if (self->ceded && self->shared)
		self->shared--;
	self->ceded = 0;
	self->crowd = self->winded = self->restless = 0;
	self->streak = self->wakes = 0;
}

long long source_look_once(SourceCore *self, long long now, int offering)
{
	Looking *looking = self->looking;
	long long share = looking_share(looking, now), found = source_read(self, share, offering), gap;

	if (found < 0 || !looking->deadline || source_is_moving(self))
		return found;
	if (self->native) {
		gap = self->native->gap;
	} else {
		PyObject *answer = PyObject_CallMethodObjArgs(self->queue, name_longest_gap, NULL);

		gap = answer ? PyLong_AsLongLong(answer) : -1;
		Py_XDECREF(answer);
		if (gap < 0)
			return -1;
	}
	looking_judge(looking, now, share, found, gap);
	return found;
}

int source_look(SourceCore *self)
{
	long long now, found;
	int offers;

	if (self->crowd || self->closed)
		return 0;
	offers = self->native && queue_offers(self->native);
	if (!offers && (!self->looks || looking_is_vain(self->looking)))
		return 0;
	now = now_ns();
	if (now - self->breath > (self->shared ? SHARED_BREATH_NS : BREATH_NS)) {
		self->winded = self->paid;
		self->ceded = now;
		return 0;
	}
	self->wakes = 0;
	self->armed = 0;
	found = source_look_once(self, now, offers);
	if (found < 0)
		return -1;
	self->paid = found > 0;
	if (!self->paid)
		return 0;
	self->crowd = self->wakes > 0;
	self->respite = RESPITE;
	if (!self->scheduled)
		return source_touch(self);
	self->behind += self->wakes;
	return 0;
}

/*
 * An event queue's descriptor stays readable until it is drained: found quiet once, it need not be asked again before
 * that (0.6 us of the kernel's each time).
 */
int source_quiet(SourceCore *self)
{
	Py_ssize_t i;
	int calm;

	if (self->closed) /* by a task that has gone on since: the queue may be gone, too */
		return 0;
	if (self->queue != Py_None) {
		calm = self->native ? queue_quiet(self->native)
				    : truth_of(PyObject_CallMethodObjArgs(self->queue, name_quiet, NULL));
		if (calm <= 0)
			return calm;
	}
	for (i = 0; self->unsettled && i < PyList_Size(self->companions); i++) {
		calm = truth_of(PyObject_CallMethodObjArgs(PyList_GetItem(self->companions, i), name_quiet, NULL));
		if (calm <= 0)
			return calm;
	}
	self->unsettled = 0;
	return 1;
}

int source_rest_readers(SourceCore *self)
{
	if (self->at_rest_when_quiet && !self->paused)
		return 0;
	self->paused = 0;
	return drop(PyObject_CallMethodObjArgs(self->readers, name_sleep, NULL));
}

int source_sleep(SourceCore *self)
{
	source_uncork(self);
	self->armed = 1;
	self->ceded = 0; /* how long the loop may sleep says nothing */
	if (self->looks)
		looking_over(self->looking);
	return source_rest_readers(self);
}

int source_prepare(SourceCore *self)
{
	Looking *looking = self->looking;
	int calm;

	/* Others of this turn may send as well, and its end sees to it; so does a turn where the loop lets them go on. */
	if (!self->passing && !(self->waker && self->waker->going))
		source_uncork(self);
	self->streak = 0; /* whoever suspends lets others go on: among 100 connections each third send waited a turn */
	if (self->polls && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_begin_anew, NULL)))
		return -1;
	if (self->armed || (self->scheduled && (self->crowd || self->restless || looking->deadline)))
		return 0;
	if (self->looks)
		looking_ask(looking, now_ns());
	if (looking->deadline || self->polls)
		return source_touch(self);
	calm = source_quiet(self);
	self->restless = !calm;
	return calm < 0 ? -1 : calm ? source_sleep(self) : source_touch(self);
}

PyObject *source_waiter(SourceCore *self)
{
	if (self->waker)
		return waiter_new(self->waker);
	return PyObject_CallMethodObjArgs(self->driver, name_create_waiter, NULL);
}

int source_answer_waiter(SourceCore *self, Waiter *waiter, PyObject *result)
{
	int waited = waiter_answer(waiter, result);

	if (waited > 0 && self)
		self->wakes++;
	return waited;
}

int source_answer(SourceCore *self, PyObject *waiter, PyObject *result)
{
	int waited;

	if (Py_IS_TYPE(waiter, Waiter_Type))
		return source_answer_waiter(self, (Waiter *) waiter, result);
	waited = truth_of(PyObject_CallMethodObjArgs(waiter, name_done, NULL));
	if (waited >= 0)
		waited = waited ? 0 : drop(PyObject_CallMethodObjArgs(waiter, name_set_result, result, NULL)) ? -1 : 1;
	if (waited > 0 && self)
		self->wakes++;
	return waited;
}

/* -- the methods */

static PyObject *none_if(int rc)
{
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *SourceCore_drain(SourceCore *self, PyObject *unused)
{
	long long count = 0, found;

	do {
		found = source_read(self, 0, 0);
		if (found < 0)
			return NULL;
		count += found;
	} while (source_has_more(self, count));
	return PyLong_FromLongLong(count);
}

static PyObject *SourceCore_look(SourceCore *self, PyObject *unused)
{
	return none_if(source_look(self));
}

static PyObject *SourceCore_prepare(SourceCore *self, PyObject *unused)
{
	return none_if(source_prepare(self));
}

static PyObject *SourceCore_touch(SourceCore *self, PyObject *unused)
{
	return none_if(source_touch(self));
}

static PyObject *SourceCore_breathed(SourceCore *self, PyObject *unused)
{
	source_breathed(self);
	Py_RETURN_NONE;
}

static PyObject *SourceCore_quiet(SourceCore *self, PyObject *unused)
{
	int calm = source_quiet(self);

	return calm < 0 ? NULL : PyBool_FromLong(calm);
}

static PyObject *SourceCore_sleep(SourceCore *self, PyObject *unused)
{
	return none_if(source_sleep(self));
}

static PyObject *SourceCore_woke(SourceCore *self, PyObject *unused)
{
	self->wakes++;
	Py_RETURN_NONE;
}

static PyObject *SourceCore_get_breathless(SourceCore *self, void *unused)
{
	return PyBool_FromLong(++self->streak > STREAK);
}

/* -- the type */

static int SourceCore_init(SourceCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"driver", "queue", "readers", "parked", "looking", "slots", "polls", "looks", NULL};
	PyObject *driver, *queue, *readers, *parked, *looking, *slots, *native, *demand, *call_soon, *checkpoint, *waker;
	int polls, looks;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO!O!pp", names, &driver, &queue, &readers, &parked,
					 Looking_Type, &looking, SlotsCore_Type, &slots, &polls, &looks))
		return -1;
	if (self->operations) {
		PyErr_SetString(PyExc_RuntimeError, "a source is initialised once");
		return -1;
	}
	demand = PyObject_GetAttrString(driver, "demand");
	call_soon = PyObject_GetAttrString(driver, "call_soon");
	checkpoint = PyObject_GetAttrString(driver, "checkpoint_if_cancelled");
	native = queue == Py_None ? new_ref(Py_None) : PyObject_GetAttrString(queue, "native_queue");
	waker = (PyObject *) waker_of(driver);
	if (!demand || !call_soon || !checkpoint || !native || !waker) {
		Py_XDECREF(waker);
		Py_XDECREF(demand);
		Py_XDECREF(call_soon);
		Py_XDECREF(checkpoint);
		Py_XDECREF(native);
		return -1;
	}
	self->driver = new_ref(driver);
	self->queue = new_ref(queue);
	self->readers = new_ref(readers);
	self->parked = new_ref(parked);
	self->looking = (Looking *) new_ref(looking);
	self->slots = (SlotsCore *) new_ref(slots);
	self->call_soon = call_soon;
	if (waker != Py_None)
		self->waker = (Waker *) new_ref(waker);
	if (PyObject_TypeCheck(native, NativeQueue_Type))
		self->native = (NativeQueue *) new_ref(native);
	self->polls = polls;
	self->looks = looks;
	self->at_rest_when_quiet = !polls && demand == Py_None;
	self->checkpoints = checkpoint != Py_None;
	self->unsettled = 1;
	self->volley = 1; /* no lane has sent in it */
	self->breath = now_ns();
	Py_DECREF(waker);
	Py_DECREF(demand);
	Py_DECREF(checkpoint);
	Py_DECREF(native);
	self->operations = (Registry *) PyObject_CallNoArgs((PyObject *) Registry_Type);
	self->watched = PyDict_New();
	self->companions = PyList_New(0);
	return self->operations && self->watched && self->companions ? 0 : -1;
}

static int SourceCore_traverse(SourceCore *self, visitproc visit, void *arg)
{
	LaneCore *lane;

	Py_VISIT(type_of(self));
	Py_VISIT(self->driver);
	Py_VISIT(self->queue);
	Py_VISIT(self->readers);
	Py_VISIT(self->operations);
	Py_VISIT(self->parked);
	Py_VISIT(self->companions);
	Py_VISIT(self->watched);
	Py_VISIT(self->looking);
	Py_VISIT(self->native);
	Py_VISIT(self->call_soon);
	Py_VISIT(self->waker);
	Py_VISIT(self->slots);
	for (lane = self->corked; lane; lane = lane->next_corked)
		Py_VISIT(lane);
	return 0;
}

/* What the methods need is replaced, not taken away: the collector may clear a source that is still called. */
static int SourceCore_clear(SourceCore *self)
{
	self->closed = 1;
	source_uncork(self);
	if (self->operations) {
		registry_clear(self->operations);
		PyDict_Clear(self->watched);
		PyList_SetSlice(self->companions, 0, PyList_Size(self->companions), NULL);
	}
	REPLACE(self->readers, new_ref(Py_None));
	REPLACE(self->call_soon, new_ref(Py_None));
	REPLACE(self->driver, new_ref(Py_None));
	return 0;
}

static void SourceCore_dealloc(SourceCore *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->driver);
	Py_CLEAR(self->queue);
	Py_CLEAR(self->readers);
	Py_CLEAR(self->operations);
	Py_CLEAR(self->parked);
	Py_CLEAR(self->companions);
	Py_CLEAR(self->watched);
	Py_CLEAR(self->looking);
	Py_CLEAR(self->native);
	Py_CLEAR(self->call_soon);
	Py_CLEAR(self->waker);
	Py_CLEAR(self->slots);
	free_object(self);
}

static PyMethodDef SourceCore_methods[] = {
	{"_drain", (PyCFunction) SourceCore_drain, METH_NOARGS, "Settle what has finished; how many completions were read."},
	{"look", (PyCFunction) SourceCore_look, METH_NOARGS,
	 "Inside an awaiting call, before it suspends: a bounded look at the queue."},
	{"prepare", (PyCFunction) SourceCore_prepare, METH_NOARGS,
	 "A task is about to suspend: see to it that its completion wakes us."},
	{"touch", (PyCFunction) SourceCore_touch, METH_NOARGS,
	 "Something was posted: have a turn on its way, one for all posts of this iteration."},
	{"breathed", (PyCFunction) SourceCore_breathed, METH_NOARGS,
	 "The loop went round: awaits may be answered at once again for a while."},
	{"woke", (PyCFunction) SourceCore_woke, METH_NOARGS,
	 "A suspended task was woken: nobody may spin while it waits for its turn."},
	{"_quiet", (PyCFunction) SourceCore_quiet, METH_NOARGS, "Whether it is safe to sleep on the descriptors."},
	{"_sleep", (PyCFunction) SourceCore_sleep, METH_NOARGS, "The queue is quiet: the descriptors wake us."},
	{"turn", (PyCFunction) SourceCore_turn, METH_NOARGS, "One pass; ends armed, or with another turn on its way."},
	{"_readable", (PyCFunction) SourceCore_readable, METH_NOARGS, "The descriptor woke us."},
	{"_scheduled_turn", (PyCFunction) SourceCore_scheduled_turn, METH_NOARGS, "What `touch` has put on its way."},
	{NULL},
};

static PyGetSetDef SourceCore_getset[] = {
	{"breathless", (getter) SourceCore_get_breathless, NULL,
	 "Whether so many awaits were answered at once that the next one should let the loop go round. Counts."},
	{NULL},
};

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(SourceCore, name), READONLY}
#define COUNT(name, field) {name, T_LONGLONG, offsetof(SourceCore, field)}
#define FLAG(name, field) {name, T_BOOL, offsetof(SourceCore, field)}

static PyMemberDef SourceCore_members[] = {
	OBJECT(driver),
	OBJECT(queue),
	OBJECT(readers),
	OBJECT(operations),
	OBJECT(parked),
	OBJECT(companions),
	OBJECT(watched),
	OBJECT(looking),
	OBJECT(slots),
	COUNT("breath", breath),
	COUNT("streak", streak),
	COUNT("wakes", wakes),
	COUNT("interest", interest),
	COUNT("abandoned", abandoned),
	COUNT("_breathing", breathing),
	COUNT("_completions", completions),
	COUNT("_turns", turns),
	COUNT("_wakeups", wakeups),
	COUNT("_empty", empty),
	COUNT("_fruitless", fruitless),
	COUNT("_vain", vain),
	FLAG("closed", closed),
	FLAG("armed", armed),
	FLAG("winded", winded),
	FLAG("_draining", draining),
	FLAG("_crowd", crowd),
	FLAG("_scheduled", scheduled),
	FLAG("_hurried", hurried),
	FLAG("_events_due", events_due),
	FLAG("_unsettled", unsettled),
	FLAG("_paused", paused),
	FLAG("_polls", polls),
	FLAG("_looks", looks),
	FLAG("_at_rest_when_quiet", at_rest_when_quiet),
	{NULL},
};

static PyType_Slot SourceCore_slots[] = {
	{Py_tp_doc, "Base of `aiofabric.cq.settling.Settling`."},
	{Py_tp_init, SourceCore_init},
	{Py_tp_dealloc, SourceCore_dealloc},
	{Py_tp_traverse, SourceCore_traverse},
	{Py_tp_clear, SourceCore_clear},
	{Py_tp_methods, SourceCore_methods},
	{Py_tp_getset, SourceCore_getset},
	{Py_tp_members, SourceCore_members},
	{0, NULL},
};

static PyType_Spec SourceCore_spec = {
	"aiofabric._core.SourceCore", sizeof(SourceCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, SourceCore_slots,
};

int add_source(PyObject *module)
{
	static const struct name names[] = {
		{&name_begin_anew, "_begin_anew"}, {&name_create_waiter, "create_waiter"},
		{&name_done, "done"}, {&name_longest_gap, "longest_gap"}, {&name_quiet, "quiet"},
		{&name_scheduled_turn, "_scheduled_turn"}, {&name_set_result, "set_result"}, {&name_sleep, "sleep"}, {NULL},
	};

	if (intern(names) || PyModule_AddIntConstant(module, "STREAK", STREAK))
		return -1;
	return add_type(module, &SourceCore_spec, NULL, &SourceCore_Type);
}
