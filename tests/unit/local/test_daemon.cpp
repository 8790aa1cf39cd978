#include "test_daemon.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/check.hpp"
#include "fake_engine.hpp"

namespace nexar::test {

namespace {

Time now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Time(Duration(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec));
}

// Of each of its threads: its state, its system call, and where it sleeps in the kernel.
void print_where_it_hangs(pid_t pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
    for (const auto& task : std::filesystem::directory_iterator(tasks))
        for (const char* what : {"stat", "syscall", "wchan", "stack"}) {
            std::ifstream file(task.path() / what);
            const std::string text(std::istreambuf_iterator<char>(file), {});
            std::fprintf(stderr, "%s %s: %s\n", task.path().c_str(), what, text.c_str());
        }
}

// A thread that ends at the moment of a fork may leave the child a lock of the sanitizer's that nobody gives
// back: detached threads of earlier tests get a moment. Those that go on do not count.
void let_threads_end() {
    const auto threads = [] {
        const std::filesystem::directory_iterator tasks("/proc/self/task");
        return std::distance(begin(tasks), end(tasks));
    };
    for (int i = 0; threads() > 1 && i < 100; ++i) ::usleep(1000);  // sleep: between two looks
}

std::string fresh_path() {
    static std::atomic<int> number{0};
    const char* tmp = std::getenv("TMPDIR");
    return std::string(tmp ? tmp : "/tmp") + "/nexar-test-" + std::to_string(::getpid()) + "-" +
           std::to_string(number++) + ".sock";
}

class Epoll final : public local::Descriptors {
  public:
    Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}
    void watch(int fd, uint64_t key) override {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = key;
        NEXAR_CHECK(::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
    }
    void unwatch(int fd, uint64_t) override {
        NEXAR_CHECK(::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
    }
    void wait(local::Server& server, std::mutex& turn, int timeout_ms) {
        epoll_event events[16];
        const int n = ::epoll_wait(fd_.get(), events, 16, timeout_ms);
        const std::lock_guard lock(turn);
        server.on_woken();
        for (int i = 0; i < n; ++i) server.on_readable(now(), events[i].data.u64);
    }

  private:
    local::Fd fd_;
};

}  // namespace

void run_daemon(const std::string& path, const DaemonOptions& options, std::atomic<bool>& stop,
                std::mutex& turn, int ready_fd, DaemonCounters* counters) {
    Log log([](Level, const std::string&) {});
    FakeEngine engine;
    Epoll epoll;
    local::ServerConfig config;
    config.sockets[0].path = path;
    config.node = engine.node;
    config.sabotage = options.sabotage;
    config.handshake_timeout = options.handshake_timeout;
    config.session = options.limits;
    config.session.memfds_in_place = options.memfds_in_place;
    config.closings_wait = options.closings_wait;
    Tenants tenants(options.tenants);
    auto server = local::Server::open(config, engine, tenants, epoll, log);
    if (!server) std::fprintf(stderr, "test daemon: %s\n", server.error().text.c_str());
    NEXAR_CHECK(server);
    engine.clients = server->get();
    (*server)->bulk_count() = options.bulk_threads;
    if (ready_fd >= 0) NEXAR_CHECK(::write(ready_fd, "r", 1) == 1);
    while (!stop.load()) {
        std::unique_lock lock(turn);
        (*server)->on_time(now());
        engine.on_time(now());
        if (counters) {
            counters->sessions = (*server)->sessions();
            counters->regions = (*server)->regions();
            counters->pending = engine.pending();
            counters->ended = engine.sessions_ended;
            counters->ops = engine.ops_seen;
            counters->groups_freed = engine.groups_freed;
        }
        const bool idle = (*server)->poll(now()) == 0 && (*server)->prepare_to_sleep();
        const Time wake =
            std::min({engine.wake_at(), (*server)->wake_at(), now() + std::chrono::milliseconds(20)});
        const int ms = idle ? static_cast<int>(std::clamp<int64_t>(to_ms(wake - now()) + 1, 0, 20)) : 0;
        lock.unlock();
        epoll.wait(**server, turn, ms);
    }
    (*server)->stop(now(), "the daemon stops");
}

ThreadDaemon::ThreadDaemon(const DaemonOptions& options) : path_(fresh_path()) {
    int fds[2];
    NEXAR_CHECK(::pipe(fds) == 0);
    thread_ = std::thread(
        [this, options, fd = fds[1]] { run_daemon(path_, options, stop_, turn_, fd, &counters); });
    char byte;
    NEXAR_CHECK(::read(fds[0], &byte, 1) == 1);
    ::close(fds[0]);
    ::close(fds[1]);
}

ThreadDaemon::~ThreadDaemon() {
    stop_ = true;
    thread_.join();
}

bool ThreadDaemon::eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 12'000; ++i) {
        if (condition()) return true;
        ::usleep(5000);  // sleep: between two looks
    }
    return false;
}

Child::Child(const std::function<int()>& body) {
    let_threads_end();
    pid_ = ::fork();
    NEXAR_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(90);  // whatever happens
    const int status = body();
    std::fflush(nullptr);
    ::_exit(status);
}

Child::~Child() {
    if (reaped_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

int Child::wait(int seconds) {
    for (int i = 0; i < seconds * 500; ++i) {
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            reaped_ = true;
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        ::usleep(2000);  // sleep: between two looks
    }
    print_where_it_hangs(pid_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    reaped_ = true;
    return -1000;
}

void Child::kill(int signal) {
    ::kill(pid_, signal);
}

ProcessDaemon::ProcessDaemon(const DaemonOptions& options) : path_(fresh_path()) {
    int fds[2];
    NEXAR_CHECK(::pipe(fds) == 0);
    child_ = std::make_unique<Child>([this, options, fd = fds[1]] {
        std::atomic<bool> stop{false};
        std::mutex turn;
        run_daemon(path_, options, stop, turn, fd, nullptr);
        return 0;
    });
    ::close(fds[1]);
    char byte;
    NEXAR_CHECK(::read(fds[0], &byte, 1) == 1);
    ::close(fds[0]);
}

ProcessDaemon::~ProcessDaemon() {
    child_.reset();
    ::unlink(path_.c_str());
}

}  // namespace nexar::test
