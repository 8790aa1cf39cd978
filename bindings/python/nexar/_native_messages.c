/* Messages in _native: sends, receives, exchanges, probes, and messages that are set apart. */
#include "_native.h"

typedef nexar_status (*start_message)(nexar_group*, void*, uint64_t, int32_t, uint32_t, uint64_t,
                                      const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_mrecv)(nexar_group*, nexar_message, void*, uint64_t, int32_t,
                                    const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_probe)(nexar_group*, uint32_t, uint64_t, const nexar_op_options*,
                                    nexar_request*);

typedef struct {
    views held;
    const Py_buffer* values;
    nexar_request request;
    nexar_completion end;
    uint64_t itemsize, count;
} transfer;

/* The plain memory of a message. 1: it is not plain. */
static int memory_of_transfer(PyObject* memory, int receives, int* dtype, transfer* t) {
    t->held.held = 0;
    t->values = PyErr_Occurred() ? NULL : memory_of(memory, receives, &t->held, dtype);
    if (t->values == NULL) {
        PyErr_Clear();
        release_views(&t->held);
        return 1;
    }
    begin(&t->end);
    t->itemsize = (uint64_t)t->values->itemsize;
    t->count = (uint64_t)t->values->len / t->itemsize;
    return 0;
}

static int started(nexar_status status, transfer* t) {
    if (status == NEXAR_OK) return 0;
    raise_status(status);
    release_views(&t->held);
    return -1;
}

/* Starts a message of plain memory. 0: started; -1: with an exception; 1: not plain. */
static int start_transfer(int number, PyObject* group, PyObject* memory, PyObject* peer, PyObject* tag,
                          int receives, const nexar_op_options* o, transfer* t) {
    const operation* op = &library.operations[number];
    if (op->start == NULL || !PyLong_Check(peer) || !PyLong_Check(tag)) return 1;
    int dtype = -1;
    const unsigned long to = PyLong_AsUnsignedLong(peer), number_of_tag = PyLong_AsUnsignedLong(tag);
    if (memory_of_transfer(memory, receives, &dtype, t)) return 1;
    if (to > UINT32_MAX) return release_views(&t->held), 1;
    const start_message start = (start_message)op->start;
    nexar_group* of = PyLong_AsVoidPtr(group);
    PyThreadState* unlocked = t->values->len < LARGE_BYTES ? NULL : PyEval_SaveThread();
    const nexar_status status =
        start(of, t->values->buf, t->count, dtype, (uint32_t)to, number_of_tag, o, &t->request);
    if (unlocked != NULL) PyEval_RestoreThread(unlocked);
    return started(status, t);
}

/* (source, tag, elements) */
static PyObject* received(const transfer* t) {
    return Py_BuildValue("kkk", (unsigned long)t->end.source, (unsigned long)t->end.tag,
                         (unsigned long)(t->end.bytes / t->itemsize));
}

/* What a started message gives: its Request; or, waited for, None or (source, tag, elements). */
static PyObject* end_transfer(transfer* t, PyObject* begins, int receives) {
    PyObject* out = NULL;
    if (begins != NULL)
        out = begun(begins, t->request, &t->held);
    else if (finish(t->request, &t->end, &t->held) == 0)
        out = receives ? received(t) : Py_NewRef(Py_None);
    release_views(&t->held);
    return out;
}

/* number, group, values, peer, tag, write, and options: see end_transfer. */
CALL(call_message) {
    (void)module;
    options o;
    if (n != 6 + OPTIONS || !options_of(a + 6, &o)) Py_RETURN_NOTIMPLEMENTED;
    transfer t;
    const int receives = a[5] == Py_True;
    const int how = start_transfer((int)PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1), a[1], a[2], a[3], a[4],
                                   receives, o.given, &t);
    if (how > 0) Py_RETURN_NOTIMPLEMENTED;
    return how < 0 ? NULL : end_transfer(&t, o.begins, receives);
}

/* number, group, message, values, and options: as call_message. */
CALL(call_mrecv) {
    (void)module;
    options o;
    enum { N = 4 + OPTIONS };
    const operation* op = &library.operations[n == N ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    if (n != N || op->start == NULL || !options_of(a + 4, &o)) Py_RETURN_NOTIMPLEMENTED;
    transfer t;
    int dtype = -1;
    const nexar_message message = PyLong_AsUnsignedLongLong(a[2]);
    if (memory_of_transfer(a[3], 1, &dtype, &t)) Py_RETURN_NOTIMPLEMENTED;
    const nexar_status status = ((start_mrecv)op->start)(PyLong_AsVoidPtr(a[1]), message, t.values->buf,
                                                         t.count, dtype, o.given, &t.request);
    return started(status, &t) < 0 ? NULL : end_transfer(&t, o.begins, 1);
}

/* A rank and a tag. 0: they are no such numbers. */
static int pattern_of(PyObject* source, PyObject* tag, uint32_t* from, uint64_t* of) {
    if (!PyLong_Check(source) || !PyLong_Check(tag)) return 0;
    const unsigned long rank = PyLong_AsUnsignedLong(source);
    *of = PyLong_AsUnsignedLong(tag);
    *from = (uint32_t)rank;
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    return rank <= UINT32_MAX;
}

/* number, group, source, tag, and options: (source, tag, bytes), or the Request. */
CALL(call_probe) {
    (void)module;
    options o;
    enum { N = 4 + OPTIONS };
    const operation* op = &library.operations[n == N ? PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1) : 0];
    transfer t;
    uint32_t from;
    uint64_t tag;
    if (n != N || op->start == NULL || !pattern_of(a[2], a[3], &from, &tag) || !options_of(a + 4, &o))
        Py_RETURN_NOTIMPLEMENTED;
    t.held.held = 0;
    t.itemsize = 1;
    begin(&t.end);
    const nexar_status status =
        ((start_probe)op->start)(PyLong_AsVoidPtr(a[1]), from, tag, o.given, &t.request);
    return started(status, &t) < 0 ? NULL : end_transfer(&t, o.begins, 1);
}

/* group, source, tag: (number of the message, source, tag, bytes) of one that is here; None: none is. */
CALL(call_mprobe) {
    (void)module;
    uint32_t from;
    uint64_t tag;
    if (n != 3 || !pattern_of(a[1], a[2], &from, &tag)) Py_RETURN_NOTIMPLEMENTED;
    nexar_op_options now = NEXAR_OP_OPTIONS_INIT;
    now.timeout_ms = 0;
    nexar_completion end;
    nexar_message message = 0;
    nexar_group* group = PyLong_AsVoidPtr(a[0]);
    nexar_status status;
    begin(&end);
    Py_BEGIN_ALLOW_THREADS status = library.mprobe(group, from, tag, &message, &end, &now);
    Py_END_ALLOW_THREADS if (status == NEXAR_ERR_TIMED_OUT) Py_RETURN_NONE;
    if (status != NEXAR_OK) return raise_status(status);
    return Py_BuildValue("KkkK", (unsigned long long)message, (unsigned long)end.source,
                         (unsigned long)end.tag, (unsigned long long)end.bytes);
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
        of_receive = finish(got->request, &got->end, &got->held);
        if (of_receive == INTERRUPTED) { /* which is what counts then */
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(trace);
        } else {
            PyErr_Clear();
            PyErr_Restore(type, value, trace);
        }
    }
    PyObject* out = of_send == 0 && of_receive == 0 ? received(got) : NULL;
    release_views(&sent->held);
    release_views(&got->held);
    return out;
}

/* number of send, number of receive, group, values, to, send tag, out, source, tag, and options. Overlapping
 * memory is not plain. */
CALL(call_exchange) {
    (void)module;
    options o;
    if (n != 9 + OPTIONS || !options_of(a + 9, &o)) Py_RETURN_NOTIMPLEMENTED;
    transfer sent, got;
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
    const int first = start_transfer((int)PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1), a[2], a[3], a[4], a[5],
                                     0, o.given, &sent);
    if (first > 0) Py_RETURN_NOTIMPLEMENTED;
    if (first < 0) return NULL;
    const int second = start_transfer((int)PyLong_AsLong(a[1]) & (OPERATIONS_MAX - 1), a[2], a[6], a[7], a[8],
                                      1, o.given, &got);
    if (second == 0) return end_exchange(&sent, &got);
    give_up(sent.request, &sent.held);
    release_views(&sent.held);
    return second > 0 ? PyErr_Format(PyExc_RuntimeError, "the array changed during the call") : NULL;
}
