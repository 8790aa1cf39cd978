/* _native - the hot calls of the Python package: operations on memory, waited for or only begun.
 * What is not plain gets NotImplemented, and the package's general way takes it: so this file has no rule of
 * an operation.
 *
 * ctypes costs 8 us for an operation of 8 bytes, more than the operation itself (docs/decisions/0017). Stable
 * ABI, so that one build serves every Python from 3.11 on. It loads nothing: nexar._library passes the
 * addresses of the library's functions. */
#include "_native.h"

#include <string.h>

functions library;

typedef nexar_status (*start_nothing)(nexar_group*, const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_data)(nexar_group*, void*, uint64_t, int32_t, uint32_t, const nexar_op_options*,
                                   nexar_request*);
typedef nexar_status (*start_move)(nexar_group*, const void*, void*, uint64_t, int32_t,
                                   const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_number)(nexar_group*, const void*, void*, uint64_t, int32_t, int32_t,
                                     const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_reduce)(nexar_group*, const void*, void*, uint64_t, int32_t, int32_t, uint32_t,
                                     const nexar_op_options*, nexar_request*);

typedef nexar_status (*start_packed)(nexar_group*, const void*, void*, const uint64_t*, int32_t,
                                     const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_packed_number)(nexar_group*, const void*, void*, const uint64_t*, int32_t,
                                            int32_t, const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_exchange)(nexar_group*, const void*, const uint64_t*, void*, const uint64_t*,
                                       int32_t, const nexar_op_options*, nexar_request*);

/* ---- Collectives ---- */

/* The gate of a group, a bytearray of one byte: 1 while a thread is inside a collective of the group. The
 * lock of the interpreter orders the accesses. */
static char* gate_of(PyObject* gate) {
    char* byte = PyByteArray_Check(gate) ? PyByteArray_AsString(gate) : NULL;
    return byte != NULL && *byte == 0 ? byte : NULL; /* otherwise the general way says what is wrong */
}

/* function, gates: what the function gives, called inside all gates; NotImplemented: a thread is inside one
 * of them. In C, as between two lines of Python the handler of a signal may raise. */
static CALL(inside) {
    (void)module;
    Py_ssize_t taken = 1;
    while (taken < n && gate_of(a[taken]) != NULL) *PyByteArray_AsString(a[taken++]) = 1;
    PyObject* given = taken == n ? PyObject_CallNoArgs(a[0]) : Py_NewRef(Py_NotImplemented);
    while (--taken > 0) *PyByteArray_AsString(a[taken]) = 0;
    return given;
}

/* number, gate or None: starts a persistent request. The status; NotImplemented: a thread is inside the gate.
 */
CALL(call_start) {
    (void)module;
    char* gate = n == 2 && a[1] != Py_None ? gate_of(a[1]) : NULL;
    if (n != 2 || (gate == NULL && a[1] != Py_None)) Py_RETURN_NOTIMPLEMENTED;
    const nexar_request request = PyLong_AsUnsignedLongLong(a[0]);
    if (PyErr_Occurred()) return NULL;
    nexar_status status;
    if (gate != NULL) *gate = 1;
    Py_BEGIN_ALLOW_THREADS status = library.start(request);
    Py_END_ALLOW_THREADS if (gate != NULL)* gate = 0;
    return status == NEXAR_OK ? PyLong_FromLong(0) : error_of(status);
}

typedef struct {
    const operation* op;
    nexar_group* group;
    char* gate;
    options o;
    views held;
    const void* in;
    void* out;
    uint64_t count;
    uint64_t *counts, *receive_counts; /* of one with counts of each rank's own; else the second is NULL */
    int dtype, reduction;
    uint32_t root;
    nexar_request request;
    number scalar;
} collective;

static nexar_status start_shape(collective* c) {
    const nexar_op_options* o = c->o.given;
    if (c->held.held == 0) return ((start_nothing)c->op->start)(c->group, o, &c->request);
    if (c->op->reduces && c->op->rooted)
        return ((start_reduce)c->op->start)(c->group, c->in, c->out, c->count, c->dtype, c->reduction,
                                            c->root, o, &c->request);
    if (c->op->reduces)
        return ((start_number)c->op->start)(c->group, c->in, c->out, c->count, c->dtype, c->reduction, o,
                                            &c->request);
    if (c->op->rooted)
        return ((start_number)c->op->start)(c->group, c->in, c->out, c->count, c->dtype, (int32_t)c->root, o,
                                            &c->request);
    return ((start_move)c->op->start)(c->group, c->in, c->out, c->count, c->dtype, o, &c->request);
}

static nexar_status start_one_side(collective* c) {
    return ((start_data)c->op->start)(c->group, c->out, c->count, c->dtype, c->root, c->o.given, &c->request);
}

static PyObject* refuse(collective* c) {
    release_views(&c->held);
    return not_plain();
}

/* What a number was too large for. */
static PyObject* no_numbers(void) {
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

/* Starts it inside the gate. One that is only begun gives the number of its request; else it is waited for,
 * and gives back `result`. */
static PyObject* run(collective* c, nexar_status (*start)(collective*), PyObject* result) {
    nexar_completion end;
    begin(&end);
    if (c->o.begins != NULL && !keep_views(c->o.begins, &c->held)) return refuse(c);
    if (*c->gate != 0) return refuse(c); /* by now: a tensor's own code may have run */
    *c->gate = 1;
    PyThreadState* unlocked =
        c->held.held == 0 || c->held.views[0].len < LARGE_BYTES ? NULL : PyEval_SaveThread();
    const nexar_status started = start(c);
    if (unlocked != NULL) PyEval_RestoreThread(unlocked);
    PyObject* out = NULL;
    if (started != NEXAR_OK) {
        raise_status(started);
        if (c->o.begins != NULL) keep_nothing(c->o.begins);
    } else if (c->o.begins != NULL)
        out = begun(c->o.begins, c->request, &c->held);
    else if (finish(c->request, &end, &c->held) == 0)
        out = Py_NewRef(result);
    *c->gate = 0;
    release_views(&c->held);
    return out;
}

/* The operation, gate and group that every call begins with, and the options that end it. 0: they are not
 * plain. */
static int begin_call(collective* c, PyObject* const* a, Py_ssize_t n, Py_ssize_t arguments) {
    if (n != arguments + OPTIONS) return 0;
    c->op = &library.operations[PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1)];
    c->held.held = 0; /* what `held` and `o` have beside this is written before it is read: it is much */
    c->in = c->out = NULL;
    c->counts = c->receive_counts = NULL;
    c->count = c->request = 0;
    c->dtype = -1;
    c->reduction = 0;
    c->root = 0;
    c->gate = gate_of(a[1]);
    c->group = PyLong_AsVoidPtr(a[2]);
    return c->gate != NULL && c->op->start != NULL && options_of(a + arguments, &c->o);
}

/* number, gate, group, and options */
static CALL(nothing) {
    (void)module;
    collective c;
    if (!begin_call(&c, a, n, 3)) Py_RETURN_NOTIMPLEMENTED;
    return run(&c, start_shape, Py_None);
}

/* number, gate, group, values, root, write, and options */
static CALL(data) {
    (void)module;
    collective c;
    if (!begin_call(&c, a, n, 6) || !PyLong_Check(a[4])) Py_RETURN_NOTIMPLEMENTED;
    const long root = PyLong_AsLong(a[4]);
    if (PyErr_Occurred() || root < 0 || root >= NEXAR_RANKS_MAX) return no_numbers();
    const Py_buffer* values = memory_of(a[3], "values", a[5] == Py_True, &c.held, &c.dtype);
    if (values == NULL) return refuse(&c);
    c.out = values->buf;
    c.count = (uint64_t)(values->len / values->itemsize);
    c.root = (uint32_t)root;
    return run(&c, start_one_side, a[3]);
}

/* Of sides with so many blocks (0: there is none): whether both have the same count of elements in each. */
static int counted(collective* c, const Py_buffer* values, const Py_buffer* target, long in, long out) {
    const Py_buffer* first = in > 0 ? values : target;
    if (first == NULL || (in > 0 && values == NULL) || (out > 0 && target == NULL)) return 0;
    const uint64_t elements = (uint64_t)(first->len / first->itemsize),
                   blocks = (uint64_t)(in > 0 ? in : out);
    c->count = elements / blocks;
    c->in = values == NULL ? NULL : values->buf;
    c->out = target == NULL ? NULL : target->buf;
    return elements % blocks == 0 &&
           (out == 0 || (uint64_t)(target->len / target->itemsize) == c->count * (uint64_t)out);
}

/* premul_sum's factor, once the dtype is known. 0: it is not plain. */
static int give_scalar(collective* c, PyObject* scalar) {
    if (scalar == Py_None) return 1;
    if (!scalar_of(scalar, c->dtype, &c->scalar)) return 0;
    if (c->o.given == NULL) c->o.values = (nexar_op_options)NEXAR_OP_OPTIONS_INIT;
    c->o.values.scalar = &c->scalar;
    c->o.given = &c->o.values;
    return 1;
}

/* The number of the reduction of that name, where the operation has one; below 0: there is none. */
static long reduction_of(const collective* c, PyObject* name) {
    if (!c->op->reduces) return 0;
    PyObject* found = PyUnicode_CheckExact(name) ? PyDict_GetItemWithError(library.ops, name)
                                                 : NULL; /* no code of Python runs */
    return found == NULL ? -1 : PyLong_AsLong(found);
}

/* number, gate, group, values, out, op, scalar, root, blocks of in, blocks of out, and options: an
 * operation with two sides. 0 blocks: this rank has no such side, and gets None if it is the output. */
static CALL(sides) {
    (void)module;
    collective c;
    if (!begin_call(&c, a, n, 10) || !PyLong_Check(a[7])) Py_RETURN_NOTIMPLEMENTED;
    const long reduction = reduction_of(&c, a[5]), root = PyLong_AsLong(a[7]), in = PyLong_AsLong(a[8]),
               out = PyLong_AsLong(a[9]);
    if (PyErr_Occurred() || reduction < 0 || root < 0 || root >= NEXAR_RANKS_MAX) return no_numbers();
    PyObject* result = out == 0 ? Py_None : a[4] == Py_None ? a[3] : a[4];
    int other = -1;
    const Py_buffer *values = NULL, *target = NULL;
    if (in > 0 && (values = memory_of(a[3], "values", result == a[3], &c.held, &c.dtype)) == NULL)
        return refuse(&c);
    if (out > 0)
        target = in > 0 && result == a[3] ? values
                                          : memory_of(result, "out", 1, &c.held, in > 0 ? &other : &c.dtype);
    if (!counted(&c, values, target, in, out) ||
        (values != NULL && target != values && out != 0 && other != c.dtype) || !give_scalar(&c, a[6]))
        return refuse(&c);
    c.reduction = (int)reduction;
    c.root = (uint32_t)root;
    return run(&c, start_shape, result);
}

/* ---- Collectives with counts ---- */

static nexar_status start_counts(collective* c) {
    const nexar_op_options* o = c->o.given;
    if (c->receive_counts != NULL)
        return ((start_exchange)c->op->start)(c->group, c->in, c->counts, c->out, c->receive_counts, c->dtype,
                                              o, &c->request);
    if (c->op->reduces || c->op->rooted)
        return ((start_packed_number)c->op->start)(c->group, c->in, c->out, c->counts, c->dtype,
                                                   c->op->rooted ? (int32_t)c->root : c->reduction, o,
                                                   &c->request);
    return ((start_packed)c->op->start)(c->group, c->in, c->out, c->counts, c->dtype, o, &c->request);
}

/* A list of one count for each rank, and their sum. 0: it is none. */
static int read_counts(PyObject* list, long size, uint64_t* into, uint64_t* sum) {
    *sum = 0;
    if (!PyList_Check(list) || PyList_Size(list) != size) return 0;
    for (long i = 0; i < size; ++i) {
        PyObject* each = PyList_GetItem(list, i);
        const long long count = PyLong_Check(each) ? PyLong_AsLongLong(each) : -1;
        if (count == -1) PyErr_Clear();
        if (count < 0 || count > INT64_MAX - (long long)*sum) return 0;
        into[i] = (uint64_t)count;
        *sum += (uint64_t)count;
    }
    return 1;
}

enum {
    NO_SIDE,
    OWN,
    PACKED
}; /* what a rank has of a side: its own block, or those of all, one after the other */

/* One side's memory, of so many elements; NULL: not plain. */
static const Py_buffer* side_of(collective* c, PyObject* array, const char* name, int write,
                                uint64_t elements, int* dtype) {
    const Py_buffer* side = memory_of(array, name, write, &c->held, dtype);
    return side != NULL && (uint64_t)(side->len / side->itemsize) == elements ? side : NULL;
}

/* Reads counts and sides, as call_packed has them. 0: they are not plain. */
static int read_packed(collective* c, PyObject* const* a, long rank, long size) {
    const long in = PyLong_AsLong(a[12]), out = PyLong_AsLong(a[13]);
    uint64_t sum, received;
    if (!read_counts(a[5], size, c->counts, &sum)) return 0;
    received = sum;
    const uint64_t* of_out = c->counts;
    if (c->receive_counts != NULL) {
        if (!read_counts(a[6], size, c->receive_counts, &received)) return 0;
        of_out = c->receive_counts;
    }
    int other = -1;
    const Py_buffer* side;
    if (in != NO_SIDE) {
        if ((side = side_of(c, a[3], "values", 0, in == OWN ? c->counts[rank] : sum, &c->dtype)) == NULL)
            return 0;
        c->in = side->buf;
    }
    if (out == NO_SIDE) return 1;
    if ((side = side_of(c, a[4], "out", 1, out == OWN ? of_out[rank] : received, &other)) == NULL) return 0;
    c->out = side->buf;
    if (in != NO_SIDE && other != c->dtype) return 0;
    c->dtype = other;
    return 1;
}

/* number, gate, group, values, out, counts, receive counts (None: it has none), op, scalar, root,
 * rank, size, what this rank has of both sides, and options. One that has no output gets None. */
static CALL(packed) {
    (void)module;
    collective c;
    if (!begin_call(&c, a, n, 14) || !PyLong_Check(a[9])) Py_RETURN_NOTIMPLEMENTED;
    const long reduction = reduction_of(&c, a[7]), root = PyLong_AsLong(a[9]), rank = PyLong_AsLong(a[10]),
               size = PyLong_AsLong(a[11]);
    if (PyErr_Occurred() || reduction < 0 || root < 0 || root >= NEXAR_RANKS_MAX) return no_numbers();
    uint64_t* counts = PyMem_Malloc(2 * (size_t)size * sizeof *counts);
    if (counts == NULL) return PyErr_NoMemory();
    c.counts = counts;
    c.receive_counts = a[6] == Py_None ? NULL : counts + size;
    c.reduction = (int)reduction;
    c.root = (uint32_t)root;
    PyObject* done;
    if (!read_packed(&c, a, rank, size) || !give_scalar(&c, a[8]))
        done = refuse(&c);
    else
        done = run(&c, start_counts, PyLong_AsLong(a[13]) == NO_SIDE ? Py_None : a[4]);
    PyMem_Free(counts);
    return done;
}

/* ---- Set-up ---- */

/* bind(addresses, error_of, array_type, copied, refused, shares, OPS): of the library's functions, in the
 * order below */
static PyObject* bind(PyObject* module, PyObject* args) {
    (void)module;
    PyObject *addresses, *error_of, *array_type, *copied, *refused, *shares, *ops;
    void* const to[] = {&library.wait,   &library.test,      &library.wait_any, &library.wait_some,
                        &library.cancel, &library.release,   &library.start,    &library.mprobe,
                        &library.poll,   &library.last_error};
    enum { COUNT = sizeof to / sizeof to[0] };
    if (!PyArg_ParseTuple(args, "OOOOOOO!", &addresses, &error_of, &array_type, &copied, &refused, &shares,
                          &PyDict_Type, &ops))
        return NULL;
    if (!PyTuple_Check(addresses) || PyTuple_Size(addresses) != COUNT)
        return PyErr_Format(PyExc_TypeError, "want %d addresses", (int)COUNT);
    for (int i = 0; i < COUNT; ++i) {
        void* address = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
        if (PyErr_Occurred()) return NULL;
        memcpy(to[i], &address, sizeof address);
    }
    library.error_of = Py_NewRef(error_of); /* once per process: kept for ever */
    library.array_type = Py_NewRef(array_type);
    library.copied = Py_NewRef(copied);
    library.refused = Py_NewRef(refused);
    library.shares = Py_NewRef(shares);
    library.ops = Py_NewRef(ops);
    const struct {
        PyObject** to;
        const char* name;
    } names[] = {{&library.key, "_key"},
                 {&library.number, "_number"},
                 {&library.kept, "_kept"},
                 {&library.value, "_value"},
                 {&library.dlpack, "__dlpack__"},
                 {&library.readonly, "readonly"},
                 {&library.apart, "_apart"},
                 {&library.of_torch[NEGATED], "is_neg"},
                 {&library.of_torch[POINTER], "data_ptr"},
                 {&library.of_torch[ELEMENTS], "numel"},
                 {&library.of_torch[CONTIGUOUS], "is_contiguous"},
                 {&library.of_torch[CPU], "is_cpu"},
                 {&library.of_torch[GRADIENT], "requires_grad"},
                 {&library.of_torch[DTYPE], "dtype"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        if ((*names[i].to = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
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

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL
static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"operation", set_operation, METH_VARARGS, NULL},
    {"inside", FAST(inside)},
    {"look", FAST(call_look)},
    {"nothing", FAST(nothing)},
    {"data", FAST(data)},
    {"sides", FAST(sides)},
    {"packed", FAST(packed)},
    {"message", FAST(call_message)},
    {"pieces", FAST(call_pieces)},
    {"exchange", FAST(call_exchange)},
    {"probe", FAST(call_probe)},
    {"mprobe", FAST(call_mprobe)},
    {"mrecv", FAST(call_mrecv)},
    {"ask", FAST(call_ask)},
    {"some", FAST(call_some)},
    {"start", FAST(call_start)},
    {"poll", FAST(call_poll)},
    {"free", call_free, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "nexar._native", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModule_Create(&definition);
}
