// [M3] A region that its session frees, or leaves behind, while transfers use it.
#include <catch2/catch_test_macros.hpp>

#include "cluster.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using engine::OpKind;

constexpr uint64_t count = 300'000;

struct Scene {
    Cluster cluster;
    SimGroup group;
    Call* calls[2];
    std::weak_ptr<const void> rows[2];  // the regions of rank 0's input and output

    explicit Scene(uint64_t seed) : cluster(seed, {}), group(cluster.make_group({0, 1})) {
        for (uint32_t rank = 0; rank < 2; ++rank) {
            const engine::OpRequest words =
                request_of({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0});
            calls[rank] =
                &cluster.submit(group, rank, words, Reference::input(1, rank, count, Dtype::i32), count * 4);
        }
        for (size_t i = 0; i < 2; ++i) rows[i] = calls[0]->windows[i];
        while (cluster.bytes_sent(0, 1) == 0) cluster.run_for(10us);
    }
    void drop_pins_of_session() {
        for (auto& pin : calls[0]->windows) pin.reset();
    }
};

}  // namespace

TEST_CASE("a region that is freed amid a transfer stays until the operation has ended", "[M3][W7]") {
    for (const uint64_t seed : seeds(20)) {
        Scene s(seed);
        REQUIRE_FALSE(s.calls[0]->ended);
        s.drop_pins_of_session();
        for (const auto& row : s.rows) CHECK_FALSE(row.expired());
        REQUIRE(s.cluster.run());
        CHECK((s.calls[0]->ok() && s.calls[1]->ok()));
        for (const auto& row : s.rows) CHECK(row.expired());
        s.cluster.check();
    }
}

TEST_CASE("a session that ends amid a transfer leaves its regions to the transfer, and then they go",
          "[M3][W7]") {
    for (const uint64_t seed : seeds(20)) {
        Scene s(seed);
        s.drop_pins_of_session();
        s.cluster.end_session(s.group, 0);
        REQUIRE(s.cluster.run());
        CHECK(s.calls[1]->ended);
        for (const auto& row : s.rows) CHECK(row.expired());
        s.cluster.check();
    }
}

TEST_CASE("what a rank posted and got an error for is unpinned, though another rank here has not called it",
          "[M3]") {
    Cluster cluster(1, {});
    const SimGroup group = cluster.make_group({0, 0, 1});
    engine::OpRequest words = request_of({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100, 0});
    words.timeout = 20ms;
    for (int i = 0; i < 3; ++i) {
        Call& call = cluster.submit(group, 0, words, Reference::input(1, 0, 100, Dtype::i32), 400);
        const std::weak_ptr<const void> rows[] = {call.windows[0], call.windows[1]};
        for (auto& pin : call.windows) pin.reset();
        cluster.run_for(1s);
        REQUIRE(call.outcome.error.code == Errc::timed_out);
        for (const auto& row : rows) CHECK(row.expired());
    }
    // The late rank calls what has ended.
    for (int i = 0; i < 2; ++i) {
        Call& late = cluster.submit(group, 1, words, Reference::input(1, 1, 100, Dtype::i32), 400);
        const std::weak_ptr<const void> rows[] = {late.windows[0], late.windows[1]};
        for (auto& pin : late.windows) pin.reset();
        REQUIRE((late.ended && late.outcome.error.code == Errc::aborted));
        for (const auto& row : rows) CHECK(row.expired());
    }
    cluster.check();
}

}  // namespace nexar::sim
