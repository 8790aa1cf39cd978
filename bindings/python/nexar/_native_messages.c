/* Messages in _native: sends, receives, exchanges, probes, and messages that are set apart. */
#include "_native.h"

typedef nexar_status (*start_message)(nexar_group*, void*, uint64_t, int32_t, uint32_t, uint64_t,
                                      const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_mrecv)(nexar_group*, nexar_message, void*, uint64_t, int32_t,
                                    const nexar_op_options*, nexar_request*);
typedef nexar_status (*start_probe)(nexar_group*, uint32_t, uint64_t, const nexar_op_options*,
                                    nexar_request*);

/* The plain memory of a message. 0: it is not plain, and nothing is held. */
static int memory_of_transfer(PyObject* memory, const char* name, int receives, transfer* t) {
    t->held.held = 0;
    t->values = memory_of(memory, name, receives, &t->held, &t->dtype);
    if (t->values == NULL) return 0;
    begin(&t->end);
    t->itemsize = (uint64_t)t->values->itemsize;
    t->count = (uint64_t)t->values->len / t->itemsize;
    return 1;
}

static nexar_status start_transfer(const operation* op, nexar_group* group, uint32_t peer, uint64_t tag,
                                   const nexar_op_options* o, transfer* t) {
    const start_message start = (start_message)op->start;
    PyThreadState* unlocked = t->values->len < LARGE_BYTES ? NULL : PyEval_SaveThread();
    const nexar_status status = start(group, t->values->buf, t->count, t->dtype, peer, tag, o, &t->request);
    if (unlocked != NULL) PyEval_RestoreThread(unlocked);
    return status;
}

/* (source, tag, elements) */
static PyObject* received(const transfer* t) {
    return Py_BuildValue("kkk", (unsigned long)t->end.source, (unsigned long)t->end.tag,
                         (unsigned long)(t->end.bytes / t->itemsize));
}

int prepare_transfer(PyObject* request, const transfer* t, int receives) {
    if (request == NULL) return 1;
    if (!keep_views(request, &t->held)) return 0;
    if (!receives) return 1;
    PyObject* itemsize = PyLong_FromUnsignedLongLong(t->itemsize); /* see _requests.received */
    const int done = itemsize != NULL && PyObject_SetAttr(request, library.value, itemsize) == 0;
    Py_XDECREF(itemsize);
    return done;
}

PyObject* end_transfer(nexar_status started, transfer* t, PyObject* begins, int receives) {
    PyObject* out = NULL;
    if (started != NEXAR_OK) {
        raise_status(started);
        if (begins != NULL) keep_nothing(begins);
    } else if (begins != NULL)
        out = begun(begins, t->request, &t->held);
    else if (finish(t->request, &t->end, &t->held) == 0)
        out = receives ? received(t) : Py_NewRef(Py_None);
    release_views(&t->held);
    return out;
}

int pattern_of(PyObject* source, PyObject* tag, uint32_t* from, uint64_t* of) {
    if (!PyLong_Check(source) || !PyLong_Check(tag)) return 0;
    const unsigned long rank = PyLong_AsUnsignedLong(source);
    *of = PyLong_AsUnsignedLong(tag);
    *from = (uint32_t)rank;
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    return rank <= UINT32_MAX;
}

/* The operation of a number that Python passes, of a call with so many arguments; NULL: there is none. */
static const operation* operation_of(PyObject* const* a, Py_ssize_t n, Py_ssize_t arguments) {
    if (n != arguments + OPTIONS || !PyLong_Check(a[0])) return NULL;
    const operation* op = &library.operations[PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1)];
    return op->start == NULL ? NULL : op;
}

static PyObject* refuse(transfer* t) {
    release_views(&t->held);
    return not_plain();
}

/* number, group, values, peer, tag, write, and options: see end_transfer. */
CALL(call_message) {
    (void)module;
    options o;
    transfer t;
    uint32_t peer;
    uint64_t tag;
    const operation* op = operation_of(a, n, 6);
    if (op == NULL || !pattern_of(a[3], a[4], &peer, &tag) || !options_of(a + 6, &o))
        Py_RETURN_NOTIMPLEMENTED;
    const int receives = a[5] == Py_True;
    if (!memory_of_transfer(a[2], "values", receives, &t) || !prepare_transfer(o.begins, &t, receives))
        return refuse(&t);
    const nexar_status status = start_transfer(op, PyLong_AsVoidPtr(a[1]), peer, tag, o.given, &t);
    return end_transfer(status, &t, o.begins, receives);
}

/* A Message is set apart as that number; NULL: not any more. 0: with an exception. */
static int set_apart(PyObject* message, PyObject* number) {
    PyObject* apart = PyObject_GetAttr(message, library.apart);
    const int done = apart != NULL && (number == NULL ? PyList_SetSlice(apart, 0, 1, NULL)
                                                      : PyList_Append(apart, number)) == 0;
    Py_XDECREF(apart);
    return done;
}

/* number, group, Message, values, and options: as call_message. Once it has begun the Message is not set
 * apart any more. */
CALL(call_mrecv) {
    (void)module;
    options o;
    transfer t;
    const operation* op = operation_of(a, n, 4);
    if (op == NULL || !options_of(a + 4, &o)) Py_RETURN_NOTIMPLEMENTED;
    PyObject* its = PyObject_GetAttr(a[2], library.number);
    const nexar_message message = its == NULL ? 0 : PyLong_AsUnsignedLongLong(its);
    Py_XDECREF(its);
    if (PyErr_Occurred()) return NULL;
    if (!memory_of_transfer(a[3], "values", 1, &t) || !prepare_transfer(o.begins, &t, 1)) return refuse(&t);
    const nexar_status status = ((start_mrecv)op->start)(PyLong_AsVoidPtr(a[1]), message, t.values->buf,
                                                         t.count, t.dtype, o.given, &t.request);
    if (status == NEXAR_OK && !set_apart(a[2], NULL)) PyErr_Clear();
    return end_transfer(status, &t, o.begins, 1);
}

/* number, group, source, tag, and options: (source, tag, bytes), or the Request. */
CALL(call_probe) {
    (void)module;
    options o;
    transfer t;
    uint32_t from;
    uint64_t tag;
    const operation* op = operation_of(a, n, 4);
    if (op == NULL || !pattern_of(a[2], a[3], &from, &tag) || !options_of(a + 4, &o))
        Py_RETURN_NOTIMPLEMENTED;
    t.held.held = 0;
    t.itemsize = 1;
    begin(&t.end);
    const nexar_status status =
        ((start_probe)op->start)(PyLong_AsVoidPtr(a[1]), from, tag, o.given, &t.request);
    return end_transfer(status, &t, o.begins, 1);
}

/* group, source, tag, Message: (source, tag, bytes) of one that is here, which the Message is then; None:
 * none is. */
CALL(call_mprobe) {
    (void)module;
    uint32_t from;
    uint64_t tag;
    if (n != 4 || !pattern_of(a[1], a[2], &from, &tag)) Py_RETURN_NOTIMPLEMENTED;
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
    PyObject* its = PyLong_FromUnsignedLongLong(message);
    const int done = its != NULL && PyObject_SetAttr(a[3], library.number, its) == 0 && set_apart(a[3], its);
    Py_XDECREF(its);
    if (!done) return NULL;
    return Py_BuildValue("kkK", (unsigned long)end.source, (unsigned long)end.tag,
                         (unsigned long long)end.bytes);
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

/* A copy of what is received into, which is sent. 0: it is too large for one in ordinary memory, or an
 * exception. */
static int copy_of(const transfer* got, transfer* sent) {
    if (got->values->len >= LARGE_BYTES) return 0;
    PyObject* copy = PyBytes_FromStringAndSize(got->values->buf, got->values->len);
    if (copy == NULL) return 0;
    *sent = *got;
    sent->values = &sent->held.views[0];
    sent->held.held = PyBuffer_FillInfo(&sent->held.views[0], copy, PyBytes_AsString(copy), got->values->len,
                                        1, PyBUF_SIMPLE) == 0;
    Py_DECREF(copy);
    return sent->held.held;
}

static int are_apart(const Py_buffer* in, const Py_buffer* out) {
    return (char*)in->buf + in->len <= (char*)out->buf || (char*)out->buf + out->len <= (char*)in->buf;
}

/* number of send, number of receive, group, values (NotImplemented: a copy of out), to, send tag, out,
 * source, tag, and options. Overlapping memory is not plain. */
CALL(call_exchange) {
    (void)module;
    options o;
    transfer sent, got;
    uint32_t to, from;
    uint64_t send_tag, tag;
    const operation *send = operation_of(a, n, 9),
                    *receive = send == NULL ? NULL : operation_of(a + 1, n - 1, 8);
    if (receive == NULL || !pattern_of(a[4], a[5], &to, &send_tag) || !pattern_of(a[7], a[8], &from, &tag) ||
        !options_of(a + 9, &o))
        Py_RETURN_NOTIMPLEMENTED;
    if (!memory_of_transfer(a[6], a[3] == Py_NotImplemented ? "values" : "out", 1, &got)) return refuse(&got);
    const int held =
        a[3] == Py_NotImplemented ? copy_of(&got, &sent) : memory_of_transfer(a[3], "values", 0, &sent);
    if (!held || !are_apart(sent.values, got.values)) {
        if (held) release_views(&sent.held);
        return refuse(&got);
    }
    nexar_group* group = PyLong_AsVoidPtr(a[2]);
    nexar_status status = start_transfer(send, group, to, send_tag, o.given, &sent);
    if (status == NEXAR_OK) {
        status = start_transfer(receive, group, from, tag, o.given, &got);
        if (status == NEXAR_OK) return end_exchange(&sent, &got);
        raise_status(status);
        give_up(sent.request, &sent.held);
    } else
        raise_status(status);
    release_views(&sent.held);
    release_views(&got.held);
    return NULL;
}
