// The daemon's error numbers, element types and reductions are those of include/nexar.h. Compiled; and run,
// to see that no number of one is missing in the other.
#include <nexar.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/result.hpp"
#include "reduce/dtype.hpp"
#include "shm_layout.h"

using nexar::Errc;
using nexar::reduce::Dtype;
using nexar::reduce::ReduceOp;

#define SAME(c, cpp) static_assert((c) == static_cast<int>(cpp), #c)
SAME(NEXAR_OK, Errc::ok);
SAME(NEXAR_PENDING, Errc::pending);
SAME(NEXAR_ERR_CALL, Errc::call);
SAME(NEXAR_ERR_INVALID_ARGUMENT, Errc::invalid_argument);
SAME(NEXAR_ERR_BAD_STATE, Errc::bad_state);
SAME(NEXAR_ERR_UNSUPPORTED, Errc::unsupported);
SAME(NEXAR_ERR_NOT_FOUND, Errc::not_found);
SAME(NEXAR_ERR_PERMISSION, Errc::permission);
SAME(NEXAR_ERR_CLOSED, Errc::closed);
SAME(NEXAR_ERR_BAD_HANDLE, Errc::bad_handle);
SAME(NEXAR_ERR_RETRY, Errc::retry);
SAME(NEXAR_ERR_TABLE_FULL, Errc::table_full);
SAME(NEXAR_ERR_NO_MEMORY, Errc::no_memory);
SAME(NEXAR_ERR_INTERRUPTED, Errc::interrupted);
SAME(NEXAR_ERR_NOT_SENT, Errc::not_sent);
SAME(NEXAR_ERR_DEVICE_NO_MEMORY, Errc::device_no_memory);
SAME(NEXAR_ERR_OPERATION, Errc::operation);
SAME(NEXAR_ERR_TIMED_OUT, Errc::timed_out);
SAME(NEXAR_ERR_CANCELLED, Errc::cancelled);
SAME(NEXAR_ERR_ABORTED, Errc::aborted);
SAME(NEXAR_ERR_MISMATCH, Errc::mismatch);
SAME(NEXAR_ERR_MAYBE_EXECUTED, Errc::maybe_executed);
SAME(NEXAR_ERR_NO_SUCH_FUNCTION, Errc::no_such_function);
SAME(NEXAR_ERR_HANDLER_FAILED, Errc::handler_failed);
SAME(NEXAR_ERR_DEVICE_FAILED, Errc::device_failed);
SAME(NEXAR_ERR_OPEN, Errc::open);
SAME(NEXAR_ERR_RANK_CLASH, Errc::rank_clash);
SAME(NEXAR_ERR_GROUP_INCOMPLETE, Errc::group_incomplete);
SAME(NEXAR_ERR_OPTIONS_DIFFER, Errc::options_differ);
SAME(NEXAR_ERR_JOIN_REFUSED, Errc::join_refused);
SAME(NEXAR_ERR_RECOVERABLE, Errc::recoverable);
SAME(NEXAR_ERR_GROUP_CHANGED, Errc::group_changed);
SAME(NEXAR_ERR_NO_QUORUM, Errc::no_quorum);
SAME(NEXAR_ERR_RECOVERY_TIMED_OUT, Errc::recovery_timed_out);
SAME(NEXAR_ERR_RECOVERY_MISUSED, Errc::recovery_misused);
SAME(NEXAR_ERR_CHECKPOINT_TIMED_OUT, Errc::checkpoint_timed_out);
SAME(NEXAR_ERR_GROUP, Errc::group);
SAME(NEXAR_ERR_PEER_LOST, Errc::peer_lost);
SAME(NEXAR_ERR_LINK_LOST, Errc::link_lost);
SAME(NEXAR_ERR_BELOW_MINIMUM, Errc::below_minimum);
SAME(NEXAR_ERR_EXPELLED, Errc::expelled);
SAME(NEXAR_ERR_SESSION, Errc::session);
SAME(NEXAR_ERR_DAEMON_LOST, Errc::daemon_lost);
SAME(NEXAR_ERR_DAEMON_UNRESPONSIVE, Errc::daemon_unresponsive);
SAME(NEXAR_ERR_SESSION_REFUSED, Errc::session_refused);
SAME(NEXAR_ERR_PROTOCOL_ERROR, Errc::protocol_error);
SAME(NEXAR_ERR_SYSTEM, Errc::system);
SAME(NEXAR_ERR_IO, Errc::io);

#define NEXAR_DTYPE(number, name, NAME, ...) SAME(NEXAR_##NAME, Dtype::name);
#define NEXAR_REDUCTION(number, name, NAME, ...) SAME(NEXAR_##NAME, ReduceOp::name);
#include "types.def"

static_assert(NEXAR_RANKS_MAX == NEXAR_SHM_GROUP_RANKS_MAX && NEXAR_NAME_MAX == NEXAR_SHM_NAME_BYTES &&
              NEXAR_SECRET_MIN == NEXAR_SHM_SECRET_BYTES_MIN);

namespace {

int32_t hundreds(int32_t code) {
    return code < 0 ? static_cast<int32_t>(-int64_t{code} / 100) : 0;
}

// A number of any age: the class is its hundreds, also of those that nobody knows yet, and the names are the
// daemon's. What lies beyond the last class stays inside the daemon and its tools, or is of a later ABI.
int check_status(int32_t code) {
    const std::string_view name = nexar::name_of(static_cast<Errc>(code));
    const int32_t group = nexar_status_class(code);
    const bool beyond = hundreds(code) > NEXAR_CLASS_SYSTEM;
    if (beyond ? group >= NEXAR_CLASS_SYSTEM : name == nexar_status_name(code) && group == hundreds(code))
        return 0;
    std::printf("status %d: daemon %.*s, library %s of class %d\n", code, static_cast<int>(name.size()),
                name.data(), nexar_status_name(code), group);
    return 1;
}

// Each class has a number for "any of this class", which has a name; 99 numbers fit in.
int check_classes() {
    int bad = 0;
    for (int32_t group = NEXAR_CLASS_CALL; group <= NEXAR_CLASS_SYSTEM; ++group)
        if (std::strcmp(nexar_status_name(-100 * group), "UNKNOWN") == 0 ||
            nexar_status_class(-100 * group - 99) != group) {
            std::printf("class %d has no number of its own\n", group);
            ++bad;
        }
    return bad;
}

}  // namespace

int main() {
    int bad = check_classes();
    for (int32_t code = -1300; code <= 300; ++code) bad += check_status(code);
    for (const int32_t code : {INT32_MIN, INT32_MIN + 1, INT32_MAX}) bad += check_status(code);
    for (int code = -2; code < 30; ++code) {
        const auto dtype = nexar::reduce::dtype_from(code);
        const uint64_t size = dtype ? nexar::reduce::size_of(*dtype) : 0;
        const char* name = dtype ? nexar::reduce::name_of(*dtype).data() : "UNKNOWN";
        if (size != nexar_dtype_size(code) || std::strcmp(name, nexar_dtype_name(code)) != 0) {
            std::printf("dtype %d: daemon %s, library %s\n", code, name, nexar_dtype_name(code));
            ++bad;
        }
        const auto op = nexar::reduce::reduce_op_from(code);
        name = op ? nexar::reduce::name_of(*op).data() : "UNKNOWN";
        if (std::strcmp(name, nexar_reduce_op_name(code)) != 0) {
            std::printf("reduction %d: daemon %s, library %s\n", code, name, nexar_reduce_op_name(code));
            ++bad;
        }
    }
    return bad == 0 ? 0 : 1;
}
