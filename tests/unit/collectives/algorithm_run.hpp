// One algorithm on all nodes of a network in memory, one thread; its data, distinct by node and position.
#pragma once

#include <functional>
#include <vector>

#include "collectives/algorithms.hpp"
#include "collectives/layout.hpp"
#include "collectives/plan.hpp"
#include "memory_lane.hpp"
#include "support/regions.hpp"

namespace nexar::collectives {

constexpr Arithmetic sum_i32{Dtype::i32, ReduceOp::sum};
using Data = std::vector<std::vector<int32_t>>;  // by node

inline int32_t value(uint32_t node, size_t i) {
    return static_cast<int32_t>(1000003 * (node + 1) + 7919 * i * (node + 3));
}

inline Data distinct(uint32_t nodes, size_t count) {
    Data data(nodes, std::vector<int32_t>(count));
    for (uint32_t node = 0; node < nodes; ++node)
        for (size_t i = 0; i < count; ++i) data[node][i] = value(node, i);
    return data;
}

inline std::vector<int32_t> sums(uint32_t nodes, size_t count) {
    std::vector<int32_t> out(count);
    for (size_t i = 0; i < count; ++i) {
        uint32_t s = 0;
        for (uint32_t node = 0; node < nodes; ++node) s += static_cast<uint32_t>(value(node, i));
        out[i] = static_cast<int32_t>(s);
    }
    return out;
}

inline Extents whole(std::vector<int32_t>& v) {
    return {{nexar::test::place_of(v.data()), 4 * v.size()}};
}

// Blocks cut evenly; each in two extents, so that lists longer than one are exercised.
inline Vector<Extents> blocks_of(std::vector<int32_t>& v, uint32_t nodes) {
    Vector<Extents> out;
    for (uint32_t i = 0; i < nodes; ++i) {
        const ElementRange range = part_of(v.size(), nodes, i);
        const Place begin = nexar::test::place_of(v.data() + range.begin);
        const size_t first = 4 * (range.count / 3);
        out.push_back({{begin, first}, {begin + first, 4 * range.count - first}});
    }
    return out;
}

using Start = std::function<Task<>(Lane&, std::vector<int32_t>&)>;

// Runs one algorithm on all nodes and says what it sent.
inline std::vector<uint64_t> run(uint32_t nodes, Data& data, uint64_t seed, const Start& start) {
    MemoryNetwork network(nodes, seed, 64);
    std::vector<Task<>> tasks;
    for (uint32_t node = 0; node < nodes; ++node) tasks.push_back(start(network.lane(node), data[node]));
    for (Task<>& task : tasks) task.start(network.executor);
    network.run();
    for (Task<>& task : tasks) {
        REQUIRE(task.ended());
        REQUIRE(task.take_result());
    }
    REQUIRE(network.transfers_unfinished() == 0);
    return network.bytes;
}

inline std::vector<uint64_t> predicted(Algorithm algorithm, Kind kind, uint32_t nodes, size_t count,
                                       uint32_t root = 0) {
    std::vector<uint32_t> one_each(nodes);
    for (uint32_t i = 0; i < nodes; ++i) one_each[i] = i;
    Plan plan;
    plan.algorithm = algorithm;
    return predict_bytes(plan, {kind, count, 4, root}, Layout(one_each));
}

}  // namespace nexar::collectives
