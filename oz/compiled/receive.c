/* Method `recv` of a drop-in SUB, which returns one frame of a matching message.

   Twin: `SubSocket.recv` of oz.dropin.sub. The C code receives frames that are still in libzmq. The twin returns
   frames that were read ahead, skips the remaining frames of an interrupted receive, and raises the errors of pyzmq.

   Each read releases the GIL. Meanwhile another thread or a signal handler may close the socket. Therefore the C code
   checks `_closed` before each read. It gets the address of the libzmq socket from the socket's `Reading` object. */

#include "plain.h"

enum { TWIN, RECV, WAIT_FOR_NEXT, MONOTONIC, NOTHING_READ, READING_CLASS, RECEIVE_HELD };
enum { ADDRESS, ANSWERS, ERROR, FILTER, HELD, INTERRUPTED, IS_FIRST, IS_PLAIN, IS_READY, MORE, REST, RULES, SLOTS };
static const char *const slot_names[SLOTS] = {
    "address",  "answers",  "error",    "filter", "held", "interrupted",
    "is_first", "is_plain", "is_ready", "more",   "rest", "rules",
};

/* After this number of seconds with refused messages only, a receive calls WAIT_FOR_NEXT, which checks the timeout.
   The twin has the same constant. */
#define CHECK_AFTER 0.001
/* The clock is read after this number of refused messages. It is also read after each search by the Python filter,
   because a search may take long. */
#define CHECK_EVERY 16

/* State of one call of `recv`. All references are borrowed. */
typedef struct {
    Plain *self;
    PyObject *socket, *reading;
    void *address;
    int flags, copies, was_searched;
} Call;

static inline PyObject *
slot(Call *call, int name)
{
    return hot_get(call->reading, call->self->places[name]);
}

static inline void
set_slot(Call *call, int name, int value)
{
    hot_set(call->reading, call->self->places[name], Py_NewRef(value ? Py_True : Py_False));
}

/* Reading ---------------------------------------------------------------------------------------------------------

   These functions return 0, the number of a libzmq error, or -1 with an exception. */

static int
read_into(Call *call, Frame *frame, int flags)
{
    while (plain_is_open(call->socket)) {
        int size;
        Py_BEGIN_ALLOW_THREADS
        size = plain_libzmq.recv(frame, call->address, flags);
        Py_END_ALLOW_THREADS
        int error = size >= 0 ? 0 : plain_libzmq.last_error();
        if (error != EINTR) {
            return error;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    return ENOTSOCK;
}

/* Read a frame by pyzmq, because only pyzmq can create a zmq.Frame that uses the memory of libzmq. */
static int
read_object(Call *call, int flags, PyObject **frame, int *more)
{
    PyObject *number = PyLong_FromLong(flags);
    PyObject *const arguments[] = {call->socket, number, Py_False};
    *frame = number == NULL ? NULL : PyObject_Vectorcall(call->self->held[RECV], arguments, 3, NULL);
    Py_XDECREF(number);
    if (*frame == NULL) {
        if (!PyErr_ExceptionMatches(plain_again)) {
            return -1;
        }
        PyErr_Clear();
        return EAGAIN;
    }
    size_t size = sizeof(*more);
    if (!plain_is_open(call->socket) || plain_libzmq.getsockopt(call->address, RCVMORE, more, &size) != 0) {
        *more = 0;
    }
    return 0;
}

static int
read_frame(Call *call, int flags, PyObject **frame, int *more)
{
    if (!call->copies) {
        return read_object(call, flags, frame, more);
    }
    Frame read;
    int error = plain_libzmq.init(&read) == 0 ? read_into(call, &read, flags) : ENOMEM;
    if (error == 0) {
        *frame = PyBytes_FromStringAndSize(plain_libzmq.data(&read), (Py_ssize_t)plain_libzmq.size(&read));
        *more = plain_libzmq.more(&read);
        error = *frame == NULL ? -1 : 0;
    }
    plain_let_go(&read);
    return error;
}

/* Read and drop the remaining frames of a message. All of them have arrived. */
static int
skip_rest(Call *call)
{
    for (int more = 1; more;) {
        Frame frame;
        int error = plain_libzmq.init(&frame) == 0 ? read_into(call, &frame, DONTWAIT) : ENOMEM;
        more = error == 0 && plain_libzmq.more(&frame);
        plain_let_go(&frame);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* Matching -------------------------------------------------------------------------------------------------------- */

/* Return whether a subscription matches a frame; -1 with an exception. */
static int
accepts(Call *call, PyObject *frame)
{
    PyObject *subject = call->copies ? Py_NewRef(frame) : PyObject_GetAttr(frame, name_bytes);
    int accepted = subject == NULL ? -1 : plain_rules_match(slot(call, RULES), subject);
    call->was_searched = 0;
    if (subject != NULL && accepted < 0) {
        PyObject *answer = PyDict_GetItemWithError(slot(call, ANSWERS), subject);
        accepted = answer == NULL ? -1 : answer == Py_True;
    }
    if (accepted < 0 && !PyErr_Occurred()) {
        call->was_searched = 1;
        PyObject *answer = PyObject_CallMethodOneArg(slot(call, FILTER), name_find, subject);
        accepted = answer == NULL ? -1 : answer == Py_True;
        Py_XDECREF(answer);
    }
    Py_XDECREF(subject);
    return accepted;
}

/* Receiving -------------------------------------------------------------------------------------------------------

   These functions return NULL with an exception. They return NULL without an exception if the twin must receive. */

/* Read the next frame of the current message. */
static PyObject *
receive_next(Call *call)
{
    PyObject *frame = NULL;
    int more = 0;
    if (read_frame(call, call->flags, &frame, &more) != 0) {
        return NULL;
    }
    set_slot(call, IS_FIRST, 0);
    set_slot(call, MORE, more);
    set_slot(call, IS_READY, !more && Py_SIZE(slot(call, HELD)) == 0 && slot(call, ERROR) == Py_None);
    return frame;
}

/* Return the flags for the next read after a refused message; -1 with an exception. */
static int
wait_for_next(Call *call, PyObject *began, int is_empty)
{
    PyObject *number = PyLong_FromLong(call->flags);
    PyObject *const arguments[] = {call->socket, number, began, is_empty ? Py_True : Py_False};
    PyObject *flags = number == NULL ? NULL : PyObject_Vectorcall(call->self->held[WAIT_FOR_NEXT], arguments, 4, NULL);
    long how = flags == NULL ? -1 : PyLong_AsLong(flags);
    Py_XDECREF(number);
    Py_XDECREF(flags);
    return (int)how;
}

/* Read the first frame of the next matching message.

   The first read does not wait, so that the clock need not be read if a message is already there. `began` is the time
   at which the receive began. It is NULL until the receive must wait, or has refused a message. */
static PyObject *
receive_first(Call *call, PyObject **began)
{
    double checked = 0;
    for (unsigned flags = DONTWAIT, refused = 0;;) {
        PyObject *frame = NULL;
        int more = 0, error = read_frame(call, (int)flags, &frame, &more);
        if (error == 0) {
            int accepted = accepts(call, frame);
            if (accepted > 0) {
                set_slot(call, IS_FIRST, 1);
                set_slot(call, MORE, more);
                set_slot(call, IS_READY, !more);
                return frame;
            }
            Py_DECREF(frame);
            if (accepted < 0 || (more && skip_rest(call) != 0)) {
                return NULL;
            }
            flags = DONTWAIT;
            if (refused++ % CHECK_EVERY != 0 && !call->was_searched) {
                continue;
            }
        }
        else if (error != EAGAIN) {
            return NULL;
        }
        else if (refused == 0 && (int)flags == call->flags) {
            plain_raise_again();
            return NULL;
        }
        PyObject *now = PyObject_CallNoArgs(call->self->held[MONOTONIC]);
        double time = now == NULL ? -1 : PyFloat_AsDouble(now);
        if (*began == NULL) {
            *began = Py_XNewRef(now);
            checked = time;
        }
        Py_XDECREF(now);
        if (now == NULL) {
            return NULL;
        }
        if (error == EAGAIN && refused == 0) {
            flags = (unsigned)call->flags;
        }
        else if (error == EAGAIN || time - checked > CHECK_AFTER) {
            int how = wait_for_next(call, *began, error == EAGAIN);
            if (how < 0) {
                return NULL;
            }
            flags = (unsigned)how;
            checked = time;
        }
    }
}

/* Calls ----------------------------------------------------------------------------------------------------------- */

/* Read the arguments: socket, `flags`, `copy` and `track`. Return 0 if the twin must read them. */
static int
read_arguments(Call *call, PyObject *const *arguments, Py_ssize_t given, PyObject *names)
{
    PyObject *values[] = {NULL, NULL, Py_True, Py_False};
    if (given < 1 || given > 4) {
        return 0;
    }
    memcpy(values, arguments, (size_t)given * sizeof(*values));
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        PyObject *name = PyTuple_GET_ITEM(names, at);
        int place = name == name_flags ? 1 : name == name_copy ? 2 : 3;
        if (place < given || (place == 3 && name != name_track)) {
            return 0;
        }
        values[place] = arguments[given + at];
    }
    long flags = values[1] == NULL ? 0 : PyLong_Check(values[1]) ? PyLong_AsLong(values[1]) : -1;
    PyErr_Clear();
    call->socket = values[0];
    call->flags = (int)flags;
    call->copies = values[2] == Py_True;
    return (flags == 0 || flags == DONTWAIT) && (call->copies || values[2] == Py_False) && values[3] == Py_False;
}

/* Receive one frame, as the state of the socket requires: by pyzmq if there is no filter, as the first frame of the
   next matching message, or as the next frame of the current message. */
static PyObject *
receive(Call *call, PyObject *const *arguments, size_t given, PyObject *names)
{
    if (slot(call, IS_PLAIN) == Py_True) {
        return PyObject_Vectorcall(call->self->held[RECV], arguments, given, names);
    }
    call->address = PyLong_AsVoidPtr(slot(call, ADDRESS));
    if (call->address != NULL && slot(call, IS_READY) == Py_True) {
        PyObject *began = NULL, *frame = receive_first(call, &began);
        Py_XDECREF(began);
        return frame;
    }
    int is_next = slot(call, MORE) == Py_True && slot(call, INTERRUPTED) == Py_False && Py_SIZE(slot(call, REST)) == 0;
    return call->address != NULL && is_next ? receive_next(call) : NULL;
}

static PyObject *
receive_call(PyObject *callable, PyObject *const *arguments, size_t count, PyObject *names)
{
    Plain *self = (Plain *)callable;
    size_t given = count & ~PY_VECTORCALL_ARGUMENTS_OFFSET;
    Call call = {.self = self};
    PyObject *reading = NULL, *frame = NULL;
    if (read_arguments(&call, arguments, (Py_ssize_t)given, names)) {
        reading = PyObject_GenericGetAttr(call.socket, name__reading);
    }
    if (reading == NULL || !Py_IS_TYPE(reading, (PyTypeObject *)self->held[READING_CLASS])) {
        PyErr_Clear();
    }
    else {
        call.reading = reading;
        frame = receive(&call, arguments, given, names);
        if (frame == NULL && PyErr_Occurred() && !PyErr_ExceptionMatches(self->held[NOTHING_READ])) {
            /* The next receive must skip the remaining frames of this message, as after an exception in the twin. */
            set_slot(&call, IS_PLAIN, 0);
            set_slot(&call, IS_READY, 0);
            set_slot(&call, INTERRUPTED, 1);
        }
    }
    Py_XDECREF(reading);
    return frame != NULL || PyErr_Occurred() ? frame : PyObject_Vectorcall(self->held[TWIN], arguments, given, names);
}

/* The type -------------------------------------------------------------------------------------------------------- */

static PyObject *
receive_get(PyObject *self, PyObject *socket, PyObject *Py_UNUSED(type))
{
    return socket == NULL || socket == Py_None ? Py_NewRef(self) : PyMethod_New(self, socket);
}

static PyObject *
receive_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"twin", "recv", "wait_for_next", "monotonic", "nothing_read", "reading", NULL};
    PyObject *held[RECEIVE_HELD];
    Py_ssize_t places[SLOTS];
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOO!O!:Receive", keywords, &held[TWIN], &held[RECV],
                                     &held[WAIT_FOR_NEXT], &held[MONOTONIC], &PyTuple_Type, &held[NOTHING_READ],
                                     &PyType_Type, &held[READING_CLASS])) {
        return NULL;
    }
    if (plain_again == NULL) {
        return PyErr_Format(PyExc_ValueError, "know_libzmq() was not called");
    }
    for (int place = 0; place < SLOTS; place++) {
        if ((places[place] = hot_offset((PyTypeObject *)held[READING_CLASS], slot_names[place])) < 0) {
            return NULL;
        }
    }
    Plain *self = plain_new(type, receive_call, held, RECEIVE_HELD);
    if (self != NULL) {
        memcpy(self->places, places, sizeof(places));
    }
    return (PyObject *)self;
}

/* Return an attribute of the twin, so that `help` and `inspect.signature` describe the method. */
static PyObject *
receive_attribute(PyObject *self, void *name)
{
    PyObject *twin = ((Plain *)self)->held[TWIN];
    return name == NULL ? Py_NewRef(twin) : PyObject_GetAttrString(twin, name);
}

static PyGetSetDef receive_attributes[] = {
    {"__doc__", receive_attribute, NULL, NULL, "__doc__"},
    {"__name__", receive_attribute, NULL, NULL, "__name__"},
    {"__qualname__", receive_attribute, NULL, NULL, "__qualname__"},
    {"__wrapped__", receive_attribute, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot receive_slots[] = {
    {Py_tp_new, receive_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, receive_get},
    {Py_tp_traverse, plain_traverse},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_members, plain_members},
    {Py_tp_getset, receive_attributes},
    {0, NULL},
};

PyType_Spec hot_receive_spec = {
    .name = "oz.compiled._hot.Receive",
    .basicsize = sizeof(Plain),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = receive_slots,
};
