// Errors and the one result type of the house. The world's failures are Results; our own bugs are check().
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace nexar {

// What went wrong. The numbers are those of nexar_status in include/nexar.h (tests/abi compares them), so an
// error crosses the wire, shared memory and the C ABI unchanged. Groups: by what the caller can do about it.
enum class Errc : int32_t {
    ok = 0,
    pending = 1,  // not an error: started, not finished

    // Fix the call.
    invalid_argument = -1,
    bad_state = -2,  // right call, wrong moment: collectives on one group from several threads, ...
    unsupported = -3,
    not_found = -4,
    permission = -5,
    closed = -6,      // the handle, session or group was closed on this side
    bad_handle = -7,  // never was one, or freed already

    // Try again, or give more time or room.
    table_full = -20,
    timed_out = -21,
    interrupted = -22,  // a signal arrived while waiting
    no_memory = -23,
    cancelled = -24,

    // The group's ranks do not agree on what they are doing. This operation failed on all of them.
    mismatch = -30,          // descriptors differ: kind, dtype, op, count or root
    rank_clash = -31,        // two members ask for one rank, or different sizes under one name
    group_incomplete = -32,  // the deadline passed and somebody is missing

    // This group is finished.
    peer_lost = -40,  // a rank (process or its node) is gone
    link_lost = -41,  // two live nodes cannot reach each other
    aborted = -42,    // another rank cancelled, or its deadline passed

    // This session is finished: open a new one.
    daemon_lost = -60,
    daemon_unresponsive = -61,
    session_refused = -62,
    protocol_error = -63,

    // Only inside the daemon and its tools.
    io = -80,
    bad_config = -81,
    bad_certificate = -82,
    bad_token = -83,
};

std::string_view name_of(Errc code);

struct Error {
    Errc code = Errc::ok;
    std::string text;  // names what was wrong and what is allowed
    // Who is at fault, where that is known (-1 / empty otherwise).
    int64_t rank = -1;
    int64_t other_rank = -1;  // second end of a lost link
    std::string node;         // at fault, 64 hex digits; empty: none or not known
};

template <class T = void>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(Errc code, std::string text) {
    return std::unexpected(Error{code, std::move(text), -1, -1, {}});
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
