/* Shared parts of read.c, receive.c, rules.c and links_io.c: functions of libzmq, and callables that hold objects. */

#ifndef OZ_PLAIN_H
#define OZ_PLAIN_H

#include "hot.h"
#include <structmember.h>

#define MAX_HELD 6
#define MAX_PLACES 12

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *held[MAX_HELD];
    /* Socket of libzmq of a FrameReader. */
    void *socket;
    /* Offsets of the slots of a Reading, of a Receive. */
    Py_ssize_t places[MAX_PLACES];
} Plain;

/* Create a callable with a reference to each object; NULL with an exception. */
Plain *plain_new(PyTypeObject *type, vectorcallfunc call, PyObject *const *held, int count);

int plain_traverse(Plain *self, visitproc visit, void *arg);
void plain_dealloc(Plain *self);
extern PyMemberDef plain_members[];

/* Return whether the address of a socket may be used. If not, pyzmq raises the error. */
int plain_is_open(PyObject *socket);

/* Source: zmq.h of libzmq 4. */
typedef union {
    unsigned char bytes[64];
    void *aligned;
} Frame;

#define DONTWAIT 1
#define RCVMORE 13

/* The functions of the libzmq that pyzmq has loaded, in the order of LIBZMQ of oz.compiled. */
typedef struct {
    int (*getsockopt)(void *socket, int option, void *value, size_t *size);
    int (*init)(Frame *frame);
    int (*recv)(Frame *frame, void *socket, int flags);
    void *(*data)(Frame *frame);
    size_t (*size)(const Frame *frame);
    int (*more)(const Frame *frame);
    int (*close)(Frame *frame);
    int (*last_error)(void);
    int (*send)(void *socket, const void *data, size_t size, int flags);
    int (*init_size)(Frame *frame, size_t size);
    int (*copy)(Frame *to, Frame *from);
    int (*send_frame)(Frame *frame, void *socket, int flags);
} Libzmq;

/* Filled by `know_libzmq`, as is the class zmq.Again. */
extern Libzmq plain_libzmq;
extern PyObject *plain_again;

/* Raise zmq.Again. */
void plain_raise_again(void);

/* Close a frame, without the interpreter's lock if its memory may belong to Python. */
void plain_let_go(Frame *frame);

/* Return whether one of a list of rules matches a subject; -1 if the filter must decide. */
int plain_rules_match(PyObject *rules, PyObject *subject);

#endif
