// One collective's scratch [N9] [N10]: the oldest has room for one segment in advance, and its lowest segment
// that is not over uses it.
#include "engine/op_scratch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>

namespace nexar::engine {
namespace {

constexpr uint64_t segment_bytes = 2000;
constexpr OpScratch::Shape four_segments{4, 2, segment_bytes};

struct Desk {
    explicit Desk(uint64_t share) {
        TenantLimits limits;
        limits.totals.fill(2 * share);
        limits.share_percent = 50;
        tenants = std::make_unique<Tenants>(limits);
        user = tenants->of("", 1);
    }
    uint64_t used() const { return user->used(Resource::scratch_bytes); }
    ChargeRef take(uint64_t bytes) const {
        return std::make_shared<const Charge>(user, Resource::scratch_bytes, bytes);
    }

    Executor executor;
    ScratchShare share{executor};
    std::unique_ptr<Tenants> tenants;
    TenantRef user;
};

}  // namespace

TEST_CASE("an operation is charged for its segments until they are over", "[engine][N8]") {
    Desk desk(100'000);
    {
        OpScratch op(desk.share);
        REQUIRE(op.start(desk.user, four_segments));
        CHECK(desk.used() == 0);
        REQUIRE(op.may_begin(1, segment_bytes));
        op.begin(1, segment_bytes);
        op.begin(0, 10);  // too little to be counted
        CHECK(desk.used() == segment_bytes);
        op.over(0);
        CHECK(desk.used() == segment_bytes);
        op.over(1);
        CHECK(desk.used() == 0);
        op.begin(2, segment_bytes);
    }
    CHECK(desk.used() == 0);
}

TEST_CASE("the oldest goes on with one segment at a time, the lowest first", "[engine][N9]") {
    Desk desk(segment_bytes);  // so half of it is less than a segment
    OpScratch op(desk.share);
    REQUIRE(op.set_oldest());
    REQUIRE(op.start(desk.user, four_segments));
    CHECK(desk.used() == segment_bytes);  // in advance
    CHECK_FALSE(op.may_begin(1, segment_bytes));
    REQUIRE(op.may_begin(0, segment_bytes));
    op.begin(0, segment_bytes);
    CHECK(desk.used() == segment_bytes);

    ScratchShare::Waiter second(desk.share, desk.user, &op, 1), third(desk.share, desk.user, &op, 2);
    op.over(0);
    REQUIRE(second.op.done());
    CHECK_FALSE(third.op.done());
    op.begin(1, segment_bytes);
    op.over(1);
    REQUIRE(third.op.done());
    op.begin(2, segment_bytes);
    op.over(2);
    op.begin(3, segment_bytes);
    CHECK(desk.used() == segment_bytes);
    op.over(3);
    op.end();
    CHECK(desk.used() == 0);
}

TEST_CASE("a segment that runs when its operation becomes the oldest is the one in advance", "[engine][N9]") {
    Desk desk(100'000);
    OpScratch op(desk.share);
    REQUIRE(op.start(desk.user, four_segments));
    op.begin(0, segment_bytes);
    op.begin(1, segment_bytes);
    REQUIRE(op.set_oldest());
    CHECK(desk.used() == 2 * segment_bytes);
    const ChargeRef others = desk.take(100'000);
    op.over(0);  // the next one in advance is the one that runs
    CHECK(desk.used() == 100'000 + segment_bytes);
    ScratchShare::Waiter third(desk.share, desk.user, &op, 2);
    op.over(1);
    CHECK(third.op.done());
    CHECK(desk.used() == 100'000 + segment_bytes);
}

TEST_CASE("an oldest operation without room is refused, with a text that names the limits",
          "[engine][N9][N10][H9]") {
    Desk desk(100'000);
    ChargeRef others = desk.take(99'999);
    OpScratch first(desk.share), second(desk.share);
    REQUIRE(first.start(desk.user, four_segments));
    REQUIRE(first.set_oldest());  // above the half, and below the whole
    CHECK(desk.used() == 99'999 + segment_bytes);

    REQUIRE(second.set_oldest());
    const auto refused = second.start(desk.user, four_segments);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::no_memory);
    for (const char* part :
         {"user 1 has 101999 of at most 100000", "scratch_bytes_max", "user_share_percent"})
        CHECK(refused.error().text.contains(part));
    CHECK(desk.used() == 99'999 + segment_bytes);
}

TEST_CASE("what needs little or has begun all segments needs no room", "[engine][N9]") {
    Desk desk(100'000);
    const ChargeRef others = desk.take(100'000);
    OpScratch small(desk.share), begun(desk.share);
    REQUIRE(small.set_oldest());
    CHECK(small.start(desk.user, {4, 2, ScratchShare::uncounted_max}));

    REQUIRE(begun.start(desk.user, {2, 2, segment_bytes}));
    begun.begin(0, 1500);
    begun.begin(1, 1500);
    CHECK(begun.set_oldest());
}

TEST_CASE("an operation that fails gives its room back, and its segments fail", "[engine][N9]") {
    Desk desk(segment_bytes);
    OpScratch op(desk.share);
    REQUIRE(op.set_oldest());
    REQUIRE(op.start(desk.user, four_segments));
    ScratchShare::Waiter waiter(desk.share, desk.user, &op, 1);
    op.fail({Errc::aborted, "it was cancelled", -1, -1, {}});
    REQUIRE(waiter.op.done());
    CHECK(waiter.op.error()->code == Errc::aborted);
    CHECK(desk.used() == 0);
}

}  // namespace nexar::engine
