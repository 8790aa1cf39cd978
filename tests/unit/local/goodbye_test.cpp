// An orderly end is never taken for a crash, however full the socket is by then. The server runs in this
// thread and takes nothing by itself: a daemon that is not scheduled.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "local/server.hpp"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr Time now{std::chrono::hours(1)};

struct Descriptors final : local::Descriptors {
    std::map<int, uint64_t> keys;
    void watch(int fd, uint64_t key) override { keys[fd] = key; }
    void unwatch(int fd, uint64_t) override { keys.erase(fd); }
    void run(local::Server& server, int timeout_ms) {
        std::vector<pollfd> all;
        for (const auto& [fd, key] : keys) all.push_back({fd, POLLIN, 0});
        if (::poll(all.data(), all.size(), timeout_ms) <= 0) return;
        for (const pollfd& each : all)
            if (each.revents != 0 && keys.contains(each.fd)) server.on_readable(now, keys[each.fd]);
    }
};

struct Engine final : engine::Service {
    local::Server* server = nullptr;
    size_t ops = 0, ends = 0, crashes = 0;
    Result<void> open(Time, const engine::OpenRequest& request) override {
        engine::GroupInfo info;
        info.id = {1, 1, 1}, info.size = 1, info.rank = Rank(0);
        info.members = {{Rank(0), NodeId{{7}}, 1}};
        server->group_opened(request.session, request.ticket, info);
        return {};
    }
    Result<void> submit(Time, const engine::OpRequest&) override {
        ++ops;
        return {};
    }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    void session_ended(Time, SessionId, bool crashed, const std::string&) override {
        ++ends;
        crashes += crashed;
    }
};

// A client that starts so many operations while nobody takes them from its ring, each with a bell, and then
// ends.
void end_behind_bells(int operations, bool close_first) {
    const std::string path = "/tmp/nexar-goodbye-" + std::to_string(::getpid()) + ".sock";
    Log log([](Level, const std::string&) {});
    Descriptors descriptors;
    Engine engine;
    local::ServerConfig config;
    config.path = path;
    auto server = local::Server::open(config, engine, descriptors, log);
    REQUIRE(server);
    engine.server = server->get();
    int ready[2], go[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(go) == 0);
    Child client([&] {
        nexar_session* session = nullptr;
        nexar_group* group = nullptr;
        char byte = 0;
        if (try_open_session(path, &session, {.slots = 1024}) != NEXAR_OK) return 1;
        if (try_open_group(session, "g", 1, &group) != NEXAR_OK) return 2;
        if (::write(ready[1], "r", 1) != 1 || ::read(go[0], &byte, 1) != 1) return 3;
        for (int i = 0; i < operations; ++i) {
            nexar_request request = 0;
            if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) return 4;
        }
        if (close_first) return nexar_session_close(session) == NEXAR_OK ? 0 : 5;
        std::exit(0);
    });
    const auto readable = [](int fd) {
        pollfd wait{fd, POLLIN, 0};
        return ::poll(&wait, 1, 0) == 1;
    };
    for (int i = 0; i < 10000 && !readable(ready[0]); ++i) {
        (*server)->poll(now);
        descriptors.run(**server, 1);
    }
    REQUIRE(readable(ready[0]));
    REQUIRE((*server)->prepare_to_sleep());
    REQUIRE(::write(go[1], "g", 1) == 1);
    REQUIRE(client.wait() == 0);
    for (int i = 0; i < 1000 && engine.ends == 0; ++i) descriptors.run(**server, 10);

    CHECK(engine.ends == 1);
    CHECK(engine.crashes == 0);
    CHECK(engine.ops == static_cast<size_t>(operations));
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}

}  // namespace

TEST_CASE("a goodbye behind forty bells is heard, although the process has ended", "[local][death][D11]") {
    end_behind_bells(40, true);
}

TEST_CASE("a goodbye for which the socket has no room is heard", "[local][death][D11]") {
    end_behind_bells(600, true);
}

TEST_CASE("an exit behind bells is an orderly end", "[local][death][D11]") {
    end_behind_bells(40, false);
    end_behind_bells(600, false);
}
