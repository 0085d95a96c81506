/* Messages of RPC as bytes: what a serializer returns is checked here. */
#include "rpc/message.h"
#include "base/names.h"
#include "base/references.h"

PyObject *rpc_serialized(PyObject *message, PyObject *serializer)
{
	PyObject *data = serializer == Py_None ? new_ref(message) : PyObject_CallFunctionObjArgs(serializer, message, NULL);
	PyObject *name;

	if (!data || PyBytes_Check(data))
		return data;
	name = PyType_GetName(type_of(data));
	if (name)
		PyErr_Format(PyExc_TypeError, "A message must be bytes when it is sent, not %U: give a serializer", name);
	Py_XDECREF(name);
	Py_DECREF(data);
	return NULL;
}

PyObject *rpc_serialized_response(PyObject *message, PyObject *serializer)
{
	PyObject *text = PyUnicode_Check(message) ? PyUnicode_AsUTF8String(message) : new_ref(message);
	PyObject *data = text ? rpc_serialized(text, serializer) : NULL;

	Py_XDECREF(text);
	return data;
}

static PyObject *core_serialized(PyObject *module, PyObject *args)
{
	PyObject *message, *serializer;
	int of_server = 0;

	if (!PyArg_ParseTuple(args, "OO|p", &message, &serializer, &of_server))
		return NULL;
	return of_server ? rpc_serialized_response(message, serializer) : rpc_serialized(message, serializer);
}

static PyMethodDef functions[] = {
	{"serialized", core_serialized, METH_VARARGS,
	 "serialized(message, serializer, of_server=False): the bytes of a message. A server may send text, as in grpc.aio."},
	{NULL},
};

int add_rpc_message(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
