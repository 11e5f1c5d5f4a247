/* A message that waits for no others, sent to the one stream that wants it.

   Twin: `Accumulator.begin` of oz.transport.publisher.accumulator, with all that it calls. No signal handler comes in
   between here, and no other thread: nothing gives up the interpreter's lock but the guard, and that comes first. */

#include "plain.h"
#include <string.h>

/* ZMQ_DONTWAIT. Source: zmq.h. */
#define DONTWAIT 1

enum {
    ACCUMULATOR, GUARD, POSTPONED, MESSAGES, DISPATCH, SINK, STATS, SENDER, ITS_CLOCK, LOOK, SOCKET, STREAM, RICH, PACK, ALONE_HELD
};
enum {
    QUIET, TOOK, SENT_AT, OTHERS_UNWANTED, IS_OVER,
    IS_WANTED, IS_BUSY, IS_HANDING_OVER, IS_TORN,
    POSITION, IS_LOSSLESS, UNWANTED, SENT, IS_UNHEARD, IS_BEHIND, LISTENED_AT,
    SEQUENCE, HEADS, IS_SHARED, VANISHED_AT, IS_FULL, IS_CLOSING, IS_GONE,
    MOST_BYTES, PLACES,
};
_Static_assert(PLACES <= MOST_PLACES, "there is room for all places");

typedef struct {
    Plain plain;
    double quiet, share, listen_every;
} Alone;

/* The longest frame: the key of a shared pattern, the head, and what is sent the short way. */
#define LONGEST 2048

static inline double
seconds(PyObject *object, Py_ssize_t offset)
{
    PyObject *found = hot_get(object, offset);
    return found != NULL && PyFloat_CheckExact(found) ? PyFloat_AS_DOUBLE(found) : Py_NAN;
}

static inline int
is_so(Plain *self, int holder, int place, PyObject *value)
{
    return hot_get(self->held[holder], self->places[place]) == value;
}

/* What time it is; below 0 with an exception. */
static double
look_at_clock(Plain *self)
{
    PyObject *now = PyObject_CallNoArgs(self->held[ITS_CLOCK]);
    double time = now == NULL ? -1.0 : PyFloat_AsDouble(now);
    Py_XDECREF(now);
    return time;
}

/* Tell whether a publisher is quiet at a time: messages that nobody wants are no silence. */
static int
is_quiet(Plain *self, double now)
{
    long long unwanted = hot_number(self->held[STATS], self->places[UNWANTED]);
    long long before = hot_number(self->held[ACCUMULATOR], self->places[OTHERS_UNWANTED]);
    double silence = now - seconds(self->held[ACCUMULATOR], self->places[SENT_AT]);
    /* Not so where any of them is no number. */
    return unwanted >= 0 && before >= 0 &&
           silence >= seconds(self->held[ACCUMULATOR], self->places[QUIET]) * (1.0 + (double)unwanted - (double)before);
}

/* Tell whether nothing stands before a message, with the guard held. */
static int
is_first(Plain *self, PyObject *stream)
{
    return PyList_GET_SIZE(self->held[MESSAGES]) == 0 && is_so(self, ACCUMULATOR, IS_OVER, Py_False) &&
           is_so(self, GUARD, IS_BUSY, Py_False) && is_so(self, GUARD, IS_HANDING_OVER, Py_False) &&
           is_so(self, GUARD, IS_TORN, Py_False) && PyObject_Size(self->held[POSTPONED]) == 0 &&
           is_so(self, SINK, IS_LOSSLESS, Py_True) && hot_get(stream, self->places[IS_SHARED]) == Py_False &&
           hot_get(stream, self->places[VANISHED_AT]) == Py_None && hot_get(stream, self->places[IS_FULL]) == Py_False &&
           hot_get(stream, self->places[IS_CLOSING]) == Py_False && hot_get(stream, self->places[IS_GONE]) == Py_False &&
           plain_is_open(self->held[SOCKET]);
}

/* Writing -------------------------------------------------------------------------------------------------------- */

static inline unsigned char *
put_number(unsigned char *at, unsigned long long number, int size)
{
    for (int place = size - 1; place >= 0; place--) {
        *at++ = (unsigned char)(number >> (8 * place));
    }
    return at;
}

static inline unsigned char *
put_bytes(unsigned char *at, PyObject *item)
{
    Py_ssize_t size = PyBytes_GET_SIZE(item);
    if (size > 0xff) {
        *at++ = BIN_16;
        *at++ = (unsigned char)(size >> 8);
    }
    else {
        *at++ = BIN_8;
    }
    *at++ = (unsigned char)size;
    memcpy(at, PyBytes_AS_STRING(item), (size_t)size);
    return at + size;
}

/* A message: its subject and its payload; or both as they are packed, where it has extras, and NULL otherwise. */
typedef struct {
    PyObject *subject, *payload, *packed;
} Message;

/* What frames of a stream begin with, if it leaves room; NULL where not. A borrowed reference. */
static PyObject *
head_of(Plain *self, PyObject *stream, const Message *message)
{
    PyObject *heads = hot_get(stream, self->places[HEADS]);
    /* Those of plain and of rich messages come first. */
    Py_ssize_t place = message->packed != NULL;
    PyObject *head = heads != NULL && PyTuple_CheckExact(heads) && PyTuple_GET_SIZE(heads) > place
                         ? PyTuple_GET_ITEM(heads, place)
                         : NULL;
    return head != NULL && PyBytes_CheckExact(head) && PyBytes_GET_SIZE(head) < LONGEST - 1024 ? head : NULL;
}

/* Write a frame of one message: docs/wire.md. */
static size_t
write_frame(unsigned char *frame, PyObject *head, long long sequence, long long position, const Message *message)
{
    memcpy(frame, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
    unsigned char *at = put_number(frame + PyBytes_GET_SIZE(head), (unsigned long long)sequence, 8);
    at = put_number(at, (unsigned long long)position, 8);
    /* One message, and no differences between positions. */
    at = put_number(at, 1, 4);
    *at++ = 0;
    if (message->packed != NULL) {
        memcpy(at, PyBytes_AS_STRING(message->packed), (size_t)PyBytes_GET_SIZE(message->packed));
        return (size_t)(at + PyBytes_GET_SIZE(message->packed) - frame);
    }
    *at++ = FIXARRAY | 2;
    return (size_t)(put_bytes(put_bytes(at, message->subject), message->payload) - frame);
}

/* Sending -------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *sequence, *position;
} Next;

/* Record that a message has gone, which was begun at a time; the new numbers are taken over. */
static void
record(Plain *self, PyObject *stream, Next next)
{
    hot_set(stream, self->places[SEQUENCE], next.sequence);
    hot_set(self->held[DISPATCH], self->places[POSITION], next.position);
    hot_set(self->held[ACCUMULATOR], self->places[OTHERS_UNWANTED],
            Py_NewRef(hot_get(self->held[STATS], self->places[UNWANTED])));
}

/* Record how long it took, and look for subscriptions where nobody else was told to; false with an exception. */
static int
finish(Alone *self, double began)
{
    Plain *plain = &self->plain;
    double now = look_at_clock(plain), before = seconds(plain->held[ACCUMULATOR], plain->places[TOOK]);
    if (now == -1.0 && PyErr_Occurred()) {
        return 0;
    }
    double most = 2 * (self->quiet > before ? self->quiet : before), took = now - began < most ? now - began : most;
    double quiet = self->share * took > self->quiet ? self->share * took : self->quiet;
    PyObject *sent_at = PyFloat_FromDouble(now), *its_time = PyFloat_FromDouble(took), *rest = PyFloat_FromDouble(quiet);
    if (sent_at == NULL || its_time == NULL || rest == NULL) {
        Py_XDECREF(sent_at);
        Py_XDECREF(its_time);
        Py_XDECREF(rest);
        return 0;
    }
    hot_set(plain->held[ACCUMULATOR], plain->places[SENT_AT], sent_at);
    hot_set(plain->held[ACCUMULATOR], plain->places[TOOK], its_time);
    hot_set(plain->held[ACCUMULATOR], plain->places[QUIET], rest);
    if (is_so(plain, SENDER, IS_UNHEARD, Py_True) &&
        (is_so(plain, SENDER, IS_BEHIND, Py_True) ||
         now - seconds(plain->held[SENDER], plain->places[LISTENED_AT]) < self->listen_every)) {
        return 1;
    }
    PyObject *looked = PyObject_CallNoArgs(plain->held[LOOK]);
    Py_XDECREF(looked);
    return looked != NULL;
}

/* Send a message with the guard held; 1 where it has gone, 0 where the twin is to do it, -1 with an exception. */
static int
send_guarded(Alone *alone, PyObject *stream, const Message *message, double began)
{
    Plain *self = &alone->plain;
    long long sequence = hot_number(stream, self->places[SEQUENCE]);
    long long position = hot_number(self->held[DISPATCH], self->places[POSITION]);
    long long sent = hot_number(self->held[STATS], self->places[SENT]);
    PyObject *head = head_of(self, stream, message);
    if (sequence < 0 || position < 0 || sequence == LLONG_MAX || position == LLONG_MAX || sent < 0 ||
        sent == LLONG_MAX || head == NULL ||
        !is_first(self, stream)) {
        return 0;
    }
    unsigned char frame[LONGEST];
    Part part = {frame, write_frame(frame, head, sequence, position, message)};
    Next next = {PyLong_FromLongLong(sequence + 1), PyLong_FromLongLong(position + 1)};
    if (next.sequence == NULL || next.position == NULL ||
        plain_send_parts(self->sendiov, self->socket, &part, 1, DONTWAIT) != 0) {
        /* Nothing has gone: the twin finds what the matter is. */
        Py_XDECREF(next.sequence);
        Py_XDECREF(next.position);
        return PyErr_Occurred() ? -1 : 0;
    }
    record(self, stream, next);
    (void)hot_count(self->held[STATS], self->places[SENT], -1);
    return finish(alone, began) ? 1 : -1;
}

/* The only stream that gets a message as it is; NULL where there are others. A borrowed reference. */
static PyObject *
only_stream(Plain *self, PyObject *recipients)
{
    PyObject *streams = hot_simple_streams(recipients);
    PyObject *stream = streams != NULL && PyTuple_GET_SIZE(streams) == 1 ? PyTuple_GET_ITEM(streams, 0) : NULL;
    return stream != NULL && (PyObject *)Py_TYPE(stream) == self->held[STREAM] ? stream : NULL;
}

/* Tell whether a message is sent the short way, where it wants no counting. */
static int
is_small(Plain *self, PyObject *subject, PyObject *payload)
{
    if ((PyObject *)Py_TYPE(payload) == self->held[RICH]) {
        /* Of the extras nobody knows yet. */
        payload = PyList_GET_SIZE(payload) ? PyList_GET_ITEM(payload, 0) : Py_None;
    }
    if (!PyBytes_CheckExact(subject) || !PyBytes_CheckExact(payload)) {
        return 0;
    }
    Py_ssize_t most = self->places[MOST_BYTES], one = PyBytes_GET_SIZE(subject), other = PyBytes_GET_SIZE(payload);
    return one < most && other < most && one + other + 5 + (one > 0xff) + (other > 0xff) < most;
}

/* Pack a message that has extras; 0 where the twin is to do it, -1 with an exception. */
static int
pack(Plain *self, Message *message)
{
    if ((PyObject *)Py_TYPE(message->payload) != self->held[RICH]) {
        return 1;
    }
    PyObject *pair = PyList_New(2);
    if (pair == NULL) {
        return -1;
    }
    PyList_SET_ITEM(pair, 0, Py_NewRef(message->subject));
    PyList_SET_ITEM(pair, 1, Py_NewRef(message->payload));
    message->packed = PyObject_CallOneArg(self->held[PACK], pair);
    Py_DECREF(pair);
    if (message->packed != NULL) {
        return PyBytes_CheckExact(message->packed) && PyBytes_GET_SIZE(message->packed) < self->places[MOST_BYTES];
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    /* It will not do, and the twin says so. */
    PyErr_Clear();
    return 0;
}

/* Take the guard, and send. 1 where it has gone, 0 where the twin is to do it, -1 with an exception. */
static int
send(Alone *alone, PyObject *stream, const Message *message, double began)
{
    Plain *self = &alone->plain;
    hot_set(self->held[GUARD], self->places[IS_WANTED], Py_NewRef(Py_True));
    PyObject *is_held = PyObject_CallMethodNoArgs(self->held[GUARD], plain_acquire);
    if (is_held == NULL) {
        return -1;
    }
    Py_DECREF(is_held);
    int is_sent = send_guarded(alone, stream, message, began);
    return plain_release_guard(self->held[GUARD]) ? is_sent : -1;
}

static PyObject *
send_alone_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Alone *alone = (Alone *)callable;
    Plain *self = &alone->plain;
    if (PyVectorcall_NARGS(flags) != 3 || names != NULL) {
        return PyErr_Format(PyExc_TypeError, "takes recipients, a subject and a payload");
    }
    PyObject *stream = only_stream(self, arguments[0]);
    if (stream == NULL || !is_small(self, arguments[1], arguments[2]) || PyList_GET_SIZE(self->held[MESSAGES]) != 0) {
        Py_RETURN_FALSE;
    }
    Py_INCREF(stream);
    Message message = {arguments[1], arguments[2], NULL};
    double now = look_at_clock(self);
    int is_sent = now == -1.0 && PyErr_Occurred() ? -1 : is_quiet(self, now) ? pack(self, &message) : 0;
    if (is_sent > 0) {
        is_sent = send(alone, stream, &message, now);
    }
    Py_XDECREF(message.packed);
    Py_DECREF(stream);
    return is_sent < 0 ? NULL : PyBool_FromLong(is_sent);
}

/* Find where the slots lie; false with an exception. */
static int
find_places(PyObject *const *held, Py_ssize_t *places)
{
    static const struct {
        int holder, place;
        const char *name;
    } slots[] = {
        {ACCUMULATOR, QUIET, "_quiet"}, {ACCUMULATOR, TOOK, "_took"}, {ACCUMULATOR, SENT_AT, "sent_at"},
        {ACCUMULATOR, OTHERS_UNWANTED, "_unwanted"}, {ACCUMULATOR, IS_OVER, "is_over"},
        {GUARD, IS_WANTED, "is_wanted"}, {GUARD, IS_BUSY, "is_busy"}, {GUARD, IS_HANDING_OVER, "is_handing_over"},
        {GUARD, IS_TORN, "is_torn"}, {DISPATCH, POSITION, "position"}, {SINK, IS_LOSSLESS, "_is_lossless"},
        {STATS, UNWANTED, "unwanted"}, {STATS, SENT, "sent"}, {SENDER, IS_UNHEARD, "is_unheard"},
        {SENDER, IS_BEHIND, "is_behind"}, {SENDER, LISTENED_AT, "listened_at"}, {STREAM, SEQUENCE, "sequence"},
        {STREAM, HEADS, "heads"}, {STREAM, IS_SHARED, "is_shared"}, {STREAM, VANISHED_AT, "vanished_at"},
        {STREAM, IS_FULL, "is_full"}, {STREAM, IS_CLOSING, "is_closing"}, {STREAM, IS_GONE, "is_gone"},
    };
    for (size_t at = 0; at < Py_ARRAY_LENGTH(slots); at++) {
        PyObject *holder = held[slots[at].holder];
        PyTypeObject *type = slots[at].holder == STREAM ? (PyTypeObject *)holder : Py_TYPE(holder);
        if ((places[slots[at].place] = hot_offset(type, slots[at].name)) < 0) {
            return 0;
        }
    }
    return plain_know_guards();
}

static PyObject *
send_alone_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[ALONE_HELD];
    Py_ssize_t places[MOST_PLACES] = {0}, most, address, sendiov;
    double quiet, share, listen_every;
    static char *keywords[] = {"accumulator", "guard", "postponed", "messages", "dispatch", "sink", "stats", "sender",
                               "clock", "look", "socket", "stream", "rich", "pack", "address", "sendiov", "most", "quiet", "share",
                               "listen_every", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOO!OOOOOOOO!O!Onnnddd:SendAlone", keywords, &held[ACCUMULATOR],
                                     &held[GUARD], &held[POSTPONED], &PyList_Type, &held[MESSAGES], &held[DISPATCH],
                                     &held[SINK], &held[STATS], &held[SENDER], &held[ITS_CLOCK], &held[LOOK], &held[SOCKET],
                                     &PyType_Type, &held[STREAM], &PyType_Type, &held[RICH], &held[PACK], &address, &sendiov, &most, &quiet, &share,
                                     &listen_every) ||
        !find_places(held, places)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)held[RICH], &PyList_Type)) {
        return PyErr_Format(PyExc_TypeError, "payloads with extras are lists");
    }
    if (!address || !sendiov || most > LONGEST - 1024 - 64) {
        return PyErr_Format(PyExc_ValueError, "takes the addresses of a socket and of zmq_sendiov, and small frames");
    }
    Alone *self = (Alone *)plain_new(type, send_alone_call, held, ALONE_HELD);
    if (self != NULL) {
        memcpy(self->plain.places, places, sizeof(places));
        self->plain.places[MOST_BYTES] = most;
        self->plain.socket = (void *)address;
        self->plain.sendiov = (Sendiov)sendiov;
        self->quiet = quiet;
        self->share = share;
        self->listen_every = listen_every;
    }
    return (PyObject *)self;
}

PLAIN_SPEC_OF(Alone, hot_send_alone_spec, send_alone_slots, "oz.compiled._hot.SendAlone", send_alone_new,
           "Send a message that waits for no others: see oz.compiled.Hot.");
