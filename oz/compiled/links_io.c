/* Sockets of links and plain sockets: functions that send and receive frames without waiting.

   Each call of pyzmq releases the GIL and runs signal handlers, which takes longer than the frame itself. The
   functions of this file keep the GIL, and no signal handler runs between the frames of a message. Twins:
   `LinkListener`, `Dialler`, `PlainSubscribers.send`, `PlainSocket.read`. */

#include "links.h"
#include "plain.h"
#include <structmember.h>

#define SNDMORE 2
#define EVENTS 15
#define POLLIN 1

/* A pyzmq socket, and the address of its libzmq socket. */
typedef struct {
    PyObject_HEAD
    PyObject *socket, *raise;
    void *address;
} Raw;

static PyObject *
raw_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *socket, *raise;
    size_t address;
    static char *keywords[] = {"socket", "address", "raise_error", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OnO:RawSocket", keywords, &socket, &address, &raise)) {
        return NULL;
    }
    if (!address || plain_libzmq.send == NULL) {
        return PyErr_Format(PyExc_ValueError, "RawSocket() needs the address of a socket of a libzmq that is known");
    }
    Raw *self = (Raw *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->socket = Py_NewRef(socket);
        self->raise = Py_NewRef(raise);
        self->address = (void *)address;
    }
    return (PyObject *)self;
}

static int
raw_traverse(Raw *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->socket);
    Py_VISIT(self->raise);
    return 0;
}

static void
raw_dealloc(Raw *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->socket);
    Py_XDECREF(self->raise);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Raise the pyzmq error for an error number; return NULL. */
static PyObject *
raise_number(Raw *self, int number)
{
    PyObject *raised = PyObject_CallFunction(self->raise, "i", number);
    if (raised != NULL) {
        Py_DECREF(raised);
        PyErr_SetString(PyExc_RuntimeError, "an error was not raised");
    }
    return NULL;
}

/* Return 1 if the socket is open, or 0 with an exception. */
static int
check_open(Raw *self)
{
    if (plain_is_open(self->socket)) {
        return 1;
    }
    raise_number(self, ENOTSOCK);
    return 0;
}

/* Frame that several messages share. */
typedef struct {
    PyObject_HEAD
    Frame frame;
} Shared;

static PyObject *
shared_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *first, *second;
    static char *keywords[] = {"", "", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "SS:SharedFrame", keywords, &first, &second)) {
        return NULL;
    }
    if (plain_libzmq.init_size == NULL) {
        return PyErr_Format(PyExc_ValueError, "SharedFrame() needs a libzmq that is known");
    }
    Shared *self = (Shared *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    const size_t size = (size_t)PyBytes_GET_SIZE(first), more = (size_t)PyBytes_GET_SIZE(second);
    if (plain_libzmq.init_size(&self->frame, size + more) != 0) {
        plain_libzmq.init(&self->frame);
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    char *content = plain_libzmq.data(&self->frame);
    memcpy(content, PyBytes_AS_STRING(first), size);
    memcpy(content + size, PyBytes_AS_STRING(second), more);
    return (PyObject *)self;
}

static void
shared_dealloc(Shared *self)
{
    PyTypeObject *type = Py_TYPE(self);
    plain_libzmq.close(&self->frame);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t
shared_length(Shared *self)
{
    return (Py_ssize_t)plain_libzmq.size(&self->frame);
}

static PyType_Slot shared_slots[] = {
    {Py_tp_doc, PyDoc_STR("Frame that several messages share: see oz.compiled.Hot.")},
    {Py_sq_length, shared_length},
    {Py_tp_new, shared_new},
    {Py_tp_dealloc, shared_dealloc},
    {0, NULL},
};

PyType_Spec links_shared_spec = {
    .name = "oz.compiled._hot.SharedFrame",
    .basicsize = sizeof(Shared),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = shared_slots,
};

static int
is_shared(PyObject *frame)
{
    return Py_TYPE(frame)->tp_dealloc == (destructor)shared_dealloc;
}

/* Return the value of an int option; -1 after an error, whose number libzmq has stored. */
static int
option_of(Raw *self, int option)
{
    int value = 0, result;
    size_t size = sizeof(value);
    do {
        result = plain_libzmq.getsockopt(self->address, option, &value, &size);
    } while (result < 0 && plain_libzmq.last_error() == EINTR);
    return result < 0 ? -1 : value;
}

PyDoc_STRVAR(has_input_doc,
"has_input() -> bool\n\nReturn whether a message can be read. The call lets libzmq process its pending commands.");

static PyObject *
raw_has_input(Raw *self, PyObject *Py_UNUSED(nothing))
{
    if (!check_open(self)) {
        return NULL;
    }
    int events = option_of(self, EVENTS);
    return events < 0 ? raise_number(self, plain_libzmq.last_error()) : PyBool_FromLong(events & POLLIN);
}

/* Send a shared frame; return 0, or the number of the error. */
static int
send_shared(Raw *self, Shared *shared)
{
    Frame copy;
    plain_libzmq.init(&copy);
    if (plain_libzmq.copy(&copy, &shared->frame) != 0) {
        return plain_libzmq.last_error();
    }
    int result;
    do {
        result = plain_libzmq.send_frame(&copy, self->address, DONTWAIT);
    } while (result < 0 && plain_libzmq.last_error() == EINTR);
    if (result >= 0) {
        return 0;
    }
    int error = plain_libzmq.last_error();
    plain_libzmq.close(&copy);
    return error;
}

/* Send one frame; return 0, or the number of the error. */
static int
send_frame(Raw *self, PyObject *frame, int flags)
{
    if (is_shared(frame)) {
        return send_shared(self, (Shared *)frame);
    }
    int result;
    do {
        result = plain_libzmq.send(self->address, PyBytes_AS_STRING(frame), (size_t)PyBytes_GET_SIZE(frame),
                                   flags | DONTWAIT);
    } while (result < 0 && plain_libzmq.last_error() == EINTR);
    return result < 0 ? plain_libzmq.last_error() : 0;
}

PyDoc_STRVAR(send_pair_doc,
"send_pair(first, second) -> int\n\n"
"Send a message of two frames; return 0, EAGAIN or EHOSTUNREACH. Any other error raises an exception.");

static PyObject *
raw_send_pair(Raw *self, PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 2 || !PyBytes_CheckExact(arguments[0]) ||
        !(PyBytes_CheckExact(arguments[1]) || is_shared(arguments[1]))) {
        return PyErr_Format(PyExc_TypeError, "send_pair() needs two frames");
    }
    if (!check_open(self)) {
        return NULL;
    }
    int error = send_frame(self, arguments[0], SNDMORE);
    if (!error) {
        /* The second frame never waits: libzmq accepts or refuses a message at its first frame. */
        error = send_frame(self, arguments[1], 0);
    }
    return error && error != EAGAIN && error != EHOSTUNREACH ? raise_number(self, error) : PyLong_FromLong(error);
}

/* Read the next frame into `bytes`, and set `more` if another frame of the message follows. Set `bytes` to NULL if no
   frame waits. Return 0 with an exception. */
static int
read_frame(Raw *self, PyObject **bytes, int *more)
{
    Frame frame;
    *bytes = NULL;
    if (plain_libzmq.init(&frame) != 0) {
        PyErr_NoMemory();
        return 0;
    }
    int result, error = 0;
    do {
        result = plain_libzmq.recv(&frame, self->address, DONTWAIT);
        error = result < 0 ? plain_libzmq.last_error() : 0;
    } while (error == EINTR);
    if (!error) {
        *bytes = PyBytes_FromStringAndSize(plain_libzmq.data(&frame), (Py_ssize_t)plain_libzmq.size(&frame));
        *more = plain_libzmq.more(&frame);
    }
    plain_let_go(&frame);
    if (error && error != EAGAIN) {
        raise_number(self, error);
    }
    return error == EAGAIN || *bytes != NULL;
}

PyDoc_STRVAR(read_doc,
"read(limit, frames) -> list[list[bytes]]\n\n"
"Read at most `limit` messages; return the first `frames` frames of each message.");

static PyObject *
raw_read(Raw *self, PyObject *const *arguments, Py_ssize_t given)
{
    long limit = given == 2 ? PyLong_AsLong(arguments[0]) : -1, max_frames = given == 2 ? PyLong_AsLong(arguments[1]) : -1;
    if (limit < 0 || max_frames < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "read() needs two numbers");
    }
    if (!check_open(self)) {
        return NULL;
    }
    PyObject *messages = PyList_New(0);
    for (long count = 0; messages != NULL && count < limit; count++) {
        PyObject *frames = NULL, *bytes;
        int more = 1;
        while (more) {
            if (!read_frame(self, &bytes, &more)) {
                Py_XDECREF(frames);
                Py_DECREF(messages);
                return NULL;
            }
            if (bytes == NULL) {
                break;
            }
            frames = frames == NULL ? PyList_New(0) : frames;
            int failed = frames == NULL || (PyList_GET_SIZE(frames) < max_frames && PyList_Append(frames, bytes) < 0);
            Py_DECREF(bytes);
            if (failed) {
                Py_XDECREF(frames);
                Py_DECREF(messages);
                return NULL;
            }
        }
        if (frames == NULL) {
            break;
        }
        int failed = PyList_Append(messages, frames) < 0;
        Py_DECREF(frames);
        if (failed) {
            Py_CLEAR(messages);
        }
    }
    return messages;
}

static PyMethodDef raw_methods[] = {
    {"has_input", (PyCFunction)raw_has_input, METH_NOARGS, has_input_doc},
    {"send_pair", (PyCFunction)(void (*)(void))raw_send_pair, METH_FASTCALL, send_pair_doc},
    {"read", (PyCFunction)(void (*)(void))raw_read, METH_FASTCALL, read_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot raw_slots[] = {
    {Py_tp_doc, PyDoc_STR("Frames of a socket: see oz.compiled.Hot.")},
    {Py_tp_new, raw_new},
    {Py_tp_traverse, raw_traverse},
    {Py_tp_dealloc, raw_dealloc},
    {Py_tp_methods, raw_methods},
    {0, NULL},
};

PyType_Spec links_raw_spec = {
    .name = "oz.compiled._hot.RawSocket",
    .basicsize = sizeof(Raw),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = raw_slots,
};

int
links_send_pair(PyObject *raw, PyObject *first, PyObject *second)
{
    Raw *self = (Raw *)raw;
    if (Py_TYPE(raw)->tp_dealloc != (destructor)raw_dealloc || !plain_is_open(self->socket)) {
        return ENOTSOCK;
    }
    int error = send_frame(self, first, SNDMORE);
    return error ? error : send_frame(self, second, 0);
}

void *
links_address_of(PyObject *raw)
{
    Raw *self = (Raw *)raw;
    if (raw == NULL || Py_TYPE(raw)->tp_dealloc != (destructor)raw_dealloc || !plain_is_open(self->socket)) {
        return NULL;
    }
    return self->address;
}

int
links_has_input(PyObject *raw)
{
    int events = links_address_of(raw) == NULL ? -1 : option_of((Raw *)raw, EVENTS);
    return events < 0 ? -1 : (events & POLLIN) != 0;
}
