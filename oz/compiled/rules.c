/* Rules of a drop-in SUB. A rule is a pattern of tokens that can be compared with a subject without a regex.

   Twin: `Filter.find` of oz.dropin.filter, which also describes a `Rule`. Only ASCII subjects are compared, because
   text patterns must not match bytes that are not valid UTF-8. */

#include "plain.h"

static int
rule_matches(PyObject *rule, const char *at, const char *end)
{
    PyObject *texts = PyTuple_GET_ITEM(rule, 0), *rest = PyTuple_GET_ITEM(rule, 1);
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(texts); number++) {
        if (number > 0) {
            const char *token = at;
            while (at < end && *at != '.') {
                at++;
            }
            if (at == token) {
                return 0;
            }
        }
        PyObject *text = PyTuple_GET_ITEM(texts, number);
        Py_ssize_t size = PyBytes_GET_SIZE(text);
        if (end - at < size || memcmp(at, PyBytes_AS_STRING(text), (size_t)size) != 0) {
            return 0;
        }
        at += size;
    }
    if (rest != Py_True || at == end || end[-1] == '.') {
        return rest == Py_None || (rest == Py_False && at == end);
    }
    for (char before = '.'; at < end; before = *at++) {
        if (*at == '.' && before == '.') {
            return 0;
        }
    }
    return 1;
}

int
plain_rules_match(PyObject *rules, PyObject *subject)
{
    const char *at = PyBytes_AS_STRING(subject), *end = at + PyBytes_GET_SIZE(subject);
    unsigned char all = 0;
    for (const char *byte = at; byte < end; byte++) {
        all |= (unsigned char)*byte;
    }
    if (PyList_GET_SIZE(rules) == 0 || all >= 0x80) {
        return -1;
    }
    for (Py_ssize_t number = 0; number < PyList_GET_SIZE(rules); number++) {
        if (rule_matches(PyList_GET_ITEM(rules, number), at, end)) {
            return 1;
        }
    }
    return 0;
}
