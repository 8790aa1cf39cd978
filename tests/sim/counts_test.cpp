// Operations with a count per rank: uneven lists, and lists that ranks do not agree on.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "program.hpp"

namespace nexar::sim {
namespace {

using List = std::vector<uint64_t>;

ClusterShape small_segments() {
    ClusterShape shape;
    shape.nodes = 4;
    shape.plan = {1, 256, 64, 128, 4096, 3};
    return shape;
}

// Rank `rank` calls with its own list; its block has bytes that state rank and position.
Call& call(Cluster& cluster, const SimGroup& group, uint32_t rank, const List& list) {
    OpDescriptor d{OpKind::all_gatherv, Dtype::u32, ReduceOp::sum, 0, 0};
    const auto counts = std::make_shared<const Counts>(*Counts::of(list));
    d.count = counts->sum();
    engine::OpRequest request = request_of(d);
    request.counts = counts;
    std::vector<std::byte> in = Reference::input(7, rank, counts->of(rank), Dtype::u32);
    return cluster.submit(group, rank, request, std::move(in), 4 * counts->sum());
}

void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
}

void expect_gathered(const SimGroup& group, const List& list) {
    Cluster cluster(3, small_segments());
    const SimGroup made = cluster.make_group(group.placement);
    std::vector<Call*> calls;
    for (uint32_t rank = 0; rank < list.size(); ++rank) calls.push_back(&call(cluster, made, rank, list));
    expect_end(cluster);
    std::vector<std::byte> want;
    for (uint32_t rank = 0; rank < list.size(); ++rank) {
        const auto block = Reference::input(7, rank, list[rank], Dtype::u32);
        want.insert(want.end(), block.begin(), block.end());
    }
    for (const Call* one : calls) {
        REQUIRE(one->ok());
        REQUIRE(one->out_at_end == want);
    }
    cluster.check();
}

}  // namespace

TEST_CASE("all_gatherv: wildly uneven lists, on placements of all kinds") {
    const std::vector<List> lists{{0, 0, 0, 0, 0, 0},      {1, 1, 1, 1, 1, 1},   {0, 0, 5, 0, 0, 0},
                                  {70'000, 1, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 1},   {3, 0, 1000, 0, 4097, 63},
                                  {1, 1, 1, 1, 1, 50'000}, {9, 9, 9, 9000, 9, 9}};
    const std::vector<std::vector<uint32_t>> placements{
        {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}, {3, 0, 3, 1, 2, 3}, {0, 1, 1, 1, 1, 1}};
    for (const List& list : lists)
        for (const std::vector<uint32_t>& placement : placements) {
            CAPTURE(list, placement);
            SimGroup group;
            group.placement = placement;
            expect_gathered(group, list);
        }
}

TEST_CASE(
    "lists of counts that differ are a mismatch that names two ranks, also where no rank waits for another") {
    const std::vector<std::pair<List, List>> pairs{
        {{5, 0, 5}, {0, 5, 5}},  // one sum
        {{5, 5, 5}, {5, 5, 6}},
        {{9, 0, 0}, {0, 0, 9}},  // each expects nothing from the other
        {{3000, 0, 1}, {0, 3000, 1}},
        {{0, 0, 0}, {0, 0, 1}}};
    for (const auto& [most, odd] : pairs)
        for (const std::vector<uint32_t>& placement :
             std::vector<std::vector<uint32_t>>{{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {1, 0, 0}})
            for (uint32_t differs = 0; differs < 3; ++differs) {
                CAPTURE(most, odd, placement, differs);
                Cluster cluster(5, small_segments());
                const SimGroup group = cluster.make_group(placement);
                std::vector<Call*> calls;
                for (uint32_t rank = 0; rank < 3; ++rank)
                    calls.push_back(&call(cluster, group, rank, rank == differs ? odd : most));
                expect_end(cluster);
                size_t named = 0;
                for (const Call* one : calls) {
                    if (one->ok()) continue;
                    ++named;
                    CAPTURE(one->outcome.error.text);
                    REQUIRE(one->outcome.error.code == Errc::mismatch);
                    REQUIRE(one->outcome.error.text.contains("rank " + std::to_string(differs) + " ("));
                    REQUIRE(one->outcome.error.text.contains("in counts of digest"));
                }
                REQUIRE(named >= 2);
            }
}

}  // namespace nexar::sim
