// See environment.hpp.
#include "environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "group.hpp"

namespace nexar::c {

namespace {

struct Launcher {
    const char *rank, *size, *job, *step;
};
// The order matters: mpirun inside a Slurm job also has the job's variables, the same for all ranks.
constexpr Launcher launchers[] = {
    {"NEXAR_RANK", "NEXAR_WORLD_SIZE", nullptr, nullptr},
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", nullptr},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

template <class T>
Result<T> number(const char* variable, const char* text, const std::string& allowed) {
    T out = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, out);
    if (error != std::errc() || stop != end || text == end)
        return fail(Errc::invalid_argument,
                    std::string(variable) + " is \"" + text + "\"; it must be " + allowed);
    return out;
}

// Seconds, 0: none, as in the daemon's configuration.
Result<void> read_timeout(const Environment& e, const char* variable, int64_t& out) {
    const char* text = e.get(variable);
    if (!text) return {};
    NEXAR_TRY(const double seconds, number<double>(variable, text, "a number of seconds, or 0 for none"));
    if (!(seconds >= 0 && seconds <= 1e9))
        return fail(Errc::invalid_argument,
                    std::string(variable) + " is " + text + "; allowed: 0 (none) to 1000000000 seconds");
    out = seconds == 0 ? NEXAR_TIMEOUT_NONE : std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000));
    return {};
}

// The launcher's name for the job, or empty. torchrun sets "none" when it has no id.
std::string job_of(const Environment& e, const Launcher& launcher) {
    const char* job = launcher.job ? e.get(launcher.job) : nullptr;
    if (job && *job && std::strcmp(job, "none") != 0) {
        const char* step = launcher.step ? e.get(launcher.step) : nullptr;
        return step ? std::string(job) + "." + step : job;
    }
    const char *master = e.get("MASTER_ADDR"), *port = e.get("MASTER_PORT");
    const bool torch = std::strcmp(launcher.rank, "RANK") == 0;
    return torch && master && port ? std::string(master) + ":" + port : std::string();
}

// "RANK is set, WORLD_SIZE is not", or nothing.
std::string half_of(const Environment& e, const Launcher& launcher) {
    const bool rank = e.get(launcher.rank) != nullptr, size = e.get(launcher.size) != nullptr;
    if (rank == size) return {};
    return std::string(rank ? launcher.rank : launcher.size) + " is set, " +
           (rank ? launcher.size : launcher.rank) + " is not";
}

// The NEXAR_ variables that are not known, for the error about a missing one: they may be misspelt.
std::string unknown_variables(const Environment& e) {
    constexpr std::string_view known[] = {"NEXAR_RANK",
                                          "NEXAR_WORLD_SIZE",
                                          "NEXAR_LOCAL_RANK",
                                          "NEXAR_LOCAL_WORLD_SIZE",
                                          "NEXAR_INSTANCE",
                                          "NEXAR_GROUP",
                                          "NEXAR_JOB_SECRET",
                                          "NEXAR_OPEN_TIMEOUT_SECS",
                                          "NEXAR_COLLECTIVE_TIMEOUT_SECS",
                                          "NEXAR_BARRIER_TIMEOUT_SECS",
                                          "NEXAR_RPC_TIMEOUT_SECS",
                                          "NEXAR_DETERMINISTIC",
                                          "NEXAR_SOCKET",
                                          "NEXAR_LIBRARY"};
    constexpr int listed_max = 3;
    std::string out;
    int listed = 0;
    for (const char* const* at = e.all; at && *at && listed < listed_max; ++at) {
        const std::string_view entry(*at), name = entry.substr(0, entry.find('='));
        if (!name.starts_with("NEXAR_") || std::ranges::find(known, name) != std::end(known)) continue;
        out += (listed++ == 0 ? "; no rank looks at " : ", ") + std::string(name);
    }
    return out;
}

Result<const Launcher*> find_launcher(const Environment& e) {
    // No other launcher sets these, so one without the other is a mistake.
    if (const std::string half = half_of(e, launchers[0]); !half.empty())
        return fail(Errc::invalid_argument,
                    half + ": set both, or neither (NEXAR_RANK=auto for any rank)" + unknown_variables(e));
    std::string halves;
    for (const Launcher& launcher : launchers) {
        if (e.get(launcher.rank) && e.get(launcher.size)) return &launcher;
        if (const std::string half = half_of(e, launcher); !half.empty())
            halves += (halves.empty() ? " (" : "; ") + half;
    }
    return fail(Errc::not_found, "the environment names no rank and size" + halves +
                                     (halves.empty() ? "" : ")") +
                                     ": set NEXAR_RANK and NEXAR_WORLD_SIZE, use a launcher (nexarctl run, "
                                     "torchrun, srun, mpirun), or give options" +
                                     unknown_variables(e));
}

Result<void> read_place(const Environment& e, const Launcher& launcher, nexar_group_options& out) {
    const char *rank = e.get(launcher.rank), *size = e.get(launcher.size);
    const std::string sizes = "a number from 1 to " + std::to_string(NEXAR_RANKS_MAX);
    NEXAR_TRY(out.size, number<uint32_t>(launcher.size, size, sizes));
    if (out.size == 0 || out.size > NEXAR_RANKS_MAX)
        return fail(Errc::invalid_argument,
                    std::string(launcher.size) + " is " + size + "; it must be " + sizes);
    if (std::strcmp(rank, "auto") == 0) return {};
    const std::string ranks = "a number from 0 to " + std::to_string(out.size - 1) + " (" + launcher.size +
                              " is " + size + "), or auto";
    NEXAR_TRY(out.rank, number<uint32_t>(launcher.rank, rank, ranks));
    if (out.rank >= out.size)
        return fail(Errc::invalid_argument,
                    std::string(launcher.rank) + " is " + rank + "; it must be " + ranks);
    return {};
}

Result<void> read(const Environment& e, std::span<char> name, nexar_group_options& out) {
    NEXAR_TRY_VOID(read_timeout(e, "NEXAR_OPEN_TIMEOUT_SECS", out.timeout_ms));
    NEXAR_TRY_VOID(read_timeout(e, "NEXAR_COLLECTIVE_TIMEOUT_SECS", out.collective_timeout_ms));
    NEXAR_TRY_VOID(read_timeout(e, "NEXAR_BARRIER_TIMEOUT_SECS", out.barrier_timeout_ms));
    NEXAR_TRY_VOID(read_timeout(e, "NEXAR_RPC_TIMEOUT_SECS", out.rpc_timeout_ms));
    if (const char* asked = e.get("NEXAR_DETERMINISTIC"); asked && *asked && std::strcmp(asked, "0") != 0) {
        if (std::strcmp(asked, "1") != 0)
            return fail(Errc::invalid_argument,
                        std::string("NEXAR_DETERMINISTIC is ") + asked + "; it must be 0 or 1");
        out.flags = NEXAR_FLAG_DETERMINISTIC;
    }
    out.job_secret = e.get("NEXAR_JOB_SECRET");
    const auto launcher = find_launcher(e);
    const char* group = e.get("NEXAR_GROUP");
    const std::string found = group ? group : launcher ? job_of(e, **launcher) : std::string();
    if (group || !found.empty()) {
        // A name that does not fit is cut, and is still too long, so it is refused.
        const size_t kept = std::min(found.size(), name.size() - 1);
        std::memcpy(name.data(), found.data(), kept);
        name[kept] = 0;
        out.name = name.data();
    }
    if (!launcher) return std::unexpected(launcher.error());
    return read_place(e, **launcher, out);
}

}  // namespace

Environment environment() {
    return {[](const char* name) -> const char* { return std::getenv(name); }, environ};
}

Result<void> from_environment(const Environment& environment, std::span<char> name,
                              nexar_group_options& out) {
    out = group_defaults();
    auto done = read(environment, name, out);
    if (!done && done.error().code != Errc::not_found) out = group_defaults();
    return done;
}

const char* rank_variable(const Environment& environment, uint32_t rank) {
    for (const Launcher& launcher : launchers) {
        if (!environment.get(launcher.rank) || !environment.get(launcher.size)) continue;
        return std::to_string(rank) == environment.get(launcher.rank) ? launcher.rank : nullptr;
    }
    return nullptr;
}

}  // namespace nexar::c
