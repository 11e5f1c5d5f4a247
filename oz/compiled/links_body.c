/* Bodies of batches: pack messages into a frame, and create messages from a frame.

   Twins: `Batcher.flush` of oz.publisher.batching, `decode_body` of oz.wire.links, `Dispatcher.deliver` of
   oz.subscriber.queue. */

#include "links.h"
#include <string.h>

PyTypeObject *links_columns_type;
Subscribing links_subscriber;

/* Reading -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *begin, *at, *end;
} Reader;

/* Read a number of `width` bytes; return -1 if the frame is too short. */
static inline int64_t
read_number(Reader *reader, int width)
{
    if (reader->end - reader->at < width) {
        return -1;
    }
    uint64_t number = 0;
    for (int place = 0; place < width; place++) {
        number = number << 8 | *reader->at++;
    }
    return (int64_t)number;
}

/* Read the length of an array; return -1 if the next value is not an array. */
static int64_t
read_array(Reader *reader)
{
    int64_t mark = read_number(reader, 1);
    if (mark < 0) {
        return -1;
    }
    if ((mark & 0xf0) == FIXARRAY) {
        return mark & 0x0f;
    }
    return mark == ARRAY_16 ? read_number(reader, 2) : mark == ARRAY_32 ? read_number(reader, 4) : -1;
}

/* Read the offset and the size of a binary value; return 0 if the next value is not binary. */
static inline int
read_binary(Reader *reader, uint32_t *place, uint32_t *size)
{
    int64_t mark = read_number(reader, 1);
    if (mark < BIN_8 || mark > BIN_32) {
        return 0;
    }
    int64_t length = read_number(reader, 1 << (mark - BIN_8));
    if (length < 0 || reader->end - reader->at < length) {
        return 0;
    }
    *place = (uint32_t)(reader->at - reader->begin);
    *size = (uint32_t)length;
    reader->at += length;
    return 1;
}

int
links_find_entries(const unsigned char *begin, const unsigned char *at, const unsigned char *end, Py_ssize_t count,
                   Entry *entries)
{
    Reader reader = {begin, at, end};
    if (read_array(&reader) != 3 * count) {
        return 0;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        Entry *entry = &entries[place];
        if (!read_binary(&reader, &entry->subject, &entry->subject_size) ||
            !read_binary(&reader, &entry->payload, &entry->payload_size) || read_number(&reader, 1) != NIL) {
            return 0;
        }
    }
    return reader.at == reader.end;
}

PyDoc_STRVAR(scan_doc,
"scan(frame, at, count) -> Columns | None\n\n"
"Check a body of `count` messages that begins at index `at` of a frame. Return None if it is malformed or has extras.");

static PyObject *
scan(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 3 || !PyBytes_CheckExact(arguments[0])) {
        return PyErr_Format(PyExc_TypeError, "scan() needs bytes and two numbers");
    }
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), count = PyLong_AsSsize_t(arguments[2]);
    if ((at == -1 || count == -1) && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[0]);
    /* A message needs at least five bytes. Therefore the size of the frame limits the allocated memory. */
    if (at < 0 || at > size || size > UINT32_MAX || count < 1 || count > MAX_COUNT || count > (size - at) / 5) {
        Py_RETURN_NONE;
    }
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    Columns *columns = (Columns *)links_columns_type->tp_alloc(links_columns_type, count);
    if (columns == NULL) {
        return NULL;
    }
    columns->frame = Py_NewRef(arguments[0]);
    if (!links_find_entries(begin, begin + at, begin + size, count, columns->entries)) {
        Py_DECREF(columns);
        Py_RETURN_NONE;
    }
    return (PyObject *)columns;
}

static void
columns_dealloc(Columns *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->frame);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
part_of(Columns *self, uint32_t place, uint32_t size)
{
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->frame) + place, size);
}

PyDoc_STRVAR(flat_doc, "flat() -> list\n\nReturn the same list as oz.wire.links.decode_body.");

static PyObject *
columns_flat(Columns *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t count = Py_SIZE(self);
    PyObject *flat = PyList_New(3 * count);
    for (Py_ssize_t place = 0; flat != NULL && place < count; place++) {
        Entry *entry = &self->entries[place];
        PyObject *subject = part_of(self, entry->subject, entry->subject_size);
        PyObject *payload = subject == NULL ? NULL : part_of(self, entry->payload, entry->payload_size);
        if (payload == NULL) {
            Py_XDECREF(subject);
            Py_CLEAR(flat);
            break;
        }
        PyList_SET_ITEM(flat, 3 * place, subject);
        PyList_SET_ITEM(flat, 3 * place + 1, payload);
        PyList_SET_ITEM(flat, 3 * place + 2, Py_NewRef(Py_None));
    }
    return flat;
}

static Py_ssize_t
columns_length(Columns *self)
{
    return Py_SIZE(self);
}

static PyMethodDef columns_methods[] = {
    {"flat", (PyCFunction)columns_flat, METH_NOARGS, flat_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot columns_slots[] = {
    {Py_tp_doc, PyDoc_STR("Messages of a body that was checked; len() counts the messages.")},
    {Py_tp_dealloc, columns_dealloc},
    {Py_tp_methods, columns_methods},
    {Py_sq_length, columns_length},
    {0, NULL},
};

PyType_Spec links_columns_spec = {
    .name = "oz.compiled._hot.Columns",
    .basicsize = offsetof(Columns, entries),
    .itemsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = columns_slots,
};

/* Routes by subject ---------------------------------------------------------------------------------------------- */

/* Cache in front of the dict of routes. A lookup in the cache needs no bytes object for the subject. The slots are
   grouped in sets, each of which fits into one cache line of the processor. A lookup reads one set and the route. If a
   hostile peer chooses subjects with equal hashes, the only effect is a lookup in the dict. */

#define SET 4
#define FEWEST_SLOTS 64
#define MAX_SLOTS 8192
#define LONGEST_CACHED 256

typedef struct {
    uint64_t hash;
    PyObject *route;
} Slot;

typedef struct {
    PyObject_HEAD
    Slot *slots;
    size_t size, filled;
} Subjects;

static inline uint64_t
hash_of(const char *at, size_t size)
{
    uint64_t hash = size * 0x9e3779b97f4a7c15u, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, at, size);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Return the set of slots in which a hash is stored. */
static inline Slot *
set_of(Slot *slots, size_t size, uint64_t hash)
{
    return &slots[hash & (size - 1) & ~(size_t)(SET - 1)];
}

/* Return whether a route belongs to a subject. Only routes with ASCII subjects are in the cache. */
static inline int
is_route_of(PyObject *route, const char *at, size_t size)
{
    PyObject *text = hot_get(route, links_subscriber.route_subject);
    return text != NULL && (size_t)PyUnicode_GET_LENGTH(text) == size && memcmp(PyUnicode_DATA(text), at, size) == 0;
}

/* Return the cached route of a subject as a borrowed reference; NULL if it is not cached. */
static inline PyObject *
cached_route(Subjects *self, uint64_t hash, const char *at, size_t size)
{
    Slot *set = set_of(self->slots, self->size, hash);
    for (int place = 0; place < SET; place++) {
        if (set[place].hash == hash && set[place].route != NULL && is_route_of(set[place].route, at, size)) {
            return set[place].route;
        }
    }
    return NULL;
}

/* Store a slot in its set; return the route that is replaced, or NULL. */
static PyObject *
put_slot(Slot *slots, size_t size, Slot slot)
{
    Slot *set = set_of(slots, size, slot.hash);
    int place = 0;
    while (place < SET - 1 && set[place].route != NULL) {
        place++;
    }
    PyObject *before = set[place].route;
    set[place] = slot;
    return before;
}

static void
grow(Subjects *self)
{
    size_t size = 4 * self->size;
    Slot *slots = PyMem_Calloc(size, sizeof(Slot));
    if (slots == NULL) {
        return;
    }
    for (size_t place = 0; place < self->size; place++) {
        /* No route is replaced, because all routes of a larger set come from the same smaller set. */
        if (self->slots[place].route != NULL) {
            put_slot(slots, size, self->slots[place]);
        }
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->size = size;
}

static void
cache_route(Subjects *self, uint64_t hash, Py_ssize_t size, PyObject *route)
{
    PyObject *text = hot_get(route, links_subscriber.route_subject);
    if (size > LONGEST_CACHED || text == NULL || !PyUnicode_CheckExact(text) || !PyUnicode_IS_READY(text) ||
        !PyUnicode_IS_ASCII(text)) {
        return;
    }
    if (self->filled > self->size / 4 && self->size < MAX_SLOTS) {
        grow(self);
    }
    PyObject *before = put_slot(self->slots, self->size, (Slot){hash, Py_NewRef(route)});
    self->filled += before == NULL;
    Py_XDECREF(before);
}

static PyObject *
subjects_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    if (PyTuple_GET_SIZE(arguments) || (names != NULL && PyDict_GET_SIZE(names))) {
        return PyErr_Format(PyExc_TypeError, "Subjects() takes no arguments");
    }
    Slot *slots = PyMem_Calloc(FEWEST_SLOTS, sizeof(Slot));
    if (slots == NULL) {
        return PyErr_NoMemory();
    }
    Subjects *self = (Subjects *)type->tp_alloc(type, 0);
    if (self == NULL) {
        PyMem_Free(slots);
        return NULL;
    }
    self->slots = slots;
    self->size = FEWEST_SLOTS;
    return (PyObject *)self;
}

static int
subjects_traverse(Subjects *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (size_t place = 0; self->slots != NULL && place < self->size; place++) {
        Py_VISIT(self->slots[place].route);
    }
    return 0;
}

static int
subjects_clear(Subjects *self)
{
    for (size_t place = 0; place < self->size; place++) {
        Py_CLEAR(self->slots[place].route);
    }
    self->filled = 0;
    return 0;
}

static void
subjects_dealloc(Subjects *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    subjects_clear(self);
    PyMem_Free(self->slots);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot subjects_slots[] = {
    {Py_tp_doc, PyDoc_STR("Cache of routes by subject: see oz.compiled.Hot.")},
    {Py_tp_new, subjects_new},
    {Py_tp_traverse, subjects_traverse},
    {Py_tp_clear, subjects_clear},
    {Py_tp_dealloc, subjects_dealloc},
    {0, NULL},
};

PyType_Spec links_subjects_spec = {
    .name = "oz.compiled._hot.Subjects",
    .basicsize = sizeof(Subjects),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = subjects_slots,
};

/* Messages ------------------------------------------------------------------------------------------------------- */

/* Python ints for the indexes of messages in a batch, because Python caches only small ints. */
static PyObject *offsets[MAX_COUNT];

PyDoc_STRVAR(know_subscriber_doc,
"know_subscriber(message, handled_message, route, queue, inbox)\n\n"
"Set the classes of oz.subscriber. Raise TypeError if a class lacks a slot, or if messages are not plain tuples.");

static PyObject *
know_subscriber(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Subscribing said;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!:know_subscriber", &PyType_Type, &said.message, &PyType_Type,
                          &said.handled_message, &PyType_Type, &said.route, &PyType_Type, &said.queue, &PyType_Type,
                          &said.inbox)) {
        return NULL;
    }
    const SlotOffset slots[] = {
        {said.route, "subject", &said.route_subject}, {said.route, "queues", &said.route_queues},
        {said.route, "target", &said.route_target}, {said.route, "inboxes", &said.route_inboxes},
        {said.queue, "items", &said.queue_items}, {said.queue, "work", &said.queue_work},
        {said.queue, "full", &said.queue_full}, {said.queue, "max_pending", &said.queue_max_pending},
        {said.queue, "overflow", &said.queue_overflow}, {said.queue, "inbox", &said.queue_inbox},
        {said.inbox, "handler", &said.inbox_handler},
    };
    if (!hot_find_slots(slots, Py_ARRAY_LENGTH(slots))) {
        return NULL;
    }
    PyTypeObject *const kinds[] = {said.message, said.handled_message};
    for (size_t place = 0; place < 2; place++) {
        if (!PyType_IsSubtype(kinds[place], &PyTuple_Type) || kinds[place]->tp_basicsize != PyTuple_Type.tp_basicsize ||
            kinds[place]->tp_dictoffset) {
            return PyErr_Format(PyExc_TypeError, "%s is no tuple without slots", kinds[place]->tp_name);
        }
    }
    for (long place = 0; place < MAX_COUNT; place++) {
        if (offsets[place] == NULL && (offsets[place] = PyLong_FromLong(place)) == NULL) {
            return NULL;
        }
    }
    Py_INCREF(said.message);
    Py_INCREF(said.handled_message);
    Py_INCREF(said.route);
    Py_INCREF(said.queue);
    Py_INCREF(said.inbox);
    links_subscriber = said;
    Py_RETURN_NONE;
}

/* Return a new reference to the route of a subject, from the dict or from `find`, which also updates the dict. */
static PyObject *
find_route(Subjects *cache, PyObject *routes, PyObject *find, PyObject *stream, uint64_t hash, const char *at,
           uint32_t size)
{
    PyObject *subject = PyBytes_FromStringAndSize(at, size);
    if (subject == NULL) {
        return NULL;
    }
    PyObject *route = Py_XNewRef(PyDict_GetItemWithError(routes, subject));
    if (route == NULL && !PyErr_Occurred()) {
        PyObject *const given[] = {routes, stream, subject, Py_None};
        route = PyObject_Vectorcall(find, given, 4, NULL);
    }
    if (route != NULL && !Py_IS_TYPE(route, links_subscriber.route)) {
        Py_CLEAR(route);
        PyErr_SetString(PyExc_TypeError, "a route is of another class");
    }
    if (route != NULL) {
        cache_route(cache, hash, size, route);
    }
    Py_DECREF(subject);
    return route;
}

/* Create a message. The function steals the reference to the payload. */
static inline PyObject *
make_message(PyTypeObject *kind, PyObject *route, PyObject *payload, PyObject *arrival, Py_ssize_t offset)
{
    PyObject *subject = hot_get(route, links_subscriber.route_subject);
    if (subject == NULL) {
        Py_DECREF(payload);
        return PyErr_Format(PyExc_AttributeError, "a route has no subject");
    }
    PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, kind, 5);
    if (made == NULL) {
        Py_DECREF(payload);
        return NULL;
    }
    made->ob_item[0] = Py_NewRef(subject);
    made->ob_item[1] = payload;
    made->ob_item[2] = Py_NewRef(route);
    made->ob_item[3] = Py_NewRef(arrival);
    made->ob_item[4] = Py_NewRef(offsets[offset]);
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

/* If many subscribers share a processor, routes are rarely in its cache. Therefore memory is prefetched while earlier
   messages are created: the text of a route TEXT_AHEAD messages before its use, the route ROUTE_AHEAD messages. */
#define TEXT_AHEAD 4
#define ROUTE_AHEAD 8

/* Return the route with a hash as a borrowed reference, or NULL. Its subject may be another one with this hash. */
static inline PyObject *
likely_route(Subjects *self, uint64_t hash)
{
    Slot *set = set_of(self->slots, self->size, hash);
    for (int place = 0; place < SET; place++) {
        if (set[place].hash == hash) {
            return set[place].route;
        }
    }
    return NULL;
}

static inline void
fetch_ahead(Subjects *cache, const uint64_t *hashes, Py_ssize_t place, Py_ssize_t count)
{
    PyObject *route = place + ROUTE_AHEAD < count ? likely_route(cache, hashes[place + ROUTE_AHEAD]) : NULL;
    if (route != NULL) {
        __builtin_prefetch(route);
        __builtin_prefetch((char *)route + links_subscriber.route_target);
    }
    route = place + TEXT_AHEAD < count ? likely_route(cache, hashes[place + TEXT_AHEAD]) : NULL;
    if (route != NULL) {
        __builtin_prefetch(hot_get(route, links_subscriber.route_subject));
    }
}

PyObject *
links_make_messages(const Finder *finder, const char *begin, const Entry *entries, Py_ssize_t count, PyTypeObject *kind,
                    PyObject *arrival)
{
    if (finder->cache == NULL || Py_TYPE(finder->cache)->tp_dealloc != (destructor)subjects_dealloc ||
        finder->routes == NULL || !PyDict_Check(finder->routes)) {
        return PyErr_Format(PyExc_TypeError, "routes need a cache and a dict");
    }
    Subjects *cache = (Subjects *)finder->cache;
    uint64_t hashes[MAX_COUNT];
    for (Py_ssize_t place = 0; place < count; place++) {
        hashes[place] = hash_of(begin + entries[place].subject, entries[place].subject_size);
        __builtin_prefetch(set_of(cache->slots, cache->size, hashes[place]));
    }
    PyObject *messages = PyList_New(count);
    for (Py_ssize_t place = 0; messages != NULL && place < count; place++) {
        const Entry *entry = &entries[place];
        const char *at = begin + entry->subject;
        fetch_ahead(cache, hashes, place, count);
        PyObject *route = Py_XNewRef(cached_route(cache, hashes[place], at, entry->subject_size));
        if (route == NULL) {
            route = find_route(cache, finder->routes, finder->find, finder->stream, hashes[place], at,
                               entry->subject_size);
        }
        PyObject *payload =
            route == NULL ? NULL : PyBytes_FromStringAndSize(begin + entry->payload, entry->payload_size);
        PyObject *made = payload == NULL ? NULL : make_message(kind, route, payload, arrival, place);
        Py_XDECREF(route);
        if (made == NULL) {
            Py_CLEAR(messages);
            break;
        }
        PyList_SET_ITEM(messages, place, made);
    }
    return messages;
}

PyDoc_STRVAR(make_messages_doc,
"make_messages(columns, cache, routes, find, stream, kind, arrival) -> list\n\n"
"Create the messages of a body. `find(routes, stream, subject, None)` returns the route of a subject that is neither\n"
"in the cache nor in the dict.");

static PyObject *
make_messages(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 7 || links_subscriber.message == NULL || !Py_IS_TYPE(arguments[0], links_columns_type) ||
        (arguments[5] != (PyObject *)links_subscriber.message &&
         arguments[5] != (PyObject *)links_subscriber.handled_message)) {
        return PyErr_Format(PyExc_TypeError, "make_messages() needs columns, a cache, a dict, a function and a class");
    }
    Columns *columns = (Columns *)arguments[0];
    const Finder finder = {arguments[1], arguments[2], arguments[3], arguments[4]};
    return links_make_messages(&finder, PyBytes_AS_STRING(columns->frame), columns->entries, Py_SIZE(columns),
                               (PyTypeObject *)arguments[5], arguments[6]);
}

PyDoc_STRVAR(make_plain_doc,
"make_plain(batch, routes, find, arrival) -> (messages, target, filtered) | None\n\n"
"Return the matching messages of plain publishers, the queue that receives all of them or None, and the number of\n"
"other messages. `find(subject)` returns the route of a subject that is not in the dict. Return None if a message\n"
"does not have two frames.");

static PyObject *
make_plain(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 4 || links_subscriber.message == NULL || !PyList_CheckExact(arguments[0]) ||
        !PyDict_Check(arguments[1])) {
        return PyErr_Format(PyExc_TypeError, "make_plain() needs a list, a dict, a function and an arrival");
    }
    Py_ssize_t count = PyList_GET_SIZE(arguments[0]), filtered = 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *frames = PyList_GET_ITEM(arguments[0], place);
        if (!PyList_CheckExact(frames) || PyList_GET_SIZE(frames) != 2 ||
            !PyBytes_CheckExact(PyList_GET_ITEM(frames, 0))) {
            Py_RETURN_NONE;
        }
    }
    PyObject *messages = PyList_New(0), *target = NULL;
    for (Py_ssize_t place = 0; messages != NULL && place < count && place < PyList_GET_SIZE(arguments[0]); place++) {
        PyObject *frames = PyList_GET_ITEM(arguments[0], place);
        PyObject *subject = PyList_GET_ITEM(frames, 0);
        PyObject *route = Py_XNewRef(PyDict_GetItemWithError(arguments[1], subject));
        if (route == NULL && !PyErr_Occurred()) {
            route = PyObject_CallOneArg(arguments[2], subject);
        }
        if (route != NULL && !Py_IS_TYPE(route, links_subscriber.route)) {
            Py_CLEAR(route);
            PyErr_SetString(PyExc_TypeError, "a route is of another class");
        }
        PyObject *inboxes = route == NULL ? NULL : hot_get(route, links_subscriber.route_inboxes);
        if (inboxes != NULL && PyTuple_CheckExact(inboxes) && PyTuple_GET_SIZE(inboxes) == 0) {
            filtered++;
            Py_DECREF(route);
            continue;
        }
        PyObject *payload = route == NULL ? NULL : Py_NewRef(PyList_GET_ITEM(frames, 1));
        PyObject *made =
            payload == NULL ? NULL : make_message(links_subscriber.message, route, payload, arguments[3], 0);
        if (made != NULL) {
            PyObject *own = hot_get(route, links_subscriber.route_target);
            own = own == NULL ? Py_None : own;
            if (target == NULL || target == own) {
                Py_XSETREF(target, Py_NewRef(own));
            }
            else {
                Py_SETREF(target, Py_NewRef(Py_None));
            }
        }
        Py_XDECREF(route);
        if (made == NULL || PyList_Append(messages, made) < 0) {
            Py_CLEAR(messages);
        }
        Py_XDECREF(made);
    }
    if (messages == NULL) {
        Py_XDECREF(target);
        return NULL;
    }
    return Py_BuildValue("NNn", messages, target == NULL ? Py_NewRef(Py_None) : target, filtered);
}

/* Append a message to a queue without overflow policy; return 0 with an exception. */
static int
put_in(PyObject *queue, PyObject *message)
{
    PyObject *items = hot_get(queue, links_subscriber.queue_items);
    PyObject *work = hot_get(queue, links_subscriber.queue_work);
    PyObject *full = hot_get(queue, links_subscriber.queue_full);
    if (items == NULL || work == NULL || full == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a queue is incomplete");
        return 0;
    }
    PyObject *const given[] = {items, message}, *const listed[] = {work, queue};
    PyObject *done = PyObject_Vectorcall(links_append, given, 2, NULL);
    if (done != NULL && work != Py_None) {
        Py_DECREF(done);
        done = PyObject_Vectorcall(links_append, listed, 2, NULL);
    }
    if (done == NULL) {
        return 0;
    }
    Py_DECREF(done);
    if (PyObject_Size(items) >= hot_number(queue, links_subscriber.queue_max_pending)) {
        return PySet_Add(full, queue) == 0;
    }
    return 1;
}

/* Return the queues of a message as a borrowed reference; NULL if a queue has an overflow policy. */
static PyObject *
plain_queues(PyObject *message)
{
    PyObject *route = PyTuple_GET_ITEM(message, 2);
    PyObject *queues =
        Py_IS_TYPE(route, links_subscriber.route) ? hot_get(route, links_subscriber.route_queues) : NULL;
    if (queues == NULL || !PyTuple_CheckExact(queues) || PyTuple_GET_SIZE(queues) == 0) {
        return NULL;
    }
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(queues); place++) {
        PyObject *queue = PyTuple_GET_ITEM(queues, place);
        if (!Py_IS_TYPE(queue, links_subscriber.queue) ||
            hot_get(queue, links_subscriber.queue_overflow) != Py_None) {
            return NULL;
        }
    }
    return queues;
}

PyDoc_STRVAR(put_messages_doc,
"put_messages(messages, start) -> int\n\n"
"Append messages to the queues of their routes; return the index of the first message that the twin must append.");

static PyObject *
put_messages(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 2 || !PyList_CheckExact(arguments[0]) || links_subscriber.message == NULL) {
        return PyErr_Format(PyExc_TypeError, "put_messages() needs a list and a number");
    }
    Py_ssize_t place = PyLong_AsSsize_t(arguments[1]);
    if (place < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the start is negative");
    }
    for (; place < PyList_GET_SIZE(arguments[0]); place++) {
        PyObject *message = PyList_GET_ITEM(arguments[0], place);
        if (!Py_IS_TYPE(message, links_subscriber.message)) {
            break;
        }
        PyObject *queues = plain_queues(message);
        if (queues == NULL) {
            break;
        }
        for (Py_ssize_t one = 0; one < PyTuple_GET_SIZE(queues); one++) {
            if (!put_in(PyTuple_GET_ITEM(queues, one), message)) {
                return NULL;
            }
        }
    }
    return PyLong_FromSsize_t(place);
}

/* Packing -------------------------------------------------------------------------------------------------------- */

/* Maximum number of bytes that MessagePack adds to a message, as in oz.publisher.batching. */
#define OVERHEAD 12

/* Return the maximum size of a body in bytes; -1 if a message has extras. Each message has `stride` items in the list.
   The last three of them are subject, payload and extras. */
static Py_ssize_t
bound_of(PyObject *items, Py_ssize_t count, Py_ssize_t stride)
{
    Py_ssize_t size = 5;
    for (Py_ssize_t place = stride - 3; place < count * stride; place += stride) {
        PyObject *subject = PyList_GET_ITEM(items, place), *payload = PyList_GET_ITEM(items, place + 1);
        if (!PyBytes_CheckExact(subject) || !PyBytes_CheckExact(payload) ||
            PyList_GET_ITEM(items, place + 2) != Py_None || PyBytes_GET_SIZE(subject) > UINT32_MAX ||
            PyBytes_GET_SIZE(payload) > UINT32_MAX) {
            return -1;
        }
        size += PyBytes_GET_SIZE(subject) + PyBytes_GET_SIZE(payload) + OVERHEAD;
    }
    return size;
}

static PyObject *
pack_items(PyObject *items, Py_ssize_t count, Py_ssize_t stride, Py_ssize_t bound)
{
    PyObject *packed = PyBytes_FromStringAndSize(NULL, bound);
    if (packed == NULL) {
        return NULL;
    }
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(packed), *at = begin;
    Py_ssize_t length = 3 * count;
    if (length > 15) {
        *at++ = ARRAY_16;
        *at++ = (unsigned char)(length >> 8);
        *at++ = (unsigned char)length;
    }
    else {
        *at++ = (unsigned char)(FIXARRAY | length);
    }
    for (Py_ssize_t place = stride - 3; place < count * stride; place += stride) {
        at = links_put_binary(at, PyList_GET_ITEM(items, place));
        at = links_put_binary(at, PyList_GET_ITEM(items, place + 1));
        *at++ = NIL;
    }
    /* On failure, _PyBytes_Resize sets `packed` to NULL and raises an exception. */
    _PyBytes_Resize(&packed, at - begin);
    return packed;
}

PyDoc_STRVAR(pack_body_doc,
"pack_body(flat) -> bytes | None\n\nReturn the BODY frame of messages. Return None if a message has extras.");

static PyObject *
pack_body(PyObject *Py_UNUSED(module), PyObject *flat)
{
    Py_ssize_t count = PyList_CheckExact(flat) ? PyList_GET_SIZE(flat) / 3 : 0;
    if (count < 1 || count > MAX_COUNT || PyList_GET_SIZE(flat) != 3 * count) {
        Py_RETURN_NONE;
    }
    Py_ssize_t bound = bound_of(flat, count, 3);
    return bound < 0 ? Py_NewRef(Py_None) : pack_items(flat, count, 3, bound);
}

PyDoc_STRVAR(pack_waiting_doc,
"pack_waiting(waiting, limit, bytes) -> tuple | None\n\n"
"Return the recipients, the number and the BODY frame of all waiting messages. The frame is empty without recipients.\n"
"Return None if the messages have different recipients, if a message has extras, if there are more than `limit`\n"
"messages, or if the body needs `bytes` bytes or more. The list is not changed.");

static PyObject *
pack_waiting(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 3 || !PyList_CheckExact(arguments[0])) {
        return PyErr_Format(PyExc_TypeError, "pack_waiting() needs a list and two numbers");
    }
    Py_ssize_t limit = PyLong_AsSsize_t(arguments[1]), bytes = PyLong_AsSsize_t(arguments[2]);
    if ((limit == -1 || bytes == -1) && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *items = arguments[0];
    Py_ssize_t count = PyList_GET_SIZE(items) / 4;
    if (count < 1 || count > limit || count > MAX_COUNT || PyList_GET_SIZE(items) != 4 * count) {
        Py_RETURN_NONE;
    }
    PyObject *recipients = PyList_GET_ITEM(items, 0);
    for (Py_ssize_t place = 4; place < 4 * count; place += 4) {
        if (PyList_GET_ITEM(items, place) != recipients) {
            Py_RETURN_NONE;
        }
    }
    Py_ssize_t bound = bound_of(items, count, 4);
    if (bound < 0 || bound >= bytes || !PyTuple_CheckExact(recipients)) {
        Py_RETURN_NONE;
    }
    PyObject *frame = PyTuple_GET_SIZE(recipients) ? pack_items(items, count, 4, bound)
                                                   : PyBytes_FromStringAndSize(NULL, 0);
    return frame == NULL ? NULL : Py_BuildValue("OnN", recipients, count, frame);
}

PyMethodDef links_body_methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, scan_doc},
    {"know_subscriber", know_subscriber, METH_VARARGS, know_subscriber_doc},
    {"make_messages", (PyCFunction)(void (*)(void))make_messages, METH_FASTCALL, make_messages_doc},
    {"make_plain", (PyCFunction)(void (*)(void))make_plain, METH_FASTCALL, make_plain_doc},
    {"put_messages", (PyCFunction)(void (*)(void))put_messages, METH_FASTCALL, put_messages_doc},
    {"pack_body", pack_body, METH_O, pack_body_doc},
    {"pack_waiting", (PyCFunction)(void (*)(void))pack_waiting, METH_FASTCALL, pack_waiting_doc},
    {NULL, NULL, 0, NULL},
};
