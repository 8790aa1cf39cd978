/* Memory and options of _native: what is plain, and what of it the library gets. */
#include <float.h>
#include <string.h>

#include "_native.h"

/* ---- Memory ---- */

void release_view(Py_buffer* view) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyBuffer_Release(view);
    PyErr_Restore(type, value, trace);
}

void release_views(views* all) {
    while (all->held > 0) release_view(&all->views[--all->held]);
}

static void let_go(PyObject* object) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_DECREF(object);
    PyErr_Restore(type, value, trace);
}

static int integer_of(Py_ssize_t size, int is_signed) {
    switch (size) {
        case 1:
            return is_signed ? NEXAR_I8 : NEXAR_U8;
        case 2:
            return is_signed ? NEXAR_I16 : NEXAR_U16;
        case 4:
            return is_signed ? NEXAR_I32 : NEXAR_U32;
        case 8:
            return is_signed ? NEXAR_I64 : NEXAR_U64;
        default:
            return -1;
    }
}

/* Of those that torch has. */
static int size_of_dtype(int dtype) {
    switch (dtype) {
        case NEXAR_I8:
        case NEXAR_U8:
        case NEXAR_BOOL:
            return 1;
        case NEXAR_F16:
        case NEXAR_BF16:
        case NEXAR_I16:
        case NEXAR_U16:
            return 2;
        case NEXAR_F64:
        case NEXAR_I64:
        case NEXAR_U64:
            return 8;
        default:
            return 4;
    }
}

/* The nexar_dtype of one letter of a buffer's format; -1: none that is plain. */
static int dtype_of_letter(char letter, Py_ssize_t size) {
    if (letter == 'f') return size == 4 ? NEXAR_F32 : -1;
    if (letter == 'd') return size == 8 ? NEXAR_F64 : -1;
    if (letter == 'e') return size == 2 ? NEXAR_F16 : -1;
    if (letter == '?') return size == 1 ? NEXAR_BOOL : -1;
    if (letter != 0 && strchr("bhilq", letter) != NULL) return integer_of(size, 1);
    if (letter != 0 && strchr("BHILQ", letter) != NULL) return integer_of(size, 0);
    return -1;
}

/* Past the mark of this machine's byte order. */
static const char* native_order(const char* format) {
    const int little = (const union {
                           int number;
                           char first;
                       }){.number = 1}
                           .first;
    return *format == '@' || *format == '=' || (*format == '<' && little) ? format + 1 : format;
}

/* A letter of "T{f:value:i:index:}", and past its name. */
static char field_of(const char** format) {
    const char* letter = native_order(*format);
    const char* name = *letter != 0 && letter[1] == ':' ? strchr(letter + 2, ':') : NULL;
    if (name == NULL) return 0;
    *format = name + 1;
    return *letter;
}

/* Of a packed struct of two fields. */
static int dtype_of_pair(const char* format, Py_ssize_t size) {
    const char value = field_of(&format), index = value == 0 ? 0 : field_of(&format);
    const int is_long = index != 0 && strchr("lq", index) != NULL;
    if (index == 0 || strcmp(format, "}") != 0) return -1;
    if (value == 'f' && index == 'i') return size == 8 ? NEXAR_F32_I32 : -1;
    if (value == 'd' && is_long) return size == 16 ? NEXAR_F64_I64 : -1;
    if (value == 'i' && index == 'i') return size == 8 ? NEXAR_I32_I32 : -1;
    return strchr("lq", value) != NULL && is_long && size == 16 ? NEXAR_I64_I64 : -1;
}

static int dtype_of(const char* format, Py_ssize_t size) {
    if (format == NULL || size <= 0) return -1;
    if (strncmp(format, "T{", 2) == 0) return dtype_of_pair(format + 2, size);
    format = native_order(format);
    return format[0] == 0 || format[1] != 0 ? -1 : dtype_of_letter(format[0], size);
}

/* DLPack's struct, dlpack.h, version 0: what __dlpack__ gives to who names no version. */
typedef struct {
    void* data;
    int32_t device, device_number, dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides; /* in elements; no strides: contiguous */
    uint64_t offset;                /* bytes */
} tensor;

static int dtype_of_tensor(const tensor* t) {
    enum { SIGNED, UNSIGNED, FLOAT, BRAIN = 4, TRUTH = 6 };
    if (t->lanes != 1 || t->bits % 8 != 0) return -1;
    if (t->code == SIGNED || t->code == UNSIGNED) return integer_of(t->bits / 8, t->code == SIGNED);
    if (t->code == FLOAT)
        return t->bits == 16 ? NEXAR_F16 : t->bits == 32 ? NEXAR_F32 : t->bits == 64 ? NEXAR_F64 : -1;
    if (t->code == BRAIN) return t->bits == 16 ? NEXAR_BF16 : -1;
    return t->code == TRUTH && t->bits == 8 ? NEXAR_BOOL : -1;
}

/* Its elements; -1: it is not contiguous, or not in this process's memory. */
static int64_t elements_of_tensor(const tensor* t) {
    enum { CPU = 1, CUDA_HOST = 3, ROCM_HOST = 11, CUDA_MANAGED = 13 };
    int64_t elements = 1;
    int contiguous = 1;
    if (t->device != CPU && t->device != CUDA_HOST && t->device != ROCM_HOST && t->device != CUDA_MANAGED)
        return -1;
    for (int32_t i = t->dimensions - 1; i >= 0; --i) {
        contiguous &= t->strides == NULL || t->shape[i] <= 1 || t->strides[i] == elements;
        elements *= t->shape[i];
    }
    return contiguous || elements == 0 ? elements : -1;
}

/* Whether it has that attribute; -1: an exception of another kind. */
static int has(PyObject* object, PyObject* name) {
    PyObject* found = PyObject_GetAttr(object, name);
    if (found != NULL) return Py_DECREF(found), 1;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    return PyErr_Clear(), 0;
}

/* What __dlpack__() gives. NULL: with what it raises, in the words of the general way; or none, where that
 * knows another way. */
static PyObject* capsule_of(PyObject* object, const char* name) {
    PyObject *type, *value, *trace;
    if (PyErr_CheckSignals() != 0) return NULL; /* else a handler's exception would be the tensor's */
    PyObject* capsule = PyObject_CallMethodObjArgs(object, library.dlpack, NULL);
    if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_Exception)) return capsule;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) PyException_SetTraceback(value, trace);
    PyObject* none = PyObject_CallFunction(library.refused, "OOs", object, value, name);
    Py_XDECREF(none);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return NULL;
}

static const tensor* tensor_of(PyObject* capsule) {
    return PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
}

/* Whether it is torch's: then its attributes have what __dlpack__(), which is Python's, would give. Below 0:
 * an exception. */
static int is_of_torch(PyObject* object) {
    if (Py_TYPE(object) == library.other) return 0;
    PyObject* dtypes = PyObject_CallFunctionObjArgs(library.shares, (PyObject*)Py_TYPE(object), NULL);
    if (dtypes == NULL || PyDict_Size(dtypes) <= 0) return Py_XDECREF(dtypes), dtypes == NULL ? -1 : 0;
    library.torch = (PyTypeObject*)Py_NewRef((PyObject*)Py_TYPE(object)); /* kept for ever */
    library.dtypes = dtypes;
    return 1;
}

/* What an attribute of it, or a method, gives; NULL: with an exception. */
static PyObject* ask_torch(PyObject* object, int name) {
    if (name >= CPU) return PyObject_GetAttr(object, library.of_torch[name]);
    return PyObject_CallMethodObjArgs(object, library.of_torch[name], NULL);
}

static int torch_says(PyObject* object, int name, PyObject* wanted) {
    PyObject* given = ask_torch(object, name);
    Py_XDECREF(given);
    return given == wanted;
}

static int64_t number_of_torch(PyObject* object, int name) {
    PyObject* given = ask_torch(object, name);
    const int64_t number = given == NULL ? -1 : PyLong_AsLongLong(given);
    Py_XDECREF(given);
    return number;
}

/* What it lacks (a gradient, a sparse layout, another device) the general way says. */
static int view_of_torch(PyObject* object, Py_buffer* view, int* dtype) {
    PyObject* its = ask_torch(object, DTYPE);
    PyObject* known = its == NULL ? NULL : PyDict_GetItemWithError(library.dtypes, its);
    Py_XDECREF(its);
    int64_t elements = 0, pointer = 0;
    const int plain =
        known != NULL && torch_says(object, CPU, Py_True) && torch_says(object, GRADIENT, Py_False) &&
        torch_says(object, CONTIGUOUS, Py_True) && torch_says(object, NEGATED, Py_False) &&
        (elements = number_of_torch(object, ELEMENTS)) >= 0 &&
        ((pointer = number_of_torch(object, POINTER)) != 0 || elements == 0) && !PyErr_Occurred();
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    if (!plain) return 0;
    *dtype = (int)PyLong_AsLong(known);
    const Py_ssize_t size = (Py_ssize_t)size_of_dtype(*dtype);
    if (PyBuffer_FillInfo(view, object, (void*)pointer, elements * size, 0, PyBUF_SIMPLE) != 0) return 0;
    view->itemsize = size;
    return 1;
}

/* Whether it gives the same memory again, while the first capsule is there; else it is a copy. */
static int gives_again(PyObject* object, const char* name, const tensor* first) {
    PyObject* capsule = capsule_of(object, name);
    const tensor* t = capsule == NULL ? NULL : tensor_of(capsule);
    const int same = t != NULL && t->data == first->data;
    if (capsule != NULL) let_go(capsule);
    return same;
}

/* Memory of a tensor with DLPack; the view holds its capsule, which holds the tensor. */
static int view_of_tensor(PyObject* object, const char* name, int write, Py_buffer* view, int* dtype) {
    const int torch = is_of_torch(object);
    if (torch != 0) return torch > 0 && view_of_torch(object, view, dtype);
    if (has(object, library.dlpack) != 1) return 0;
    library.other = Py_TYPE(object);
    if (write && has(object, library.readonly) != 0) return 0; /* the general way looks what it is */
    PyObject* capsule = capsule_of(object, name);
    if (capsule == NULL) return 0;
    const tensor* t = tensor_of(capsule);
    int64_t elements = t == NULL ? -1 : elements_of_tensor(t);
    if (elements > 0 && (t->data == NULL || !gives_again(object, name, t))) elements = -1;
    *dtype = elements < 0 ? -1 : dtype_of_tensor(t);
    char* data = t == NULL ? NULL : t->data;
    if (data != NULL) data += t->offset;
    const int done =
        *dtype >= 0 && PyBuffer_FillInfo(view, capsule, data, elements * (t->bits / 8), 0, PyBUF_SIMPLE) == 0;
    if (done) view->itemsize = t->bits / 8;
    let_go(capsule);
    return done;
}

/* Whether it is a number or a list: it is copied, which is not plain. Below 0: an exception. */
static int is_copied(PyObject* object) {
    return PyObject_IsInstance(object, library.copied);
}

/* 0: there is none that is wanted. */
static int buffer_of(PyObject* memory, Py_buffer* view, int wanted) {
    if (PyObject_GetBuffer(memory, view, wanted) == 0) return 1;
    if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
        PyErr_ExceptionMatches(PyExc_BufferError))
        PyErr_Clear();
    return 0;
}

int view_of(PyObject* memory, const char* name, int write, Py_buffer* view, int* dtype) {
    if (Py_TYPE(memory) == library.torch) return view_of_torch(memory, view, dtype);
    if (Py_TYPE(memory) == library.other) return view_of_tensor(memory, name, write, view, dtype);
    if ((PyObject*)Py_TYPE(memory) != library.array_type) {
        /* A subclass of numpy's may mean more by its bytes than their format says: the general way asks. */
        if (PyType_IsSubtype(Py_TYPE(memory), (PyTypeObject*)library.array_type)) return 0;
        if (is_copied(memory) != 0) return 0;
        if (!PyObject_CheckBuffer(memory)) return view_of_tensor(memory, name, write, view, dtype);
    }
    if (!buffer_of(memory, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0))) return 0;
    *dtype = dtype_of(view->format, view->itemsize);
    if (*dtype < 0) release_view(view);
    return *dtype >= 0;
}

const Py_buffer* memory_of(PyObject* memory, const char* name, int write, views* all, int* dtype) {
    Py_buffer* view = &all->views[all->held];
    if (!view_of(memory, name, write, view, dtype)) return NULL;
    ++all->held;
    return view;
}

PyObject* not_plain(void) {
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
}

/* What keeps a view's memory as it is, when the view is gone. */
static PyObject* holder_of(const Py_buffer* view) {
    return PyObject_CheckBuffer(view->obj) ? PyMemoryView_FromObject(view->obj) : Py_NewRef(view->obj);
}

int keep_views(PyObject* request, const views* held) {
    PyObject* kept = NULL;
    int done = 1;
    for (int i = 0; i < held->held && done; ++i) {
        if ((PyObject*)Py_TYPE(held->views[i].obj) == library.array_type) continue;
        if (kept == NULL && (kept = PyObject_GetAttr(request, library.kept)) == NULL) return 0;
        PyObject* holder = holder_of(&held->views[i]);
        done = holder != NULL && PyList_Append(kept, holder) == 0;
        Py_XDECREF(holder);
    }
    Py_XDECREF(kept);
    return done;
}

void keep_nothing(PyObject* request) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject* kept = PyObject_GetAttr(request, library.kept);
    if (kept == NULL || PyList_SetSlice(kept, KEPT_FIRST, PY_SSIZE_T_MAX, NULL) != 0) PyErr_Clear();
    Py_XDECREF(kept);
    PyErr_Restore(type, value, trace);
}

/* memory: (elements, dtype) */
CALL(call_look) {
    (void)module;
    Py_buffer view;
    int dtype;
    if (n != 1 || !view_of(a[0], "values", 0, &view, &dtype)) return not_plain();
    PyObject* found = Py_BuildValue("ni", view.len / view.itemsize, dtype);
    release_view(&view);
    return found;
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

/* ---- Scalars ---- */

static int integer_scalar(long long value, int dtype, number* into) {
    const int size = dtype == NEXAR_I8 || dtype == NEXAR_U8 || dtype == NEXAR_BOOL ? 1
                     : dtype == NEXAR_I16 || dtype == NEXAR_U16                    ? 2
                     : dtype == NEXAR_I32 || dtype == NEXAR_U32                    ? 4
                     : dtype == NEXAR_I64 || dtype == NEXAR_U64                    ? 8
                                                                                   : 0;
    const int is_signed = dtype == NEXAR_I8 || dtype == NEXAR_I16 || dtype == NEXAR_I32 || dtype == NEXAR_I64;
    if (size == 0) return 0;
    const int bits = dtype == NEXAR_BOOL ? 1 : 8 * size - is_signed;
    if ((value < 0 && !is_signed) || (bits < 63 && (value >= 1LL << bits || value < -(1LL << bits))))
        return 0;
    if (size == 1) into->i8 = (int8_t)value;
    if (size == 2) into->i16 = (int16_t)value;
    if (size == 4) into->i32 = (int32_t)value;
    if (size == 8) into->i64 = value;
    return 1;
}

static int float_scalar(double value, int dtype, number* into) {
    if (dtype == NEXAR_F64) return into->d = value, 1;
    if (dtype != NEXAR_F32) return 0; /* 16 bits and fewer are numpy's to round */
    into->f = (float)value;
    return 1;
}

int scalar_of(PyObject* scalar, int dtype, number* into) {
    if (PyFloat_Check(scalar)) return float_scalar(PyFloat_AsDouble(scalar), dtype, into);
    if (PyLong_Check(scalar)) {
        const long long value = PyLong_AsLongLong(scalar);
        if (PyErr_Occurred()) return PyErr_Clear(), 0;
        if (dtype == NEXAR_F32) return into->f = (float)value, 1; /* rounded once */
        if (dtype == NEXAR_F64) return into->d = (double)value, 1;
        return integer_scalar(value, dtype, into);
    }
    Py_buffer view;
    const int of_numpy = (PyObject*)Py_TYPE(scalar) == library.array_type || is_copied(scalar) > 0;
    if (!of_numpy || !PyObject_CheckBuffer(scalar) ||
        !buffer_of(scalar, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        return 0;
    const int fits = dtype_of(view.format, view.itemsize) == dtype && view.len == view.itemsize &&
                     view.len <= (Py_ssize_t)sizeof into->bytes;
    if (fits) memcpy(into->bytes, view.buf, (size_t)view.len);
    release_view(&view);
    return fits;
}
