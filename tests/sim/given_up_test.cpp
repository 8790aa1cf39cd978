// [S15] A rank that gave its daemon up has its memory for something else: what it had handed over is not
// carried out, and the others get PEER_LOST.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "engine/context.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t count = 3000;

engine::OpRequest words(OpKind kind, uint32_t peer = 0, uint64_t values = count) {
    engine::OpRequest request = request_of({kind, Dtype::i32, ReduceOp::sum, values, 0});
    request.peer = peer;
    return request;
}
std::vector<std::byte> input() {
    return Reference::input(1, 0, count, Dtype::i32);
}
void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
}
void expect_lost(const Call& call, uint32_t rank) {
    REQUIRE(call.ended);
    CHECK(call.outcome.error.code == Errc::peer_lost);
    CHECK(call.outcome.error.rank == rank);
}
bool untouched(const Call& call) {
    const std::vector<std::byte>& bytes = call.ended ? call.out_at_end : *call.out;
    return std::ranges::all_of(bytes, [&](std::byte b) { return b == bytes.front(); });
}
ClusterShape two_nodes() {
    return {};
}

const std::vector<std::vector<uint32_t>> placements = {{0, 0, 0}, {0, 1, 1}, {0, 0, 1}};

}  // namespace

// On another node the result may be complete already: then it is right, and all its bytes came before.
TEST_CASE("a collective of a rank that gave up is not begun, and writes nothing any more") {
    for (const auto& placement : placements) {
        CAPTURE(placement);
        Cluster cluster(3, two_nodes());
        const SimGroup group = cluster.make_group(placement);
        const Call& mine = cluster.submit(group, 0, words(OpKind::all_reduce), input(), count * 4);
        const Call& early = cluster.submit(group, 1, words(OpKind::all_reduce), input(), count * 4);
        cluster.run_for(1ms);

        cluster.end_session(group, 0, engine::SessionEnd::given_up);
        const auto out = *mine.out;
        const Call& late = cluster.submit(group, 2, words(OpKind::all_reduce), input(), count * 4);
        expect_end(cluster);

        const bool one_node = placement == placements.front();
        for (const Call* call : {&early, &late})
            if (one_node || !call->ok()) expect_lost(*call, 0);
        CHECK(*mine.out == out);
    }
}

TEST_CASE("what a rank that gave up waits for goes nowhere, and its sender gets PEER_LOST") {
    for (const auto& placement : placements) {
        CAPTURE(placement);
        Cluster cluster(5, two_nodes());
        const SimGroup group = cluster.make_group(placement);
        const Call& recv = cluster.submit(group, 0, words(OpKind::recv, 2), {}, count * 4);
        cluster.run_for(1ms);

        cluster.end_session(group, 0, engine::SessionEnd::given_up);
        const Call& send = cluster.submit(group, 2, words(OpKind::send, 0), input(), 0);
        expect_end(cluster);

        expect_lost(send, 0);
        CHECK(untouched(recv));
    }
}

// On another node its bytes may have come before: then the message is whole.
TEST_CASE("what a rank that gave up has sent is not delivered any more") {
    for (const auto& placement : placements) {
        CAPTURE(placement);
        Cluster cluster(7, two_nodes());
        const SimGroup group = cluster.make_group(placement);
        cluster.submit(group, 0, words(OpKind::send, 2), input(), 0);
        cluster.run_for(1ms);

        cluster.end_session(group, 0, engine::SessionEnd::given_up);
        const Call& recv = cluster.submit(group, 2, words(OpKind::recv, 0), {}, count * 4);
        expect_end(cluster);

        if (placement[2] != 0 && recv.ok()) {
            CHECK(recv.out_at_end == input());
            continue;
        }
        expect_lost(recv, 0);
        CHECK(untouched(recv));
    }
}

TEST_CASE("a copy that is in flight when a rank gives up ends with PEER_LOST") {
    for (const uint32_t victim : {0u, 1u}) {
        CAPTURE(victim);
        ClusterShape shape = two_nodes();
        shape.worker_delay = 10ms;
        Cluster cluster(9, shape);
        const SimGroup group = cluster.make_group({0, 0, 1});
        // More than the loop copies by itself, which would be over here.
        const uint64_t many = engine::inline_job_bytes_max / 4 + 1;
        const std::vector<std::byte> bytes = Reference::input(1, 0, many, Dtype::i32);
        const Call& send = cluster.submit(group, 0, words(OpKind::send, 1, many), bytes, 0);
        const Call& recv = cluster.submit(group, 1, words(OpKind::recv, 0, many), {}, many * 4);
        cluster.run_for(20us);

        cluster.end_session(group, victim, engine::SessionEnd::given_up);
        expect_end(cluster);

        expect_lost(victim == 0 ? recv : send, victim);
    }
}

TEST_CASE("a rank gives up at any moment: every survivor has the right result, or the same error naming it") {
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 3;
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1, 2, 1, 0, 2}));
        for (int i = 0; i < 30; ++i)
            program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 700 * (seed % 3) + 700, 0});
        program.start(10us, 2);
        const auto victim = static_cast<uint32_t>(seed % 6);
        cluster.clock.after(cluster.clock.some(2ms), [&] {
            program.stop_rank(victim);
            cluster.end_session(program.group, victim, engine::SessionEnd::given_up);
        });

        expect_end(cluster);

        std::set<std::string> errors;
        for (const Step& step : program.steps)
            for (uint32_t rank = 0; rank < program.group.size(); ++rank) {
                const Call* call = step.calls[rank];
                if (rank == victim || call == nullptr) continue;
                CAPTURE(rank, step.words.text());
                if (call->ok()) {
                    REQUIRE(program.wrong_result(step, rank) == "");
                    continue;
                }
                expect_lost(*call, victim);
                errors.insert(call->outcome.error.text);
            }
        CAPTURE(errors);
        REQUIRE(errors.size() <= 1);
    }
}

}  // namespace nexar::sim
