/* Memory and options of _native: what is plain, and what of it the library gets. */
#include <float.h>

#include "_native.h"

/* ---- Memory ---- */

void release_views(views* all) {
    while (all->held > 0) PyBuffer_Release(&all->views[--all->held]);
}

/* The nexar_dtype of a buffer's format; -1: none that is plain. */
static int dtype_of(const char* format, Py_ssize_t size) {
    if (format == NULL || format[0] == 0 || format[1] != 0) return -1;
    switch (format[0]) {
        case 'f':
            return NEXAR_F32;
        case 'd':
            return NEXAR_F64;
        case 'e':
            return NEXAR_F16;
        case '?':
            return NEXAR_BOOL;
        case 'b':
        case 'h':
        case 'i':
        case 'l':
        case 'q':
            return size == 1   ? NEXAR_I8
                   : size == 2 ? NEXAR_I16
                   : size == 4 ? NEXAR_I32
                   : size == 8 ? NEXAR_I64
                               : -1;
        case 'B':
        case 'H':
        case 'I':
        case 'L':
        case 'Q':
            return size == 1   ? NEXAR_U8
                   : size == 2 ? NEXAR_U16
                   : size == 4 ? NEXAR_U32
                   : size == 8 ? NEXAR_U64
                               : -1;
        default:
            return -1;
    }
}

/* The memory of a plain array, held in `all`; NULL without an exception: not plain. */
const Py_buffer* memory_of(PyObject* array, int write, views* all, int* dtype) {
    if ((PyObject*)Py_TYPE(array) != library.array_type) return NULL;
    Py_buffer* view = &all->views[all->held];
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0)) <
        0) {
        PyErr_Clear();
        return NULL;
    }
    ++all->held;
    *dtype = dtype_of(view->format, view->itemsize);
    return *dtype < 0 ? NULL : view;
}

/* ---- Options ---- */

/* Seconds as the library counts them, as _library.milliseconds. 0: no plain time-out. */
static int timeout_of(PyObject* seconds, int64_t* ms) {
    if (!PyFloat_Check(seconds) && !PyLong_Check(seconds)) return 0;
    const double s = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    if (!(s >= 0)) return 0; /* also what is no number */
    *ms = NEXAR_TIMEOUT_NONE;
    if (s > 1e15) return s > DBL_MAX; /* infinity only */
    *ms = s == 0 ? 0 : s < 0.0015 ? 1 : (int64_t)(s * 1000 + 0.5);
    return 1;
}

int options_of(PyObject* const* a, options* o) {
    o->given = NULL;
    o->begins = a[4] == Py_None ? NULL : a[4];
    if (!PyLong_Check(a[1]) || !PyLong_Check(a[3]) || !(a[2] == Py_None || PyLong_Check(a[2]))) return 0;
    const unsigned long long match_id = PyLong_AsUnsignedLongLong(a[1]),
                             flags = PyLong_AsUnsignedLongLong(a[3]);
    const long long priority = a[2] == Py_None ? NEXAR_PRIORITY_DEFAULT : PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    if (a[0] == Py_None && match_id == 0 && a[2] == Py_None && flags == 0 && o->begins == NULL) return 1;
    o->values = (nexar_op_options)NEXAR_OP_OPTIONS_INIT;
    if (priority < INT32_MIN || priority > INT32_MAX) return 0;
    if (a[0] != Py_None && !timeout_of(a[0], &o->values.timeout_ms)) return 0;
    o->values.match_id = match_id;
    o->values.priority = (int32_t)priority;
    o->values.flags = flags;
    if (o->begins != NULL) {
        PyObject* key = PyObject_GetAttr(o->begins, library.key);
        o->values.user_data = key == NULL ? 0 : PyLong_AsUnsignedLongLong(key);
        Py_XDECREF(key);
        if (PyErr_Occurred()) return PyErr_Clear(), 0;
    }
    o->given = &o->values;
    return 1;
}
