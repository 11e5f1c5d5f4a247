/* Publishing, where the message joins others that wait, goes to plain subscriptions alone, or nobody wants it.

   Twin: the function that `Sender.shortcut` of oz.transport.publisher.sender makes. */

#include "hot.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *twin, *flush, *quick, *waiting, *dispatch, *accumulator, *stats, *sender, *monotonic, *try_plain;
    Py_ssize_t is_blocked, limit, unwanted, is_unheard, is_behind, listened_at;
    Py_ssize_t large, look_every;
    double listen_every;
} Publish;

/* Count a message that nobody wants; false where the twin is to do that. */
static int
count_unwanted(Publish *self)
{
    PyObject *before = hot_get(self->stats, self->unwanted);
    if (self->look_every && before != NULL && PyLong_CheckExact(before)) {
        long long count = PyLong_AsLongLong(before);
        if (count < 0 || !((count + 1) % self->look_every)) {
            PyErr_Clear();
            return 0;
        }
    }
    return hot_count(self->stats, self->unwanted, -1);
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

/* Tell whether a plain message may go without a look: somebody else was told to look soon; -1 with an exception. */
static int
needs_no_look(Publish *self)
{
    PyObject *listened_at = hot_get(self->sender, self->listened_at);
    if (hot_get(self->sender, self->is_unheard) != Py_True || listened_at == NULL || !PyFloat_CheckExact(listened_at)) {
        return 0;
    }
    if (hot_get(self->sender, self->is_behind) == Py_True) {
        return 1;
    }
    double then = PyFloat_AS_DOUBLE(listened_at);
    PyObject *now = PyObject_CallNoArgs(self->monotonic);
    double seconds = now == NULL ? -1.0 : PyFloat_AsDouble(now) - then;
    Py_XDECREF(now);
    return PyErr_Occurred() ? -1 : seconds < self->listen_every;
}

/* Hand a message to ZeroMQ; None, or NULL with an exception, or where the twin is to do it without one. */
static PyObject *
send_plain(Publish *self, PyObject *way, PyObject *payload)
{
    if (PyBytes_GET_SIZE(way) == 0 || needs_no_look(self) <= 0) {
        return NULL;
    }
    PyObject *is_sent = PyObject_CallFunctionObjArgs(self->try_plain, way, payload, NULL);
    if (is_sent == Py_False) {
        Py_CLEAR(is_sent);
    }
    else if (is_sent != NULL) {
        Py_SETREF(is_sent, Py_NewRef(Py_None));
    }
    return is_sent;
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
        else if (way != NULL && PyBytes_CheckExact(way)) {
            Py_INCREF(way);
            result = send_plain(self, way, arguments[1]);
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
    Py_VISIT(self->sender);
    Py_VISIT(self->monotonic);
    Py_VISIT(self->try_plain);
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
    Py_XDECREF(self->sender);
    Py_XDECREF(self->monotonic);
    Py_XDECREF(self->try_plain);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
publish_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *twin, *flush, *quick, *waiting, *dispatch, *accumulator, *stats, *sender, *monotonic, *try_plain;
    Py_ssize_t large, look_every;
    double listen_every;
    static char *keywords[] = {"twin",      "flush",     "quick", "waiting",    "dispatch",     "accumulator", "stats", "sender",
                               "monotonic", "try_plain", "large", "look_every", "listen_every", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO!O!OOOOOOnnd:Publish", keywords, &twin, &flush, &PyDict_Type,
                                     &quick, &PyList_Type, &waiting, &dispatch, &accumulator, &stats, &sender,
                                     &monotonic, &try_plain, &large, &look_every, &listen_every)) {
        return NULL;
    }
    Py_ssize_t is_blocked = hot_offset(Py_TYPE(dispatch), "is_blocked");
    Py_ssize_t limit = is_blocked < 0 ? -1 : hot_offset(Py_TYPE(accumulator), "limit");
    Py_ssize_t unwanted = limit < 0 ? -1 : hot_offset(Py_TYPE(stats), "unwanted");
    Py_ssize_t is_unheard = unwanted < 0 ? -1 : hot_offset(Py_TYPE(sender), "is_unheard");
    Py_ssize_t is_behind = is_unheard < 0 ? -1 : hot_offset(Py_TYPE(sender), "is_behind");
    Py_ssize_t listened_at = is_behind < 0 ? -1 : hot_offset(Py_TYPE(sender), "listened_at");
    Publish *self = listened_at < 0 ? NULL : (Publish *)type->tp_alloc(type, 0);
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
    self->sender = Py_NewRef(sender);
    self->monotonic = Py_NewRef(monotonic);
    self->try_plain = Py_NewRef(try_plain);
    self->is_blocked = is_blocked;
    self->limit = limit;
    self->unwanted = unwanted;
    self->large = large;
    self->look_every = look_every;
    self->is_unheard = is_unheard;
    self->is_behind = is_behind;
    self->listened_at = listened_at;
    self->listen_every = listen_every;
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
