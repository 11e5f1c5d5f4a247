/* Batches that go: pairs to a body, and messages to those of each stream.

   Twins: `msgpack.packb`, `_split_runs` of oz.protocol.publisher.batching. */

#include "hot.h"
#include <string.h>

/* Packing -------------------------------------------------------------------------------------------------------- */

static PyObject *pack_any;

PyDoc_STRVAR(know_packer_doc, "know_packer(pack)\n\nSay what packs that which `pack` does not: its twin.");

static PyObject *
know_packer(PyObject *Py_UNUSED(module), PyObject *pack)
{
    Py_XSETREF(pack_any, Py_NewRef(pack));
    Py_RETURN_NONE;
}

/* The bytes that some items of a list take at most, packed; -1 where one is something else than short bytes. */
static Py_ssize_t
packed_size(PyObject *items, Py_ssize_t start, Py_ssize_t end)
{
    Py_ssize_t size = 3;
    for (Py_ssize_t place = start; place < end; place++) {
        PyObject *item = PyList_GET_ITEM(items, place);
        if (!PyBytes_CheckExact(item) || PyBytes_GET_SIZE(item) > 0xffff) {
            return -1;
        }
        size += 3 + PyBytes_GET_SIZE(item);
    }
    return size;
}

static inline char *
put_bytes(char *at, PyObject *item)
{
    Py_ssize_t size = PyBytes_GET_SIZE(item);
    if (size > 0xff) {
        *at++ = (char)BIN_16;
        *at++ = (char)(size >> 8);
    }
    else {
        *at++ = (char)BIN_8;
    }
    *at++ = (char)size;
    memcpy(at, PyBytes_AS_STRING(item), size);
    return at + size;
}

/* Put the header of an array of so many items, 65,535 at most. */
static char *
put_header(char *at, Py_ssize_t count)
{
    if (count > 15) {
        *at++ = (char)ARRAY_16;
        *at++ = (char)(count >> 8);
        *at++ = (char)count;
    }
    else {
        *at++ = (char)(FIXARRAY | count);
    }
    return at;
}

/* Pack items of a list that take so many bytes at most, as an array or as a part of one; NULL with an exception. */
static PyObject *
pack_items(PyObject *items, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size, int is_whole)
{
    PyObject *packed = PyBytes_FromStringAndSize(NULL, size);
    if (packed == NULL) {
        return NULL;
    }
    char *begin = PyBytes_AS_STRING(packed), *at = is_whole ? put_header(begin, end - start) : begin;
    for (Py_ssize_t place = start; place < end; place++) {
        at = put_bytes(at, PyList_GET_ITEM(items, place));
    }
    /* On failure it gives NULL, with an exception. */
    _PyBytes_Resize(&packed, at - begin);
    return packed;
}

PyDoc_STRVAR(pack_doc, "pack(items) -> bytes\n\nPack a list as a MessagePack array.");

static PyObject *
pack(PyObject *Py_UNUSED(module), PyObject *items)
{
    Py_ssize_t count = PyList_CheckExact(items) ? PyList_GET_SIZE(items) : -1;
    Py_ssize_t size = count < 0 || count > 0xffff ? -1 : packed_size(items, 0, count);
    if (size >= 0) {
        return pack_items(items, 0, count, size, 1);
    }
    if (pack_any == NULL) {
        return PyErr_Format(PyExc_TypeError, "pack() takes a list of short bytes");
    }
    return PyObject_CallOneArg(pack_any, items);
}

/* Splitting ------------------------------------------------------------------------------------------------------ */

static struct {
    PyTypeObject *type;
    Py_ssize_t streams, is_simple;
} recipients;

PyDoc_STRVAR(know_recipients_doc,
"know_recipients(recipients_class)\n\n"
"Say of which class recipients are. TypeError where it lacks the slots.");

static PyObject *
know_recipients(PyObject *Py_UNUSED(module), PyObject *type)
{
    Py_ssize_t streams, is_simple;
    if (!PyType_Check(type)) {
        return PyErr_Format(PyExc_TypeError, "know_recipients() takes a class");
    }
    if ((streams = hot_offset((PyTypeObject *)type, "streams")) < 0 ||
        (is_simple = hot_offset((PyTypeObject *)type, "is_simple")) < 0) {
        return NULL;
    }
    recipients.type = (PyTypeObject *)Py_NewRef(type);
    recipients.streams = streams;
    recipients.is_simple = is_simple;
    Py_RETURN_NONE;
}

PyObject *
hot_simple_streams(PyObject *some)
{
    if (!Py_IS_TYPE(some, recipients.type) || hot_get(some, recipients.is_simple) != Py_True) {
        return NULL;
    }
    PyObject *streams = hot_get(some, recipients.streams);
    return streams != NULL && PyTuple_CheckExact(streams) ? streams : NULL;
}

/* Number messages from a position on; NULL with an exception. */
static PyObject *
number_run(unsigned long long position, Py_ssize_t count)
{
    PyObject *numbers = PyList_New(count);
    for (Py_ssize_t place = 0; numbers != NULL && place < count; place++) {
        PyObject *number = PyLong_FromUnsignedLongLong(position + place);
        if (number == NULL) {
            Py_CLEAR(numbers);
            break;
        }
        PyList_SET_ITEM(numbers, place, number);
    }
    return numbers;
}

/* Give a stream packed messages and their positions; false with an exception. */
static int
give_run(PyObject *batches, PyObject *stream, PyObject *packed, PyObject *numbers)
{
    PyObject *batch = PyDict_GetItemWithError(batches, stream);
    if (batch == NULL) {
        batch = PyErr_Occurred() ? NULL : Py_BuildValue("([][])");
        int failed = batch == NULL ? -1 : PyDict_SetItem(batches, stream, batch);
        Py_XDECREF(batch);
        if (failed) {
            return 0;
        }
    }
    PyObject *parts = PyTuple_GET_ITEM(batch, 0), *positions = PyTuple_GET_ITEM(batch, 1);
    Py_ssize_t length = PyList_GET_SIZE(positions);
    return PyList_Append(parts, packed) == 0 && PyList_SetSlice(positions, length, length, numbers) == 0;
}

/* Pack a run of messages for all who get it; false where one is not plain, or with an exception. */
static int
split_run(PyObject *batches, PyObject *streams, PyObject *items, Py_ssize_t start, Py_ssize_t end,
          unsigned long long first)
{
    Py_ssize_t size = packed_size(items, 2 * start, 2 * end);
    PyObject *packed = size < 0 ? NULL : pack_items(items, 2 * start, 2 * end, size, 0);
    PyObject *numbers = packed == NULL ? NULL : number_run(first + start, end - start);
    int is_given = numbers != NULL;
    for (Py_ssize_t place = 0; is_given && place < PyTuple_GET_SIZE(streams); place++) {
        is_given = give_run(batches, PyTuple_GET_ITEM(streams, place), packed, numbers);
    }
    Py_XDECREF(packed);
    Py_XDECREF(numbers);
    return is_given;
}

PyDoc_STRVAR(split_doc,
"split(recipients, items, first) -> dict | None\n\n"
"Give each stream its messages, packed, and their positions. None where some are not plain.");

static PyObject *
split(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 3 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
        2 * PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1]) || recipients.type == NULL) {
        return PyErr_Format(PyExc_TypeError, "split() takes recipients, two items for each, and a position");
    }
    PyObject *sets = arguments[0], *items = arguments[1], *batches = PyDict_New();
    unsigned long long first = PyLong_AsUnsignedLongLong(arguments[2]);
    Py_ssize_t count = PyList_GET_SIZE(sets), end;
    int is_plain = batches != NULL && !PyErr_Occurred();
    for (Py_ssize_t start = 0; is_plain && start < count; start = end) {
        PyObject *one = PyList_GET_ITEM(sets, start), *streams = hot_simple_streams(one);
        for (end = start + 1; end < count && PyList_GET_ITEM(sets, end) == one; end++) {
        }
        is_plain = streams != NULL &&
                   (PyTuple_GET_SIZE(streams) == 0 || split_run(batches, streams, items, start, end, first));
    }
    if (!is_plain) {
        Py_XDECREF(batches);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return batches;
}

PyMethodDef hot_packing_methods[] = {
    {"know_packer", know_packer, METH_O, know_packer_doc},
    {"pack", pack, METH_O, pack_doc},
    {"know_recipients", know_recipients, METH_O, know_recipients_doc},
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, split_doc},
    {NULL, NULL, 0, NULL},
};
