// Every algorithm over the in-memory verbs: all node counts to 17, odd counts, seeded orders; values and
// bytes.
#include <functional>
#include <set>

#include "algorithm_run.hpp"

namespace nexar::collectives {
namespace {

template <class F>
void for_all_sizes(F f) {
    for (uint32_t nodes = 1; nodes <= 33; ++nodes)
        for (size_t count : {0u, 1u, 2u, 5u, 16u, 17u, 63u, 100u, 211u})
            for (uint64_t seed = 1; seed <= 2; ++seed) {
                CAPTURE(nodes, count, seed);
                f(nodes, count, seed * 1000 + nodes);
            }
}

// What it is given to send must be as it was when all has ended: it may be sent again until then.
Task<> doubling_in_place(Lane& lane, Extents data, Arithmetic arithmetic) {
    const Extents value{lane.scratch(link::bytes_of(data))};
    co_await done(lane.copy(value, data));
    co_await doubling_all_reduce(lane, value, data, arithmetic);
    co_return ok();
}

}  // namespace

TEST_CASE("ring all-reduce: every node ends with the sum, and sends what the formula says") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data = distinct(nodes, count);

        const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return ring_all_reduce(lane, blocks_of(v, nodes), sum_i32);
        });

        for (uint32_t node = 0; node < nodes; ++node) REQUIRE(data[node] == sums(nodes, count));
        REQUIRE(
            (nodes == 1 || bytes == predicted(Algorithm::ring_all_reduce, Kind::all_reduce, nodes, count)));
    });
}

TEST_CASE("recursive doubling all-reduce: every node ends with the sum, also when n is no power of two") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data = distinct(nodes, count);

        const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return doubling_in_place(lane, whole(v), sum_i32);
        });

        for (uint32_t node = 0; node < nodes; ++node) REQUIRE(data[node] == sums(nodes, count));
        REQUIRE((nodes == 1 ||
                 bytes == predicted(Algorithm::doubling_all_reduce, Kind::all_reduce, nodes, count)));
    });
}

TEST_CASE("halving-doubling all-reduce: every node ends with the sum, also when n is no power of two") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data = distinct(nodes, count);

        const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return halving_all_reduce(lane, whole(v), sum_i32);
        });

        for (uint32_t node = 0; node < nodes; ++node) REQUIRE(data[node] == sums(nodes, count));
        REQUIRE((nodes == 1 ||
                 bytes == predicted(Algorithm::halving_all_reduce, Kind::all_reduce, nodes, count)));
    });
}

TEST_CASE("logarithmic all-gather: every node ends with every block, and sends what the formula says") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data(nodes, std::vector<int32_t>(nodes * count));
        for (uint32_t node = 0; node < nodes; ++node)
            for (size_t i = node * count; i < (node + 1) * count; ++i) data[node][i] = value(node, i);

        const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return bruck_all_gather(lane, blocks_of(v, nodes));
        });

        for (uint32_t node = 0; node < nodes; ++node)
            for (size_t i = 0; i < nodes * count; ++i)
                REQUIRE(data[node][i] == value(static_cast<uint32_t>(i / count), i));
        REQUIRE(
            (nodes == 1 || bytes == predicted(Algorithm::bruck_all_gather, Kind::all_gather, nodes, count)));
    });
}

TEST_CASE("pairwise all-to-all: node j ends with block j of every node, in transfers of any length") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        const size_t transfer_bytes_max = seed % 2 ? 1 << 20 : 4 * (1 + count / 3);
        Data data = distinct(nodes, nodes * count), results(nodes, std::vector<int32_t>(nodes * count));
        const auto blocks = [&](std::vector<int32_t>& v) {
            Vector<Extents> out;
            for (uint32_t i = 0; i < nodes; ++i) {
                const Place begin = nexar::test::place_of(v.data() + i * count);
                const size_t first = 4 * (count / 3);
                out.push_back({{begin, first}, {begin + first, 4 * count - first}});
            }
            return out;
        };

        const auto bytes = run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return pairwise_all_to_all(lane, blocks(v), blocks(results[lane.self().value]),
                                       transfer_bytes_max);
        });

        size_t wrong = 0;  // an assertion for each of millions would take longer than the operations
        for (uint32_t node = 0; node < nodes; ++node)
            for (uint32_t from = 0; from < nodes; ++from)
                for (size_t i = 0; from != node && i < count; ++i)
                    wrong += results[node][from * count + i] != value(from, node * count + i) ? 1 : 0;
        REQUIRE(wrong == 0);
        REQUIRE((nodes == 1 ||
                 bytes == predicted(Algorithm::pairwise_all_to_all, Kind::all_to_all, nodes, count)));
    });
}

TEST_CASE("ring reduce-scatter: node i ends with block i of the sum") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data = distinct(nodes, count);

        run(nodes, data, seed, [&](Lane& lane, std::vector<int32_t>& v) {
            return ring_reduce_scatter(lane, blocks_of(v, nodes), sum_i32);
        });

        const auto expected = sums(nodes, count);
        for (uint32_t node = 0; node < nodes; ++node) {
            const ElementRange mine = part_of(count, nodes, node);
            for (size_t i = mine.begin; i < mine.begin + mine.count; ++i)
                REQUIRE(data[node][i] == expected[i]);
        }
    });
}

TEST_CASE("ring all-gather: every node ends with every block, also when blocks differ in size or are empty") {
    for_all_sizes([](uint32_t nodes, size_t count, uint64_t seed) {
        Data data(nodes, std::vector<int32_t>(count));
        for (uint32_t node = 0; node < nodes; ++node) {
            const ElementRange mine = part_of(count, nodes, node);
            for (size_t i = mine.begin; i < mine.begin + mine.count; ++i) data[node][i] = value(node, i);
        }

        run(nodes, data, seed,
            [&](Lane& lane, std::vector<int32_t>& v) { return ring_all_gather(lane, blocks_of(v, nodes)); });

        for (uint32_t node = 1; node < nodes; ++node) REQUIRE(data[node] == data[0]);
        for (uint32_t node = 0; node < nodes; ++node) {
            const ElementRange range = part_of(count, nodes, node);
            for (size_t i = range.begin; i < range.begin + range.count; ++i)
                REQUIRE(data[0][i] == value(node, i));
        }
    });
}

TEST_CASE("binomial and chain broadcast: every node ends with the root's data, from any root") {
    for (const bool chain : {false, true})
        for (uint32_t nodes = 1; nodes <= 17; ++nodes)
            for (uint32_t root = 0; root < nodes; ++root) {
                CAPTURE(chain, nodes, root);
                Data data = distinct(nodes, 50);

                const auto bytes =
                    run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                        return chain ? chain_broadcast(lane, whole(v), NodeIndex(root))
                                     : binomial_broadcast(lane, whole(v), NodeIndex(root));
                    });

                for (uint32_t node = 0; node < nodes; ++node)
                    REQUIRE(data[node] == distinct(nodes, 50)[root]);
                const auto algorithm = chain ? Algorithm::chain_broadcast : Algorithm::binomial_broadcast;
                REQUIRE(bytes == predicted(algorithm, Kind::broadcast, nodes, 50, root));
            }
}

TEST_CASE("binomial and chain reduce: the root ends with the sum, whichever it is") {
    for (const bool chain : {false, true})
        for (uint32_t nodes = 1; nodes <= 17; ++nodes)
            for (uint32_t root = 0; root < nodes; ++root) {
                CAPTURE(chain, nodes, root);
                Data data = distinct(nodes, 50);

                const auto bytes =
                    run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                        return chain ? chain_reduce(lane, whole(v), NodeIndex(root), sum_i32)
                                     : binomial_reduce(lane, whole(v), NodeIndex(root), sum_i32);
                    });

                REQUIRE(data[root] == sums(nodes, 50));
                const auto algorithm = chain ? Algorithm::chain_reduce : Algorithm::binomial_reduce;
                REQUIRE(bytes == predicted(algorithm, Kind::reduce, nodes, 50, root));
            }
}

TEST_CASE("binomial and direct gather: the root ends with every node's block, whichever it is") {
    for (const bool direct : {false, true})
        for (uint32_t nodes = 1; nodes <= 17; ++nodes)
            for (uint32_t root = 0; root < nodes; ++root)
                for (const size_t count : {0u, 1u, 50u}) {
                    CAPTURE(direct, nodes, root, count);
                    Data data(nodes, std::vector<int32_t>(nodes * count, -1));
                    for (uint32_t node = 0; node < nodes; ++node)
                        for (size_t i = 0; i < count; ++i) data[node][node * count + i] = value(node, i);

                    const auto bytes =
                        run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                            return direct ? direct_gather(lane, blocks_of(v, nodes), NodeIndex(root))
                                          : binomial_gather(lane, blocks_of(v, nodes), NodeIndex(root));
                        });

                    for (uint32_t node = 0; node < nodes; ++node)
                        for (size_t i = 0; i < count; ++i)
                            REQUIRE(data[root][node * count + i] == value(node, i));
                    const auto algorithm = direct ? Algorithm::direct_gather : Algorithm::binomial_gather;
                    REQUIRE(bytes == predicted(algorithm, Kind::gather, nodes, count, root));
                }
}

TEST_CASE("binomial and direct scatter: every node ends with its block of the root's, whichever it is") {
    for (const bool direct : {false, true})
        for (uint32_t nodes = 1; nodes <= 17; ++nodes)
            for (uint32_t root = 0; root < nodes; ++root)
                for (const size_t count : {0u, 1u, 50u}) {
                    CAPTURE(direct, nodes, root, count);
                    Data data(nodes, std::vector<int32_t>(nodes * count, -1));
                    data[root] = distinct(nodes, nodes * count)[root];

                    const auto bytes =
                        run(nodes, data, nodes * 100 + root, [&](Lane& lane, std::vector<int32_t>& v) {
                            return direct ? direct_scatter(lane, blocks_of(v, nodes), NodeIndex(root))
                                          : binomial_scatter(lane, blocks_of(v, nodes), NodeIndex(root));
                        });

                    for (uint32_t node = 0; node < nodes; ++node)
                        for (size_t i = node * count; i < (node + 1) * count; ++i)
                            REQUIRE(data[node][i] == value(root, i));
                    const auto algorithm = direct ? Algorithm::direct_scatter : Algorithm::binomial_scatter;
                    REQUIRE(bytes == predicted(algorithm, Kind::scatter, nodes, count, root));
                }
}

namespace {

// Ranks on up to 17 nodes: one each, in blocks, in turns, and at random.
std::vector<std::vector<uint32_t>> placements_of(uint32_t nodes) {
    std::vector<std::vector<uint32_t>> out(4);
    Random random(nodes);
    for (uint32_t node = 0; node < nodes; ++node) {
        out[0].push_back(node);
        for (int i = 0; i < 3; ++i) out[1].push_back(node);
    }
    for (uint32_t rank = 0; rank < 2 * nodes + 1; ++rank) {
        out[2].push_back(rank % nodes);
        out[3].push_back(static_cast<uint32_t>(random.below(nodes)));
    }
    return out;
}

using Bytes = std::vector<std::byte>;

struct ScanCase {
    Arithmetic arithmetic;
    bool premultiplies, chain, exclusive, in_place;
};

constexpr std::byte untouched{0xa5};

uint64_t scalar_of(uint32_t rank) {
    return 0x3f8000003c003c03u + rank;  // of every type some number
}

// The ranks taken one after the other, each rounded to the type: what the header promises, bit for bit.
std::vector<Bytes> reference_scan(const std::vector<Bytes>& inputs, const ScanCase& c) {
    const auto [dtype, op] = c.arithmetic;
    std::vector<Bytes> out;
    Bytes sofar;
    for (uint32_t rank = 0; rank < inputs.size(); ++rank) {
        if (c.exclusive) out.push_back(rank > 0 ? sofar : Bytes(inputs[0].size(), untouched));
        Bytes in = inputs[rank];
        const size_t count = in.size() / reduce::size_of(dtype);
        void* const to = in.data();
        const void* const from = in.data();
        const uint64_t scalar = scalar_of(rank);
        if (c.premultiplies) reduce::premul_sum({&to, 1}, {&from, 1}, {&scalar, 1}, count, dtype);
        if (rank == 0 && reduce::is_logical(dtype, op)) reduce::reduce_many(to, {&from, 1}, count, dtype, op);
        if (rank == 0)
            sofar = in;
        else
            reduce::reduce_into(sofar.data(), from, count, dtype, op);
        if (!c.exclusive) out.push_back(sofar);
    }
    if (c.exclusive && c.in_place) out[0] = inputs[0];
    return out;
}

// Every rank's output. Checks the bytes between nodes, and that inputs stay as they are.
std::vector<Bytes> scanned(const Layout& layout, const std::vector<Bytes>& inputs, const ScanCase& c,
                           uint64_t seed) {
    const size_t bytes = inputs[0].size();
    auto ins = inputs;
    std::vector<Bytes> outs(layout.size(), Bytes(bytes, untouched));
    MemoryNetwork network(layout.nodes(), seed, 64);
    std::vector<Task<>> tasks;
    for (uint32_t node = 0; node < layout.nodes(); ++node) {
        Scan scan{&layout, {}, c.arithmetic, c.premultiplies, c.exclusive, 64};
        for (const uint32_t rank : layout.ranks_on(NodeIndex(node))) {
            const Extents in{{nexar::test::place_of(ins[rank].data()), bytes}};
            const Extents out{{nexar::test::place_of(outs[rank].data()), bytes}};
            const bool has_out = !c.exclusive || rank > 0;
            scan.ranks.push_back({in, !has_out ? Extents{} : c.in_place ? in : out, scalar_of(rank)});
        }
        tasks.push_back(c.chain ? chain_scan(network.lane(node), std::move(scan))
                                : direct_scan(network.lane(node), std::move(scan)));
    }
    for (Task<>& task : tasks) task.start(network.executor);
    network.run();
    for (Task<>& task : tasks) {
        REQUIRE(task.ended());
        REQUIRE(task.take_result());
    }
    REQUIRE(network.transfers_unfinished() == 0);
    Plan plan;
    plan.algorithm = c.chain ? Algorithm::chain_scan : Algorithm::direct_scan;
    plan.chunk_bytes = 64;
    const auto element = static_cast<uint32_t>(reduce::size_of(c.arithmetic.dtype));
    REQUIRE(network.bytes == predict_bytes(plan, {Kind::scan, bytes / element, element, 0}, layout));
    if (!c.in_place) REQUIRE(ins == inputs);
    return c.in_place ? ins : outs;
}

// Any bits: NaNs, infinities and subnormals too.
std::vector<Bytes> any_inputs(uint32_t ranks, size_t bytes, uint64_t seed) {
    Random random(seed);
    std::vector<Bytes> out(ranks, Bytes(bytes));
    for (Bytes& input : out)
        for (std::byte& b : input) b = static_cast<std::byte>(random.below(256));
    return out;
}

// Of both algorithms, inclusive and exclusive, apart and in place.
template <class F>
void for_all_scans(Arithmetic arithmetic, bool premultiplies, F f) {
    for (const bool chain : {false, true})
        for (const bool exclusive : {false, true})
            for (const bool in_place : {false, true}) {
                CAPTURE(int(arithmetic.dtype), int(arithmetic.op), premultiplies, chain, exclusive, in_place);
                f(ScanCase{arithmetic, premultiplies, chain, exclusive, in_place});
            }
}

}  // namespace

TEST_CASE("direct and chain scan: the ranks in order, to the bit, in any placement") {
    for (uint32_t nodes = 1; nodes <= 17; ++nodes)
        for (const std::vector<uint32_t>& placement : placements_of(nodes))
            for (const size_t count : {1u, 17u, 200u}) {
                CAPTURE(placement, count);
                const Layout layout(placement);
                const std::vector<Bytes> inputs = any_inputs(layout.size(), 4 * count, nodes * 100 + count);
                for_all_scans({Dtype::f32, ReduceOp::sum}, count == 17, [&](const ScanCase& c) {
                    REQUIRE(scanned(layout, inputs, c, nodes + count) == reference_scan(inputs, c));
                });
            }
}

TEST_CASE("direct and chain scan: every type and operator, the first rank's values too") {
    const std::vector<std::vector<uint32_t>> placements{{0}, {0, 0, 0}, {0, 1}, {0, 1, 1, 0, 2, 1}};
    for (int d = 0; d < reduce::dtype_count; ++d)
        for (int o = 0; o < reduce::reduce_op_count; ++o)
            for (const std::vector<uint32_t>& placement : placements) {
                const bool premultiplies = ReduceOp(o) == ReduceOp::premul_sum;
                if (!reduce::may_reduce(Dtype(d), ReduceOp(o)) || ReduceOp(o) == ReduceOp::avg) continue;
                const Layout layout(placement);
                const size_t bytes = 37 * reduce::size_of(Dtype(d));
                const std::vector<Bytes> inputs =
                    any_inputs(layout.size(), bytes, static_cast<uint64_t>(100 * d + o));
                const Arithmetic arithmetic{Dtype(d), premultiplies ? ReduceOp::sum : ReduceOp(o)};
                for_all_scans(arithmetic, premultiplies, [&](const ScanCase& c) {
                    REQUIRE(scanned(layout, inputs, c, 7) == reference_scan(inputs, c));
                });
            }
}

TEST_CASE("dissemination barrier: nobody leaves before the last has come") {
    for (uint32_t nodes = 2; nodes <= 17; ++nodes)
        for (uint32_t late = 0; late < nodes; ++late) {
            CAPTURE(nodes, late);
            MemoryNetwork network(nodes, nodes * 31 + late, 64);
            std::vector<Task<>> tasks;
            for (uint32_t node = 0; node < nodes; ++node)
                tasks.push_back(dissemination_barrier(network.lane(node)));
            for (uint32_t node = 0; node < nodes; ++node)
                if (node != late) tasks[node].start(network.executor);
            network.run();
            for (const Task<>& task : tasks) REQUIRE_FALSE(task.ended());

            tasks[late].start(network.executor);
            network.run();

            for (const Task<>& task : tasks) REQUIRE(task.ended());
            REQUIRE(network.bytes == predicted(Algorithm::dissemination_barrier, Kind::barrier, nodes, 0));
        }
}

namespace {

Task<> decide(bool refuses) {
    if (refuses) co_return fail(Errc::table_full, "no room");
    co_return ok();
}

}  // namespace

TEST_CASE("confirmed gather: nobody leaves before every node has every block, and has decided well") {
    constexpr size_t block = 16;
    for (uint32_t nodes = 2; nodes <= 9; ++nodes)
        for (uint32_t refuses = 0; refuses <= nodes; ++refuses) {  // `nodes`: nobody
            CAPTURE(nodes, refuses);
            MemoryNetwork network(nodes, nodes * 31 + refuses, 64);
            std::vector<std::vector<link::Extent>> tables(nodes);
            std::vector<uint32_t> decided(nodes);
            std::vector<Task<>> tasks;
            for (uint32_t node = 0; node < nodes; ++node) {
                Vector<Extents> blocks;
                for (uint32_t i = 0; i < nodes; ++i) {
                    tables[node].push_back(network.lane(node).scratch(block));
                    std::memset(tables[node][i].data(), i == node ? static_cast<int>(10 + i) : 0, block);
                    blocks.push_back({tables[node][i]});
                }
                tasks.push_back(confirmed_gather(network.lane(node), std::move(blocks), [&, node, refuses]() {
                    for (uint32_t i = 0; i < nodes; ++i)
                        REQUIRE(tables[node][i].data()[block - 1] == std::byte(10 + i));
                    ++decided[node];
                    return decide(node == refuses);
                }));
            }
            for (Task<>& task : tasks) task.start(network.executor);
            network.run();
            for (uint32_t node = 0; node < nodes; ++node) {
                REQUIRE(decided[node] == 1);
                if (refuses == nodes)
                    REQUIRE((tasks[node].ended() && tasks[node].take_result()));
                else if (node == refuses)
                    REQUIRE((tasks[node].ended() && !tasks[node].take_result()));
                else
                    REQUIRE_FALSE(tasks[node].ended());
            }
            if (refuses == nodes) {
                auto want = predicted(Algorithm::dissemination_barrier, Kind::barrier, nodes, 0);
                const auto ring = predicted(Algorithm::ring_all_gather, Kind::all_gather, nodes, block / 4);
                for (size_t i = 0; i < want.size(); ++i) want[i] += ring[i];
                REQUIRE(network.bytes == want);
            }
        }
}

TEST_CASE("float all-reduces end with the same bits on every node") {
    const Arithmetic sum_f32{Dtype::f32, ReduceOp::sum};
    for (const bool doubling : {false, true})
        for (uint32_t nodes = 2; nodes <= 9; ++nodes) {
            std::vector<std::vector<float>> data(nodes, std::vector<float>(101));
            Random random(nodes);
            for (auto& v : data)
                for (float& x : v) x = static_cast<float>(random.below(1 << 20)) * 1e-3f + 1e-7f;
            MemoryNetwork network(nodes, nodes, 64);
            std::vector<Task<>> tasks;
            for (uint32_t node = 0; node < nodes; ++node) {
                const Place words = nexar::test::place_of(data[node].data());
                Vector<Extents> blocks;
                for (uint32_t i = 0; i < nodes; ++i) {
                    const ElementRange range = part_of(101, nodes, i);
                    blocks.push_back({{words + 4 * range.begin, 4 * range.count}});
                }
                tasks.push_back(doubling ? doubling_in_place(network.lane(node), {{words, 404}}, sum_f32)
                                         : ring_all_reduce(network.lane(node), std::move(blocks), sum_f32));
            }
            for (Task<>& task : tasks) task.start(network.executor);
            network.run();

            CAPTURE(doubling, nodes);
            for (uint32_t node = 1; node < nodes; ++node) REQUIRE(data[node] == data[0]);
        }
}

}  // namespace nexar::collectives
