/*
 * FrameOutput: hands RPC frames to the provider. The first frame of an iteration of the loop leaves at once, and
 * the others leave together at its end: rpc/runtime/transport.py, which has the rest.
 */
#include "rpc/frame_output.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/lateness.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "progress/interest.h"
#include "progress/iteration.h"
#include "progress/source.h"
#include "submission/injection.h"
#include "submission/submission.h"

PyTypeObject *FrameOutput_Type;

static int schedule(FrameOutput *self)
{
	if (self->scheduled)
		return 0;
	self->scheduled = 1;
	interest_gather(&self->source->interest);
	if (!call_soon_despite_interrupt(self->source->call_soon, self->pass_ends))
		return 0;
	if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
		PyErr_Clear(); /* raised here, it would lose the frame, which its caller has not queued yet */
		self->interrupted = 1;
		return 0;
	}
	self->scheduled = 0;
	interest_send(&self->source->interest);
	return -1;
}

int frame_output_send(FrameOutput *self, PyObject *frame)
{
	SubmissionCore *route = self->route;
	struct lateness *lateness;

	if (!self->source) {
		PyErr_SetString(PyExc_RuntimeError, "the FrameOutput was not initialised");
		return -1;
	}
	lateness = &self->source->gathered;
	if (self->source->iteration.began == self->pass && (self->scheduled || !source_hurries(self->source))) {
		lateness_wait(lateness, now_ns());
		return schedule(self);
	}
	self->pass = self->source->iteration.began;
	if (route && PyBytes_Check(frame) && route->thread_check && thread_check_admits(route->thread_check)) {
		int sent = submission_try_inject(route, frame);

		if (sent > 0)
			return 1;
		if (sent < 0 && !PyErr_ExceptionMatches(PyExc_Exception))
			return -1; /* Ctrl-C */
		PyErr_Clear(); /* `transmit` gets the same error, and ends the connection with it */
	}
	return drop(PyObject_CallFunctionObjArgs(self->transmit, frame, NULL)) ? -1 : 1;
}

static PyObject *FrameOutput_call(FrameOutput *self, PyObject *args, PyObject *kwargs)
{
	PyObject *frame;
	int sent;

	if (!PyArg_ParseTuple(args, "O", &frame))
		return NULL;
	sent = frame_output_send(self, frame);
	return sent < 0 ? NULL : PyBool_FromLong(sent);
}

static PyObject *FrameOutput_pass_ended(FrameOutput *self, PyObject *unused)
{
	int interrupted;

	if (self->scheduled) {
		interest_send(&self->source->interest);
		lateness_end(&self->source->gathered);
	}
	self->scheduled = 0;
	self->pass = 0;
	interrupted = self->interrupted;
	self->interrupted = 0;
	return PyBool_FromLong(interrupted);
}

static int FrameOutput_init(FrameOutput *self, PyObject *args, PyObject *kwargs)
{
	PyObject *source, *route, *transmit, *pass_ends;

	if (refuse_second_init(self->source))
		return -1;
	if (!PyArg_ParseTuple(args, "O!OOO", SourceCore_Type, &source, &route, &transmit, &pass_ends))
		return -1;
	self->source = (SourceCore *) new_ref(source);
	if (PyObject_TypeCheck(route, SubmissionCore_Type))
		self->route = (SubmissionCore *) new_ref(route);
	self->transmit = new_ref(transmit);
	self->pass_ends = new_ref(pass_ends);
	return 0;
}

static int FrameOutput_traverse(FrameOutput *self, visitproc visit, void *arg)
{
	Py_VISIT(type_of(self));
	Py_VISIT(self->source);
	Py_VISIT(self->route);
	Py_VISIT(self->transmit);
	Py_VISIT(self->pass_ends);
	return 0;
}

/* The callables make the cycles; the output may still be called. */
static int FrameOutput_clear(FrameOutput *self)
{
	if (self->source) {
		REPLACE(self->transmit, new_ref(Py_None));
		REPLACE(self->pass_ends, new_ref(Py_None));
	}
	return 0;
}

static void FrameOutput_dealloc(FrameOutput *self)
{
	PyObject_GC_UnTrack(self);
	Py_CLEAR(self->source);
	Py_CLEAR(self->route);
	Py_CLEAR(self->transmit);
	Py_CLEAR(self->pass_ends);
	free_object(self);
}

static PyMethodDef FrameOutput_methods[] = {
	{"pass_ended", (PyCFunction) FrameOutput_pass_ended, METH_NOARGS, "The next frame may leave at once. Returns whether Ctrl-C came while this call was scheduled: the caller raises it."},
	{NULL},
};

static PyMemberDef FrameOutput_members[] = {
	{"scheduled", T_BOOL, offsetof(FrameOutput, scheduled), READONLY, "whether `pass_ends` will be called"},
	{NULL},
};

static PyType_Slot FrameOutput_slots[] = {
	{Py_tp_doc, "FrameOutput(source, route, transmit, pass_ends): see aiofabric/rpc/runtime/transport.py. Calling it with a\n"
		    "frame sends that now, and returns True, or returns False if the frame must wait for `pass_ends`."},
	{Py_tp_init, FrameOutput_init},
	{Py_tp_call, FrameOutput_call},
	{Py_tp_dealloc, FrameOutput_dealloc},
	{Py_tp_traverse, FrameOutput_traverse},
	{Py_tp_clear, FrameOutput_clear},
	{Py_tp_methods, FrameOutput_methods},
	{Py_tp_members, FrameOutput_members},
	{0, NULL},
};

static PyType_Spec FrameOutput_spec = {
	"aiofabric._core.FrameOutput", sizeof(FrameOutput), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, FrameOutput_slots,
};

int add_frame_output(PyObject *module)
{
	return add_type(module, &FrameOutput_spec, NULL, &FrameOutput_Type);
}
