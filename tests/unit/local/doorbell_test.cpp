// Doorbells [S7]: how often a client rings, and what the daemon leaves in the socket.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "local_protocol.h"
#include "rank.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

class Pipe {
  public:
    Pipe() { REQUIRE(::pipe(ends_) == 0); }
    ~Pipe() {
        for (const int fd : ends_) ::close(fd);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    bool write(char byte) const { return ::write(ends_[1], &byte, 1) == 1; }
    // '\0': nothing came in a minute.
    char read() const {
        char byte = 0;
        return readable(60'000) && ::read(ends_[0], &byte, 1) == 1 ? byte : '\0';
    }
    bool readable(int milliseconds = 0) const {
        pollfd wait{ends_[0], POLLIN, 0};
        return ::poll(&wait, 1, milliseconds) == 1;
    }

  private:
    int ends_[2] = {-1, -1};
};

// All operations of a test stay in flight: fewer than the session has slots.
constexpr int burst = 40, sleeps = 12;

// For each 'g' that comes: starts so many operations, and answers how often it has rung for them. For a 'b':
// rings, without any. For a 'q': whether anything is unread.
int serve_bursts(const std::string& path, const Pipe& go, const Pipe& rung) {
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    if (try_open_session(path, &session, {.slots = 1024}) != NEXAR_OK) return 1;
    if (try_open_group(session, "g", 1, &group) != NEXAR_OK) return 2;
    nexar_session_stats stats{};
    stats.struct_size = sizeof stats;
    const auto doorbells = [&] {
        return nexar_session_stats_get(session, &stats) == NEXAR_OK ? stats.doorbells : 0;
    };
    if (!rung.write('r')) return 3;
    for (char asked = go.read(); asked != 'e'; asked = go.read()) {
        int unread = 0;
        if (asked == 'q') {
            if (::ioctl(connection_to(path), SIOCOUTQ, &unread) != 0 || !rung.write(unread == 0 ? 'n' : 'y'))
                return 6;
            continue;
        }
        if (asked == 'b') {
            const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
            if (::send(connection_to(path), &doorbell, sizeof doorbell, 0) < 0 || !rung.write('1')) return 7;
            continue;
        }
        const uint64_t before = doorbells();
        for (int i = 0; i < burst; ++i) {
            nexar_request request = 0;
            if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) return 4;
        }
        if (!rung.write(static_cast<char>('0' + doorbells() - before))) return 5;
    }
    return 0;
}

// Such a client, and a daemon that does only what the test has it do.
struct Scene {
    StillServer server;
    Pipe go, rung;
    Child client{[this] { return serve_bursts(server.path, go, rung); }};

    Scene() {
        for (int i = 0; i < 10000 && !rung.readable(); ++i) {
            server->poll(StillServer::now);
            server.take(1);
        }
        REQUIRE(rung.read() == 'r');
    }
    char asked(char what) { return go.write(what) ? rung.read() : '?'; }
    void end() {
        REQUIRE(go.write('e'));
        CHECK(client.wait() == 0);
    }
};

}  // namespace

TEST_CASE("[S7] a doorbell stays in the socket until the tick", "[local]") {
    Scene scene;
    StillServer& server = scene.server;
    for (int i = 1; i <= 3; ++i) {
        const Time at = StillServer::now + std::chrono::seconds(i);
        REQUIRE(server->prepare_to_sleep());
        REQUIRE(scene.asked('g') == '1');
        REQUIRE(server.take(10000, at));
        server->on_woken();
        while (server->poll(at) > 0) {
        }
        REQUIRE(server->idle_within(60));
        CHECK(scene.asked('q') == (i == 1 ? 'n' : 'y'));  // at the first look the counts are news
        server->on_time(at);
        server->read_sockets();
        REQUIRE(server->idle_within(60));
        CHECK(scene.asked('q') == 'n');
    }
    scene.end();
}

TEST_CASE("[S7] the thirty-second doorbell that is left has the socket read, without a tick", "[local]") {
    Scene scene;
    StillServer& server = scene.server;
    int left = 0;  // the first is read: the counts are news
    for (int i = 1; i <= 1 + 2 * 32; ++i) {
        REQUIRE(scene.asked('b') == '1');
        REQUIRE(server.take(10000));
        server->poll(StillServer::now);
        REQUIRE(server->idle_within(60));
        left = i == 1 ? 0 : (left + 1) % 32;
        CAPTURE(i);
        CHECK(scene.asked('q') == (left == 0 ? 'n' : 'y'));
    }
    scene.end();
}

TEST_CASE("[S7] a session rings once in each sleep, whatever it starts, and none is missed", "[local]") {
    Scene scene;
    StillServer& server = scene.server;
    const auto ops = [&] { return static_cast<int>(server.engine.ops); };
    for (int sleep = 1; sleep <= sleeps; ++sleep) {
        REQUIRE(server->prepare_to_sleep());
        CHECK(scene.asked('g') == '1');
        REQUIRE(server.take(10000));  // it is woken
        server->on_woken();
        CHECK(scene.asked('g') == '0');  // nobody sleeps
        for (int i = 0; i < 100 && ops() < 2 * burst * sleep; ++i) server->poll(StillServer::now);
        REQUIRE(ops() == 2 * burst * sleep);
    }
    scene.end();
}
