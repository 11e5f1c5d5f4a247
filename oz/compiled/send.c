/* Plain messages, handed to ZeroMQ.

   Twin: `PlainFrames.hand_over` of oz.transport.publisher.sink. */

#include "plain.h"
#include <errno.h>

/* ZMQ_DONTWAIT. Source: zmq.h. */
#define DONTWAIT 1

/* Wait until libzmq takes a message, as long as SNDTIMEO lets it, without the interpreter's lock; as `plain_send_parts`. */
static int
send_when_there_is_room(Sendiov sendiov, void *socket, Part *parts, size_t count, int flags)
{
    int number = EINTR;
    while (number == EINTR) {
        Py_BEGIN_ALLOW_THREADS
        number = sendiov(socket, parts, count, flags) < 0 ? errno : 0;
        Py_END_ALLOW_THREADS
        /* It waits before the first frame: nothing has gone. */
        if (number == EINTR && PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    return number;
}

/* With the interpreter's lock only what cannot wait: who makes room may be a thread that waits for that lock, and no
   signal ends the call. Where the flags let it wait, and there is no room, it waits without. */
int
plain_send_parts(Sendiov sendiov, void *socket, Part *parts, size_t count, int flags)
{
    int number = socket == NULL ? ENOTSOCK : EINTR;
    while (number == EINTR) {
        number = sendiov(socket, parts, count, flags | DONTWAIT) < 0 ? errno : 0;
    }
    return number == EAGAIN && !(flags & DONTWAIT) ? send_when_there_is_room(sendiov, socket, parts, count, flags)
                                                       : number;
}

#define MOST_PARTS 64

PyDoc_STRVAR(send_parts_doc,
"send_parts(sendiov, socket, frames, flags)\n\n"
"Send a tuple of bytes by the address of zmq_sendiov; 0, or the number of an error.");

static PyObject *
send_parts(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    size_t sendiov, socket;
    PyObject *frames;
    int flags;
    Part parts[MOST_PARTS];
    if (!PyArg_ParseTuple(arguments, "nnO!i:send_parts", &sendiov, &socket, &PyTuple_Type, &frames, &flags)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(frames);
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *frame = PyTuple_GET_ITEM(frames, at);
        if (count > MOST_PARTS || !PyBytes_CheckExact(frame)) {
            return PyErr_Format(PyExc_TypeError, "frames are bytes, %d of them at most", MOST_PARTS);
        }
        parts[at].base = PyBytes_AS_STRING(frame);
        parts[at].size = (size_t)PyBytes_GET_SIZE(frame);
    }
    int number = plain_send_parts((Sendiov)sendiov, (void *)socket, parts, (size_t)count, flags);
    return number < 0 ? NULL : PyLong_FromLong(number);
}

PyMethodDef hot_send_methods[] = {
    {"send_parts", send_parts, METH_VARARGS, send_parts_doc},
    {NULL, NULL, 0, NULL},
};

/* Handing over --------------------------------------------------------------------------------------------------- */

enum { IS_WANTED, IS_BUSY, IS_HANDING_OVER, IS_LOSSLESS, COUNTED_FROM };
enum { HAND_TWIN, GUARD, POSTPONED, SINK, MAKE_LOSSY, SEND, ZMQ_ERROR, FAIL };

/* A signal handler has raised in the middle: the frame behind the first one goes all the same, or the next message
   would join this one. What it raised stays raised. */
static void
finish_message(Plain *self, PyObject *const *payload_arguments)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    /* Another one does not count: behind it this frame has gone, too. Nor does an error of ZeroMQ: there was no room for
       the first frame, and there is none for this. */
    Py_XDECREF(PyObject_Vectorcall(self->held[SEND], payload_arguments, 3, NULL));
    PyErr_Restore(type, value, traceback);
}

/* Send both frames in one call of libzmq's: pyzmq looks for signals also before a frame has gone. False with an
   exception. */
static int
send_whole(Plain *self, PyObject *const *arguments)
{
    PyObject *address = PyObject_GetAttrString(arguments[0], "underlying");
    void *socket = address == NULL ? NULL : PyLong_AsVoidPtr(address);
    Py_XDECREF(address);
    long flags = PyLong_AsLong(arguments[3]);
    if (PyErr_Occurred()) {
        return 0;
    }
    Part parts[] = {
        {PyBytes_AS_STRING(arguments[1]), (size_t)PyBytes_GET_SIZE(arguments[1])},
        {PyBytes_AS_STRING(arguments[2]), (size_t)PyBytes_GET_SIZE(arguments[2])},
    };
    int number = plain_send_parts(self->sendiov, socket, parts, 2, (int)flags | self->option);
    if (number <= 0) {
        return number == 0;
    }
    PyObject *failed = PyObject_CallFunction(self->held[FAIL], "i", number);
    Py_XDECREF(failed);
    return 0;
}

/* Send both frames; false with an exception. */
static int
send_both(Plain *self, PyObject *const *arguments)
{
    if (self->sendiov != NULL) {
        return send_whole(self, arguments);
    }
    PyObject *const payload_arguments[] = {arguments[0], arguments[2], arguments[3]};
    long flags = PyLong_AsLong(arguments[3]);
    PyObject *more = flags == -1 && PyErr_Occurred() ? NULL : PyLong_FromLong(flags | self->option);
    if (more == NULL) {
        return 0;
    }
    PyObject *const subject_arguments[] = {arguments[0], arguments[1], more};
    PyObject *sent = PyObject_Vectorcall(self->held[SEND], subject_arguments, 3, NULL);
    Py_DECREF(more);
    if (sent == NULL) {
        if (!PyErr_ExceptionMatches(self->held[ZMQ_ERROR])) {
            finish_message(self, payload_arguments);
        }
        return 0;
    }
    Py_DECREF(sent);
    sent = PyObject_Vectorcall(self->held[SEND], payload_arguments, 3, NULL);
    Py_XDECREF(sent);
    return sent != NULL;
}

/* Call a method of the guard without arguments; false with an exception. */
static int
guard_call(Plain *self, PyObject *name)
{
    PyObject *result = PyObject_CallMethodNoArgs(self->held[GUARD], name);
    Py_XDECREF(result);
    return result != NULL;
}

/* Set a slot of the guard to True or False. */
static void
guard_set(Plain *self, int place, PyObject *value)
{
    PyObject *before = hot_get(self->held[GUARD], self->places[place]);
    hot_fill(self->held[GUARD], self->places[place], Py_NewRef(value));
    Py_XDECREF(before);
}

/* Send a message with the guard held; false with an exception. */
static int
send_lossy(Plain *self, PyObject *const *arguments)
{
    if (hot_get(self->held[SINK], self->places[IS_LOSSLESS]) != Py_False) {
        PyObject *made = PyObject_CallNoArgs(self->held[MAKE_LOSSY]);
        Py_XDECREF(made);
        if (made == NULL) {
            return 0;
        }
    }
    return send_both(self, arguments);
}

/* Do what signal handlers have put off, and give the guard back; false with an exception. */
static int
guard_end(Plain *self)
{
    Py_ssize_t count = PyObject_Size(self->held[POSTPONED]);
    int is_done = count == 0 || (count > 0 && guard_call(self, plain_do_postponed));
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int is_released = guard_call(self, plain_release);
    if (!is_done) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    return is_done && is_released;
}

static PyObject *
hand_over_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    if (PyVectorcall_NARGS(flags) != 4 || names != NULL || !PyBytes_CheckExact(arguments[1]) ||
        !PyBytes_CheckExact(arguments[2]) || PyBytes_GET_SIZE(arguments[2]) >= self->places[COUNTED_FROM] ||
        !PyLong_Check(arguments[3])) {
        return PyObject_Vectorcall(self->held[HAND_TWIN], arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
    }
    guard_set(self, IS_WANTED, Py_True);
    if (!guard_call(self, plain_acquire)) {
        return NULL;
    }
    if (hot_get(self->held[GUARD], self->places[IS_BUSY]) != Py_False ||
        hot_get(self->held[GUARD], self->places[IS_HANDING_OVER]) != Py_False) {
        /* One that was postponed, or a signal handler that raised has left a flag behind. */
        int is_released = guard_call(self, plain_release);
        return is_released ? PyObject_Vectorcall(self->held[HAND_TWIN], arguments, 4, NULL) : NULL;
    }
    guard_set(self, IS_HANDING_OVER, Py_True);
    int is_sent = send_lossy(self, arguments);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    guard_set(self, IS_HANDING_OVER, Py_False);
    int is_ended = guard_end(self);
    if (!is_sent) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    return is_sent && is_ended ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
hand_over_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[8];
    int more;
    Py_ssize_t counted_from, sendiov;
    static char *keywords[] = {"twin", "guard", "postponed", "sink", "make_lossy", "send", "error", "more", "counted_from",
                               "sendiov", "fail", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOOinnO:HandOver", keywords, &held[HAND_TWIN], &held[GUARD],
                                     &held[POSTPONED], &held[SINK], &held[MAKE_LOSSY], &held[SEND], &held[ZMQ_ERROR],
                                     &more, &counted_from, &sendiov, &held[FAIL])) {
        return NULL;
    }
    Py_ssize_t is_wanted = hot_offset(Py_TYPE(held[GUARD]), "is_wanted");
    Py_ssize_t is_busy = is_wanted < 0 ? -1 : hot_offset(Py_TYPE(held[GUARD]), "is_busy");
    Py_ssize_t is_handing_over = is_busy < 0 ? -1 : hot_offset(Py_TYPE(held[GUARD]), "is_handing_over");
    Py_ssize_t is_lossless = is_handing_over < 0 ? -1 : hot_offset(Py_TYPE(held[SINK]), "_is_lossless");
    Plain *self = is_lossless < 0 || !plain_know_guards() ? NULL : plain_new(type, hand_over_call, held, 8);
    if (self != NULL) {
        self->sendiov = (Sendiov)sendiov;
        self->option = more;
        self->places[IS_WANTED] = is_wanted;
        self->places[IS_BUSY] = is_busy;
        self->places[IS_HANDING_OVER] = is_handing_over;
        self->places[IS_LOSSLESS] = is_lossless;
        self->places[COUNTED_FROM] = counted_from;
    }
    return (PyObject *)self;
}

PLAIN_SPEC(hot_hand_over_spec, hand_over_slots, "oz.compiled._hot.HandOver", hand_over_new,
           "Hand a plain message to ZeroMQ: see oz.compiled.Hot.");
