// A daemon for tests: local::Server, a FakeEngine and an epoll loop, in a process or a thread of its own.
// Everything has a deadline: a hung child is killed, and the test fails.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "local/server.hpp"

namespace nexar::test {

struct DaemonOptions {
    local::SessionCore::Sabotage sabotage;
    TenantLimits tenants;
    Duration handshake_timeout{60'000'000'000};
    bool tick = true;
    local::SessionLimits limits;
    bool memfds_in_place = true;
    bool closings_wait = false;
    uint32_t bulk_threads = 0;  // as if so many had work
};

// Runs until `stop`; the counters are for tests of the same process.
struct DaemonCounters {
    std::atomic<size_t> sessions{0}, pending{0}, ended{0}, regions{0}, ops{0}, groups_freed{0};
};
// It does nothing while somebody else holds `turn`.
void run_daemon(const std::string& path, const DaemonOptions& options, std::atomic<bool>& stop,
                std::mutex& turn, int ready_fd, DaemonCounters* counters);

// In a thread: sanitizers see both sides.
class ThreadDaemon {
  public:
    explicit ThreadDaemon(const DaemonOptions& options = {});
    ~ThreadDaemon();
    const std::string& path() const { return path_; }
    DaemonCounters counters;
    // False when it took a minute.
    bool eventually(const std::function<bool()>& condition);
    // The daemon does nothing until the lock is released.
    std::unique_lock<std::mutex> hold() { return std::unique_lock(turn_); }

  private:
    std::string path_;
    std::atomic<bool> stop_{false};
    std::mutex turn_;
    std::thread thread_;
};

// A child process that runs `body` and exits with its answer; killed at the end if it still runs.
class Child {
  public:
    explicit Child(const std::function<int()>& body);
    ~Child();
    Child(const Child&) = delete;
    // Exit status, or -signal, or -1000 when it did not end in time (it is killed then).
    int wait(int seconds = 60);
    void kill(int signal);
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
    bool reaped_ = false;
};

// In a process: may be killed and stopped.
class ProcessDaemon {
  public:
    explicit ProcessDaemon(const DaemonOptions& options = {});
    ~ProcessDaemon();
    const std::string& path() const { return path_; }
    Child& process() { return *child_; }

  private:
    std::string path_;
    std::unique_ptr<Child> child_;
};

}  // namespace nexar::test
