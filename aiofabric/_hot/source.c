/*
 * SourceCore: what each wait passes through.  Reading the queue and telling who waits, the bounded look, arming, and
 * the wake-up.  What happens now and then is in Python: cq/settling.py, cq/turning.py and cq/source.py, whose classes
 * these are the base of, and which say what must hold.
 */
#include "hot.h"

PyTypeObject *SourceCore_Type;

static PyObject *name_callback_failed, *name_complete, *name_drain_error, *name_failed, *name_longest_gap, *name_quiet,
	*name_read, *name_read_failed, *name_begin_anew, *name_scheduled_turn, *name_sleep, *name_turn, *name_unasked;

#define BUDGET 256 /* completions of one turn, then other callbacks get their chance */
#define VAIN 32 /* wake-ups in a row that brought nothing */
/*
 * Longest time without an iteration of the loop after which an awaiting call may still look.  An iteration costs a few
 * us and others wait for it: beside a busy connection 1 % of them are 0.7 ms late on uvloop (0.9 with 500).
 */
#define BREATH_NS 250000
#define RESPITE 3 /* iterations after a look that paid: that of the reply's send, of the next receive, and one more */
/* What a peer did to our memory (a write with data): its context is nobody's, tcp leaves an earlier transfer's there. */
#define OF_THE_PEER (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define FAILED (-FI_ERRNO_OFFSET - 100000) /* no error of libfabric's: a Python exception is set */

/* What one read brought. */
struct found {
	struct fi_cq_tagged_entry entries[BATCH];
	fi_addr_t from[BATCH];
	int sources;
};

/* -- settling */

/* An exception of a callback's is reported, since the entries behind it are others'; Ctrl-C and the like go on: -1. */
static int callback_failed(SourceCore *self)
{
	PyObject *type, *error, *traceback;
	int rc;

	if (!PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (traceback)
		PyException_SetTraceback(error, traceback);
	rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_callback_failed, error, NULL));
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return rc;
}

/* Tell whose completion it is. */
static int settle(SourceCore *self, const struct fi_cq_tagged_entry *entry, const fi_addr_t *from)
{
	PyObject *key = PyLong_FromVoidPtr(entry->op_context), *operation, *tuple;
	int rc = -1;

	if (!key)
		return -1;
	operation = PyDict_GetItemWithError(self->operations, key);
	Py_DECREF(key);
	if (!operation && PyErr_Occurred())
		return -1;
	Py_XINCREF(operation);
	if (operation && Py_IS_TYPE(operation, PoolBuffer_Type) && !(entry->flags & OF_THE_PEER)) {
		rc = pool_complete((PoolBuffer *) operation, entry, from);
	} else if (operation && Py_IS_TYPE(operation, Transfer_Type) && !(entry->flags & OF_THE_PEER)) {
		rc = transfer_complete((Operation *) operation, entry, from);
	} else if ((tuple = entry_tuple(entry, from))) {
		if (operation && !(entry->flags & OF_THE_PEER))
			rc = drop(PyObject_CallMethodObjArgs(operation, name_complete, tuple, NULL));
		else
			rc = drop(PyObject_CallMethodObjArgs((PyObject *) self, name_unasked,
							     operation ? operation : Py_None, tuple, NULL));
		Py_DECREF(tuple);
	}
	Py_XDECREF(operation);
	return rc ? callback_failed(self) : 0;
}

/* Read a queue that is no NativeQueue. */
static ssize_t fetch_by_name(SourceCore *self, long long window, struct found *found)
{
	PyObject *share = PyLong_FromLongLong(window), *entries, *entry;
	Py_ssize_t count, i;
	int rc = 0;

	if (!share)
		return FAILED;
	entries = PyObject_CallMethodObjArgs(self->queue, name_read, share, NULL);
	Py_DECREF(share);
	if (!entries)
		return FAILED;
	if (entries == Py_None) {
		Py_DECREF(entries);
		return -FI_EAVAIL;
	}
	count = PySequence_Size(entries);
	if (count > BATCH)
		count = BATCH;
	for (i = 0; !rc && i < count; i++) {
		entry = PySequence_GetItem(entries, i);
		rc = entry ? entry_parse(entry, &found->entries[i], &found->from[i], &found->sources) : -1;
		Py_XDECREF(entry);
	}
	Py_DECREF(entries);
	return rc || count < 0 ? FAILED : count;
}

static ssize_t fetch(SourceCore *self, long long window, int offering, struct found *found)
{
	NativeQueue *native = self->native;
	ssize_t got;

	if (!native)
		return fetch_by_name(self, window, found);
	got = offering ? queue_look_after_offer(native, window) : queue_look(native, window);
	if (got > 0) {
		memcpy(found->entries, native->entries, got * sizeof(*found->entries));
		found->sources = native->sources;
		if (found->sources)
			memcpy(found->from, native->from, got * sizeof(*found->from));
	}
	return got;
}

static int truth_of(PyObject *result)
{
	int truth = result ? PyObject_IsTrue(result) : -1;

	Py_XDECREF(result);
	return truth;
}

/* Settle what has finished; how many completions were read, or -1.  `offering`: its core first. */
static long long drain(SourceCore *self, long long window, int offering)
{
	struct found found;
	long long count = 0;
	ssize_t got, i;
	PyObject *type = NULL, *error = NULL, *traceback = NULL;

	if (self->draining || self->queue == Py_None)
		return 0;
	self->draining = 1;
	while (count < BUDGET && !self->closed && !type) {
		got = fetch(self, window, offering, &found);
		window = offering = 0;
		if (got == -FI_EAGAIN || got == 0)
			break;
		if (got == -FI_EAVAIL) {
			int more = truth_of(PyObject_CallMethodObjArgs((PyObject *) self, name_drain_error, NULL));

			if (more < 0)
				PyErr_Fetch(&type, &error, &traceback);
			if (more <= 0)
				break;
			count++;
			continue;
		}
		if (got < 0) {
			PyObject *code = got == FAILED ? NULL : PyLong_FromSsize_t(got);

			if (code) {
				drop(PyObject_CallMethodObjArgs((PyObject *) self, name_read_failed, code, NULL));
				Py_DECREF(code);
			}
			PyErr_Fetch(&type, &error, &traceback);
			break;
		}
		for (i = 0; i < got; i++) {
			if (settle(self, &found.entries[i], found.sources ? &found.from[i] : NULL)) {
				if (type) /* the first one tells enough */
					PyErr_Clear();
				else
					PyErr_Fetch(&type, &error, &traceback);
			}
		}
		count += got;
		if (got < BATCH) /* fi_trywait proves emptiness; a further read would cost one more poll */
			break;
	}
	self->draining = 0;
	self->completions += count;
	if (type) {
		PyErr_Restore(type, error, traceback);
		return -1;
	}
	return count;
}

/* -- looking and sleeping */

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
	Py_DECREF(turn);
	return rc;
}

static void breathed(SourceCore *self)
{
	self->breath = now_ns();
	self->crowd = self->winded = 0;
	self->streak = self->wakes = 0;
}

static long long look_once(SourceCore *self, long long now, int offering)
{
	Looking *looking = self->looking;
	long long share = looking_share(looking, now), found = drain(self, share, offering), gap;

	if (found < 0 || !looking->deadline)
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
	if (!offers && !self->looks)
		return 0;
	now = now_ns();
	if (now - self->breath > BREATH_NS) {
		self->winded = self->paid;
		return 0;
	}
	self->wakes = 0;
	self->armed = 0;
	found = look_once(self, now, offers);
	if (found < 0)
		return -1;
	self->paid = found > 0;
	if (!self->paid)
		return 0;
	self->crowd = self->wakes > 0;
	self->respite = RESPITE;
	return self->scheduled ? 0 : source_touch(self);
}

/*
 * Whether it is safe to sleep on the descriptors; -1 for an exception.  An event queue's stays readable until it is
 * drained: found quiet once, it need not be asked again before that (0.6 us of the kernel's each time).
 */
static int quiet(SourceCore *self)
{
	Py_ssize_t i;
	int calm;

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

static int readers_sleep(SourceCore *self)
{
	if (self->at_rest_when_quiet && !self->paused)
		return 0;
	self->paused = 0;
	return drop(PyObject_CallMethodObjArgs(self->readers, name_sleep, NULL));
}

static int go_to_sleep(SourceCore *self)
{
	self->armed = 1;
	if (self->looks)
		looking_over(self->looking);
	return readers_sleep(self);
}

int source_prepare(SourceCore *self)
{
	Looking *looking = self->looking;
	int calm;

	self->streak = 0; /* whoever suspends lets others go on: among 100 connections each third send waited a turn */
	if (self->polls && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_begin_anew, NULL)))
		return -1;
	if (self->armed || (self->scheduled && (self->crowd || looking->deadline)))
		return 0;
	if (self->looks)
		looking_ask(looking, now_ns());
	if (looking->deadline || self->polls)
		return source_touch(self);
	calm = quiet(self);
	return calm < 0 ? -1 : calm ? go_to_sleep(self) : source_touch(self);
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
	long long found = drain(self, 0, 0);

	return found < 0 ? NULL : PyLong_FromLongLong(found);
}

static PyObject *SourceCore_look_once(SourceCore *self, PyObject *unused)
{
	long long found = look_once(self, self->breath, 0);

	return found < 0 ? NULL : PyLong_FromLongLong(found);
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
	breathed(self);
	Py_RETURN_NONE;
}

static PyObject *SourceCore_quiet(SourceCore *self, PyObject *unused)
{
	int calm = quiet(self);

	return calm < 0 ? NULL : PyBool_FromLong(calm);
}

static PyObject *SourceCore_sleep(SourceCore *self, PyObject *unused)
{
	return none_if(go_to_sleep(self));
}

static PyObject *SourceCore_woke(SourceCore *self, PyObject *unused)
{
	self->wakes++;
	Py_RETURN_NONE;
}

static PyObject *SourceCore_scheduled_turn(SourceCore *self, PyObject *unused)
{
	self->scheduled = 0;
	if (!(self->events_due || PyDict_Size(self->watched) || PyObject_Size(self->parked))) {
		if (self->armed && !self->looking->deadline) {
			breathed(self); /* armed inline since then: nothing to do but to note that the loop went round */
			Py_RETURN_NONE;
		}
		/*
		 * On trio each await is an iteration.  Whoever takes it will look, or wait and arm: a turn before that
		 * reads in vain, and what it arms wakes us for what a look found (64 B round trip 27 us; 38 with that).
		 */
		if (self->checkpoints && self->breathing && self->respite) {
			self->respite--;
			breathed(self);
			return none_if(source_touch(self));
		}
	}
	return PyObject_CallMethodObjArgs((PyObject *) self, name_turn, NULL);
}

/*
 * The descriptor woke us: settle, and let the tasks that it was for go on before anything else.  They arm the queue
 * themselves when they wait again (prepare); the turn that is on its way sees to it otherwise.  Arming here would make
 * every answer 2 us later.
 */
static PyObject *SourceCore_readable(SourceCore *self, PyObject *unused)
{
	char armed = self->armed; /* what was true before we were woken */
	long long found;

	self->wakeups++;
	self->armed = 0;
	if (self->closed || self->draining)
		Py_RETURN_NONE;
	breathed(self);
	found = drain(self, 0, 0);
	if (found < 0) {
		PyObject *type, *error, *traceback, *result;

		if (!PyErr_ExceptionMatches(PyExc_Exception))
			return NULL;
		PyErr_Fetch(&type, &error, &traceback);
		PyErr_NormalizeException(&type, &error, &traceback);
		if (traceback)
			PyException_SetTraceback(error, traceback);
		result = PyObject_CallMethodObjArgs((PyObject *) self, name_failed, error, NULL);
		Py_XDECREF(type);
		Py_XDECREF(error);
		Py_XDECREF(traceback);
		return result;
	}
	if (found) {
		if (!self->scheduled && source_touch(self))
			return NULL;
		self->fruitless = self->vain = 0;
		self->crowd = self->wakes > 1;
		if (self->looks) {
			looking_over(self->looking);
			if (!self->wakes) /* handed to a sink: nobody asks for a window by waiting */
				looking_ask(self->looking, self->breath);
		}
		Py_RETURN_NONE;
	}
	self->empty++;
	self->vain++;
	if (armed && self->vain < VAIN) {
		int calm = quiet(self);

		if (calm < 0)
			return NULL;
		if (calm) { /* asyncio asked the kernel before what it ran meanwhile looked, and then armed */
			self->armed = 1;
			return none_if(readers_sleep(self));
		}
	}
	self->hurried = 1; /* uvloop calls readers before the task that the last turn woke */
	return PyObject_CallMethodObjArgs((PyObject *) self, name_turn, NULL);
}

static PyObject *SourceCore_get_breathless(SourceCore *self, void *unused)
{
	return PyBool_FromLong(++self->streak > STREAK);
}

int source_overdue(SourceCore *self)
{
	self->woken = (self->woken + 1) % STREAK;
	return !self->woken;
}

static PyObject *SourceCore_get_overdue(SourceCore *self, void *unused)
{
	return PyBool_FromLong(source_overdue(self));
}

/* -- the type */

static int SourceCore_init(SourceCore *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"driver", "queue", "readers", "parked", "looking", "slots", "polls", "looks", NULL};
	PyObject *driver, *queue, *readers, *parked, *looking, *slots, *native, *demand, *call_soon, *checkpoint;
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
	if (!demand || !call_soon || !checkpoint || !native) {
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
	if (PyObject_TypeCheck(native, NativeQueue_Type))
		self->native = (NativeQueue *) new_ref(native);
	self->polls = polls;
	self->looks = looks;
	self->at_rest_when_quiet = !polls && demand == Py_None;
	self->checkpoints = checkpoint != Py_None;
	self->unsettled = 1;
	self->breath = now_ns();
	Py_DECREF(demand);
	Py_DECREF(checkpoint);
	Py_DECREF(native);
	self->operations = PyDict_New();
	self->watched = PyDict_New();
	self->companions = PyList_New(0);
	return self->operations && self->watched && self->companions ? 0 : -1;
}

static int SourceCore_traverse(SourceCore *self, visitproc visit, void *arg)
{
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
	Py_VISIT(self->slots);
	return 0;
}

/* What the methods need is replaced, not taken away: the collector may clear a source that is still called. */
static int SourceCore_clear(SourceCore *self)
{
	self->closed = 1;
	if (self->operations) {
		PyDict_Clear(self->operations);
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
	PyTypeObject *type = type_of(self);
	freefunc free = PyType_GetSlot(type, Py_tp_free);

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
	Py_CLEAR(self->slots);
	free(self);
	Py_DECREF(type);
}

static PyMethodDef SourceCore_methods[] = {
	{"_drain", (PyCFunction) SourceCore_drain, METH_NOARGS, "Settle what has finished; how many completions were read."},
	{"_look_once", (PyCFunction) SourceCore_look_once, METH_NOARGS,
	 "Drain; look for a share of the open window if there is nothing at once."},
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
	{"_readable", (PyCFunction) SourceCore_readable, METH_NOARGS, "The descriptor woke us."},
	{"_scheduled_turn", (PyCFunction) SourceCore_scheduled_turn, METH_NOARGS, "What `touch` has put on its way."},
	{NULL},
};

static PyGetSetDef SourceCore_getset[] = {
	{"breathless", (getter) SourceCore_get_breathless, NULL,
	 "Whether so many awaits were answered at once that the next one should let the loop go round. Counts."},
	{"overdue", (getter) SourceCore_get_overdue, NULL,
	 "Whether so many awaits waited and were woken that this one should take a checkpoint. Counts.\n\n"
	 "anyio cancels a task of asyncio's only while nothing has woken it, and tries once in each iteration. uvloop\n"
	 "calls readers before that: a task whose every answer is there by then would never be cancelled."},
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
	"aiofabric._hot.SourceCore", sizeof(SourceCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, SourceCore_slots,
};

int add_source(PyObject *module)
{
	static const struct name names[] = {
		{&name_callback_failed, "_callback_failed"}, {&name_complete, "complete"},
		{&name_drain_error, "_drain_error"}, {&name_failed, "_failed"}, {&name_longest_gap, "longest_gap"},
		{&name_quiet, "quiet"}, {&name_read, "read"}, {&name_read_failed, "_read_failed"},
		{&name_begin_anew, "_begin_anew"}, {&name_scheduled_turn, "_scheduled_turn"}, {&name_sleep, "sleep"},
		{&name_turn, "turn"}, {&name_unasked, "_unasked"}, {NULL},
	};

	if (intern(names))
		return -1;
	if (PyModule_AddIntConstant(module, "BUDGET", BUDGET) || PyModule_AddIntConstant(module, "STREAK", STREAK) ||
	    PyModule_AddIntConstant(module, "VAIN", VAIN))
		return -1;
	return add_type(module, &SourceCore_spec, NULL, &SourceCore_Type);
}
