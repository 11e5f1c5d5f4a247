/* Lone messages of links: a fast path that sends and receives a single message without the code for batches. A JOINED
   frame with several messages is received in the same way, because a waiting program receives one frame at a time.

   Twins: `Engine._send_alone` of oz.publisher.engine, `ThreadWaits._receive_alone` of oz.subscriber.threads. In an
   uncommon case, the C code calls its twin before it has changed any object. */

#include "links.h"
#include "plain.h"
#include <poll.h>
#include <string.h>
#include <time.h>

#define JOINED 0x0a
#define HEAD_BYTES 32
/* Seconds after which a publisher is quiet, if the last send was short; see oz.publisher.batching. */
#define QUIET 20e-6

static double
clock_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline uint64_t
number_at(const unsigned char *at, int width)
{
    uint64_t number = 0;
    for (int place = 0; place < width; place++) {
        number = number << 8 | at[place];
    }
    return number;
}

/* Prepared changes of slots. All values are created first, so that either all slots are changed or none. */
typedef struct {
    PyObject *object, *value;
    Py_ssize_t offset;
} Change;

#define MAX_CHANGES 12

typedef struct {
    Change changes[MAX_CHANGES];
    int count, failed;
} Changes;

/* Prepare a new value for a slot. The function steals the reference to the value. */
static void
change(Changes *self, PyObject *object, Py_ssize_t offset, PyObject *value)
{
    if (value == NULL || self->count == MAX_CHANGES) {
        Py_XDECREF(value);
        PyErr_Clear();
        self->failed = 1;
        return;
    }
    self->changes[self->count++] = (Change){object, value, offset};
}

/* Prepare the addition of `more` to the number in a slot. */
static void
add(Changes *self, PyObject *object, Py_ssize_t offset, long long more)
{
    long long before = hot_number(object, offset);
    change(self, object, offset, before < 0 ? NULL : PyLong_FromLongLong(before + more));
}

static void
drop_changes(Changes *self)
{
    for (int place = 0; place < self->count; place++) {
        Py_DECREF(self->changes[place].value);
    }
}

static void
make_changes(Changes *self)
{
    for (int place = 0; place < self->count; place++) {
        Change *one = &self->changes[place];
        hot_set(one->object, one->offset, one->value);
    }
}

/* Call a method of a lock; return 1 if the result is True, 0 if not, -1 with an exception. */
static int
call_lock(PyObject *lock, PyObject *name, PyObject *argument)
{
    PyObject *const given[] = {lock, argument};
    PyObject *done = PyObject_VectorcallMethod(name, given, argument == NULL ? 1 : 2, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : done == Py_True;
}

/* Release a lock without changing the current exception. */
static void
let_go(PyObject *lock)
{
    PyObject *type, *raised, *traceback;
    PyErr_Fetch(&type, &raised, &traceback);
    if (call_lock(lock, name_release, NULL) < 0) {
        PyErr_WriteUnraisable(lock);
    }
    PyErr_Restore(type, raised, traceback);
}

/* Receiving ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyTypeObject *lone;
    Py_ssize_t engine_lone, engine_version, attend_at;
    Py_ssize_t link, place, handle, raw, message, routes, cache, find, stream, drops, descriptor;
    Py_ssize_t expected, delivered, unacked_batches, unacked_bytes, ack_batches, ack_bytes, heard_at, live_at, origin, epoch;
    Py_ssize_t place_heard_at, since, total, received, stats_delivered;
    PyTypeObject *arrival;
    Py_ssize_t a_acknowledge, a_epoch, a_frames, a_gap, a_gap_offset, a_is_done, a_is_redelivered, a_left, a_link,
        a_origin, a_positions, a_sequence, a_stream, a_time_ns;
} Known;

static Known known;

PyDoc_STRVAR(know_lone_links_doc,
"know_lone_links(engine, lone, link, place, clock, stats, arrival)\n\n"
"Set the classes that are needed to receive lone messages. Raise TypeError if a class lacks a slot.");

static PyObject *
know_lone_links(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyTypeObject *engine, *link, *place, *clock, *stats;
    Known said = {0};
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O!O!:know_lone_links", &PyType_Type, &engine, &PyType_Type, &said.lone,
                          &PyType_Type, &link, &PyType_Type, &place, &PyType_Type, &clock, &PyType_Type, &stats,
                          &PyType_Type, &said.arrival)) {
        return NULL;
    }
    const SlotOffset slots[] = {
        {engine, "lone", &said.engine_lone}, {engine, "version", &said.engine_version},
        {engine, "attend_at", &said.attend_at},
        {said.lone, "link", &said.link}, {said.lone, "place", &said.place}, {said.lone, "handle", &said.handle},
        {said.lone, "raw", &said.raw}, {said.lone, "message", &said.message}, {said.lone, "routes", &said.routes},
        {said.lone, "cache", &said.cache}, {said.lone, "find", &said.find}, {said.lone, "stream", &said.stream},
        {said.lone, "drops", &said.drops}, {said.lone, "descriptor", &said.descriptor},
        {link, "expected", &said.expected}, {link, "delivered", &said.delivered},
        {link, "_unacked_batches", &said.unacked_batches}, {link, "_unacked_bytes", &said.unacked_bytes},
        {link, "_ack_batches", &said.ack_batches}, {link, "_ack_bytes", &said.ack_bytes},
        {link, "_heard_at", &said.heard_at}, {link, "_live_at", &said.live_at}, {link, "origin", &said.origin},
        {link, "epoch", &said.epoch}, {place, "heard_at", &said.place_heard_at}, {clock, "_since", &said.since},
        {clock, "_total", &said.total}, {stats, "received", &said.received},
        {stats, "delivered", &said.stats_delivered}, {said.arrival, "acknowledge", &said.a_acknowledge},
        {said.arrival, "epoch", &said.a_epoch}, {said.arrival, "frames", &said.a_frames},
        {said.arrival, "gap", &said.a_gap}, {said.arrival, "gap_offset", &said.a_gap_offset},
        {said.arrival, "is_done", &said.a_is_done}, {said.arrival, "is_redelivered", &said.a_is_redelivered},
        {said.arrival, "left", &said.a_left}, {said.arrival, "link", &said.a_link},
        {said.arrival, "origin", &said.a_origin}, {said.arrival, "positions", &said.a_positions},
        {said.arrival, "sequence", &said.a_sequence}, {said.arrival, "stream", &said.a_stream},
        {said.arrival, "time_ns", &said.a_time_ns},
    };
    if (!hot_find_slots(slots, Py_ARRAY_LENGTH(slots))) {
        return NULL;
    }
    Py_INCREF(said.lone);
    Py_INCREF(said.arrival);
    known = said;
    Py_RETURN_NONE;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *twin, *waits, *engine, *followers, *items, *work, *in_hand, *reading, *lock, *poll, *clock, *stats;
    int wake_up;
} Receiver;

enum { NOTHING, FOUND, OTHER };

/* Content of a JOINED frame whose head was checked. */
typedef struct {
    uint64_t sequence, position;
    Py_ssize_t count;
    const unsigned char *body, *end;
} Joined;

static int
read_head(PyObject *lone, const unsigned char *at, size_t size, Joined *joined)
{
    if (size <= HEAD_BYTES || at[0] != JOINED || at[1] != 0 ||
        (long long)number_at(at + 2, 2) != hot_number(lone, known.stream) ||
        (long long)number_at(at + 16, 8) != hot_number(lone, known.drops)) {
        return 0;
    }
    *joined = (Joined){number_at(at + 4, 8), number_at(at + 24, 8), (Py_ssize_t)number_at(at + 12, 4),
                       at + HEAD_BYTES, at + size};
    return joined->count > 0 && joined->count <= MAX_COUNT && joined->position <= INT64_MAX - MAX_COUNT;
}

static PyObject *
make_arrival(PyObject *lone, PyObject *link, const Joined *joined, PyObject *sequence)
{
    PyObject *origin = hot_get(link, known.origin), *epoch = hot_get(link, known.epoch);
    PyObject *position = PyLong_FromUnsignedLongLong(joined->position);
    PyObject *after = PyLong_FromUnsignedLongLong(joined->position + (uint64_t)joined->count);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    PyObject *time_ns = PyLong_FromLongLong((long long)now.tv_sec * 1000000000 + now.tv_nsec);
    PyObject *positions = position == NULL || after == NULL ? NULL
                          : joined->count == 1
                              ? PyTuple_Pack(1, position)
                              : PyObject_CallFunctionObjArgs((PyObject *)&PyRange_Type, position, after, NULL);
    PyObject *zero = PyLong_FromLong(0);
    PyObject *made = origin == NULL || epoch == NULL || time_ns == NULL || positions == NULL || zero == NULL
                         ? NULL
                         : known.arrival->tp_alloc(known.arrival, 0);
    Py_XDECREF(position);
    Py_XDECREF(after);
    if (made == NULL) {
        Py_XDECREF(time_ns);
        Py_XDECREF(positions);
        Py_XDECREF(zero);
        return NULL;
    }
    hot_fill(made, known.a_origin, Py_NewRef(origin));
    hot_fill(made, known.a_time_ns, time_ns);
    hot_fill(made, known.a_is_redelivered, Py_NewRef(Py_False));
    hot_fill(made, known.a_link, Py_NewRef(link));
    hot_fill(made, known.a_epoch, Py_NewRef(epoch));
    hot_fill(made, known.a_stream, Py_NewRef(hot_get(lone, known.stream)));
    hot_fill(made, known.a_frames, Py_NewRef(Py_None));
    hot_fill(made, known.a_acknowledge, Py_NewRef(Py_None));
    hot_fill(made, known.a_sequence, Py_NewRef(sequence));
    hot_fill(made, known.a_positions, positions);
    hot_fill(made, known.a_gap, Py_NewRef(zero));
    hot_fill(made, known.a_gap_offset, zero);
    hot_fill(made, known.a_left, Py_NewRef(Py_None));
    hot_fill(made, known.a_is_done, Py_NewRef(Py_False));
    return made;
}

/* Return whether the queue of the subscriber is the only receiver of all messages. */
static int
are_for_queue(Receiver *self, PyObject *messages)
{
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(messages); place++) {
        PyObject *route = PyTuple_GET_ITEM(PyList_GET_ITEM(messages, place), 2);
        PyObject *target = hot_get(route, links_subscriber.route_target);
        if (target == NULL || !Py_IS_TYPE(target, links_subscriber.queue) ||
            hot_get(target, links_subscriber.queue_items) != self->items) {
            return 0;
        }
    }
    return 1;
}

/* Create the messages of a frame; return NULL if the twin must process the frame. */
static PyObject *
make_all(Receiver *self, PyObject *lone, const Joined *joined, PyObject *arrival)
{
    Entry entries[MAX_COUNT];
    const Finder finder = {hot_get(lone, known.cache), hot_get(lone, known.routes), hot_get(lone, known.find),
                           hot_get(lone, known.stream)};
    if (!links_find_entries(joined->body, joined->body, joined->end, joined->count, entries)) {
        return NULL;
    }
    PyObject *messages = links_make_messages(&finder, (const char *)joined->body, entries, joined->count,
                                             links_subscriber.message, arrival);
    if (messages != NULL && !are_for_queue(self, messages)) {
        Py_CLEAR(messages);
    }
    return messages;
}

/* Put all messages except the first into the empty queue of the subscriber, and return the first; NULL after a
   failure. */
static PyObject *
put_others(Receiver *self, PyObject *messages)
{
    PyObject *first = Py_NewRef(PyList_GET_ITEM(messages, 0));
    if (PyList_GET_SIZE(messages) > 1) {
        PyObject *const given[] = {self->items, messages};
        PyObject *done = PyList_SetSlice(messages, 0, 1, NULL) < 0
                             ? NULL
                             : PyObject_VectorcallMethod(name_extend, given, 2, NULL);
        Py_XDECREF(done);
        if (done == NULL) {
            Py_CLEAR(first);
        }
    }
    return first;
}

/* Deliver the messages of a frame: return the first message, put the other messages into the queue, and update the
   link and the counters. Return NULL if the twin must process the frame. Return NULL with an exception if a signal
   handler has raised in `find`. */
static PyObject *
accept(Receiver *self, PyObject *lone, Joined *joined)
{
    PyObject *link = hot_get(lone, known.link), *place = hot_get(lone, known.place);
    PyObject *sequence = hot_get(link, known.expected);
    long long size = joined->end - joined->body, count = joined->count;
    if (hot_number(link, known.expected) != (long long)joined->sequence ||
        hot_number(link, known.unacked_batches) + 1 >= hot_number(link, known.ack_batches) ||
        hot_number(link, known.unacked_bytes) + size >= hot_number(link, known.ack_bytes) ||
        hot_get(self->clock, known.since) != Py_None || PyObject_Size(self->items)) {
        return NULL;
    }
    Changes changes = {.count = 0, .failed = 0};
    add(&changes, link, known.expected, count);
    add(&changes, link, known.delivered, count);
    add(&changes, link, known.unacked_batches, 1);
    add(&changes, link, known.unacked_bytes, size);
    change(&changes, link, known.heard_at, Py_XNewRef(hot_get(self->clock, known.total)));
    change(&changes, link, known.live_at, Py_XNewRef(hot_get(self->clock, known.total)));
    change(&changes, place, known.place_heard_at, PyFloat_FromDouble(clock_seconds(CLOCK_MONOTONIC)));
    add(&changes, self->stats, known.received, count);
    add(&changes, self->stats, known.stats_delivered, count);
    add(&changes, self->engine, known.engine_version, 1);
    PyObject *arrival = changes.failed ? NULL : make_arrival(lone, link, joined, sequence);
    PyObject *messages = arrival == NULL ? NULL : make_all(self, lone, joined, arrival);
    PyObject *first = messages == NULL ? NULL : put_others(self, messages);
    Py_XDECREF(arrival);
    Py_XDECREF(messages);
    if (first == NULL) {
        drop_changes(&changes);
        return NULL;
    }
    make_changes(&changes);
    return first;
}

/* Store the frames of a message in `Dialler.kept`, where the twin finds them; return 0 with an exception. */
static int
keep_frames(PyObject *list, Frame *frames, int count)
{
    for (int place = 0; place < count; place++) {
        PyObject *bytes = PyBytes_FromStringAndSize(plain_libzmq.data(&frames[place]),
                                                    (Py_ssize_t)plain_libzmq.size(&frames[place]));
        int failed = bytes == NULL || PyList_Append(list, bytes) < 0;
        Py_XDECREF(bytes);
        if (failed) {
            return 0;
        }
    }
    return 1;
}

/* Read a frame. The result is FOUND with a message, NOTHING if no frame waits, OTHER if the twin must read, or -1 with
   an exception. The twin then gets the frames that were read from `Dialler.kept`. The caller holds the lock. */
static int
read_lone(Receiver *self, PyObject **message)
{
    PyObject *lone = hot_get(self->engine, known.engine_lone);
    if (lone == NULL || !Py_IS_TYPE(lone, known.lone)) {
        return OTHER;
    }
    PyObject *list = hot_get(lone, known.message), *handle = hot_get(lone, known.handle);
    void *address = links_address_of(hot_get(lone, known.raw));
    if (list == NULL || !PyList_CheckExact(list) || PyList_GET_SIZE(list) || address == NULL ||
        !PyBytes_CheckExact(handle)) {
        return OTHER;
    }
    Frame frames[3];
    int count = 0, more = 1, result = FOUND;
    while (more) {
        /* All frames of the message have arrived. If there are more than three, only the first two and the last are
           kept. */
        int place = count < 3 ? count : 2, error;
        if (count >= 3) {
            plain_let_go(&frames[2]);
        }
        plain_libzmq.init(&frames[place]);
        do {
            error = plain_libzmq.recv(&frames[place], address, DONTWAIT) < 0 ? plain_libzmq.last_error() : 0;
        } while (error == EINTR);
        if (error) {
            plain_let_go(&frames[place]);
            result = error == EAGAIN && count == 0 ? NOTHING : OTHER;
            break;
        }
        count = place + 1;
        more = plain_libzmq.more(&frames[place]);
    }
    Joined joined;
    *message = NULL;
    Py_INCREF(lone);
    if (result == FOUND && count == 2 && plain_libzmq.size(&frames[0]) == (size_t)PyBytes_GET_SIZE(handle) &&
        memcmp(plain_libzmq.data(&frames[0]), PyBytes_AS_STRING(handle), PyBytes_GET_SIZE(handle)) == 0 &&
        read_head(lone, plain_libzmq.data(&frames[1]), plain_libzmq.size(&frames[1]), &joined)) {
        *message = accept(self, lone, &joined);
    }
    if (result == FOUND && *message == NULL) {
        PyObject *type, *raised, *traceback;
        PyErr_Fetch(&type, &raised, &traceback);
        result = keep_frames(list, frames, count) && type == NULL ? OTHER : -1;
        if (type != NULL) {
            PyErr_Restore(type, raised, traceback);
        }
    }
    Py_DECREF(lone);
    for (int place = 0; place < count; place++) {
        plain_let_go(&frames[place]);
    }
    return result;
}

/* Wait until the socket or `wake_up` is readable; return 0 if a signal handler has raised an exception. */
static int
wait_lone(Receiver *self, int descriptor, double seconds)
{
    struct pollfd polled[] = {{.fd = descriptor, .events = POLLIN}, {.fd = self->wake_up, .events = POLLIN}};
    double end = clock_seconds(CLOCK_MONOTONIC) + seconds;
    for (;;) {
        int result, number;
        Py_BEGIN_ALLOW_THREADS
        result = poll(polled, 2, seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
        number = errno;
        Py_END_ALLOW_THREADS
        if (result >= 0 || number != EINTR) {
            return 1;
        }
        if (PyErr_CheckSignals() < 0) {
            return 0;
        }
        seconds = end - clock_seconds(CLOCK_MONOTONIC);
    }
}

/* Poll, and call read_lone again; return its result. The caller does not hold the lock. The function acquires the
   lock, and keeps it if the result is not -1. */
static int
poll_lone(Receiver *self, PyObject *version, int descriptor, double seconds, PyObject **message)
{
    int is_done = PyObject_SetAttr(self->poll, name_is_polling, Py_True) == 0;
    /* `is_polling` is set before the check, so that a later change of `version` wakes the poll. */
    if (is_done && hot_get(self->engine, known.engine_version) == version) {
        is_done = wait_lone(self, descriptor, seconds);
    }
    PyObject *type, *raised, *traceback;
    PyErr_Fetch(&type, &raised, &traceback);
    int is_ended = PyObject_SetAttr(self->poll, name_is_polling, Py_False) == 0;
    if (type != NULL) {
        PyErr_Restore(type, raised, traceback);
    }
    if (!is_done || !is_ended || call_lock(self->lock, name_acquire, NULL) < 0) {
        return -1;
    }
    int result = read_lone(self, message);
    if (result < 0) {
        let_go(self->lock);
    }
    return result;
}

/* Wait for a message; return the message, None if there is none, or NULL with an exception. The caller holds
   `reading`. */
static PyObject *
receive_lone(Receiver *self, double seconds)
{
    if (call_lock(self->lock, name_acquire, NULL) < 0) {
        return NULL;
    }
    PyObject *message = NULL, *version = Py_XNewRef(hot_get(self->engine, known.engine_version));
    PyObject *lone = hot_get(self->engine, known.engine_lone);
    int descriptor = lone != NULL && Py_IS_TYPE(lone, known.lone) ? (int)hot_number(lone, known.descriptor) : -1;
    int has_lock = 1, result = read_lone(self, &message);
    if (result == NOTHING) {
        let_go(self->lock);
        result = poll_lone(self, version, descriptor, seconds, &message);
        has_lock = result >= 0;
    }
    Py_XDECREF(version);
    if (result == OTHER) {
        message = PyObject_CallMethodNoArgs(self->engine, name_read_alone);
    }
    if (has_lock) {
        let_go(self->lock);
    }
    if (result == OTHER && message != NULL) {
        PyObject *done = PyObject_CallMethodNoArgs(self->engine, name_after_alone);
        if (done == NULL) {
            Py_CLEAR(message);
        }
        Py_XDECREF(done);
    }
    return result == NOTHING ? Py_NewRef(Py_None) : message;
}

static PyObject *
receiver_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Receiver *self = (Receiver *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || names != NULL) {
        return PyErr_Format(PyExc_TypeError, "LoneReceiver needs a timeout");
    }
    PyObject *lone = hot_get(self->engine, known.engine_lone), *due = hot_get(self->engine, known.attend_at);
    double timeout = arguments[0] == Py_None ? 1.0 : PyFloat_AsDouble(arguments[0]);
    if (timeout == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    if (lone == NULL || lone == Py_None || due == NULL || !PyFloat_CheckExact(due) || PyObject_Size(self->items) ||
        PyObject_Size(self->work) || PyObject_Size(self->in_hand) || PyObject_Size(self->followers)) {
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(self->twin, arguments[0]);
    }
    double seconds = PyFloat_AS_DOUBLE(due) - clock_seconds(CLOCK_MONOTONIC);
    seconds = timeout < seconds ? timeout : seconds;
    int is_held = seconds > 0 ? call_lock(self->reading, name_acquire, Py_False) : 0;
    if (is_held <= 0) {
        return is_held < 0 ? NULL : PyObject_CallOneArg(self->twin, arguments[0]);
    }
    PyObject *message = receive_lone(self, seconds);
    let_go(self->reading);
    if (PyObject_Size(self->followers) > 0) {
        PyObject *type, *raised, *traceback;
        PyErr_Fetch(&type, &raised, &traceback);
        PyObject *done = PyObject_CallMethodNoArgs(self->waits, name_wake_followers);
        Py_XDECREF(done);
        if (done == NULL) {
            PyErr_WriteUnraisable(self->waits);
        }
        PyErr_Restore(type, raised, traceback);
    }
    return message;
}

static int
receiver_traverse(Receiver *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (PyObject **one = &self->twin; one <= &self->stats; one++) {
        Py_VISIT(*one);
    }
    return 0;
}

static int
receiver_clear(Receiver *self)
{
    for (PyObject **one = &self->twin; one <= &self->stats; one++) {
        Py_CLEAR(*one);
    }
    return 0;
}

static void
receiver_dealloc(Receiver *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    receiver_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
receiver_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    Receiver said = {0};
    static char *keywords[] = {"twin", "waits", "engine", "followers", "items", "work", "in_hand", "reading", "lock",
                               "poll", "clock", "stats", "wake_up", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOOOOOOOi:LoneReceiver", keywords, &said.twin, &said.waits,
                                     &said.engine, &said.followers, &said.items, &said.work, &said.in_hand,
                                     &said.reading, &said.lock, &said.poll, &said.clock, &said.stats, &said.wake_up)) {
        return NULL;
    }
    if (known.lone == NULL || links_subscriber.message == NULL) {
        return PyErr_Format(PyExc_TypeError, "LoneReceiver() needs the classes of know_lone_links");
    }
    Receiver *self = (Receiver *)type->tp_alloc(type, 0);
    if (self != NULL) {
        said.ob_base = self->ob_base;
        *self = said;
        self->vectorcall = receiver_call;
        for (PyObject **one = &self->twin; one <= &self->stats; one++) {
            Py_INCREF(*one);
        }
    }
    return (PyObject *)self;
}

static PyMemberDef receiver_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Receiver, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot receiver_slots[] = {
    {Py_tp_doc, PyDoc_STR("Wait for a lone message: see oz.compiled.Hot.")},
    {Py_tp_new, receiver_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, receiver_traverse},
    {Py_tp_clear, receiver_clear},
    {Py_tp_dealloc, receiver_dealloc},
    {Py_tp_members, receiver_members},
    {0, NULL},
};

PyType_Spec links_receiver_spec = {
    .name = "oz.compiled._hot.LoneReceiver",
    .basicsize = sizeof(Receiver),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = receiver_slots,
};

/* Publishing ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyTypeObject *sessions, *session, *stream, *batch, *body, *listener;
    Py_ssize_t is_closing, is_held, engine_sessions, engine_listener;
    Py_ssize_t ready, replies, now, all_bytes;
    Py_ssize_t position, sent_at, pause, unmatched, unmatched_then;
    Py_ssize_t stream_session, number, pending, group, matched, numbered, numbered_drops, tail_drops;
    Py_ssize_t is_up, route, following, sent, batches, bytes, window_used, window, largest_frame, sent_batches, control,
        bye, is_ping_due;
    Py_ssize_t raw;
    Py_ssize_t b_stream, b_sequence, b_count, b_body, b_size, b_position, b_drops, b_flags, b_is_acked;
    Py_ssize_t y_count, y_frame, y_size, y_position, y_differences, y_at, y_positions, y_flat;
} Publishing;

static Publishing publishing;
static PyObject *zero, *one;

PyDoc_STRVAR(know_lone_publisher_doc,
"know_lone_publisher(engine, sessions, batcher, stream, session, listener, batch, body)\n\n"
"Set the classes that are needed to send lone messages. Raise TypeError if a class lacks a slot.");

static PyObject *
know_lone_publisher(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyTypeObject *engine, *batcher;
    Publishing said = {0};
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O!O!O!:know_lone_publisher", &PyType_Type, &engine, &PyType_Type,
                          &said.sessions, &PyType_Type, &batcher, &PyType_Type, &said.stream, &PyType_Type,
                          &said.session, &PyType_Type, &said.listener, &PyType_Type, &said.batch, &PyType_Type,
                          &said.body)) {
        return NULL;
    }
    const SlotOffset slots[] = {
        {engine, "is_closing", &said.is_closing}, {engine, "_held", &said.is_held},
        {engine, "_sessions", &said.engine_sessions}, {engine, "_listener", &said.engine_listener},
        {said.sessions, "ready", &said.ready}, {said.sessions, "replies", &said.replies},
        {said.sessions, "now", &said.now}, {said.sessions, "_bytes", &said.all_bytes},
        {batcher, "position", &said.position}, {batcher, "_sent_at", &said.sent_at}, {batcher, "_pause", &said.pause},
        {batcher, "unmatched", &said.unmatched}, {batcher, "_unmatched_then", &said.unmatched_then},
        {said.stream, "session", &said.stream_session}, {said.stream, "number", &said.number},
        {said.stream, "pending", &said.pending}, {said.stream, "group", &said.group},
        {said.stream, "matched", &said.matched}, {said.stream, "numbered", &said.numbered},
        {said.stream, "_numbered_drops", &said.numbered_drops}, {said.stream, "_tail_drops", &said.tail_drops},
        {said.session, "is_up", &said.is_up}, {said.session, "route", &said.route},
        {said.session, "following", &said.following}, {said.session, "sent", &said.sent},
        {said.session, "batches", &said.batches}, {said.session, "bytes", &said.bytes},
        {said.session, "window_used", &said.window_used}, {said.session, "window", &said.window},
        {said.session, "largest_frame", &said.largest_frame}, {said.session, "_sent_batches", &said.sent_batches},
        {said.session, "_control", &said.control}, {said.session, "_bye", &said.bye},
        {said.session, "_is_ping_due", &said.is_ping_due}, {said.listener, "raw", &said.raw},
        {said.batch, "stream", &said.b_stream}, {said.batch, "sequence", &said.b_sequence},
        {said.batch, "count", &said.b_count}, {said.batch, "body", &said.b_body}, {said.batch, "size", &said.b_size},
        {said.batch, "position", &said.b_position}, {said.batch, "drops", &said.b_drops},
        {said.batch, "flags", &said.b_flags}, {said.batch, "is_acked", &said.b_is_acked},
        {said.body, "count", &said.y_count}, {said.body, "frame", &said.y_frame}, {said.body, "size", &said.y_size},
        {said.body, "position", &said.y_position}, {said.body, "differences", &said.y_differences},
        {said.body, "at", &said.y_at},
        {said.body, "_positions", &said.y_positions}, {said.body, "_flat", &said.y_flat},
    };
    zero = zero == NULL ? PyLong_FromLong(0) : zero;
    one = one == NULL ? PyLong_FromLong(1) : one;
    if (zero == NULL || one == NULL || !hot_find_slots(slots, Py_ARRAY_LENGTH(slots))) {
        return NULL;
    }
    for (PyTypeObject **type = &said.sessions; type <= &said.listener; type++) {
        Py_INCREF(*type);
    }
    publishing = said;
    Py_RETURN_NONE;
}

static int
is_quiet(PyObject *batcher, double now)
{
    PyObject *sent_at = hot_get(batcher, publishing.sent_at), *pause = hot_get(batcher, publishing.pause);
    long long unmatched = hot_number(batcher, publishing.unmatched);
    long long then = hot_number(batcher, publishing.unmatched_then);
    return sent_at != NULL && PyFloat_CheckExact(sent_at) && pause != NULL && PyFloat_CheckExact(pause) &&
           now - PyFloat_AS_DOUBLE(sent_at) > PyFloat_AS_DOUBLE(pause) * (double)(1 + unmatched - then);
}

/* Return whether a message of a stream can be sent at once: no other frame must be sent first, and the window has
   space. */
static int
is_free(PyObject *stream, PyObject *session, const LoneLimits *limits, Py_ssize_t size)
{
    PyObject *batches = hot_get(session, publishing.batches), *control = hot_get(session, publishing.control);
    Py_ssize_t count = batches == NULL ? -1 : PyObject_Size(batches);
    return hot_get(session, publishing.is_up) == Py_True && hot_get(session, publishing.is_ping_due) == Py_False &&
           hot_get(session, publishing.bye) == Py_None && control != NULL && PyObject_Size(control) == 0 &&
           count >= 0 && count == hot_number(session, publishing.sent_batches) &&
           count < hot_number(session, publishing.window) &&
           hot_number(session, publishing.window_used) < limits->window_bytes &&
           hot_number(session, publishing.bytes) < limits->pending_bytes && size <= limits->joined_bytes - 16 &&
           limits->joined_bytes + HEAD_BYTES <= hot_number(session, publishing.largest_frame) &&
           hot_get(stream, publishing.group) == Py_None && hot_number(stream, publishing.pending) == 0 &&
           hot_number(stream, publishing.tail_drops) == 0;
}

static void
put_number(unsigned char *at, int width, uint64_t number)
{
    for (int place = width - 1; place >= 0; place--, number >>= 8) {
        at[place] = (unsigned char)number;
    }
}

/* Create the JOINED frame of one message. */
static PyObject *
make_frame(PyObject *stream, uint64_t sequence, uint64_t position, PyObject *subject, PyObject *payload)
{
    PyObject *frame = PyBytes_FromStringAndSize(
        NULL, HEAD_BYTES + 12 + PyBytes_GET_SIZE(subject) + PyBytes_GET_SIZE(payload));
    if (frame == NULL) {
        return NULL;
    }
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(frame), *at = begin;
    *at++ = JOINED;
    *at++ = 0;
    put_number(at, 2, (uint64_t)hot_number(stream, publishing.number));
    put_number(at + 2, 8, sequence);
    put_number(at + 10, 4, 1);
    put_number(at + 14, 8, (uint64_t)hot_number(stream, publishing.numbered_drops));
    put_number(at + 22, 8, position);
    at += 30;
    *at++ = FIXARRAY | 3;
    at = links_put_binary(at, subject);
    at = links_put_binary(at, payload);
    *at++ = NIL;
    /* On failure, _PyBytes_Resize sets `frame` to NULL and raises an exception. */
    _PyBytes_Resize(&frame, at - begin);
    return frame;
}

static PyObject *
make_body(PyObject *packed, PyObject *position, PyObject *size, double now)
{
    PyObject *next = PyNumber_Add(position, one), *at = PyFloat_FromDouble(now);
    PyObject *positions = next == NULL ? NULL : PyObject_CallFunctionObjArgs((PyObject *)&PyRange_Type, position, next, NULL);
    PyObject *differences = PyBytes_FromStringAndSize(NULL, 0);
    PyObject *body = at == NULL || positions == NULL || differences == NULL
                         ? NULL
                         : publishing.body->tp_alloc(publishing.body, 0);
    Py_XDECREF(next);
    if (body == NULL) {
        Py_XDECREF(at);
        Py_XDECREF(positions);
        Py_XDECREF(differences);
        return NULL;
    }
    hot_fill(body, publishing.y_count, Py_NewRef(one));
    hot_fill(body, publishing.y_frame, Py_NewRef(packed));
    hot_fill(body, publishing.y_size, Py_NewRef(size));
    hot_fill(body, publishing.y_position, Py_NewRef(position));
    hot_fill(body, publishing.y_differences, differences);
    hot_fill(body, publishing.y_at, at);
    hot_fill(body, publishing.y_positions, positions);
    hot_fill(body, publishing.y_flat, Py_NewRef(Py_None));
    return body;
}

static PyObject *
make_batch(PyObject *stream, PyObject *session, PyObject *packed, PyObject *position, double now)
{
    PyObject *size = PyLong_FromSsize_t(PyBytes_GET_SIZE(packed));
    PyObject *body = size == NULL ? NULL : make_body(packed, position, size, now);
    PyObject *batch = body == NULL ? NULL : publishing.batch->tp_alloc(publishing.batch, 0);
    if (batch == NULL) {
        Py_XDECREF(size);
        Py_XDECREF(body);
        return NULL;
    }
    hot_fill(batch, publishing.b_stream, Py_NewRef(stream));
    hot_fill(batch, publishing.b_sequence, Py_NewRef(hot_get(session, publishing.following)));
    hot_fill(batch, publishing.b_count, Py_NewRef(one));
    hot_fill(batch, publishing.b_body, body);
    hot_fill(batch, publishing.b_size, size);
    hot_fill(batch, publishing.b_position, Py_NewRef(position));
    hot_fill(batch, publishing.b_drops, Py_NewRef(hot_get(stream, publishing.numbered_drops)));
    hot_fill(batch, publishing.b_flags, Py_NewRef(zero));
    hot_fill(batch, publishing.b_is_acked, Py_NewRef(Py_False));
    return batch;
}

/* Number a message in a stream, and send it. Return 1 if the message was sent, -1 if it was numbered but not sent, and
   0 if nothing has changed. */
static int
send_lone(PyObject *engine, PyObject *batcher, PyObject *stream, PyObject *subject, PyObject *payload, double now,
          const LoneLimits *limits)
{
    PyObject *sessions = hot_get(engine, publishing.engine_sessions);
    PyObject *listener = hot_get(engine, publishing.engine_listener);
    PyObject *session = hot_get(stream, publishing.stream_session);
    if (sessions == NULL || !Py_IS_TYPE(sessions, publishing.sessions) || listener == NULL || session == NULL ||
        !PyObject_TypeCheck(listener, publishing.listener) || !Py_IS_TYPE(session, publishing.session)) {
        return 0;
    }
    PyObject *ready = hot_get(sessions, publishing.ready), *replies = hot_get(sessions, publishing.replies);
    PyObject *raw = hot_get(listener, publishing.raw), *route = hot_get(session, publishing.route);
    long long sequence = hot_number(session, publishing.following), position = hot_number(batcher, publishing.position);
    if (raw == NULL || raw == Py_None || links_address_of(raw) == NULL || ready == NULL || PyObject_Size(ready) ||
        replies == NULL || PyObject_Size(replies) || sequence < 0 || position < 0 || !PyBytes_CheckExact(route) ||
        !is_free(stream, session, limits, PyBytes_GET_SIZE(subject) + PyBytes_GET_SIZE(payload)) ||
        hot_number(sessions, publishing.all_bytes) + PyBytes_GET_SIZE(payload) + 512 > limits->total_bytes) {
        PyErr_Clear();
        return 0;
    }
    PyObject *frame = make_frame(stream, (uint64_t)sequence, (uint64_t)position, subject, payload);
    Py_ssize_t size = frame == NULL ? 0 : PyBytes_GET_SIZE(frame) - HEAD_BYTES;
    PyObject *packed = frame == NULL ? NULL : PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame) + HEAD_BYTES, size);
    PyObject *batch = packed == NULL ? NULL
                                     : make_batch(stream, session, packed, hot_get(batcher, publishing.position), now);
    Changes changes = {.count = 0, .failed = batch == NULL};
    Changes taken = {.count = 0, .failed = batch == NULL};
    add(&changes, batcher, publishing.position, 1);
    add(&changes, stream, publishing.matched, 1);
    add(&changes, stream, publishing.numbered, 1);
    add(&changes, session, publishing.following, 1);
    add(&changes, session, publishing.bytes, size);
    add(&changes, session, publishing.window_used, size);
    add(&changes, sessions, publishing.all_bytes, HEAD_BYTES + size + 32);
    change(&changes, sessions, publishing.now, PyFloat_FromDouble(now));
    add(&taken, session, publishing.sent_batches, 1);
    change(&taken, session, publishing.sent, PyLong_FromLongLong(sequence + 1));
    PyObject *appended = NULL;
    if (!changes.failed && !taken.failed) {
        PyObject *const given[] = {hot_get(session, publishing.batches), batch};
        appended = PyObject_Vectorcall(links_append, given, 2, NULL);
    }
    int result = 0;
    if (appended != NULL) {
        make_changes(&changes);
        result = links_send_pair(raw, route, frame) == 0 ? 1 : -1;
    }
    else {
        drop_changes(&changes);
    }
    if (result == 1) {
        make_changes(&taken);
    }
    else {
        drop_changes(&taken);
    }
    PyErr_Clear();
    Py_XDECREF(appended);
    Py_XDECREF(batch);
    Py_XDECREF(packed);
    Py_XDECREF(frame);
    return result;
}

/* Record a send, as `Batcher.sent` does; return 0 if there is no memory. */
static int
record_sent(PyObject *batcher, double began)
{
    double ended = clock_seconds(CLOCK_MONOTONIC);
    Changes changes = {.count = 0, .failed = 0};
    change(&changes, batcher, publishing.sent_at, PyFloat_FromDouble(ended));
    change(&changes, batcher, publishing.pause, PyFloat_FromDouble(QUIET + (ended - began) / 4));
    change(&changes, batcher, publishing.unmatched_then, Py_XNewRef(hot_get(batcher, publishing.unmatched)));
    if (changes.failed) {
        drop_changes(&changes);
        return 0;
    }
    make_changes(&changes);
    return 1;
}

PyObject *
links_publish_lone(PyObject *engine, PyObject *batcher, PyObject *lock, PyObject *way, PyObject *payload,
                   const LoneLimits *limits)
{
    PyObject *streams = PyTuple_GET_ITEM(way, 0), *subject = PyTuple_GET_ITEM(way, 1);
    if (publishing.session == NULL || limits->refuses || !PyTuple_CheckExact(streams) ||
        PyTuple_GET_SIZE(streams) != 1 || !Py_IS_TYPE(PyTuple_GET_ITEM(streams, 0), publishing.stream) ||
        !PyBytes_CheckExact(subject)) {
        return NULL;
    }
    double now = clock_seconds(CLOCK_MONOTONIC);
    if (!is_quiet(batcher, now)) {
        return NULL;
    }
    int is_locked = call_lock(lock, name_acquire, Py_False);
    if (is_locked <= 0) {
        return NULL;
    }
    int sent = 0;
    PyObject *result = NULL;
    if (hot_get(engine, publishing.is_closing) == Py_False && hot_number(engine, publishing.is_held) == 0 &&
        PyList_GET_SIZE(limits->waiting) == 0) {
        sent = send_lone(engine, batcher, PyTuple_GET_ITEM(streams, 0), subject, payload, now, limits);
    }
    if (sent) {
        PyObject *listener = hot_get(engine, publishing.engine_listener);
        if (sent == 1 && links_has_input(hot_get(listener, publishing.raw)) == 0 && record_sent(batcher, now)) {
            result = Py_NewRef(Py_None);
        }
        else {
            PyObject *began = PyFloat_FromDouble(now);
            PyObject *const given[] = {engine, PyTuple_GET_ITEM(streams, 0), began};
            result = began == NULL ? NULL
                     : sent == 1   ? PyObject_CallMethodOneArg(engine, name_sent_alone, began)
                                   : PyObject_VectorcallMethod(name_send_again, given, 3, NULL);
            Py_XDECREF(began);
        }
    }
    let_go(lock);
    return result;
}

PyMethodDef links_lone_methods[] = {
    {"know_lone_links", know_lone_links, METH_VARARGS, know_lone_links_doc},
    {"know_lone_publisher", know_lone_publisher, METH_VARARGS, know_lone_publisher_doc},
    {NULL, NULL, 0, NULL},
};
