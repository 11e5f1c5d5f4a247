/* The line of threads whose answers have come: each wakes the next as it goes to wait again.

   Twin: oz.sync.answer_line. Whoever is woken needs the lock of the interpreter. Where many are woken at once, each runs,
   finds that lock taken, and waits for it: a wake-up for the answer and two more for the lock, and whoever wakes them is
   interrupted by each. Here a thread is woken when the one before it has given that lock back. */

#include "hot.h"

#ifdef __linux__

#include <errno.h>
#include <poll.h>
#include <structmember.h>
#include <time.h>

/* Answers after that which wake at once. */
#define UNFIT 32

/* How many times longer those wait behind one who was woken and did not run yet. */
#define COMING 10

#define MOST_WATCHED 64
#define SECOND 1000000000LL
/* Seconds of one wait; whoever has waited for so long looks again. */
#define LONGEST 1e6

typedef struct Waiter Waiter;

typedef struct {
    PyObject_HEAD
    Waiter *first, *last;
    /* The thread that takes answers in while it goes by `poll`; 0 while none does. */
    unsigned long owner;
    /* How often somebody came out of a wait, or went into one, and when that was last while others stood in the line. */
    size_t moves;
    long long moved_at;
    /* Somebody was woken whom the others follow; and did not run yet, for lack of a processor or of the lock. */
    int has_begun, is_coming;
    /* Nanoseconds without any move, after which all in the line are woken: those before do other things. */
    long long patience;
    int unfit;
    int watched;
    struct pollfd descriptors[MOST_WATCHED];
} Line;

struct Waiter {
    PyObject_HEAD
    Line *line;
    Waiter *before, *behind;
    PyThread_type_lock lock;
    /* It stands in the line, which holds it; or its lock is released, or about to be. */
    char is_queued, is_woken;
};

static long long
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

/* All of this with the interpreter's lock. -------------------------------------------------------------------------- */

static void
append(Line *line, Waiter *waiter)
{
    if (line->first == NULL) {
        line->moved_at = now();
    }
    Py_INCREF(waiter);
    waiter->is_queued = 1;
    waiter->behind = NULL;
    waiter->before = line->last;
    if (line->last != NULL) {
        line->last->behind = waiter;
    }
    line->last = waiter;
    if (line->first == NULL) {
        __atomic_store_n(&line->first, waiter, __ATOMIC_RELAXED);
    }
}

/* Take one out of the line; the reference is the caller's then. */
static void
take_out(Line *line, Waiter *waiter)
{
    waiter->is_queued = 0;
    if (waiter->behind != NULL) {
        waiter->behind->before = waiter->before;
    }
    else {
        line->last = waiter->before;
    }
    if (waiter->before != NULL) {
        waiter->before->behind = waiter->behind;
    }
    else {
        __atomic_store_n(&line->first, waiter->behind, __ATOMIC_RELAXED);
    }
}

/* Take the first one out, who is to be woken; NULL where there is none. A new reference. */
static Waiter *
take_first(Line *line)
{
    Waiter *first = line->first;
    if (first != NULL) {
        take_out(line, first);
        first->is_woken = line->has_begun = 1;
        __atomic_store_n(&line->is_coming, 1, __ATOMIC_RELAXED);
    }
    return first;
}

/* Note that somebody has come out of a wait, or goes into one. */
static void
move(Line *line)
{
    __atomic_store_n(&line->moves, line->moves + 1, __ATOMIC_RELAXED);
    if (line->first != NULL) {
        line->moved_at = now();
    }
}

/* Nanoseconds to wait for a move: whoever was woken may first have to wait for a processor. */
static long long
patience_of(Line *line)
{
    return __atomic_load_n(&line->is_coming, __ATOMIC_RELAXED) ? COMING * line->patience : line->patience;
}

static void
wake(Waiter *waiter)
{
    waiter->is_woken = 1;
    PyThread_release_lock(waiter->lock);
}

static void
wake_line(Line *line)
{
    Waiter *first;
    while ((first = take_first(line)) != NULL) {
        PyThread_release_lock(first->lock);
        Py_DECREF(first);
    }
}

/* Go on if nobody has moved for a while: wake the first if none was woken, and otherwise all. */
static void
look(Line *line)
{
    if (line->first == NULL || now() - line->moved_at < patience_of(line)) {
        return;
    }
    if (line->has_begun) {
        line->unfit = UNFIT;
        wake_line(line);
        return;
    }
    Waiter *first = take_first(line);
    PyThread_release_lock(first->lock);
    Py_DECREF(first);
    line->moved_at = now();
}

/* Waiters --------------------------------------------------------------------------------------------------------- */

static PyObject *
waiter_tell(Waiter *self, PyObject *Py_UNUSED(nothing))
{
    Line *line = self->line;
    if (self->is_queued || self->is_woken) {
        Py_RETURN_NONE;
    }
    if (line->owner != PyThread_get_thread_ident()) {
        wake(self);
    }
    else if (line->unfit) {
        line->unfit--;
        wake(self);
    }
    else {
        append(line, self);
        look(line);
    }
    Py_RETURN_NONE;
}

/* What is left until a time, in microseconds; -1 for ever. */
static long long
microseconds_until(double ends, int is_endless)
{
    if (is_endless) {
        return -1;
    }
    double left = (ends - (double)now()) / 1000;
    return left <= 0 ? 0 : left >= (double)PY_TIMEOUT_MAX ? PY_TIMEOUT_MAX : (long long)left + 1;
}

static PyObject *
waiter_wait(Waiter *self, PyObject *seconds)
{
    Line *line = self->line;
    int is_endless = seconds == Py_None;
    double ends = is_endless ? 0 : PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) {
        return NULL;
    }
    ends = (double)now() + ends * (double)SECOND;
    for (;;) {
        if (self->is_queued) {
            take_out(line, self);
            Py_DECREF(self);
            Py_RETURN_NONE;
        }
        if (self->is_woken && PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
            self->is_woken = 0;
            __atomic_store_n(&line->is_coming, 0, __ATOMIC_RELAXED);
            Py_RETURN_NONE;
        }
        move(line);
        Waiter *next = take_first(line);
        PyLockStatus status;
        Py_BEGIN_ALLOW_THREADS
        if (next != NULL) {
            PyThread_release_lock(next->lock);
        }
        status = PyThread_acquire_lock_timed(self->lock, microseconds_until(ends, is_endless), 1);
        Py_END_ALLOW_THREADS
        Py_XDECREF(next);
        if (status == PY_LOCK_ACQUIRED) {
            self->is_woken = 0;
            __atomic_store_n(&line->is_coming, 0, __ATOMIC_RELAXED);
            move(line);
        }
        if (status != PY_LOCK_INTR) {
            Py_RETURN_NONE;
        }
        /* A signal handler may raise. */
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
    }
}

static void
waiter_dealloc(Waiter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    Py_XDECREF(self->line);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef waiter_methods[] = {
    {"tell", (PyCFunction)waiter_tell, METH_NOARGS, PyDoc_STR("Say that an answer has come.")},
    {"wait", (PyCFunction)waiter_wait, METH_O, PyDoc_STR("Wait until that was said, for so many seconds.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot waiter_slots[] = {
    {Py_tp_doc, PyDoc_STR("One who waits for an answer: see oz.compiled.Hot.")},
    {Py_tp_dealloc, waiter_dealloc},
    {Py_tp_methods, waiter_methods},
    {0, NULL},
};

static PyType_Spec waiter_spec = {
    .name = "oz.compiled._hot.AnswerWaiter",
    .basicsize = sizeof(Waiter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = waiter_slots,
};

/* Made with the first line, and never forgotten. */
static PyTypeObject *waiter_class;

/* Lines ------------------------------------------------------------------------------------------------------------ */

static PyObject *
line_waiter(Line *self, PyObject *Py_UNUSED(nothing))
{
    Waiter *made = (Waiter *)waiter_class->tp_alloc(waiter_class, 0);
    if (made == NULL) {
        return NULL;
    }
    made->line = (Line *)Py_NewRef(self);
    made->lock = PyThread_allocate_lock();
    if (made->lock == NULL) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(made->lock, WAIT_LOCK);
    return (PyObject *)made;
}

static PyObject *
line_watch(Line *self, PyObject *descriptor)
{
    long number = PyLong_AsLong(descriptor);
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (self->watched == MOST_WATCHED) {
        return PyErr_Format(PyExc_ValueError, "a line watches %d descriptors at most", MOST_WATCHED);
    }
    self->descriptors[self->watched++] = (struct pollfd){.fd = (int)number, .events = POLLIN};
    Py_RETURN_NONE;
}

/* Wait for a descriptor without the interpreter's lock, until a time of the clock or, below 0, for ever; but no longer
   than nobody moves. Gives how many can be read; below 0 is an error. */
static int
wait_for_descriptors(Line *self, long long ends)
{
    for (;;) {
        size_t before = __atomic_load_n(&self->moves, __ATOMIC_RELAXED);
        long long patience = patience_of(self);
        int has_line = __atomic_load_n(&self->first, __ATOMIC_RELAXED) != NULL;
        long long left = ends < 0 ? SECOND * 3600 : ends - now();
        left = left < 0 ? 0 : left;
        left = has_line && left > patience ? patience : left;
        struct timespec slice = {.tv_sec = left / SECOND, .tv_nsec = left % SECOND};
        int count = ppoll(self->descriptors, (nfds_t)self->watched, &slice, NULL);
        int is_late = ends >= 0 && now() >= ends;
        if (count != 0 || is_late || (has_line && before == __atomic_load_n(&self->moves, __ATOMIC_RELAXED))) {
            return count;
        }
    }
}

static PyObject *
line_poll(Line *self, PyObject *seconds)
{
    double given = seconds == Py_None ? -1 : PyFloat_AsDouble(seconds);
    if (given == -1 && PyErr_Occurred()) {
        return NULL;
    }
    given = given > LONGEST ? LONGEST : given;
    long long ends = given < 0 ? -1 : now() + (long long)(given * (double)SECOND) + (given > 0);
    self->owner = PyThread_get_thread_ident();
    int count;
    if (self->first == NULL) {
        self->has_begun = 0;
    }
    do {
        look(self);
        Waiter *first = self->has_begun ? NULL : take_first(self);
        Py_BEGIN_ALLOW_THREADS
        if (first != NULL) {
            PyThread_release_lock(first->lock);
        }
        count = wait_for_descriptors(self, ends);
        if (count < 0) {
            count = errno == EINTR ? 0 : -errno;
        }
        Py_END_ALLOW_THREADS
        Py_XDECREF(first);
    } while (count == 0 && (ends < 0 || now() < ends));
    if (count < 0) {
        errno = -count;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (self->first == NULL) {
        self->has_begun = 0;
    }
    PyObject *ready = PyList_New(0);
    for (int at = 0; ready != NULL && count > 0 && at < self->watched; at++) {
        if (self->descriptors[at].revents) {
            PyObject *number = PyLong_FromLong(self->descriptors[at].fd);
            if (number == NULL || PyList_Append(ready, number) < 0) {
                Py_CLEAR(ready);
            }
            Py_XDECREF(number);
        }
    }
    return ready;
}

static PyObject *
line_look(Line *self, PyObject *Py_UNUSED(nothing))
{
    look(self);
    Py_RETURN_NONE;
}

static PyObject *
line_wake_all(Line *self, PyObject *Py_UNUSED(nothing))
{
    wake_line(self);
    Py_RETURN_NONE;
}

static PyObject *
line_leave(Line *self, PyObject *Py_UNUSED(nothing))
{
    self->owner = 0;
    wake_line(self);
    Py_RETURN_NONE;
}

static PyObject *
line_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    double patience;
    static char *keywords[] = {"patience", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "d:AnswerLine", keywords, &patience)) {
        return NULL;
    }
    if (waiter_class == NULL && (waiter_class = (PyTypeObject *)PyType_FromSpec(&waiter_spec)) == NULL) {
        return NULL;
    }
    Line *made = (Line *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->patience = (long long)(patience * (double)SECOND);
    }
    return (PyObject *)made;
}

static void
line_dealloc(Line *self)
{
    /* Nobody stands in it: each of them holds it. */
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef line_methods[] = {
    {"waiter", (PyCFunction)line_waiter, METH_NOARGS, PyDoc_STR("Make one who waits.")},
    {"watch", (PyCFunction)line_watch, METH_O, PyDoc_STR("Have `poll` wait for a descriptor, too.")},
    {"poll", (PyCFunction)line_poll, METH_O, PyDoc_STR("Wait so many seconds, None for ever; give what can be read.")},
    {"look", (PyCFunction)line_look, METH_NOARGS, PyDoc_STR("Wake all, if those who were woken do other things.")},
    {"wake_all", (PyCFunction)line_wake_all, METH_NOARGS, PyDoc_STR("Wake all who stand in the line.")},
    {"leave", (PyCFunction)line_leave, METH_NOARGS, PyDoc_STR("Do so, as nobody goes by `poll` any more.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot line_slots[] = {
    {Py_tp_doc, PyDoc_STR("A line of those whose answers have come: see oz.compiled.Hot.")},
    {Py_tp_new, line_new},
    {Py_tp_dealloc, line_dealloc},
    {Py_tp_methods, line_methods},
    {0, NULL},
};

PyType_Spec hot_line_spec = {
    .name = "oz.compiled._hot.AnswerLine",
    .basicsize = sizeof(Line),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = line_slots,
};

#endif
