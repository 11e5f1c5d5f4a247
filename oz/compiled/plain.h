/* Shared parts of read.c, receive.c, rules.c and links_io.c: functions of libzmq, and types of callables. */

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
    /* For a FrameReader: the libzmq socket. */
    void *socket;
    /* For a Receive: offsets of the slots of the class `Reading`. */
    Py_ssize_t places[MAX_PLACES];
} Plain;

/* Create a callable that holds a reference to each object; return NULL with an exception. */
Plain *plain_new(PyTypeObject *type, vectorcallfunc call, PyObject *const *held, int count);

int plain_traverse(Plain *self, visitproc visit, void *arg);
void plain_dealloc(Plain *self);
extern PyMemberDef plain_members[];

/* Return whether a pyzmq socket is open, so that its address may be used. If not, pyzmq must raise the error. */
int plain_is_open(PyObject *socket);

/* Source: zmq.h of libzmq 4. */
typedef union {
    unsigned char bytes[64];
    void *aligned;
} Frame;

#define DONTWAIT 1
#define RCVMORE 13

/* Functions of libzmq, in the order of `LIBZMQ` in oz.compiled. */
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

/* The functions of the libzmq that pyzmq has loaded, and the class zmq.Again; both set by `know_libzmq`. */
extern Libzmq plain_libzmq;
extern PyObject *plain_again;

/* Raise zmq.Again. */
void plain_raise_again(void);

/* Close a frame. Release the GIL if the memory of the frame may belong to Python. */
void plain_let_go(Frame *frame);

/* Return whether one of the rules matches a subject; -1 if the Python filter must decide. */
int plain_rules_match(PyObject *rules, PyObject *subject);

#endif
