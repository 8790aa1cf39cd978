// Handshakes of one user begin at a pace; those of others do not wait for them.
#include "local/arrivals.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "by_hand.hpp"
#include "still_server.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace std::chrono_literals;
using local::Arrival;
using local::Arrivals;

namespace {

constexpr Time start{1h};
constexpr size_t all = SIZE_MAX;

struct Users {
    Tenants tenants;
    TenantRef one = tenants.of("", 2001), other = tenants.of("", 2002);
};

void add(Arrivals& arrivals, const TenantRef& user, size_t listener) {
    arrivals.add({std::make_shared<local::Connection>(local::Fd(), user->number), user, listener});
}

std::vector<size_t> listeners(const std::vector<Arrival>& arrivals) {
    std::vector<size_t> out;
    for (const Arrival& arrival : arrivals) out.push_back(arrival.listener);
    return out;
}

}  // namespace

TEST_CASE("[N15] of a user some begin at once, then one an interval, in their order", "[local]") {
    Users users;
    Arrivals arrivals(10ms, 3);
    for (size_t i = 0; i < 6; ++i) add(arrivals, users.one, i);
    CHECK(listeners(arrivals.take(start, all)) == std::vector<size_t>{0, 1, 2});
    CHECK(arrivals.waiting(users.one->number) == 3);
    CHECK(arrivals.next() == start + 10ms);
    CHECK(arrivals.take(start + 10ms - 1ns, all).empty());
    CHECK(listeners(arrivals.take(start + 10ms, all)) == std::vector<size_t>{3});
    CHECK(arrivals.next() == start + 20ms);
    CHECK(listeners(arrivals.take(start + 1s, all)) == std::vector<size_t>{4, 5});
    CHECK(arrivals.waiting() == 0);
    CHECK(arrivals.next() == never);
}

TEST_CASE("[N15] another user's begin at once, and a turn has few of each user", "[local]") {
    Users users;
    Arrivals arrivals(10ms, 4);
    for (size_t i = 0; i < 9; ++i) add(arrivals, users.one, i);
    for (size_t i = 0; i < 3; ++i) add(arrivals, users.other, 100 + i);
    CHECK(listeners(arrivals.take(start, 2)) == std::vector<size_t>{0, 1, 100, 101});
    CHECK(arrivals.next() <= start);  // so the loop does not sleep
    CHECK(listeners(arrivals.take(start, 2)) == std::vector<size_t>{2, 3, 102});
    CHECK(arrivals.take(start, 2).empty());
    CHECK(arrivals.waiting() == 5);
    CHECK(listeners(arrivals.take_all()) == std::vector<size_t>{4, 5, 6, 7, 8});
    CHECK(arrivals.waiting() == 0);
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
