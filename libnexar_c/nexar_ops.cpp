// The exported operations of include/nexar.h that are rows of the table: the collectives.
#include "calls.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

// Parameters and initialisers of a row's functions, by the values in the row's columns.
#define NEXAR_TAKES_nothing
#define NEXAR_TAKES_data , void *data, uint64_t count, nexar_dtype dtype
#define NEXAR_TAKES_in_out , const void *in, void *out, uint64_t count, nexar_dtype dtype
#define NEXAR_TAKES_in_out_counts , const void *in, void *out, const uint64_t *counts, nexar_dtype dtype
#define NEXAR_TAKES_in_out_own_counts                                                         \
    , const void *in, const uint64_t *send_counts, void *out, const uint64_t *receive_counts, \
        nexar_dtype dtype
#define NEXAR_TAKES_moves
#define NEXAR_TAKES_reduces , nexar_reduce_op op
#define NEXAR_TAKES_scans NEXAR_TAKES_reduces
#define NEXAR_TAKES_scans_below NEXAR_TAKES_reduces
#define NEXAR_TAKES_unrooted
#define NEXAR_TAKES_rooted , uint32_t root
#define NEXAR_MAKES_nothing
#define NEXAR_MAKES_data .in = data, .out = data, .count = count, .dtype = dtype,
#define NEXAR_MAKES_in_out .in = in, .out = out, .count = count, .dtype = dtype,
#define NEXAR_MAKES_in_out_counts .in = in, .out = out, .dtype = dtype, .counts = counts,
#define NEXAR_MAKES_in_out_own_counts \
    .in = in, .out = out, .dtype = dtype, .counts = send_counts, .receive_counts = receive_counts,
#define NEXAR_MAKES_moves
#define NEXAR_MAKES_reduces .op = op,
#define NEXAR_MAKES_scans NEXAR_MAKES_reduces
#define NEXAR_MAKES_scans_below NEXAR_MAKES_reduces
#define NEXAR_MAKES_unrooted
#define NEXAR_MAKES_rooted .peer = root,

}  // namespace

extern "C" {

#define NEXAR_COLLECTIVE(number, name, NAME, summary, memory, in, out, in_place, reduction, root, ...)  \
    nexar_status nexar_##name(                                                                          \
        nexar_group* group NEXAR_TAKES_##memory NEXAR_TAKES_##reduction NEXAR_TAKES_##root,             \
        const nexar_op_options* options) {                                                              \
        return run(                                                                                     \
            group,                                                                                      \
            {.kind = NEXAR_OP_##NAME, NEXAR_MAKES_##memory NEXAR_MAKES_##reduction NEXAR_MAKES_##root}, \
            options);                                                                                   \
    }                                                                                                   \
    nexar_status nexar_##name##_start(                                                                  \
        nexar_group* group NEXAR_TAKES_##memory NEXAR_TAKES_##reduction NEXAR_TAKES_##root,             \
        const nexar_op_options* options, nexar_request* request) {                                      \
        return begin(                                                                                   \
            group,                                                                                      \
            {.kind = NEXAR_OP_##NAME, NEXAR_MAKES_##memory NEXAR_MAKES_##reduction NEXAR_MAKES_##root}, \
            options, request);                                                                          \
    }                                                                                                   \
    nexar_status nexar_##name##_init(                                                                   \
        nexar_group* group NEXAR_TAKES_##memory NEXAR_TAKES_##reduction NEXAR_TAKES_##root,             \
        const nexar_op_options* options, nexar_request* request) {                                      \
        return init(                                                                                    \
            group,                                                                                      \
            {.kind = NEXAR_OP_##NAME, NEXAR_MAKES_##memory NEXAR_MAKES_##reduction NEXAR_MAKES_##root}, \
            options, request);                                                                          \
    }
#include "operations.def"

}  // extern "C"
