// What an operation costs does not grow with how many others wait: one user's thousands do not keep the loop
// from the others.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "start_nodes.hpp"

namespace nexar::engine {
namespace {

constexpr uint64_t few = 64, many = 3500;  // many: within EngineConfig::seq_window
constexpr uint64_t ratio_max = 4;          // between the two; without an index it is above ten

OpRequest request_of(OpKind kind, uint32_t rank, const GroupId& group) {
    OpRequest request;
    request.session = StartNodes::session(rank);
    request.group = group;
    request.rank = rank;
    request.descriptor.kind = kind;
    return request;
}

void submit_barrier(StartNodes& nodes, uint32_t rank) {
    OpRequest request = request_of(OpKind::barrier, rank, nodes.group);
    REQUIRE(nodes.submit(rank, request));
}

// Of the quickest.
uint64_t quickest_ns(size_t times, const std::function<void()>& act, const std::function<void()>& prepare) {
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < times; ++i) {
        prepare();
        const uint64_t begin = thread_ns();
        act();
        best = std::min(best, thread_ns() - begin);
    }
    return best;
}

// One collective of two ranks, while rank 0 is `ahead` collectives ahead.
uint64_t collective_ns(uint64_t ahead) {
    StartNodes nodes({0, 0}, EngineConfig::default_plan(), 2 * ahead + 100);
    for (uint64_t i = 0; i < ahead; ++i) submit_barrier(nodes, 0);
    return quickest_ns(100, [&] { submit_barrier(nodes, 1); }, [&] { submit_barrier(nodes, 0); });
}

}  // namespace

TEST_CASE("a collective costs the same however many of its group are in flight") {
    const uint64_t of_few = collective_ns(few), of_many = collective_ns(4 * many);
    CAPTURE(of_few, of_many);
    CHECK(of_many < ratio_max * of_few);
}

}  // namespace nexar::engine
