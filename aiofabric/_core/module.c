/* The module: its types are made in the files named after them. */
#include "arming.h"
#include "assembly.h"
#include "awaitable.h"
#include "call.h"
#include "coalescing.h"
#include "completion_queue.h"
#include "completions.h"
#include "coroutine.h"
#include "fast_path.h"
#include "fifo.h"
#include "frame_output.h"
#include "inbox.h"
#include "injection.h"
#include "length_prefix.h"
#include "message.h"
#include "next_message.h"
#include "operation.h"
#include "pending_result.h"
#include "plain_buffer.h"
#include "polling.h"
#include "pool_buffer.h"
#include "posting.h"
#include "progress.h"
#include "receive.h"
#include "receive_pool.h"
#include "receive_waiter.h"
#include "references.h"
#include "registry.h"
#include "rpc_call.h"
#include "rpc_client_frames.h"
#include "rpc_connection.h"
#include "rpc_frames.h"
#include "rpc_handler.h"
#include "rpc_handling.h"
#include "rpc_message.h"
#include "rpc_response.h"
#include "rpc_server_frames.h"
#include "rpc_stub.h"
#include "send.h"
#include "slots.h"
#include "source.h"
#include "submission.h"
#include "task_set.h"
#include "thread_check.h"
#include "transfer.h"
#include "unpack.h"
#include "waiter.h"
#include "wakeups.h"

/* Types and names are made once in a process, and objects of one interpreter must not reach another one. */
static PyObject *check_interpreter(PyObject *module, PyObject *unused)
{
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
		Py_RETURN_NONE;
	PyErr_SetString(PyExc_ImportError,
			"aiofabric works in the main interpreter only: import it there, not in a sub-interpreter");
	return NULL;
}

static PyMethodDef functions[] = {
	{"check_interpreter", check_interpreter, METH_NOARGS, "Raises ImportError in a sub-interpreter."},
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
		add_unpack, add_receive_waiter, add_next_message, add_send, add_receive, add_length_prefix,
		add_assembly, add_rpc_call, add_frame_output, add_rpc_connection, add_rpc_client_frames,
		add_rpc_server_frames, add_rpc_frames, add_rpc_message, add_rpc_response, add_rpc_stub, add_task_set,
		add_rpc_handling, add_rpc_handler, add_fast_path, add_plain_buffer,
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
