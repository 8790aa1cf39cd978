// sd_notify over real datagram sockets.
#include "node/sd_notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

using namespace nexar;
using namespace nexar::node;
using namespace std::chrono_literals;

namespace {

// systemd's end.
class Manager {
  public:
    explicit Manager(const std::string& name)
        : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, name.data(), name.size());
        if (name[0] == '@') address.sun_path[0] = '\0';
        const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + name.size());
        REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    }
    ~Manager() { ::close(fd_); }
    Manager(const Manager&) = delete;
    std::string received() const {
        char buffer[512];
        const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
        return got < 0 ? "(nothing)" : std::string(buffer, size_t(got));
    }

  private:
    int fd_;
};

struct Folder {
    Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path = std::filesystem::temp_directory_path() / "nexar-notify.XXXXXX";
};

void notify_all_states(const std::string& name) {
    const Manager manager(name);
    SystemdNotifier notifier(name, "", "");
    REQUIRE(notifier.active());
    REQUIRE(notifier.ready());
    REQUIRE(manager.received() == "READY=1");
    REQUIRE(notifier.status("member\nREADY=0 of cluster"));
    REQUIRE(manager.received() == "STATUS=member READY=0 of cluster");
    REQUIRE(notifier.watchdog());
    REQUIRE(manager.received() == "WATCHDOG=1");
    REQUIRE(notifier.stopping());
    REQUIRE(manager.received() == "STOPPING=1");
    REQUIRE(manager.received() == "(nothing)");
}

}  // namespace

TEST_CASE("systemd receives every message as one datagram, at a path and at an abstract name") {
    const Folder folder;
    notify_all_states(folder.path + "/notify");
    notify_all_states("@nexar-notify-test-" + std::to_string(::getpid()));
}

TEST_CASE("outside of systemd nothing is sent and nothing is wrong") {
    SystemdNotifier notifier("", "30000000", "");
    REQUIRE_FALSE(notifier.active());
    REQUIRE(notifier.ready());
    REQUIRE(notifier.stopping());
    REQUIRE(notifier.problem().empty());
    REQUIRE_FALSE(notifier.watchdog_interval());
}

TEST_CASE("a socket that cannot be used is a problem with a text") {
    for (const std::string& name : {std::string("relative"), std::string("@"), "/" + std::string(200, 'x')}) {
        CAPTURE(name);
        SystemdNotifier notifier(name, "", "");
        REQUIRE_FALSE(notifier.active());
        REQUIRE_FALSE(notifier.ready());
        REQUIRE(notifier.problem().find("NOTIFY_SOCKET") != std::string::npos);
    }
    const Folder folder;
    SystemdNotifier nobody(folder.path + "/nobody", "", "");
    REQUIRE_FALSE(nobody.ready());
    REQUIRE(nobody.problem().find(folder.path) != std::string::npos);
}

TEST_CASE("the watchdog is ours only if it names us, and its time is a number") {
    const Folder folder;
    const std::string name = folder.path + "/notify";
    const Manager manager(name);
    const std::string us = std::to_string(::getpid());
    REQUIRE(SystemdNotifier(name, "30000000", "").watchdog_interval() == Duration(30s));
    REQUIRE(SystemdNotifier(name, "30000000", us).watchdog_interval() == Duration(30s));
    REQUIRE_FALSE(SystemdNotifier(name, "30000000", "1").watchdog_interval());
    REQUIRE_FALSE(SystemdNotifier(name, "30000000", "x").watchdog_interval());
    for (const char* bad : {"", "0", "-1", "30s", "99999999999999999999999", "18446744073709551615"})
        REQUIRE_FALSE(SystemdNotifier(name, bad, us).watchdog_interval());
}

TEST_CASE("the environment is read once and cleared: children do not speak for the daemon") {
    const Folder folder;
    const std::string name = folder.path + "/notify";
    const Manager manager(name);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    ::setenv("WATCHDOG_USEC", "5000000", 1);
    ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
    SystemdNotifier notifier;
    REQUIRE(notifier.watchdog_interval() == Duration(5s));
    REQUIRE(notifier.ready());
    REQUIRE(manager.received() == "READY=1");
    for (const char* variable : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
        REQUIRE(std::getenv(variable) == nullptr);
}
