/* Plain messages, handed to ZeroMQ.

   Twin: `send_multipart` of pyzmq. */

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
