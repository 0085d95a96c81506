/*
 * Refuses buffers that hold pointers, such as numpy's arrays of objects: a peer cannot use an address of this process,
 * and an address that a peer wrote crashes it. The format of a buffer has them as PEP 3118, ctypes and numpy write it.
 */
#include "base/plain_buffer.h"

static int holds_pointers(const char *format)
{
	for (; *format; format++)
		switch (*format) {
		case ':': /* the name of a field: to the next colon */
			format = strchr(format + 1, ':');
			if (!format)
				return 0;
			break;
		case 'Z': /* a complex number, or ctypes' pointer to wide characters */
			if (!format[1] || !strchr("fdgFDG", format[1]))
				return 1;
			format++;
			break;
		case 'O':
		case 'P':
		case 'X': /* of a function */
		case 'z':
		case '&':
			return 1;
		}
	return 0;
}

int refuse_pointers(PyObject *object)
{
	Py_buffer view;

	if (PyBytes_Check(object) || PyByteArray_Check(object) || !PyObject_CheckBuffer(object))
		return 0;
	if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO)) {
		if (!PyErr_ExceptionMatches(PyExc_Exception))
			return -1; /* Ctrl-C in a buffer written in Python */
		PyErr_Clear(); /* numpy's dates have no format; any other error comes again when the buffer is used */
		return 0;
	}
	if (view.format && holds_pointers(view.format)) {
		PyObject *exporter = PyType_GetName(Py_TYPE(object));

		if (exporter)
			PyErr_Format(PyExc_TypeError,
				     "this %U holds pointers (its format is '%.100s'), which mean nothing in another process: "
				     "pass the values themselves, such as an array of numbers or the bytes of pickle.dumps()",
				     exporter, view.format);
		Py_XDECREF(exporter);
	}
	PyBuffer_Release(&view);
	return PyErr_Occurred() ? -1 : 0;
}

static PyObject *refuse(PyObject *module, PyObject *object)
{
	if (refuse_pointers(object))
		return NULL;
	Py_RETURN_NONE;
}

int add_plain_buffer(PyObject *module)
{
	static PyMethodDef functions[] = {
		{"refuse_pointers", refuse, METH_O, "Raise TypeError for a buffer that holds pointers."},
		{NULL},
	};

	return PyModule_AddFunctions(module, functions);
}
