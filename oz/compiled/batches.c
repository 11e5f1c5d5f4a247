/* Batches that come: bodies to columns with routes.

   Twin: `read_columns` of oz.protocol.subscriber.columns. */

#include "hot.h"
#include <string.h>


typedef struct {
    const unsigned char *at;
    const unsigned char *end;
} Reader;

/* Take a number of so many bytes; -1 where they are not there. */
static inline Py_ssize_t
take_number(Reader *reader, int width)
{
    if (reader->end - reader->at < width) {
        return -1;
    }
    size_t number = 0;
    for (int place = 0; place < width; place++) {
        number = number << 8 | *reader->at++;
    }
    return number > PY_SSIZE_T_MAX ? -1 : (Py_ssize_t)number;
}

/* Take the header of an array; -1 where it is something else. */
static Py_ssize_t
take_array(Reader *reader)
{
    if (reader->at >= reader->end) {
        return -1;
    }
    unsigned char mark = *reader->at++;
    if ((mark & 0xf0) == FIXARRAY) {
        return mark & 0x0f;
    }
    return mark == ARRAY_16 ? take_number(reader, 2) : mark == ARRAY_32 ? take_number(reader, 4) : -1;
}

/* Take bytes, and make an object of them; NULL where it is something else, or with an exception. */
static inline PyObject *
take_bytes(Reader *reader)
{
    if (reader->at >= reader->end) {
        return NULL;
    }
    unsigned char mark = *reader->at++;
    if (mark < BIN_8 || mark > BIN_32) {
        return NULL;
    }
    Py_ssize_t size = take_number(reader, 1 << (mark - BIN_8));
    if (size < 0 || reader->end - reader->at < size) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)reader->at, size);
    reader->at += size;
    return bytes;
}

/* Read messages into lists that are long enough; false where one is not plain, or with an exception. */
static int
read_pairs(Reader *reader, PyObject *subjects, PyObject *payloads)
{
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(subjects); place++) {
        PyObject *subject = take_bytes(reader);
        if (subject == NULL) {
            return 0;
        }
        PyList_SET_ITEM(subjects, place, subject);
        PyObject *payload = take_bytes(reader);
        if (payload == NULL) {
            return 0;
        }
        PyList_SET_ITEM(payloads, place, payload);
    }
    return reader->at == reader->end;
}

/* The route of each subject; None where one is not known, NULL with an exception. */
static PyObject *
find_routes(PyObject *known, PyObject *subjects)
{
    Py_ssize_t count = PyList_GET_SIZE(subjects);
    PyObject *routes = PyList_New(count);
    for (Py_ssize_t place = 0; routes != NULL && place < count; place++) {
        PyObject *route = PyDict_GetItemWithError(known, PyList_GET_ITEM(subjects, place));
        if (route == NULL) {
            Py_SETREF(routes, PyErr_Occurred() ? NULL : Py_NewRef(Py_None));
            break;
        }
        PyList_SET_ITEM(routes, place, Py_NewRef(route));
    }
    return routes;
}

PyDoc_STRVAR(unpack_doc,
"unpack(frame, at, count, known) -> (subjects, payloads, routes | None) | None\n\n"
"Read a body of `count` messages that are bytes alone, with the route of each if all are known. None for any\n"
"other body.");

static PyObject *
unpack(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 4 || !PyBytes_CheckExact(arguments[0]) || !PyDict_CheckExact(arguments[3])) {
        return PyErr_Format(PyExc_TypeError, "unpack() takes bytes, two numbers and a dict");
    }
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]);
    Py_ssize_t count = PyLong_AsSsize_t(arguments[2]);
    if ((at == -1 || count == -1) && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[0]);
    if (at < 0 || at > size || count < 1) {
        Py_RETURN_NONE;
    }
    const unsigned char *start = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    Reader reader = {start + at, start + size};
    /* A message takes four bytes at least: no more is made than has come. */
    if (count > size / 4 || take_array(&reader) != 2 * count) {
        Py_RETURN_NONE;
    }
    PyObject *result = NULL, *subjects = PyList_New(count), *payloads = PyList_New(count);
    if (subjects != NULL && payloads != NULL) {
        if (read_pairs(&reader, subjects, payloads)) {
            PyObject *routes = find_routes(arguments[3], subjects);
            result = routes == NULL ? NULL : Py_BuildValue("OON", subjects, payloads, routes);
        }
        else if (!PyErr_Occurred()) {
            result = Py_NewRef(Py_None);
        }
    }
    Py_XDECREF(subjects);
    Py_XDECREF(payloads);
    return result;
}

PyMethodDef hot_batch_methods[] = {
    {"unpack", (PyCFunction)(void (*)(void))unpack, METH_FASTCALL, unpack_doc},
    {NULL, NULL, 0, NULL},
};
