// The exported functions of include/nexar.h, but for the operations (nexar_ops.cpp): check arguments, call,
// convert.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "operation.hpp"
#include "tables.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

constexpr int64_t ms_max = INT64_MAX / 4'000'000;

// Options of an older or newer program: what it has is taken, what it lacks is the default.
template <class T>
bool take_options(const T* given, T& defaults) {
    if (!given) return true;
    if (given->struct_size < sizeof(uint32_t) * 2) return false;
    std::memcpy(&defaults, given, std::min<size_t>(given->struct_size, sizeof defaults));
    return true;
}

template <class T>
void init_options(T* options, size_t size, T defaults) {
    if (!options) return;
    defaults.struct_size = static_cast<uint32_t>(size);
    std::memset(static_cast<void*>(options), 0, size);
    std::memcpy(static_cast<void*>(options), &defaults, std::min(size, sizeof defaults));
}

nexar_session_options session_defaults() {
    nexar_session_options o{};
    o.slots = NEXAR_SHM_SLOTS_DEFAULT;
    o.connect_timeout_ms = 5000;
    o.daemon_unresponsive_ms = 10000;
    o.scratch_limit = uint64_t{256} << 20;
    o.spin_us = 50;
    return o;
}

nexar_group_options group_defaults() {
    nexar_group_options o{};
    o.rank = NEXAR_RANK_AUTO;
    o.timeout_ms = 30000;
    o.collective_timeout_ms = -1;
    return o;
}

Result<SessionOptions> checked(const nexar_session_options* given) {
    nexar_session_options o = session_defaults();
    if (!take_options(given, o))
        return fail(Errc::invalid_argument, "options were not made by nexar_session_options_init");
    if (!nexar_shm_slots_valid(o.slots))
        return fail(Errc::invalid_argument,
                    "slots is " + std::to_string(o.slots) + "; allowed: a power of two from 16 to 4096");
    if (o.connect_timeout_ms < 0 || o.daemon_unresponsive_ms < -1 || o.spin_us < 0 || o.spin_us > 1'000'000)
        return fail(Errc::invalid_argument,
                    "connect_timeout_ms from 0, daemon_unresponsive_ms from -1, spin_us from 0 "
                    "to 1000000");
    SessionOptions out;
    const char* from_environment = std::getenv("NEXAR_SOCKET");
    out.connect.path = o.socket_path      ? o.socket_path
                       : from_environment ? from_environment
                                          : NEXAR_LOCAL_SOCKET;
    out.connect.slots = o.slots;
    out.connect.timeout = std::chrono::milliseconds(std::min(o.connect_timeout_ms, ms_max));
    out.daemon_unresponsive =
        o.daemon_unresponsive_ms < 0
            ? Duration::max()
            : Duration(std::chrono::milliseconds(std::min(o.daemon_unresponsive_ms, ms_max)));
    out.scratch_limit = o.scratch_limit;
    out.spin = std::chrono::microseconds(o.spin_us);
    return out;
}

Result<nexar_group*> open_group(SessionPin& session, uint64_t session_handle, const GroupRequest& wanted) {
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_OPEN;
    nexar_shm_group_open asked{};
    asked.size = wanted.size;
    asked.rank = wanted.rank;
    asked.timeout_ns = nanoseconds(wanted.timeout_ms < 0 ? 30000 : wanted.timeout_ms);
    if (asked.timeout_ns == 0) asked.timeout_ns = 1;  // try: only with those who wait already
    asked.name_bytes = static_cast<uint32_t>(wanted.name.size());
    asked.secret_bytes = static_cast<uint32_t>(wanted.secret.size());
    std::memcpy(asked.name, wanted.name.data(), wanted.name.size());
    std::memcpy(asked.secret, wanted.secret.data(), wanted.secret.size());
    NEXAR_TRY(const Ending ending, session->command(d, &asked, true));

    auto group = std::make_unique<Group>();
    group->session = session_handle;
    group->name = ending.result.group;
    group->rank = ending.result.rank;
    group->size = ending.result.size;
    group->segment_bytes = ending.result.stage;
    group->collective_timeout_ns =
        wanted.collective_timeout_ms < 0 ? -1 : nanoseconds(wanted.collective_timeout_ms);
    const uint64_t handle = groups().insert(std::move(group), [](uint32_t) {});
    if (handle == 0) return fail(Errc::table_full, "this process has too many groups");
    return reinterpret_cast<nexar_group*>(handle);
}

nexar_status give_node(const char* op, const uint8_t node[32], char* text, size_t size) {
    if (!text || size < NEXAR_NODE_TEXT)
        return failed(op, Errc::invalid_argument, "text must have room for NEXAR_NODE_TEXT bytes");
    node_text(node, text);
    return NEXAR_OK;
}

}  // namespace

extern "C" {

nexar_status nexar_last_error(nexar_error* error) {
    return copy_last_error(error);
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
    static constexpr const char* names[] = {"f32", "f64", "f16", "bf16", "i8",  "i32",
                                            "i64", "u8",  "u32", "u64",  "i16", "u16"};
    return dtype_size(dtype) ? names[dtype] : "UNKNOWN";
}
const char* nexar_reduce_op_name(nexar_reduce_op op) {
    static constexpr const char* names[] = {"sum", "prod", "min", "max", "avg"};
    return op >= NEXAR_SUM && op <= NEXAR_AVG ? names[op] : "UNKNOWN";
}

void nexar_session_options_init(nexar_session_options* options, size_t size) {
    init_options(options, size, session_defaults());
}
void nexar_group_options_init(nexar_group_options* options, size_t size) {
    init_options(options, size, group_defaults());
}

nexar_status nexar_session_open(const nexar_session_options* options, nexar_session** out) {
    if (!out) return failed("session_open", Errc::invalid_argument, "out is NULL");
    auto wanted = checked(options);
    if (!wanted) return failed("session_open", wanted.error());
    groups();  // made here, so that fork finds both tables' locks
    auto session = Session::open(*wanted);
    if (!session) return failed("session_open", session.error());
    Session* raw = session->get();
    raw->fork_epoch = fork_epoch();
    close_at_exit_or_unload();
    const uint64_t handle =
        sessions().insert(std::move(*session), [raw](uint32_t index) { raw->handle_index = index; });
    if (handle == 0) return failed("session_open", Errc::table_full, "this process has too many sessions");
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

nexar_status nexar_session_poll(nexar_session* handle, nexar_request* ended, size_t capacity, size_t* count) {
    auto session = session_of(handle);
    if (!session) return failed("session_poll", session.error());
    if (!count || (!ended && capacity != 0))
        return failed("session_poll", Errc::invalid_argument, "ended or count is NULL");
    size_t found = 0;
    Slot slots[64];
    while (found < capacity) {
        const size_t got = (*session)->poll(slots, std::min<size_t>(capacity - found, 64));
        if (got == 0) break;
        for (size_t i = 0; i < got; ++i) ended[found++] = request_handle(**session, slots[i]);
    }
    *count = found;
    if (found == 0)
        if (auto error = (*session)->unusable()) return failed("session_poll", *error);
    return NEXAR_OK;
}

nexar_status nexar_session_node(nexar_session* handle, char* text, size_t size) {
    auto session = session_of(handle);
    if (!session) return failed("session_node", session.error());
    return give_node("session_node", (*session)->connection().welcome().node, text, size);
}

nexar_status nexar_session_stats_get(nexar_session* handle, nexar_session_stats* stats) {
    auto session = session_of(handle);
    if (!session) return failed("session_stats_get", session.error());
    if (!stats || stats->struct_size < sizeof(uint32_t) * 2)
        return failed("session_stats_get", Errc::invalid_argument,
                      "stats is NULL or its struct_size is not set");
    nexar_session_stats now_stats{};
    (*session)->stats(now_stats);
    now_stats.struct_size = stats->struct_size;
    std::memcpy(stats, &now_stats, std::min<size_t>(stats->struct_size, sizeof now_stats));
    return NEXAR_OK;
}

nexar_status nexar_alloc(nexar_session* handle, uint64_t bytes, void** out) {
    auto session = session_of(handle);
    if (!session) return failed("alloc", session.error());
    if (!out) return failed("alloc", Errc::invalid_argument, "out is NULL");
    auto memory = (*session)->alloc(bytes);
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

nexar_status nexar_register(nexar_session* handle, void* address, uint64_t bytes, int fd, uint64_t offset) {
    auto session = session_of(handle);
    if (!session) return failed("register", session.error());
    if (!address) return failed("register", Errc::invalid_argument, "address is NULL");
    auto done = (*session)->adopt(address, bytes, fd, offset);
    return done ? NEXAR_OK : failed("register", done.error());
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
    nexar_group_options given = group_defaults();
    if (!take_options(options, given))
        return failed("group_open", Errc::invalid_argument,
                      "options were not made by nexar_group_options_init");
    auto wanted = options
                      ? from_options(given)
                      : from_environment([](const char* name) -> const char* { return std::getenv(name); });
    if (!wanted) return failed("group_open", wanted.error());
    auto group = open_group(*session, number_of(handle), *wanted);
    if (!group) return failed("group_open", group.error());
    *out = *group;
    return NEXAR_OK;
}

nexar_status nexar_group_free(nexar_group* handle) {
    const auto not_open = [](Groups::Found found) {
        return failed("group_free", found == Groups::Found::closed ? Errc::closed : Errc::bad_handle,
                      "not the handle of an open group");
    };
    GroupPin group;
    if (const auto found = groups().pin(number_of(handle), group); found != Groups::Found::open)
        return not_open(found);
    // Of a closed or lost session there is nothing left to tell the daemon.
    auto session = session_of(group->session);
    if (session && !(*session)->unusable()) {
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_FREE;
        d.group = group->name;
        auto done = (*session)->command(d);
        // The handle stays open as long as the group does. CLOSED: another thread was quicker.
        if (!done && done.error().code != Errc::closed && !(*session)->unusable())
            return failed("group_free", done.error());
    }
    if (const auto found = groups().close(number_of(handle), group); found != Groups::Found::open)
        return not_open(found);
    return NEXAR_OK;
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

nexar_status nexar_group_node(nexar_group* handle, uint32_t rank, char* text, size_t size) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_node", pinned.error());
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_NODE;
    d.group = pinned->group->name;
    d.peer = rank;
    auto ending = pinned->session->command(d);
    if (!ending) return failed("group_node", ending.error());
    return give_node("group_node", ending->node, text, size);
}

}  // extern "C"
