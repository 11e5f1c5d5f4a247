/* Shared parts of the C code of links: oz.publisher and oz.subscriber.

   Each function has a twin in Python with the same result. A C function that meets an uncommon case returns None, and
   the caller runs the twin. */

#ifndef OZ_LINKS_H
#define OZ_LINKS_H

#include "hot.h"
#include <stddef.h>
#include <stdint.h>

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

/* Send a message of two frames by a RawSocket; 0, or the number of an error. */
int links_send_pair(PyObject *raw, PyObject *first, PyObject *second);

extern PyMethodDef links_body_methods[], links_delivery_methods[];
extern PyType_Spec links_columns_spec, links_subjects_spec, links_publish_spec, links_outbox_spec,
    links_iteration_spec, links_raw_spec;
extern PyTypeObject *links_columns_type;

#endif
