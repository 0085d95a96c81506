/* The next message of an inbox: taken if it is there, polled for, or waited for. */
#include "messages/next_message.h"
#include "base/call.h"
#include "base/exceptions.h"
#include "base/fifo.h"
#include "base/names.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "messages/inbox.h"
#include "messages/receive_waiter.h"
#include "messages/unpack.h"
#include "progress/arming.h"
#include "progress/iteration.h"
#include "progress/source.h"

static PyObject *name_all_lent, *name_check_receivable, *name_next_after, *name_message_refused;

/* Take the oldest message. `room` is the caller's, or NULL. */
static PyObject *first(InboxCore *self, PyObject *room)
{
	PyObject *item = fifo_popleft(self->inbox);

	if (!item)
		return NULL;
	if (PyExceptionInstance_Check(item)) {
		self->returned -= self->returned > 0;
		if (!drop(PyObject_CallMethodObjArgs((PyObject *) self, name_message_refused, NULL)))
			PyErr_SetObject((PyObject *) type_of(item), item);
		Py_DECREF(item);
		return NULL;
	}
	if (room && inbox_too_long(self, item, room)) {
		fifo_insert(self->inbox, 0, item);
		Py_DECREF(item);
		return NULL;
	}
	self->returned -= self->returned > 0;
	return item;
}

static int optional_room(PyObject *args, PyObject **room)
{
	*room = NULL;
	if (!PyArg_ParseTuple(args, "|O", room))
		return -1;
	if (*room == Py_None)
		*room = NULL;
	return 0;
}

/* The next message if it is there, or arrives during a poll; NULL without an exception if there is none. */
static PyObject *take(InboxCore *self, PyObject *room)
{
	SourceCore *source = self->source;

	if (!self->inbox->count) {
		if (source->checkpoints || self->ended != Py_None || source_poll(source) || !self->inbox->count)
			return NULL;
		iteration_return(&source->iteration);
	} else if (source->checkpoints || !iteration_allows_return(&source->iteration)) {
		return NULL;
	}
	return first(self, room);
}

static PyObject *none_unless(PyObject *item)
{
	if (item || PyErr_Occurred())
		return item;
	Py_RETURN_NONE;
}

static PyObject *InboxCore_take(InboxCore *self, PyObject *args)
{
	PyObject *room;

	return optional_room(args, &room) ? NULL : none_unless(take(self, room));
}

static PyObject *InboxCore_first(InboxCore *self, PyObject *args)
{
	PyObject *room;

	return optional_room(args, &room) ? NULL : first(self, room);
}

/* Join the waiting tasks; returns the awaitable of the message. */
static PyObject *enlist(InboxCore *self, PyObject *room, PyObject *receiver)
{
	ReceiveWaiter *arrival;

	if (self->lent && self->lent >= self->count
	    && drop(PyObject_CallMethodObjArgs((PyObject *) self, name_all_lent, NULL)))
		return NULL;
	arrival = receive_waiter_new(self, receiver, room);
	if (arrival && source_prepare_wait(self->source)) {
		Py_DECREF((PyObject *) arrival); /* this removes it from the list */
		return NULL;
	}
	return (PyObject *) arrival;
}

static int next_arguments(PyObject *const *args, Py_ssize_t count, PyObject **room, PyObject **receiver)
{
	*room = count > 0 && args[0] != Py_None ? args[0] : NULL;
	*receiver = count > 1 && args[1] != Py_None ? args[1] : NULL;
	if (count <= 2)
		return 0;
	raise_arguments("room and receiver at most", count);
	return -1;
}

static PyObject *InboxCore_enlist(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *room, *receiver;

	return next_arguments(args, count, &room, &receiver) ? NULL : enlist(self, room, receiver);
}

static PyObject *next(InboxCore *self, PyObject *room, PyObject *receiver)
{
	SourceCore *source = self->source;

	if (source->checkpoints || self->inbox->count || source->iteration.must_iterate || self->ended != Py_None)
		return PyObject_CallMethodObjArgs((PyObject *) self, name_next_after, room ? room : Py_None,
						  receiver ? receiver : Py_None, NULL);
	return enlist(self, room, receiver);
}

static PyObject *InboxCore_next(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	PyObject *room, *receiver;

	return next_arguments(args, count, &room, &receiver) ? NULL : next(self, room, receiver);
}

static int begin_to_receive(Call *call, PyObject **result)
{
	InboxCore *self = (InboxCore *) call->target;
	PyObject *receiver = call->first, *item;

	if (!thread_check_admits((ThreadCheck *) call->second) &&
	    drop(PyObject_CallMethodObjArgs(receiver, name_check_receivable, NULL)))
		return -1;
	item = take(self, NULL);
	if (item) {
		*result = inbox_unpack(self, receiver, item);
		Py_DECREF(item);
		return *result ? 1 : -1;
	}
	if (PyErr_Occurred())
		return -1;
	call->base.steps = next(self, NULL, receiver);
	return call->base.steps ? 0 : -1;
}

PyObject *receive_call(InboxCore *self, PyObject *receiver, ThreadCheck *thread_check)
{
	return call_new(begin_to_receive, "Receives.recv", self, receiver, (PyObject *) thread_check);
}

static PyObject *InboxCore_receiving(InboxCore *self, PyObject *const *args, Py_ssize_t count)
{
	if (count == 2 && Py_IS_TYPE(args[1], ThreadCheck_Type))
		return receive_call(self, args[0], (ThreadCheck *) args[1]);
	raise_arguments("receiving(receiver, ThreadCheck)", count);
	return NULL;
}

static PyMethodDef methods[] = {
	{"take", (PyCFunction) InboxCore_take, METH_VARARGS,
	 "The next message's buffer if it is there, or arrives during a poll; None: use `next`."},
	{"receiving", (PyCFunction) (void (*)(void)) InboxCore_receiving, METH_FASTCALL,
	 "receiving(receiver, thread_check): a coroutine that returns the next message, copied, for this receiver."},
	{"first", (PyCFunction) InboxCore_first, METH_VARARGS,
	 "The oldest message of the inbox; raises as `next` does."},
	{"next", (PyCFunction) (void (*)(void)) InboxCore_next, METH_FASTCALL,
	 "next(room=None, receiver=None): for a caller that got None from `take`. Awaited at once, it returns the\n"
	 "next message's buffer, to be released with `recycle` or returned with `_requeue`, or the receiver's `Message`, in\n"
	 "order of arrival.\n\n"
	 "Raises:\n"
	 "    TruncatedMessageError: the message is longer than `room` bytes; it stays the next one.\n"
	 "    BaseException: the endpoint's end, once everything that arrived before was handed out."},
	{"_enlist", (PyCFunction) (void (*)(void)) InboxCore_enlist, METH_FASTCALL,
	 "As `next`, if nothing must run before."},
	{NULL},
};

int add_next_message(PyObject *module)
{
	static const struct name names[] = {
		{&name_all_lent, "_all_lent"}, {&name_check_receivable, "_check_receivable"}, {&name_next_after, "_next_after"},
		{&name_message_refused, "message_refused"}, {NULL},
	};

	return intern(names) ? -1 : add_methods(InboxCore_Type, methods);
}
