/* Plain messages, one by one: the frames of one read, made into a message, and handed to ZeroMQ.

   Twins: `_asking_reader` of oz.transport.frames, `ReceivePath.take` of oz.transport.subscriber.receiver,
   `PrefixReceiver.accept`, `PlainFrames.hand_over`. */

#include "hot.h"
#include <errno.h>
#include <structmember.h>

#define MOST_HELD 8
#define MOST_PLACES 5

/* Source: zmq.h of libzmq. */
typedef struct {
    void *base;
    size_t size;
} Part;
typedef int (*Sendiov)(void *socket, Part *parts, size_t count, int flags);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *held[MOST_HELD];
    /* A reader's. */
    void *socket;
    /* Of what hands over. */
    Sendiov sendiov;
    int option;
    /* Where slots of what is held lie; the last of what hands over is a size, and its option the flag of more. */
    Py_ssize_t places[MOST_PLACES];
} Plain;

static int
plain_traverse(Plain *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int place = 0; place < MOST_HELD; place++) {
        Py_VISIT(self->held[place]);
    }
    return 0;
}

static void
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

/* Make one that holds what it is given; NULL with an exception. */
static Plain *
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

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Plain, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define PLAIN_SPEC(spec, its_slots, its_name, its_new, its_doc)                                                        \
    static PyType_Slot its_slots[] = {                                                                                 \
        {Py_tp_doc, PyDoc_STR(its_doc)},                                                                               \
        {Py_tp_new, its_new},                                                                                          \
        {Py_tp_call, PyVectorcall_Call},                                                                               \
        {Py_tp_traverse, plain_traverse},                                                                              \
        {Py_tp_dealloc, plain_dealloc},                                                                                \
        {Py_tp_members, members},                                                                                      \
        {0, NULL},                                                                                                     \
    };                                                                                                                 \
    PyType_Spec spec = {                                                                                               \
        .name = its_name,                                                                                              \
        .basicsize = sizeof(Plain),                                                                                    \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,      \
        .slots = its_slots,                                                                                            \
    }

/* Guards --------------------------------------------------------------------------------------------------------- */

/* The names of a guard's methods: to make them anew for each message costs as much as the calls. */
static PyObject *acquire, *release, *do_postponed;

/* Make the names, once; false with an exception. */
static int
know_guards(void)
{
    acquire = acquire == NULL ? PyUnicode_InternFromString("acquire") : acquire;
    release = release == NULL ? PyUnicode_InternFromString("release") : release;
    do_postponed = do_postponed == NULL ? PyUnicode_InternFromString("do_postponed") : do_postponed;
    return acquire != NULL && release != NULL && do_postponed != NULL;
}

/* Release a guard, and keep the exception that there is, if any; false with one. */
static int
release_guard(PyObject *guard)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *released = PyObject_CallMethodNoArgs(guard, release);
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

/* libzmq --------------------------------------------------------------------------------------------------------- */

/* Source: zmq.h of libzmq 4. */
typedef union {
    unsigned char bytes[64];
    void *aligned;
} Frame;

#define DONTWAIT 1
#define RCVMORE 13

/* The functions of the libzmq that pyzmq has loaded, in the order in which `know_libzmq` is told of them. */
static struct {
    int (*getsockopt)(void *socket, int option, void *value, size_t *size);
    int (*init)(Frame *frame);
    int (*recv)(Frame *frame, void *socket, int flags);
    void *(*data)(Frame *frame);
    size_t (*size)(const Frame *frame);
    int (*more)(const Frame *frame);
    int (*close)(Frame *frame);
    int (*last_error)(void);
} libzmq;

/* What tells of a socket of pyzmq whether it is closed, and its error where there is nothing; NULL until that was said. */
static PyObject *closed, *again;

PyDoc_STRVAR(know_libzmq_doc,
"know_libzmq(functions, closed, again)\n\n"
"Say where the functions of libzmq are, what tells whether a socket is closed, and what a read with nothing to\n"
"read raises.");

static PyObject *
know_libzmq(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_ssize_t said[8];
    PyObject *told, *error;
    if (!PyArg_ParseTuple(arguments, "(nnnnnnnn)OO:know_libzmq", &said[0], &said[1], &said[2], &said[3], &said[4],
                          &said[5], &said[6], &said[7], &told, &error)) {
        return NULL;
    }
    for (int place = 0; place < 8; place++) {
        if (!said[place]) {
            return PyErr_Format(PyExc_ValueError, "know_libzmq() takes the addresses of eight functions");
        }
    }
    if (Py_TYPE(told)->tp_descr_get == NULL) {
        return PyErr_Format(PyExc_TypeError, "know_libzmq() takes a descriptor that tells whether a socket is closed");
    }
    memcpy(&libzmq, said, sizeof(libzmq));
    Py_XSETREF(closed, Py_NewRef(told));
    Py_XSETREF(again, Py_NewRef(error));
    Py_RETURN_NONE;
}

/* Tell whether a socket may be used by its address; where not, pyzmq says why. */
static int
is_open(PyObject *socket)
{
    PyObject *is_closed = Py_TYPE(closed)->tp_descr_get(closed, socket, (PyObject *)Py_TYPE(socket));
    if (is_closed == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(is_closed);
    return is_closed == Py_False;
}

/* Reading -------------------------------------------------------------------------------------------------------- */

enum { RECV };

/* Tell whether more frames of a message follow. */
static inline int
has_more(Plain *self)
{
    int more = 0;
    size_t size = sizeof(more);
    return libzmq.getsockopt(self->socket, RCVMORE, &more, &size) == 0 && more;
}

/* Read the first frame, and wait for it if the flags say so; false with an exception, or where pyzmq is to say what
   the matter is, without one. */
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
            PyObject *number = PyLong_FromLong(error);
            PyObject *raised = number == NULL ? NULL : PyObject_CallOneArg(again, number);
            Py_XDECREF(number);
            if (raised != NULL) {
                PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
                Py_DECREF(raised);
            }
            return 0;
        }
        /* A signal handler may raise, or close the socket. */
        if (error != EINTR || PyErr_CheckSignals() < 0 || !is_open(socket)) {
            return 0;
        }
    }
}

/* Read what is left of a message by pyzmq, or all of it where nothing is read yet; NULL with an exception. Takes the
   list of frames over. */
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

/* Read all frames of a message whose first one is there: the others are, too. NULL with an exception. */
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
        if (libzmq.recv(frame, self->socket, DONTWAIT) < 0) {
            /* The context has ended, and pyzmq says so. */
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
    if (is_open(arguments[0]) && libzmq.init(&frame) == 0) {
        PyObject *frames = read_first(self, arguments[0], &frame, (int)how) ? read_rest(self, arguments, &frame) : NULL;
        libzmq.close(&frame);
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

PLAIN_SPEC(hot_reader_spec, reader_slots, "oz.compiled._hot.FrameReader", reader_new,
           "Read the frames of one message: see oz.compiled.Hot.");

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

/* Send frames as one message; 0, or the number of an error. */
static int
send_in_one_call(Sendiov sendiov, void *socket, Part *parts, size_t count, int flags)
{
    int number = socket == NULL ? ENOTSOCK : EINTR;
    while (number == EINTR) {
        number = sendiov(socket, parts, count, flags) < 0 ? errno : 0;
    }
    return number;
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
    return PyLong_FromLong(send_in_one_call((Sendiov)sendiov, (void *)socket, parts, (size_t)count, flags));
}

PyMethodDef hot_plain_methods[] = {
    {"know_libzmq", know_libzmq, METH_VARARGS, know_libzmq_doc},
    {"send_parts", send_parts, METH_VARARGS, send_parts_doc},
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

enum { TAKE_TWIN, TAKE_GUARD, READ, CLOCK, ACCEPT, SKIP, READ_ERROR };

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

/* Read the frames of a message with the guard held, and release that; NULL with an exception. */
static PyObject *
read_guarded(Plain *self, PyObject *const *arguments)
{
    PyObject *frames = PyObject_Vectorcall(self->held[READ], arguments, 2, NULL);
    if (frames == NULL && !PyErr_ExceptionMatches(self->held[READ_ERROR])) {
        skip_frames(self, arguments[0]);
    }
    if (!release_guard(self->held[TAKE_GUARD])) {
        Py_CLEAR(frames);
    }
    return frames;
}

/* Take one message; None where nobody wants it, NULL with an exception. */
static PyObject *
take_one(Plain *self, PyObject *const *arguments)
{
    PyObject *frames = read_guarded(self, arguments);
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
        PyObject *is_held = PyObject_CallMethodOneArg(self->held[TAKE_GUARD], acquire, Py_False);
        if (is_held == NULL) {
            return NULL;
        }
        Py_DECREF(is_held);
        PyObject *message = is_held == Py_True ? take_one(self, arguments) : Py_NewRef(Py_None);
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
    PyObject *held[7];
    static char *keywords[] = {"twin", "guard", "read", "clock", "accept", "skip", "error", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOO:Take", keywords, &held[TAKE_TWIN], &held[TAKE_GUARD],
                                     &held[READ], &held[CLOCK], &held[ACCEPT], &held[SKIP], &held[READ_ERROR])) {
        return NULL;
    }
    return know_guards() ? (PyObject *)plain_new(type, take_call, held, 7) : NULL;
}

PLAIN_SPEC(hot_take_spec, take_slots, "oz.compiled._hot.Take", take_new,
           "Take one message from a socket: see oz.compiled.Hot.");

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
    int number = send_in_one_call(self->sendiov, socket, parts, 2, (int)flags | self->option);
    if (number == 0) {
        return 1;
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
    int is_done = count == 0 || (count > 0 && guard_call(self, do_postponed));
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int is_released = guard_call(self, release);
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
    if (!guard_call(self, acquire)) {
        return NULL;
    }
    if (hot_get(self->held[GUARD], self->places[IS_BUSY]) != Py_False ||
        hot_get(self->held[GUARD], self->places[IS_HANDING_OVER]) != Py_False) {
        /* One that was postponed, or a signal handler that raised has left a flag behind. */
        int is_released = guard_call(self, release);
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
    Plain *self = is_lossless < 0 || !know_guards() ? NULL : plain_new(type, hand_over_call, held, 8);
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
