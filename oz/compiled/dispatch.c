/* Messages that wait in line: handed to handlers.

   Twins: `SubscriberEngine.dispatch` and `next` of oz.transport.subscriber.engine. */

#include "hot.h"

/* Messages that one call hands out at most: in between the interpreter lets other threads run. */
#define MOST 1000

typedef struct {
    PyTypeObject *message, *route, *subscription, *engine;
    Py_ssize_t message_route, is_counted, is_listed, is_only_listed, handled, handler, active, must_check;
} Classes;

/* Of which classes all these are, once that was said; they are never forgotten. */
static Classes known;

PyDoc_STRVAR(know_dispatch_doc,
"know_dispatch(message_class, route_class, subscription_class, engine_class)\n\n"
"Say of which classes all these are. TypeError where they lack the slots.");

static PyObject *
know_dispatch(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Classes said;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!:know_dispatch", &PyType_Type, &said.message, &PyType_Type, &said.route,
                          &PyType_Type, &said.subscription, &PyType_Type, &said.engine) ||
        (said.message_route = hot_offset(said.message, "route")) < 0 ||
        (said.is_counted = hot_offset(said.route, "is_counted")) < 0 ||
        (said.is_listed = hot_offset(said.route, "is_listed")) < 0 ||
        (said.is_only_listed = hot_offset(said.route, "is_only_listed")) < 0 ||
        (said.handled = hot_offset(said.route, "handled")) < 0 ||
        (said.handler = hot_offset(said.subscription, "handler")) < 0 ||
        (said.active = hot_offset(said.subscription, "active")) < 0 ||
        (said.must_check = hot_offset(said.engine, "must_check")) < 0) {
        return NULL;
    }
    known = said;
    Py_INCREF(known.message);
    Py_INCREF(known.route);
    Py_INCREF(known.subscription);
    Py_INCREF(known.engine);
    Py_RETURN_NONE;
}

/* The route of a message; NULL where it is of another class. The reference is borrowed. */
static inline PyObject *
route_of(PyObject *message)
{
    PyObject *route = PyObject_TypeCheck(message, known.message) ? hot_get(message, known.message_route) : NULL;
    return route != NULL && Py_IS_TYPE(route, known.route) ? route : NULL;
}

/* Report that a handler raised, as an `except` clause around it would; false with an exception. */
static int
report(PyObject *engine, PyObject *subscription)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return 0;
    }
    PyObject *type, *raised, *traceback;
    PyErr_Fetch(&type, &raised, &traceback);
    PyErr_NormalizeException(&type, &raised, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(raised, traceback);
    }
    PyObject *before = PyErr_GetHandledException();
    PyErr_SetHandledException(raised);
    PyObject *name = PyUnicode_InternFromString("log_failure");
    PyObject *result = name == NULL ? NULL : PyObject_CallMethodOneArg(engine, name, subscription);
    PyErr_SetHandledException(before);
    Py_XDECREF(before);
    Py_XDECREF(name);
    Py_XDECREF(type);
    Py_XDECREF(raised);
    Py_XDECREF(traceback);
    Py_XDECREF(result);
    return result != NULL;
}

/* Tell whether a message may go to a subscription; -1 with an exception. */
static inline int
may_have(PyObject *subscription, PyObject *message)
{
    if (hot_get(subscription, known.active) == Py_True) {
        return 1;
    }
    PyObject *name = PyUnicode_InternFromString("wants");
    PyObject *answer = name == NULL ? NULL : PyObject_CallMethodOneArg(subscription, name, message);
    int may = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(name);
    Py_XDECREF(answer);
    return may;
}

/* Call the handlers of a message, each of which may end the next one's subscription; false with an exception. */
static int
call_handlers(PyObject *engine, PyObject *handled, PyObject *message)
{
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(handled); place++) {
        PyObject *subscription = PyTuple_GET_ITEM(handled, place);
        int may = may_have(subscription, message);
        if (may < 0) {
            return 0;
        }
        if (may) {
            PyObject *handler = Py_XNewRef(hot_get(subscription, known.handler));
            PyObject *result = NULL;
            if (handler != NULL) {
                result = PyObject_CallOneArg(handler, message);
                Py_DECREF(handler);
            }
            else {
                PyErr_SetString(PyExc_AttributeError, "handler");
            }
            if (result == NULL && !report(engine, subscription)) {
                return 0;
            }
            Py_XDECREF(result);
        }
    }
    return 1;
}

/* The handlers of a message that only handlers want, and nobody counts; NULL for others. A borrowed reference. */
static PyObject *
plain_handlers(PyObject *message)
{
    PyObject *route = route_of(message);
    if (route == NULL || hot_get(route, known.is_counted) != Py_False ||
        hot_get(route, known.is_listed) != Py_False) {
        return NULL;
    }
    PyObject *handled = hot_get(route, known.handled);
    if (handled == NULL || !PyTuple_CheckExact(handled)) {
        return NULL;
    }
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(handled); place++) {
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(handled, place), known.subscription)) {
            return NULL;
        }
    }
    return handled;
}

PyDoc_STRVAR(hand_out_doc,
"hand_out(engine, waiting, popleft) -> message | None\n\n"
"Call handlers for what waits, until a message is not for handlers alone: gives that one. None when there is\n"
"none left, when a handler has given the engine something to check, or after many.");

static PyObject *
hand_out(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 3 || known.engine == NULL || !PyObject_TypeCheck(arguments[0], known.engine)) {
        return PyErr_Format(PyExc_TypeError, "hand_out() takes an engine, a deque and its popleft");
    }
    PyObject *engine = arguments[0];
    for (int turn = 0; turn < MOST; turn++) {
        Py_ssize_t length = PyObject_Size(arguments[1]);
        if (length < 0) {
            return NULL;
        }
        if (length == 0) {
            break;
        }
        PyObject *message = PyObject_CallNoArgs(arguments[2]);
        PyObject *handled = message == NULL ? NULL : plain_handlers(message);
        if (handled == NULL) {
            return message;
        }
        Py_INCREF(handled);
        int went_well = call_handlers(engine, handled, message);
        Py_DECREF(handled);
        Py_DECREF(message);
        /* A handler in C lets no signal through. */
        if (!went_well || PyErr_CheckSignals() < 0) {
            return NULL;
        }
        /* A handler may have ended the subscriber. */
        if (hot_get(engine, known.must_check) != Py_False) {
            break;
        }
    }
    Py_RETURN_NONE;
}

PyMethodDef hot_dispatch_methods[] = {
    {"know_dispatch", know_dispatch, METH_VARARGS, know_dispatch_doc},
    {"hand_out", (PyCFunction)(void (*)(void))hand_out, METH_FASTCALL, hand_out_doc},
    {NULL, NULL, 0, NULL},
};
