// SystemdNotifier: notifies systemd over NOTIFY_SOCKET without its library, one datagram per message. Without
// the variable every call does nothing.
//
// Thread: the control loop's.
// Source: sd_notify(3).
#pragma once

#include <optional>
#include <string>

#include "core/time.hpp"

namespace nexar::node {

class SystemdNotifier {
  public:
    // Reads the variables and removes them from the environment, so that child processes do not notify
    // systemd.
    SystemdNotifier();
    // `notify_socket`: $NOTIFY_SOCKET, a path or "@name" for the abstract namespace; empty: no systemd.
    // `watchdog_usec`, `watchdog_pid`: $WATCHDOG_USEC and $WATCHDOG_PID; the watchdog of another pid is
    // ignored.
    SystemdNotifier(const std::string& notify_socket, const std::string& watchdog_usec,
                    const std::string& watchdog_pid);
    ~SystemdNotifier();
    SystemdNotifier(const SystemdNotifier&) = delete;
    SystemdNotifier& operator=(const SystemdNotifier&) = delete;

    // False: the notification failed, and problem() has the reason. systemd's own time-outs handle the rest.
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

    int fd_ = -1;                       // -1: no systemd, or no socket
    std::string socket_;                // NOTIFY_SOCKET's value
    std::string problem_;               // the last failure; empty: none
    std::optional<Duration> interval_;  // none: systemd has no watchdog for this process
};

}  // namespace nexar::node
