/* The module oz.compiled._hot: its functions and types, and access to the slots of Python classes. */

#include "links.h"
#include <structmember.h>

Py_ssize_t
hot_offset(PyTypeObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    if (found == NULL) {
        PyErr_Format(PyExc_TypeError, "%s has no slot %s", type->tp_name, name);
        return -1;
    }
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        offset = member->type == T_OBJECT_EX ? member->offset : -1;
    }
    if (offset < 0) {
        PyErr_Format(PyExc_TypeError, "%s.%s is no slot", type->tp_name, name);
    }
    Py_DECREF(found);
    return offset;
}

int
hot_find_slots(const SlotOffset *slots, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        if ((*slots[at].offset = hot_offset(slots[at].type, slots[at].name)) < 0) {
            return 0;
        }
    }
    return 1;
}

#define DEFINE_NAME(text) PyObject *name_##text;
HOT_NAMES(DEFINE_NAME)

static int
intern_names(void)
{
#define INTERN_NAME(text) \
    if ((name_##text = PyUnicode_InternFromString(#text)) == NULL) { \
        return 0; \
    }
    HOT_NAMES(INTERN_NAME)
    return 1;
}

long long
hot_number(PyObject *object, Py_ssize_t offset)
{
    PyObject *found = hot_get(object, offset);
    long long number = found != NULL && PyLong_CheckExact(found) ? PyLong_AsLongLong(found) : -1;
    if (number < 0) {
        PyErr_Clear();
    }
    return number < 0 ? -1 : number;
}

int
hot_count(PyObject *object, Py_ssize_t offset)
{
    long long count = hot_number(object, offset);
    PyObject *after = count < 0 || count == LLONG_MAX ? NULL : PyLong_FromLongLong(count + 1);
    if (after == NULL) {
        PyErr_Clear();
        return 0;
    }
    hot_set(object, offset, after);
    return 1;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "oz.compiled._hot",
    .m_doc = "The plain, common case of what oz does for each message.",
    .m_size = -1,
};

static int
add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int failed = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return failed;
}

PyMODINIT_FUNC
PyInit__hot(void)
{
    PyMethodDef *const functions[] = {hot_read_methods, links_body_methods, links_delivery_methods, links_lone_methods};
    PyType_Spec *const types[] = {&hot_reader_spec, &hot_receive_spec,
                                  &links_subjects_spec,  &links_outbox_spec,  &links_publish_spec,
                                  &links_iteration_spec, &links_raw_spec, &links_receiver_spec, &links_shared_spec,
    };
    PyObject *module = PyModule_Create(&definition);
    for (size_t at = 0; module != NULL && at < Py_ARRAY_LENGTH(functions); at++) {
        if (PyModule_AddFunctions(module, functions[at]) < 0) {
            Py_CLEAR(module);
        }
    }
    for (size_t at = 0; module != NULL && at < Py_ARRAY_LENGTH(types); at++) {
        if (add_type(module, types[at]) < 0) {
            Py_CLEAR(module);
        }
    }
    if (module != NULL && links_columns_type == NULL) {
        links_columns_type = (PyTypeObject *)PyType_FromSpec(&links_columns_spec);
    }
    if (module != NULL && (links_columns_type == NULL || !intern_names() || !links_begin())) {
        Py_CLEAR(module);
    }
    return module;
}
