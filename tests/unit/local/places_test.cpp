// A user's share of sessions at its very limit [N1]: what was closed a moment ago makes room for what comes.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "by_hand.hpp"
#include "rank.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace std::chrono_literals;
using local::Fd;

namespace {

TenantLimits share_of(uint64_t sessions) {
    TenantLimits out;
    out.total(Resource::sessions) = sessions;
    out.share_percent = 100;
    return out;
}

DaemonOptions with_share_of(uint64_t sessions) {
    DaemonOptions out;
    out.tenants = share_of(sessions);
    return out;
}

// A child that stays, and has what is its parent's.
struct Staying {
    int ends[2];
    std::unique_ptr<Child> child;
    // `look`: in the child, at once; 0 is right.
    explicit Staying(const std::function<int()>& look = [] { return 0; }) {
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        child = std::make_unique<Child>([&] {
            ::close(ends[1]);
            char byte = 0;
            const int found = look();
            return ::read(ends[0], &byte, 1) == 0 ? found : 99;
        });
    }
    int end() {
        ::close(ends[1]);
        const int out = child->wait();
        ::close(ends[0]);
        return out;
    }
};

// A daemon in the test's hands whose user has all of his three sessions.
struct Full {
    StillServer daemon{{}, {}, share_of(3)};
    std::vector<Fd> sessions;

    Full() {
        for (int i = 0; i < 3; ++i) sessions.push_back(dial(daemon.path));
        while (daemon->sessions() < 3) REQUIRE(daemon.take(60'000));
    }
    // Connections that it has accepted, and of which none is a session.
    std::vector<Fd> newcomers(size_t count) {
        std::vector<Fd> out;
        for (size_t i = 0; i < count; ++i) {
            out.push_back(dial(daemon.path));
            REQUIRE(say(out.back(), hello()));
        }
        while (daemon.take(0)) {
        }
        REQUIRE(daemon->sessions() == 3);
        return out;
    }
    // Until so many count.
    void count_is(uint64_t count) {
        const TenantRef user = daemon.tenants.of("", ::getuid());
        for (int i = 0; i < 60'000 && user->used(Resource::sessions) != count; ++i) daemon.take(1);
        REQUIRE(user->used(Resource::sessions) == count);
    }
};

}  // namespace

TEST_CASE("[N1] a session that is closed at the very share can be opened again at once", "[local]") {
    constexpr size_t share = 3, rounds = 30;
    ThreadDaemon daemon(with_share_of(share));
    std::vector<std::unique_ptr<TestSession>> sessions(share);
    for (auto& one : sessions) one = std::make_unique<TestSession>(daemon.path());
    for (size_t round = 0; round < rounds; ++round) {
        auto& one = sessions[round % share];
        one.reset();
        one = std::make_unique<TestSession>(daemon.path());
    }
}

TEST_CASE("[N1][S19] a closed session counts no more, though a forked child has the connection still",
          "[local]") {
    const ProcessDaemon daemon(with_share_of(1));  // not in this process: the child would have its memory
    for (int round = 0; round < 5; ++round) {
        auto session = std::make_unique<TestSession>(daemon.path());
        nexar_group* group = session->group("alone");
        int fd = -1;
        REQUIRE(nexar_session_fd(session->get(), &fd) == NEXAR_OK);  // ends ring there, and nobody reads
        uint64_t x = 7;
        nexar_request request = 0;
        REQUIRE(nexar_all_reduce_start(group, &x, &x, 1, NEXAR_U64, NEXAR_SUM, nullptr, &request) ==
                NEXAR_OK);
        pollfd rings{fd, POLLIN, 0};
        REQUIRE(::poll(&rings, 1, 60'000) == 1);
        Staying child;
        session.reset();
        nexar_session* next = nullptr;
        CHECK(try_open_session(daemon.path(), &next) == NEXAR_OK);
        nexar_session_close(next);
        CHECK(child.end() == 0);
    }
}

TEST_CASE("[S19] a forked child has no scratch memory of its parent's session, which would count with it",
          "[local]") {
    const ProcessDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* group = session.group("alone");
    uint64_t x = 7;
    REQUIRE(nexar_all_reduce(group, &x, &x, 1, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
    REQUIRE(session.stats().scratch_bytes > 0);
    const auto mappings = [] {
        std::ifstream maps("/proc/self/maps");
        int count = 0;
        for (std::string line; std::getline(maps, line);) count += line.contains("memfd:nexar-memory");
        return count;
    };
    REQUIRE(mappings() > 0);
    Staying child(mappings);
    CHECK(child.end() == 0);
}

TEST_CASE("[N1] so can all sessions of a share, by as many processes at once", "[local]") {
    constexpr size_t share = 8;
    ThreadDaemon daemon(with_share_of(share));
    std::vector<nexar_session*> sessions(share);
    std::vector<nexar_status> ends(share);
    for (int round = 0; round < 3; ++round) {
        std::vector<std::thread> ranks;
        for (size_t i = 0; i < share; ++i)
            ranks.emplace_back([&, i] { ends[i] = try_open_session(daemon.path(), &sessions[i]); });
        for (std::thread& rank : ranks) rank.join();
        CHECK(std::ranges::count(ends, NEXAR_OK) == share);
        for (nexar_session* session : sessions) nexar_session_close(session);
    }
}

TEST_CASE("[N1] who finds no place waits for one, in order, and is refused when none came", "[local]") {
    Full scene;
    auto& daemon = scene.daemon;
    const auto newcomers = scene.newcomers(3);
    for (const Fd& one : newcomers) CHECK(receive_type_now(one) == 999);
    CHECK(daemon->wake_at() <= StillServer::now + 10ms);

    scene.sessions.pop_back();
    scene.count_is(2);
    daemon->on_time(StillServer::now + 500ms);
    while (receive_type_now(newcomers[0]) != NEXAR_MSG_WELCOME) REQUIRE(daemon.take(60'000));
    CHECK(receive_type_now(newcomers[1]) == 999);
    CHECK(receive_type_now(newcomers[2]) == 999);

    daemon->on_time(StillServer::now + 2s);
    REQUIRE(daemon->idle_within(60));
    CHECK(receive_type_now(newcomers[1]) == NEXAR_MSG_REFUSED);
    CHECK(receive_type_now(newcomers[2]) == NEXAR_MSG_REFUSED);
    CHECK(std::ranges::count_if(daemon.lines, [](const std::string& line) {
              return line.contains("session_refused") && line.contains("sessions_max = 3");
          }) == 2);
}

TEST_CASE("[N1] no more wait for a place than there are places", "[local][hostile]") {
    Full scene;
    const auto newcomers = scene.newcomers(5);
    for (size_t i = 0; i < 3; ++i) CHECK(receive_type_now(newcomers[i]) == 999);
    for (size_t i = 3; i < 5; ++i) CHECK(receive_type_now(newcomers[i]) == NEXAR_MSG_REFUSED);
}

TEST_CASE("[N1][N12] of those who find no place in time a turn of the loop refuses some",
          "[local][hostile]") {
    constexpr size_t share = 20, most = 8;
    StillServer daemon({}, {}, share_of(share));
    std::vector<Fd> sessions, newcomers;
    while (sessions.size() < share) sessions.push_back(dial(daemon.path));
    while (daemon->sessions() < share) REQUIRE(daemon.take(60'000));
    while (newcomers.size() < share) newcomers.push_back(dial(daemon.path));
    while (daemon.take(0)) {
    }
    size_t refused = 0;
    while (refused < share) {
        daemon->on_time(StillServer::now + 2s);
        REQUIRE(daemon->idle_within(60));
        const auto now = static_cast<size_t>(std::ranges::count_if(
            newcomers, [](const Fd& one) { return receive_type_now(one) == NEXAR_MSG_REFUSED; }));
        REQUIRE((now > 0 && now <= most));
        refused += now;
    }
}

TEST_CASE("[N1] who waits for a place is refused when the daemon stops", "[local]") {
    Full scene;
    const auto newcomers = scene.newcomers(2);
    scene.daemon->stop(StillServer::now, "an update");
    REQUIRE(scene.daemon->idle_within(60));
    for (const Fd& one : newcomers) {
        nexar_msg_refused refused{};
        const std::span bytes(reinterpret_cast<char*>(&refused), sizeof refused);
        REQUIRE(receive_any(one, bytes, MSG_DONTWAIT) == sizeof refused);
        CHECK(refused.code == static_cast<int32_t>(Errc::daemon_lost));
        CHECK(std::string_view(refused.text) == "an update");
    }
}
