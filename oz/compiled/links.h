/* Shared parts of the C code for oz.publisher and oz.subscriber.

   Each function has a twin in Python with the same result. In an uncommon case, the C function returns None, and the
   caller runs the twin. */

#ifndef OZ_LINKS_H
#define OZ_LINKS_H

#include "hot.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Maximum number of messages in a batch, as in oz.wire.links. */
#define MAX_COUNT 1024

/* The MessagePack value nil. */
#define NIL 0xc0

/* Offsets and sizes of one subject and one payload in a checked body, in bytes from a common start. */
typedef struct {
    uint32_t subject, subject_size, payload, payload_size;
} Entry;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *frame;
    Entry entries[1];
} Columns;

/* Methods of collections.deque. The first argument of a call is the deque. */
extern PyObject *links_append, *links_popleft, *links_appendleft;

/* Classes of oz.subscriber and offsets of their slots, set by know_subscriber. */
typedef struct {
    PyTypeObject *message, *handled_message, *route, *queue, *inbox;
    Py_ssize_t route_subject, route_queues, route_target, route_inboxes;
    Py_ssize_t queue_items, queue_work, queue_full, queue_max_pending, queue_overflow, queue_inbox;
    Py_ssize_t inbox_handler;
} Subscribing;

extern Subscribing links_subscriber;

/* Set links_append, links_popleft and links_appendleft; return 0 with an exception. */
int links_begin(void);

/* Find the subjects and payloads of a body, as offsets from `begin`. Return 0 if the body is malformed, has extras, or
   has more than MAX_COUNT messages. */
int links_find_entries(const unsigned char *begin, const unsigned char *at, const unsigned char *end, Py_ssize_t count,
                       Entry *entries);

/* Routes of a stream: a cache (`Subjects`), the dict of known routes, and a function that finds other routes. */
typedef struct {
    PyObject *cache, *routes, *find, *stream;
} Finder;

/* Create the messages of a body; return a list, or NULL with an exception. */
PyObject *links_make_messages(const Finder *finder, const char *begin, const Entry *entries, Py_ssize_t count,
                              PyTypeObject *kind, PyObject *arrival);

/* Return the address of the libzmq socket of a RawSocket; NULL if the socket is closed or `raw` is another object. */
void *links_address_of(PyObject *raw);

/* Send a message of two frames; return 0, or the number of the error. */
int links_send_pair(PyObject *raw, PyObject *first, PyObject *second);

/* Return whether a message can be read from a RawSocket; -1 without an exception if libzmq reports an error. */
int links_has_input(PyObject *raw);

/* Limits of a publisher, and its list of waiting messages. */
typedef struct {
    PyObject *waiting;
    long long window_bytes, pending_bytes, total_bytes, joined_bytes;
    int refuses;
} LoneLimits;

/* Publish a message to one stream without a batch. Return None, or NULL with an exception. Return NULL without an
   exception if the twin must publish; then nothing has changed. */
PyObject *links_publish_lone(PyObject *engine, PyObject *batcher, PyObject *lock, PyObject *way, PyObject *payload,
                             const LoneLimits *limits);

/* Write a binary value of MessagePack; return the address behind the value. */
static inline unsigned char *
links_put_binary(unsigned char *at, PyObject *bytes)
{
    size_t size = PyBytes_GET_SIZE(bytes);
    if (size > 0xffff) {
        *at++ = BIN_32;
        *at++ = (unsigned char)(size >> 24);
        *at++ = (unsigned char)(size >> 16);
        *at++ = (unsigned char)(size >> 8);
    }
    else if (size > 0xff) {
        *at++ = BIN_16;
        *at++ = (unsigned char)(size >> 8);
    }
    else {
        *at++ = BIN_8;
    }
    *at++ = (unsigned char)size;
    memcpy(at, PyBytes_AS_STRING(bytes), size);
    return at + size;
}

extern PyMethodDef links_body_methods[], links_delivery_methods[], links_lone_methods[];
extern PyType_Spec links_columns_spec, links_subjects_spec, links_publish_spec, links_outbox_spec,
    links_iteration_spec, links_raw_spec, links_receiver_spec, links_shared_spec;
extern PyTypeObject *links_columns_type;

#endif
