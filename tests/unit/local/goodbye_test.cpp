// An orderly end is never taken for a crash, however full the socket is by then.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "local_protocol.h"
#include "rank.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

// A client that starts so many operations while the daemon reads nothing, each with a doorbell more than it
// needs, and then ends.
void end_behind_doorbells(int operations, bool close_first) {
    StillServer server;
    int ready[2], go[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(go) == 0);
    Child client([&] {
        nexar_session* session = nullptr;
        nexar_group* group = nullptr;
        char byte = 0;
        if (try_open_session(server.path, &session, {.slots = 1024}) != NEXAR_OK) return 1;
        if (try_open_group(session, "g", 1, &group) != NEXAR_OK) return 2;
        if (::write(ready[1], "r", 1) != 1 || ::read(go[0], &byte, 1) != 1) return 3;
        for (int i = 0; i < operations; ++i) {
            nexar_request request = 0;
            if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) return 4;
            const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
            static_cast<void>(::send(connection_to(server.path), &doorbell, sizeof doorbell, MSG_DONTWAIT));
        }
        if (close_first) return nexar_session_close(session) == NEXAR_OK ? 0 : 5;
        std::exit(0);
    });
    const auto readable = [](int fd) {
        pollfd wait{fd, POLLIN, 0};
        return ::poll(&wait, 1, 0) == 1;
    };
    for (int i = 0; i < 10000 && !readable(ready[0]); ++i) {
        server->poll(StillServer::now);
        server.take(1);
    }
    REQUIRE(readable(ready[0]));
    REQUIRE(server->prepare_to_sleep());
    REQUIRE(::write(go[1], "g", 1) == 1);
    REQUIRE(client.wait() == 0);
    // A turn takes its share of what was submitted before the end.
    size_t ops = 0;
    for (int i = 0; i < 1000 && server.engine.ends == 0; ++i) {
        server.take(10);
        server->poll(StillServer::now);
        CHECK(server.engine.ops <= ops + 80);
        ops = server.engine.ops;
    }

    CHECK(server.engine.ends == 1);
    CHECK(server.engine.crashes == 0);
    CHECK(server.engine.ops == static_cast<size_t>(operations));
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}

}  // namespace

TEST_CASE("a goodbye behind forty doorbells is received, although the process has ended",
          "[local][death][D11]") {
    end_behind_doorbells(40, true);
}

TEST_CASE("a goodbye for which the socket has no room is received", "[local][death][D11]") {
    end_behind_doorbells(600, true);
}

TEST_CASE("an exit behind doorbells is an orderly end", "[local][death][D11]") {
    end_behind_doorbells(40, false);
    end_behind_doorbells(600, false);
}
