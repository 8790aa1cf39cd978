// Which segments begin [N8] [N9]: below the share at once, the rest in order as scratch is returned.
#include "engine/scratch_share.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

namespace nexar::engine {
namespace {

struct Shares {
    explicit Shares(uint64_t total, uint64_t percent = 50) {
        TenantLimits limits;
        limits.totals.fill(total);
        limits.share_percent = percent;
        tenants = std::make_unique<Tenants>(limits);
        a = tenants->of("", 1);
        b = tenants->of("", 2);
    }
    static ChargeRef take(const TenantRef& tenant, uint64_t bytes) {
        return std::make_shared<const Charge>(tenant, Resource::scratch_bytes, bytes);
    }
    void give_back(ChargeRef& charge) {
        charge.reset();
        share.returned();
        executor.run_ready();
    }

    Executor executor;
    ScratchShare share{executor};
    std::unique_ptr<Tenants> tenants;
    TenantRef a, b;
    const int one = 1, two = 2;  // owners
};

}  // namespace

TEST_CASE("segments begin below the share of their tenant, and below the total", "[engine][N8][H9]") {
    Shares s(1000);
    CHECK(s.share.has_room(*s.a));
    ChargeRef first = Shares::take(s.a, 499);
    CHECK(s.share.has_room(*s.a));
    ChargeRef second = Shares::take(s.a, 300);  // begins below the share, and ends above it
    CHECK_FALSE(s.share.has_room(*s.a));
    CHECK(s.share.has_room(*s.b));
    ChargeRef third = Shares::take(s.b, 300);
    CHECK_FALSE(s.share.has_room(*s.b));  // the total
}

TEST_CASE("segments that wait begin in order when scratch is returned, no more than there is room for",
          "[engine][N8][H9]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    ScratchShare::Waiter first(s.share, s.a, &s.one), second(s.share, s.a, &s.two);
    s.share.returned();  // of somebody else: there is no room yet
    s.executor.run_ready();
    CHECK_FALSE(first.op.done());

    held.reset();
    held = Shares::take(s.a, 500);
    s.share.returned();
    s.executor.run_ready();
    CHECK_FALSE(first.op.done());

    s.give_back(held);
    CHECK(first.op.done());
    CHECK(second.op.done());  // the first has taken nothing
    CHECK(s.share.has_room(*s.a));
}

TEST_CASE("a newcomer does not overtake segments that wait", "[engine][N8]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    ScratchShare::Waiter first(s.share, s.a, &s.one);
    held.reset();
    CHECK_FALSE(s.share.has_room(*s.a));
    CHECK(s.share.has_room(*s.b));
    s.share.returned();
    s.executor.run_ready();
    CHECK(first.op.done());
    CHECK(s.share.has_room(*s.a));
}

TEST_CASE("one tenant's wait does not hold up another's", "[engine][N8]") {
    Shares s(1000);
    ChargeRef of_a = Shares::take(s.a, 500), of_b = Shares::take(s.b, 499);
    ScratchShare::Waiter first(s.share, s.a, &s.one);
    CHECK_FALSE(first.op.done());
    CHECK(s.share.has_room(*s.b));
    ChargeRef more = Shares::take(s.b, 1);
    ScratchShare::Waiter second(s.share, s.b, &s.two);
    s.give_back(of_b);
    CHECK(second.op.done());
    CHECK_FALSE(first.op.done());
}

TEST_CASE("all segments of one operation can be let in or ended", "[engine][N9]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    ScratchShare::Waiter first(s.share, s.a, &s.one), other(s.share, s.a, &s.two),
        third(s.share, s.a, &s.one);
    CHECK(s.share.waits(&s.one));
    s.share.open(&s.one);
    CHECK((first.op.done() && third.op.done() && !first.op.error() && !third.op.error()));
    CHECK_FALSE(other.op.done());
    CHECK_FALSE(s.share.waits(&s.one));
    s.share.fail(&s.two, {Errc::aborted, "it was cancelled", -1, -1, {}});
    REQUIRE(other.op.done());
    CHECK(other.op.error()->code == Errc::aborted);
    s.give_back(held);  // nobody waits
}

TEST_CASE("a segment that goes while it waits is forgotten", "[engine][N8]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    {
        ScratchShare::Waiter gone(s.share, s.a, &s.one);
    }
    CHECK_FALSE(s.share.waits(&s.one));
    s.give_back(held);
    CHECK(s.share.has_room(*s.a));
}

}  // namespace nexar::engine
