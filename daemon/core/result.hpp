// Errors and the one result type of the house. The world's failures are Results; our own bugs are check().
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nexar {

// What went wrong. The numbers are those of nexar_status in include/nexar/status.h (tests/abi compares them),
// so an error crosses the wire, shared memory and the C ABI unchanged. The hundreds say what the caller can
// do about it.
enum class Errc : int32_t {
    ok = 0,
    pending = 1,  // not an error: started, not finished

    // Fix the call.
    call = -100,
    invalid_argument = -101,
    bad_state = -102,  // right call, wrong moment: collectives on one group from several threads, ...
    unsupported = -103,
    not_found = -104,
    permission = -105,
    closed = -106,      // the handle, session or group was closed on this side
    bad_handle = -107,  // never was one, or freed already

    // The same call may succeed later.
    retry = -200,
    table_full = -201,
    no_memory = -202,
    interrupted = -203,  // a signal arrived while waiting
    not_sent = -204,
    device_no_memory = -205,

    // This operation failed on all ranks that take part in it.
    operation = -300,
    timed_out = -301,
    cancelled = -302,
    aborted = -303,   // another rank cancelled or left, or its deadline passed
    mismatch = -304,  // descriptors differ: kind, dtype, op, count, root or match id
    maybe_executed = -305,
    no_such_function = -306,
    handler_failed = -307,
    device_failed = -308,

    // The group did not come about.
    open = -400,
    rank_clash = -401,        // two members ask for one rank
    group_incomplete = -402,  // the deadline passed and a member is missing
    options_differ = -403,    // different sizes or time-outs under one name
    join_refused = -404,

    // The group goes on in another epoch.
    recoverable = -500,
    group_changed = -501,
    no_quorum = -502,
    recovery_timed_out = -503,
    recovery_misused = -504,
    checkpoint_timed_out = -505,

    // This group is finished.
    group = -600,
    peer_lost = -601,  // a rank's process or node failed
    link_lost = -602,  // two live nodes cannot reach each other
    below_minimum = -603,
    expelled = -604,

    // This session is finished: open a new one.
    session = -700,
    daemon_lost = -701,
    daemon_unresponsive = -702,
    session_refused = -703,
    protocol_error = -704,

    // The operating system refused something.
    system = -800,
    io = -801,

    // Only inside the daemon and its tools.
    bad_config = -901,
    bad_certificate = -902,
    bad_token = -903,
};

std::string_view name_of(Errc code);
// Reads a number from outside: an unknown failure becomes its class's general code; nothing: it is no
// failure.
std::optional<Errc> failure_from(int32_t number);

struct Error {
    Errc code = Errc::ok;
    std::string text;  // names what was wrong and what is allowed
    // The rank at fault, where that is known (-1 / empty otherwise).
    int64_t rank = -1;
    int64_t other_rank = -1;  // of a lost link, a clash, or differing options
    std::string node{};       // the rank's node, 64 hex digits; empty: none or not known
    std::string host{};       // the node's host name; empty: not known
    uint32_t pid = 0;         // the rank's process; 0: not known
    int32_t system_errno = 0;
    std::vector<uint32_t> lost_ranks{};  // ascending
};

template <class T = void>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(Errc code, std::string text) {
    return std::unexpected(Error{.code = code, .text = std::move(text)});
}
[[nodiscard]] inline std::unexpected<Error> fail(Error error) {
    return std::unexpected(std::move(error));
}

}  // namespace nexar

#define NEXAR_TRY_CAT2(a, b) a##b
#define NEXAR_TRY_CAT(a, b) NEXAR_TRY_CAT2(a, b)
// NEXAR_TRY(auto x, expr): declares x from a Result, or returns its error. NEXAR_TRY_VOID for Result<>.
#define NEXAR_TRY(declaration, ...)                                                     \
    auto NEXAR_TRY_CAT(nexar_try_, __LINE__) = (__VA_ARGS__);                           \
    if (!NEXAR_TRY_CAT(nexar_try_, __LINE__))                                           \
        return std::unexpected(std::move(NEXAR_TRY_CAT(nexar_try_, __LINE__)).error()); \
    declaration = std::move(*NEXAR_TRY_CAT(nexar_try_, __LINE__))
#define NEXAR_TRY_VOID(...)                                                                 \
    do {                                                                                    \
        auto nexar_try_result = (__VA_ARGS__);                                              \
        if (!nexar_try_result) return std::unexpected(std::move(nexar_try_result).error()); \
    } while (0)
