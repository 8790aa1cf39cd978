/* _native - the hot calls of the Python package: blocking operations on plain numpy arrays with default
 * options. What is not plain gets NotImplemented, and the package's general way takes it: so this file has no
 * rule of an operation.
 *
 * ctypes costs 8 us for an operation of 8 bytes, more than the operation itself (docs/decisions/0017). Stable
 * ABI, so that one build serves every Python from 3.11 on. It loads nothing: nexar._library passes the
 * addresses of the library's functions. */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nexar.h>
#include <string.h>

enum { WAIT_MS = 500, CANCEL_MS = 5000 }; /* as in _requests.py */
enum { OPERATIONS_MAX = 64 };             /* numbers of proto/operations.def are below it */
enum { VIEWS_MAX = 2 };

typedef nexar_status (*start_nothing)(nexar_group*, const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_data)(nexar_group*, void*, uint64_t, int32_t, uint32_t, const nexar_op_options*,
                                   nexar_request*);
typedef nexar_status (*start_move)(nexar_group*, const void*, void*, uint64_t, int32_t,
                                   const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_number)(nexar_group*, const void*, void*, uint64_t, int32_t, int32_t,
                                     const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_reduce)(nexar_group*, const void*, void*, uint64_t, int32_t, int32_t, uint32_t,
                                     const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_message)(nexar_group*, void*, uint64_t, int32_t, uint32_t, uint64_t,
                                      const nexar_op_options*, nexar_request*);

typedef struct {
    void* start;
    int reduces, rooted;
} operation;

static struct {
    nexar_status (*wait)(nexar_request, int64_t, nexar_completion*);
    nexar_status (*cancel)(nexar_request);
    nexar_status (*release)(nexar_request);
    PyObject *error_of, *array_type; /* status -> exception; numpy.ndarray */
    operation operations[OPERATIONS_MAX];
} library;

/* ---- Memory ---- */

typedef struct {
    Py_buffer views[VIEWS_MAX];
    int held;
} views;

static void release_views(views* all) {
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
static const Py_buffer* memory_of(PyObject* array, int write, views* all, int* dtype) {
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

/* ---- Waiting ---- */

static PyObject* raise_status(nexar_status status) {
    PyObject* error = PyObject_CallFunction(library.error_of, "i", (int)status);
    if (error == NULL) return NULL;
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}

static nexar_status wait_without_gil(nexar_request request, int64_t ms, nexar_completion* end) {
    nexar_status status;
    Py_BEGIN_ALLOW_THREADS status = library.wait(request, ms, end);
    Py_END_ALLOW_THREADS return status;
}

/* Waits for the end and frees the request. 0: it succeeded. Otherwise a Python exception is set: of the
 * operation, or of a signal handler, and then the operation is cancelled first. If it does not end then, its
 * memory is kept for ever. */
static int finish(nexar_request request, nexar_completion* end, views* held) {
    for (;;) {
        const nexar_status status = wait_without_gil(request, WAIT_MS, end);
        if (end->status != NEXAR_PENDING) {
            if (status != NEXAR_OK) raise_status(status);
            library.release(request);
            return status == NEXAR_OK ? 0 : -1;
        }
        if (status != NEXAR_PENDING && status != NEXAR_ERR_INTERRUPTED) {
            raise_status(status);
            return -1;
        }
        if (PyErr_CheckSignals() == 0) continue;
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        library.cancel(request);
        wait_without_gil(request, CANCEL_MS, end);
        if (library.release(request) == NEXAR_ERR_BAD_STATE) held->held = 0;
        PyErr_Restore(type, value, trace);
        return -1;
    }
}

static void begin(nexar_completion* end) {
    *end = (nexar_completion)NEXAR_COMPLETION_INIT;
}

/* ---- Collectives ---- */

/* The gate of a group, a bytearray of one byte: 1 while a thread is inside a collective of the group. The
 * lock of the interpreter orders the accesses. */
static char* gate_of(PyObject* gate) {
    char* byte = PyByteArray_Check(gate) ? PyByteArray_AsString(gate) : NULL;
    return byte != NULL && *byte == 0 ? byte : NULL; /* otherwise the general way says what is wrong */
}

static PyObject* enter(PyObject* module, PyObject* gate) {
    (void)module;
    char* byte = gate_of(gate);
    if (byte != NULL) *byte = 1;
    return PyBool_FromLong(byte != NULL);
}

static PyObject* leave(PyObject* module, PyObject* gate) {
    (void)module;
    if (PyByteArray_Check(gate)) *PyByteArray_AsString(gate) = 0;
    Py_RETURN_NONE;
}

static nexar_status start_sides(const operation* op, nexar_group* group, const void* in, void* out,
                                uint64_t count, int dtype, int reduction, uint32_t root,
                                nexar_request* request) {
    if (op->reduces && op->rooted)
        return ((start_reduce)op->start)(group, in, out, count, dtype, reduction, root, NULL, request);
    if (op->reduces) return ((start_number)op->start)(group, in, out, count, dtype, reduction, NULL, request);
    if (op->rooted)
        return ((start_number)op->start)(group, in, out, count, dtype, (int32_t)root, NULL, request);
    return ((start_move)op->start)(group, in, out, count, dtype, NULL, request);
}

/* Waits inside the gate, and gives back `result`. */
static PyObject* end_collective(nexar_status started, nexar_request request, char* gate, views* held,
                                PyObject* result) {
    nexar_completion end;
    begin(&end);
    PyObject* out = NULL;
    if (started != NEXAR_OK)
        raise_status(started);
    else if (finish(request, &end, held) == 0)
        out = Py_NewRef(result);
    *gate = 0;
    release_views(held);
    return out;
}

static PyObject* nothing(PyObject* module, PyObject* const* a, Py_ssize_t n) { /* number, gate, group */
    (void)module;
    const operation* op = &library.operations[n == 3 ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == 3 ? gate_of(a[1]) : NULL;
    if (gate == NULL || op->start == NULL) Py_RETURN_NOTIMPLEMENTED;
    nexar_request request = 0;
    views held = {.held = 0};
    *gate = 1;
    const nexar_status started = ((start_nothing)op->start)(PyLong_AsVoidPtr(a[2]), NULL, &request);
    return end_collective(started, request, gate, &held, Py_None);
}

static PyObject* data(PyObject* module, PyObject* const* a,
                      Py_ssize_t n) { /* number, gate, group, values, root, write */
    (void)module;
    const operation* op = &library.operations[n == 6 ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == 6 ? gate_of(a[1]) : NULL;
    if (gate == NULL || op->start == NULL || !PyLong_Check(a[4])) Py_RETURN_NOTIMPLEMENTED;
    views held = {.held = 0};
    int dtype = -1;
    const long root = PyLong_AsLong(a[4]);
    const Py_buffer* values = memory_of(a[3], a[5] == Py_True, &held, &dtype);
    if (PyErr_Occurred()) PyErr_Clear(), values = NULL;
    if (values == NULL || root < 0 || root >= NEXAR_RANKS_MAX) {
        release_views(&held);
        Py_RETURN_NOTIMPLEMENTED;
    }
    nexar_request request = 0;
    *gate = 1;
    const uint64_t count = (uint64_t)(values->len / values->itemsize);
    const nexar_status started = ((start_data)op->start)(PyLong_AsVoidPtr(a[2]), values->buf, count, dtype,
                                                         (uint32_t)root, NULL, &request);
    return end_collective(started, request, gate, &held, a[3]);
}

/* number, gate, group, values, out, reduction, root, blocks of in, blocks of out: an operation with two
 * sides. 0 blocks: this rank has no such side, and gets None if it is the output. */
static PyObject* sides(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    const operation* op = &library.operations[n == 9 ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == 9 ? gate_of(a[1]) : NULL;
    if (gate == NULL || op->start == NULL || !PyLong_Check(a[6])) Py_RETURN_NOTIMPLEMENTED;
    const long reduction = PyLong_AsLong(a[5]), root = PyLong_AsLong(a[6]), in = PyLong_AsLong(a[7]),
               out = PyLong_AsLong(a[8]);
    PyObject* result = out == 0 ? Py_None : a[4] == Py_None ? a[3] : a[4];
    views held = {.held = 0};
    int dtype = -1, other = -1;
    const Py_buffer *values = NULL, *target = NULL;
    if (in > 0) values = memory_of(a[3], result == a[3], &held, &dtype);
    if (out > 0)
        target = in > 0 && result == a[3] ? values : memory_of(result, 1, &held, in > 0 ? &other : &dtype);
    const Py_buffer* counted = in > 0 ? values : target;
    int plain = (in == 0 || values != NULL) && (out == 0 || target != NULL) && counted != NULL &&
                reduction >= 0 && root >= 0 && root < NEXAR_RANKS_MAX &&
                (values == NULL || target == values || out == 0 || other == dtype);
    uint64_t count = 0;
    if (plain) {
        const uint64_t elements = (uint64_t)(counted->len / counted->itemsize),
                       blocks = (uint64_t)(in > 0 ? in : out);
        count = elements / blocks;
        plain = elements % blocks == 0 &&
                (out == 0 || (uint64_t)(target->len / target->itemsize) == count * (uint64_t)out);
    }
    if (!plain || PyErr_Occurred()) {
        PyErr_Clear();
        release_views(&held);
        Py_RETURN_NOTIMPLEMENTED;
    }
    nexar_request request = 0;
    *gate = 1;
    const nexar_status started = start_sides(op, PyLong_AsVoidPtr(a[2]), values == NULL ? NULL : values->buf,
                                             target == NULL ? NULL : target->buf, count, dtype,
                                             (int)reduction, (uint32_t)root, &request);
    return end_collective(started, request, gate, &held, result);
}

/* ---- Messages ---- */

/* number, group, values, peer, tag, write: None of a send, (source, tag, elements) of a receive. */
static PyObject* message(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    const operation* op = &library.operations[n == 6 ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    if (op->start == NULL || !PyLong_Check(a[3]) || !PyLong_Check(a[4])) Py_RETURN_NOTIMPLEMENTED;
    views held = {.held = 0};
    int dtype = -1;
    const int receives = a[5] == Py_True;
    const unsigned long peer = PyLong_AsUnsignedLong(a[3]), tag = PyLong_AsUnsignedLong(a[4]);
    const Py_buffer* values = PyErr_Occurred() ? NULL : memory_of(a[2], receives, &held, &dtype);
    if (values == NULL || peer > UINT32_MAX) {
        PyErr_Clear();
        release_views(&held);
        Py_RETURN_NOTIMPLEMENTED;
    }
    nexar_completion end;
    begin(&end);
    nexar_request request = 0;
    PyObject* out = NULL;
    const uint64_t size = (uint64_t)values->itemsize;
    const nexar_status started =
        ((start_message)op->start)(PyLong_AsVoidPtr(a[1]), values->buf, (uint64_t)values->len / size, dtype,
                                   (uint32_t)peer, tag, NULL, &request);
    if (started != NEXAR_OK)
        raise_status(started);
    else if (finish(request, &end, &held) == 0)
        out = receives ? Py_BuildValue("kkk", (unsigned long)end.source, (unsigned long)end.tag,
                                       (unsigned long)(end.bytes / size))
                       : Py_NewRef(Py_None);
    release_views(&held);
    return out;
}

/* ---- Set-up ---- */

/* bind(wait, cancel, free, error_of, array_type) */
static PyObject* bind(PyObject* module, PyObject* args) {
    (void)module;
    PyObject *wait, *cancel, *release, *error_of, *array_type;
    if (!PyArg_ParseTuple(args, "OOOOO", &wait, &cancel, &release, &error_of, &array_type)) return NULL;
    void* addresses[3] = {PyLong_AsVoidPtr(wait), PyLong_AsVoidPtr(cancel), PyLong_AsVoidPtr(release)};
    if (PyErr_Occurred()) return NULL;
    memcpy(&library.wait, &addresses[0], sizeof(void*));
    memcpy(&library.cancel, &addresses[1], sizeof(void*));
    memcpy(&library.release, &addresses[2], sizeof(void*));
    library.error_of = Py_NewRef(error_of); /* once per process: kept for ever */
    library.array_type = Py_NewRef(array_type);
    Py_RETURN_NONE;
}

/* operation(number, address of nexar_x_start, reduces, rooted) */
static PyObject* set_operation(PyObject* module, PyObject* args) {
    (void)module;
    int number, reduces, rooted;
    PyObject* address;
    if (!PyArg_ParseTuple(args, "iOpp", &number, &address, &reduces, &rooted)) return NULL;
    void* start = PyLong_AsVoidPtr(address);
    if (start == NULL && PyErr_Occurred()) return NULL;
    if (number < 0 || number >= OPERATIONS_MAX) return PyErr_Format(PyExc_ValueError, "operation %d", number);
    library.operations[number] = (operation){start, reduces, rooted};
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"operation", set_operation, METH_VARARGS, NULL},
    {"enter", enter, METH_O, NULL},
    {"leave", leave, METH_O, NULL},
    {"nothing", (PyCFunction)(void (*)(void))nothing, METH_FASTCALL, NULL},
    {"data", (PyCFunction)(void (*)(void))data, METH_FASTCALL, NULL},
    {"sides", (PyCFunction)(void (*)(void))sides, METH_FASTCALL, NULL},
    {"message", (PyCFunction)(void (*)(void))message, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "nexar._native", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModule_Create(&definition);
}
