// Layout and plan: pure functions.
#include "collectives/plan.hpp"

#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <set>

#include "collectives/extents.hpp"
#include "support/regions.hpp"

namespace nexar::collectives {

TEST_CASE("the parts of a count cover it in order and differ by at most one") {
    for (uint64_t count : {0u, 1u, 2u, 7u, 16u, 1000u, 1001u})
        for (uint32_t parts = 1; parts <= 17; ++parts) {
            uint64_t at = 0;
            for (uint32_t i = 0; i < parts; ++i) {
                const ElementRange range = part_of(count, parts, i);
                REQUIRE(range.begin == at);
                REQUIRE((range.count == count / parts || range.count == count / parts + 1));
                at += range.count;
            }
            REQUIRE(at == count);
        }
}

TEST_CASE("nodes are numbered by their first rank, ranks listed in rank order") {
    const std::vector<uint32_t> placement{9, 4, 9, 7, 4, 4};

    const Layout layout(placement);

    REQUIRE(layout.size() == 6);
    REQUIRE(layout.nodes() == 3);
    REQUIRE(layout.node_of(3) == NodeIndex(2));
    const auto middle = layout.ranks_on(NodeIndex(1));
    REQUIRE(std::vector<uint32_t>(middle.begin(), middle.end()) == std::vector<uint32_t>{1, 4, 5});
}

TEST_CASE("each node's subtrees are those of its ranks, and are found once", "[Z7]") {
    std::vector<std::vector<uint32_t>> placements(4, std::vector<uint32_t>(1024));
    for (uint32_t rank = 0; rank < 1024; ++rank) {
        placements[0][rank] = rank / 16;                // blockwise: a subtree each
        placements[1][rank] = rank % 64;                // cyclic: one for each rank
        placements[2][rank] = rank * 2654435761 >> 26;  // at random
        placements[3][rank] = 0;
    }
    for (const auto& placement : placements) {
        const Layout layout(placement);
        size_t sum = 0, most = 0;
        for (uint32_t i = 0; i < layout.nodes(); ++i) {
            const NodeIndex node(i);
            const auto found = layout.subtrees_on(node);
            REQUIRE(std::vector(found.begin(), found.end()) ==
                    reduce::subtrees_of(layout.ranks_on(node), layout.size()));
            REQUIRE(layout.subtrees_on(node).data() == found.data());
            sum += found.size();
            most = std::max(most, found.size());
        }
        REQUIRE(layout.subtrees() == sum);
        REQUIRE(layout.subtrees_max() == most);
    }
    CHECK(Layout(placements[0]).subtrees() == 64);
    CHECK(Layout(placements[1]).subtrees_max() == 16);
}

TEST_CASE("a slice of an extent list takes exactly its run, across and inside extents") {
    std::array<std::byte, 10> memory{};
    const Place at = nexar::test::place_of(memory.data());
    const link::Extents extents{{at, 3}, {at + 5, 0}, {at + 5, 5}};

    const link::Extents cut = slice(extents, 2, 4);

    REQUIRE(cut.size() == 2);
    REQUIRE((cut[0].data() == memory.data() + 2 && cut[0].bytes == 1));
    REQUIRE((cut[1].data() == memory.data() + 5 && cut[1].bytes == 3));
    REQUIRE(slice(extents, 8, 0).empty());
}

TEST_CASE("the hash of a plan table changes with every field") {
    std::set<uint64_t> seen{PlanTable{}.hash(1)};
    PlanTable t;
    t.version = 1;
    REQUIRE(seen.insert(t.hash(1)).second);
    t = {};
    t.small_bytes_max += 1;
    REQUIRE(seen.insert(t.hash(1)).second);
    t = {};
    t.doubling_bytes_max += 1;
    REQUIRE(seen.insert(t.hash(1)).second);
    t = {};
    t.chunk_bytes /= 2;
    REQUIRE(seen.insert(t.hash(1)).second);
    t = {};
    t.segment_bytes += 1;
    REQUIRE(seen.insert(t.hash(1)).second);
    t = {};
    t.lanes += 1;
    REQUIRE(seen.insert(t.hash(1)).second);
    for (const auto change : std::initializer_list<void (*)(PlanTable&)>{
             [](PlanTable& x) { x.model.small.start_ns += 1; },
             [](PlanTable& x) { x.model.small.ps_per_byte += 1; },
             [](PlanTable& x) { x.model.bulk.start_ns += 1; },
             [](PlanTable& x) { x.model.bulk.ps_per_byte += 1; },
             [](PlanTable& x) { x.model.memory_ps_per_byte += 1; },
             [](PlanTable& x) { x.model.shared_ps_per_byte += 1; },
             [](PlanTable& x) { x.large_message_bytes += 1; }, [](PlanTable& x) { x.ring_nodes_max += 1; },
             [](PlanTable& x) { x.family = Family::ring; }}) {
        t = {};
        t.version = 3;
        seen.insert(t.hash(1));
        change(t);
        REQUIRE(seen.insert(t.hash(1)).second);
    }
    REQUIRE(seen.insert(PlanTable{}.hash(2)).second);
}

TEST_CASE("a plan table out of range is refused, naming the field") {
    const auto refusal = [](auto change) {
        PlanTable t;
        t.version = 3;
        change(t);
        const auto result = t.check();
        return result ? std::string() : result.error().text;
    };
    REQUIRE(PlanTable{}.check());
    REQUIRE(refusal([](PlanTable& t) { t.version = 7; }).contains("version 7"));
    REQUIRE(refusal([](PlanTable& t) { t.chunk_bytes = 100; }).contains("chunk_bytes 100"));
    REQUIRE(refusal([](PlanTable& t) { t.chunk_bytes = 1 << 20; }).contains("chunk_bytes 1048576"));
    REQUIRE(refusal([](PlanTable& t) { t.lanes = 0; }).contains("lanes 0"));
    REQUIRE(refusal([](PlanTable& t) { t.model.bulk.start_ns = 0; }).contains("bulk_start_ns 0"));
    REQUIRE(refusal([](PlanTable& t) {
                t.model.memory_ps_per_byte = ps_per_byte_max + 1;
            }).contains("memory_ps_per_byte 100000001"));
    REQUIRE(refusal([](PlanTable& t) { t.family = static_cast<Family>(4); }).contains("number 4"));
    REQUIRE(refusal([](PlanTable& t) { t.segment_bytes = 1; }).contains("segment_bytes 1"));
    REQUIRE(refusal([](PlanTable& t) {
                t.doubling_bytes_max = uint64_t{1} << 40;
            }).contains("doubling_bytes_max"));
}

TEST_CASE("a plan table whose segments have more chunks than a transfer may have is refused", "[H12]") {
    PlanTable t;
    t.segment_bytes = segment_bytes_max;
    REQUIRE(t.check());
    t.chunk_bytes = 1024;
    REQUIRE_FALSE(t.check());
    CHECK(t.check().error().text.contains("1024"));
    t.chunk_bytes = 64;
    t.segment_bytes = uint64_t{32} << 20;
    REQUIRE(t.check());
    // The longest segments that such a table makes, with whole rows of many ranks.
    const Layout layout(std::vector<uint32_t>{0, 1});
    for (const uint64_t count : {uint64_t{1} << 20, (uint64_t{1} << 34) + 1, uint64_t{1} << 36}) {
        const Plan p = plan({Kind::all_gather, count, 8, 0}, layout, t);
        const uint64_t longest = part_of(count, p.segments, 0).count * 8 * 2;
        CHECK((longest + p.chunk_bytes - 1) / p.chunk_bytes <= link::transfer_chunks_max);
    }
}

TEST_CASE(
    "a short all_gather is logarithmic from plan function 2 on, and a ring in groups that have 1 [V5]") {
    const Layout layout(std::vector<uint32_t>{0, 1, 2, 0, 1, 2});
    PlanTable t;
    for (const Kind kind : {Kind::all_gather, Kind::all_gatherv}) {
        t.version = 2;
        CHECK(plan({kind, 10, 4, 0}, layout, t).algorithm == Algorithm::bruck_all_gather);
        CHECK(plan({kind, 100'000, 4, 0}, layout, t).algorithm == Algorithm::ring_all_gather);
        t.version = 1;
        CHECK(plan({kind, 10, 4, 0}, layout, t).algorithm == Algorithm::ring_all_gather);
    }
}

TEST_CASE("an all_to_all sends a block for each pair of ranks, and counts a phase per transfer") {
    const Layout layout(std::vector<uint32_t>{0, 1, 2, 0, 1, 0});  // 3, 2 and 1 ranks
    const Shape shape{Kind::all_to_all, 1001, 8, 0};
    const uint64_t block = 1001 * 8;
    const auto bytes = predict_bytes(plan(shape, layout, {}), shape, layout);
    REQUIRE(bytes ==
            std::vector<uint64_t>{0, 6 * block, 3 * block, 6 * block, 0, 2 * block, 3 * block, 2 * block, 0});

    PlanTable t;
    REQUIRE(plan({Kind::all_to_all, 1 << 20, 4, 0}, layout, t).phases == 1);
    t.chunk_bytes = 64;
    t.segment_bytes = uint64_t{32} << 20;
    std::vector<uint32_t> placement(16);
    for (uint32_t rank = 0; rank < 16; ++rank) placement[rank] = rank % 2;
    // Eight ranks to eight: 64 blocks of 2 MiB, in transfers of at most 2^20 chunks.
    REQUIRE(plan({Kind::all_to_all, 10 << 20, 4, 0}, Layout(placement), t).phases == 2);
}

TEST_CASE(
    "an all_to_allv is one segment of the bulk class, whatever it moves; its phases follow from its lists") {
    const Layout layout(std::vector<uint32_t>{0, 1, 0});
    const Plan unknown = plan({Kind::all_to_allv, 0, 4, 0}, layout, {});
    REQUIRE(unknown.algorithm == Algorithm::pairwise_all_to_allv);
    REQUIRE((unknown.segments == 1 && unknown.lanes == 1 && unknown.cls == Class::bulk));
    REQUIRE(plan({Kind::all_to_allv, 0, 4, 0}, Layout(std::vector<uint32_t>{5, 5}), {}).algorithm ==
            Algorithm::local);

    PlanTable t;
    t.chunk_bytes = 64;
    const auto list = [](uint64_t a, uint64_t b, uint64_t c) { return *Counts::of(std::array{a, b, c}); };
    const std::vector<Counts> sends{list(0, 10 << 20, 0), list(1, 1, 1), list(7, 16 << 20, 7)};
    const Shape shape{Kind::all_to_allv, 0, 4, 0, nullptr, sends};
    const Plan known = plan(shape, layout, t);
    REQUIRE(known.phases == 3);  // counts, and 104 MiB in transfers of 64
    REQUIRE(predict_bytes(known, shape, layout) == std::vector<uint64_t>{0, 16 + (104 << 20), 16 + 8, 0});
}

// By size four nodes double 64 KiB. Ever dearer bytes speak for the ring, which sends fewer of them.
TEST_CASE("the choice by size stands unless another is predicted to take less than three quarters", "[O2]") {
    const Layout layout(std::vector<uint32_t>{0, 1, 2, 3});
    const Shape shape{Kind::all_reduce, 16'384, 4, 0};
    PlanTable table;
    REQUIRE(plan(shape, layout, table).algorithm == Algorithm::doubling_all_reduce);
    table.version = 3;
    table.model.memory_ps_per_byte = 1;
    size_t stands = 0, gives_way = 0;
    for (uint32_t ps = 1; ps < 100'000; ps += ps / 20 + 1) {
        table.model.small.ps_per_byte = ps;
        uint64_t usual = 0, least = UINT64_MAX;
        const Candidate* chosen = nullptr;
        const std::vector<Candidate> all = explain(shape, layout, table);
        for (const Candidate& one : all) {
            if (one.algorithm == Algorithm::doubling_all_reduce && one.cls == Class::small)
                usual = one.picoseconds;
            least = std::min(least, one.picoseconds);
            if (one.chosen) chosen = &one;
        }
        CAPTURE(ps, usual, least);
        REQUIRE(chosen != nullptr);
        const bool is_quicker = least < usual / 4 * 3;
        CHECK(chosen->picoseconds == (is_quicker ? least : usual));
        CHECK(plan(shape, layout, table).algorithm == chosen->algorithm);
        if (!is_quicker && least < usual) ++stands;
        if (is_quicker) ++gives_way;
    }
    CHECK((stands > 0 && gives_way > 0));
}

TEST_CASE("the plan of functions 1 and 2 follows size and kind") {
    const Layout layout(std::vector<uint32_t>{0, 1, 0, 1, 2});
    const PlanTable table;
    const auto algorithm = [&](Kind kind, uint64_t count) {
        return plan({kind, count, 4, 0}, layout, table).algorithm;
    };

    REQUIRE(algorithm(Kind::all_reduce, 16384) == Algorithm::doubling_all_reduce);
    REQUIRE(algorithm(Kind::all_reduce, 16385) == Algorithm::ring_all_reduce);
    REQUIRE(algorithm(Kind::all_reduce, 0) == Algorithm::dissemination_barrier);
    REQUIRE(algorithm(Kind::broadcast, 8) == Algorithm::binomial_broadcast);
    REQUIRE(algorithm(Kind::broadcast, 1 << 20) == Algorithm::chain_broadcast);
    REQUIRE(algorithm(Kind::reduce, 8) == Algorithm::binomial_reduce);
    REQUIRE(algorithm(Kind::reduce, 1 << 20) == Algorithm::chain_reduce);
    // The limit is for all blocks of the root.
    REQUIRE(algorithm(Kind::gather, 13107) == Algorithm::binomial_gather);
    REQUIRE(algorithm(Kind::gather, 13108) == Algorithm::direct_gather);
    REQUIRE(algorithm(Kind::scatter, 13107) == Algorithm::binomial_scatter);
    REQUIRE(algorithm(Kind::scatter, 13108) == Algorithm::direct_scatter);
    // The limit is for the packed side.
    REQUIRE(algorithm(Kind::gatherv, 65536) == Algorithm::binomial_gather);
    REQUIRE(algorithm(Kind::gatherv, 65537) == Algorithm::direct_gather);
    REQUIRE(algorithm(Kind::scatterv, 65536) == Algorithm::binomial_scatter);
    REQUIRE(algorithm(Kind::scatterv, 65537) == Algorithm::direct_scatter);
    // The limit is for the inputs of all ranks.
    REQUIRE(algorithm(Kind::scan, 13107) == Algorithm::direct_scan);
    REQUIRE(algorithm(Kind::exclusive_scan, 13108) == Algorithm::chain_scan);
    REQUIRE(plan({Kind::all_reduce, 1 << 20, 4, 0}, Layout(std::vector<uint32_t>{3, 3}), table).algorithm ==
            Algorithm::local);

    const Plan large = plan({Kind::all_reduce, 16 << 20, 4, 0}, layout, table);
    REQUIRE(large.cls == Class::bulk);
    REQUIRE(large.segments == 16);
    REQUIRE(large.lanes == 2);
    REQUIRE(large.text() == "ring, bulk, 16 segments, 2 lanes, chunks of 241664 bytes");
}

TEST_CASE("inter-node bytes do not depend on how many ranks a node has") {
    const PlanTable table;
    const Layout one_each(std::vector<uint32_t>{0, 1, 2});
    const Layout many(std::vector<uint32_t>{0, 1, 2, 2, 1, 0, 0, 1, 2});
    for (const Kind kind : {Kind::all_reduce, Kind::reduce, Kind::broadcast, Kind::barrier}) {
        const Shape shape{kind, 1'000'001, 4, 1};
        REQUIRE(predict_bytes(plan(shape, one_each, table), shape, one_each) ==
                predict_bytes(plan(shape, many, table), shape, many));
    }
}

// What the files of the algorithms say of their cost, written down a second time: n nodes, B bytes, node i's
// neighbour i + 1. predict_bytes is held against what the engine sends, in the simulator; here against these.
TEST_CASE("each algorithm's bytes per node pair are its formula's") {
    constexpr uint64_t count = 5040, B = 4 * count;  // divisible by every number of nodes here
    for (uint32_t n = 2; n <= 10; ++n) {
        std::vector<uint32_t> placement(n);
        std::iota(placement.begin(), placement.end(), 0u);
        const Layout layout(placement);
        const auto bytes = [&](Algorithm algorithm, Kind kind, uint64_t elements, uint32_t root = 0) {
            Plan plan;
            plan.algorithm = algorithm;
            return predict_bytes(plan, {kind, elements, 4, root}, layout);
        };
        const auto total = [](const std::vector<uint64_t>& v) {
            return std::accumulate(v.begin(), v.end(), uint64_t{0});
        };
        const auto ring = [&](uint64_t each) {
            std::vector<uint64_t> out(size_t{n} * n);
            for (uint32_t i = 0; i < n; ++i) out[i * n + (i + 1) % n] = each;
            return out;
        };
        CAPTURE(n);

        CHECK(bytes(Algorithm::ring_all_reduce, Kind::all_reduce, count) == ring(2 * (n - 1) * (B / n)));
        CHECK(bytes(Algorithm::ring_reduce_scatter, Kind::reduce_scatter, count) == ring((n - 1) * B));
        CHECK(bytes(Algorithm::ring_all_gather, Kind::all_gather, count) == ring((n - 1) * B));
        // A byte per node and step, to the node 1, 2, 4... places on.
        CHECK(total(bytes(Algorithm::dissemination_barrier, Kind::barrier, 0)) ==
              n * uint32_t(std::bit_width(n - 1)));
        for (const uint32_t root : {0u, n - 1}) {
            // Each node but the root gets (or gives) everything once, whatever the tree.
            for (const auto& [tree, kind] : {std::pair{Algorithm::binomial_broadcast, Kind::broadcast},
                                             {Algorithm::chain_broadcast, Kind::broadcast}}) {
                const auto b = bytes(tree, kind, count, root);
                for (uint32_t to = 0; to < n; ++to) {
                    uint64_t in = 0;
                    for (uint32_t from = 0; from < n; ++from) in += b[from * n + to];
                    CHECK(in == (to == root ? 0 : B));
                }
            }
            for (const auto algorithm : {Algorithm::binomial_reduce, Algorithm::chain_reduce}) {
                const auto b = bytes(algorithm, Kind::reduce, count, root);
                for (uint32_t from = 0; from < n; ++from) {
                    uint64_t out = 0;
                    for (uint32_t to = 0; to < n; ++to) out += b[from * n + to];
                    CHECK(out == (from == root ? 0 : B));
                }
            }
        }
        // Recursive doubling: the largest power of two p exchange everything log2(p) times; each of the rest
        // hands its data in, and gets the result back.
        const uint32_t p = std::bit_floor(n);
        CHECK(total(bytes(Algorithm::doubling_all_reduce, Kind::all_reduce, count)) ==
              (uint64_t{p} * static_cast<uint64_t>(std::countr_zero(p)) + 2 * (n - p)) * B);
    }
}

}  // namespace nexar::collectives
