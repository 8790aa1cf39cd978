// Algorithms over blocks whose lengths differ: all node counts to 17, every root; values, and bytes as the
// plan predicts them from the counts.
#include "core/counts.hpp"

#include "algorithm_run.hpp"

namespace nexar::collectives {
namespace {

// Packed blocks of a node each, of which one is long, some are short and some empty.
Counts uneven(uint32_t nodes, uint64_t seed) {
    Random random(seed);
    std::vector<uint64_t> list(nodes);
    for (uint64_t& count : list) count = random.one_in(3) ? 0 : random.below(9);
    list[random.below(nodes)] += random.one_in(4) ? 0 : 300;
    return *Counts::of(list);
}

Vector<Extents> packed_blocks(std::vector<int32_t>& v, const Counts& counts) {
    Vector<Extents> out;
    for (uint32_t node = 0; node < counts.size(); ++node)
        out.push_back({{nexar::test::place_of(v.data() + counts.begin(node)), 4 * counts.of(node)}});
    return out;
}

std::vector<uint64_t> predicted(Algorithm algorithm, Kind kind, const Counts& counts, uint32_t root) {
    std::vector<uint32_t> one_each(counts.size());
    for (uint32_t i = 0; i < counts.size(); ++i) one_each[i] = i;
    Plan plan;
    plan.algorithm = algorithm;
    return predict_bytes(plan, {kind, counts.sum(), 4, root, &counts}, Layout(one_each));
}

template <class F>
void for_all_roots_and_counts(F f) {
    for (uint32_t nodes = 1; nodes <= 17; ++nodes)
        for (uint32_t root = 0; root < nodes; ++root)
            for (const uint64_t seed : {1u, 2u, 3u}) {
                const Counts counts = uneven(nodes, nodes * 1000 + root * 10 + seed);
                CAPTURE(nodes, root, seed);
                f(nodes, root, counts);
            }
}

}  // namespace

TEST_CASE(
    "gather of blocks of uneven lengths: the root ends with all, and the bytes are those of its counts") {
    for (const bool direct : {false, true})
        for_all_roots_and_counts([&](uint32_t nodes, uint32_t root, const Counts& counts) {
            Data data(nodes, std::vector<int32_t>(counts.sum(), -1));
            std::vector<int32_t> want;
            for (uint32_t node = 0; node < nodes; ++node)
                for (size_t i = 0; i < counts.of(node); ++i)
                    want.push_back(data[node][counts.begin(node) + i] = value(node, i));

            const auto bytes = run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                return direct ? direct_gather(lane, packed_blocks(v, counts), NodeIndex(root))
                              : binomial_gather(lane, packed_blocks(v, counts), NodeIndex(root));
            });

            REQUIRE(data[root] == want);
            REQUIRE(bytes == predicted(direct ? Algorithm::direct_gather : Algorithm::binomial_gather,
                                       Kind::gatherv, counts, root));
        });
}

TEST_CASE(
    "scatter of blocks of uneven lengths: each node ends with its own, and the bytes are those of the "
    "counts") {
    for (const bool direct : {false, true})
        for_all_roots_and_counts([&](uint32_t nodes, uint32_t root, const Counts& counts) {
            Data data(nodes, std::vector<int32_t>(counts.sum(), -1));
            data[root] = distinct(nodes, counts.sum())[root];

            const auto bytes = run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                return direct ? direct_scatter(lane, packed_blocks(v, counts), NodeIndex(root))
                              : binomial_scatter(lane, packed_blocks(v, counts), NodeIndex(root));
            });

            for (uint32_t node = 0; node < nodes; ++node)
                for (size_t i = counts.begin(node); i < counts.begin(node) + counts.of(node); ++i)
                    REQUIRE(data[node][i] == value(root, i));
            REQUIRE(bytes == predicted(direct ? Algorithm::direct_scatter : Algorithm::binomial_scatter,
                                       Kind::scatterv, counts, root));
        });
}

namespace {

// What node `from` sends to node `to`: often nothing.
uint64_t sent(uint32_t from, uint32_t to, uint64_t seed) {
    Random random(seed * 100'003 + from * 131 + to);
    return random.one_in(3) ? 0 : random.below(random.one_in(4) ? 300 : 9);
}

// One node's side of an exchange of such blocks, one rank per node.
struct Exchanging {
    std::vector<uint64_t> sends, expects, arrived;
    std::vector<int32_t> in, out;

    Exchanging(uint32_t nodes, uint32_t self, uint64_t seed) : arrived(nodes, UINT64_MAX) {
        for (uint32_t other = 0; other < nodes; ++other) {
            sends.push_back(sent(self, other, seed));
            expects.push_back(sent(other, self, seed));
            for (uint64_t i = 0; i < sends.back(); ++i) in.push_back(value(self, 1000 * other + i));
        }
        out.resize(Counts::of(expects)->sum(), -1);
    }
    CountedExchange begin(size_t transfer_bytes_max) {
        const auto counts = [](std::vector<uint64_t>& list) {
            Vector<Extents> blocks;
            for (uint64_t& count : list) blocks.push_back({{nexar::test::place_of(&count), sizeof count}});
            return blocks;
        };
        CountedExchange made;
        made.outgoing_counts = counts(sends), made.incoming_counts = counts(arrived);
        made.outgoing = packed_blocks(in, *Counts::of(sends));
        made.incoming = packed_blocks(out, *Counts::of(expects));
        made.check = [this](NodeIndex from, const Extents&) -> Result<void> {
            if (arrived[from.value] == expects[from.value]) return {};
            return fail(Errc::mismatch, std::to_string(from.value));
        };
        made.transfer_bytes_max = transfer_bytes_max;
        return made;
    }
};

}  // namespace

TEST_CASE(
    "pairwise all-to-all with counts: every block arrives, and the bytes are those of blocks and counts") {
    for (uint32_t nodes = 1; nodes <= 17; ++nodes)
        for (uint64_t seed = 1; seed <= 6; ++seed) {
            CAPTURE(nodes, seed);
            std::vector<Exchanging> all;
            std::vector<Counts> sends;
            for (uint32_t node = 0; node < nodes; ++node) {
                all.emplace_back(nodes, node, seed);
                sends.push_back(*Counts::of(all.back().sends));
            }
            Data unused(nodes);
            const size_t most = seed % 2 ? 1 << 20 : 40;
            const auto bytes = run(nodes, unused, seed, [&](Lane& lane, std::vector<int32_t>&) {
                return pairwise_all_to_allv(lane, all[lane.self().value].begin(most));
            });

            std::vector<uint64_t> want(nodes * nodes);
            for (uint32_t node = 0; node < nodes; ++node) {
                size_t at = 0;
                for (uint32_t from = 0; from < nodes; ++from) {
                    if (from != node) want[from * nodes + node] = 8 + 4 * sent(from, node, seed);
                    for (uint64_t i = 0; i < sent(from, node, seed); ++i, ++at)
                        REQUIRE(all[node].out[at] == (from == node ? -1 : value(from, 1000 * node + i)));
                }
            }
            REQUIRE(bytes == want);
            std::vector<uint32_t> one_each(nodes);
            for (uint32_t i = 0; i < nodes; ++i) one_each[i] = i;
            const Shape shape{Kind::all_to_allv, 0, 4, 0, nullptr, sends};
            const Plan planned = plan(shape, Layout(one_each), {});
            REQUIRE(predict_bytes(planned, shape, Layout(one_each)) == want);
        }
}

TEST_CASE(
    "pairwise all-to-all with counts: blocks of other lengths than expected end it, and are not received") {
    for (uint32_t nodes = 2; nodes <= 17; ++nodes) {
        CAPTURE(nodes);
        const uint32_t sender = nodes / 2, receiver = nodes - 1 - sender / 2;
        if (sender == receiver) continue;
        std::vector<Exchanging> all;
        for (uint32_t node = 0; node < nodes; ++node) all.emplace_back(nodes, node, 9);
        all[receiver].expects[sender] += 3;
        all[receiver].out.assign(all[receiver].out.size() + 3, -1);
        MemoryNetwork network(nodes, nodes, 64);
        std::vector<Task<>> tasks;
        for (uint32_t node = 0; node < nodes; ++node)
            tasks.push_back(pairwise_all_to_allv(network.lane(node), all[node].begin(1 << 20)));
        for (Task<>& task : tasks) task.start(network.executor);
        network.run();
        REQUIRE(tasks[receiver].ended());
        const auto result = tasks[receiver].take_result();
        REQUIRE_FALSE(result.has_value());
        REQUIRE(result.error().text == std::to_string(sender));
        const auto begin = Counts::of(all[receiver].expects)->begin(sender);
        for (uint64_t i = 0; i < all[receiver].expects[sender]; ++i)
            REQUIRE(all[receiver].out[begin + i] == -1);
    }
}

TEST_CASE(
    "reduce-scatter of blocks of uneven lengths: each node ends with its block of the sum, and the bytes") {
    for (uint32_t nodes = 1; nodes <= 17; ++nodes)
        for (uint64_t seed = 1; seed <= 6; ++seed) {
            CAPTURE(nodes, seed);
            const Counts counts = uneven(nodes, nodes * 1000 + seed);
            Data data = distinct(nodes, counts.sum());

            const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
                return ring_reduce_scatter(lane, packed_blocks(v, counts), sum_i32);
            });

            const auto expected = sums(nodes, counts.sum());
            for (uint32_t node = 0; node < nodes; ++node)
                for (size_t i = counts.begin(node); i < counts.begin(node) + counts.of(node); ++i)
                    REQUIRE(data[node][i] == expected[i]);
            REQUIRE((nodes == 1 ||
                     bytes == predicted(Algorithm::ring_reduce_scatter, Kind::reduce_scatterv, counts, 0)));
        }
}

}  // namespace nexar::collectives
