// Which segments begin [N8]: below half of the share at once, the rest in order as scratch is returned.
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

TEST_CASE("segments begin below half of the share of their tenant, and below half of the total",
          "[engine][N8][H9]") {
    Shares s(1000, 60);
    CHECK(s.share.has_room(*s.a));
    ChargeRef first = Shares::take(s.a, 299);
    CHECK(s.share.has_room(*s.a));
    ChargeRef second = Shares::take(s.a, 100);  // begins below the half, and ends above it
    CHECK_FALSE(s.share.has_room(*s.a));
    CHECK(s.share.has_room(*s.b));
    ChargeRef third = Shares::take(s.b, 101);
    CHECK_FALSE(s.share.has_room(*s.b));  // the total
}

TEST_CASE("of one tenant's segments the most urgent begins first, and each tenant has its own order",
          "[engine][K24]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 260), others = Shares::take(s.b, 260);
    ScratchShare::Waiter bulk(s.share, s.a, &s.one, 0, Priority::bulk);
    ScratchShare::Waiter more(s.share, s.a, &s.one, 1, Priority::bulk);
    ScratchShare::Waiter other(s.share, s.b, &s.two, 0, Priority::bulk);
    ScratchShare::Waiter realtime(s.share, s.a, &s.two, 1, Priority::realtime);
    ScratchShare::Waiter critical(s.share, s.a, &s.two, 2, Priority::critical);
    ScratchShare::Waiter second(s.share, s.a, &s.two, 3, Priority::critical);
    std::vector<ScratchShare::Waiter*> order{&critical, &second, &realtime, &bulk, &more};
    s.give_back(others);
    CHECK(other.op.done());
    for (size_t next = 0; next < order.size(); ++next) {
        held.reset();  // room for one: what it takes is charged before the next is looked at
        struct Takes final : Runnable {
            void run() override {
                if (waiter->op.done() && !*charge) *charge = Shares::take(shares->a, 260);
            }
            Shares* shares;
            ScratchShare::Waiter* waiter;
            ChargeRef* charge;
        } takes;
        takes.shares = &s, takes.waiter = order[next], takes.charge = &held;
        s.share.returned();
        s.executor.push(&takes);
        s.executor.run_ready();
        for (size_t i = 0; i < order.size(); ++i) CHECK(order[i]->op.done() == (i <= next));
    }
}

TEST_CASE("segments that wait begin in order when scratch is returned, no more than there is room for",
          "[engine][N8][H9]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    ScratchShare::Waiter first(s.share, s.a, &s.one, 0), second(s.share, s.a, &s.two, 0);
    s.share.returned();  // of somebody else: there is no room yet
    s.executor.run_ready();
    CHECK_FALSE(first.op.done());

    held.reset();
    held = Shares::take(s.a, 250);
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
    ScratchShare::Waiter first(s.share, s.a, &s.one, 0);
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
    ChargeRef of_a = Shares::take(s.a, 250), of_b = Shares::take(s.b, 249);
    ScratchShare::Waiter first(s.share, s.a, &s.one, 0);
    CHECK_FALSE(first.op.done());
    CHECK(s.share.has_room(*s.b));
    ChargeRef more = Shares::take(s.b, 1);
    ScratchShare::Waiter second(s.share, s.b, &s.two, 0);
    s.give_back(of_b);
    CHECK(second.op.done());
    CHECK_FALSE(first.op.done());
}

TEST_CASE("a segment can be let in, and all of one operation can be ended", "[engine][N9]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    ScratchShare::Waiter first(s.share, s.a, &s.one, 0), other(s.share, s.a, &s.two, 0),
        third(s.share, s.a, &s.one, 1), fourth(s.share, s.a, &s.one, 2);
    s.share.open(&s.one, 1);
    s.share.open(&s.one, 9);  // it does not wait
    CHECK((third.op.done() && !third.op.error()));
    CHECK_FALSE((first.op.done() || fourth.op.done() || other.op.done()));
    s.share.fail(&s.one, {Errc::aborted, "it was cancelled", -1, -1, {}});
    REQUIRE((first.op.done() && fourth.op.done()));
    CHECK(first.op.error()->code == Errc::aborted);
    CHECK_FALSE(s.share.waits(&s.one));
    CHECK(s.share.waits(&s.two));
    s.give_back(held);
    CHECK(other.op.done());
}

TEST_CASE("a segment that goes while it waits is forgotten", "[engine][N8]") {
    Shares s(1000);
    ChargeRef held = Shares::take(s.a, 600);
    {
        ScratchShare::Waiter gone(s.share, s.a, &s.one, 0);
    }
    CHECK_FALSE(s.share.waits(&s.one));
    s.give_back(held);
    CHECK(s.share.has_room(*s.a));
}

}  // namespace nexar::engine
