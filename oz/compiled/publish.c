/* Publishing, where the message joins others that wait, goes to plain subscriptions alone, or nobody wants it.

   Twin: the function that `short_way` of oz.transport.publisher.publish makes. */

#include "hot.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *twin, *flush, *quick, *waiting, *dispatch, *accumulator, *stats, *sender, *guard, *monotonic, *socket, *error, *alone;
    Py_ssize_t is_blocked, limit, unwanted, sent, is_unheard, is_behind, listened_at, hand_over, flags, listen, is_busy, is_handing_over;
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

/* Send a message that waits for no others; None, or NULL with an exception, or where the twin is to do it without one. */
static PyObject *
send_alone(Publish *self, PyObject *way, PyObject *payload)
{
    if (self->alone == Py_None || PyTuple_GET_SIZE(way) != 2 || hot_get(self->dispatch, self->is_blocked) != Py_False) {
        return NULL;
    }
    PyObject *const given[] = {PyTuple_GET_ITEM(way, 0), PyTuple_GET_ITEM(way, 1), payload};
    PyObject *is_sent = PyObject_Vectorcall(self->alone, given, 3, NULL);
    Py_XDECREF(is_sent);
    return is_sent == Py_True ? Py_NewRef(Py_None) : NULL;
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

/* Count a message that was sent; false with an exception. */
static int
count_sent(Publish *self)
{
    if (hot_count(self->stats, self->sent, -1)) {
        return 1;
    }
    /* More than C counts. */
    PyObject *one = PyLong_FromLong(1), *before = PyObject_GetAttrString(self->stats, "sent");
    PyObject *after = one == NULL || before == NULL ? NULL : PyNumber_Add(before, one);
    int failed = after == NULL ? -1 : PyObject_SetAttrString(self->stats, "sent", after);
    Py_XDECREF(one);
    Py_XDECREF(before);
    Py_XDECREF(after);
    return failed == 0;
}

/* Look for subscriptions where nobody else was told to; false with an exception. */
static int
listen_behind(Publish *self)
{
    PyObject *listen = hot_get(self->sender, self->listen);
    if (listen == NULL || hot_get(self->sender, self->is_unheard) == Py_True) {
        return 1;
    }
    Py_INCREF(listen);
    PyObject *heard = PyObject_CallNoArgs(listen);
    Py_DECREF(listen);
    Py_XDECREF(heard);
    return heard != NULL;
}

/* Hand a message to ZeroMQ; None, or NULL with an exception, or where the twin is to do it without one. */
static PyObject *
send_plain(Publish *self, PyObject *way, PyObject *payload)
{
    PyObject *hand_over = hot_get(self->sender, self->hand_over), *flags = hot_get(self->sender, self->flags);
    /* Whoever has the guard may be what a signal handler has interrupted here: the twin finds out. */
    if (hand_over == NULL || flags == NULL || PyBytes_GET_SIZE(way) == 0 || needs_no_look(self) <= 0 ||
        hot_get(self->guard, self->is_busy) != Py_False || hot_get(self->guard, self->is_handing_over) != Py_False) {
        return NULL;
    }
    PyObject *const given[] = {self->socket, way, payload, flags};
    Py_INCREF(hand_over);
    Py_INCREF(flags);
    PyObject *sent = PyObject_Vectorcall(hand_over, given, 4, NULL);
    Py_DECREF(hand_over);
    Py_DECREF(flags);
    if (sent == NULL) {
        /* Nothing has gone: the twin tries again, and does what is to be done then. */
        if (PyErr_ExceptionMatches(self->error)) {
            PyErr_Clear();
        }
        return NULL;
    }
    Py_DECREF(sent);
    return listen_behind(self) && count_sent(self) ? Py_NewRef(Py_None) : NULL;
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
            result = PyList_GET_SIZE(self->waiting) == 0 ? send_alone(self, way, arguments[1])
                                                         : join(self, way, arguments[1]);
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
    Py_VISIT(self->guard);
    Py_VISIT(self->monotonic);
    Py_VISIT(self->socket);
    Py_VISIT(self->error);
    Py_VISIT(self->alone);
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
    Py_XDECREF(self->guard);
    Py_XDECREF(self->monotonic);
    Py_XDECREF(self->socket);
    Py_XDECREF(self->error);
    Py_XDECREF(self->alone);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
publish_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    Publish said = {0};
    static char *keywords[] = {"twin",   "flush",     "quick",  "waiting", "dispatch", "accumulator", "stats",
                               "sender", "guard",     "monotonic", "socket", "error",  "alone",       "large",
                               "look_every", "listen_every", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO!O!OOOOOOOOOnnd:Publish", keywords, &said.twin, &said.flush,
                                     &PyDict_Type, &said.quick, &PyList_Type, &said.waiting, &said.dispatch,
                                     &said.accumulator, &said.stats, &said.sender, &said.guard, &said.monotonic, &said.socket,
                                     &said.error, &said.alone, &said.large, &said.look_every, &said.listen_every) ||
        (said.is_blocked = hot_offset(Py_TYPE(said.dispatch), "is_blocked")) < 0 ||
        (said.limit = hot_offset(Py_TYPE(said.accumulator), "limit")) < 0 ||
        (said.unwanted = hot_offset(Py_TYPE(said.stats), "unwanted")) < 0 ||
        (said.sent = hot_offset(Py_TYPE(said.stats), "sent")) < 0 ||
        (said.is_unheard = hot_offset(Py_TYPE(said.sender), "is_unheard")) < 0 ||
        (said.is_behind = hot_offset(Py_TYPE(said.sender), "is_behind")) < 0 ||
        (said.listened_at = hot_offset(Py_TYPE(said.sender), "listened_at")) < 0 ||
        (said.hand_over = hot_offset(Py_TYPE(said.sender), "hand_over")) < 0 ||
        (said.flags = hot_offset(Py_TYPE(said.sender), "flags")) < 0 ||
        (said.listen = hot_offset(Py_TYPE(said.sender), "listen")) < 0 ||
        (said.is_busy = hot_offset(Py_TYPE(said.guard), "is_busy")) < 0 ||
        (said.is_handing_over = hot_offset(Py_TYPE(said.guard), "is_handing_over")) < 0) {
        return NULL;
    }
    Publish *self = (Publish *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    said.ob_base = self->ob_base;
    said.vectorcall = publish_call;
    *self = said;
    Py_INCREF(self->twin);
    Py_INCREF(self->flush);
    Py_INCREF(self->quick);
    Py_INCREF(self->waiting);
    Py_INCREF(self->dispatch);
    Py_INCREF(self->accumulator);
    Py_INCREF(self->stats);
    Py_INCREF(self->sender);
    Py_INCREF(self->guard);
    Py_INCREF(self->monotonic);
    Py_INCREF(self->socket);
    Py_INCREF(self->error);
    Py_INCREF(self->alone);
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
