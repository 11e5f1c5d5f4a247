/* Shared parts of the C code of links: oz.publisher and oz.subscriber.

   Each function has a twin in Python with the same result. A C function that meets an uncommon case returns None, and
   the caller runs the twin. */

#ifndef OZ_LINKS_H
#define OZ_LINKS_H

#include "hot.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Messages of a batch at most: MAX_COUNT of oz.wire.links. */
#define MAX_COUNT 1024

/* Mark of MessagePack for nil. */
#define NIL 0xc0

/* Bodies of BODY and JOINED frames: positions of subjects and payloads in a frame that was checked. */
typedef struct {
    uint32_t subject, subject_size, payload, payload_size;
} Entry;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *frame;
    Entry entries[1];
} Columns;

/* Method descriptors of collections.deque, called with a deque as first argument. */
extern PyObject *links_append, *links_popleft, *links_appendleft;

/* Classes of the subscriber, set by know_subscriber. */
typedef struct {
    PyTypeObject *message, *handled_message, *route, *queue, *inbox;
    Py_ssize_t route_subject, route_queues, route_target, route_inboxes;
    Py_ssize_t queue_items, queue_work, queue_full, queue_max_pending, queue_overflow, queue_inbox;
    Py_ssize_t inbox_handler;
} Subscribing;

extern Subscribing links_subscriber;

/* Find the methods of deque; 0 with an exception. */
int links_begin(void);

/* Find the subjects and payloads of a body of up to MAX_COUNT messages without extras, as distances from `begin`; 0 for
   another body. */
int links_find_entries(const unsigned char *begin, const unsigned char *at, const unsigned char *end, Py_ssize_t count,
                       Entry *entries);

/* Routes of a stream: a `Subjects`, the dict behind it, and a function that finds others. */
typedef struct {
    PyObject *cache, *routes, *find, *stream;
} Finder;

/* Return the messages of a body as a list; NULL with an exception. */
PyObject *links_make_messages(const Finder *finder, const char *begin, const Entry *entries, Py_ssize_t count,
                              PyTypeObject *kind, PyObject *arrival);

/* Return the address of the socket of a RawSocket; NULL if it is closed, or for another object. */
void *links_address_of(PyObject *raw);

/* Send a message of two frames by a RawSocket; 0, or the number of an error. */
int links_send_pair(PyObject *raw, PyObject *first, PyObject *second);

/* Return whether the socket of a RawSocket has a message; -1 without an exception if libzmq refuses. */
int links_has_input(PyObject *raw);

/* Limits of a publisher, and its list of messages that wait. */
typedef struct {
    PyObject *waiting;
    long long window_bytes, pending_bytes, total_bytes, joined_bytes;
    int refuses;
} LoneLimits;

/* Publish a message that waits for no others, to one stream. None, or NULL with an exception, or NULL without one if
   nothing has changed and the twin is needed. */
PyObject *links_publish_lone(PyObject *engine, PyObject *batcher, PyObject *lock, PyObject *way, PyObject *payload,
                             const LoneLimits *limits);

/* Write a binary value of MessagePack; return the place behind it. */
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
