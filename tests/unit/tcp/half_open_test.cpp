// Limits of connections that have not attached.
#include "tcp/half_open.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "core/random.hpp"

using namespace nexar;
using namespace nexar::tcp;

namespace {
quic::Address host(unsigned n) {
    return *quic::Address::parse("10.0." + std::to_string(n / 250) + "." + std::to_string(1 + n % 250) +
                                 ":1");
}

// [B5] in its own words, counted anew each time.
struct Model {
    struct Row {
        uint64_t id;
        unsigned site;
        bool silent;
    };
    std::vector<Row> rows;  // the oldest first

    ptrdiff_t held(unsigned site) const { return std::ranges::count(rows, site, &Row::site); }
    std::vector<Row>::iterator oldest(auto suits) {
        auto row = std::ranges::find_if(rows, [&](const Row& r) { return suits(r) && r.silent; });
        return row != rows.end() ? row : std::ranges::find_if(rows, suits);
    }
    std::optional<uint64_t> add(uint64_t id, unsigned site) {
        auto gone = rows.end();
        if (held(site) >= static_cast<ptrdiff_t>(HalfOpen::per_site_max)) {
            gone = oldest([&](const Row& r) { return r.site == site; });
        } else if (rows.size() >= HalfOpen::total_max) {
            ptrdiff_t most = 0;
            for (const Row& row : rows) most = std::max(most, held(row.site));
            const unsigned of = oldest([&](const Row& r) { return held(r.site) == most; })->site;
            gone = oldest([&](const Row& r) { return r.site == of; });
        }
        std::optional<uint64_t> out;
        if (gone != rows.end()) {
            out = gone->id;
            rows.erase(gone);
        }
        rows.push_back({id, site, true});
        return out;
    }
};
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

TEST_CASE("where descriptors are short only one of the largest site that was spared its time goes",
          "[tcp][B5]") {
    HalfOpen open;
    CHECK_FALSE(open.make_room(Time{} + HalfOpen::patience));
    CHECK_FALSE(open.add(Time{}, 0, host(2)));  // a node that waits for its key, say
    const Time later = Time{} + HalfOpen::spared;
    for (uint64_t i = 1; i <= 3; ++i) CHECK_FALSE(open.add(later, i, host(1)));
    open.has_sent(0);
    open.has_sent(1);
    CHECK_FALSE(open.make_room(later + HalfOpen::spared - Duration{1}));  // it is not of the largest
    CHECK_FALSE(open.add(later + Duration{1}, 4, host(1)));
    CHECK(open.make_room(later + HalfOpen::spared) == 2);  // silent ones go first
    CHECK(open.make_room(later + HalfOpen::spared) == 3);
    CHECK(open.make_room(later + HalfOpen::spared) == 1);  // the silent one is too young
    CHECK(open.make_room(later + HalfOpen::spared) == 0);  // each holds one
    CHECK_FALSE(open.make_room(later + HalfOpen::spared));
    CHECK(open.size() == 1);
}

TEST_CASE("as connections come, send and go, the one that the rules name makes room", "[tcp][B5]") {
    for (const unsigned sites : {1u, 7u, 9u, 60u, 200u}) {
        HalfOpen open;
        Model model;
        Random random(sites);
        for (uint64_t id = 0; id < 3000; ++id) {
            const auto site = static_cast<unsigned>(random.below(sites));
            REQUIRE(open.add(Time{}, id, host(site)) == model.add(id, site));
            const size_t at = random.below(model.rows.size());
            if (random.one_in(3)) {
                open.has_sent(model.rows[at].id);
                model.rows[at].silent = false;
            } else if (random.one_in(6)) {
                open.remove(model.rows[at].id);
                model.rows.erase(model.rows.begin() + static_cast<ptrdiff_t>(at));
            } else if (random.one_in(40)) {
                REQUIRE(open.overdue(Time{} + HalfOpen::patience) == model.rows.front().id);
                model.rows.erase(model.rows.begin());
            }
            REQUIRE(open.size() == model.rows.size());
        }
    }
}
