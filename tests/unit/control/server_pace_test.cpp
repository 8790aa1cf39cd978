// A user's connections to a status socket begin at a pace; counted, with a clock that stands.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <deque>
#include <string>

#include "control/server.hpp"
#include "server_world.hpp"

using namespace nexar;
using namespace nexar::control;
using namespace nexar::test;

namespace {

// Connections of a user begin two at once, then one in 10 ms of a clock that stands.
struct PacedWorld {
    static ServerConfig config_of(const Time& now, size_t waiting) {
        ServerConfig config = ServerConfig::of_status("", "");
        config.connection_interval = 10ms;
        config.connections_at_once_max = 2;
        config.waiting_of_user_max = waiting;
        config.connections_per_user_max = 1000;
        config.request_interval = Duration{0};
        config.clock = [&now] { return now; };
        return config;
    }
    explicit PacedWorld(size_t waiting) : world(config_of(now, waiting)) {}

    Time now{1h};
    World world;
};

}  // namespace

TEST_CASE("[N18] a user's connections to a status socket begin at a pace, and those that wait are answered",
          "[C8]") {
    PacedWorld paced(64);
    World& world = paced.world;
    std::deque<Client> clients;
    for (int i = 0; i < 9; ++i) {
        clients.emplace_back(world.config.path);
        clients.back().send("{\"command\": \"echo\", \"arguments\": {\"i\": " + std::to_string(i) + "}}\n");
    }
    REQUIRE(world.until([&] { return world.server->begun() + world.server->waiting() == 9; }));
    CHECK(world.server->begun() == 2);
    CHECK(world.server->wake_at() == paced.now + 10ms);
    world.turn(20);
    CHECK(world.server->begun() == 2);  // as long as the clock stands
    for (uint64_t begun = 3; begun <= 9; ++begun) {
        paced.now += 10ms;
        world.turn(20);
        CHECK(world.server->begun() == begun);
    }
    for (int i = 0; i < 9; ++i) {
        REQUIRE(world.until([&] { return clients[size_t(i)].has_line(); }));
        CHECK(clients[size_t(i)].line()["result"]["i"] == i);
    }
}

TEST_CASE("[N18] connecting without end begins no more than the pace, and is shut out", "[C8]") {
    PacedWorld paced(5);
    World& world = paced.world;
    std::deque<Client> clients;
    for (size_t i = 0; i < 7; ++i) clients.emplace_back(world.config.path);
    REQUIRE(world.until([&] { return world.server->begun() == 2 && world.server->waiting() == 5; }));
    for (int i = 0; i < 100; ++i) {
        Client one(world.config.path);
        REQUIRE(world.until([&] { return one.has_line(); }));
        CHECK(one.line()["error"]["name"] == "TABLE_FULL");
    }
    CHECK(world.server->begun() == 2);
    CHECK(world.server->waiting() == 5);
    CHECK(world.logged.contains("user_shut_out"));
    CHECK_FALSE(world.logged.contains("user_let_in"));

    for (int i = 0; i < 5; ++i) {
        paced.now += 10ms;
        world.turn(5);
    }
    CHECK(world.server->begun() == 7);
    CHECK(world.server->waiting() == 0);
    paced.now += 1s;
    CHECK(world.until([&] { return world.logged.contains("user_let_in"); }));
}

TEST_CASE("[N18] connections that wait end with the server", "[C8]") {
    PacedWorld paced(5);
    std::deque<Client> clients;
    for (size_t i = 0; i < 4; ++i) clients.emplace_back(paced.world.config.path);
    REQUIRE(paced.world.until([&] { return paced.world.server->waiting() == 2; }));
    paced.world.server.reset();
    for (Client& client : clients) client.receive_to_end();
}
