#include "core/tenant.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace nexar {
namespace {

TenantLimits limits_of(uint64_t total, uint64_t percent = 25) {
    TenantLimits limits;
    limits.totals.fill(total);
    limits.share_percent = percent;
    return limits;
}

std::vector<ChargeRef> take_all(const TenantRef& tenant, Resource resource) {
    std::vector<ChargeRef> out;
    for (auto charge = tenant->charge(resource); charge; charge = tenant->charge(resource))
        out.push_back(std::move(*charge));
    return out;
}

}  // namespace

TEST_CASE("a tenant gets its share and no more, and leaves the rest to others", "[core][N1][H8]") {
    Tenants tenants(limits_of(100));
    const TenantRef greedy = tenants.of("", 1000), other = tenants.of("", 1001);
    const auto taken = take_all(greedy, Resource::groups);
    CHECK(taken.size() == 25);
    CHECK(greedy->used(Resource::groups) == 25);
    const auto refused = greedy->charge(Resource::groups);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::table_full);
    CHECK(refused.error().text ==
          "user 1000 has 25 of at most 25 groups (groups_max = 100, of which one user may have 25 %: "
          "user_share_percent)");
    CHECK(other->charge(Resource::groups));
    CHECK(greedy->charge(Resource::sessions));
}

TEST_CASE("the total is a limit too", "[core][N1]") {
    Tenants tenants(limits_of(10, 50));
    const TenantRef a = tenants.of("", 1), b = tenants.of("", 2), c = tenants.of("", 3),
                    d = tenants.of("", 4);
    const auto first = take_all(a, Resource::regions), second = take_all(b, Resource::regions),
               third = take_all(c, Resource::regions);
    CHECK(first.size() + second.size() + third.size() == 10);
    const auto refused = d->charge(Resource::regions);
    REQUIRE(!refused);
    CHECK(refused.error().text.starts_with("this daemon has 10 of at most 10 regions"));
}

TEST_CASE("[N19] users who take all that they get leave a start for those who come", "[core]") {
    TenantLimits limits;
    limits.totals.fill(2000);
    limits.share_percent = 30;
    Tenants tenants(limits);
    std::vector<ChargeRef> taken;
    const auto take_all_of = [&](uint32_t uid) {
        size_t count = 0;
        for (auto& charge : take_all(tenants.of("", uid), Resource::sessions))
            taken.push_back(std::move(charge)), ++count;
        return count;
    };
    CHECK(take_all_of(1) == 600);
    CHECK(take_all_of(2) == 600);
    CHECK(take_all_of(3) == 550);
    const auto refused = tenants.of("", 3)->charge(Resource::sessions);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::table_full);
    CHECK(refused.error().text ==
          "this daemon has 1750 of at most 2000 sessions; the last 250 are for users with at most 7 "
          "(sessions_max = 2000, of which one user may have 30 %: user_share_percent)");
    for (uint32_t uid = 10; uid < 45; ++uid) CHECK(take_all_of(uid) == 7);
    CHECK(take_all_of(50) == 5);
    CHECK(take_all_of(51) == 0);
    taken.erase(taken.begin());  // a place of the greedy comes back, but not to them
    CHECK(take_all_of(1) == 0);
    CHECK(take_all_of(51) == 1);
}

TEST_CASE("[N19] a user who is alone gets his share, whatever is kept for others", "[core]") {
    for (const uint64_t total : {1u, 2u, 3u, 7u, 8u, 100u})
        for (const uint64_t percent : {1u, 30u, 88u, 95u, 100u}) {
            const TenantLimits limits = limits_of(total, percent);
            Tenants tenants(limits);
            CHECK(take_all(tenants.of("", 1), Resource::groups).size() == limits.share(Resource::groups));
        }
}

TEST_CASE("[N19] an amount that ends above a start takes nothing of what is kept", "[core]") {
    Tenants tenants(limits_of(1024, 50));
    const ChargeRef half = *tenants.of("", 1)->charge(Resource::region_bytes, 512),
                    rest = *tenants.of("", 2)->charge(Resource::region_bytes, 380);
    const TenantRef late = tenants.of("", 3);
    CHECK_FALSE(late->charge(Resource::region_bytes, 5));
    CHECK(late->charge(Resource::region_bytes, 4));
    CHECK(late->charge(Resource::region_bytes, UINT64_MAX).error().code == Errc::no_memory);
    const auto beyond = late->charge_beyond(Resource::scratch_bytes, 2000);
    CHECK(beyond);  // the rules of scratch memory are its own
}

TEST_CASE("an amount is taken whole or not at all, also the largest", "[core][N1]") {
    Tenants tenants(limits_of(1000));
    const TenantRef a = tenants.of("", 1);
    const auto some = a->charge(Resource::region_bytes, 200);
    REQUIRE(some);
    for (const uint64_t amount : {uint64_t{51}, UINT64_MAX, UINT64_MAX - 100}) {
        const auto refused = a->charge(Resource::region_bytes, amount);
        REQUIRE(!refused);
        CHECK(refused.error().code == Errc::no_memory);
        CHECK(a->used(Resource::region_bytes) == 200);
    }
    CHECK(a->charge(Resource::region_bytes, 50));
    Tenants wide(limits_of(UINT64_MAX, 100));
    CHECK(wide.of("", 1)->charge(Resource::region_bytes, UINT64_MAX / 2));
}

TEST_CASE("what a charge counts comes back once, on any thread", "[core][N2]") {
    Tenants tenants(limits_of(100));
    const TenantRef a = tenants.of("", 1);
    {
        auto taken = take_all(a, Resource::regions);
        const ChargeRef kept = taken.front();
        std::thread([taken = std::move(taken)] {}).join();
        CHECK(a->used(Resource::regions) == 1);
    }
    CHECK(a->used(Resource::regions) == 0);
    CHECK(tenants.totals().used[static_cast<size_t>(Resource::regions)] == 0);
}

TEST_CASE("a count is charged as a charge is, and moves with what it counts", "[core][N1][N2]") {
    Tenants tenants(limits_of(100));
    const TenantRef a = tenants.of("", 1);
    {
        auto first = a->count(Resource::requests, 20);
        REQUIRE(first);
        const auto refused = a->count(Resource::requests, 6);
        REQUIRE(!refused);
        CHECK(refused.error().code == Errc::table_full);
        CHECK(refused.error().text.starts_with("user 1 has 20 of at most 25 requests and asks for 6"));
        Count kept;
        kept = std::move(*first);
        CHECK(a->used(Resource::requests) == 20);
        kept = Count();
        kept = *a->count(Resource::requests, 25);
        CHECK(a->used(Resource::requests) == 25);
    }
    CHECK(a->used(Resource::requests) == 0);
    CHECK(tenants.totals().used[static_cast<size_t>(Resource::requests)] == 0);
}

TEST_CASE("a tenant is a label and a uid, and its number is never another's", "[core][N2]") {
    Tenants tenants;
    TenantRef a = tenants.of("", 1);
    CHECK(tenants.of("", 1) == a);
    CHECK(tenants.of("pod", 1) != a);
    CHECK(tenants.of("pod", 1)->name.text() == "user 1 of pod");
    const uint64_t number = a->number;
    a.reset();
    CHECK(tenants.of("", 1)->number == number);
    CHECK(tenants.of("", 2)->number > number);
}

TEST_CASE("of the tenants without references the newest stay; a charge keeps its tenant", "[core][N2]") {
    Tenants tenants;
    const ChargeRef charge = *tenants.of("", 0)->charge(Resource::sessions);
    for (uint32_t uid = 1; uid < Tenants::rows_kept_max + 10; ++uid) tenants.of("", uid);
    CHECK(tenants.all().size() == Tenants::rows_kept_max);
    CHECK(tenants.of("", 0)->used(Resource::sessions) == 1);
    const uint64_t last = tenants.of("", Tenants::rows_kept_max + 9)->number;
    CHECK(tenants.of("", Tenants::rows_kept_max + 9)->number == last);
    CHECK(tenants.of("", 1)->number > last);  // it was forgotten
}

TEST_CASE("a share is exact for large totals and never empty", "[core]") {
    CHECK(limits_of(UINT64_MAX, 100).share(Resource::groups) == UINT64_MAX);
    CHECK(limits_of(4096).share(Resource::groups) == 1024);
    CHECK(limits_of(3).share(Resource::groups) == 1);
    CHECK(limits_of(199, 50).share(Resource::groups) == 99);
}

}  // namespace nexar
