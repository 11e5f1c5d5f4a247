/* Messages of publishers that filter, taken one by one.

   Twin: `ReceivePath.take` of oz.transport.subscriber.receive_path. */

#include "plain.h"

enum { PATH = TAKE_HELD, DECLARER, STREAMS, LINE, AGAIN, LOOK, HASTEN, FIND_NOTHING, GO_ON, TAKE_LONE_HELD };
enum { LOOK_AT, IS_SETTLED, IS_COLLECTING, STREAMS_DUE_AT };

/* Tell whether a message is to be read: none waits in line, and nothing is still to be declared. */
static int
may_read(Plain *self)
{
    return PyObject_Size(self->held[LINE]) == 0 &&
           hot_get(self->held[STREAMS], self->places[IS_COLLECTING]) == Py_False;
}

/* Look at what is due, where that was not done for some time; false with an exception. */
static int
look(Plain *self, PyObject *now)
{
    PyObject *look_at = hot_get(self->held[PATH], self->places[LOOK_AT]);
    int is_early = look_at == NULL ? 0 : PyObject_RichCompareBool(now, look_at, Py_LT);
    if (is_early) {
        return is_early > 0;
    }
    PyObject *done = PyObject_CallOneArg(self->held[LOOK], now);
    Py_XDECREF(done);
    return done != NULL;
}

/* Have somebody look soon, as something has come since the last look; false with an exception. */
static int
hasten(Plain *self)
{
    PyObject *due_at = hot_get(self->held[STREAMS], self->places[STREAMS_DUE_AT]);
    if (hot_get(self->held[DECLARER], self->places[IS_SETTLED]) == Py_False ||
        (due_at != NULL && PyFloat_CheckExact(due_at) && PyFloat_AS_DOUBLE(due_at) > -Py_HUGE_VAL)) {
        return 1;
    }
    PyObject *done = PyObject_CallNoArgs(self->held[HASTEN]);
    Py_XDECREF(done);
    return done != NULL;
}

/* Take in the frames that were read; None where no message comes of them at once, NULL with an exception. */
static PyObject *
take_in(Plain *self, PyObject *frames)
{
    PyObject *now = PyObject_CallNoArgs(self->held[CLOCK]);
    if (now == NULL || !look(self, now)) {
        Py_XDECREF(now);
        return NULL;
    }
    PyObject *const taken[] = {frames, now};
    PyObject *message = PyObject_Vectorcall(self->held[ACCEPT], taken, 2, NULL);
    Py_DECREF(now);
    if (message != NULL && !hasten(self)) {
        Py_CLEAR(message);
    }
    return message;
}

/* Read and take in what comes, with the guard held, which is released. */
static PyObject *
take_guarded(Plain *self, PyObject *const *arguments, Py_ssize_t given)
{
    PyObject *frames = plain_read_guarded(self, arguments);
    if (frames == NULL) {
        if (!PyErr_ExceptionMatches(self->held[AGAIN])) {
            return NULL;
        }
        PyErr_Clear();
        return PyObject_Vectorcall(self->held[FIND_NOTHING], arguments, (size_t)given, NULL);
    }
    PyObject *message = take_in(self, frames);
    Py_DECREF(frames);
    if (message != Py_None) {
        return message;
    }
    Py_DECREF(message);
    return PyObject_Vectorcall(self->held[GO_ON], arguments, (size_t)given, NULL);
}

static PyObject *
take_lone_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if ((given == 2 || given == 3) && names == NULL && PyLong_Check(arguments[1])) {
        int is_held = may_read(self) ? plain_try_guard(self) : 0;
        if (is_held) {
            return is_held < 0 ? NULL : take_guarded(self, arguments, given);
        }
    }
    return PyObject_Vectorcall(self->held[TAKE_TWIN], arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

/* Find where the slots lie; false with an exception. */
static int
find_places(PyObject *const *held, Py_ssize_t *places)
{
    static const struct {
        int holder, place;
        const char *name;
    } slots[] = {
        {PATH, LOOK_AT, "_look_at"},
        {DECLARER, IS_SETTLED, "is_settled"},
        {STREAMS, IS_COLLECTING, "is_collecting"},
        {STREAMS, STREAMS_DUE_AT, "due_at"},
    };
    for (size_t at = 0; at < Py_ARRAY_LENGTH(slots); at++) {
        PyObject *holder = held[slots[at].holder];
        if ((places[slots[at].place] = hot_offset(Py_TYPE(holder), slots[at].name)) < 0) {
            return 0;
        }
    }
    return plain_know_guards();
}

static PyObject *
take_lone_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[TAKE_LONE_HELD];
    static char *keywords[] = {"twin", "guard", "read", "clock", "accept", "skip", "error", "path", "declarer", "streams",
                               "waiting", "again", "look", "hasten", "find_nothing", "go_on", NULL};
    Py_ssize_t places[MOST_PLACES] = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOOOOOOOOOOO:TakeLone", keywords, &held[TAKE_TWIN],
                                     &held[TAKE_GUARD], &held[READ], &held[CLOCK], &held[ACCEPT], &held[SKIP],
                                     &held[READ_ERROR], &held[PATH], &held[DECLARER], &held[STREAMS],
                                     &held[LINE], &held[AGAIN], &held[LOOK], &held[HASTEN], &held[FIND_NOTHING],
                                     &held[GO_ON]) ||
        !find_places(held, places)) {
        return NULL;
    }
    Plain *self = plain_new(type, take_lone_call, held, TAKE_LONE_HELD);
    if (self != NULL) {
        memcpy(self->places, places, sizeof(places));
    }
    return (PyObject *)self;
}

PLAIN_SPEC(hot_take_lone_spec, take_lone_slots, "oz.compiled._hot.TakeLone", take_lone_new,
           "Take one message of a publisher that filters: see oz.compiled.Hot.");
