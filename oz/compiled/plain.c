/* Plain messages, one by one: the frames of one read, made into a message.

   Twins: `ReceivePath.take` of oz.transport.subscriber.receiver, `PrefixReceiver.accept`. */

#include "plain.h"

int
plain_traverse(Plain *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int place = 0; place < MOST_HELD; place++) {
        Py_VISIT(self->held[place]);
    }
    return 0;
}

void
plain_dealloc(Plain *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int place = 0; place < MOST_HELD; place++) {
        Py_XDECREF(self->held[place]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

Plain *
plain_new(PyTypeObject *type, vectorcallfunc call, PyObject *const *held, int count)
{
    Plain *self = (Plain *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = call;
        for (int place = 0; place < count; place++) {
            self->held[place] = Py_NewRef(held[place]);
        }
    }
    return self;
}

PyMemberDef plain_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Plain, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Guards --------------------------------------------------------------------------------------------------------- */

PyObject *plain_acquire, *plain_release, *plain_do_postponed;

int
plain_know_guards(void)
{
    plain_acquire = plain_acquire == NULL ? PyUnicode_InternFromString("acquire") : plain_acquire;
    plain_release = plain_release == NULL ? PyUnicode_InternFromString("release") : plain_release;
    plain_do_postponed = plain_do_postponed == NULL ? PyUnicode_InternFromString("do_postponed") : plain_do_postponed;
    return plain_acquire != NULL && plain_release != NULL && plain_do_postponed != NULL;
}

int
plain_release_guard(PyObject *guard)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *released = PyObject_CallMethodNoArgs(guard, plain_release);
    Py_XDECREF(released);
    if (type == NULL) {
        return released != NULL;
    }
    if (released == NULL) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
    return 0;
}

/* Accepting ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyTypeObject *message, *route;
    Py_ssize_t subject, payload, frames, message_route, time_ns, route_subject, is_clear;
} Classes;

/* Of which classes plain messages and their routes are, once that was said; they are never forgotten. */
static Classes known;

enum { ACCESS, RECEIVED, DELIVERED };
enum { ACCEPT_TWIN, RECEIVER, ROUTES, STATS };

PyDoc_STRVAR(know_plain_doc,
"know_plain(message_class, route_class)\n\n"
"Say of which class plain messages are, and which their routes. TypeError where those lack the slots.");

static PyObject *
know_plain(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Classes said;
    if (!PyArg_ParseTuple(arguments, "O!O!:know_plain", &PyType_Type, &said.message, &PyType_Type, &said.route) ||
        (said.subject = hot_offset(said.message, "subject")) < 0 ||
        (said.payload = hot_offset(said.message, "payload")) < 0 ||
        (said.frames = hot_offset(said.message, "frames")) < 0 ||
        (said.message_route = hot_offset(said.message, "route")) < 0 ||
        (said.time_ns = hot_offset(said.message, "time_ns")) < 0 ||
        (said.route_subject = hot_offset(said.route, "subject")) < 0 ||
        (said.is_clear = hot_offset(said.route, "is_clear")) < 0) {
        return NULL;
    }
    known = said;
    Py_INCREF(known.message);
    Py_INCREF(known.route);
    Py_RETURN_NONE;
}

PyMethodDef hot_plain_methods[] = {
    {"know_plain", know_plain, METH_VARARGS, know_plain_doc},
    {NULL, NULL, 0, NULL},
};

/* The route of a message that somebody wants and nothing is to be done to; NULL for others. A new reference. */
static PyObject *
clear_route(Plain *self, PyObject *frames)
{
    if (!PyList_CheckExact(frames) || PyList_GET_SIZE(frames) < 2 || !PyBytes_CheckExact(PyList_GET_ITEM(frames, 0)) ||
        hot_get(self->held[RECEIVER], self->places[ACCESS]) != Py_None) {
        return NULL;
    }
    PyObject *route = PyDict_GetItemWithError(self->held[ROUTES], PyList_GET_ITEM(frames, 0));
    if (route == NULL || !Py_IS_TYPE(route, known.route) || hot_get(route, known.is_clear) != Py_True ||
        hot_get(route, known.route_subject) == NULL) {
        return NULL;
    }
    return Py_NewRef(route);
}

/* Make a message of frames that have a payload; NULL with an exception. */
static PyObject *
make_plain(PyObject *frames, PyObject *route, PyObject *time_ns)
{
    PyObject *payload = Py_NewRef(PyList_GET_ITEM(frames, 1));
    PyObject *made = known.message->tp_alloc(known.message, 0);
    if (made == NULL) {
        Py_DECREF(payload);
        return NULL;
    }
    hot_fill(made, known.subject, Py_NewRef(hot_get(route, known.route_subject)));
    hot_fill(made, known.payload, payload);
    hot_fill(made, known.frames, Py_NewRef(frames));
    hot_fill(made, known.message_route, Py_NewRef(route));
    hot_fill(made, known.time_ns, Py_NewRef(time_ns));
    return made;
}

static PyObject *
accept_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    if (PyVectorcall_NARGS(flags) == 2 && names == NULL) {
        PyObject *route = clear_route(self, arguments[0]);
        if (route == NULL && PyErr_Occurred()) {
            return NULL;
        }
        if (route != NULL) {
            PyObject *made = make_plain(arguments[0], route, arguments[1]);
            Py_DECREF(route);
            if (made == NULL || hot_count(self->held[STATS], self->places[RECEIVED], self->places[DELIVERED])) {
                return made;
            }
            Py_DECREF(made);
        }
    }
    return PyObject_Vectorcall(self->held[ACCEPT_TWIN], arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static PyObject *
accept_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[4];
    static char *keywords[] = {"twin", "receiver", "routes", "stats", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO!O:Accept", keywords, &held[ACCEPT_TWIN], &held[RECEIVER],
                                     &PyDict_Type, &held[ROUTES], &held[STATS])) {
        return NULL;
    }
    if (known.message == NULL) {
        return PyErr_Format(PyExc_TypeError, "know_plain() was not called");
    }
    Py_ssize_t access = hot_offset(Py_TYPE(held[RECEIVER]), "access");
    Py_ssize_t received = access < 0 ? -1 : hot_offset(Py_TYPE(held[STATS]), "received");
    Py_ssize_t delivered = received < 0 ? -1 : hot_offset(Py_TYPE(held[STATS]), "delivered");
    Plain *self = delivered < 0 ? NULL : plain_new(type, accept_call, held, 4);
    if (self != NULL) {
        self->places[ACCESS] = access;
        self->places[RECEIVED] = received;
        self->places[DELIVERED] = delivered;
    }
    return (PyObject *)self;
}

PLAIN_SPEC(hot_accept_spec, accept_slots, "oz.compiled._hot.Accept", accept_new,
           "Take in the frames of one message: see oz.compiled.Hot.");

/* Taking --------------------------------------------------------------------------------------------------------- */

/* What Python raised in the middle of a message goes on when the rest of that is taken. */
static void
skip_frames(Plain *self, PyObject *socket)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *skipped = PyObject_CallOneArg(self->held[SKIP], socket);
    if (skipped == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    Py_DECREF(skipped);
    PyErr_Restore(type, value, traceback);
}

int
plain_try_guard(Plain *self)
{
    PyObject *is_held = PyObject_CallMethodOneArg(self->held[TAKE_GUARD], plain_acquire, Py_False);
    Py_XDECREF(is_held);
    return is_held == NULL ? -1 : is_held == Py_True;
}

PyObject *
plain_read_guarded(Plain *self, PyObject *const *arguments)
{
    PyObject *frames = PyObject_Vectorcall(self->held[READ], arguments, 2, NULL);
    if (frames == NULL && !PyErr_ExceptionMatches(self->held[READ_ERROR])) {
        skip_frames(self, arguments[0]);
    }
    if (!plain_release_guard(self->held[TAKE_GUARD])) {
        Py_CLEAR(frames);
    }
    return frames;
}

/* Take one message; None where nobody wants it, NULL with an exception. */
static PyObject *
take_one(Plain *self, PyObject *const *arguments)
{
    PyObject *frames = plain_read_guarded(self, arguments);
    PyObject *now = frames == NULL ? NULL : PyObject_CallNoArgs(self->held[CLOCK]);
    PyObject *message = NULL;
    if (now != NULL) {
        PyObject *const taken[] = {frames, now};
        message = PyObject_Vectorcall(self->held[ACCEPT], taken, 2, NULL);
        Py_DECREF(now);
    }
    Py_XDECREF(frames);
    return message;
}

static PyObject *
take_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if ((given == 2 || (given == 3 && arguments[2] == Py_None)) && names == NULL) {
        int is_held = plain_try_guard(self);
        if (is_held < 0) {
            return NULL;
        }
        PyObject *message = is_held ? take_one(self, arguments) : Py_NewRef(Py_None);
        if (message != Py_None) {
            return message;
        }
        /* Another thread has the guard, or nobody wants this message and the next one may be. */
        Py_DECREF(message);
    }
    return PyObject_Vectorcall(self->held[TAKE_TWIN], arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static PyObject *
take_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[TAKE_HELD];
    static char *keywords[] = {"twin", "guard", "read", "clock", "accept", "skip", "error", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOO:Take", keywords, &held[TAKE_TWIN], &held[TAKE_GUARD],
                                     &held[READ], &held[CLOCK], &held[ACCEPT], &held[SKIP], &held[READ_ERROR])) {
        return NULL;
    }
    return plain_know_guards() ? (PyObject *)plain_new(type, take_call, held, TAKE_HELD) : NULL;
}

PLAIN_SPEC(hot_take_spec, take_slots, "oz.compiled._hot.Take", take_new,
           "Take one message from a socket: see oz.compiled.Hot.");
