/* The module oz.compiled._hot: its functions, and where slots of Python's classes lie. */

#include "hot.h"
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
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        (PyModule_AddFunctions(module, hot_batch_methods) < 0 || PyModule_AddFunctions(module, hot_dispatch_methods) < 0 ||
         add_type(module, &hot_publish_spec) < 0 || add_type(module, &hot_iteration_spec) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
