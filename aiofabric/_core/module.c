/* The module: its types are made in the files named after them. */
#include "base/awaitable.h"
#include "base/call.h"
#include "base/coroutine.h"
#include "base/fast_method.h"
#include "base/fifo.h"
#include "base/plain_buffer.h"
#include "base/references.h"
#include "base/thread_check.h"
#include "channel/channel.h"
#include "channel/data_waiter.h"
#include "channel/frames.h"
#include "channel/message_reader.h"
#include "channel/outbox.h"
#include "channel/reading.h"
#include "channel/sending.h"
#include "channel/stream.h"
#include "endpoint/fast_path.h"
#include "messages/assembly.h"
#include "messages/inbox.h"
#include "messages/loan.h"
#include "messages/message.h"
#include "messages/next_message.h"
#include "messages/pool_buffer.h"
#include "messages/receive.h"
#include "messages/receive_pool.h"
#include "messages/receive_waiter.h"
#include "messages/send.h"
#include "messages/unpack.h"
#include "operations/operation.h"
#include "operations/registry.h"
#include "operations/slots.h"
#include "progress/arming.h"
#include "progress/completions.h"
#include "progress/progress.h"
#include "progress/source.h"
#include "queue/coalescing.h"
#include "queue/completion_queue.h"
#include "queue/polling.h"
#include "queue/waiter.h"
#include "queue/wakeups.h"
#include "rpc/call.h"
#include "rpc/client_frames.h"
#include "rpc/connection.h"
#include "rpc/frame_output.h"
#include "rpc/frames.h"
#include "rpc/handler.h"
#include "rpc/handling.h"
#include "rpc/message.h"
#include "rpc/response.h"
#include "rpc/server_frames.h"
#include "rpc/stub.h"
#include "rpc/task_set.h"
#include "submission/injection.h"
#include "submission/pending_result.h"
#include "submission/posting.h"
#include "submission/submission.h"
#include "submission/transfer.h"

/* Types and names are made once in a process, and objects of one interpreter must not reach another one. */
static PyObject *check_interpreter(PyObject *module, PyObject *unused)
{
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
		Py_RETURN_NONE;
	PyErr_SetString(PyExc_ImportError,
			"aiofabric works in the main interpreter only: import it there, not in a sub-interpreter");
	return NULL;
}

/* A reference that nothing gives back: module globals are cleared before the last collection of garbage. */
static PyObject *keep_for_ever(PyObject *module, PyObject *object)
{
	Py_INCREF(object);
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"check_interpreter", check_interpreter, METH_NOARGS, "Raises ImportError in a sub-interpreter."},
	{"keep_for_ever", keep_for_ever, METH_O, "Keep an object until the process has ended."},
	{NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_core", "See aiofabric/_core/__init__.py.", -1, functions,
};

PyMODINIT_FUNC PyInit__core(void)
{
	/* A type that inherits from another one comes after it. */
	static int (*const add[])(PyObject *) = {
		add_awaitable, add_coroutine, add_call, add_fifo, add_thread_check, add_slots, add_registry,
		add_operation, add_polling, add_completion_queue, add_coalescing, add_wakeups, add_waiter,
		add_source, add_completions, add_arming, add_progress, add_submission, add_transfer, add_posting,
		add_injection, add_pending_result, add_message, add_inbox, add_receive_pool, add_pool_buffer,
		add_unpack, add_loan, add_receive_waiter, add_next_message, add_send, add_receive,
		add_assembly, add_rpc_call, add_frame_output, add_rpc_connection, add_rpc_client_frames,
		add_rpc_server_frames, add_rpc_frames, add_rpc_message, add_rpc_response, add_rpc_stub, add_task_set,
		add_rpc_handling, add_rpc_handler, add_fast_method, add_fast_path, add_plain_buffer, add_outbox,
		add_channel, add_channel_sending, add_channel_reading, add_channel_frames, add_message_reader,
		add_data_waiter, add_stream,
	};
	PyObject *module = PyModule_Create(&definition);

	for (size_t i = 0; module && i < sizeof(add) / sizeof(*add); i++)
		if (add[i](module))
			Py_CLEAR(module);
#ifdef NDEBUG
	if (module && PyModule_AddIntConstant(module, "ASSERTIONS", 0))
#else
	if (module && PyModule_AddIntConstant(module, "ASSERTIONS", 1))
#endif
		Py_CLEAR(module);
	return module;
}
