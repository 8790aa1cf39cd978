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

// Those with one list for all ranks.
constexpr OpKind kinds[] = {OpKind::all_gatherv, OpKind::gatherv, OpKind::scatterv, OpKind::reduce_scatterv};

// Rank `rank` calls with its own list; its input has bytes that state rank and position.
Call& call(Cluster& cluster, const SimGroup& group, OpKind kind, uint32_t rank, const List& list,
           uint32_t root = 0, bool in_place = false) {
    const OpRow& row = row_of(kind);
    const auto counts = std::make_shared<const Counts>(*Counts::of(list));
    engine::OpRequest request = request_of({kind, Dtype::u32, ReduceOp::sum, counts->sum(), root});
    request.counts = counts;
    const auto [in, out] = elements_of(row, counts->sum(), own_elements(counts.get(), nullptr, rank),
                                       blocks_of(row, counts->size(), rank, root));
    std::vector<std::byte> input = Reference::input(7, rank, in, Dtype::u32);
    in_place = in_place && in > 0 && out > 0;
    if (in_place) input = lay_out_in_place(row, 4 * counts->begin(rank), 4 * out, std::move(input), request);
    return cluster.submit(group, rank, request, std::move(input), 4 * out, in_place);
}

// What must be in rank `rank`'s output.
std::vector<std::byte> wanted(OpKind kind, uint32_t rank, const List& list, uint32_t root) {
    const Counts counts = *Counts::of(list);
    if (kind == OpKind::scatterv) {
        const auto all = Reference::input(7, root, counts.sum(), Dtype::u32);
        const auto at = all.begin() + static_cast<ptrdiff_t>(4 * counts.begin(rank));
        return {at, at + static_cast<ptrdiff_t>(4 * counts.of(rank))};
    }
    if (kind == OpKind::reduce_scatterv) {
        std::vector<uint32_t> sums(counts.of(rank));
        for (uint64_t i = 0; i < sums.size(); ++i)
            for (uint32_t other = 0; other < list.size(); ++other)
                sums[i] +=
                    static_cast<uint32_t>(Reference::element(7, other, counts.begin(rank) + i, Dtype::u32));
        const auto* bytes = reinterpret_cast<const std::byte*>(sums.data());
        return {bytes, bytes + 4 * sums.size()};
    }
    std::vector<std::byte> packed;
    for (uint32_t other = 0; other < list.size(); ++other) {
        const auto block = Reference::input(7, other, list[other], Dtype::u32);
        packed.insert(packed.end(), block.begin(), block.end());
    }
    return kind == OpKind::gatherv && rank != root ? std::vector<std::byte>{} : packed;
}

void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
}

void expect_right(OpKind kind, const std::vector<uint32_t>& placement, const List& list, uint32_t root,
                  bool in_place) {
    CAPTURE(name_of(kind), root, in_place);
    Cluster cluster(3, small_segments());
    const SimGroup group = cluster.make_group(placement);
    std::vector<Call*> calls;
    for (uint32_t rank = 0; rank < list.size(); ++rank)
        calls.push_back(&call(cluster, group, kind, rank, list, root, in_place));
    expect_end(cluster);
    for (uint32_t rank = 0; rank < list.size(); ++rank) {
        CAPTURE(rank);
        REQUIRE(calls[rank]->ok());
        REQUIRE(calls[rank]->out_at_end == wanted(kind, rank, list, root));
    }
    cluster.check();
}

}  // namespace

TEST_CASE("wildly uneven lists of counts, apart and in place, from any root, on placements of all kinds") {
    const std::vector<List> lists{{0, 0, 0, 0, 0, 0},      {1, 1, 1, 1, 1, 1},   {0, 0, 5, 0, 0, 0},
                                  {70'000, 1, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 1},   {3, 0, 1000, 0, 4097, 63},
                                  {1, 1, 1, 1, 1, 50'000}, {9, 9, 9, 9000, 9, 9}};
    const std::vector<std::vector<uint32_t>> placements{
        {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}, {3, 0, 3, 1, 2, 3}, {0, 1, 1, 1, 1, 1}};
    for (const List& list : lists)
        for (const std::vector<uint32_t>& placement : placements) {
            CAPTURE(list, placement);
            for (const OpKind kind : kinds)
                for (const uint32_t root :
                     row_of(kind).rooted ? std::vector<uint32_t>{0, 3, 5} : std::vector<uint32_t>{0})
                    for (const bool in_place : {false, true})
                        expect_right(kind, placement, list, root, in_place);
        }
}

namespace {

void expect_mismatch(OpKind kind, const std::vector<uint32_t>& placement, const List& most, const List& odd,
                     uint32_t differs) {
    Cluster cluster(5, small_segments());
    const SimGroup group = cluster.make_group(placement);
    std::vector<Call*> calls;
    for (uint32_t rank = 0; rank < 3; ++rank)
        calls.push_back(&call(cluster, group, kind, rank, rank == differs ? odd : most, 1));
    expect_end(cluster);
    size_t named = 0;
    for (const Call* one : calls) {
        if (one->ok()) continue;  // it had all that it wants
        ++named;
        CAPTURE(one->outcome.error.text);
        REQUIRE(one->outcome.error.code == Errc::mismatch);
        REQUIRE(one->outcome.error.text.contains("rank " + std::to_string(differs) + " ("));
        REQUIRE(one->outcome.error.text.contains("differ in counts ("));
        REQUIRE(!one->outcome.error.text.contains("digest"));
    }
    // Towards a root and from it a rank needs nothing of the others but the root.
    REQUIRE(named >= (row_of(kind).rooted ? 1u : 2u));
}

}  // namespace

TEST_CASE(
    "lists of counts that differ are a mismatch that names two ranks, also where no rank waits for another") {
    const std::vector<std::pair<List, List>> pairs{
        {{5, 0, 5}, {0, 5, 5}},  // one sum
        {{5, 5, 5}, {5, 5, 6}},
        {{9, 0, 0}, {0, 0, 9}},  // each expects nothing from the other
        {{3000, 0, 1}, {0, 3000, 1}},
        {{0, 0, 0}, {0, 0, 1}}};
    for (const OpKind kind : kinds)
        for (const auto& [most, odd] : pairs)
            for (const std::vector<uint32_t>& placement :
                 std::vector<std::vector<uint32_t>>{{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {1, 0, 0}})
                for (uint32_t differs = 0; differs < 3; ++differs) {
                    CAPTURE(name_of(kind), most, odd, placement, differs);
                    expect_mismatch(kind, placement, most, odd, differs);
                }
}

// ---- all_to_allv: a list for each rank ----

namespace {

using Matrix = std::vector<List>;  // what rank s sends to rank r: [s][r]

OwnCountsRef own_of(const Matrix& sent, uint32_t rank) {
    List receives;
    for (const List& from : sent) receives.push_back(from[rank]);
    return std::make_shared<const OwnCounts>(*Counts::of(sent[rank]), *Counts::of(receives));
}

Call& exchange(Cluster& cluster, const SimGroup& group, uint32_t rank, const OwnCountsRef& own) {
    engine::OpRequest request = request_of({OpKind::all_to_allv, Dtype::u32, ReduceOp::sum, 0, 0});
    request.own_counts = own;
    return cluster.submit(group, rank, request, Reference::input(7, rank, own->sends.sum(), Dtype::u32),
                          4 * own->receives.sum());
}

// The bytes that a matrix puts between two hosts: each pair's count, and its block.
uint64_t bytes_between(const Matrix& sent, const std::vector<uint32_t>& placement, uint32_t from,
                       uint32_t to) {
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < sent.size(); ++s)
        for (uint32_t r = 0; r < sent.size(); ++r)
            if (placement[s] == from && placement[r] == to) bytes += 8 + 4 * sent[s][r];
    return bytes;
}

void expect_exchanged(const Matrix& sent, const std::vector<uint32_t>& placement) {
    Cluster cluster(3, small_segments());
    const SimGroup group = cluster.make_group(placement);
    std::vector<Call*> calls;
    for (uint32_t rank = 0; rank < sent.size(); ++rank)
        calls.push_back(&exchange(cluster, group, rank, own_of(sent, rank)));
    expect_end(cluster);
    for (uint32_t rank = 0; rank < sent.size(); ++rank) {
        std::vector<std::byte> want;
        for (uint32_t from = 0; from < sent.size(); ++from)
            for (uint64_t i = 0; i < sent[from][rank]; ++i) {
                const uint64_t at = Counts::of(sent[from])->begin(rank) + i;
                const auto value = static_cast<uint32_t>(Reference::element(7, from, at, Dtype::u32));
                const auto* bytes = reinterpret_cast<const std::byte*>(&value);
                want.insert(want.end(), bytes, bytes + 4);
            }
        CAPTURE(rank, calls[rank]->outcome.error.text);
        REQUIRE(calls[rank]->ok());
        REQUIRE(calls[rank]->out_at_end == want);
    }
    for (uint32_t a = 0; a < 4; ++a)
        for (uint32_t b = 0; b < 4; ++b)
            if (a != b && bytes_are_exact())
                REQUIRE(cluster.bytes_sent(a, b) == bytes_between(sent, placement, a, b));
    cluster.check();
}

Matrix random_matrix(uint64_t seed, uint32_t size) {
    Random random(seed);
    Matrix out(size, List(size));
    for (List& row : out)
        for (uint64_t& count : row) {
            const uint64_t choices[] = {0, 0, 1, random.below(40), random.below(3000)};
            count = choices[random.below(5)];
        }
    return out;
}

}  // namespace

TEST_CASE("all_to_allv: wildly uneven blocks, on placements of all kinds; the bytes are blocks and counts") {
    const std::vector<std::vector<uint32_t>> placements{
        {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}, {3, 0, 3, 1, 2, 3}, {0, 1, 1, 1, 1, 1}};
    std::vector<Matrix> matrices{Matrix(6, List(6, 0)), Matrix(6, List(6, 1)), Matrix(6, List(6, 500)),
                                 Matrix(6, List(6, 0)), Matrix(6, List(6, 1))};
    matrices[3][4][1] = 70'000;
    matrices[4][2] = List(6, 30'000);
    for (uint64_t seed = 0; seed < 5; ++seed) matrices.push_back(random_matrix(seed, 6));
    for (const Matrix& sent : matrices)
        for (const std::vector<uint32_t>& placement : placements) {
            CAPTURE(sent, placement);
            expect_exchanged(sent, placement);
        }
}

namespace {

// Rank 2 sends to rank 0, or receives from it, another number than rank 0 thinks.
void expect_difference(const std::vector<uint32_t>& placement, bool sends, uint64_t agreed, uint64_t odd) {
    Cluster cluster(5, small_segments());
    const SimGroup group = cluster.make_group(placement);
    Matrix sent(3, List(3, 5));
    (sends ? sent[2][0] : sent[0][2]) = agreed;
    std::vector<Call*> calls;
    for (uint32_t rank = 0; rank < 3; ++rank) {
        Matrix seen = sent;
        if (rank == 2) (sends ? seen[2][0] : seen[0][2]) = odd;
        calls.push_back(&exchange(cluster, group, rank, own_of(seen, rank)));
    }
    expect_end(cluster);
    size_t named = 0;
    const uint64_t is_sent = sends ? odd : agreed, is_expected = sends ? agreed : odd;
    for (const Call* one : calls) {
        if (one->ok()) continue;  // it had all of its blocks
        ++named;
        const Error& error = one->outcome.error;
        CAPTURE(error.text);
        REQUIRE(error.code == Errc::mismatch);
        REQUIRE(error.rank == (sends ? 2 : 0));
        REQUIRE(error.other_rank == (sends ? 0 : 2));
        REQUIRE(error.text.contains("sends " + std::to_string(is_sent) + " elements to rank " +
                                    (sends ? "0 (" : "2 (")));
        REQUIRE(error.text.contains("which receives " + std::to_string(is_expected)));
    }
    REQUIRE(calls[sends ? 0 : 2]->ended);
    REQUIRE_FALSE(calls[sends ? 0 : 2]->ok());  // it lacks what it expects, or would get too much
    REQUIRE(named >= 1);
}

}  // namespace

TEST_CASE("all_to_allv: what a rank sends and another one does not expect is a mismatch that names both") {
    for (const std::vector<uint32_t>& placement :
         std::vector<std::vector<uint32_t>>{{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {1, 0, 0}, {2, 1, 2}})
        for (const bool sends : {false, true})
            for (const auto& [agreed, odd] : std::vector<std::pair<uint64_t, uint64_t>>{
                     {0, 7}, {7, 0}, {7, 8}, {8, 7}, {50'000, 1}, {1, 50'000}, {50'000, 49'999}}) {
                CAPTURE(placement, sends, agreed, odd);
                expect_difference(placement, sends, agreed, odd);
            }
}

TEST_CASE("all_to_allv: a request without its lists, or with others, is refused") {
    Cluster cluster(5, small_segments());
    const SimGroup group = cluster.make_group({0, 1, 0});
    const auto refused = [&](const OwnCountsRef& own, OpKind kind = OpKind::all_to_allv) {
        engine::OpRequest request = request_of({kind, Dtype::u32, ReduceOp::sum, 0, 0});
        request.own_counts = own;
        const Call& call = cluster.submit(group, 0, request, std::vector<std::byte>(64), 64);
        return call.ended && call.outcome.error.code == Errc::invalid_argument;
    };
    const auto lists = [](const List& sends, const List& receives) {
        return std::make_shared<const OwnCounts>(*Counts::of(sends), *Counts::of(receives));
    };
    CHECK(refused(lists({1, 1}, {1, 1, 1})));
    CHECK(refused(lists({1, 1, 1}, {1, 1, 1, 1})));
    CHECK(refused(lists({1, 1, 1}, {1, uint64_t{1} << 61, 1})));
    CHECK(refused(lists({1, 1, 17}, {1, 1, 1})));  // more than the memory has
    CHECK(refused(lists({1, 1, 1}, {17, 1, 1})));
    CHECK(refused(lists({1, 1, 1}, {1, 1, 1}), OpKind::all_to_all));
}

}  // namespace nexar::sim
