/* Common code of the callable types FrameReader and Receive, which hold references to Python objects. */

#include "plain.h"

int
plain_traverse(Plain *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int place = 0; place < MAX_HELD; place++) {
        Py_VISIT(self->held[place]);
    }
    return 0;
}

void
plain_dealloc(Plain *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int place = 0; place < MAX_HELD; place++) {
        Py_XDECREF(self->held[place]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

Plain *
plain_new(PyTypeObject *type, vectorcallfunc call, PyObject *const *held, int count)
{
    Plain *self = (Plain *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = call;
        for (int place = 0; place < count; place++) {
            self->held[place] = Py_NewRef(held[place]);
        }
    }
    return self;
}

PyMemberDef plain_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Plain, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
