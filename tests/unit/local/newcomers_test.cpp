// Handshakes of one user begin at a pace; those of others do not wait for them.
#include "local/newcomers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "by_hand.hpp"
#include "still_server.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace std::chrono_literals;
using local::Newcomer;
using local::Newcomers;

namespace {

constexpr Time start{1h};
constexpr size_t all = SIZE_MAX;

struct Users {
    Tenants tenants;
    TenantRef one = tenants.of("", 2001), other = tenants.of("", 2002);
};

bool add(Newcomers& newcomers, const TenantRef& user, size_t listener, size_t most = all) {
    Newcomer one{std::make_shared<local::Connection>(local::Fd(), user->number), user, listener};
    return newcomers.add(user->number, start, one, most);
}

// Those that begin.
std::vector<size_t> take(Newcomers& newcomers, Time now, size_t of_user_max = all) {
    std::vector<size_t> out;
    newcomers.ask(now, of_user_max, [&](const Newcomer& one) { return out.push_back(one.listener), true; });
    return out;
}

}  // namespace

TEST_CASE("[N15] of a user some begin at once, then one an interval, in their order", "[local]") {
    Users users;
    Newcomers newcomers(10ms, 3);
    for (size_t i = 0; i < 6; ++i) CHECK(add(newcomers, users.one, i));
    CHECK(take(newcomers, start) == std::vector<size_t>{0, 1, 2});
    CHECK(newcomers.waiting(users.one->number) == 3);
    CHECK(newcomers.is_at_pace(users.one->number, start));
    CHECK(newcomers.next() == start + 10ms);
    CHECK(take(newcomers, start + 10ms - 1ns).empty());
    CHECK(take(newcomers, start + 10ms) == std::vector<size_t>{3});
    CHECK(newcomers.next() == start + 20ms);
    CHECK(take(newcomers, start + 1s) == std::vector<size_t>{4, 5});
    CHECK(newcomers.waiting() == 0);
    CHECK(newcomers.next() == never);
}

TEST_CASE("[N15] another user's begin at once, and a turn has few of each user", "[local]") {
    Users users;
    Newcomers newcomers(10ms, 4);
    for (size_t i = 0; i < 9; ++i) add(newcomers, users.one, i);
    for (size_t i = 0; i < 3; ++i) add(newcomers, users.other, 100 + i);
    CHECK(take(newcomers, start, 2) == std::vector<size_t>{0, 1, 100, 101});
    CHECK(newcomers.next() <= start);  // so the loop does not sleep
    CHECK(take(newcomers, start, 2) == std::vector<size_t>{2, 3, 102});
    CHECK(take(newcomers, start, 2).empty());
    CHECK(newcomers.waiting() == 5);
    CHECK(newcomers.take_all().size() == 5);
    CHECK(newcomers.waiting() == 0);
}

TEST_CASE("[N3] who finds no place is asked again after a pause, before those behind him", "[local]") {
    Users users;
    Newcomers newcomers(1ms, 100);
    for (size_t i = 0; i < 3; ++i) add(newcomers, users.one, i);
    add(newcomers, users.other, 100);
    std::vector<size_t> asked;
    const auto ask = [&](Time now, bool has_place) {
        asked.clear();
        newcomers.ask(now, all, [&](const Newcomer& one) {
            asked.push_back(one.listener);
            return has_place || one.tenant == users.other;
        });
        return asked;
    };
    CHECK(ask(start, false) == std::vector<size_t>{0, 100});
    CHECK(newcomers.next() == start + 10ms);
    CHECK(ask(start + 10ms - 1ns, true).empty());
    CHECK(ask(start + 10ms, true) == std::vector<size_t>{0, 1, 2});
}

TEST_CASE("[N15] no more wait than may, and those that may not count as begun", "[local]") {
    Users users;
    Newcomers newcomers(10ms, 2);
    CHECK(add(newcomers, users.one, 0, 1));
    CHECK_FALSE(add(newcomers, users.one, 1, 1));
    CHECK_FALSE(newcomers.is_at_pace(users.one->number, start));
    for (int i = 0; i < 1000; ++i) CHECK_FALSE(add(newcomers, users.one, 2, 1));
    CHECK(newcomers.is_at_pace(users.one->number, start));
    CHECK(newcomers.next() == start + 10ms);  // and not ten seconds
    CHECK(add(newcomers, users.other, 3, 1));
}

TEST_CASE("[N15] a user's handshakes wait in the server, a bounded number, and nobody else's", "[local]") {
    local::ServerConfig config;
    config.handshake_interval = 1s;
    config.handshakes_at_once = 2;
    config.waiting_of_user_max = 3;
    StillServer daemon({"other"}, config);
    std::vector<local::Fd> of_one;
    const auto settle = [&](Time at) {
        while (daemon.take(0, at)) {
        }
    };
    for (int i = 0; i < 6; ++i) {
        of_one.push_back(dial(daemon.path));
        settle(StillServer::now);
    }
    CHECK(daemon->sessions() == 2);
    CHECK(receive_type(of_one[5]) == NEXAR_MSG_REFUSED);  // the others wait
    CHECK(receive_type(of_one[5]) == 0);

    const local::Fd of_other = dial(daemon.path_of("other"));
    settle(StillServer::now);
    CHECK(daemon->sessions() == 3);

    for (const local::Fd& fd : of_one) say(fd, hello());
    for (size_t begun = 3; begun <= 5; ++begun) {
        const Time at = daemon->wake_at();
        CHECK(at <= StillServer::now + (begun - 2) * 1s);
        daemon->on_time(StillServer::now + (begun - 2) * 1s);
        settle(StillServer::now + (begun - 2) * 1s);
        CHECK(receive_type(of_one[begun - 1]) == NEXAR_MSG_WELCOME);
        CHECK(daemon->sessions() == begun + 1);
    }
}

TEST_CASE("[N15] connections that wait for their handshake end with the server, which says why", "[local]") {
    local::ServerConfig config;
    config.handshake_interval = 1s;
    config.handshakes_at_once = 1;
    StillServer daemon({}, config);
    const local::Fd begun = dial(daemon.path), waiting = dial(daemon.path);
    REQUIRE(daemon.take(60'000));
    REQUIRE(daemon->sessions() == 1);
    daemon->stop(StillServer::now, "the daemon stops");
    CHECK(receive_type(waiting) == NEXAR_MSG_REFUSED);
    CHECK(receive_type(waiting) == 0);
    CHECK(receive_type(begun) == NEXAR_MSG_REFUSED);
}
