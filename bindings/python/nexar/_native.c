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
#include <float.h>
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
    nexar_status (*start)(nexar_request);
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

/* ---- Options ---- */

enum { OPTIONS = 4 }; /* timeout, match_id, priority, flags: the last arguments of an operation */

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

/* What operation is started with: NULL where all are defaults. 0: they are not plain. */
static int options_of(PyObject* const* a, nexar_op_options* o, const nexar_op_options** out) {
    *out = NULL;
    if (!PyLong_Check(a[1]) || !PyLong_Check(a[3]) || !(a[2] == Py_None || PyLong_Check(a[2]))) return 0;
    const unsigned long long match_id = PyLong_AsUnsignedLongLong(a[1]),
                             flags = PyLong_AsUnsignedLongLong(a[3]);
    const long long priority = a[2] == Py_None ? NEXAR_PRIORITY_DEFAULT : PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    if (a[0] == Py_None && match_id == 0 && a[2] == Py_None && flags == 0) return 1;
    *o = (nexar_op_options)NEXAR_OP_OPTIONS_INIT;
    if (priority < INT32_MIN || priority > INT32_MAX) return 0;
    if (a[0] != Py_None && !timeout_of(a[0], &o->timeout_ms)) return 0;
    o->match_id = match_id;
    o->priority = (int32_t)priority;
    o->flags = flags;
    *out = o;
    return 1;
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

/* Cancels the request and waits a while for its end. If it does not end, its memory is kept for ever. */
static void give_up(nexar_request request, views* held) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    library.cancel(request);
    wait_without_gil(request, CANCEL_MS, &end);
    if (library.release(request) == NEXAR_ERR_BAD_STATE) held->held = 0;
    PyErr_Restore(type, value, trace);
}

enum { INTERRUPTED = -2 };

/* Waits for the end and frees the request. 0: it succeeded. Otherwise a Python exception is set: of the
 * operation, or (INTERRUPTED) of a signal handler, and then the operation is cancelled first. */
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
        give_up(request, held);
        return INTERRUPTED;
    }
}

/* number, completion (memory of one): the status of the request that has ended; of the call, where the
 * completion is still PENDING. Between two waits the handlers of signals run, and may raise. */
static PyObject* wait_for(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    Py_buffer into;
    if (n != 2) return PyErr_Format(PyExc_TypeError, "wait(number, completion)");
    const nexar_request request = PyLong_AsUnsignedLongLong(a[0]);
    if (PyErr_Occurred()) return NULL;
    for (;;) {
        nexar_completion end = NEXAR_COMPLETION_INIT;
        end.status = NEXAR_PENDING;
        const nexar_status status = wait_without_gil(request, WAIT_MS, &end);
        if (end.status == NEXAR_PENDING && (status == NEXAR_PENDING || status == NEXAR_ERR_INTERRUPTED)) {
            if (PyErr_CheckSignals() != 0) return NULL;
            continue;
        }
        if (PyObject_GetBuffer(a[1], &into, PyBUF_WRITABLE) < 0) return NULL;
        if (into.len == (Py_ssize_t)sizeof end) memcpy(into.buf, &end, sizeof end);
        PyBuffer_Release(&into);
        return PyLong_FromLong(status);
    }
}

/* Starts a persistent request: the status. */
static PyObject* start_again(PyObject* module, PyObject* number) {
    (void)module;
    const nexar_request request = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    nexar_status status;
    Py_BEGIN_ALLOW_THREADS status = library.start(request);
    Py_END_ALLOW_THREADS return PyLong_FromLong(status);
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
                                const nexar_op_options* o, nexar_request* request) {
    if (op->reduces && op->rooted)
        return ((start_reduce)op->start)(group, in, out, count, dtype, reduction, root, o, request);
    if (op->reduces) return ((start_number)op->start)(group, in, out, count, dtype, reduction, o, request);
    if (op->rooted) return ((start_number)op->start)(group, in, out, count, dtype, (int32_t)root, o, request);
    return ((start_move)op->start)(group, in, out, count, dtype, o, request);
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

/* number, gate, group, and options */
static PyObject* nothing(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    enum { N = 3 + OPTIONS };
    const operation* op = &library.operations[n == N ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == N ? gate_of(a[1]) : NULL;
    nexar_op_options options;
    const nexar_op_options* o = NULL;
    if (gate == NULL || op->start == NULL || !options_of(a + 3, &options, &o)) Py_RETURN_NOTIMPLEMENTED;
    nexar_request request = 0;
    views held = {.held = 0};
    *gate = 1;
    const nexar_status started = ((start_nothing)op->start)(PyLong_AsVoidPtr(a[2]), o, &request);
    return end_collective(started, request, gate, &held, Py_None);
}

/* number, gate, group, values, root, write, and options */
static PyObject* data(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    enum { N = 6 + OPTIONS };
    const operation* op = &library.operations[n == N ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == N ? gate_of(a[1]) : NULL;
    nexar_op_options options;
    const nexar_op_options* o = NULL;
    if (gate == NULL || op->start == NULL || !PyLong_Check(a[4]) || !options_of(a + 6, &options, &o))
        Py_RETURN_NOTIMPLEMENTED;
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
                                                         (uint32_t)root, o, &request);
    return end_collective(started, request, gate, &held, a[3]);
}

/* number, gate, group, values, out, reduction, root, blocks of in, blocks of out, and options: an operation
 * with two sides. 0 blocks: this rank has no such side, and gets None if it is the output. */
static PyObject* sides(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    enum { N = 9 + OPTIONS };
    const operation* op = &library.operations[n == N ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    char* gate = n == N ? gate_of(a[1]) : NULL;
    nexar_op_options options;
    const nexar_op_options* o = NULL;
    if (gate == NULL || op->start == NULL || !PyLong_Check(a[6]) || !options_of(a + 9, &options, &o))
        Py_RETURN_NOTIMPLEMENTED;
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
                                             (int)reduction, (uint32_t)root, o, &request);
    return end_collective(started, request, gate, &held, result);
}

/* ---- Messages ---- */

typedef struct {
    views held;
    nexar_request request;
    nexar_completion end;
    uint64_t itemsize;
} transfer;

/* Starts a message of plain memory. 0: started; -1: with an exception; 1: not plain. */
static int start_transfer(int number, PyObject* group, PyObject* memory, PyObject* peer, PyObject* tag,
                          int receives, const nexar_op_options* o, transfer* t) {
    const operation* op = &library.operations[number];
    if (op->start == NULL || !PyLong_Check(peer) || !PyLong_Check(tag)) return 1;
    int dtype = -1;
    const unsigned long to = PyLong_AsUnsignedLong(peer), number_of_tag = PyLong_AsUnsignedLong(tag);
    const Py_buffer* values = PyErr_Occurred() ? NULL : memory_of(memory, receives, &t->held, &dtype);
    if (values == NULL || to > UINT32_MAX) {
        PyErr_Clear();
        release_views(&t->held);
        return 1;
    }
    begin(&t->end);
    t->itemsize = (uint64_t)values->itemsize;
    const nexar_status started =
        ((start_message)op->start)(PyLong_AsVoidPtr(group), values->buf, (uint64_t)values->len / t->itemsize,
                                   dtype, (uint32_t)to, number_of_tag, o, &t->request);
    if (started == NEXAR_OK) return 0;
    raise_status(started);
    release_views(&t->held);
    return -1;
}

/* (source, tag, elements) */
static PyObject* received(const transfer* t) {
    return Py_BuildValue("kkk", (unsigned long)t->end.source, (unsigned long)t->end.tag,
                         (unsigned long)(t->end.bytes / t->itemsize));
}

/* number, group, values, peer, tag, write, and options: None of a send, (source, tag, elements) of a receive.
 */
static PyObject* message(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    nexar_op_options options;
    const nexar_op_options* o = NULL;
    if (n != 6 + OPTIONS || !options_of(a + 6, &options, &o)) Py_RETURN_NOTIMPLEMENTED;
    transfer t = {.request = 0};
    const int receives = a[5] == Py_True;
    const int started = start_transfer((int)PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1), a[1], a[2], a[3],
                                       a[4], receives, o, &t);
    if (started > 0) Py_RETURN_NOTIMPLEMENTED;
    if (started < 0) return NULL;
    PyObject* out = NULL;
    if (finish(t.request, &t.end, &t.held) == 0) out = receives ? received(&t) : Py_NewRef(Py_None);
    release_views(&t.held);
    return out;
}

/* Waits for both; the send's error is the one that is raised. */
static PyObject* end_exchange(transfer* sent, transfer* got) {
    const int of_send = finish(sent->request, &sent->end, &sent->held);
    int of_receive = 0;
    if (of_send == INTERRUPTED)
        give_up(got->request, &got->held);
    else if (of_send == 0)
        of_receive = finish(got->request, &got->end, &got->held);
    else {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        if (finish(got->request, &got->end, &got->held) != 0) PyErr_Clear();
        PyErr_Restore(type, value, trace);
    }
    PyObject* out = of_send == 0 && of_receive == 0 ? received(got) : NULL;
    release_views(&sent->held);
    release_views(&got->held);
    return out;
}

/* number of send, number of receive, group, values, to, send tag, out, source, tag, and options. Overlapping
 * memory is not plain. */
static PyObject* exchange(PyObject* module, PyObject* const* a, Py_ssize_t n) {
    (void)module;
    nexar_op_options options;
    const nexar_op_options* o = NULL;
    if (n != 9 + OPTIONS || !options_of(a + 9, &options, &o)) Py_RETURN_NOTIMPLEMENTED;
    transfer sent = {.request = 0}, got = {.request = 0};
    views looked = {.held = 0};
    int dtype;
    const Py_buffer *out = memory_of(a[6], 1, &looked, &dtype),
                    *in = out ? memory_of(a[3], 0, &looked, &dtype) : NULL;
    const int apart = in != NULL && ((char*)in->buf + in->len <= (char*)out->buf ||
                                     (char*)out->buf + out->len <= (char*)in->buf);
    release_views(&looked);
    if (!apart || !PyLong_Check(a[7]) || !PyLong_Check(a[8])) Py_RETURN_NOTIMPLEMENTED;
    if (PyLong_AsUnsignedLong(a[7]) > UINT32_MAX || (PyLong_AsUnsignedLong(a[8]), PyErr_Occurred())) {
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    const int started =
        start_transfer((int)PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1), a[2], a[3], a[4], a[5], 0, o, &sent);
    if (started > 0) Py_RETURN_NOTIMPLEMENTED;
    if (started < 0) return NULL;
    const int second =
        start_transfer((int)PyLong_AsLong(a[1]) & (OPERATIONS_MAX - 1), a[2], a[6], a[7], a[8], 1, o, &got);
    if (second == 0) return end_exchange(&sent, &got);
    give_up(sent.request, &sent.held);
    release_views(&sent.held);
    return second > 0 ? PyErr_Format(PyExc_RuntimeError, "the array changed during the call") : NULL;
}

/* ---- Set-up ---- */

/* bind(wait, cancel, free, start, error_of, array_type) */
static PyObject* bind(PyObject* module, PyObject* args) {
    (void)module;
    PyObject *wait, *cancel, *release, *start, *error_of, *array_type;
    if (!PyArg_ParseTuple(args, "OOOOOO", &wait, &cancel, &release, &start, &error_of, &array_type))
        return NULL;
    void* addresses[4] = {PyLong_AsVoidPtr(wait), PyLong_AsVoidPtr(cancel), PyLong_AsVoidPtr(release),
                          PyLong_AsVoidPtr(start)};
    if (PyErr_Occurred()) return NULL;
    memcpy(&library.wait, &addresses[0], sizeof(void*));
    memcpy(&library.cancel, &addresses[1], sizeof(void*));
    memcpy(&library.release, &addresses[2], sizeof(void*));
    memcpy(&library.start, &addresses[3], sizeof(void*));
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
    {"exchange", (PyCFunction)(void (*)(void))exchange, METH_FASTCALL, NULL},
    {"wait", (PyCFunction)(void (*)(void))wait_for, METH_FASTCALL, NULL},
    {"start", start_again, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "nexar._native", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModule_Create(&definition);
}
