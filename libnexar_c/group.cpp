#include "group.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "shm_layout.h"

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

Result<uint32_t> number(const char* variable, const char* text, const char* allowed = "a number") {
    uint32_t out = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, out);
    if (error != std::errc() || stop != end || text == end)
        return fail(Errc::invalid_argument,
                    std::string(variable) + " is \"" + text + "\"; it must be " + allowed);
    return out;
}

Result<void> check_timeout(const char* name, int64_t ms) {
    if (ms >= -1) return {};
    return fail(Errc::invalid_argument,
                std::string(name) + " is " + std::to_string(ms) + "; allowed: -1 and from 0 up");
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
    NEXAR_TRY_VOID(check_timeout("timeout_ms", r.timeout_ms));
    return check_timeout("collective_timeout_ms", r.collective_timeout_ms);
}

}  // namespace

Result<GroupRequest> from_options(const nexar_group_options& o) {
    GroupRequest out{
        o.name ? o.name : "default", o.job_secret ? o.job_secret : "", o.size, o.rank, o.timeout_ms,
        o.collective_timeout_ms};
    NEXAR_TRY_VOID(check(out));
    return out;
}

Result<GroupRequest> from_environment(const char* (*get)(const char*)) {
    for (const Launcher& launcher : launchers) {
        const char *rank = get(launcher.rank), *size = get(launcher.size);
        if (!rank || !size) continue;
        GroupRequest out;
        NEXAR_TRY(out.size, number(launcher.size, size));
        out.rank = NEXAR_RANK_AUTO;
        if (std::strcmp(rank, "auto") != 0) {
            NEXAR_TRY(out.rank, number(launcher.rank, rank, "a number or auto"));
        }
        const char* name = get("NEXAR_GROUP");
        const char* job = launcher.job ? get(launcher.job) : nullptr;
        const char* step = launcher.step ? get(launcher.step) : nullptr;
        out.name = name ? name : job ? job : "default";
        if (!name && job && step) out.name += std::string(".") + step;
        const char* secret = get("NEXAR_JOB_SECRET");
        out.secret = secret ? secret : "";
        NEXAR_TRY_VOID(check(out));
        return out;
    }
    return fail(
        Errc::invalid_argument,
        "the environment names no rank and size (NEXAR_RANK and NEXAR_WORLD_SIZE, or torchrun's, Slurm's, "
        "Open MPI's): set them, or give options");
}

int64_t nanoseconds(int64_t ms) {
    return std::min<int64_t>(ms, INT64_MAX / 1'000'000 - 1) * 1'000'000;
}

}  // namespace nexar::c
