/* Plain messages, one by one: the frames of one read, made into a message.

   Twin: `SubSocket.recv` of oz.dropin.sub. */

#include "plain.h"

int
plain_traverse(Plain *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int place = 0; place < MOST_HELD; place++) {
        Py_VISIT(self->held[place]);
    }
    return 0;
}

void
plain_dealloc(Plain *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int place = 0; place < MOST_HELD; place++) {
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

/* Guards --------------------------------------------------------------------------------------------------------- */

PyObject *plain_acquire, *plain_release, *plain_do_postponed;

int
plain_know_guards(void)
{
    plain_acquire = plain_acquire == NULL ? PyUnicode_InternFromString("acquire") : plain_acquire;
    plain_release = plain_release == NULL ? PyUnicode_InternFromString("release") : plain_release;
    plain_do_postponed = plain_do_postponed == NULL ? PyUnicode_InternFromString("do_postponed") : plain_do_postponed;
    return plain_acquire != NULL && plain_release != NULL && plain_do_postponed != NULL;
}

int
plain_release_guard(PyObject *guard)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *released = PyObject_CallMethodNoArgs(guard, plain_release);
    Py_XDECREF(released);
    if (type == NULL) {
        return released != NULL;
    }
    if (released == NULL) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
    return 0;
}

/* Taking --------------------------------------------------------------------------------------------------------- */

/* What Python raised in the middle of a message goes on when the rest of that is taken. */
static void
skip_frames(Plain *self, PyObject *socket)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *skipped = PyObject_CallOneArg(self->held[SKIP], socket);
    if (skipped == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    Py_DECREF(skipped);
    PyErr_Restore(type, value, traceback);
}

int
plain_try_guard(Plain *self)
{
    PyObject *is_held = PyObject_CallMethodOneArg(self->held[TAKE_GUARD], plain_acquire, Py_False);
    Py_XDECREF(is_held);
    return is_held == NULL ? -1 : is_held == Py_True;
}

PyObject *
plain_read_guarded(Plain *self, PyObject *const *arguments)
{
    PyObject *frames = PyObject_Vectorcall(self->held[READ], arguments, 2, NULL);
    if (frames == NULL && !PyErr_ExceptionMatches(self->held[READ_ERROR])) {
        skip_frames(self, arguments[0]);
    }
    if (!plain_release_guard(self->held[TAKE_GUARD])) {
        Py_CLEAR(frames);
    }
    return frames;
}
