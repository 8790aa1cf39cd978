/* What the parts of _native share: the library's functions, memory, options, and the end of a request.
 * _native.c has set-up and collectives, _native_memory.c memory and options, _native_messages.c messages and
 * probes, _native_pieces.c messages in pieces, _native_requests.c requests. */
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

enum { NEGATED, POINTER, ELEMENTS, CONTIGUOUS, CPU, GRADIENT, DTYPE, TORCH_S };

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
    nexar_status (*poll)(nexar_session*, nexar_completion*, uint64_t, uint64_t, uint64_t*);
    nexar_status (*last_error)(nexar_error*);
    PyObject *error_of, *array_type,
        *copied; /* (status, nexar_error) -> exception; numpy.ndarray; _arrays.COPIED */
    PyObject *key, *number, *kept, *value; /* names of a Request's attributes */
    PyObject* apart;                       /* of a Message's, a list, which has a number, too */
    PyObject *dlpack, *readonly;           /* and of a tensor's */
    PyObject *refused, *shares, *ops;      /* _arrays.refused, .shares and .OPS */
    PyTypeObject* torch;                   /* torch.Tensor; NULL: none was seen yet */
    PyObject* dtypes;                      /* of it: what shares gave */
    const PyTypeObject* other; /* the last other one with DLPack and no buffer; may be gone: only compared */
    PyObject* of_torch[TORCH_S]; /* names of its attributes */
    operation operations[OPERATIONS_MAX];
} functions;

extern functions library;

/* ---- Memory ---- */

typedef struct {
    Py_buffer views[VIEWS_MAX];
    int held;
} views;

/* An exception that is set stays, and the exporter's own code, which may run, does not see it. */
void release_view(Py_buffer* view);
void release_views(views* all);

/* Memory of an object with the buffer protocol or DLPack, on the CPU. 1: `view` holds it, and its len and
 * itemsize are set. 0: it is not plain, or see not_plain. name: the argument's, for an error. */
int view_of(PyObject* memory, const char* name, int write, Py_buffer* view, int* dtype);

/* The same, held in `all`; NULL: as 0. */
const Py_buffer* memory_of(PyObject* memory, const char* name, int write, views* all, int* dtype);

/* What a call returns for arguments that are not plain: NotImplemented. NULL where an exception is set: of a
 * tensor's own code, or of a signal's handler in it. Refusals of numbers and buffers are none. */
PyObject* not_plain(void);

/* In a Request's list `_kept`: see _requests.py. */
enum { KEPT_NUMBER = 0, KEPT_FIRST = 2 };

/* What a Request that is begun must keep beside the objects themselves, from before the start on: a buffer
 * that is exported cannot be resized. 0: with an exception. */
int keep_views(PyObject* request, const views* held);

/* One that was not started keeps nothing; an exception stays. */
void keep_nothing(PyObject* request);

/* ---- Options ---- */

enum { OPTIONS = 5 }; /* timeout, match_id, priority, flags, Request: the last arguments of an operation */

typedef struct {
    nexar_op_options values;
    const nexar_op_options* given; /* NULL where all are defaults */
    PyObject* begins; /* the Request of one that is only begun, borrowed; NULL: it is waited for */
} options;

/* What an operation is started with. 0: they are not plain. */
int options_of(PyObject* const* a, options* o);

/* One element of any dtype. */
typedef union {
    float f;
    double d;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    char bytes[16];
} number;

/* A Python number, or memory of one element, as one of that dtype. 0: it is not plain. */
int scalar_of(PyObject* scalar, int dtype, number* into);

/* ---- Requests ---- */

/* Of the call of the library that this thread has just made: before anything of Python runs, which may make
 * another.
 */
PyObject* error_of(nexar_status status);
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

/* ---- Messages ---- */

typedef struct {
    views held;
    const Py_buffer* values;
    int dtype;
    nexar_request request;
    nexar_completion end;
    uint64_t itemsize, count;
} transfer;

/* What the Request of a message must have before it begins. 0: with an exception. */
int prepare_transfer(PyObject* request, const transfer* t, int receives);

/* After a start: NULL, and an exception, where the library has refused it. Else its Request; or, waited for,
 * None or (source, tag, elements). */
PyObject* end_transfer(nexar_status started, transfer* t, PyObject* begins, int receives);

/* A rank and a tag. 0: they are no such numbers. */
int pattern_of(PyObject* source, PyObject* tag, uint32_t* from, uint64_t* of);

#define CALL(name) PyObject* name(PyObject* module, PyObject* const* a, Py_ssize_t n)
CALL(call_ask);
CALL(call_some);
CALL(call_start);
CALL(call_poll);
PyObject* call_free(PyObject* module, PyObject* number);
CALL(call_look);
CALL(call_message);
CALL(call_pieces);
CALL(call_mrecv);
CALL(call_probe);
CALL(call_mprobe);
CALL(call_exchange);
