/* Requests in _native: their ends, one and several. Every wait gives up the interpreter's lock, and between
 * two waits the handlers of signals run. */
#include "_native.h"

PyObject* error_of(nexar_status status) {
    nexar_error last = NEXAR_ERROR_INIT;
    const int known = library.last_error(&last) == NEXAR_OK;
    return PyObject_CallFunction(library.error_of, "iy#", (int)status, (const char*)&last,
                                 (Py_ssize_t)(known ? sizeof last : 0));
}

/* -1, with the operation's error; INTERRUPTED: with what a signal's handler raised as that was made. */
static int raise_end(nexar_status status) {
    PyObject* error = error_of(status);
    if (error == NULL) return INTERRUPTED;
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

PyObject* raise_status(nexar_status status) {
    raise_end(status);
    return NULL;
}

static nexar_status wait_without_gil(nexar_request request, int64_t ms, nexar_completion* end) {
    nexar_status status;
    Py_BEGIN_ALLOW_THREADS status = library.wait(request, ms, end);
    Py_END_ALLOW_THREADS return status;
}

void give_up(nexar_request request, views* held) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    library.cancel(request);
    wait_without_gil(request, CANCEL_MS, &end);
    if (library.release(request) == NEXAR_ERR_BAD_STATE) held->held = 0;
    PyErr_Restore(type, value, trace);
}

int finish(nexar_request request, nexar_completion* end, views* held) {
    for (;;) {
        const nexar_status status = wait_without_gil(request, WAIT_MS, end);
        if (end->status != NEXAR_PENDING) {
            const int how = status == NEXAR_OK ? 0 : raise_end(status);
            library.release(request);
            return how;
        }
        if (status != NEXAR_PENDING && status != NEXAR_ERR_INTERRUPTED) return raise_end(status);
        if (PyErr_CheckSignals() == 0) continue;
        give_up(request, held);
        return INTERRUPTED;
    }
}

PyObject* begun(PyObject* object, nexar_request request, views* held) {
    PyObject* number = PyLong_FromUnsignedLongLong(request);
    PyObject* kept = number == NULL ? NULL : PyObject_GetAttr(object, library.kept);
    const int done = kept != NULL && PyObject_SetAttr(object, library.number, number) == 0 &&
                     (!PyList_Check(kept) || /* a poll on another thread was first */
                      PyList_SetItem(kept, KEPT_NUMBER, Py_NewRef(number)) == 0);
    Py_XDECREF(number);
    Py_XDECREF(kept);
    if (done) return Py_NewRef(object);
    give_up(request, held);
    return NULL;
}

void begin(nexar_completion* end) {
    *end = (nexar_completion)NEXAR_COMPLETION_INIT;
}

static PyObject* bytes_of(const nexar_completion* end) {
    return PyBytes_FromStringAndSize((const char*)end, sizeof *end);
}

/* What Request gets: (error, completion), None for what is not there; of a success the completion alone.
 */
static PyObject* end_of(nexar_status status, const nexar_completion* end) {
    if (status == NEXAR_OK) return bytes_of(end);
    const int failed = end->status != NEXAR_PENDING && status != NEXAR_ERR_BAD_HANDLE;
    PyObject* error = error_of(status);
    if (error == NULL) return NULL;
    return Py_BuildValue("NN", error, failed ? bytes_of(end) : Py_NewRef(Py_None));
}

/* number, milliseconds (0: does not wait; below 0: until it has ended): how it ended, None: pending. */
CALL(call_ask) {
    (void)module;
    if (n != 2) return PyErr_Format(PyExc_TypeError, "ask(number, milliseconds)");
    const nexar_request request = PyLong_AsUnsignedLongLong(a[0]);
    const long long ms = PyLong_AsLongLong(a[1]);
    if (PyErr_Occurred()) return NULL;
    for (;;) {
        nexar_completion end;
        nexar_status status;
        begin(&end);
        end.status = NEXAR_PENDING;
        Py_BEGIN_ALLOW_THREADS status =
            ms == 0 ? library.test(request, &end) : library.wait(request, ms < 0 ? WAIT_MS : ms, &end);
        Py_END_ALLOW_THREADS if (end.status != NEXAR_PENDING ||
                                 (status != NEXAR_PENDING &&
                                  status != NEXAR_ERR_INTERRUPTED)) return end_of(status, &end);
        if (ms != 0 && PyErr_CheckSignals() != 0) return NULL;
        if (ms >= 0) Py_RETURN_NONE;
    }
}

typedef struct {
    uint64_t count, ended;
    nexar_request* requests;
    uint64_t* indices;
    nexar_completion* ends;
} several;

static int room_for(several* s, Py_ssize_t count) {
    s->count = (uint64_t)count;
    s->ended = 0;
    char* room =
        PyMem_Malloc((size_t)count * (sizeof *s->ends + sizeof *s->requests + sizeof *s->indices) + 1);
    if (room == NULL) return PyErr_NoMemory(), 0;
    s->ends = (nexar_completion*)room;
    s->requests = (nexar_request*)(s->ends + count);
    s->indices = (uint64_t*)(s->requests + count);
    for (Py_ssize_t i = 0; i < count; ++i) begin(&s->ends[i]);
    return 1;
}

/* [(index, completion)]; the completion is None where a test has to say how it ended. */
static PyObject* list_of(const several* s) {
    PyObject* list = PyList_New((Py_ssize_t)s->ended);
    for (uint64_t k = 0; list != NULL && k < s->ended; ++k) {
        PyObject* end = s->ends[k].status == NEXAR_OK ? bytes_of(&s->ends[k]) : Py_NewRef(Py_None);
        PyObject* pair = end == NULL ? NULL : Py_BuildValue("KN", (unsigned long long)s->indices[k], end);
        if (pair == NULL || PyList_SetItem(list, (Py_ssize_t)k, pair) != 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject* wait_several(several* s, long long ms, int one) {
    const int64_t slice = ms < 0 ? WAIT_MS : ms;
    for (;;) {
        nexar_status status;
        Py_BEGIN_ALLOW_THREADS status =
            one ? library.wait_any(s->requests, s->count, slice, s->indices, s->ends)
                : library.wait_some(s->requests, s->count, slice, s->indices, &s->ended, s->ends,
                                    sizeof *s->ends);
        Py_END_ALLOW_THREADS if (status == NEXAR_OK) break;
        if (status != NEXAR_PENDING && status != NEXAR_ERR_INTERRUPTED) return error_of(status);
        if (PyErr_CheckSignals() != 0) return NULL;
        if (ms >= 0) Py_RETURN_NONE;
    }
    if (one) s->ended = 1;
    return list_of(s);
}

/* list of numbers (0: passed over), milliseconds as for ask, whether one is enough: what has ended, as
 * list_of; None: none has; an error, not raised: of the call. */
CALL(call_some) {
    (void)module;
    several s;
    if (n != 3 || !PyList_Check(a[0]))
        return PyErr_Format(PyExc_TypeError, "some(numbers, milliseconds, one)");
    const long long ms = PyLong_AsLongLong(a[1]);
    if (PyErr_Occurred() || !room_for(&s, PyList_Size(a[0]))) return NULL;
    for (uint64_t i = 0; i < s.count; ++i)
        s.requests[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(a[0], (Py_ssize_t)i));
    PyObject* found = PyErr_Occurred() ? NULL : wait_several(&s, ms, a[2] == Py_True);
    PyMem_Free(s.ends);
    return found;
}

/* session, capacity, list: appends the completions that a poll finds, as bytes. Here, as once this has
 * returned a signal's handler may raise. */
CALL(call_poll) {
    (void)module;
    enum { USUAL = 64 };
    nexar_completion usual[USUAL], *ends = usual;
    uint64_t count = 0;
    if (n != 3 || !PyList_Check(a[2])) return PyErr_Format(PyExc_TypeError, "poll(session, capacity, list)");
    nexar_session* session = PyLong_AsVoidPtr(a[0]);
    const size_t capacity = PyErr_Occurred() ? 0 : PyLong_AsSize_t(a[1]);
    if (PyErr_Occurred()) return NULL;
    if (capacity > USUAL && (ends = PyMem_Calloc(capacity, sizeof *ends)) == NULL) return PyErr_NoMemory();
    nexar_status status;
    Py_BEGIN_ALLOW_THREADS status = library.poll(session, ends, sizeof *ends, capacity, &count);
    Py_END_ALLOW_THREADS int failed = status != NEXAR_OK && raise_status(status) == NULL;
    for (uint64_t i = 0; i < count && !failed; ++i) {
        PyObject* end = bytes_of(&ends[i]);
        failed = end == NULL || PyList_Append(a[2], end) != 0;
        Py_XDECREF(end);
    }
    if (ends != usual) PyMem_Free(ends);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* Frees the slot of a request that has ended: the status. */
PyObject* call_free(PyObject* module, PyObject* number) {
    (void)module;
    const nexar_request request = PyLong_AsUnsignedLongLong(number);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(library.release(request));
}
