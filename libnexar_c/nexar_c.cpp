// The exported functions of include/nexar.h, without operations (nexar_ops.cpp) and requests
// (nexar_requests.cpp): they check arguments, call, and convert the result.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/types.hpp"
#include "environment.hpp"
#include "opening.hpp"
#include "operation.hpp"
#include "sleep.hpp"
#include "structs.hpp"
#include "tables.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

constexpr nexar_session_options session_defaults = NEXAR_SESSION_OPTIONS_INIT;
constexpr nexar_alloc_options alloc_defaults = NEXAR_ALLOC_OPTIONS_INIT;
constexpr uint64_t alloc_flags = NEXAR_ALLOC_LAZY | NEXAR_ALLOC_HUGE_PAGES;

// A time-out option: `usual` for the default, Duration::max() for none, or a positive number.
Result<Duration> duration(const char* name, int64_t ms, Duration usual) {
    if (ms == NEXAR_TIMEOUT_DEFAULT) return usual;
    if (ms == NEXAR_TIMEOUT_NONE) return Duration::max();
    if (ms > 0) return Duration(std::chrono::milliseconds(std::min(ms, timeout_ms_max)));
    return fail(Errc::invalid_argument, std::string(name) + " is " + std::to_string(ms) +
                                            "; allowed: a positive number of milliseconds, "
                                            "NEXAR_TIMEOUT_DEFAULT (-1), NEXAR_TIMEOUT_NONE (-2)");
}

Result<SessionOptions> checked(const nexar_session_options* given) {
    NEXAR_TRY(auto o, read_options(given, session_defaults, "nexar_session_options"));
    if (o.slots == 0) o.slots = NEXAR_SHM_SLOTS_DEFAULT;
    if (!nexar_shm_slots_valid(o.slots))
        return fail(Errc::invalid_argument, "slots is " + std::to_string(o.slots) +
                                                "; allowed: a power of two from 16 to 4096, or 0: 256");
    if (o.spin_us < -1 || o.spin_us > 1'000'000)
        return fail(Errc::invalid_argument,
                    "spin_us is " + std::to_string(o.spin_us) + "; allowed: 0 to 1000000, or -1: 50");
    SessionOptions out;
    const char* from_environment = std::getenv("NEXAR_SOCKET");
    out.connect.path = o.socket_path      ? o.socket_path
                       : from_environment ? from_environment
                                          : NEXAR_LOCAL_SOCKET;
    out.connect.slots = o.slots;
    NEXAR_TRY(out.connect.timeout,
              duration("connect_timeout_ms", o.connect_timeout_ms, std::chrono::milliseconds(5000)));
    NEXAR_TRY(out.daemon_unresponsive, duration("daemon_unresponsive_ms", o.daemon_unresponsive_ms,
                                                std::chrono::milliseconds(10'000)));
    out.scratch_limit = o.scratch_limit == UINT64_MAX ? uint64_t{256} << 20 : o.scratch_limit;
    out.spin = std::chrono::microseconds(o.spin_us == -1 ? 50 : o.spin_us);
    return out;
}

// NULL: from the environment.
Result<GroupRequest> wanted_group(const nexar_group_options* options) {
    if (!options) {
        char name[environment_name_bytes];
        nexar_group_options found;
        NEXAR_TRY_VOID(from_environment(environment(), name, found));
        return from_options(found);
    }
    NEXAR_TRY(const auto given, read_options(options, group_defaults(), "nexar_group_options"));
    return from_options(given);
}

nexar_status write_node(const char* op, const uint8_t node[32], char* text, uint64_t size) {
    if (!text || size < NEXAR_NODE_TEXT)
        return failed(op, Errc::invalid_argument, "text must have room for NEXAR_NODE_TEXT bytes");
    node_text(node, text);
    return NEXAR_OK;
}

}  // namespace

extern "C" {

nexar_status nexar_last_error(nexar_error* error) {
    // failed() is not called: it would overwrite the last error.
    if (!error || !check_result(error, "nexar_error")) return NEXAR_ERR_INVALID_ARGUMENT;
    write_result(error, last_error(), error->struct_size);
    return NEXAR_OK;
}
nexar_status nexar_error_line(const nexar_error* error, char* text, uint64_t size, uint64_t* length) {
    if (!error || (!text && size != 0))
        return failed("error_line", Errc::invalid_argument, "error or text is NULL");
    auto known = read_options(error, nexar_error NEXAR_ERROR_INIT, "nexar_error");
    if (!known) return failed("error_line", known.error());
    const std::string line = error_line(*known);
    if (length) *length = line.size();
    if (size == 0) return NEXAR_OK;
    const size_t kept = std::min<size_t>(line.size(), size - 1);
    std::memcpy(text, line.data(), kept);
    text[kept] = 0;
    return NEXAR_OK;
}
void nexar_perror(const char* prefix) {
    std::string line = prefix && *prefix ? std::string(prefix) + ": " : std::string();
    line += error_line(last_error()) + "\n";
    // One write, so that the lines of several ranks do not mix. A closed stderr is ignored.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}
const char* nexar_status_name(nexar_status status) {
    return status_name(status);
}
int32_t nexar_status_class(nexar_status status) {
    return status_class(status);
}

uint32_t nexar_version(void) {
    return NEXAR_VERSION_MAJOR << 16 | NEXAR_VERSION_MINOR << 8 | NEXAR_VERSION_PATCH;
}
#define NEXAR_TEXT2(x) #x
#define NEXAR_TEXT(x) NEXAR_TEXT2(x)
const char* nexar_version_text(void) {
    return NEXAR_TEXT(NEXAR_VERSION_MAJOR) "." NEXAR_TEXT(NEXAR_VERSION_MINOR) "." NEXAR_TEXT(
        NEXAR_VERSION_PATCH);
}

uint64_t nexar_dtype_size(nexar_dtype dtype) {
    return dtype_size(dtype);
}
const char* nexar_dtype_name(nexar_dtype dtype) {
    const TypeRow* row = find_type(static_cast<uint64_t>(int64_t{dtype}));
    return row != nullptr ? row->name : "UNKNOWN";
}
const char* nexar_reduce_op_name(nexar_reduce_op op) {
    const ReductionRow* row = find_reduction(static_cast<uint64_t>(int64_t{op}));
    return row != nullptr ? row->name : "UNKNOWN";
}

nexar_status nexar_shard(uint64_t count, uint32_t size, uint32_t rank, uint64_t* offset, uint64_t* length) {
    if (!offset || !length)
        return failed("shard", Errc::invalid_argument, !offset ? "offset is NULL" : "length is NULL");
    if (size == 0 || size > NEXAR_RANKS_MAX || rank >= size)
        return failed("shard", Errc::invalid_argument,
                      "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                          "; allowed: a size of 1 to " + std::to_string(NEXAR_RANKS_MAX) +
                          ", and a rank below it");
    const uint64_t each = count / size, longer = count % size;
    *offset = each * rank + std::min<uint64_t>(rank, longer);
    *length = each + (rank < longer ? 1 : 0);
    return NEXAR_OK;
}

void nexar_session_options_init(nexar_session_options* options, uint64_t size) {
    init_options(options, size, session_defaults);
}
void nexar_group_options_init(nexar_group_options* options, uint64_t size) {
    init_options(options, size, group_defaults());
}
void nexar_op_options_init(nexar_op_options* options, uint64_t size) {
    init_options(options, size, op_defaults());
}
void nexar_alloc_options_init(nexar_alloc_options* options, uint64_t size) {
    init_options(options, size, alloc_defaults);
}
nexar_status nexar_group_options_from_env(nexar_group_options* options, uint64_t size) {
    if (!options || size < struct_bytes_min || size > struct_bytes_max)
        return failed("group_options_from_env", Errc::invalid_argument,
                      "options is NULL, or size is not sizeof(nexar_group_options)");
    // A thread_local with a destructor would keep the library loaded after dlclose() until the thread ends.
    thread_local char name[environment_name_bytes];
    nexar_group_options read;
    auto found = from_environment(environment(), name, read);
    init_options(options, size, read);
    return found ? NEXAR_OK : failed("group_options_from_env", found.error());
}

nexar_status nexar_session_open(const nexar_session_options* options, nexar_session** out) {
    if (!out) return failed("session_open", Errc::invalid_argument, "out is NULL");
    auto wanted = checked(options);
    if (!wanted) return failed("session_open", wanted.error());
    groups();  // makes both tables, so that the fork handlers lock them
    auto session = Session::open(*wanted);
    if (!session) return failed("session_open", session.error());
    Session* raw = session->get();
    raw->fork_epoch = fork_epoch();
    close_at_exit_or_unload();
    const uint64_t handle =
        sessions().insert(std::move(*session), [raw](uint32_t index) { raw->set_index(index); });
    if (handle == 0) return failed("session_open", Errc::table_full, "this process has too many sessions");
    raw->handle = handle;
    *out = reinterpret_cast<nexar_session*>(handle);
    return NEXAR_OK;
}

nexar_status nexar_session_close(nexar_session* handle) {
    auto known = session_of(handle);
    if (!known) return failed("session_close", known.error());
    SessionPin pin;
    if (sessions().close(number_of(handle), pin) != Sessions::Found::open)
        return failed("session_close", Errc::closed, "the session was closed");
    pin->close();
    close_groups_of(number_of(handle));
    return NEXAR_OK;
}

nexar_status nexar_session_fd(nexar_session* handle, int* fd) {
    auto session = session_of(handle);
    if (!session) return failed("session_fd", session.error());
    if (!fd) return failed("session_fd", Errc::invalid_argument, "fd is NULL");
    auto armed = (*session)->arm_fd();
    if (!armed) return failed("session_fd", armed.error());
    *fd = *armed;
    return NEXAR_OK;
}

nexar_status nexar_session_node(nexar_session* handle, char* text, uint64_t size) {
    auto session = session_of(handle);
    if (!session) return failed("session_node", session.error());
    return write_node("session_node", (*session)->connection().welcome().node, text, size);
}

nexar_status nexar_session_stats_get(nexar_session* handle, nexar_session_stats* stats) {
    auto session = session_of(handle);
    if (!session) return failed("session_stats_get", session.error());
    if (!stats) return failed("session_stats_get", Errc::invalid_argument, "stats is NULL");
    if (auto good = check_result(stats, "nexar_session_stats"); !good)
        return failed("session_stats_get", good.error());
    nexar_session_stats now_stats = NEXAR_SESSION_STATS_INIT;
    (*session)->stats(now_stats);
    write_result(stats, now_stats, stats->struct_size);
    return NEXAR_OK;
}

nexar_status nexar_alloc(nexar_session* handle, uint64_t bytes, const nexar_alloc_options* options,
                         void** out) {
    auto session = session_of(handle);
    if (!session) return failed("alloc", session.error());
    if (!out) return failed("alloc", Errc::invalid_argument, "out is NULL");
    auto wanted = read_options(options, alloc_defaults, "nexar_alloc_options");
    if (!wanted) return failed("alloc", wanted.error());
    if ((wanted->flags & ~alloc_flags) != 0 || wanted->reserved != 0)
        return failed("alloc", Errc::invalid_argument,
                      "flags is " + std::to_string(wanted->flags) + ", reserved " +
                          std::to_string(wanted->reserved) +
                          "; allowed: NEXAR_ALLOC_LAZY (1), NEXAR_ALLOC_HUGE_PAGES (2); reserved 0");
    const AllocOptions how{.lazy = (wanted->flags & NEXAR_ALLOC_LAZY) != 0,
                           .huge_pages = (wanted->flags & NEXAR_ALLOC_HUGE_PAGES) != 0};
    auto memory = (*session)->alloc(bytes, how);
    if (!memory) return failed("alloc", memory.error());
    *out = *memory;
    return NEXAR_OK;
}

nexar_status nexar_free(nexar_session* handle, void* memory) {
    auto session = session_of(handle);
    if (!session) return failed("free", session.error());
    auto done = (*session)->release(memory, true);
    return done ? NEXAR_OK : failed("free", done.error());
}

nexar_status nexar_register_memfd(nexar_session* handle, void* address, uint64_t bytes, int fd,
                                  uint64_t offset) {
    auto session = session_of(handle);
    if (!session) return failed("register_memfd", session.error());
    if (!address) return failed("register_memfd", Errc::invalid_argument, "address is NULL");
    auto done = (*session)->register_memfd(address, bytes, fd, offset);
    return done ? NEXAR_OK : failed("register_memfd", done.error());
}

nexar_status nexar_unregister(nexar_session* handle, void* address) {
    auto session = session_of(handle);
    if (!session) return failed("unregister", session.error());
    auto done = (*session)->release(address, false);
    return done ? NEXAR_OK : failed("unregister", done.error());
}

nexar_status nexar_group_open(nexar_session* handle, const nexar_group_options* options, nexar_group** out) {
    auto session = session_of(handle);
    if (!session) return failed("group_open", session.error());
    if (!out) return failed("group_open", Errc::invalid_argument, "out is NULL");
    auto wanted = wanted_group(options);
    if (!wanted) return failed("group_open", wanted.error());
    ErrorContext context("group_open");
    context.group = &wanted->name;
    auto slot = start_opening(**session, *wanted, true);
    if (!slot) return failed(context, slot.error());
    const Outcome outcome = (*session)->finish_command(*slot, true);
    if (outcome.error) return failed(context, *outcome.error);
    *out = outcome.completion.group;
    return NEXAR_OK;
}

nexar_status nexar_group_open_start(nexar_session* handle, const nexar_group_options* options,
                                    nexar_request* request) {
    auto session = session_of(handle);
    if (!session) return failed("group_open", session.error());
    if (!request) return failed("group_open", Errc::invalid_argument, "request is NULL");
    auto wanted = wanted_group(options);
    if (!wanted) return failed("group_open", wanted.error());
    ErrorContext context("group_open");
    context.group = &wanted->name;
    auto slot = start_opening(**session, *wanted, false);
    if (!slot) return failed(context, slot.error());
    *request = (*session)->handle_of(*slot);
    return NEXAR_OK;
}

nexar_status nexar_group_free(nexar_group* handle) {
    auto done = free_group(number_of(handle));
    return done ? NEXAR_OK : failed("group_free", done.error());
}

nexar_status nexar_group_abort(nexar_group* handle, const char* reason) {
    auto done = abort_group(number_of(handle), reason ? reason : "");
    return done ? NEXAR_OK : failed("group_abort", done.error());
}

nexar_status nexar_group_rank(nexar_group* handle, uint32_t* rank) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_rank", pinned.error());
    if (!rank) return failed("group_rank", Errc::invalid_argument, "rank is NULL");
    *rank = pinned->group->rank;
    return NEXAR_OK;
}

nexar_status nexar_group_size(nexar_group* handle, uint32_t* size) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_size", pinned.error());
    if (!size) return failed("group_size", Errc::invalid_argument, "size is NULL");
    *size = pinned->group->size;
    return NEXAR_OK;
}

nexar_status nexar_group_epoch(nexar_group* handle, uint32_t* epoch) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_epoch", pinned.error());
    if (!epoch) return failed("group_epoch", Errc::invalid_argument, "epoch is NULL");
    *epoch = pinned->group->epoch;
    return NEXAR_OK;
}

nexar_status nexar_group_node(nexar_group* handle, uint32_t rank, char* text, uint64_t size) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_node", pinned.error());
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_NODE;
    d.group = pinned->group->membership;
    d.epoch = pinned->group->epoch;
    d.peer = rank;
    auto outcome = pinned->session->command(d);
    if (!outcome) return failed("group_node", outcome.error());
    if (!outcome->answer) return failed("group_node", Errc::protocol_error, "the daemon gave no answer");
    return write_node("group_node", outcome->answer->node, text, size);
}

}  // extern "C"
