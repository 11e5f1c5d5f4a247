/* What read.c, receive.c, plain.c, routed.c, send.c and alone.c share: callables that hold what they need, and the guards of sockets. */

#ifndef OZ_PLAIN_H
#define OZ_PLAIN_H

#include "hot.h"
#include <structmember.h>

#define MOST_HELD 17
#define MOST_PLACES 26

/* Source: zmq.h of libzmq. */
typedef struct {
    void *base;
    size_t size;
} Part;
typedef int (*Sendiov)(void *socket, Part *parts, size_t count, int flags);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *held[MOST_HELD];
    /* A reader's. */
    void *socket;
    /* Of what hands over. */
    Sendiov sendiov;
    int option;
    /* Where slots of what is held lie; the last of what hands over is a size, and its option the flag of more. */
    Py_ssize_t places[MOST_PLACES];
} Plain;

/* Make one that holds what it is given; NULL with an exception. */
Plain *plain_new(PyTypeObject *type, vectorcallfunc call, PyObject *const *held, int count);

int plain_traverse(Plain *self, visitproc visit, void *arg);
void plain_dealloc(Plain *self);
extern PyMemberDef plain_members[];

#define PLAIN_SPEC(spec, its_slots, its_name, its_new, its_doc)                                                        \
    PLAIN_SPEC_OF(Plain, spec, its_slots, its_name, its_new, its_doc)

/* The same for what has more than a Plain, which stands first in it. */
#define PLAIN_SPEC_OF(its_type, spec, its_slots, its_name, its_new, its_doc)                                                     \
    static PyType_Slot its_slots[] = {                                                                                 \
        {Py_tp_doc, PyDoc_STR(its_doc)},                                                                               \
        {Py_tp_new, its_new},                                                                                          \
        {Py_tp_call, PyVectorcall_Call},                                                                               \
        {Py_tp_traverse, plain_traverse},                                                                              \
        {Py_tp_dealloc, plain_dealloc},                                                                                \
        {Py_tp_members, plain_members},                                                                                \
        {0, NULL},                                                                                                     \
    };                                                                                                                 \
    PyType_Spec spec = {                                                                                               \
        .name = its_name,                                                                                              \
        .basicsize = sizeof(its_type),                                                                                    \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,      \
        .slots = its_slots,                                                                                            \
    }

/* The names of a guard's methods: to make them anew for each message costs as much as the calls. */
extern PyObject *plain_acquire, *plain_release, *plain_do_postponed;

/* Make the names, once; false with an exception. */
int plain_know_guards(void);

/* Release a guard, and keep the exception that there is, if any; false with one. */
int plain_release_guard(PyObject *guard);

/* What everything that takes messages holds first. */
enum { TAKE_TWIN, TAKE_GUARD, READ, CLOCK, ACCEPT, SKIP, READ_ERROR, TAKE_HELD };

/* Take the guard of a subscriber without waiting; 0 where another thread has it, -1 with an exception. */
int plain_try_guard(Plain *self);

/* Read the frames of a message with the guard held, and release that; NULL with an exception. */
PyObject *plain_read_guarded(Plain *self, PyObject *const *arguments);

/* Tell whether a socket may be used by its address; where not, pyzmq says why. */
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

/* Send frames as one message; 0, the number of an error, or -1 with an exception of a signal handler. With ZMQ_DONTWAIT
   among the flags the interpreter's lock is kept, and there is no such exception. */
int plain_send_parts(Sendiov sendiov, void *socket, Part *parts, size_t count, int flags);

#endif
