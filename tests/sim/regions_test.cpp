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

}  // namespace nexar::sim
