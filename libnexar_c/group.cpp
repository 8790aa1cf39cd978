#include "group.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace nexar::c {

namespace {

struct Launcher {
    const char *rank, *size, *job, *step;
};
constexpr Launcher launchers[] = {
    {"NEXAR_RANK", "NEXAR_WORLD_SIZE", nullptr, nullptr},
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", nullptr},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", nullptr},
};

template <class T>
Result<T> number(const char* variable, const char* text, const char* allowed) {
    T out = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, out);
    if (error != std::errc() || stop != end || text == end)
        return fail(Errc::invalid_argument,
                    std::string(variable) + " is \"" + text + "\"; it must be " + allowed);
    return out;
}

using Get = const char* (*)(const char*);

// Seconds, 0: none, as in the daemon's configuration.
Result<void> read_timeout(Get get, const char* variable, int64_t& out) {
    const char* text = get(variable);
    if (!text) return {};
    NEXAR_TRY(const double seconds, number<double>(variable, text, "a number of seconds, or 0 for none"));
    if (!(seconds >= 0 && seconds <= 1e9))
        return fail(Errc::invalid_argument,
                    std::string(variable) + " is " + text + "; allowed: 0 (none) to 1000000000 seconds");
    out = seconds == 0 ? NEXAR_TIMEOUT_NONE : std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000));
    return {};
}

// The launcher's name for the job, if it is one: torchrun says "none" where nobody gave an id.
std::string job_of(Get get, const Launcher& launcher) {
    const char* job = launcher.job ? get(launcher.job) : nullptr;
    if (job && *job && std::strcmp(job, "none") != 0) {
        const char* step = launcher.step ? get(launcher.step) : nullptr;
        return step ? std::string(job) + "." + step : job;
    }
    const char *master = get("MASTER_ADDR"), *port = get("MASTER_PORT");
    const bool torch = std::strcmp(launcher.rank, "RANK") == 0;
    return torch && master && port ? std::string(master) + ":" + port : std::string();
}

Result<void> check_timeout(const char* name, int64_t ms, bool may_try) {
    if (ms > 0 || ms == NEXAR_TIMEOUT_DEFAULT || ms == NEXAR_TIMEOUT_NONE || (ms == 0 && may_try)) return {};
    return fail(Errc::invalid_argument, std::string(name) + " is " + std::to_string(ms) +
                                            "; allowed: " + (may_try ? "0, " : "") +
                                            "a positive number of milliseconds, NEXAR_TIMEOUT_DEFAULT (-1), "
                                            "NEXAR_TIMEOUT_NONE (-2)");
}

Result<void> check(const GroupRequest& r) {
    if (r.size == 0 || r.size > NEXAR_RANKS_MAX)
        return fail(Errc::invalid_argument, "size is " + std::to_string(r.size) + "; allowed: 1 to " +
                                                std::to_string(NEXAR_RANKS_MAX));
    if (r.rank != NEXAR_RANK_AUTO && r.rank >= r.size)
        return fail(Errc::invalid_argument, "rank is " + std::to_string(r.rank) + "; allowed: 0 to " +
                                                std::to_string(r.size - 1) + ", or NEXAR_RANK_AUTO");
    if (r.name.empty() || r.name.size() > NEXAR_NAME_MAX)
        return fail(Errc::invalid_argument, "the group's name has " + std::to_string(r.name.size()) +
                                                " bytes; allowed: 1 to " + std::to_string(NEXAR_NAME_MAX));
    if (r.secret.size() > NEXAR_NAME_MAX)
        return fail(Errc::invalid_argument, "the job's secret has " + std::to_string(r.secret.size()) +
                                                " bytes; allowed: up to " + std::to_string(NEXAR_NAME_MAX));
    NEXAR_TRY_VOID(check_timeout("timeout_ms", r.timeout_ms, true));
    NEXAR_TRY_VOID(check_timeout("collective_timeout_ms", r.collective_timeout_ms, false));
    NEXAR_TRY_VOID(check_timeout("barrier_timeout_ms", r.barrier_timeout_ms, false));
    return check_timeout("rpc_timeout_ms", r.rpc_timeout_ms, false);
}

// -1: what the others say; 0: none.
int64_t agreed_ns(int64_t ms) {
    return ms == NEXAR_TIMEOUT_DEFAULT ? -1 : ms == NEXAR_TIMEOUT_NONE ? 0 : nanoseconds(ms);
}

}  // namespace

nexar_group_options group_defaults() {
    return NEXAR_GROUP_OPTIONS_INIT;
}

// Nobody gets into a group by accident: two jobs that say nothing would meet, and add up each other's
// numbers.
Result<GroupRequest> from_options(const nexar_group_options& o) {
    if (o.reserved != 0)
        return fail(Errc::invalid_argument,
                    "nexar_group_options.reserved is " + std::to_string(o.reserved) + "; it must be 0");
    const bool secret = o.job_secret && *o.job_secret;
    if (!o.name && !secret)
        return fail(
            Errc::invalid_argument,
            "nothing says which group: set NEXAR_GROUP (the option name) or NEXAR_JOB_SECRET (job_secret) to "
            "something that is this job's alone, or use a launcher that names its jobs (nexarctl run, "
            "torchrun with --rdzv-id, srun, mpirun)");
    GroupRequest out{
        o.name ? o.name : "default", secret ? o.job_secret : "", o.size,           o.rank,     o.timeout_ms,
        o.collective_timeout_ms,     o.barrier_timeout_ms,       o.rpc_timeout_ms, o.user_data};
    NEXAR_TRY_VOID(check(out));
    return out;
}

Result<nexar_group_options> from_environment(Get get, std::span<char> name) {
    nexar_group_options out = group_defaults();
    NEXAR_TRY_VOID(read_timeout(get, "NEXAR_OPEN_TIMEOUT_SECS", out.timeout_ms));
    NEXAR_TRY_VOID(read_timeout(get, "NEXAR_COLLECTIVE_TIMEOUT_SECS", out.collective_timeout_ms));
    NEXAR_TRY_VOID(read_timeout(get, "NEXAR_BARRIER_TIMEOUT_SECS", out.barrier_timeout_ms));
    NEXAR_TRY_VOID(read_timeout(get, "NEXAR_RPC_TIMEOUT_SECS", out.rpc_timeout_ms));
    out.job_secret = get("NEXAR_JOB_SECRET");
    for (const Launcher& launcher : launchers) {
        const char *rank = get(launcher.rank), *size = get(launcher.size);
        if (!rank || !size) continue;
        NEXAR_TRY(out.size, number<uint32_t>(launcher.size, size, "a number"));
        if (std::strcmp(rank, "auto") != 0) {
            NEXAR_TRY(out.rank, number<uint32_t>(launcher.rank, rank, "a number or auto"));
        }
        const char* group = get("NEXAR_GROUP");
        const std::string found = group ? group : job_of(get, launcher);
        if (!group && found.empty()) return out;
        // What does not fit is too long in any case, and refused as such.
        const size_t kept = std::min(found.size(), name.size() - 1);
        std::memcpy(name.data(), found.data(), kept);
        name[kept] = 0;
        out.name = name.data();
        return out;
    }
    return fail(
        Errc::invalid_argument,
        "the environment names no rank and size (NEXAR_RANK and NEXAR_WORLD_SIZE, or torchrun's, Slurm's, "
        "Open MPI's): set them, or give options");
}

nexar_shm_group_open payload_of(const GroupRequest& r) {
    nexar_shm_group_open out{};
    out.size = r.size;
    out.rank = r.rank;
    constexpr int64_t usual_ms = 30'000;
    // The daemon's 0 is "none"; "try" is a deadline that has passed at its next look.
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
