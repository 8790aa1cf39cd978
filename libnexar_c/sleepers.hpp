// The threads of a session that sleep, and how they are woken: on several words at once (futex_waitv), or,
// where the kernel or a sandbox refuses that, by a leader who polls the socket. Any thread.
// docs/protocol/shm.md [S9].
#pragma once

#include <atomic>
#include <mutex>

#include "connection.hpp"
#include "sleep.hpp"

namespace nexar::c {

class Sleepers {
  public:
    explicit Sleepers(const Connection& connection);
    ~Sleepers();
    Sleepers(const Sleepers&) = delete;
    Sleepers& operator=(const Sleepers&) = delete;
    Result<void> open();  // once, before anything else

    // Changes with every nudge. Read it before the last look; what came after that look then ends the sleep.
    uint32_t nudges();
    // Every sleeper of this session looks again.
    void nudge();
    // Until one of at most 3 words differs from what was expected, somebody nudged, or without a reason.
    Woken sleep(const Watched* words, unsigned count, uint32_t nudges_seen, Time until);

    // The descriptor for nexar_session_fd, and from now on the daemon rings. Then look, and tell the
    // application of what the daemon did not ring for [S5].
    Result<int> arm_fd();
    void notify_application();
    // Around a look by nexar_session_poll: forgets what rang, and arms again before the last look.
    void begin_poll();
    void rearm();
    void end_poll();

  private:
    uint32_t& bell_wanted() const { return connection_->control().header().bell_wanted; }
    Woken lead(const Watched* words, unsigned count, uint32_t nudges_seen, Time until);
    Woken poll_socket(Time until);
    bool has_changed(const Watched* words, unsigned count, uint32_t nudges_seen);
    void leave(bool rang);

    const Connection* connection_;
    const bool by_doorbell_;
    uint32_t nudges_ = 0;  // a futex of this process

    std::mutex doorbell_mutex_;  // bell_wanted, and whether the application polls
    bool fd_used_ = false;
    int app_fd_ = -1;       // an epoll of the socket and of app_eventfd_
    int app_eventfd_ = -1;  // for what the socket does not tell the application, or a leader took from it

    // The rest: by bell only.
    std::atomic<bool> leading_{false};
    uint32_t tail_notified_ = 0;  // the leader's: completion_tail when the others were last woken
    int nudge_fd_ = -1;           // wakes the leader
};

}  // namespace nexar::c
