/* What read.c, plain.c and send.c share: callables that hold what they need, and the guards of sockets. */

#ifndef OZ_PLAIN_H
#define OZ_PLAIN_H

#include "hot.h"
#include <structmember.h>

#define MOST_HELD 8
#define MOST_PLACES 5

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
        .basicsize = sizeof(Plain),                                                                                    \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,      \
        .slots = its_slots,                                                                                            \
    }

/* The names of a guard's methods: to make them anew for each message costs as much as the calls. */
extern PyObject *plain_acquire, *plain_release, *plain_do_postponed;

/* Make the names, once; false with an exception. */
int plain_know_guards(void);

#endif
