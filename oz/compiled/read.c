/* FrameReader: reads all frames of one message by direct calls of libzmq.

   Twin: `frame_reader` of oz.transport.frames. */

#include "plain.h"

/* libzmq --------------------------------------------------------------------------------------------------------- */

/* Size in bytes from which plain_let_go releases the GIL. */
#define NEVER_SHARED 512

Libzmq plain_libzmq;
#define libzmq plain_libzmq

/* Descriptor of the attribute that shows whether a pyzmq socket is closed; NULL before `know_libzmq`. */
static PyObject *closed;
PyObject *plain_again;

PyDoc_STRVAR(know_libzmq_doc,
"know_libzmq(functions, closed, again)\n\n"
"Set the addresses of the libzmq functions, the descriptor that shows whether a socket is closed, and the class of\n"
"the error to raise if no message can be read.");

static PyObject *
know_libzmq(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *functions, *told, *error;
    Py_ssize_t said[sizeof(Libzmq) / sizeof(void *)];
    const Py_ssize_t count = Py_ARRAY_LENGTH(said);
    if (!PyArg_ParseTuple(arguments, "O!OO:know_libzmq", &PyTuple_Type, &functions, &told, &error)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(functions) != count) {
        return PyErr_Format(PyExc_ValueError, "know_libzmq() takes the addresses of %zd functions", count);
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        said[place] = PyLong_AsSsize_t(PyTuple_GET_ITEM(functions, place));
        if (said[place] == -1 && PyErr_Occurred()) {
            return NULL;
        }
        if (!said[place]) {
            return PyErr_Format(PyExc_ValueError, "know_libzmq() takes the addresses of %zd functions", count);
        }
    }
    if (Py_TYPE(told)->tp_descr_get == NULL) {
        return PyErr_Format(PyExc_TypeError, "know_libzmq() takes a descriptor that tells whether a socket is closed");
    }
    memcpy(&libzmq, said, sizeof(libzmq));
    Py_XSETREF(closed, Py_NewRef(told));
    Py_XSETREF(plain_again, Py_NewRef(error));
    Py_RETURN_NONE;
}

int
plain_is_open(PyObject *socket)
{
    PyObject *is_closed = Py_TYPE(closed)->tp_descr_get(closed, socket, (PyObject *)Py_TYPE(socket));
    if (is_closed == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(is_closed);
    return is_closed == Py_False;
}

void
plain_raise_again(void)
{
    PyObject *number = PyLong_FromLong(EAGAIN);
    PyObject *raised = number == NULL ? NULL : PyObject_CallOneArg(plain_again, number);
    Py_XDECREF(number);
    if (raised != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
        Py_DECREF(raised);
    }
}

/* Reading -------------------------------------------------------------------------------------------------------- */

enum { RECV };

/* Return whether more frames of the message follow. */
static inline int
has_more(Plain *self)
{
    int more = 0;
    size_t size = sizeof(more);
    return libzmq.getsockopt(self->socket, RCVMORE, &more, &size) == 0 && more;
}

/* Read the first frame, and wait for it unless the flags forbid this. Return 0 with an exception. Return 0 without an
   exception if pyzmq must read and raise the error. */
static int
read_first(Plain *self, PyObject *socket, Frame *frame, int flags)
{
    for (;;) {
        int size;
        Py_BEGIN_ALLOW_THREADS
        size = libzmq.recv(frame, self->socket, flags);
        Py_END_ALLOW_THREADS
        if (size >= 0) {
            return 1;
        }
        int error = libzmq.last_error();
        if (error == EAGAIN) {
            plain_raise_again();
            return 0;
        }
        /* A signal has interrupted the read. Its handler may raise, or close the socket. */
        if (error != EINTR || PyErr_CheckSignals() < 0 || !plain_is_open(socket)) {
            return 0;
        }
    }
}

/* Read the remaining frames of a message by pyzmq, and append them to `frames`. Return NULL with an exception. The
   function steals the reference to the list. */
static PyObject *
read_by_pyzmq(Plain *self, PyObject *const *arguments, Py_ssize_t given, PyObject *frames)
{
    do {
        PyObject *frame = frames == NULL ? NULL : PyObject_Vectorcall(self->held[RECV], arguments, given, NULL);
        if (frame == NULL || PyList_Append(frames, frame) < 0) {
            Py_XDECREF(frame);
            Py_XDECREF(frames);
            return NULL;
        }
        Py_DECREF(frame);
        given = 1;
    } while (has_more(self));
    return frames;
}

/* Close a frame.

   If a socket of this process sent the frame without a copy, the close returns its memory to a Python thread of pyzmq,
   through a socket that may be full. A close that holds the GIL would then wait for ever, because the thread cannot
   read without the GIL. By default pyzmq copies frames below 64 KiB, and oz copies frames below NEVER_SHARED. */
void
plain_let_go(Frame *frame)
{
    if (libzmq.size(frame) < NEVER_SHARED) {
        libzmq.close(frame);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    libzmq.close(frame);
    Py_END_ALLOW_THREADS
}

/* Read all remaining frames of a message. They have arrived, because the first frame has. Return NULL with an
   exception. */
static PyObject *
read_rest(Plain *self, PyObject *const *arguments, Frame *frame)
{
    PyObject *frames = PyList_New(0);
    for (;;) {
        PyObject *bytes = PyBytes_FromStringAndSize(libzmq.data(frame), (Py_ssize_t)libzmq.size(frame));
        if (frames == NULL || bytes == NULL || PyList_Append(frames, bytes) < 0) {
            Py_XDECREF(bytes);
            Py_XDECREF(frames);
            return NULL;
        }
        Py_DECREF(bytes);
        if (!libzmq.more(frame)) {
            return frames;
        }
        plain_let_go(frame);
        if (libzmq.init(frame) != 0 || libzmq.recv(frame, self->socket, DONTWAIT) < 0) {
            /* The context has ended. Let pyzmq raise the error. */
            return read_by_pyzmq(self, arguments, 1, frames);
        }
    }
}

static PyObject *
reader_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    if (PyVectorcall_NARGS(flags) != 2 || names != NULL) {
        return PyErr_Format(PyExc_TypeError, "a reader takes a socket and flags");
    }
    long how = PyLong_AsLong(arguments[1]);
    if (how == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Frame frame;
    if (plain_is_open(arguments[0]) && libzmq.init(&frame) == 0) {
        PyObject *frames = read_first(self, arguments[0], &frame, (int)how) ? read_rest(self, arguments, &frame) : NULL;
        plain_let_go(&frame);
        if (frames != NULL || PyErr_Occurred()) {
            return frames;
        }
    }
    return read_by_pyzmq(self, arguments, 2, PyList_New(0));
}

static PyObject *
reader_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *recv;
    size_t socket;
    static char *keywords[] = {"recv", "socket", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "On:FrameReader", keywords, &recv, &socket)) {
        return NULL;
    }
    if (!socket || closed == NULL) {
        return PyErr_Format(PyExc_ValueError, "a reader takes the address of a socket of a libzmq that is known");
    }
    Plain *self = plain_new(type, reader_call, &recv, 1);
    if (self != NULL) {
        self->socket = (void *)socket;
    }
    return (PyObject *)self;
}

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, PyDoc_STR("Read the frames of one message: see oz.compiled.Hot.")},
    {Py_tp_new, reader_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, plain_traverse},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_members, plain_members},
    {0, NULL},
};

PyType_Spec hot_reader_spec = {
    .name = "oz.compiled._hot.FrameReader",
    .basicsize = sizeof(Plain),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reader_slots,
};

PyMethodDef hot_read_methods[] = {
    {"know_libzmq", know_libzmq, METH_VARARGS, know_libzmq_doc},
    {NULL, NULL, 0, NULL},
};
