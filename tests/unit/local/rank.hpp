// A rank in few words: what the tests of the local path need of include/nexar.h.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>

#include "nexar.h"

namespace nexar::test {

struct SessionWish {
    uint32_t slots = 256;
    uint64_t scratch_limit = uint64_t{256} << 20;
    int64_t daemon_unresponsive_ms = 10000;
    int64_t spin_us = 50;
};

inline nexar_status try_open_session(const std::string& path, nexar_session** out,
                                     const SessionWish& wish = {}) {
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = path.c_str();
    options.slots = wish.slots;
    options.scratch_limit = wish.scratch_limit;
    options.daemon_unresponsive_ms = wish.daemon_unresponsive_ms;
    options.spin_us = wish.spin_us;
    return nexar_session_open(&options, out);
}

inline nexar_status try_open_group(nexar_session* session, const std::string& name, uint32_t size,
                                   nexar_group** out, int64_t timeout_ms = 10000) {
    nexar_group_options options;
    nexar_group_options_init(&options, sizeof options);
    options.name = name.c_str();
    options.size = size;
    options.timeout_ms = timeout_ms;
    return nexar_group_open(session, &options, out);
}

inline nexar_error last_failure() {
    nexar_error error{};
    error.struct_size = sizeof error;
    static_cast<void>(nexar_last_error(&error));
    return error;
}

// A session that is closed at the end, and its groups.
class TestSession {
  public:
    explicit TestSession(const std::string& path, const SessionWish& wish = {}) {
        REQUIRE(try_open_session(path, &session_, wish) == NEXAR_OK);
    }
    ~TestSession() { nexar_session_close(session_); }
    TestSession(const TestSession&) = delete;
    TestSession& operator=(const TestSession&) = delete;

    nexar_session* get() const { return session_; }
    nexar_group* group(const std::string& name, uint32_t size = 1) const {
        nexar_group* out = nullptr;
        REQUIRE(try_open_group(session_, name, size, &out) == NEXAR_OK);
        return out;
    }
    nexar_session_stats stats() const {
        nexar_session_stats out{};
        out.struct_size = sizeof out;
        REQUIRE(nexar_session_stats_get(session_, &out) == NEXAR_OK);
        return out;
    }

  private:
    nexar_session* session_ = nullptr;
};

// This process's connection to the daemon that listens there. -1: it has none.
inline int connection_to(const std::string& path) {
    for (int fd = 3; fd < 256; ++fd) {
        sockaddr_un peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sun_family == AF_UNIX &&
            size > sizeof peer.sun_family && path == peer.sun_path)
            return fd;
    }
    return -1;
}

}  // namespace nexar::test
