// Credits: how many messages that nobody asks for a node keeps of each rank (docs/protocol/control_log.md
// [L9]).
#include "post.hpp"

namespace nexar::sim {

TEST_CASE("messages that nobody asks for are bounded: beyond that they wait at their sender, and all arrive",
          "[L9]") {
    ClusterShape shape = shape_of(2);
    shape.engine.unexpected_per_group_max = 16;
    Cluster cluster(7, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    std::vector<Call*> sends;
    for (uint64_t i = 0; i < 20; ++i) sends.push_back(&post.send(0, 1, 1, i, 4));
    cluster.run_for(10ms);

    const engine::Snapshot there = cluster.hosts[1]->engine->snapshot(cluster.clock.now());
    REQUIRE(there.groups.front().messages_waiting == 8);  // half of what the node keeps is for rank 0
    std::vector<Call*> received;
    for (uint64_t i = 0; i < 20; ++i) received.push_back(&post.recv(1, 0, 1, 4));
    expect_end(cluster);
    for (uint64_t i = 0; i < 20; ++i) expect_message(*received[i], i, 4, 0, 1);
}

TEST_CASE(
    "messages of a tag that nobody receives keep those of another back only when they have all the room",
    "[L9]") {
    ClusterShape shape = shape_of(2);
    shape.engine.unexpected_per_group_max = 16;  // eight for each rank
    Cluster cluster(7, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    const auto ends_well = [&](const Call& call) {
        while (!call.ended) cluster.run_for(10us);
        REQUIRE(call.ok());
    };
    for (uint64_t i = 0; i < 3; ++i) {
        post.send(0, 1, 1, i, 4);
        ends_well(post.recv(1, 0, 1, 4));
    }
    for (uint64_t i = 0; i < 5; ++i) post.send(0, 1, 2, i, 4);
    for (uint64_t i = 3; i < 6; ++i) {
        Call& send = post.send(0, 1, 1, i, 4);
        ends_well(post.recv(1, 0, 1, 4));
        ends_well(send);
    }
    for (uint64_t i = 0; i < 5; ++i) post.recv(1, 0, 2, 4);
    expect_end(cluster);
}

TEST_CASE("a send that does not wait ends at once where the receiver's node keeps no more messages", "[L9]") {
    ClusterShape shape = shape_of(2);
    shape.engine.unexpected_per_group_max = 4;  // two for each rank
    Cluster cluster(7, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    const auto send = [&] { return &post.send(0, 1, 1, 1, 4, engine::OpRequest::only_now); };
    // Refused by the receiver's node, each gives its credit back.
    for (int i = 0; i < 10; ++i) {
        const Call* refused = send();
        cluster.run_for(10ms);
        REQUIRE(refused->outcome.error.code == Errc::timed_out);
        REQUIRE(refused->outcome.error.text.contains("is not waiting"));
    }
    for (uint64_t i = 0; i < 2; ++i) post.send(0, 1, 2, i, 4);
    const Call* refused = send();
    REQUIRE((refused->ended && refused->outcome.error.code == Errc::timed_out));
    REQUIRE(refused->outcome.error.rank == 1);
    REQUIRE(refused->outcome.error.text.contains("has no room"));
    for (uint64_t i = 0; i < 2; ++i) post.recv(1, 0, 2, 4);
    expect_end(cluster);
    Call& waits = post.recv(1, 0, 1, 4);
    const Call* taken = send();
    expect_end(cluster);
    REQUIRE((taken->ok() && waits.ok()));
}

TEST_CASE("a message that its receive gave back returns its credit once", "[L9][D8]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(2);
        shape.collective_timeout = Duration{0};
        shape.engine.unexpected_per_group_max = 4;  // two for each rank
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1}));
        std::vector<Call*> received;
        for (uint64_t i = 0; i < 6; ++i) post.send(0, 1, 1, i, 40'000);
        for (int i = 0; i < 12; ++i) {
            Call& begun = post.recv(1, 0, 1, 40'000);
            cluster.run_for(cluster.clock.some(100us));
            cluster.cancel(post.group, 1, begun);
            while (!begun.ended) cluster.run_for(10us);
            if (begun.ok()) received.push_back(&begun);
        }
        while (received.size() < 6) received.push_back(&post.recv(1, 0, 1, 40'000));
        expect_end(cluster);
        for (uint64_t i = 0; i < 6; ++i) expect_message(*received[i], i, 40'000, 0, 1);
    }
}

TEST_CASE("a message beyond its rank's credits is refused, and takes no room", "[L9]") {
    ClusterShape shape = shape_of(2);
    shape.engine.unexpected_per_group_max = 4;  // two for each rank
    Cluster cluster(7, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    const uint64_t first = link::OpKey::message_bit | uint64_t{1} << 40 | 1;
    for (uint64_t i = 0; i < 5; ++i)  // node 1 says, of no send of its
        cluster.hosts[0]->engine->on_message(cluster.clock.now(), link::PeerIndex(1),
                                             wire::MessageOffer{post.group.id, 1, 1, 0, 1, 4, 5, first + i});
    cluster.hosts[0]->after_input();
    const engine::Snapshot there = cluster.hosts[0]->engine->snapshot(cluster.clock.now());
    REQUIRE(there.groups.front().messages_waiting == 2);
}

}  // namespace nexar::sim
