// Limits of connections that have not attached.
#include "tcp/half_open.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using namespace nexar::tcp;

namespace {
quic::Address host(unsigned n) {
    return *quic::Address::parse("10.0." + std::to_string(n / 250) + "." + std::to_string(1 + n % 250) +
                                 ":1");
}
}  // namespace

TEST_CASE("a site has a limit, and its deadline frees its places", "[tcp][B5]") {
    HalfOpen open;
    for (uint64_t i = 0; i < HalfOpen::per_site_max; ++i) CHECK_FALSE(open.add(Time{}, i, host(1)));
    CHECK_FALSE(open.add(Time{}, 100, host(2)));
    CHECK_FALSE(open.overdue(Time{} + HalfOpen::patience - Duration{1}));
    CHECK(open.overdue(Time{} + HalfOpen::patience) == 0);
    CHECK_FALSE(open.add(Time{}, 101, host(1)));
    CHECK(open.add(Time{}, 102, host(1)) == 1);
}

TEST_CASE("silent sockets do not keep a newcomer of their own site out", "[tcp][B5]") {
    HalfOpen open;
    for (uint64_t i = 0; i < HalfOpen::per_site_max; ++i) CHECK_FALSE(open.add(Time{}, i, host(1)));
    CHECK_FALSE(open.add(Time{}, 50, host(2)));
    open.has_sent(0);
    CHECK(open.add(Time{}, 100, host(1)) == 1);
    open.has_sent(100);
    for (uint64_t i = 2; i < HalfOpen::per_site_max; ++i) CHECK(open.add(Time{}, 100 + i, host(1)) == i);
    for (uint64_t i = 2; i < HalfOpen::per_site_max; ++i) open.has_sent(100 + i);
    CHECK(open.add(Time{}, 200, host(1)) == 0);  // all have sent
    CHECK(open.add(Time{}, 201, host(1)) == 200);
    CHECK(open.size() == HalfOpen::per_site_max + 1);
}

TEST_CASE("where each site holds one, the oldest of all goes", "[tcp][B5]") {
    HalfOpen open;
    for (unsigned site = 0; site < HalfOpen::total_max; ++site)
        CHECK_FALSE(open.add(Time{}, site, host(site)));
    open.has_sent(0);
    CHECK(open.add(Time{}, 1000, host(500)) == 1);
    CHECK(open.add(Time{}, 1001, host(1)) == 2);
    CHECK(open.size() == HalfOpen::total_max);
}

TEST_CASE("a few sites cannot exclude all others", "[tcp][B5]") {
    HalfOpen open;
    uint64_t id = 0;
    for (unsigned site = 0; site < HalfOpen::total_max / HalfOpen::per_site_max; ++site)
        for (size_t i = 0; i < HalfOpen::per_site_max; ++i) CHECK_FALSE(open.add(Time{}, id++, host(site)));
    CHECK(open.size() == HalfOpen::total_max);
    CHECK(open.add(Time{}, 1000, host(100)) == 0);
    CHECK(open.size() == HalfOpen::total_max);
}
