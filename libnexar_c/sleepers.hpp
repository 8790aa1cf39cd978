// Sleepers: puts a session's threads to sleep and wakes them (docs/protocol/shm.md [S9]). They sleep on
// several words at once (futex_waitv). Where the kernel or a sandbox refuses that, one of them, the leader,
// polls the socket for the daemon's doorbell, and the others sleep on `nudges_`.
//
// Thread: any.
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

    // Changes with every nudge. Requires: read before the caller's last check, so that a later nudge ends the
    // sleep.
    uint32_t nudges();
    // Wakes every sleeper of this session.
    void nudge();
    // Sleeps until one of at most 3 words differs from its expected value, or a nudge, or a spurious wake-up.
    Woken sleep(const Watched* words, unsigned count, uint32_t nudges_seen, Time until);

    // The descriptor for nexar_session_fd; from now on the daemon rings the doorbell. The caller then checks
    // for completions, and calls notify_application() for those for which the daemon did not ring [S5].
    Result<int> arm_fd();
    void notify_application();
    // Around nexar_session_poll: begin_poll() clears the descriptor, rearm() comes before the last check.
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
    const bool by_doorbell_;  // futex_waitv does not work here
    uint32_t nudges_ = 0;     // a futex of this process

    std::mutex doorbell_mutex_;  // guards bell_wanted and fd_used_
    bool fd_used_ = false;       // arm_fd() was called: the application polls
    int app_fd_ = -1;            // an epoll of the socket and of app_eventfd_; -1 before arm_fd()
    int app_eventfd_ = -1;  // readable for completions without a doorbell, and for those a leader has read

    // The rest is used with by_doorbell_ only.
    std::atomic<bool> leading_{false};  // a thread polls the socket
    uint32_t tail_notified_ = 0;        // the leader's: completion_tail when the others were last woken
    int nudge_fd_ = -1;                 // wakes the leader
};

}  // namespace nexar::c
