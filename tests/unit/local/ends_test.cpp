// The entries that a client had pushed when it ended were submitted: all of them are handled before the
// engine gets the end.
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "by_hand.hpp"
#include "shm/ring.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr uint32_t slots = 256, submitted = 200;  // more than one turn takes

enum class End { goodbye, end_of_file, process };

// A session whose ring holds a group's opening, and then operations that nobody was woken for; and its end.
void end_with_a_full_ring(End how) {
    StillServer server;
    // For the kernel the client is the process that connects, also when another one sends.
    local::Fd fd = session_socket();
    Child process([&] {
        if (how == End::process && connect_to(fd, server.path)) ::pause();
        return 0;
    });
    if (how != End::process) REQUIRE(connect_to(fd, server.path));
    REQUIRE(server.take(10000));  // accepts

    REQUIRE(say(fd, hello()));
    REQUIRE(server.take(10000));
    const size_t bytes = nexar_shm_control_bytes(slots);
    const local::Fd control = memfd(bytes);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
    REQUIRE(at != MAP_FAILED);
    auto view = *shm::ControlView::over({static_cast<std::byte*>(at), bytes}, slots);
    view.initialise();
    REQUIRE(say(fd, attach(slots), {control.get()}));
    while (receive_type_now(fd) != NEXAR_MSG_READY) REQUIRE(server.take(10000));

    shm::SubmissionProducer producer(view);
    for (uint32_t i = 0; i <= submitted; ++i) {
        auto& d = view.slot(i).descriptor;
        d.kind = i == 0 ? NEXAR_CMD_GROUP_OPEN : NEXAR_OP_BARRIER;
        if (i != 0) d.group = 1, d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
        view.slot(i).state = NEXAR_SLOT_WORD(1u, 1u);
        view.payload(0).group_open.size = view.payload(0).group_open.name_bytes = 1;
        REQUIRE(producer.try_push({i, 1, NEXAR_ENTRY_SUBMIT}));
    }
    const KeepingEngine& engine = server.engine;
    REQUIRE(engine.ops == 0);

    if (how == End::goodbye) REQUIRE(say(fd, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_GOODBYE}));
    if (how == End::end_of_file) fd.reset();
    if (how == End::process) process.kill(SIGKILL);
    REQUIRE(server.take(10000));
    REQUIRE(server.take(10000));  // it is read
    CHECK(engine.ops <= 8);       // one turn's; the rest comes in later ones
    CHECK(engine.ends == 0);
    for (size_t turn = 0; turn < submitted && engine.ends == 0; ++turn) server->poll(StillServer::now);

    CHECK(engine.ends == 1);
    CHECK(engine.ops_at_end == submitted);
    CHECK((engine.crashes == 1) == (how != End::goodbye));
    CHECK(server->sessions() == 0);
    ::munmap(at, bytes);
}

}  // namespace

TEST_CASE("what stands in the ring at a goodbye is taken first", "[local][death]") {
    end_with_a_full_ring(End::goodbye);
}

TEST_CASE("entries in the ring are handled before the end of the connection", "[local][death]") {
    end_with_a_full_ring(End::end_of_file);
}

TEST_CASE(
    "entries in the ring are handled before the process's end, even if another process holds its socket",
    "[local][death]") {
    end_with_a_full_ring(End::process);
}

TEST_CASE("of a process that ends with many sessions, a turn of the loop ends some", "[local][death]") {
    constexpr size_t clients = 40, most = 8;
    StillServer server;
    std::vector<local::Fd> sockets;
    for (size_t i = 0; i < clients; ++i) {
        sockets.push_back(session_socket());
        REQUIRE(connect_to(sockets.back(), server.path));
        while (server->sessions() <= i) REQUIRE(server.take(10000));
    }
    sockets.clear();
    while (server->sessions() > 0) {
        const size_t before = server->sessions();
        REQUIRE(server.take(10000));
        CHECK(before - server->sessions() <= most);
        server->poll(StillServer::now);
    }
}

TEST_CASE("a user whose many sessions end does not delay the end of another user's one",
          "[local][death][N12]") {
    constexpr size_t clients = 40, most = 8;
    StillServer server({"many", "single"});
    std::vector<local::Fd> sockets;
    for (size_t i = 0; i <= clients; ++i) {
        sockets.push_back(session_socket());
        REQUIRE(connect_to(sockets.back(), server.path_of(i < clients ? "many" : "single")));
        while (server->sessions() <= i) REQUIRE(server.take(10000));
    }
    sockets.clear();
    const TenantName single{"single", ::getuid()};
    REQUIRE(server->sessions_of(single).size() == 1);
    REQUIRE(server.take(10000));
    REQUIRE(server.take(10000));  // they are read
    CHECK(server->sessions_of(single).empty());
    CHECK(server->sessions() >= clients - 2 * most);
}

TEST_CASE("[N22] a user's sessions are his own, also when some of them and others' have ended", "[local]") {
    const std::vector<std::string> labels{"one", "two", "three"};
    StillServer server(labels);
    const auto name = [](const std::string& label) { return TenantName{label, ::getuid()}; };
    const auto count = [&](const std::string& label) { return server->sessions_of(name(label)).size(); };
    std::vector<local::Fd> sockets;
    for (size_t i = 0; i < 12; ++i) {
        sockets.push_back(session_socket());
        REQUIRE(connect_to(sockets.back(), server.path_of(labels[i % 2])));
        while (server->sessions() <= i) REQUIRE(server.take(10000));
    }
    CHECK(count("one") == 6);
    CHECK(count("two") == 6);
    CHECK(count("three") == 0);
    CHECK(count("nobody") == 0);
    for (const auto& use : server->sessions_of(name("one")))
        CHECK(use.pid == static_cast<uint32_t>(::getpid()));

    for (const size_t i : {0u, 4u, 7u}) sockets[i].reset();
    while (server->sessions() > 9) {
        REQUIRE(server.take(10000));
        server->poll(StillServer::now);
    }
    CHECK(count("one") == 4);
    CHECK(count("two") == 5);
    sockets.clear();
    while (server->sessions() > 0) {
        REQUIRE(server.take(10000));
        server->poll(StillServer::now);
    }
    for (const std::string& label : labels) CHECK(count(label) == 0);
}
