/* Shared parts of all C files of oz.compiled._hot: direct access to the slots of Python classes.

   Each C function has a twin, a Python function with the same result. The C function handles the common case only, and
   leaves all other cases to its twin: docs/decisions/068-compiled-hot-path.md. */

#ifndef OZ_HOT_H
#define OZ_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The C code relies on the GIL: only one thread at a time runs in the interpreter. */
#ifdef Py_GIL_DISABLED
#error "a Python without the lock of the interpreter runs oz in pure Python"
#endif

/* Return the offset of a slot of `__slots__` in the objects of a class; -1 with a TypeError if the slot is missing. */
Py_ssize_t hot_offset(PyTypeObject *type, const char *name);

typedef struct {
    PyTypeObject *type;
    const char *name;
    Py_ssize_t *offset;
} SlotOffset;

/* Find the offsets of slots; return 0 with a TypeError if a slot does not exist. */
int hot_find_slots(const SlotOffset *slots, size_t count);

/* Names of attributes and arguments as Python strings. Creating the string for each call would take as long as the
   call. */
#define HOT_NAMES(NAME)                                                                                                \
    NAME(_reading) NAME(acquire) NAME(after_alone) NAME(appended) NAME(begin_batch) NAME(bytes) NAME(copy)             \
    NAME(extend) NAME(find) NAME(flags) NAME(is_polling) NAME(read_alone) NAME(release) NAME(send_again)               \
    NAME(sent_alone) NAME(track) NAME(wake_followers)
#define DECLARE_NAME(text) extern PyObject *name_##text;
HOT_NAMES(DECLARE_NAME)

/* Return the value of a slot as a borrowed reference; NULL if the slot is empty. */
static inline PyObject *
hot_get(PyObject *object, Py_ssize_t offset)
{
    return *(PyObject **)((char *)object + offset);
}

/* Set an empty slot. The function steals the reference to the value. */
static inline void
hot_fill(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    *(PyObject **)((char *)object + offset) = value;
}

/* Add one to the number in a slot. Return 0 without an exception if the twin must add it. */
int hot_count(PyObject *object, Py_ssize_t offset);

/* Return the number in a slot; -1 if the value is not an int, is negative, or does not fit into long long. */
long long hot_number(PyObject *object, Py_ssize_t offset);

/* Replace the value of a slot. The function steals the reference to the new value. */
static inline void
hot_set(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject *before = hot_get(object, offset);
    hot_fill(object, offset, value);
    Py_XDECREF(before);
}

/* First bytes of MessagePack values, with the names from the MessagePack specification. */
enum { FIXARRAY = 0x90, BIN_8 = 0xc4, BIN_16 = 0xc5, BIN_32 = 0xc6, ARRAY_16 = 0xdc, ARRAY_32 = 0xdd };

extern PyMethodDef hot_read_methods[];
extern PyType_Spec hot_reader_spec, hot_receive_spec;

#endif
