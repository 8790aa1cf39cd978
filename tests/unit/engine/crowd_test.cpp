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

// A cancel of the newest of `ahead` collectives.
uint64_t collective_cancel_ns(uint64_t ahead) {
    StartNodes nodes({0, 0}, EngineConfig::default_plan());
    for (uint64_t i = 0; i < ahead; ++i) submit_barrier(nodes, 0);
    OpRequest request;
    const uint64_t out = quickest_ns(
        100, [&] { nodes.cancel(0, request.ticket); },
        [&] {
            request = request_of(OpKind::barrier, 0, nodes.group);
            REQUIRE(nodes.submit(0, request));
        });
    for (uint64_t i = 0; i < ahead + 100; ++i) submit_barrier(nodes, 1);
    CHECK(nodes.succeeded == 2 * ahead);
    CHECK(nodes.failed == 200);
    return out;
}

// A cancel of a receive in the last of the session's groups.
uint64_t receive_cancel_ns(uint64_t groups) {
    StartNodes nodes({0, 0}, EngineConfig::default_plan());
    GroupId last = nodes.group;
    for (uint64_t i = 1; i < groups; ++i) nodes.add_group(last = {nodes.group.creator, 9, i});
    OpRequest request;
    const uint64_t out = quickest_ns(
        100, [&] { nodes.cancel(0, request.ticket); },
        [&] {
            request = request_of(OpKind::recv, 0, last);
            request.peer = 1;
            REQUIRE(nodes.submit(0, request));
        });
    CHECK(nodes.failed == 100);
    return out;
}

// An answer about late ranks, while `late` collectives wait for them. In the second round and later, as the
// first one's answers are logged as well.
uint64_t answer_ns(uint64_t late) {
    StartNodes nodes({0, 1}, EngineConfig::default_plan());
    for (uint64_t i = 0; i < late; ++i) submit_barrier(nodes, 0);
    nodes.settle();
    uint64_t best = UINT64_MAX;
    for (uint64_t round = 0; round < 3; ++round) {
        nodes.answers = nodes.answers_ns = 0;
        nodes.pass(Duration{(int64_t{1} << round) * 1'000'000'000});
        nodes.settle();
        REQUIRE(nodes.answers == late);
        if (round > 0) best = std::min(best, nodes.answers_ns / late);
    }
    return best;
}

}  // namespace

TEST_CASE("a collective costs the same however many of its group are in flight") {
    const uint64_t of_few = collective_ns(few), of_many = collective_ns(4 * many);
    CAPTURE(of_few, of_many);
    CHECK(of_many < ratio_max * of_few);
}

TEST_CASE("a cancel costs the same however many collectives are in flight", "[K33]") {
    const uint64_t of_few = collective_cancel_ns(few), of_many = collective_cancel_ns(many);
    CAPTURE(of_few, of_many);
    CHECK(of_many < ratio_max * of_few);
}

TEST_CASE("a cancel costs the same however many groups its session has", "[K33]") {
    const uint64_t of_few = receive_cancel_ns(few), of_many = receive_cancel_ns(many);
    CAPTURE(of_few, of_many);
    CHECK(of_many < ratio_max * of_few);
}

TEST_CASE("an answer about late ranks costs the same however many collectives wait for them", "[N16]") {
    const uint64_t of_few = answer_ns(few), of_many = answer_ns(many);
    CAPTURE(of_few, of_many);
    CHECK(of_many < ratio_max * of_few);
}

}  // namespace nexar::engine
