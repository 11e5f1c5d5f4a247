/* Lone messages: a frame with one short message, the next in order of its publisher.

   Twin: `BatchDecoder.accept` of oz.protocol.subscriber.decoder. */

#include "plain.h"
#include <string.h>

typedef struct {
    PyTypeObject *message, *stream, *source, *table, *route;
    Py_ssize_t subject, payload, message_route, body, origin, sequence, time_ns, position;
    Py_ssize_t stream_table, sources, receive_buffer;
    Py_ssize_t epoch, expected, heard_at, has_loss_to_show;
    Py_ssize_t routes, is_clear, route_subject;
} Classes;

/* The name of what works out a route: to make it anew for each message costs as much as the call. */
static PyObject *route_name;

/* Of which classes lone messages are, and what leads to their routes, once that was said; they are never forgotten. */
static Classes known;

PyDoc_STRVAR(know_lone_doc,
"know_lone(message_class, stream_class, source_class, table_class, route_class)\n\n"
"Say of which classes lone messages are, and what leads to their routes. TypeError where those lack the slots.");

static PyObject *
know_lone(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Classes said;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!:know_lone", &PyType_Type, &said.message, &PyType_Type, &said.stream,
                          &PyType_Type, &said.source, &PyType_Type, &said.table, &PyType_Type, &said.route) ||
        (said.subject = hot_offset(said.message, "subject")) < 0 ||
        (said.payload = hot_offset(said.message, "payload")) < 0 ||
        (said.message_route = hot_offset(said.message, "route")) < 0 ||
        (said.body = hot_offset(said.message, "body")) < 0 ||
        (said.origin = hot_offset(said.message, "origin")) < 0 ||
        (said.sequence = hot_offset(said.message, "sequence")) < 0 ||
        (said.time_ns = hot_offset(said.message, "time_ns")) < 0 ||
        (said.position = hot_offset(said.message, "position")) < 0 ||
        (said.stream_table = hot_offset(said.stream, "table")) < 0 ||
        (said.sources = hot_offset(said.stream, "sources")) < 0 ||
        (said.receive_buffer = hot_offset(said.stream, "receive_buffer")) < 0 ||
        (said.epoch = hot_offset(said.source, "epoch")) < 0 ||
        (said.expected = hot_offset(said.source, "expected")) < 0 ||
        (said.heard_at = hot_offset(said.source, "heard_at")) < 0 ||
        (said.has_loss_to_show = hot_offset(said.source, "has_loss_to_show")) < 0 ||
        (said.routes = hot_offset(said.table, "routes")) < 0 ||
        (said.is_clear = hot_offset(said.route, "is_clear")) < 0 ||
        (said.route_subject = hot_offset(said.route, "subject")) < 0) {
        return NULL;
    }
    route_name = route_name == NULL ? PyUnicode_InternFromString("route") : route_name;
    if (route_name == NULL) {
        return NULL;
    }
    known = said;
    Py_INCREF(known.message);
    Py_INCREF(known.stream);
    Py_INCREF(known.source);
    Py_INCREF(known.table);
    Py_INCREF(known.route);
    Py_RETURN_NONE;
}

PyMethodDef hot_lone_methods[] = {
    {"know_lone", know_lone, METH_VARARGS, know_lone_doc},
    {NULL, NULL, 0, NULL},
};

/* Reading a frame ------------------------------------------------------------------------------------------------ */

/* Where things stand behind the key of a frame: docs/wire.md. */
enum { VERSION_AT = 0, FLAGS_AT = 1, ORIGIN_AT = 2, EPOCH_AT = 18, SEQUENCE_AT = 22, POSITION_AT = 30, COUNT_AT = 38 };
#define ORIGIN_SIZE 16
#define VERSION 1

/* One message, positions that follow one another, and an array of two that begins with bytes. */
static const unsigned char one_pair[] = {0, 0, 0, 1, 0, FIXARRAY | 2, BIN_8};
#define SIZE_AT (COUNT_AT + (Py_ssize_t)sizeof(one_pair))

typedef struct {
    const char *key, *origin, *subject, *payload;
    Py_ssize_t subject_size, payload_size;
    unsigned long long epoch, sequence, position;
} Lone;

static inline unsigned long long
big_endian(const unsigned char *at, int size)
{
    unsigned long long number = 0;
    for (int place = 0; place < size; place++) {
        number = number << 8 | at[place];
    }
    return number;
}

/* Read a frame with one message of bytes alone; false where it is anything else. */
static int
read_frame(PyObject *frame, Py_ssize_t key_size, Lone *lone)
{
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(frame), *head = begin + key_size;
    Py_ssize_t left = PyBytes_GET_SIZE(frame) - key_size - SIZE_AT - 1;
    if (left < 0 || head[VERSION_AT] != VERSION || head[FLAGS_AT] != 0 ||
        memcmp(head + COUNT_AT, one_pair, sizeof(one_pair)) != 0) {
        return 0;
    }
    const unsigned char *subject = head + SIZE_AT + 1;
    lone->subject_size = head[SIZE_AT];
    left -= lone->subject_size + 2;
    if (left < 0 || subject[lone->subject_size] != BIN_8 || subject[lone->subject_size + 1] != left) {
        return 0;
    }
    lone->payload_size = left;
    lone->key = (const char *)begin;
    lone->origin = (const char *)head + ORIGIN_AT;
    lone->subject = (const char *)subject;
    lone->payload = (const char *)subject + lone->subject_size + 2;
    lone->epoch = big_endian(head + EPOCH_AT, 4);
    lone->sequence = big_endian(head + SEQUENCE_AT, 8);
    lone->position = big_endian(head + POSITION_AT, 8);
    return 1;
}

/* Accepting ------------------------------------------------------------------------------------------------------ */

enum { ACCEPT_TWIN, DECODER, WAITING, BY_KEY, STATS, RECENT, FORGET, ACCEPT_HELD };
enum { ACCESS, IN_BATCHES, RECEIVED, DELIVERED, KEY_SIZE, LONGEST, MOST_FRAMES };

/* What a dict has under some bytes, if it is of a class; NULL where not, or with an exception. A borrowed reference. */
static PyObject *
find(PyObject *dict, const char *bytes, Py_ssize_t size, PyTypeObject *type)
{
    if (dict == NULL || !PyDict_CheckExact(dict)) {
        return NULL;
    }
    PyObject *key = PyBytes_FromStringAndSize(bytes, size);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    Py_XDECREF(key);
    return found != NULL && Py_IS_TYPE(found, type) ? found : NULL;
}

/* Tell whether a frame is the next one of a publisher that nothing is to be said of. */
static int
is_next(PyObject *source, const Lone *lone)
{
    return hot_get(source, known.has_loss_to_show) == Py_False && lone->sequence < LLONG_MAX &&
           hot_number(source, known.epoch) == (long long)lone->epoch &&
           hot_number(source, known.expected) == (long long)lone->sequence;
}

/* Make a message of a frame; NULL with an exception. */
static PyObject *
make_lone(const Lone *lone, PyObject *route, PyObject *time_ns)
{
    PyObject *payload = PyBytes_FromStringAndSize(lone->payload, lone->payload_size);
    PyObject *origin = PyBytes_FromStringAndSize(lone->origin, ORIGIN_SIZE);
    PyObject *sequence = PyLong_FromUnsignedLongLong(lone->sequence);
    PyObject *position = PyLong_FromUnsignedLongLong(lone->position);
    PyObject *made = payload == NULL || origin == NULL || sequence == NULL || position == NULL
                         ? NULL
                         : known.message->tp_alloc(known.message, 0);
    if (made == NULL) {
        Py_XDECREF(payload);
        Py_XDECREF(origin);
        Py_XDECREF(sequence);
        Py_XDECREF(position);
        return NULL;
    }
    hot_fill(made, known.subject, Py_NewRef(hot_get(route, known.route_subject)));
    hot_fill(made, known.payload, payload);
    hot_fill(made, known.message_route, Py_NewRef(route));
    hot_fill(made, known.body, Py_NewRef(payload));
    hot_fill(made, known.origin, origin);
    hot_fill(made, known.sequence, sequence);
    hot_fill(made, known.time_ns, Py_NewRef(time_ns));
    hot_fill(made, known.position, position);
    return made;
}

/* Remember that a frame was given, and forget old ones where there are many; false with an exception. */
static int
remember(Plain *self, PyObject *frame)
{
    Py_hash_t hash = PyObject_Hash(frame);
    PyObject *number = PyLong_FromSsize_t(hash);
    int failed = number == NULL ? -1 : PySet_Add(self->held[RECENT], number);
    Py_XDECREF(number);
    if (failed || PySet_GET_SIZE(self->held[RECENT]) < self->places[MOST_FRAMES]) {
        return !failed;
    }
    PyObject *forgotten = PyObject_CallNoArgs(self->held[FORGET]);
    Py_XDECREF(forgotten);
    return forgotten != NULL;
}

/* Take in a frame whose source and route are known; NULL with an exception, or where the twin is to do it without one. */
static PyObject *
take_in(Plain *self, PyObject *frame, const Lone *lone, PyObject *source, PyObject *route, PyObject *time_ns)
{
    PyObject *message = make_lone(lone, route, time_ns);
    PyObject *next = message == NULL ? NULL : PyLong_FromUnsignedLongLong(lone->sequence + 1);
    if (next == NULL || !hot_count(self->held[STATS], self->places[RECEIVED], self->places[DELIVERED])) {
        Py_XDECREF(message);
        Py_XDECREF(next);
        return NULL;
    }
    hot_set(source, known.expected, next);
    hot_set(source, known.heard_at, Py_NewRef(time_ns));
    if (!remember(self, frame)) {
        Py_DECREF(message);
        return NULL;
    }
    return message;
}

/* The route of a subject, which is worked out where it is not known: each answer has a subject of its own. NULL with an
   exception. A new reference. */
static PyObject *
find_route(PyObject *table, const Lone *lone)
{
    PyObject *routes = hot_get(table, known.routes);
    PyObject *subject = PyBytes_FromStringAndSize(lone->subject, lone->subject_size);
    PyObject *route = subject == NULL || routes == NULL || !PyDict_CheckExact(routes)
                          ? NULL
                          : Py_XNewRef(PyDict_GetItemWithError(routes, subject));
    if (route == NULL && subject != NULL && !PyErr_Occurred()) {
        Py_INCREF(table);
        route = PyObject_CallMethodOneArg(table, route_name, subject);
        Py_DECREF(table);
    }
    Py_XDECREF(subject);
    return route;
}

/* Take in a lone frame; NULL with an exception, or where it is none and the twin is to look at it, without one. */
static PyObject *
accept_frame(Plain *self, PyObject *frame, PyObject *time_ns)
{
    Lone lone;
    if (PyBytes_GET_SIZE(frame) > self->places[LONGEST] || !read_frame(frame, self->places[KEY_SIZE], &lone) ||
        hot_get(self->held[DECODER], self->places[IN_BATCHES]) != Py_False ||
        hot_get(self->held[DECODER], self->places[ACCESS]) != Py_None || PyObject_Size(self->held[WAITING]) != 0) {
        return NULL;
    }
    PyObject *stream = find(self->held[BY_KEY], lone.key, self->places[KEY_SIZE], known.stream);
    PyObject *table = stream == NULL ? NULL : hot_get(stream, known.stream_table);
    if (table == NULL || !Py_IS_TYPE(table, known.table) || hot_get(stream, known.receive_buffer) != Py_None) {
        return NULL;
    }
    PyObject *source = find(hot_get(stream, known.sources), lone.origin, ORIGIN_SIZE, known.source);
    if (source == NULL || !is_next(source, &lone)) {
        return NULL;
    }
    Py_INCREF(source);
    PyObject *route = find_route(table, &lone), *message = NULL;
    if (route != NULL && Py_IS_TYPE(route, known.route) && hot_get(route, known.is_clear) == Py_True &&
        hot_get(route, known.route_subject) != NULL && is_next(source, &lone)) {
        message = take_in(self, frame, &lone, source, route, time_ns);
    }
    Py_DECREF(source);
    Py_XDECREF(route);
    return message;
}

static PyObject *
accept_lone_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Plain *self = (Plain *)callable;
    if (PyVectorcall_NARGS(flags) == 2 && names == NULL && PyList_CheckExact(arguments[0]) &&
        PyList_GET_SIZE(arguments[0]) == 1 && PyBytes_CheckExact(PyList_GET_ITEM(arguments[0], 0))) {
        PyObject *frame = Py_NewRef(PyList_GET_ITEM(arguments[0], 0));
        PyObject *message = accept_frame(self, frame, arguments[1]);
        Py_DECREF(frame);
        if (message != NULL || PyErr_Occurred()) {
            return message;
        }
    }
    return PyObject_Vectorcall(self->held[ACCEPT_TWIN], arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static PyObject *
accept_lone_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *held[ACCEPT_HELD];
    Py_ssize_t key_size, longest, most;
    static char *keywords[] = {"twin", "decoder", "waiting", "by_key", "stats", "recent", "forget", "key_size", "longest",
                               "most", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOO!OO!Onnn:AcceptLone", keywords, &held[ACCEPT_TWIN],
                                     &held[DECODER], &held[WAITING], &PyDict_Type, &held[BY_KEY], &held[STATS], &PySet_Type,
                                     &held[RECENT], &held[FORGET], &key_size, &longest, &most)) {
        return NULL;
    }
    if (known.message == NULL) {
        return PyErr_Format(PyExc_TypeError, "know_lone() was not called");
    }
    Py_ssize_t access = hot_offset(Py_TYPE(held[DECODER]), "access");
    Py_ssize_t in_batches = access < 0 ? -1 : hot_offset(Py_TYPE(held[DECODER]), "in_batches");
    Py_ssize_t received = in_batches < 0 ? -1 : hot_offset(Py_TYPE(held[STATS]), "received");
    Py_ssize_t delivered = received < 0 ? -1 : hot_offset(Py_TYPE(held[STATS]), "delivered");
    Plain *self = delivered < 0 ? NULL : plain_new(type, accept_lone_call, held, ACCEPT_HELD);
    if (self != NULL) {
        self->places[ACCESS] = access;
        self->places[IN_BATCHES] = in_batches;
        self->places[RECEIVED] = received;
        self->places[DELIVERED] = delivered;
        self->places[KEY_SIZE] = key_size;
        self->places[LONGEST] = longest;
        self->places[MOST_FRAMES] = most;
    }
    return (PyObject *)self;
}

PLAIN_SPEC(hot_accept_lone_spec, accept_lone_slots, "oz.compiled._hot.AcceptLone", accept_lone_new,
           "Take in the frames of one message: see oz.compiled.Hot.");
