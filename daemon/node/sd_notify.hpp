// What systemd is told over NOTIFY_SOCKET (sd_notify(3)), without its library: one datagram per message.
// Outside of systemd, where the variable is not set, everything here does nothing. Thread: the control
// loop's.
#pragma once

#include <optional>
#include <string>

#include "core/time.hpp"

namespace nexar::node {

class SystemdNotifier {
  public:
    // From the environment, which it clears of these variables: children must not speak for us.
    SystemdNotifier();
    // `notify_socket`: $NOTIFY_SOCKET, a path or "@name" for the abstract namespace; empty: nobody listens.
    // `watchdog_usec`, `watchdog_pid`: $WATCHDOG_USEC and $WATCHDOG_PID; another process's watchdog is not
    // ours.
    SystemdNotifier(const std::string& notify_socket, const std::string& watchdog_usec,
                    const std::string& watchdog_pid);
    ~SystemdNotifier();
    SystemdNotifier(const SystemdNotifier&) = delete;
    SystemdNotifier& operator=(const SystemdNotifier&) = delete;

    // False: systemd listens but could not be told; problem() says why. Its own time-outs handle the rest.
    bool ready();
    bool stopping();
    bool status(const std::string& text);  // one line, shown by systemctl status
    bool watchdog();                       // the loop turns: at least once per watchdog_interval()

    std::optional<Duration> watchdog_interval() const { return interval_; }
    bool active() const { return fd_ >= 0; }
    const std::string& problem() const { return problem_; }

  private:
    void set_up(const std::string& watchdog_usec, const std::string& watchdog_pid);
    bool send(const std::string& text);

    int fd_ = -1;
    std::string socket_;
    std::string problem_;
    std::optional<Duration> interval_;
};

}  // namespace nexar::node
