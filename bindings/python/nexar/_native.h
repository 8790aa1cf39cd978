/* What the parts of _native share: the library's functions, memory, options, and the end of a request.
 * _native.c has set-up and collectives, _native_memory.c memory and options, _native_messages.c messages and
 * probes, _native_requests.c requests. */
#pragma once
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nexar.h>

enum { WAIT_MS = 500, CANCEL_MS = 5000 }; /* as in _requests.py */
enum { OPERATIONS_MAX = 64 };             /* numbers of proto/operations.def are below it */
enum { VIEWS_MAX = 2 };
enum { LARGE_BYTES = 32 << 10 }; /* a start that may copy so much runs without the interpreter's lock */

typedef struct {
    void* start;
    int reduces, rooted;
} operation;

typedef struct {
    nexar_status (*wait)(nexar_request, int64_t, nexar_completion*);
    nexar_status (*test)(nexar_request, nexar_completion*);
    nexar_status (*wait_any)(const nexar_request*, uint64_t, int64_t, uint64_t*, nexar_completion*);
    nexar_status (*wait_some)(const nexar_request*, uint64_t, int64_t, uint64_t*, uint64_t*,
                              nexar_completion*, uint64_t);
    nexar_status (*cancel)(nexar_request);
    nexar_status (*release)(nexar_request);
    nexar_status (*start)(nexar_request);
    nexar_status (*mprobe)(nexar_group*, uint32_t, uint64_t, nexar_message*, nexar_completion*,
                           const nexar_op_options*);
    PyObject *error_of, *array_type; /* status -> exception; numpy.ndarray */
    PyObject *key, *number;          /* names of a Request's attributes */
    operation operations[OPERATIONS_MAX];
} functions;

extern functions library;

/* ---- Memory ---- */

typedef struct {
    Py_buffer views[VIEWS_MAX];
    int held;
} views;

void release_views(views* all);

/* The memory of a plain array, held in `all`; NULL without an exception: not plain. */
const Py_buffer* memory_of(PyObject* array, int write, views* all, int* dtype);

/* ---- Options ---- */

enum { OPTIONS = 5 }; /* timeout, match_id, priority, flags, Request: the last arguments of an operation */

typedef struct {
    nexar_op_options values;
    const nexar_op_options* given; /* NULL where all are defaults */
    PyObject* begins; /* the Request of one that is only begun, borrowed; NULL: it is waited for */
} options;

/* What an operation is started with. 0: they are not plain. */
int options_of(PyObject* const* a, options* o);

/* ---- Requests ---- */

PyObject* raise_status(nexar_status status);

void begin(nexar_completion* end);

/* Cancels the request and waits a while for its end. If it does not end, its memory is kept for ever. */
void give_up(nexar_request request, views* held);

enum { INTERRUPTED = -2 };

/* Waits for the end and frees the request. 0: it succeeded. Otherwise a Python exception is set: of the
 * operation, or (INTERRUPTED) of a signal handler, and then the operation is cancelled first. */
int finish(nexar_request request, nexar_completion* end, views* held);

/* Gives the Request its number, and returns it. Here, as once this has returned a signal's handler may raise.
 */
PyObject* begun(PyObject* object, nexar_request request, views* held);

#define CALL(name) PyObject* name(PyObject* module, PyObject* const* a, Py_ssize_t n)
CALL(call_ask);
CALL(call_some);
PyObject* call_start(PyObject* module, PyObject* number);
PyObject* call_free(PyObject* module, PyObject* number);
CALL(call_message);
CALL(call_mrecv);
CALL(call_probe);
CALL(call_mprobe);
CALL(call_exchange);
