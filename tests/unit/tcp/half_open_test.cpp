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
    for (uint64_t i = 0; i < HalfOpen::per_site_max; ++i) CHECK(open.add(Time{}, i, host(1)).accepted);
    CHECK_FALSE(open.add(Time{}, 99, host(1)).accepted);
    CHECK(open.add(Time{}, 100, host(2)).accepted);
    CHECK_FALSE(open.overdue(Time{} + HalfOpen::patience - Duration{1}));
    CHECK(open.overdue(Time{} + HalfOpen::patience) == 0);
    CHECK(open.add(Time{}, 101, host(1)).accepted);
}

TEST_CASE("a few sites cannot exclude all others", "[tcp][B5]") {
    HalfOpen open;
    uint64_t id = 0;
    for (unsigned site = 0; site < HalfOpen::total_max / HalfOpen::per_site_max; ++site)
        for (size_t i = 0; i < HalfOpen::per_site_max; ++i)
            CHECK(open.add(Time{}, id++, host(site)).accepted);
    CHECK(open.size() == HalfOpen::total_max);
    const auto newcomer = open.add(Time{}, 1000, host(100));
    CHECK(newcomer.accepted);
    CHECK(newcomer.evicted == 0);
    CHECK(open.size() == HalfOpen::total_max);
}
