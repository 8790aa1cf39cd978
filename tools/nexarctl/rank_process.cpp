#include "nexarctl/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace nexarctl {

using nexar::Errc;
using nexar::fail;
using nexar::Result;

namespace {

constexpr int exit_parent_gone = 124;
constexpr int exit_not_executable = 126;
constexpr int exit_not_found = 127;
constexpr mode_t folder_mode = 0777, file_mode = 0666;  // less the umask

std::unexpected<nexar::Error> io_error(const std::string& what) {
    return fail(Errc::io, what + ": " + std::strerror(errno));
}

// In the child, after fork(): only async-signal-safe calls.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& variables,
                         const Standard& standard, const sigset_t& mask, pid_t parent, int complaint) {
    // The kernel kills a rank whose launcher is killed; a rank whose launcher was killed earlier exits here.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(exit_parent_gone);
    ::setpgid(0, 0);  // Ctrl-C reaches the launcher alone, which forwards it once
    ::dup2(standard.in.fd, 0);
    ::dup2(standard.out.fd, 1);
    ::dup2(standard.err.fd, 2);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execvpe(arguments[0], arguments.data(), variables.data());
    const int why = errno;
    [[maybe_unused]] const auto written = ::write(complaint, &why, sizeof why);
    ::_exit(why == ENOENT ? exit_not_found : exit_not_executable);
}

void add_unless_set(std::vector<std::string>& out, std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    if (std::ranges::none_of(out, [&](const std::string& one) { return one.starts_with(name); }))
        out.emplace_back(entry);
}

int open_output(const Job& job, uint32_t local_rank, const char* stream, int flags) {
    return ::open(output_path(job, local_rank, stream).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags,
                  file_mode);
}

// The file of --output-dir, or a pipe whose reading end is `ours`.
Result<void> open_output_end(const Job& job, uint32_t local_rank, const char* stream, Descriptor& theirs,
                             Descriptor& ours) {
    if (!job.output_dir.empty()) {
        theirs = Descriptor(open_output(job, local_rank, stream, O_APPEND));
        if (theirs.fd < 0) return io_error("cannot write " + output_path(job, local_rank, stream));
        return {};
    }
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) return io_error("pipe");
    ours = Descriptor(pipe[0]);
    theirs = Descriptor(pipe[1]);
    ::fcntl(ours.fd, F_SETFL, O_NONBLOCK);
    return {};
}

// Rank 0 reads what its launcher reads; the others find an empty input.
Result<void> open_input_end(const Job& job, uint32_t local_rank, Ends& ends) {
    if (job.first_rank + local_rank != 0) {
        ends.theirs.in = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (ends.theirs.in.fd < 0) return io_error("/dev/null");
        return {};
    }
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) return io_error("pipe");
    ends.theirs.in = Descriptor(pipe[0]);
    ends.ours.in = Descriptor(pipe[1]);
    ::fcntl(ends.ours.in.fd, F_SETFL, O_NONBLOCK);
    return {};
}

Result<void> make_folders(const std::string& path) {
    for (size_t end = 0; end != std::string::npos;) {
        end = path.find('/', end + 1);
        const std::string folder = path.substr(0, end);
        if (::mkdir(folder.c_str(), folder_mode) != 0 && errno != EEXIST)
            return io_error("--output-dir: cannot make " + folder);
    }
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return io_error("--output-dir: cannot use " + path);
    if (!S_ISDIR(status.st_mode)) return fail(Errc::io, "--output-dir: " + path + " is not a directory");
    return {};
}

// The rank of a file that output_path() may have named; none: another file.
std::optional<uint64_t> rank_in(std::string_view file) {
    constexpr std::string_view prefix = "rank-";
    if (!file.starts_with(prefix) || !(file.ends_with(".stdout") || file.ends_with(".stderr"))) return {};
    const std::string_view digits = file.substr(prefix.size(), file.rfind('.') - prefix.size());
    uint64_t rank = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    const bool whole = read.ec == std::errc{} && read.ptr == digits.data() + digits.size();
    return whole && std::to_string(rank) == digits ? std::optional(rank) : std::nullopt;
}

// Files of ranks that this job does not have are of a larger one before. Those of ranks on other hosts stay:
// the folder may be shared.
Result<void> remove_stale_output(const Job& job) {
    std::error_code error;
    std::vector<std::filesystem::path> stale;
    for (std::filesystem::directory_iterator at(job.output_dir, error), end; !error && at != end;
         at.increment(error))
        if (const auto rank = rank_in(at->path().filename().native()); rank && *rank >= job.world)
            stale.push_back(at->path());
    if (error) return fail(Errc::io, "--output-dir: cannot read " + job.output_dir + ": " + error.message());
    for (const auto& file : stale)
        if (::unlink(file.c_str()) != 0 && errno != ENOENT)
            return io_error("--output-dir: " + file.native() +
                            " is of a larger job before, and cannot be removed; use an empty folder");
    return {};
}

}  // namespace

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (auto& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
}

namespace {

struct Block {  // of ranks that have one daemon
    uint32_t index = 0, begin = 0, end = 0;
};

Block block_of(const Job& job, uint32_t local_rank) {
    const auto blocks = static_cast<uint32_t>(std::max<size_t>(job.sockets.size(), 1));
    const auto begin = [&](uint32_t block) { return (block * job.ranks + blocks - 1) / blocks; };
    const uint32_t index = local_rank * blocks / job.ranks;
    return {index, begin(index), begin(index + 1)};
}

}  // namespace

std::vector<std::string> environment_of(const Job& job, uint32_t local_rank) {
    const Block block = block_of(job, local_rank);
    const auto set = [](const std::string& name, const auto& value) { return name + "=" + value; };
    const std::string rank = std::to_string(job.first_rank + local_rank);
    const std::string world = std::to_string(job.world), local = std::to_string(local_rank - block.begin),
                      local_world = std::to_string(block.end - block.begin);
    std::vector<std::string> out = {
        set("NEXAR_RANK", rank),
        set("NEXAR_WORLD_SIZE", world),
        set("NEXAR_LOCAL_RANK", local),
        set("NEXAR_LOCAL_WORLD_SIZE", local_world),
        set("NEXAR_INSTANCE", "0"),  // of this rank: how often it was started again
        set("NEXAR_JOB_SECRET", job.secret),
        // What torch.distributed's env:// reads.
        set("RANK", rank),
        set("WORLD_SIZE", world),
        set("LOCAL_RANK", local),
        set("LOCAL_WORLD_SIZE", local_world),
    };
    if (!job.group.empty()) out.push_back(set("NEXAR_GROUP", job.group));
    if (!job.sockets.empty()) out.push_back(set("NEXAR_SOCKET", job.sockets[block.index]));
    if (!job.master_address.empty()) {
        out.push_back(set("MASTER_ADDR", job.master_address));
        out.push_back(set("MASTER_PORT", std::to_string(job.master_port)));
    }
    return out;
}

std::vector<std::string> full_environment(const Job& job, uint32_t local_rank) {
    std::vector<std::string> out = environment_of(job, local_rank);
    // The last one of a name wins, as in a shell.
    for (auto entry = job.environment.rbegin(); entry != job.environment.rend(); ++entry)
        add_unless_set(out, *entry);
    for (char** entry = environ; *entry != nullptr; ++entry) add_unless_set(out, *entry);
    // Python keeps lines back when its output is a pipe or a file: a rank that hangs would have printed
    // nothing.
    add_unless_set(out, "PYTHONUNBUFFERED=1");
    return out;
}

std::string environment_complaint(const Job& job, const std::string& own) {
    for (const std::string& entry : job.environment) {
        const size_t equals = entry.find('=');
        if (equals == std::string::npos || equals == 0) return "--env '" + entry + "' is not NAME=VALUE";
        for (const std::string& set : environment_of(job, 0))
            if (set.starts_with(entry.substr(0, equals + 1)))
                return "--env " + entry.substr(0, equals) + ": " + own;
    }
    return "";
}

std::string output_path(const Job& job, uint32_t local_rank, const char* stream) {
    return job.output_dir + "/rank-" + std::to_string(job.first_rank + local_rank) + "." + stream;
}

Result<void> prepare_output(const Job& job) {
    if (job.output_dir.empty()) return {};
    NEXAR_TRY_VOID(make_folders(job.output_dir));
    NEXAR_TRY_VOID(remove_stale_output(job));
    for (uint32_t i = 0; i < job.ranks; ++i)
        for (const char* stream : {"stdout", "stderr"})
            if (Descriptor(open_output(job, i, stream, O_TRUNC)).fd < 0)
                return io_error("--output-dir: cannot write " + output_path(job, i, stream));
    return {};
}

Result<Ends> open_standard(const Job& job, uint32_t local_rank) {
    Ends ends;
    NEXAR_TRY_VOID(open_input_end(job, local_rank, ends));
    NEXAR_TRY_VOID(open_output_end(job, local_rank, "stdout", ends.theirs.out, ends.ours.out));
    NEXAR_TRY_VOID(open_output_end(job, local_rank, "stderr", ends.theirs.err, ends.ours.err));
    return ends;
}

// The pipe that carries the reason closes itself at a successful exec.
Start start_process(const Job& job, uint32_t local_rank, const Standard& standard, const sigset_t& mask) {
    std::vector<std::string> command = job.command;
    std::vector<std::string> environment = full_environment(job, local_rank);
    const auto arguments = pointers(command);
    const auto variables = pointers(environment);
    int complaint[2];
    if (::pipe2(complaint, O_CLOEXEC) != 0) return {-1, errno};
    Descriptor reading(complaint[0]), writing(complaint[1]);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return {-1, errno};
    if (pid == 0) become(arguments, variables, standard, mask, parent, writing.fd);
    writing.reset();
    ::setpgid(pid, pid);  // both processes call it: the order is open
    int why = 0;
    ssize_t got = 0;
    do got = ::read(reading.fd, &why, sizeof why);
    while (got < 0 && errno == EINTR);
    return {pid, got == sizeof why ? why : 0};
}

}  // namespace nexarctl
