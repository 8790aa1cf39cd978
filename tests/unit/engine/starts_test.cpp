// What the engine asks for at each start of an operation that is submitted again and again: nothing
// (docs/protocol/shm.md [S25]).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/recycled.hpp"
#include "engine/known_operation.hpp"
#include "start_nodes.hpp"
#include "support/regions.hpp"

namespace nexar::engine {
namespace {

using Values = std::vector<uint64_t>;

// Distinct by start, rank and position.
uint64_t value(uint64_t start, uint32_t rank, uint64_t i) {
    return start * 0x9e3779b97f4a7c15u + rank * 1'000'003 + i * 7919 + 1;
}

// One operation of all ranks, prepared once.
struct Prepared {
    OpDescriptor words;
    uint32_t size = 0;
    std::vector<uint64_t> counts;              // by rank, of operations that have them
    std::vector<std::vector<uint64_t>> sends;  // all_to_allv: [from][to]
    std::vector<OpRequest> requests;           // by rank
    std::vector<Values> ins, outs;             // the same
    Regions regions;

    Prepared(StartNodes& nodes, uint32_t ranks, OpKind kind, uint64_t count, Partials partials)
        : size(ranks) {
        const OpRow& row = row_of(kind);
        words = {kind, Dtype::u64, ReduceOp::sum, row.has_elements ? count : 0, row.rooted ? ranks - 1 : 0};
        if (partials != Partials::native) words.dtype = Dtype::f64, words.partials = partials;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            counts.push_back(rank % 3 == 1 ? 0 : count / ranks + rank);
            sends.emplace_back();
            for (uint32_t to = 0; to < ranks; ++to)
                sends[rank].push_back((rank + 2 * to) % 3 * count / ranks);
        }
        const CountsRef list =
            has_counts(row) ? std::make_shared<const Counts>(*Counts::of(counts)) : nullptr;
        if (list) words.count = list->sum(), words.counts = list->digest();
        if (has_own_counts(row)) words.count = 0;
        for (uint32_t rank = 0; rank < ranks; ++rank) add(nodes, rank, row, list);
    }
    void add(const StartNodes& nodes, uint32_t rank, const OpRow& row, const CountsRef& list) {
        Values receives;
        for (uint32_t from = 0; from < size; ++from) receives.push_back(sends[from][rank]);
        const OwnCountsRef own = has_own_counts(row) ? std::make_shared<const OwnCounts>(
                                                           *Counts::of(sends[rank]), *Counts::of(receives))
                                                     : nullptr;
        const SideElements sides = elements_of(row, words.count, own_elements(list.get(), own.get(), rank),
                                               blocks_of(row, size, rank, words.root));
        ins.emplace_back(sides.in);
        outs.emplace_back(sides.out);
        OpRequest request;
        request.session = StartNodes::session(rank);
        request.group = nodes.group;
        request.rank = rank;
        request.descriptor = words;
        request.counts = list;
        request.own_counts = own;
        request.known = std::make_shared<KnownOperation>();
        const auto memory = [&](Values& values) {
            const size_t bytes = values.size() * sizeof(uint64_t);
            if (bytes == 0) return MemoryRef{};
            return MemoryRef{regions.add(RegionKind::memfd, request.session,
                                         nexar::test::memory_of_test(values.data(), bytes)),
                             0, bytes};
        };
        request.in = memory(ins.back());
        request.out = memory(outs.back());
        requests.push_back(std::move(request));
    }

    void fill(uint64_t start) {
        for (uint32_t rank = 0; rank < size; ++rank) {
            std::ranges::fill(outs[rank], 0xdddd);
            for (uint64_t i = 0; i < ins[rank].size(); ++i) ins[rank][i] = number(value(start, rank, i));
        }
    }
    // Small integers as floats: every order of their sum is exact.
    uint64_t number(uint64_t v) const {
        return words.dtype == Dtype::f64 ? std::bit_cast<uint64_t>(static_cast<double>(v % 4096)) : v;
    }
    uint64_t sum(uint32_t ranks, uint64_t i) const {
        uint64_t out = 0;
        double as_float = 0;
        for (uint32_t rank = 0; rank < ranks; ++rank)
            out += ins[rank][i], as_float += std::bit_cast<double>(ins[rank][i]);
        return words.dtype == Dtype::f64 ? std::bit_cast<uint64_t>(as_float) : out;
    }
    uint64_t begin(uint32_t rank) const {
        uint64_t out = 0;
        for (uint32_t before = 0; before < rank; ++before) out += counts[before];
        return out;
    }
    static void add_part(Values& to, const Values& from, uint64_t at, uint64_t count) {
        to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(at),
                  from.begin() + static_cast<ptrdiff_t>(at + count));
    }
    Values expected(uint32_t rank) const;
};

Values Prepared::expected(uint32_t rank) const {
    Values out;
    const uint64_t n = words.count;
    const auto sums = [&](uint64_t at, uint64_t count, uint32_t ranks) {
        for (uint64_t i = 0; i < count; ++i) out.push_back(sum(ranks, at + i));
    };
    if (outs[rank].empty()) return out;
    switch (words.kind) {
        case OpKind::all_reduce:
        case OpKind::reduce:
            sums(0, n, size);
            break;
        case OpKind::reduce_scatter:
            sums(rank * n, n, size);
            break;
        case OpKind::reduce_scatterv:
            sums(begin(rank), counts[rank], size);
            break;
        case OpKind::scan:
            sums(0, n, rank + 1);
            break;
        case OpKind::exclusive_scan:
            sums(0, n, rank);
            break;
        case OpKind::broadcast:
            out = ins[words.root];
            break;
        case OpKind::scatter:
            add_part(out, ins[words.root], rank * n, n);
            break;
        case OpKind::scatterv:
            add_part(out, ins[words.root], begin(rank), counts[rank]);
            break;
        case OpKind::all_to_all:
            for (uint32_t from = 0; from < size; ++from) add_part(out, ins[from], rank * n, n);
            break;
        case OpKind::all_to_allv:
            for (uint32_t from = 0; from < size; ++from) {
                uint64_t at = 0;
                for (uint32_t to = 0; to < rank; ++to) at += sends[from][to];
                add_part(out, ins[from], at, sends[from][rank]);
            }
            break;
        default:  // the gathers
            for (uint32_t from = 0; from < size; ++from) add_part(out, ins[from], 0, ins[from].size());
    }
    return out;
}

// Small limits, so that small operations have several segments and lanes and go through every algorithm.
constexpr wire::PlanTableRecord tight{2, 256, 64, 128, 4096, 3};

size_t start_once(StartNodes& nodes, Prepared& op, uint64_t start) {
    op.fill(start);
    const size_t before = nodes.asked, well = nodes.succeeded;
    for (uint32_t i = 0; i < op.size; ++i) {
        const auto rank = static_cast<uint32_t>((start + i) % op.size);
        REQUIRE(nodes.submit(rank, op.requests[rank]));
    }
    nodes.settle();
    nodes.pass(Duration{1000});
    REQUIRE(nodes.succeeded == well + op.size);
    for (uint32_t rank = 0; rank < op.size; ++rank) REQUIRE(op.outs[rank] == op.expected(rank));
    return nodes.asked - before;
}

// A ring of messages: each rank receives from the one before it and sends to the next one.
struct Ring {
    std::vector<OpRequest> sends, receives;
    std::vector<Values> ins, outs;
    Regions regions;

    Ring(const StartNodes& nodes, uint32_t size, uint64_t count, bool any) : ins(size), outs(size) {
        for (uint32_t rank = 0; rank < size; ++rank) {
            ins[rank].resize(count), outs[rank].resize(count);
            sends.push_back(request(nodes, rank, OpKind::send, count, (rank + 1) % size));
            sends.back().in = memory(ins[rank]);
            receives.push_back(
                request(nodes, rank, OpKind::recv, count, any ? any_rank : (rank + size - 1) % size));
            receives.back().any_tag = any;
            receives.back().out = memory(outs[rank]);
        }
    }
    static OpRequest request(const StartNodes& nodes, uint32_t rank, OpKind kind, uint64_t count,
                             uint32_t peer) {
        OpRequest out;
        out.session = StartNodes::session(rank);
        out.group = nodes.group;
        out.rank = rank;
        out.descriptor = {kind, Dtype::u64, ReduceOp::sum, count, 0};
        out.peer = peer;
        out.tag = 42;
        out.known = std::make_shared<KnownOperation>();
        return out;
    }
    MemoryRef memory(Values& values) {
        const size_t bytes = values.size() * sizeof(uint64_t);
        if (bytes == 0) return {};
        return {regions.add(RegionKind::memfd, {}, nexar::test::memory_of_test(values.data(), bytes)), 0,
                bytes};
    }
};

size_t start_once(StartNodes& nodes, Ring& ring, uint64_t start) {
    const auto size = static_cast<uint32_t>(ring.sends.size());
    for (uint32_t rank = 0; rank < size; ++rank)
        for (uint64_t i = 0; i < ring.ins[rank].size(); ++i) ring.ins[rank][i] = value(start, rank, i);
    const size_t before = nodes.asked, well = nodes.succeeded;
    for (uint32_t i = 0; i < size; ++i) {
        const auto rank = static_cast<uint32_t>((start + i) % size);
        // Some receives are there first, some messages are unexpected.
        auto& first = start / size % 2 == 0 ? ring.sends : ring.receives;
        auto& second = start / size % 2 == 0 ? ring.receives : ring.sends;
        REQUIRE(nodes.submit(rank, first[rank]));
        REQUIRE(nodes.submit(rank, second[rank]));
    }
    nodes.settle();
    nodes.pass(Duration{1000});
    REQUIRE(nodes.succeeded == well + 2 * size);
    for (uint32_t rank = 0; rank < size; ++rank) REQUIRE(ring.outs[(rank + 1) % size] == ring.ins[rank]);
    return nodes.asked - before;
}

constexpr uint64_t warm_up = 700, starts = 1000;

// So many of the starts after the first few asked for memory.
template <class Operation>
size_t starts_that_ask(StartNodes& nodes, Operation& op, uint64_t measured = starts) {
    size_t out = 0;
    for (uint64_t start = 0; start < warm_up; ++start) start_once(nodes, op, start);
    for (uint64_t start = warm_up; start < warm_up + measured; ++start)
        out += start_once(nodes, op, start) > 0 ? 1 : 0;
    return recycled::is_on ? out : 0;  // [S26]
}

const std::vector<std::vector<uint32_t>> placements{{0}, {0, 0, 0}, {0, 1, 0, 1}, {2, 1, 0, 2}};

}  // namespace

TEST_CASE("a start of a persistent collective asks for no memory: every kind, on one node and between nodes",
          "[S25]") {
    for (const auto& placement : placements)
        for (const uint64_t count : {9u, 120u})
            for (const OpRow& row : operation_table::rows) {
                if (!row.collective || row.makes_groups) continue;
                CAPTURE(placement, count, row.name);
                StartNodes nodes(placement, tight);
                const auto size = static_cast<uint32_t>(placement.size());
                Prepared op(nodes, size, row.kind, count, Partials::native);
                CHECK(starts_that_ask(nodes, op) == 0);
            }
}

TEST_CASE("so does one whose partials are along the tree, or as large as a worker gets", "[S25]") {
    const auto placement = GENERATE(std::vector<uint32_t>{0, 0, 0}, std::vector<uint32_t>{0, 1, 0, 1});
    const auto size = static_cast<uint32_t>(placement.size());
    CAPTURE(placement);
    for (const OpKind kind :
         {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter, OpKind::reduce_scatterv}) {
        CAPTURE(name_of(kind));
        StartNodes nodes(placement, tight);
        Prepared op(nodes, size, kind, 40, Partials::tree);
        CHECK(starts_that_ask(nodes, op, 200) == 0);
    }
    StartNodes nodes(placement, EngineConfig::default_plan());
    Prepared op(nodes, size, OpKind::all_reduce, 10'000, Partials::native);
    CHECK(starts_that_ask(nodes, op, 20) == 0);
}

TEST_CASE("a start of a persistent send or receive asks for no memory", "[S25]") {
    for (const auto& placement : placements)
        for (const uint64_t count : {0u, 9u, 120u, 20'000u})
            for (const bool any : {false, true}) {
                CAPTURE(placement, count, any);
                StartNodes nodes(placement, tight);
                Ring ring(nodes, static_cast<uint32_t>(placement.size()), count, any);
                CHECK(starts_that_ask(nodes, ring, count > 1000 ? 20 : starts) == 0);
            }
}

TEST_CASE("an all_to_allv of many ranks makes its lists in portions, between which others are served",
          "[Z8]") {
    std::vector<uint32_t> placement(150);
    for (uint32_t rank = 0; rank < placement.size(); ++rank) placement[rank] = rank % 2;
    StartNodes nodes(placement, EngineConfig::default_plan());
    Prepared op(nodes, 150, OpKind::all_to_allv, 300, Partials::native);
    start_once(nodes, op, 1);
    CHECK(nodes.turns >= 2 * 3);  // of 75 x 75 blocks on the node, and as many to and from the other
}

TEST_CASE("an all_to_allv that is cancelled between two portions ends, and the next start is right",
          "[Z8][S26]") {
    StartNodes nodes(std::vector<uint32_t>(100), EngineConfig::default_plan());
    Prepared op(nodes, 100, OpKind::all_to_allv, 300, Partials::native);
    for (const uint32_t canceller : {3u, 99u}) {
        const size_t failed = nodes.failed, turns = nodes.turns;
        op.fill(2);
        for (uint32_t rank = 0; rank < op.size; ++rank) REQUIRE(nodes.submit(rank, op.requests[rank]));
        REQUIRE(nodes.turns == turns);
        nodes.cancel(canceller, op.requests[canceller].ticket);
        nodes.settle();
        CHECK(nodes.failed == failed + 100);
        start_once(nodes, op, canceller);
    }
}

TEST_CASE("a short all_to_allv needs no further turn", "[Z8]") {
    StartNodes nodes({0, 1, 0, 1}, tight);
    Prepared op(nodes, 4, OpKind::all_to_allv, 120, Partials::native);
    for (uint64_t start = 0; start < 10; ++start) start_once(nodes, op, start);
    CHECK(nodes.turns == 0);
}

// Figures for docs/performance/persistent.md; under callgrind the instructions of the same.
void print_figures(const std::vector<uint32_t>& placement) {
    const char* const only = std::getenv("NEXAR_FIGURE");  // an operation's name; null: all
    constexpr uint64_t measured = 500;
    for (const OpRow& row : operation_table::rows) {
        if (!row.collective || row.makes_groups || (only != nullptr && row.name != std::string(only)))
            continue;
        StartNodes nodes(placement, EngineConfig::default_plan());
        Prepared op(nodes, 2, row.kind, 2, Partials::native);
        for (uint64_t start = 0; start < warm_up; ++start) start_once(nodes, op, start);
        size_t asked = 0;
        for (uint64_t start = 0; start < measured; ++start) asked += start_once(nodes, op, start);
        std::printf("%-16s %.1f allocations for each rank's start\n", row.name,
                    static_cast<double>(asked) / measured / 2);
    }
}

TEST_CASE("what a start asks for, by operation, of two ranks on one node", "[.figures1]") {
    print_figures({0, 0});
}
TEST_CASE("what a start asks for, by operation, of a rank on each of two nodes", "[.figures2]") {
    print_figures({0, 1});
}

}  // namespace nexar::engine
