// Clients that pass descriptors whose close() waits for them [S16]: the loop goes on.
#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <span>
#include <vector>

#include "by_hand.hpp"
#include "support/stuck_socket.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;

namespace {

// A handshake by hand is answered: the daemon's loop runs.
bool answers(const ThreadDaemon& daemon) {
    const Fd fd = dial(daemon.path());
    return say(fd, hello()) && receive_type(fd) == NEXAR_MSG_WELCOME;
}

Fd ready(const ThreadDaemon& daemon) {
    const Fd control = memfd(nexar_shm_control_bytes(16));
    Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    REQUIRE(receive_type(fd) == NEXAR_MSG_READY);
    return fd;
}

// The last copy is not this thread's, which would wait: the daemon closes none of them before it is released.
bool pass(ThreadDaemon& daemon, const Fd& connection, StuckSocket& stuck, Bytes packet) {
    const auto held = daemon.hold();
    if (!local::send_packet(connection.get(), packet, std::vector<int>{stuck.fd()})) return false;
    stuck.take();
    return true;
}

template <class T>
Bytes packet(const T& body) {
    return std::as_bytes(std::span<const T>(&body, 1));
}

nexar_msg_region_add one_page() {
    auto out = message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD);
    out.kind = NEXAR_MEMORY_MEMFD;
    out.bytes = 4096;
    return out;
}

bool ends(const Fd& connection) {
    for (int i = 0; i < 8; ++i)  // answers may come first
        if (receive_type(connection) == 0) return true;
    return false;
}

}  // namespace

TEST_CASE("[S16] a descriptor that does not belong to its message is closed elsewhere", "[local][hostile]") {
    ThreadDaemon daemon;
    std::vector<StuckSocket> stuck(3);
    const Fd garbage = dial(daemon.path());
    REQUIRE(pass(daemon, garbage, stuck[0], packet(nexar_msg_head{1, 2})));
    CHECK(ends(garbage));
    const Fd doorbell = ready(daemon);
    REQUIRE(pass(daemon, doorbell, stuck[1], packet(nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL})));
    CHECK(ends(doorbell));
    const Fd empty = dial(daemon.path());
    REQUIRE(pass(daemon, empty, stuck[2], Bytes{}));
    CHECK(ends(empty));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] so is one that is no memory", "[local][hostile]") {
    ThreadDaemon daemon;
    StuckSocket stuck;
    const Fd session = ready(daemon);
    REQUIRE(pass(daemon, session, stuck, packet(one_page())));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] so are those that nobody has read when the connection ends", "[local][hostile]") {
    ThreadDaemon daemon;
    std::vector<StuckSocket> stuck(2);
    const Fd session = dial(daemon.path());
    REQUIRE(say(session, nexar_msg_head{1, 2}));  // ends the session
    for (auto& one : stuck)
        if (!pass(daemon, session, one, packet(nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL}))) break;
    CHECK(ends(session));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] so are those of a connection that is refused", "[local][hostile]") {
    DaemonOptions options;
    options.tenants.total(Resource::sessions) = 10;
    options.tenants.share_percent = 10;
    ThreadDaemon daemon(options);
    Fd only = ready(daemon);
    StuckSocket stuck;
    const Fd refused = dial(daemon.path());
    pass(daemon, refused, stuck, packet(nexar_msg_head{1, 2}));
    CHECK(ends(refused));
    only.reset();
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] a session whose user has too many that are not closed ends", "[local][hostile]") {
    ThreadDaemon daemon;
    StuckSocket stuck;
    const Fd session = ready(daemon);
    REQUIRE(pass(daemon, session, stuck, packet(one_page())));
    const Fd other(::dup(session.get()));
    bool open = true;
    for (int i = 0; i < 2000 && open; ++i) open = say(session, one_page(), {other.get()});
    CHECK(ends(session));
    CHECK(answers(daemon));
}
