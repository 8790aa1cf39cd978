// See group.hpp.
#include "group.hpp"

#include <algorithm>
#include <cstring>

#include "environment.hpp"

namespace nexar::c {

namespace {

Result<void> check_timeout(const char* name, int64_t ms, bool may_try) {
    if (ms > 0 || ms == NEXAR_TIMEOUT_DEFAULT || ms == NEXAR_TIMEOUT_NONE || (ms == 0 && may_try)) return {};
    return fail(Errc::invalid_argument, std::string(name) + " is " + std::to_string(ms) +
                                            "; allowed: " + (may_try ? "0, " : "") +
                                            "a positive number of milliseconds, NEXAR_TIMEOUT_DEFAULT (-1), "
                                            "NEXAR_TIMEOUT_NONE (-2)");
}

// For the error about a rank that is too large: a program may set the size, and take the job's rank from the
// environment.
std::string variable_of_rank(uint32_t rank) {
    const char* variable = rank_variable(environment(), rank);
    return variable ? std::string(" (from ") + variable + "; give a rank beside the size)" : std::string();
}

Result<void> check(const GroupRequest& r) {
    if (r.size == 0 || r.size > NEXAR_RANKS_MAX)
        return fail(Errc::invalid_argument, "size is " + std::to_string(r.size) + "; allowed: 1 to " +
                                                std::to_string(NEXAR_RANKS_MAX));
    if (r.rank != NEXAR_RANK_AUTO && r.rank >= r.size)
        return fail(Errc::invalid_argument, "rank is " + std::to_string(r.rank) + variable_of_rank(r.rank) +
                                                "; allowed: 0 to " + std::to_string(r.size - 1) +
                                                ", or NEXAR_RANK_AUTO");
    if (r.name.empty() || r.name.size() > NEXAR_NAME_MAX)
        return fail(Errc::invalid_argument, "the group's name has " + std::to_string(r.name.size()) +
                                                " bytes; allowed: 1 to " + std::to_string(NEXAR_NAME_MAX));
    if (!r.secret.empty() && (r.secret.size() < NEXAR_SECRET_MIN || r.secret.size() > NEXAR_NAME_MAX))
        return fail(Errc::invalid_argument, "the job's secret has " + std::to_string(r.secret.size()) +
                                                " bytes; allowed: " + std::to_string(NEXAR_SECRET_MIN) +
                                                " to " + std::to_string(NEXAR_NAME_MAX) +
                                                " (openssl rand -hex 32 makes one)");
    NEXAR_TRY_VOID(check_timeout("timeout_ms", r.timeout_ms, true));
    NEXAR_TRY_VOID(check_timeout("collective_timeout_ms", r.collective_timeout_ms, false));
    NEXAR_TRY_VOID(check_timeout("barrier_timeout_ms", r.barrier_timeout_ms, false));
    return check_timeout("rpc_timeout_ms", r.rpc_timeout_ms, false);
}

// -1: the other ranks' value; 0: none.
int64_t agreed_ns(int64_t ms) {
    return ms == NEXAR_TIMEOUT_DEFAULT ? -1 : ms == NEXAR_TIMEOUT_NONE ? 0 : nanoseconds(ms);
}

}  // namespace

nexar_group_options group_defaults() {
    return NEXAR_GROUP_OPTIONS_INIT;
}

// Requires a name or a secret: with a default name two unrelated jobs would form one group.
Result<GroupRequest> from_options(const nexar_group_options& o) {
    NEXAR_TRY_VOID(check_flags(o.flags, "nexar_group_options"));
    if (o.on_failure != NEXAR_ON_FAILURE_ABORT)
        return fail(
            Errc::unsupported,
            "on_failure is " + std::to_string(o.on_failure) +
                "; allowed: NEXAR_ON_FAILURE_ABORT (0), a group that has lost a rank ends. Groups that go on "
                "without it are not there yet");
    const bool secret = o.job_secret && *o.job_secret;
    if (!o.name && !secret)
        return fail(
            Errc::invalid_argument,
            "no group is named: set NEXAR_GROUP (the option name) or NEXAR_JOB_SECRET (job_secret) to "
            "something that is this job's alone, or use a launcher that names its jobs (nexarctl run, "
            "torchrun with --rdzv-id, srun, mpirun)");
    GroupRequest out{
        o.name ? o.name : "default", secret ? o.job_secret : "", o.size,           o.rank,      o.timeout_ms,
        o.collective_timeout_ms,     o.barrier_timeout_ms,       o.rpc_timeout_ms, o.user_data, o.flags};
    NEXAR_TRY_VOID(check(out));
    return out;
}

Result<void> check_flags(uint64_t flags, const char* what) {
    constexpr uint64_t known = NEXAR_FLAG_DETERMINISTIC | NEXAR_FLAG_F32_PARTIALS;
    if ((flags & ~known) == 0) return {};
    return fail(Errc::invalid_argument,
                std::string(what) + ".flags is " + std::to_string(flags) +
                    "; allowed: 0, NEXAR_FLAG_DETERMINISTIC (1), NEXAR_FLAG_F32_PARTIALS (2), and both");
}

Result<int64_t> group_timeout_ns(const char* name, int64_t ms) {
    NEXAR_TRY_VOID(check_timeout(name, ms, false));
    return agreed_ns(ms);
}

nexar_shm_group_open payload_of(const GroupRequest& r) {
    nexar_shm_group_open out{};
    out.size = r.size;
    out.rank = r.rank;
    constexpr int64_t usual_ms = 30'000;
    // The daemon's 0 means "none", so a timeout of 0 becomes 1 ns: a deadline that has passed at once.
    out.timeout_ns = r.timeout_ms == 0                       ? 1
                     : r.timeout_ms == NEXAR_TIMEOUT_DEFAULT ? nanoseconds(usual_ms)
                                                             : agreed_ns(r.timeout_ms);
    out.collective_timeout_ns = agreed_ns(r.collective_timeout_ms);
    out.barrier_timeout_ns = agreed_ns(r.barrier_timeout_ms);
    out.rpc_timeout_ns = agreed_ns(r.rpc_timeout_ms);
    out.name_bytes = static_cast<uint32_t>(r.name.size());
    out.secret_bytes = static_cast<uint32_t>(r.secret.size());
    std::memcpy(out.name, r.name.data(), r.name.size());
    std::memcpy(out.secret, r.secret.data(), r.secret.size());
    return out;
}

int64_t nanoseconds(int64_t ms) {
    return std::min<int64_t>(ms, INT64_MAX / 1'000'000 - 1) * 1'000'000;
}

}  // namespace nexar::c
