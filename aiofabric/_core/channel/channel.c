/*
 * ChannelCore: the state of a byte channel. frames.c reads the peer's frames, reading.c gives the data to its readers,
 * sending.c spends credits, and stream.c has the awaits of streams. channel/endpoint.py has the rest: the ends, and
 * errors.
 */
#include "channel/channel.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "base/upcalls.h"
#include "channel/arrivals.h"
#include "channel/outbox.h"
#include "progress/interest.h"
#include "progress/source.h"
#include "submission/submission.h"

#include <stdlib.h>

PyTypeObject *ChannelCore_Type;

#define MOST_CREDITS 0xffffffffLL
#define COPY_LIMIT 16384 /* bytes up to which a send is copied behind its header; larger ones leave from where they lie */
/*
 * The peer works meanwhile. Without this limit, the two sides of 32 calls of grpclib at a time worked in turns: 2,400
 * calls/s, and 3,500 with it; sockets made 3,700.
 */
#define LONGEST_GATHER_NS 200000

int channel_ready(const ChannelCore *self)
{
	if (self->closed && self->handle)
		return 1;
	PyErr_SetString(PyExc_RuntimeError, "the channel was not initialised");
	return 0;
}

static PyObject *name_loop_thread;

/* The thread that may call, as the handle says. */
static ThreadCheck *loop_thread_of(PyObject *handle)
{
	PyObject *check = PyObject_GetAttr(handle, name_loop_thread);

	if (check && PyObject_TypeCheck(check, ThreadCheck_Type))
		return (ThreadCheck *) check;
	PyErr_Clear();
	Py_XDECREF(check);
	return NULL;
}

static int ChannelCore_init(ChannelCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *handle, *source, *tx;
	long long ours, payload, theirs;

	if (refuse_second_init(self->handle))
		return -1;
	if (!PyArg_ParseTuple(args, "OOOLLL", &handle, &source, &tx, &ours, &payload, &theirs))
		return -1;
	if (payload < 1 || ours < 0 || theirs < 0 || ours > MOST_CREDITS || theirs > MOST_CREDITS) {
		PyErr_Format(PyExc_ValueError, "expected a payload of 1 byte or more and windows of 0 to %lld, got %lld, %lld and %lld",
			     MOST_CREDITS, payload, ours, theirs);
		return -1;
	}
	self->handle = new_ref(handle);
	self->tx = new_ref(tx);
	if (PyObject_TypeCheck(source, SourceCore_Type))
		self->source = (SourceCore *) new_ref(source);
	if (PyObject_TypeCheck(tx, SubmissionCore_Type))
		self->route = (SubmissionCore *) new_ref(tx);
	self->loop_thread = loop_thread_of(handle);
	self->window = self->outstanding = ours;
	self->payload = payload;
	self->copied = payload < COPY_LIMIT ? payload : COPY_LIMIT;
	self->least = self->copied < theirs / 4 ? self->copied : theirs / 4;
	self->credits = self->most_credits = theirs;
	self->end_frame = -1;
	self->gather.longest = LONGEST_GATHER_NS;
	self->watcher = new_ref(Py_None);
	self->on_writable = new_ref(Py_None);
	self->gone = new_ref(Py_None);
	self->closed = new_ref(Py_None);
	self->refusal = new_ref(Py_None);
	self->on_closed = new_ref(Py_None);
	return 0;
}

#define FOR_EACH_OBJECT(self, DO)                                                                                   \
	do {                                                                                                       \
		DO(self->handle); DO(self->tx); DO(self->source); DO(self->route); DO(self->loop_thread);           \
		DO(self->watcher);                                                                                 \
		DO(self->consumer.data_received); DO(self->consumer.get_buffer); DO(self->consumer.buffer_updated); \
		DO(self->consumer.failed); DO(self->on_writable); DO(self->gone); DO(self->closed);                 \
		DO(self->refusal); DO(self->on_closed);                                                            \
	} while (0)

static int ChannelCore_traverse(ChannelCore *self, visitproc visit, void *arg)
{
	int rc = arrivals_traverse(&self->arrivals, visit, arg);

	if (!rc)
		rc = outbox_traverse(&self->outbox, visit, arg);
	if (rc)
		return rc;
	Py_VISIT(type_of(self));
	FOR_EACH_OBJECT(self, Py_VISIT);
	return 0;
}

static int ChannelCore_clear(ChannelCore *self)
{
	arrivals_release(&self->arrivals);
	outbox_release(&self->outbox);
	if (self->gather.counted && self->source)
		interest_send(&self->source->interest);
	free(self->gather.bytes);
	self->gather = (struct gather) {0};
	FOR_EACH_OBJECT(self, Py_CLEAR);
	return 0;
}

static void ChannelCore_dealloc(ChannelCore *self)
{
	PyObject_GC_UnTrack(self);
	ChannelCore_clear(self);
	free_object(self);
}

/* As a pool calls it, through the function that frames.c has set. The memory is valid during this call only. */
static PyObject *ChannelCore_call(ChannelCore *self, PyObject *args, PyObject *kwargs)
{
	PyObject *view;
	Py_buffer frame;
	int rc;

	if (!PyArg_ParseTuple(args, "O", &view) || PyObject_GetBuffer(view, &frame, PyBUF_SIMPLE))
		return NULL;
	rc = upcalls.channel_sink.arrived((PyObject *) self, NULL, frame.buf, frame.len, view, 0);
	PyBuffer_Release(&frame);
	return none_if(rc < 0);
}

static PyObject *ChannelCore_get_unsent(ChannelCore *self, void *unused)
{
	return PyLong_FromSsize_t(self->outbox.size + self->gather.size);
}

static PyObject *ChannelCore_get_queued(ChannelCore *self, void *unused)
{
	return PyLong_FromSsize_t(self->arrivals.size);
}

static PyGetSetDef ChannelCore_getset[] = {
	{"unsent", (getter) ChannelCore_get_unsent, NULL, "Bytes that have not been handed to the provider yet."},
	{"_queued", (getter) ChannelCore_get_queued, NULL, "bytes that arrived and were not taken"},
	OBJECT_FIELD("_watcher", ChannelCore, watcher, NULL),
	OBJECT_FIELD("_gone", ChannelCore, gone, "the error of receiving when all data was taken"),
	OBJECT_FIELD("_closed", ChannelCore, closed, "the error of all calls after this side has closed"),
	OBJECT_FIELD("_refusal", ChannelCore, refusal, "the error of sending: one of these two, or after the end was announced"),
	OBJECT_FIELD("_on_closed", ChannelCore, on_closed, NULL),
	{NULL},
};

#define COUNT(name, field) {name, T_LONGLONG, offsetof(ChannelCore, field), READONLY}

static PyMemberDef ChannelCore_members[] = {
	COUNT("_credits", credits),
	COUNT("_outstanding", outstanding),
	{"_taken", T_LONGLONG, offsetof(ChannelCore, taken), READONLY,
	 "credits of data that the application has taken, and that were not granted again yet"},
	COUNT("_got_bytes", got_bytes),
	COUNT("_got_frames", got_frames),
	COUNT("_sent_bytes", sent_bytes),
	COUNT("_sent_frames", sent_frames),
	{"_end_frame", T_INT, offsetof(ChannelCore, end_frame), 0, "END or CLOSE, to be sent after all posted data; -1: neither"},
	{"longest_gather", T_LONGLONG, offsetof(ChannelCore, gather.longest), 0,
	 "Nanoseconds after which the small sends of one pass leave before it ends; 0: each leaves in its own frame."},
	{"_end_received", T_BOOL, offsetof(ChannelCore, end_received)},
	{"_close_received", T_BOOL, offsetof(ChannelCore, close_received)},
	{NULL},
};

static PyType_Slot ChannelCore_slots[] = {
	{Py_tp_doc, "ChannelCore(handle, source, tx, window, payload, credits): base of `aiofabric.channel.endpoint.EndpointChannel`:\n"
		    "the endpoint's parts, the bytes that this side stores, those of the peer's longest frame, and its credits. It is\n"
		    "the sink of its endpoint."},
	{Py_tp_new, new_with_arguments},
	{Py_tp_init, ChannelCore_init},
	{Py_tp_call, ChannelCore_call},
	{Py_tp_dealloc, ChannelCore_dealloc},
	{Py_tp_traverse, ChannelCore_traverse},
	{Py_tp_clear, ChannelCore_clear},
	{Py_tp_getset, ChannelCore_getset},
	{Py_tp_members, ChannelCore_members},
	{0, NULL},
};

static PyType_Spec ChannelCore_spec = {
	"aiofabric._core.ChannelCore", sizeof(ChannelCore), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ChannelCore_slots,
};

int add_channel(PyObject *module)
{
	static const struct name names[] = {{&name_loop_thread, "loop_thread"}, {NULL}};

	if (intern(names) || PyModule_AddIntConstant(module, "COPY_LIMIT", COPY_LIMIT))
		return -1;
	return add_type(module, &ChannelCore_spec, NULL, &ChannelCore_Type);
}
