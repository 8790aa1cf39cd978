// The control log through meshes: frames, connections that break, and logs that are discarded.
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {
namespace {

MeshConfig with_log(size_t bytes_max = 1 << 20) {
    MeshConfig config;
    config.has_log = true;
    config.log.bytes_max = bytes_max;
    return config;
}

std::vector<std::byte> numbered(uint64_t n, size_t bytes = 40) {
    std::vector<std::byte> out = pattern(std::max(bytes, sizeof n), n);
    std::memcpy(out.data(), &n, sizeof n);
    return out;
}

// What arrived at a node is 1, 2, 3, ... up to this.
uint64_t in_order(const Net& net, size_t node) {
    uint64_t last = 0;
    for (const auto& [to, bytes] : net.messages) {
        if (to != node) continue;
        uint64_t n = 0;
        std::memcpy(&n, bytes.data(), sizeof n);
        REQUIRE(n == last + 1);
        REQUIRE(bytes == numbered(n, bytes.size()));
        last = n;
    }
    return last;
}

}  // namespace

TEST_CASE("messages of the log arrive once and in order over connections that break at any byte",
          "[L1][L2][L4][V3]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Net net(2, seed, with_log());
        if (seed % 3 == 0) net.set_ahead(seed % 2);
        uint64_t sent[2] = {0, 0};
        for (int round = 0; round < 40; ++round) {
            for (uint64_t n = net.random.below(12); n > 0; --n) {
                const size_t from = net.random.below(2);
                net[from].append(peer(1 - from), numbered(++sent[from], 8 + net.random.below(3000)),
                                 std::nullopt);
            }
            for (uint64_t n = net.random.below(60); n > 0; --n) net.step();
            if (net.random.one_in(3)) net.disconnect(0, 1);
            if (!net.is_up(0, 1) && net.random.one_in(2)) net.connect(0, 1);
        }
        if (!net.is_up(0, 1)) net.connect(0, 1);
        REQUIRE(net.run());
        CHECK(in_order(net, 0) == sent[1]);
        CHECK(in_order(net, 1) == sent[0]);
        CHECK(net.garbage.empty());
        CHECK(net.discarded.empty());
        for (size_t i = 0; i < 2; ++i) {
            const ControlLog& log = *net[i].log_of(peer(1 - i));
            log.check_invariants();
            CHECK(log.queued_bytes() < 17 * ControlLog::cost_of(3008));  // the rest was acknowledged
        }
    }
}

TEST_CASE(
    "an acknowledgement goes with another frame; many messages, or long ones, are worth one of their own",
    "[L3]") {
    Net net(2, 1, with_log());
    const auto send = [&](uint64_t count, size_t bytes) {
        for (uint64_t i = 0; i < count; ++i) {
            net[0].append(peer(1), numbered(i, bytes), std::nullopt);
            REQUIRE(net.run());
        }
        return net[0].log_of(peer(1))->queued_bytes();
    };
    const auto& of_its_own = net.wire(1, 0).frames_of_kind[size_t(FrameKind::applied)];
    CHECK(send(15, 40) == 15 * ControlLog::cost_of(40));
    CHECK(of_its_own == 0);
    CHECK(send(1, 40) == 0);
    CHECK(of_its_own == 1);
    CHECK(send(2, 40'000) == 0);
    CHECK(of_its_own == 2);
    CHECK(send(3, 40) > 0);
    net[1].append(peer(0), numbered(1), std::nullopt);  // it acknowledges itself
    REQUIRE(net.run());
    CHECK(net[0].log_of(peer(1))->queued_bytes() == 0);
    CHECK(of_its_own == 2);
    CHECK(send(3, 40) > 0);
    REQUIRE(net[1].send_message(peer(0), numbered(1)));
    REQUIRE(net.run());
    CHECK(net[0].log_of(peer(1))->queued_bytes() == 0);
    CHECK(of_its_own == 3);
}

TEST_CASE("a log that is full is discarded by both ends, and the next connection begins it anew",
          "[L5][L7]") {
    Net net(2, 1, with_log(20'000));
    net[1].append(peer(0), numbered(1), std::nullopt);
    REQUIRE(net.run());
    net.messages.clear();
    net.disconnect(0, 1);
    net[1].append(peer(0), numbered(2), std::nullopt);
    for (uint64_t i = 1; i <= 30; ++i) net[0].append(peer(1), numbered(i, 1000), std::nullopt);
    net.flush();
    REQUIRE(net.discarded == std::vector<std::pair<size_t, bool>>{{0, false}});
    CHECK(net[0].log_of(peer(1))->generation() == 2);

    net.connect(0, 1);
    net.messages.clear();
    REQUIRE(net.run());
    CHECK(net.discarded == std::vector<std::pair<size_t, bool>>{{0, false}, {1, true}});
    CHECK(net[1].log_of(peer(0))->generation() == 2);
    CHECK(in_order(net, 0) == 0);  // what waited at the other end is gone, too
    net.messages.clear();
    net[1].append(peer(0), numbered(1), std::nullopt);
    REQUIRE(net.run());
    CHECK(in_order(net, 0) == 1);
    CHECK(net.garbage.empty());
}

TEST_CASE("what nobody can apply is not replayed for ever: its log is discarded", "[L5][L7]") {
    Net net(2, 1, with_log());
    net[0].append(peer(1), numbered(1), std::nullopt);
    REQUIRE(net.run());
    net[1].discard_log(peer(0), "it is not a message");
    net.disconnect(0, 1);
    net.connect(0, 1);
    net.messages.clear();
    REQUIRE(net.run());
    CHECK(net.messages.empty());
    CHECK(net.discarded == std::vector<std::pair<size_t, bool>>{{1, false}, {0, true}});
}

TEST_CASE("a peer that breaks a rule of the log loses the connection and the log", "[L7]") {
    Net net(2, 1, with_log());
    REQUIRE(net.run());
    EntryFrame f{};
    f.start.length = sizeof f + 8 - length_bytes;
    f.start.kind = static_cast<uint8_t>(FrameKind::entry);
    f.start.header_words = sizeof f / 8;
    f.start.generation = 1;
    f.start.incarnation = 1000;
    f.number = 2;  // the first is 1
    const auto write = [&](const EntryFrame& frame) {
        net[1].on_bytes(peer(0), Class::control, bytes_of_struct(frame));
        net[1].on_bytes(peer(0), Class::control, pattern(8, 1));
        net.collect(1);
    };
    write(f);
    REQUIRE(net.garbage.size() == 1);
    CHECK(net.discarded == std::vector<std::pair<size_t, bool>>{{1, false}});
    CHECK(net[1].log_of(peer(0))->generation() == 2);
}

TEST_CASE("frames of the log on a mesh without one break the rules, and discard nothing", "[V4]") {
    Net net(2, 1);
    net.wire(0, 1).keep_frames = true;
    ResumeFrame f{};
    f.start.length = sizeof f - length_bytes;
    f.start.kind = static_cast<uint8_t>(FrameKind::resume);
    f.start.header_words = sizeof f / 8;
    f.start.generation = 1;
    f.start.incarnation = 1000;
    f.log_generation = 1;
    net[1].on_bytes(peer(0), Class::control, bytes_of_struct(f));
    net.collect(1);
    CHECK(net.garbage == std::vector<std::string>{"a control log's frame on a connection that carries none"});
    CHECK(net.discarded.empty());  // the log is that of another mesh
}

TEST_CASE("a goodbye follows all that was logged before it, and what is logged behind it goes with the log",
          "[L4][L6]") {
    for (const bool has_room : {true, false}) {
        CAPTURE(has_room);
        Net net(2, 1, with_log());
        REQUIRE(net.run());
        Wire& wire = net.wire(0, 1);
        if (!has_room) wire.capacity[index_of(Class::control)] = 0;
        for (uint64_t n = 1; n <= 3; ++n) net[0].append(peer(1), numbered(n), std::nullopt);
        REQUIRE(net[0].send_message(peer(1), numbered(4)));
        wire.capacity[index_of(Class::control)] = 1 << 20;
        net[0].on_room(peer(1));
        REQUIRE(net.run());
        CHECK(in_order(net, 1) == 4);
        // The receiver of a goodbye drops its peer: nothing that comes later is taken, or waits for it.
        net[1].drop_peer(peer(0));
        net[0].append(peer(1), numbered(5), std::nullopt);
        REQUIRE(net.run());
        CHECK(in_order(net, 1) == 4);
        net[1].append(peer(0), numbered(1), std::nullopt);
        CHECK(net[1].log_of(peer(0))->queued_bytes() == 0);
    }
}

TEST_CASE("the log of an incarnation that is over goes with it", "[L6]") {
    Net net(2, 1, with_log());
    net.disconnect(0, 1);
    REQUIRE(net[0].reserve(peer(1), Account(1), 100));
    net[0].append(peer(1), numbered(1), std::nullopt);
    net[0].drop_peer(peer(1));
    CHECK(net[0].log_of(peer(1))->queued_bytes() == 0);
    CHECK(net[0].log_of(peer(1))->bytes_of(Account(1)) == 0);
    net[0].append(peer(1), numbered(2), std::nullopt);
    CHECK(net[0].log_of(peer(1))->queued_bytes() == 0);
}

TEST_CASE("a log that one end has forgotten begins anew at both", "[L5][L6]") {
    for (const bool spoke : {true, false}) {
        CAPTURE(spoke);
        Net net(2, 1, with_log());
        net[spoke ? 0 : 1].append(peer(spoke ? 1 : 0), numbered(1), std::nullopt);
        REQUIRE(net.run());
        REQUIRE(net[0].send_message(peer(1), numbered(2)));  // the acknowledgement goes along
        REQUIRE(net.run());
        net.disconnect(0, 1);
        net[0].drop_peer(peer(1));  // it was lost for so long that this node forgot it
        net.connect(0, 1);
        REQUIRE(net.run());
        REQUIRE(net.garbage.size() == 1);
        net.disconnect(0, 1);
        net.connect(0, 1);
        REQUIRE(net.run());
        net.messages.clear();
        for (const size_t from : {size_t{0}, size_t{1}})
            net[from].append(peer(1 - from), numbered(1), std::nullopt);
        REQUIRE(net.run());
        CHECK(in_order(net, 0) == 1);
        CHECK(in_order(net, 1) == 1);
        CHECK(net.discarded.size() == 2);
    }
}

TEST_CASE("a request that found no room learns when there is some again", "[L8]") {
    MeshConfig config = with_log();
    config.log.account_bytes_max = 200;
    Net net(2, 1, config);
    REQUIRE(net.run());
    REQUIRE(net[0].reserve(peer(1), Account(1), 150));
    net[0].append(peer(1), numbered(1, 80), Account(1));
    REQUIRE_FALSE(net[0].reserve(peer(1), Account(1), 150));
    REQUIRE(net.run());
    CHECK(net.rooms == 0);
    REQUIRE(net[1].send_message(peer(0), numbered(1)));  // the acknowledgement goes along
    REQUIRE(net.run());
    CHECK(net.rooms == 1);
    CHECK(net[0].reserve(peer(1), Account(1), 150));
}

}  // namespace nexar::link::test
