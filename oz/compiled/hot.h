/* What the files of oz.compiled._hot share: slots of Python's classes, read and filled where they lie.

   The compiled part does the plain, common case of what a Python function beside it does, its twin, and leaves
   all else to that: docs/decisions/068-compiled-hot-path.md. */

#ifndef OZ_HOT_H
#define OZ_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* What it stands on: one thread at a time has the interpreter's lock. */
#ifdef Py_GIL_DISABLED
#error "a Python without the lock of the interpreter runs oz in pure Python"
#endif

/* Return the offset of a slot of `__slots__` in the objects of a class; -1 with a TypeError if it is no slot. */
Py_ssize_t hot_offset(PyTypeObject *type, const char *name);

typedef struct {
    PyTypeObject *type;
    const char *name;
    Py_ssize_t *offset;
} SlotOffset;

/* Set the offsets of slots; 0 with a TypeError. */
int hot_find_slots(const SlotOffset *slots, size_t count);

/* Names of attributes and arguments. A new string for each call would cost as much as the call. */
#define HOT_NAMES(NAME)                                                                                                \
    NAME(_reading) NAME(acquire) NAME(after_alone) NAME(appended) NAME(begin_batch) NAME(bytes) NAME(copy)             \
    NAME(extend) NAME(find) NAME(flags) NAME(is_polling) NAME(pass_on) NAME(read_alone) NAME(release)                  \
    NAME(send_again) NAME(sent_alone) NAME(track)
#define DECLARE_NAME(text) extern PyObject *name_##text;
HOT_NAMES(DECLARE_NAME)

/* A slot of an object; NULL while nothing is in it. The reference is borrowed. */
static inline PyObject *
hot_get(PyObject *object, Py_ssize_t offset)
{
    return *(PyObject **)((char *)object + offset);
}

/* Fill a slot that is empty; takes the reference over. */
static inline void
hot_fill(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    *(PyObject **)((char *)object + offset) = value;
}

/* Add one to the number in a slot. Return 0 without an exception if the twin must do it. */
int hot_count(PyObject *object, Py_ssize_t offset);

/* A slot's number, which is not negative; -1 where it is none, or more than fits. */
long long hot_number(PyObject *object, Py_ssize_t offset);

/* Put something in a slot in place of what is there; takes the reference over. */
static inline void
hot_set(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject *before = hot_get(object, offset);
    hot_fill(object, offset, value);
    Py_XDECREF(before);
}

/* Marks of MessagePack, whose specification names them so. */
enum { FIXARRAY = 0x90, BIN_8 = 0xc4, BIN_16 = 0xc5, BIN_32 = 0xc6, ARRAY_16 = 0xdc, ARRAY_32 = 0xdd };

extern PyMethodDef hot_read_methods[];
extern PyType_Spec hot_reader_spec, hot_receive_spec;

#endif
