// A descriptor whose close() waits: a TCP connection that lingers, with bytes that nobody reads. Source:
// tcp(7), socket(7) SO_LINGER.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "loop/fd.hpp"

namespace nexar::test {

class StuckSocket {
  public:
    StuckSocket() {
        loop::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(listener.get(), 1) == 0);
        REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        stuck_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(stuck_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
        sockaddr_in own{};
        REQUIRE(::getsockname(stuck_.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
        char row[64];  // as /proc/net/tcp has it: both ends, and the state FIN_WAIT1
        std::snprintf(row, sizeof row, "%08X:%04X %08X:%04X 04", own.sin_addr.s_addr, ntohs(own.sin_port),
                      address.sin_addr.s_addr, ntohs(address.sin_port));
        ends_ = row;
        reader_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        REQUIRE(reader_);
        constexpr linger hour{1, 3600};
        REQUIRE(::setsockopt(stuck_.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
        fill();
    }

    int fd() const { return stuck_.get(); }
    loop::Fd take() { return std::move(stuck_); }  // the one that closes it last waits
    void let_go() { reader_.reset(); }             // by a reset
    // Somebody closes it, and waits. False: nobody does in a minute.
    bool is_being_closed() const {
        for (int i = 0; i < 60'000; ++i, ::usleep(1000)) {  // sleep: between two looks
            std::ifstream table("/proc/net/tcp");
            for (std::string line; std::getline(table, line);)
                if (line.find(ends_) != std::string::npos) return true;
        }
        return false;
    }

  private:
    void fill() {
        static constexpr char bytes[65536] = {};
        while (::send(stuck_.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
        REQUIRE(errno == EAGAIN);
    }

    loop::Fd stuck_, reader_;
    std::string ends_;
};

// Passes the descriptor with `bytes`, and closes it here.
inline void pass_descriptor(int connection, const loop::Fd descriptor, std::string_view bytes) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part, header.msg_iovlen = 1;
    header.msg_control = control, header.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor.get();
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    REQUIRE(::sendmsg(connection, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

}  // namespace nexar::test
