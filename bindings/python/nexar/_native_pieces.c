/* Messages in pieces in _native: sendv and recvv. */
#include "_native.h"

typedef nexar_status (*start_pieces)(nexar_group*, const nexar_piece*, uint64_t, int32_t, uint32_t, uint64_t,
                                     const nexar_op_options*, nexar_request*);

/* All pieces of a message. A capsule owns it, which the transfer holds as the memory of its one view. */
typedef struct {
    Py_ssize_t held;
    uint64_t bytes;
    nexar_piece* pieces;
    Py_buffer views[];
} packed;

static void release_pieces(PyObject* capsule) {
    packed* p = PyCapsule_GetPointer(capsule, NULL);
    while (p->held > 0) release_view(&p->views[--p->held]);
    PyMem_Free(p);
}

/* Memory of one dtype each. 0: it is not plain. */
static int hold_pieces(PyObject* list, int receives, packed* p, Py_ssize_t count, int* dtype) {
    *dtype = -1;
    for (Py_ssize_t i = 0; i < count; ++i) {
        int its = -1;
        char name[sizeof "pieces[]" + 20];
        PyOS_snprintf(name, sizeof name, "pieces[%zd]", i);
        if (PyList_Size(list) != count) return 0; /* a tensor's own code may have run */
        PyObject* piece = Py_NewRef(PyList_GetItem(list, i));
        Py_buffer* view = &p->views[i];
        const int plain = view_of(piece, name, receives, view, &its);
        Py_DECREF(piece);
        if (!plain) return 0;
        ++p->held;
        if (*dtype >= 0 && its != *dtype) return 0;
        *dtype = its;
        p->bytes += (uint64_t)view->len;
        p->pieces[i] = (nexar_piece){view->buf, (uint64_t)(view->len / view->itemsize)};
    }
    return count > 0;
}

/* number, group, list of memory, peer, tag, write, and options: as call_message. */
CALL(call_pieces) {
    (void)module;
    options o;
    uint32_t peer;
    uint64_t tag;
    if (n != 6 + OPTIONS || !PyList_Check(a[2]) || !pattern_of(a[3], a[4], &peer, &tag) ||
        !options_of(a + 6, &o))
        Py_RETURN_NOTIMPLEMENTED;
    const start_pieces start =
        (start_pieces)library.operations[PyLong_AsLong(a[0]) & (OPERATIONS_MAX - 1)].start;
    const Py_ssize_t count = PyList_Size(a[2]);
    if (start == NULL || count > NEXAR_PIECES_MAX) Py_RETURN_NOTIMPLEMENTED;
    packed* p = PyMem_Malloc(sizeof *p + (size_t)count * (sizeof *p->views + sizeof *p->pieces));
    if (p == NULL) return PyErr_NoMemory();
    *p = (packed){.pieces = (nexar_piece*)(p->views + count)};
    PyObject* capsule = PyCapsule_New(p, NULL, release_pieces);
    if (capsule == NULL) return PyMem_Free(p), NULL;
    const int receives = a[5] == Py_True;
    transfer t = {.held = {.held = 1}};
    int plain = hold_pieces(a[2], receives, p, count, &t.dtype) &&
                PyBuffer_FillInfo(&t.held.views[0], capsule, p->pieces, 0, 0, PyBUF_SIMPLE) == 0;
    Py_DECREF(capsule);
    if (!plain) return not_plain();
    t.itemsize = (uint64_t)p->views[0].itemsize;
    begin(&t.end);
    if (!prepare_transfer(o.begins, &t, receives)) return release_views(&t.held), not_plain();
    PyThreadState* unlocked = p->bytes < LARGE_BYTES ? NULL : PyEval_SaveThread();
    const nexar_status status =
        start(PyLong_AsVoidPtr(a[1]), p->pieces, (uint64_t)count, t.dtype, peer, tag, o.given, &t.request);
    if (unlocked != NULL) PyEval_RestoreThread(unlocked);
    return end_transfer(status, &t, o.begins, receives);
}
