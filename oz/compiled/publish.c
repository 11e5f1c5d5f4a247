/* Publishing, where the message joins others that wait, or nobody wants it.

   Twin: the function that `Sender.shortcut` of oz.transport.publisher.sender makes. */

#include "hot.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *twin, *flush, *quick, *waiting, *dispatch, *accumulator, *stats;
    Py_ssize_t is_blocked, limit, unwanted;
    Py_ssize_t large, look_every;
} Publish;

/* Count a message that nobody wants; false where the twin is to do that, or with an exception. */
static int
count_unwanted(Publish *self)
{
    PyObject *before = hot_get(self->stats, self->unwanted);
    long long count = before != NULL && PyLong_CheckExact(before) ? PyLong_AsLongLong(before) : -1;
    if (count < 0 || count == LLONG_MAX) {
        /* More than fit are left to the twin. */
        PyErr_Clear();
        return 0;
    }
    if (self->look_every && !((count + 1) % self->look_every)) {
        return 0;
    }
    PyObject *after = PyLong_FromLongLong(count + 1);
    if (after == NULL) {
        return 0;
    }
    hot_fill(self->stats, self->unwanted, after);
    Py_DECREF(before);
    return 1;
}

/* Add a message to those that wait, whole or not at all; -1 with an exception. No other thread comes in between. */
static int
add(PyObject *waiting, PyObject *way, PyObject *payload)
{
    Py_ssize_t length = PyList_GET_SIZE(waiting);
    if (PyList_Append(waiting, PyTuple_GET_ITEM(way, 0)) < 0 || PyList_Append(waiting, PyTuple_GET_ITEM(way, 1)) < 0 ||
        PyList_Append(waiting, payload) < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyList_SetSlice(waiting, length, PyList_GET_SIZE(waiting), NULL);
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    return 0;
}

/* Have a message wait for others; None, or NULL with an exception, or where the twin is to do it without one. */
static PyObject *
join(Publish *self, PyObject *way, PyObject *payload)
{
    PyObject *limit = hot_get(self->accumulator, self->limit);
    if (PyTuple_GET_SIZE(way) != 2 || hot_get(self->dispatch, self->is_blocked) != Py_False ||
        PyList_GET_SIZE(self->waiting) == 0 || limit == NULL || !PyLong_CheckExact(limit)) {
        return NULL;
    }
    Py_ssize_t most = PyLong_AsSsize_t(limit);
    if ((most == -1 && PyErr_Occurred()) || add(self->waiting, way, payload) < 0) {
        return NULL;
    }
    return PyList_GET_SIZE(self->waiting) >= most ? PyObject_CallNoArgs(self->flush) : Py_NewRef(Py_None);
}

static PyObject *
publish_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Publish *self = (Publish *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if ((given == 2 || (given == 3 && arguments[2] == Py_None)) && (names == NULL || !PyTuple_GET_SIZE(names)) &&
        (PyUnicode_CheckExact(arguments[0]) || PyBytes_CheckExact(arguments[0])) &&
        PyBytes_CheckExact(arguments[1]) && PyBytes_GET_SIZE(arguments[1]) < self->large) {
        PyObject *way = PyDict_GetItemWithError(self->quick, arguments[0]);
        PyObject *result = NULL;
        if (way == Py_None) {
            result = count_unwanted(self) ? Py_NewRef(Py_None) : NULL;
        }
        else if (way != NULL && PyTuple_CheckExact(way)) {
            /* What another thread learns meanwhile may take it out of the dict. */
            Py_INCREF(way);
            result = join(self, way, arguments[1]);
            Py_DECREF(way);
        }
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return PyObject_Vectorcall(self->twin, arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static int
publish_traverse(Publish *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->twin);
    Py_VISIT(self->flush);
    Py_VISIT(self->quick);
    Py_VISIT(self->waiting);
    Py_VISIT(self->dispatch);
    Py_VISIT(self->accumulator);
    Py_VISIT(self->stats);
    return 0;
}

static void
publish_dealloc(Publish *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->twin);
    Py_XDECREF(self->flush);
    Py_XDECREF(self->quick);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->dispatch);
    Py_XDECREF(self->accumulator);
    Py_XDECREF(self->stats);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
publish_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *twin, *flush, *quick, *waiting, *dispatch, *accumulator, *stats;
    Py_ssize_t large, look_every;
    static char *keywords[] = {"twin",  "flush", "quick", "waiting", "dispatch", "accumulator", "stats",
                               "large", "look_every", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO!O!OOOnn:Publish", keywords, &twin, &flush, &PyDict_Type,
                                     &quick, &PyList_Type, &waiting, &dispatch, &accumulator, &stats, &large,
                                     &look_every)) {
        return NULL;
    }
    Py_ssize_t is_blocked = hot_offset(Py_TYPE(dispatch), "is_blocked");
    Py_ssize_t limit = is_blocked < 0 ? -1 : hot_offset(Py_TYPE(accumulator), "limit");
    Py_ssize_t unwanted = limit < 0 ? -1 : hot_offset(Py_TYPE(stats), "unwanted");
    Publish *self = unwanted < 0 ? NULL : (Publish *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = publish_call;
    self->twin = Py_NewRef(twin);
    self->flush = Py_NewRef(flush);
    self->quick = Py_NewRef(quick);
    self->waiting = Py_NewRef(waiting);
    self->dispatch = Py_NewRef(dispatch);
    self->accumulator = Py_NewRef(accumulator);
    self->stats = Py_NewRef(stats);
    self->is_blocked = is_blocked;
    self->limit = limit;
    self->unwanted = unwanted;
    self->large = large;
    self->look_every = look_every;
    return (PyObject *)self;
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Publish, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Publish, twin), READONLY, PyDoc_STR("The twin.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, PyDoc_STR("Publish one message: see oz.compiled.Hot.")},
    {Py_tp_new, publish_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, publish_traverse},
    {Py_tp_dealloc, publish_dealloc},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec hot_publish_spec = {
    .name = "oz.compiled._hot.Publish",
    .basicsize = sizeof(Publish),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
