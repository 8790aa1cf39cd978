// Priorities and flow control across nodes: what is urgent overtakes, in what order messages are received all
// the same, and that a program which does not receive holds up nothing else.
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <optional>
#include <vector>

#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Asked = std::optional<Priority>;

Call& all_reduce(Cluster& cluster, const SimGroup& group, uint32_t rank, uint64_t count, uint64_t salt,
                 Asked priority) {
    engine::OpRequest request = request_of({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0});
    request.priority = priority;
    return cluster.submit(group, rank, request, Reference::input(salt, rank, count, Dtype::i32), count * 4);
}

Call& send(Cluster& cluster, const SimGroup& group, uint32_t from, uint32_t to, uint64_t tag, uint64_t salt,
           uint64_t count, Asked priority) {
    engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, count, 0});
    r.peer = to;
    r.tag = tag;
    r.priority = priority;
    return cluster.submit(group, from, r, Reference::input(salt, 0, count, Dtype::i32), 0);
}

// A slow network: 1 MiB of room in each stream, and what is in it arrives in hundreds of microseconds.
ClusterShape slow() {
    ClusterShape shape = shape_of(2);
    shape.network.latency_min = Duration(200'000);
    return shape;
}

// How long an all_reduce of `count` takes beside eight large ones of the same user in another group, which
// began before it. None: it was alone.
Duration beside_bulk(uint64_t seed, uint64_t count, Asked priority, bool with_bulk) {
    Cluster cluster(seed, slow());
    const SimGroup bulk = cluster.make_group({0, 1}), urgent = cluster.make_group({0, 1});
    std::vector<Call*> large, small;
    for (uint64_t i = 0; i < (with_bulk ? 8 : 0); ++i)
        for (uint32_t rank : {0u, 1u})
            large.push_back(&all_reduce(cluster, bulk, rank, 4 << 20, 10 + i, Priority::bulk));
    if (with_bulk) cluster.run_for(Duration(3'000'000));
    for (uint32_t rank : {0u, 1u}) small.push_back(&all_reduce(cluster, urgent, rank, count, 99, priority));
    expect_end(cluster);
    Time last{};
    for (const Call* call : small) {
        REQUIRE(call->ok());
        last = std::max(last, call->finished);
    }
    for (const Call* call : large) {
        REQUIRE(call->ok());
        CHECK(call->finished > last);
    }
    return last - small[0]->submitted;
}

}  // namespace

TEST_CASE("an urgent operation overtakes the bulk of its user in the link", "[sim][K23]") {
    constexpr uint64_t count = 256 * 1024;  // of the bulk class: it goes through the shards, too
    for (const uint64_t seed : seeds(5)) {
        INFO("seed " << seed);
        const Duration alone = beside_bulk(seed, count, Priority::critical, false);
        const Duration urgent = beside_bulk(seed, count, Priority::critical, true);
        CHECK(urgent < 3 * alone);
        CHECK(beside_bulk(seed, count, Priority::bulk, true) > 2 * urgent);
    }
}

namespace {

Asked draw(Random& random) {
    const uint64_t n = random.below(priority_count + 1);
    return n == priority_count ? Asked() : Asked(static_cast<Priority>(n));
}

struct Sent {
    uint64_t salt, count, tag;
};

// Messages of one pair with priorities at random: half of the receives are posted before.
void receive_in_order(uint64_t seed, std::vector<uint32_t> placement, bool any_tag) {
    Cluster cluster(seed, shape_of(2));
    const SimGroup group = cluster.make_group(std::move(placement));
    Post post(cluster, group);
    Random random(seed);
    constexpr uint64_t counts[] = {1, 3000, 12'000, 60'000}, count_max = 60'000, tags = 3;
    std::vector<Sent> sent;
    std::vector<Call*> received;
    const auto receive = [&](uint64_t tag) {
        received.push_back(&post.recv(1, 0, any_tag ? -1 : static_cast<int64_t>(tag), count_max));
    };
    for (uint64_t i = 0; i < 48; ++i) sent.push_back({100 + i, counts[random.below(4)], random.below(tags)});
    for (size_t i = 0; i < sent.size() / 2; ++i) receive(sent[i].tag);
    for (const Sent& each : sent) {
        send(cluster, group, 0, 1, each.tag, each.salt, each.count, draw(random));
        if (random.one_in(8)) cluster.run_for(Duration(random.below(100'000)));
    }
    for (size_t i = sent.size() / 2; i < sent.size(); ++i) receive(sent[i].tag);
    expect_end(cluster);
    // The receives were posted in the order of the sends, so each has the message of its own place.
    for (size_t i = 0; i < sent.size(); ++i)
        expect_message(*received[i], sent[i].salt, sent[i].count, 0, sent[i].tag);
}

}  // namespace

TEST_CASE("messages of a pair are received in the order of the sends, whatever their priorities",
          "[sim][K25]") {
    for (const uint64_t seed : seeds(20))
        for (const bool any_tag : {false, true}) {
            INFO("seed " << seed << ", any tag " << any_tag);
            receive_in_order(seed, {0, 1}, any_tag);
            receive_in_order(seed, {0, 0}, any_tag);
        }
}

TEST_CASE("ranks that ask for different priorities have the same result, and the same bytes move",
          "[sim][K21]") {
    for (const uint64_t seed : seeds(20)) {
        INFO("seed " << seed);
        Cluster cluster(seed, shape_of(3));
        Random random(seed);
        Program program(cluster, cluster.make_group({0, 1, 2, 0, 1}));
        for (const uint64_t count : {1u, 700u, 9000u, 300'000u, 2u})
            program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0});
        program.add({OpKind::barrier, Dtype::f32, ReduceOp::sum, 0, 0});
        for (Step& step : program.steps)
            for (uint32_t rank = 0; rank < 5; ++rank) step.priorities.push_back(draw(random));
        program.start(Duration(30'000), 6);
        expect_end(cluster);
        CHECK(program.wrong().empty());
        for (uint32_t a = 0; a < 3; ++a)
            for (uint32_t b = 0; b < 3; ++b)
                if (a != b && bytes_are_exact())
                    CHECK(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
    }
}

namespace {

// A group of which rank 1 does not receive what rank 0 sends: eager messages, and long ones.
class Withheld {
  public:
    Withheld(Cluster& cluster, Asked priority) : cluster_(cluster), group_(cluster.make_group({0, 1})) {
        for (uint64_t i = 0; i < 120; ++i) {
            counts_.push_back(i % 4 == 3 ? 100'000 : i % 4 == 2 ? 9000 : 500);
            send(cluster, group_, 0, 1, i, 5000 + i, counts_.back(), priority);
        }
        cluster.run_for(Duration(50'000'000));  // what can move has moved
    }
    void receive() {
        Post post(cluster_, group_);
        std::vector<Call*> calls;
        for (uint64_t i = 0; i < counts_.size(); ++i)
            calls.push_back(&post.recv(1, 0, static_cast<int64_t>(i), counts_[i]));
        expect_end(cluster_);
        for (uint64_t i = 0; i < counts_.size(); ++i) expect_message(*calls[i], 5000 + i, counts_[i], 0, i);
    }

  private:
    Cluster& cluster_;
    SimGroup group_;
    std::vector<uint64_t> counts_;
};

}  // namespace

TEST_CASE(
    "while one group withholds its receives, ten others get their results, and the bytes move that are "
    "planned",
    "[sim][K27]") {
    for (const uint64_t seed : seeds(6))
        for (size_t stuck = 0; stuck < priority_count; ++stuck) {
            INFO("seed " << seed << ", withheld " << stuck);
            Cluster cluster(seed, shape_of(2));
            Withheld withheld(cluster, static_cast<Priority>(stuck));
            const uint64_t before[] = {cluster.bytes_sent(0, 1), cluster.bytes_sent(1, 0)};
            std::deque<Program> programs;
            uint64_t planned[] = {0, 0};
            for (size_t g = 0; g < 10; ++g) {
                Program& program = programs.emplace_back(cluster, cluster.make_group({0, 1, 0}));
                for (const uint64_t count : {2u, 9000u, 200'000u, 1u})
                    program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0});
                for (Step& step : program.steps)
                    step.priorities.assign(3, static_cast<Priority>(g % priority_count));
                program.start(Duration(20'000), 4);
            }
            cluster.run(Duration(5'000'000'000));  // the withheld sends do not end
            for (Program& program : programs) {
                CHECK(program.wrong().empty());
                planned[0] += program.predicted_bytes(0, 1);
                planned[1] += program.predicted_bytes(1, 0);
            }
            if (bytes_are_exact()) {
                CHECK(cluster.bytes_sent(0, 1) - before[0] == planned[0]);
                CHECK(cluster.bytes_sent(1, 0) - before[1] == planned[1]);
            }
            withheld.receive();
        }
}

TEST_CASE("messages that are not received hold up none of another tag or priority, or to another rank",
          "[sim][K27]") {
    for (size_t stuck = 0; stuck < priority_count; ++stuck)
        for (size_t free = 0; free < priority_count; ++free)
            for (const std::vector<uint32_t>& placement :
                 {std::vector<uint32_t>{0, 1, 1}, std::vector<uint32_t>{0, 0, 0}}) {
                CAPTURE(stuck, free, placement);
                Cluster cluster(stuck * 10 + free + 1, shape_of(2));
                const SimGroup group = cluster.make_group(placement);
                Post post(cluster, group);
                for (uint64_t i = 0; i < 200; ++i)
                    send(cluster, group, 0, 1, 7, 100 + i, i % 2 == 0 ? 500 : 50'000,
                         static_cast<Priority>(stuck));
                cluster.run_for(Duration(20'000'000));
                for (uint32_t to : {1u, 2u}) {
                    Call& sent = send(cluster, group, 0, to, 8, 99, 40'000, static_cast<Priority>(free));
                    Call& got = post.recv(to, 0, 8, 40'000);
                    cluster.run_for(Duration(1'000'000'000));
                    CHECK(sent.ok());
                    expect_message(got, 99, 40'000, 0, 8);
                }
                for (uint64_t i = 0; i < 200; ++i) {
                    const uint64_t count = i % 2 == 0 ? 500 : 50'000;
                    Call& got = post.recv(1, 0, 7, count);
                    cluster.run_for(Duration(1'000'000));
                    if (i == 199) expect_end(cluster);
                    if (i == 199) expect_message(got, 100 + i, count, 0, 7);
                }
            }
}

TEST_CASE(
    "more messages than are kept, which one rank does not receive, hold up none to other ranks of its node",
    "[sim][K27][L9]") {
    for (const uint64_t seed : seeds(5)) {
        INFO("seed " << seed);
        Cluster cluster(seed, shape_of(2));
        const SimGroup group = cluster.make_group({0, 1, 1, 1});
        Post post(cluster, group);
        constexpr uint64_t withheld = 600, others = 300;  // 256 are kept
        for (uint64_t i = 0; i < withheld; ++i)
            for (uint32_t to : {1u, 2u}) send(cluster, group, 0, to, 7, 100 + i, 100, {});
        cluster.run_for(Duration(20'000'000));
        for (uint64_t i = 0; i < others; ++i) {
            Call& sent = send(cluster, group, 0, 3, i % 3, 1000 + i, 50, {});
            Call& got = post.recv(3, 0, -1, 50);
            cluster.run_for(Duration(5'000'000));
            REQUIRE(sent.ok());
            expect_message(got, 1000 + i, 50, 0, i % 3);
        }
        std::vector<Call*> late;
        for (uint64_t i = 0; i < withheld; ++i)
            for (uint32_t at : {1u, 2u}) late.push_back(&post.recv(at, 0, 7, 100));
        expect_end(cluster);
        for (uint64_t i = 0; i < late.size(); ++i) expect_message(*late[i], 100 + i / 2, 100, 0, 7);
    }
}

}  // namespace nexar::sim
