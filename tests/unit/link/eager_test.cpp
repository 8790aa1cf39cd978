// Data that comes before its receive is posted: the unexpected-message buffer, its limits, refusal and
// resending; tombstones; asks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "harness.hpp"
#include "link/early.hpp"

namespace nexar::link::test {

TEST_CASE("small data that comes early is kept, and acknowledged only when it was applied", "[W5]") {
    Net net(2, 1);
    Memory from(1000), to(1000);
    from.set(pattern(1000, 1));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 256, Class::small)}));
    REQUIRE(net.run());
    CHECK(net.end_of(0, 1).done == 0);
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 256, Class::small)}, {}));
    REQUIRE(net.run());
    CHECK(net.done(0, 1));
    CHECK(net.done(1, 1));
    CHECK((to.flat() == pattern(1000, 1)));
    CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    CHECK(net[1].stats(peer(0)).grants_sent == 0);
}

TEST_CASE("beyond the buffer data is refused, and sent again when the grant comes", "[W2]") {
    MeshConfig config;
    config.eager_room_per_group = 2 * (256 + 128);
    Net net(2, 2, config);
    Memory from(2000), to(2000);
    from.set(pattern(2000, 1));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 256, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).nacks_sent == 6);
    CHECK(net[0].stats(peer(1)).nacks_received == 6);
    CHECK(net[0].stats(peer(1)).bytes_sent == 2000);
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 256, Class::small)}, {}));
    REQUIRE(net.run());
    CHECK(net.done(0, 1));
    CHECK(net.done(1, 1));
    CHECK((to.flat() == pattern(2000, 1)));
    CHECK(net[1].stats(peer(0)).grants_sent == 1);
    for (const std::string& g : net.garbage) FAIL_CHECK(g);
    CHECK(net[0].stats(peer(1)).bytes_sent == 2000 + 2000 - 2 * 256);
}

TEST_CASE("the buffer of one group does not take the room of another") {
    MeshConfig config;
    config.eager_room_per_group = 1000;
    Net net(2, 3, config);
    Memory from(800), to(800);
    from.set(pattern(800, 1));
    for (uint64_t op = 0; op < 50; ++op)
        net[0].post(batch(1 + op, {}, {send_spec(key(1, op), 1, from, 832, Class::small)}));
    net[0].post(batch(100, {}, {send_spec(key(2, 1), 1, from, 832, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).nacks_sent == 49);
    net[1].post(batch(1, {recv_spec(key(2, 1), 0, to, 832, Class::small)}, {}));
    REQUIRE(net.run());
    CHECK(net.done(0, 100));
}

TEST_CASE("a receiver that cannot remember what it refused grants everything instead") {
    MeshConfig config;
    config.eager_room_per_group = 0;
    config.wanted_per_group_max = 1;
    Net net(2, 4, config);
    Memory from(64), to(64);
    from.set(pattern(64, 1));
    for (uint64_t op = 0; op < 5; ++op)
        net[0].post(batch(1 + op, {}, {send_spec(key(1, op), 1, from, 64, Class::small)}));
    REQUIRE(net.run());
    for (uint64_t op = 0; op < 5; ++op)
        net[1].post(batch(1 + op, {recv_spec(key(1, op), 0, to, 64, Class::small)}, {}));
    REQUIRE(net.run());
    for (uint64_t op = 0; op < 5; ++op) CHECK(net.done(0, 1 + op));
}

TEST_CASE("a sender that had to drop a grant asks for it") {
    MeshConfig config;
    config.grants_per_group_max = 1;
    Net net(2, 5, config);
    Memory from(6400), to(6400);
    from.set(pattern(6400, 1));
    for (uint64_t op = 0; op < 5; ++op) net[1].post(batch(1 + op, {recv_spec(key(1, op), 0, to, 64)}, {}));
    REQUIRE(net.run());
    for (uint64_t op = 0; op < 5; ++op) net[0].post(batch(1 + op, {}, {send_spec(key(1, op), 1, from, 64)}));
    REQUIRE(net.run());
    for (uint64_t op = 0; op < 5; ++op) CHECK(net.done(0, 1 + op));
}

TEST_CASE("a newer early grant replaces the one before it, also where no further one is kept", "[T3]") {
    TableConfig config;
    const bool group_is_full = GENERATE(true, false);
    (group_is_full ? config.grants_per_group_max : config.grants_unclaimed_max) = 1;
    Early early(config);
    early.keep_grant(key(1, 1), {{}, {1, 10}});
    early.keep_grant(key(1, 1), {{}, {2, 20}});
    CHECK_FALSE(early.grants_forgotten());
    early.keep_grant(key(1, 2), {{}, {3, 30}});
    CHECK(early.grants_forgotten());
    CHECK(early.grants() == 1);
    const auto taken = early.take_grant(key(1, 1));
    REQUIRE(taken);
    CHECK(taken->memory == RemoteMemory{2, 20});
    CHECK(early.grants() == 0);
}

TEST_CASE("the two sides' eager limits may differ") {
    for (const size_t sender_limit : {100u, 10'000u}) {
        MeshConfig low, high;
        low.eager_bytes_max = 100;
        high.eager_bytes_max = 10'000;
        Net net(2, 6);
        // The harness gives both the same configuration: build the pair anew.
        low.incarnation = 5;
        high.incarnation = 6;
        const bool low_sends = sender_limit == 100;
        net.meshes[0] = std::make_unique<Mesh>(low_sends ? low : high);
        net.meshes[1] = std::make_unique<Mesh>(low_sends ? high : low);
        net.connect(0, 1);
        Memory from(5000), to(5000);
        from.set(pattern(5000, 1));
        const bool receiver_first = net.random.one_in(2);
        if (receiver_first) net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 512, Class::small)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 512, Class::small)}));
        REQUIRE(net.run());
        if (!receiver_first) net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 512, Class::small)}, {}));
        REQUIRE(net.run());
        CHECK(net.done(0, 1));
        CHECK((to.flat() == pattern(5000, 1)));
    }
}

TEST_CASE("a group that was forgotten leaves nothing behind, and its late frames nothing either") {
    MeshConfig config;
    config.eager_groups_max = 1;
    Net net(2, 7, config);
    Memory from(64), to(64);
    from.set(pattern(64, 1));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64, Class::small)}));
    REQUIRE(net.run());
    net[1].forget_group(key(1, 1).op.group);
    net[0].post(batch(2, {}, {send_spec(key(1, 2), 1, from, 64, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    // Only one group may have early things: there is room again.
    net[0].post(batch(3, {}, {send_spec(key(2, 1), 1, from, 64, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    net[1].post(batch(3, {recv_spec(key(2, 1), 0, to, 64, Class::small)}, {}));
    REQUIRE(net.run());
    CHECK(net.done(0, 3));
}

TEST_CASE("an ack lost with its channel is repaired by the sender's ask") {
    for (const Class cls : {Class::small, Class::bulk}) {
        Net net(2, 8);
        Memory from(500), to(500);
        from.set(pattern(500, 1));
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 512, cls)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 512, cls)}));
        for (int i = 0; i < 4 && net.end_of(1, 1).done == 0; ++i) {
            net.flush();
            net.deliver(1, 0, Class::control, 1 << 20);
            net.flush();
            net.deliver(0, 1, cls, 1 << 20);
        }
        REQUIRE(net.done(1, 1));
        REQUIRE(net.end_of(0, 1).done == 0);
        net.flush();  // the ack is in flight
        net.connect(0, 1);
        const uint64_t sent = net[0].stats(peer(1)).bytes_sent;
        REQUIRE(net.run());
        CHECK(net.done(0, 1));
        CHECK(net[0].stats(peer(1)).bytes_sent == sent);  // no byte moved twice
    }
}

TEST_CASE("a duplicate of a finished chunk is acknowledged again and not applied", "[W3]") {
    Net net(2, 9);
    net.wire(0, 1).keep_frames = true;
    Memory from(128), to(128);
    from.set(pattern(128, 1));
    to.set(pattern(128, 2));
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 64, Class::small, true)}, {}));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64, Class::small)}));
    net.flush();
    const std::vector<std::vector<std::byte>> frames = net.wire(0, 1).frames;
    std::vector<std::vector<std::byte>> chunks;
    for (const auto& f : frames)
        if (read_at<FrameStart>(f, 0).kind == 2) chunks.push_back(f);
    REQUIRE(chunks.size() == 2);
    net[1].on_bytes(peer(0), Class::small, chunks[0]);
    net[1].on_bytes(peer(0), Class::small, chunks[0]);  // while posted
    CHECK(net[1].stats(peer(0)).chunks_duplicate == 1);
    net[1].on_bytes(peer(0), Class::small, chunks[1]);
    net[1].on_bytes(peer(0), Class::small, chunks[1]);  // when it is over
    net.collect(1);
    CHECK(net[1].stats(peer(0)).chunks_duplicate == 2);
    CHECK(net.done(1, 1));
    CHECK((to.flat() == sum_u32(pattern(128, 2), pattern(128, 1))));
    net[1].flush();
    CHECK(net.wire(1, 0).frames_of_kind[4] == 1);
    CHECK(net.garbage.empty());
}

TEST_CASE("a channel may break in the middle of a chunk") {
    for (const bool reduce : {false, true}) {
        Net net(2, 10);
        Memory from(4096), to(4096);
        from.set(pattern(4096, 1));
        to.set(pattern(4096, 2));
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 4096, Class::small, reduce)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 4096, Class::small)}));
        net.flush();
        net.deliver(0, 1, Class::small, 2000);
        net.connect(0, 1);
        REQUIRE(net.run());
        CHECK(net.done(1, 1));
        CHECK(net.done(0, 1));
        CHECK((to.flat() == (reduce ? sum_u32(pattern(4096, 2), pattern(4096, 1)) : pattern(4096, 1))));
    }
}

TEST_CASE("a bitmap longer than a grant entry comes in several") {
    Net net(2, 11);
    const size_t chunks = 40'000;  // three entries
    Memory from(chunks * 64), to(chunks * 64);
    from.set(pattern(chunks * 64, 1));
    to.set(pattern(chunks * 64, 2));
    net.set_capacity(1 << 20);
    net.piece_max = 1 << 18;
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 64, Class::bulk, true)}, {}));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64)}));
    for (int i = 0; i < 30; ++i) net.step();
    REQUIRE(net[1].stats(peer(0)).chunks_applied > 100);
    REQUIRE(net[1].stats(peer(0)).chunks_applied < chunks);
    net.connect(0, 1);
    REQUIRE(net.run());
    CHECK(net.done(1, 1));
    CHECK(net.done(0, 1));
    CHECK(net[1].stats(peer(0)).chunks_duplicate == 0);
    CHECK((to.flat() == sum_u32(pattern(chunks * 64, 2), pattern(chunks * 64, 1))));
}

TEST_CASE("the buffer's room comes back when a chunk finds its home") {
    MeshConfig config;
    config.eager_room_per_group = 2 * (64 + 128);
    Net net(2, 12, config);
    Memory from(64), to(64);
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64, Class::small)}));  // stays
    for (uint64_t op = 2; op < 100; ++op) {
        net[0].post(batch(op, {}, {send_spec(key(1, op), 1, from, 64, Class::small)}));
        REQUIRE(net.run());
        CHECK(net[1].stats(peer(0)).unexpected_bytes == 2 * (64 + 128));
        net[1].post(batch(op, {recv_spec(key(1, op), 0, to, 64, Class::small)}, {}));
        REQUIRE(net.run());
        CHECK(net.done(0, op));
    }
    CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    net[1].forget_group(key(1, 1).op.group);
    CHECK(net[1].stats(peer(0)).unexpected_bytes == 0);
}

TEST_CASE("an ack that was lost with the channel is repaired although the receiver forgot the group since") {
    for (const Class cls : {Class::small, Class::bulk}) {
        Net net(2, 14);
        Memory from(640), to(640);
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 64, cls)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64, cls)}));
        for (int i = 0; i < 1000 && !net.done(1, 1); ++i) net.step();
        REQUIRE(net.done(1, 1));
        REQUIRE_FALSE(net.done(0, 1));
        net.disconnect(0, 1);
        net[1].forget_group(key(1, 1).op.group);  // its ranks have their results and left
        net.connect(0, 1);
        REQUIRE(net.run());
        CHECK(net.done(0, 1));
        CHECK(net[1].stats(peer(0)).tombstones <= 1);
    }
}

TEST_CASE("a grant of an earlier generation does not hold in the next one", "[W6]") {
    Net net(2, 13);
    Memory from(640), to(640);
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 64)}, {}));
    net[1].post(batch(2, {recv_spec(key(1, 2), 0, to, 64)}, {}));
    REQUIRE(net.run());
    CHECK(net[0].stats(peer(1)).grants_unclaimed == 2);
    net.disconnect(0, 1);
    net[1].withdraw(key(1, 1).op);
    net.connect(0, 1);
    REQUIRE(net.run());
    CHECK(net[0].stats(peer(1)).grants_unclaimed == 1);
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 64), send_spec(key(1, 2), 1, from, 64)}));
    REQUIRE(net.run());
    CHECK(net[0].stats(peer(1)).bytes_sent == 640);
    CHECK(net.done(0, 2));
}

}  // namespace nexar::link::test
