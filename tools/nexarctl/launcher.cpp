#include "nexarctl/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "nexarctl/input_pump.hpp"
#include "nexarctl/line_writer.hpp"
#include "nexarctl/rank_process.hpp"

namespace nexarctl {

using nexar::Errc;
using nexar::fail;
using nexar::Result;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int exit_timed_out = 124;     // as timeout(1)
constexpr int reads_per_turn_max = 16;  // of one pipe

std::chrono::nanoseconds seconds(double s) {
    return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

struct Stream {
    int fd = -1;  // the pipe's reading end; -1: ended, or written to a file
    int to = 1;
    LineWriter writer;
};

struct Child {
    pid_t pid = -1;
    bool ended = false;
    Stream out, err;
};

class Launcher {
  public:
    Launcher(const Job& job, const Output& output) : job_(&job), output_(&output) {}
    ~Launcher();
    Result<void> start();
    int stay();

  private:
    Result<void> start_rank(uint32_t local_rank);
    bool running() const;
    bool streaming() const;
    int wait_ms(Clock::time_point now) const;
    void poll_once();
    void read_signals();
    void reap();
    void on_exit(Child& child, int status);
    void read_stream(Stream& stream);
    void finish(Stream& stream);
    void begin_end(Clock::time_point now, int code, double delay_s);
    void on_time(Clock::time_point now);
    void kill_all(int signal);

    const Job* job_;
    const Output* output_;
    std::vector<Child> children_;  // by local rank
    InputPump input_;              // this process's standard input to rank 0
    int signals_ = -1;             // a signalfd; -1: not opened
    sigset_t old_mask_{};          // the caller's, valid when masked_
    bool masked_ = false;          // the signals of signals_ are blocked, and SIGPIPE is ignored
    void (*old_pipe_)(int) = SIG_DFL;
    int code_ = 0;         // the job's exit code so far
    bool ending_ = false;  // a rank failed, a signal or the timeout came
    // The job's timeout; SIGTERM and SIGKILL to ranks that still run; the end of reading their output.
    // Nothing: not due.
    std::optional<Clock::time_point> deadline_, terminate_at_, kill_at_, drain_until_;
};

Launcher::~Launcher() {
    for (auto& child : children_) {
        if (child.pid > 0 && !child.ended) {
            ::kill(-child.pid, SIGKILL);
            ::kill(child.pid, SIGKILL);
            ::waitpid(child.pid, nullptr, 0);
        }
        for (Stream* stream : {&child.out, &child.err})
            if (stream->fd >= 0) ::close(stream->fd);
    }
    if (signals_ >= 0) ::close(signals_);
    if (!masked_) return;
    ::signal(SIGPIPE, old_pipe_);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

// A process that was started without descriptors 0, 1 or 2 would get pipes and files under these numbers.
void occupy_standard_descriptors() {
    int fd = -1;
    do fd = ::open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) ::close(fd);
}

Result<void> Launcher::start() {
    occupy_standard_descriptors();
    sigset_t ours;
    ::sigemptyset(&ours);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGCONT}) ::sigaddset(&ours, signal);
    ::sigprocmask(SIG_BLOCK, &ours, &old_mask_);
    old_pipe_ = ::signal(SIGPIPE, SIG_IGN);
    masked_ = true;
    signals_ = ::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) return fail(Errc::io, std::string("cannot make a signalfd: ") + std::strerror(errno));
    if (job_->timeout_s > 0) deadline_ = Clock::now() + seconds(job_->timeout_s);
    children_.reserve(job_->ranks);
    for (uint32_t i = 0; i < job_->ranks; ++i) {
        NEXAR_TRY_VOID(start_rank(i));
    }
    return {};
}

Result<void> Launcher::start_rank(uint32_t local_rank) {
    const uint32_t rank = job_->first_rank + local_rank;
    NEXAR_TRY(auto ends, open_standard(*job_, local_rank));
    const auto stream = [&](Descriptor& fd, int to, const char* name) {
        const std::string prefix = job_->prefix ? "[" + std::to_string(rank) + "] " : "";
        return job_->json ? Stream{fd.release(), 1, LineWriter::json(rank, name)}
                          : Stream{fd.release(), to, LineWriter::prefixed(prefix)};
    };
    children_.push_back({-1, false, stream(ends.ours.out, 1, "stdout"), stream(ends.ours.err, 2, "stderr")});
    if (ends.ours.in.fd >= 0) input_.open(ends.ours.in.release());
    const Start start = start_process(*job_, local_rank, ends.theirs, old_mask_);
    children_.back().pid = start.pid;
    if (start.why == 0) return {};
    return fail(start.why == ENOENT ? Errc::not_found : Errc::io,
                "cannot start '" + job_->command[0] + "': " + std::strerror(start.why));
}

bool Launcher::running() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& c) { return !c.ended; });
}
bool Launcher::streaming() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& c) { return c.out.fd >= 0 || c.err.fd >= 0; });
}

int Launcher::stay() {
    // A grandchild may hold a pipe for ever: after the last rank's end we read on for a moment only.
    while (running() || (streaming() && (!drain_until_ || Clock::now() < *drain_until_))) {
        poll_once();
        on_time(Clock::now());
        if (!running() && !drain_until_) drain_until_ = Clock::now() + std::chrono::milliseconds(200);
    }
    for (auto& child : children_) {
        for (Stream* stream : {&child.out, &child.err}) {
            read_stream(*stream);
            finish(*stream);
        }
        ::kill(-child.pid, SIGKILL);  // what a rank started and left behind
    }
    return code_;
}

int Launcher::wait_ms(Clock::time_point now) const {
    constexpr int longest_ms = 60'000;
    auto wake = now + std::chrono::milliseconds(longest_ms);
    for (const auto& at : {deadline_, terminate_at_, kill_at_, drain_until_})
        if (at) wake = std::min(wake, *at);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(wake - now).count();
    return static_cast<int>(std::clamp<decltype(left)>(left + 1, 0, longest_ms));
}

void Launcher::poll_once() {
    std::vector<pollfd> watched{{signals_, POLLIN, 0}};
    std::vector<Stream*> streams{nullptr};
    for (auto& child : children_) {
        for (Stream* stream : {&child.out, &child.err}) {
            if (stream->fd < 0) continue;
            watched.push_back({stream->fd, POLLIN, 0});
            streams.push_back(stream);
        }
    }
    const size_t outputs = watched.size();
    watched.push_back(input_.wants());
    if (::poll(watched.data(), watched.size(), wait_ms(Clock::now())) <= 0) return;
    for (size_t i = 1; i < outputs; ++i)
        if (watched[i].revents != 0) read_stream(*streams[i]);
    if (watched.back().revents != 0) input_.move();
    if (watched[0].revents != 0) read_signals();
}

void Launcher::read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == sizeof info) {
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal == SIGCHLD || signal == SIGCONT) continue;  // SIGCONT: the terminal may be ours again
        kill_all(signal);
        if (!ending_)
            begin_end(Clock::now(), 128 + signal, job_->grace_s);
        else
            kill_at_ = Clock::now();  // the second Ctrl-C is meant
    }
    reap();
}

void Launcher::reap() {
    for (auto& child : children_) {
        int status = 0;
        if (child.ended || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
        child.ended = true;
        on_exit(child, status);
    }
}

void Launcher::on_exit(Child& child, int status) {
    const int code = exit_code_of(status);
    const auto local_rank = static_cast<uint32_t>(&child - children_.data());
    if (job_->first_rank + local_rank == 0) input_.close();
    if (code == 0 || ending_) return;
    (*output_)(2, "nexarctl: rank " + std::to_string(job_->first_rank + local_rank) +
                      (code > 128 ? " was ended by signal " + std::to_string(code - 128)
                                  : " failed with exit code " + std::to_string(code)) +
                      (job_->keep_going ? "; the others go on (--keep-going)\n" : "; ending the others\n"));
    if (!job_->keep_going)
        begin_end(Clock::now(), code, job_->failure_delay_s);
    else if (code_ == 0)
        code_ = code;
}

void Launcher::read_stream(Stream& stream) {
    char buffer[16384];
    for (int i = 0; i < reads_per_turn_max && stream.fd >= 0; ++i) {
        const ssize_t got = ::read(stream.fd, buffer, sizeof buffer);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) return finish(stream);
        const std::string lines = stream.writer.add({buffer, static_cast<size_t>(got)});
        if (!lines.empty() && !(*output_)(stream.to, lines) && !ending_)
            begin_end(Clock::now(), 128 + SIGPIPE,
                      0);  // the output has no reader any more: "nexarctl run ... | head"
    }
}

void Launcher::finish(Stream& stream) {
    if (stream.fd < 0) return;
    ::close(stream.fd);
    stream.fd = -1;
    const std::string rest = stream.writer.end();
    if (!rest.empty()) (*output_)(stream.to, rest);
}

// The others get SIGTERM after the delay, and SIGKILL after the grace.
void Launcher::begin_end(Clock::time_point now, int code, double delay_s) {
    ending_ = true;
    code_ = code;
    deadline_.reset();
    terminate_at_ = now + seconds(delay_s);
}

void Launcher::on_time(Clock::time_point now) {
    if (deadline_ && now >= *deadline_) {
        char text[96];
        std::snprintf(text, sizeof text, "nexarctl: the job did not end within %g s; ending it\n",
                      job_->timeout_s);
        (*output_)(2, text);
        begin_end(now, exit_timed_out, 0);
    }
    if (terminate_at_ && now >= *terminate_at_) {
        terminate_at_.reset();
        kill_all(SIGTERM);
        kill_at_ = now + seconds(job_->grace_s);
    }
    if (kill_at_ && now >= *kill_at_) {
        kill_at_.reset();
        terminate_at_.reset();
        kill_all(SIGKILL);
    }
}

// To the rank's whole process group: ranks are often shell scripts.
void Launcher::kill_all(int signal) {
    for (const auto& child : children_)
        if (!child.ended) ::kill(-child.pid, signal);
}

}  // namespace

int exit_code_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string random_secret() {
    static constexpr char digits[] = "0123456789abcdef";
    unsigned char bytes[32];
    if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) std::abort();
    std::string out;
    for (const unsigned char byte : bytes) {
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return out;
}

bool write_all(int fd, const std::string& text) {
    size_t written = 0;
    while (written < text.size()) {
        const ssize_t n = ::write(fd, text.data() + written, text.size() - written);
        if (n > 0)
            written += static_cast<size_t>(n);
        else if (errno == EAGAIN) {
            pollfd watched{fd, POLLOUT, 0};
            ::poll(&watched, 1, 1000);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

Result<int> run_job(const Job& job, const Output& output) {
    Launcher launcher(job, output);
    const auto started = launcher.start();
    if (!started) return fail(started.error());
    return launcher.stay();
}

}  // namespace nexarctl
