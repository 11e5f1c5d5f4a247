/* Functions that run for each message: `publish`, iteration over a subscriber, and the loop that calls handlers.

   Twins: `Publisher.publish` of oz.publisher.sync, `_iterate` of oz.subscriber.sync, `Engine.run_handlers` of
   oz.subscriber.engine. */

#include "links.h"
#include <structmember.h>
#include <time.h>

PyObject *links_append, *links_popleft, *links_appendleft;

int
links_begin(void)
{
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *deque = collections == NULL ? NULL : PyObject_GetAttrString(collections, "deque");
    if (deque != NULL) {
        links_append = PyObject_GetAttrString(deque, "append");
        links_popleft = PyObject_GetAttrString(deque, "popleft");
        links_appendleft = PyObject_GetAttrString(deque, "appendleft");
    }
    Py_XDECREF(collections);
    Py_XDECREF(deque);
    return links_append != NULL && links_popleft != NULL && links_appendleft != NULL;
}

/* Publishing ----------------------------------------------------------------------------------------------------- */

/* Objects and numbers of a publisher that `publish` needs. */
typedef struct {
    PyObject_HEAD
    PyObject *quick, *waiting, *engine, *batcher, *lock, *plain;
    Py_ssize_t full_length, max_fast_bytes;
    Py_ssize_t is_resting, is_pressed, is_watching, plain_sent, unmatched;
    LoneLimits limits;
} Outbox;

static PyObject *
outbox_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    Outbox said = {0};
    static char *keywords[] = {"quick", "waiting", "engine", "batcher", "lock", "plain", "full_length",
                               "max_fast_bytes", "window_bytes", "pending_bytes", "total_bytes", "joined_bytes", "refuses",
                               NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!O!OOOOnnLLLLp:Outbox", keywords, &PyDict_Type, &said.quick,
                                     &PyList_Type, &said.waiting, &said.engine, &said.batcher, &said.lock, &said.plain, &said.full_length,
                                     &said.max_fast_bytes, &said.limits.window_bytes, &said.limits.pending_bytes,
                                     &said.limits.total_bytes, &said.limits.joined_bytes, &said.limits.refuses)) {
        return NULL;
    }
    PyTypeObject *engine = Py_TYPE(said.engine);
    const SlotOffset slots[] = {
        {engine, "is_resting", &said.is_resting}, {engine, "is_pressed", &said.is_pressed},
        {engine, "is_watching", &said.is_watching}, {engine, "plain_sent", &said.plain_sent},
        {Py_TYPE(said.batcher), "unmatched", &said.unmatched},
    };
    if (!hot_find_slots(slots, Py_ARRAY_LENGTH(slots))) {
        return NULL;
    }
    Outbox *self = (Outbox *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    said.ob_base = self->ob_base;
    *self = said;
    self->limits.waiting = self->waiting;
    Py_INCREF(self->quick);
    Py_INCREF(self->waiting);
    Py_INCREF(self->engine);
    Py_INCREF(self->batcher);
    Py_INCREF(self->lock);
    Py_INCREF(self->plain);
    return (PyObject *)self;
}

static int
outbox_traverse(Outbox *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->quick);
    Py_VISIT(self->waiting);
    Py_VISIT(self->engine);
    Py_VISIT(self->batcher);
    Py_VISIT(self->lock);
    Py_VISIT(self->plain);
    return 0;
}

static void
outbox_dealloc(Outbox *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->quick);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->engine);
    Py_XDECREF(self->batcher);
    Py_XDECREF(self->lock);
    Py_XDECREF(self->plain);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot outbox_slots[] = {
    {Py_tp_doc, PyDoc_STR("Parts of a publisher: see oz.compiled.Hot.")},
    {Py_tp_new, outbox_new},
    {Py_tp_traverse, outbox_traverse},
    {Py_tp_dealloc, outbox_dealloc},
    {0, NULL},
};

PyType_Spec links_outbox_spec = {
    .name = "oz.compiled._hot.Outbox",
    .basicsize = sizeof(Outbox),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = outbox_slots,
};

/* Method `publish` of publishers. Like a Python function in a class, the object is a descriptor. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *twin;
    PyTypeObject *outbox_type;
    Py_ssize_t outbox;
} Publish;

/* Append a message to `waiting`; return -1 with an exception. */
static int
append_message(Outbox *self, PyObject *way, PyObject *payload)
{
    Py_ssize_t length = PyList_GET_SIZE(self->waiting);
    if (PyList_Append(self->waiting, PyTuple_GET_ITEM(way, 0)) < 0 ||
        PyList_Append(self->waiting, PyTuple_GET_ITEM(way, 1)) < 0 || PyList_Append(self->waiting, payload) < 0 ||
        PyList_Append(self->waiting, Py_None) < 0) {
        PyList_SetSlice(self->waiting, length, PyList_GET_SIZE(self->waiting), NULL);
        return -1;
    }
    return 0;
}

/* Send a message that only plain subscribers receive. Return None, or NULL with an exception. Return NULL without an
   exception if the twin must send. */
static PyObject *
send_plain(Outbox *outbox, PyObject *subject, PyObject *payload)
{
    if (outbox->plain == Py_None || hot_get(outbox->engine, outbox->is_watching) != Py_True) {
        return NULL;
    }
    PyObject *const given[] = {outbox->lock, Py_False};
    PyObject *taken = PyObject_VectorcallMethod(name_acquire, given, 2, NULL);
    if (taken != Py_True) {
        Py_XDECREF(taken);
        return NULL;
    }
    Py_DECREF(taken);
    int is_sent = links_send_pair(outbox->plain, subject, payload) == 0 &&
                  hot_count(outbox->engine, outbox->plain_sent);
    PyObject *released = PyObject_CallMethodNoArgs(outbox->lock, name_release);
    if (released == NULL) {
        return NULL;
    }
    Py_DECREF(released);
    return is_sent ? Py_NewRef(Py_None) : NULL;
}

/* Publish a message without headers, key and id. Return None, or NULL with an exception. Return NULL without an
   exception if the twin must publish. */
static PyObject *
publish_plain(Outbox *outbox, PyObject *subject, PyObject *payload)
{
    PyObject *way = PyDict_GetItemWithError(outbox->quick, subject);
    if (way == Py_None) {
        return hot_count(outbox->batcher, outbox->unmatched) ? Py_NewRef(Py_None) : NULL;
    }
    if (way != NULL && PyBytes_CheckExact(way)) {
        Py_INCREF(way);
        PyObject *sent = send_plain(outbox, way, payload);
        Py_DECREF(way);
        return sent;
    }
    if (way == NULL || !PyTuple_CheckExact(way) || PyTuple_GET_SIZE(way) != 2 || hot_get(outbox->engine, outbox->is_pressed) != Py_False) {
        return NULL;
    }
    if (PyList_GET_SIZE(outbox->waiting) == 0) {
        PyObject *const given[] = {outbox->engine, way, payload};
        Py_INCREF(way);
        PyObject *done = links_publish_lone(outbox->engine, outbox->batcher, outbox->lock, way, payload, &outbox->limits);
        if (done == NULL && !PyErr_Occurred()) {
            done = PyObject_VectorcallMethod(name_begin_batch, given, 3, NULL);
        }
        Py_DECREF(way);
        return done;
    }
    if (append_message(outbox, way, payload) < 0) {
        return NULL;
    }
    if (hot_get(outbox->engine, outbox->is_resting) != Py_False ||
        PyList_GET_SIZE(outbox->waiting) >= outbox->full_length) {
        return PyObject_CallMethodNoArgs(outbox->engine, name_appended);
    }
    return Py_NewRef(Py_None);
}

static PyObject *
publish_call(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *names)
{
    Publish *self = (Publish *)callable;
    if (PyVectorcall_NARGS(flags) == 3 && names == NULL &&
        (PyUnicode_CheckExact(arguments[1]) || PyBytes_CheckExact(arguments[1])) && PyBytes_CheckExact(arguments[2]) &&
        PyObject_TypeCheck(arguments[0], self->outbox_type)) {
        Outbox *outbox = (Outbox *)hot_get(arguments[0], self->outbox);
        if (outbox != NULL && Py_TYPE(outbox)->tp_dealloc == (destructor)outbox_dealloc &&
            PyBytes_GET_SIZE(arguments[2]) <= outbox->max_fast_bytes) {
            PyObject *result = publish_plain(outbox, arguments[1], arguments[2]);
            if (result != NULL || PyErr_Occurred()) {
                return result;
            }
        }
    }
    return PyObject_Vectorcall(self->twin, arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static PyObject *
publish_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/* Return attributes of the twin, so that `help` and `inspect.signature` describe the method. */
static PyObject *
publish_getattro(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(((Publish *)self)->twin, name);
    }
    return found;
}

static PyObject *
publish_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *twin, *owner;
    static char *keywords[] = {"twin", "owner", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OO!:Publish", keywords, &twin, &PyType_Type, &owner)) {
        return NULL;
    }
    Py_ssize_t outbox = hot_offset((PyTypeObject *)owner, "_outbox");
    Publish *self = outbox < 0 ? NULL : (Publish *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = publish_call;
    self->twin = Py_NewRef(twin);
    self->outbox_type = (PyTypeObject *)Py_NewRef(owner);
    self->outbox = outbox;
    return (PyObject *)self;
}

static int
publish_traverse(Publish *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->twin);
    Py_VISIT(self->outbox_type);
    return 0;
}

static void
publish_dealloc(Publish *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->twin);
    Py_XDECREF(self->outbox_type);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Return `__doc__` or `__module__` of the twin. Because each type has its own, publish_getattro would not find
   those of the twin. */
static PyObject *
publish_text(Publish *self, void *name)
{
    return PyObject_GetAttrString(self->twin, name);
}

static PyGetSetDef publish_texts[] = {
    {"__doc__", (getter)publish_text, NULL, NULL, "__doc__"},
    {"__module__", (getter)publish_text, NULL, NULL, "__module__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef publish_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Publish, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Publish, twin), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot publish_slots[] = {
    {Py_tp_new, publish_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, publish_get},
    {Py_tp_getattro, publish_getattro},
    {Py_tp_traverse, publish_traverse},
    {Py_tp_dealloc, publish_dealloc},
    {Py_tp_members, publish_members},
    {Py_tp_getset, publish_texts},
    {0, NULL},
};

PyType_Spec links_publish_spec = {
    .name = "oz.compiled._hot.PublishMethod",
    .basicsize = sizeof(Publish),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = publish_slots,
};

/* Receiving ------------------------------------------------------------------------------------------------------ */

/* Iteration over a queue. The twin is called if the queue is empty, if its next item is not a plain message, if
   messages wait for handlers, or if the sockets must be read. The clock is read once for each chunk of messages. */
typedef struct {
    PyObject_HEAD
    PyObject *twin, *items, *work, *in_hand, *engine, *alone;
    Py_ssize_t attend_at, lone;
    int left, chunk;
} Iteration;

/* The clock that time.monotonic uses. */
#ifdef __APPLE__
#define MONOTONIC CLOCK_UPTIME_RAW
#else
#define MONOTONIC CLOCK_MONOTONIC
#endif

/* Return whether the sockets must be read. */
static int
is_due(Iteration *self)
{
    PyObject *at = hot_get(self->engine, self->attend_at);
    struct timespec now;
    if (at == NULL || !PyFloat_CheckExact(at) || clock_gettime(MONOTONIC, &now) != 0) {
        return 1;
    }
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec >= PyFloat_AS_DOUBLE(at);
}

/* Remove and return the next item if it is a plain message. If not, return NULL; after an error, with an exception. */
static PyObject *
next_plain(PyObject *items)
{
    if (PyObject_Size(items) <= 0) {
        return NULL;
    }
    PyObject *item = PyObject_Vectorcall(links_popleft, &items, 1, NULL);
    if (item == NULL || Py_IS_TYPE(item, links_subscriber.message)) {
        return item;
    }
    PyObject *const given[] = {items, item};
    PyObject *done = PyObject_Vectorcall(links_appendleft, given, 2, NULL);
    Py_DECREF(item);
    Py_XDECREF(done);
    return NULL;
}

static PyObject *
iteration_next(Iteration *self)
{
    if (self->left == 0 && PyObject_Size(self->items) > 0 && !is_due(self)) {
        self->left = self->chunk;
    }
    if (self->left > 0 && PyObject_Size(self->work) == 0 && PyObject_Size(self->in_hand) == 0) {
        self->left--;
        PyObject *message = next_plain(self->items);
        if (message != NULL || PyErr_Occurred()) {
            return message;
        }
    }
    self->left = 0;
    if (self->alone != Py_None && hot_get(self->engine, self->lone) != Py_None) {
        PyObject *message = PyObject_CallOneArg(self->alone, Py_None);
        if (message != Py_None) {
            return message;
        }
        Py_DECREF(message);
    }
    return Py_TYPE(self->twin)->tp_iternext(self->twin);
}

static int
iteration_traverse(Iteration *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->twin);
    Py_VISIT(self->items);
    Py_VISIT(self->work);
    Py_VISIT(self->in_hand);
    Py_VISIT(self->engine);
    Py_VISIT(self->alone);
    return 0;
}

static void
iteration_dealloc(Iteration *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->twin);
    Py_XDECREF(self->items);
    Py_XDECREF(self->work);
    Py_XDECREF(self->in_hand);
    Py_XDECREF(self->engine);
    Py_XDECREF(self->alone);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
iteration_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *twin, *items, *work, *in_hand, *engine, *alone;
    int chunk;
    static char *keywords[] = {"twin", "items", "work", "in_hand", "engine", "alone", "chunk", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOi:MessageIteration", keywords, &twin, &items, &work,
                                     &in_hand, &engine, &alone, &chunk)) {
        return NULL;
    }
    Py_ssize_t attend_at = hot_offset(Py_TYPE(engine), "attend_at"), lone = hot_offset(Py_TYPE(engine), "lone");
    if (attend_at < 0 || lone < 0) {
        return NULL;
    }
    if (!PyIter_Check(twin) || links_subscriber.message == NULL) {
        return PyErr_Format(PyExc_TypeError, "MessageIteration() needs an iterator");
    }
    Iteration *self = (Iteration *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->twin = Py_NewRef(twin);
        self->items = Py_NewRef(items);
        self->work = Py_NewRef(work);
        self->in_hand = Py_NewRef(in_hand);
        self->engine = Py_NewRef(engine);
        self->alone = Py_NewRef(alone);
        self->attend_at = attend_at;
        self->lone = lone;
        self->chunk = chunk;
    }
    return (PyObject *)self;
}

static PyType_Slot iteration_slots[] = {
    {Py_tp_doc, PyDoc_STR("Iteration over messages: see oz.compiled.Hot.")},
    {Py_tp_new, iteration_new},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iteration_next},
    {Py_tp_traverse, iteration_traverse},
    {Py_tp_dealloc, iteration_dealloc},
    {0, NULL},
};

PyType_Spec links_iteration_spec = {
    .name = "oz.compiled._hot.MessageIteration",
    .basicsize = sizeof(Iteration),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = iteration_slots,
};

/* Remove and return the next queue in `work`. Return NULL if `work` is empty, or with an exception after an error. */
static PyObject *
next_queue(PyObject *work)
{
    if (PyObject_Size(work) <= 0) {
        return NULL;
    }
    return PyObject_Vectorcall(links_popleft, &work, 1, NULL);
}

/* Call the handler of one message; return 0 with an exception. */
static int
handle_message(PyObject *queue, PyObject *message, PyObject *failed)
{
    PyObject *inbox = hot_get(queue, links_subscriber.queue_inbox);
    PyObject *handler = inbox != NULL && Py_IS_TYPE(inbox, links_subscriber.inbox)
                            ? Py_XNewRef(hot_get(inbox, links_subscriber.inbox_handler))
                            : NULL;
    if (handler == NULL) {
        PyErr_SetString(PyExc_TypeError, "a queue with work has no handler");
        return 0;
    }
    Py_INCREF(inbox);
    PyObject *result = PyObject_CallOneArg(handler, message);
    Py_DECREF(handler);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        /* Set the handled exception, as an `except` clause does, because the logger reads it. */
        PyObject *type, *raised, *traceback;
        PyErr_Fetch(&type, &raised, &traceback);
        PyErr_NormalizeException(&type, &raised, &traceback);
        if (traceback != NULL) {
            PyException_SetTraceback(raised, traceback);
        }
        PyObject *before = PyErr_GetHandledException();
        PyErr_SetHandledException(raised);
        PyObject *const given[] = {inbox, message};
        result = PyObject_Vectorcall(failed, given, 2, NULL);
        PyErr_SetHandledException(before);
        Py_XDECREF(before);
        Py_XDECREF(type);
        Py_XDECREF(raised);
        Py_XDECREF(traceback);
    }
    Py_DECREF(inbox);
    Py_XDECREF(result);
    return result != NULL;
}

PyDoc_STRVAR(call_handlers_doc,
"call_handlers(work, limit, failed, counts) -> bool\n\n"
"Call the handlers of at most `limit` plain messages; return False if the next item is not a plain message. The\n"
"function sets `counts[0]` to the number of calls, even if it raises. If a handler raises, `failed(inbox, message)`\n"
"is called while the exception is handled.");

static PyObject *
call_handlers(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 4 || links_subscriber.message == NULL || !PyList_CheckExact(arguments[3]) ||
        PyList_GET_SIZE(arguments[3]) != 1) {
        return PyErr_Format(PyExc_TypeError, "call_handlers() needs a deque, a number, a function and a list");
    }
    PyObject *work = arguments[0];
    long limit = PyLong_AsLong(arguments[1]), called = 0;
    if (limit == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int is_plain = 1;
    while (called < limit && is_plain) {
        PyObject *queue = next_queue(work);
        if (queue == NULL) {
            break;
        }
        PyObject *items = Py_IS_TYPE(queue, links_subscriber.queue) ? hot_get(queue, links_subscriber.queue_items) : NULL;
        PyObject *message = items == NULL ? NULL : next_plain(items);
        if (message != NULL) {
            called++;
            is_plain = handle_message(queue, message, arguments[2]);
            Py_DECREF(message);
            /* Run signal handlers here, because Python does not run them inside a handler that is written in C. */
            if (is_plain && PyErr_CheckSignals() < 0) {
                is_plain = 0;
            }
        }
        else if (!PyErr_Occurred() && (items == NULL || PyObject_Size(items) != 0)) {
            /* Put the queue back, because the twin must handle gaps and messages with `ack="handled"`. */
            PyObject *const back[] = {work, queue};
            PyObject *done = PyObject_Vectorcall(links_appendleft, back, 2, NULL);
            Py_XDECREF(done);
            is_plain = 0;
        }
        Py_DECREF(queue);
        if (PyErr_Occurred()) {
            break;
        }
    }
    PyObject *type, *raised, *traceback;
    PyErr_Fetch(&type, &raised, &traceback);
    PyObject *count = PyLong_FromLong(called);
    if (count != NULL) {
        PyList_SetItem(arguments[3], 0, count);
    }
    PyErr_Restore(type, raised, traceback);
    return type != NULL ? NULL : PyBool_FromLong(is_plain);
}

PyMethodDef links_delivery_methods[] = {
    {"call_handlers", (PyCFunction)(void (*)(void))call_handlers, METH_FASTCALL, call_handlers_doc},
    {NULL, NULL, 0, NULL},
};
