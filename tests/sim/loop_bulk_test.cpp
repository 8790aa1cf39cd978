// What goes over the control loop's own bulk endpoint, and that all of it may break there (tcp.md [B11]).
#include <catch2/catch_test_macros.hpp>

#include "post.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

// Bytes of host 0's three meshes.
std::vector<uint64_t> sent_of(const Cluster& cluster) {
    std::vector<uint64_t> out;
    for (const auto& mesh : cluster.hosts[0]->meshes)
        out.push_back(mesh->stats(link::PeerIndex(1)).bytes_sent);
    return out;
}

std::vector<uint64_t> sent_by(Cluster& cluster, const SimGroup& group, uint64_t bytes) {
    const std::vector<uint64_t> before = sent_of(cluster);
    Program program(cluster, group);
    program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, bytes / 4, 0});
    program.start(10us);
    REQUIRE(cluster.run());
    REQUIRE(program.wrong() == "");
    std::vector<uint64_t> after = sent_of(cluster);
    for (size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
}

}  // namespace

TEST_CASE("collectives of middle size go over the loop's bulk endpoint, shorter and longer ones do not",
          "[B11]") {
    Cluster cluster(1, {});
    const auto group = cluster.make_group({0, 1});
    const uint64_t least = engine::EngineConfig{}.loop_bulk_min, most = cluster.shape.plan.small_bytes_max;
    REQUIRE(least < most);
    const struct {
        uint64_t bytes;
        size_t mesh;
    } rows[] = {{least - 4, 0}, {least, 2}, {most, 2}, {most + 4, 1}};
    for (const auto& [bytes, mesh] : rows) {
        CAPTURE(bytes, mesh);
        const std::vector<uint64_t> sent = sent_by(cluster, group, bytes);
        for (size_t i = 1; i < sent.size(); ++i) CHECK((sent[i] >= bytes) == (i == mesh));
        CHECK((sent[0] >= bytes) == (mesh == 0));  // and some of the control log's
    }
    cluster.check();
}

TEST_CASE("messages of middle size go over it as well", "[B11]") {
    Cluster cluster(1, {});
    Post post(cluster, cluster.make_group({0, 1}));
    const uint64_t least = engine::EngineConfig{}.loop_bulk_min;
    for (const auto& [count, mesh] : {std::pair(least / 4 - 1, size_t{0}), {least / 4, size_t{2}}}) {
        const uint64_t bytes = 4 * count;
        CAPTURE(bytes);
        const std::vector<uint64_t> before = sent_of(cluster);
        post.send(0, 1, 5, count, count);
        Call& received = post.recv(1, 0, 5, count);
        expect_end(cluster);
        expect_message(received, count, count, 0, 5);
        const std::vector<uint64_t> after = sent_of(cluster);
        for (size_t i = 0; i < after.size(); ++i) CHECK((after[i] - before[i] >= bytes) == (i == mesh));
    }
}

TEST_CASE("what goes over it survives a break at any moment", "[B11]") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Cluster cluster(seed, {});
        Program program(cluster, cluster.make_group({0, 1, 0, 1}));
        for (int i = 0; i < 6; ++i)
            program.add(
                {OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 12'500u + 37u * static_cast<unsigned>(i), 0});
        for (int i = 0; i < 3; ++i)
            cluster.clock.after(cluster.clock.some(2ms),
                                [&] { cluster.break_channel(0, 1, cluster.clock.some(300us)); });
        program.start(300us);
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
        cluster.check();
    }
}

}  // namespace nexar::sim
