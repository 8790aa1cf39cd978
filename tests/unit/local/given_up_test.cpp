// [S15] A daemon that a process has given up carries out nothing of that session any more when it runs again:
// the process goes on, and has its memory for something else. Here the daemon is the test itself, which runs
// when it likes.
#include <poll.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "rank.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

// Where a process says how far it is, and waits for leave to go on.
class Gate {
  public:
    Gate() {
        REQUIRE(::pipe(here_) == 0);
        REQUIRE(::pipe(on_) == 0);
    }
    ~Gate() {
        for (const int fd : {here_[0], here_[1], on_[0], on_[1]}) ::close(fd);
    }
    Gate(const Gate&) = delete;

    // In the process. False: the test is over.
    bool pass() const {
        char byte = 'x';
        return ::write(here_[1], &byte, 1) == 1 && ::read(on_[0], &byte, 1) == 1;
    }
    bool reached(int timeout_ms) const {
        pollfd wait{here_[0], POLLIN, 0};
        char byte = 0;
        return ::poll(&wait, 1, timeout_ms) == 1 && ::read(here_[0], &byte, 1) == 1;
    }
    void open() const { REQUIRE(::write(on_[1], "x", 1) == 1); }

  private:
    int here_[2], on_[2];
};

constexpr int patience_ms = 20000;

// The daemon runs until the process stands at its gate.
void run_until(StillServer& server, const Gate& gate) {
    bool reached = false;
    for (int i = 0; i < patience_ms && !(reached = gate.reached(0)); ++i) {
        server->on_time(StillServer::real_now());
        server->poll(StillServer::real_now());
        server.take(1, StillServer::real_now());
    }
    REQUIRE(reached);
}

// A process with two operations: one that the daemon has taken, and one that stands in the ring when the
// daemon stops running. It gives the daemon up, and frees both.
int give_up(const std::string& path, const Gate& gate, bool close) {
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    nexar_request taken = 0, in_ring = 0;
    if (try_open_session(path, &session, {.daemon_unresponsive_ms = 1000}) != NEXAR_OK) return 1;
    if (try_open_group(session, "g", 1, &group) != NEXAR_OK) return 2;
    if (nexar_barrier_start(group, nullptr, &taken) != NEXAR_OK) return 3;
    if (!gate.pass()) return 4;
    if (nexar_barrier_start(group, nullptr, &in_ring) != NEXAR_OK) return 5;
    for (const nexar_request request : {in_ring, taken}) {
        if (nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr) != NEXAR_ERR_DAEMON_UNRESPONSIVE)
            return 6;
        if (nexar_request_free(request) != NEXAR_OK) return 7;
    }
    if (close && nexar_session_close(session) != NEXAR_OK) return 8;
    return gate.pass() ? 0 : 9;
}

}  // namespace

TEST_CASE("what stands in the ring of a session that gave its daemon up is not carried out",
          "[local][death][S15]") {
    const bool close = GENERATE(false, true);  // a goodbye after that changes nothing
    CAPTURE(close);
    StillServer server;
    const Gate gate;
    Child client([&] { return give_up(server.path, gate, close); });
    run_until(server, gate);
    server->poll(StillServer::real_now());
    REQUIRE(server.engine.ops == 1);
    gate.open();
    REQUIRE(gate.reached(patience_ms));

    SECTION("the loop's turn comes first") {
        server->poll(StillServer::real_now());
    }
    SECTION("the socket comes first") {
        REQUIRE(server.take(patience_ms, StillServer::real_now()));
    }
    CHECK(server.engine.ops == 1);
    CHECK(server.engine.ends == 1);
    CHECK(server.engine.given_up == 1);
    CHECK(server->sessions() == 0);
    gate.open();
    CHECK(client.wait() == 0);
}

TEST_CASE("a session that gave its daemon up ends before anything of the others is taken", "[local][death]") {
    StillServer server;
    const Gate lasting_gate, gate;
    Child lasting([&] {
        nexar_session* session = nullptr;
        nexar_group* group = nullptr;
        nexar_request request = 0;
        if (try_open_session(server.path, &session, {.daemon_unresponsive_ms = NEXAR_TIMEOUT_NONE}) !=
            NEXAR_OK)
            return 1;
        if (try_open_group(session, "h", 1, &group) != NEXAR_OK) return 2;
        if (!lasting_gate.pass()) return 3;
        if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) return 4;
        if (nexar_session_close(session) != NEXAR_OK) return 5;
        return lasting_gate.pass() ? 0 : 6;
    });
    run_until(server, lasting_gate);
    Child client([&] { return give_up(server.path, gate, false); });
    run_until(server, gate);
    server->poll(StillServer::real_now());
    REQUIRE(server.engine.ops == 1);
    gate.open();
    REQUIRE(gate.reached(patience_ms));
    lasting_gate.open();
    REQUIRE(lasting_gate.reached(patience_ms));

    // Both sockets are readable; the first is that of the session which goes on.
    for (int i = 0; i < patience_ms && server.engine.ends < 2; ++i) server.take(1, StillServer::real_now());
    REQUIRE(server.engine.ends == 2);
    CHECK(server.engine.given_up == 1);
    CHECK(server.engine.ops_at_first_end == 1);
    CHECK(server.engine.ops == 2);
    gate.open();
    lasting_gate.open();
    CHECK(client.wait() == 0);
    CHECK(lasting.wait() == 0);
}
