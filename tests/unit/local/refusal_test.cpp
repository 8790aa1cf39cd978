// What the library makes of a refusal, against a server that does nothing else.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <thread>

#include "local_protocol.h"
#include "loop/fd.hpp"
#include "nexar.h"
#include "rank.hpp"

using namespace nexar;
using namespace nexar::test;
using loop::Fd;

TEST_CASE("a refusal that came before the hello was read is read all the same", "[local]") {
    const std::string path = "/tmp/nexar-refusing-" + std::to_string(::getpid()) + ".sock";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ::unlink(path.c_str());
    const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    constexpr int rounds = 200;
    std::jthread refusing([&] {
        for (int round = 0; round < rounds; ++round) {
            pollfd next{listener.get(), POLLIN, 0};
            if (::poll(&next, 1, 10000) != 1) return;
            const Fd client(::accept(listener.get(), nullptr, nullptr));
            pollfd hello{client.get(), POLLIN, 0};
            ::poll(&hello, 1, 10000);  // it is never read: so closing resets the connection
            nexar_msg_refused refused{};
            refused.head.magic = NEXAR_LOCAL_MAGIC;
            refused.head.type = NEXAR_MSG_REFUSED;
            std::strcpy(refused.text, "one too many");
            ::send(client.get(), &refused, sizeof refused, MSG_NOSIGNAL);
        }
    });
    // Whether the socket is closed before the library looks is the scheduler's: it is, in many of the rounds.
    for (int round = 0; round < rounds; ++round) {
        nexar_session* session = nullptr;
        REQUIRE(try_open_session(path, &session) == NEXAR_ERR_SESSION_REFUSED);
        REQUIRE(std::string(last_failure().text).find("one too many") != std::string::npos);
    }
    ::unlink(path.c_str());
}
