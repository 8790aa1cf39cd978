// Acks that no sender awaits wait for more of them [T6].
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "harness.hpp"
#include "link/peer_transfers.hpp"

namespace nexar::link::test {
namespace {

constexpr size_t ack_kind = static_cast<size_t>(FrameKind::ack);
constexpr Time begin{Duration{1'000'000'000}};

// Node 1 receives messages of one chunk from node 0. Its acks may wait; node 0 sends at once.
struct Pair {
    Net net;
    Memory from{chunk_bytes_max}, to{chunk_bytes_max};
    uint64_t ops = 0;

    explicit Pair(const MeshConfig& config = {}) : net(2, 1, config) {
        from.set(pattern(chunk_bytes_max, 3));
        net.flush();
        net[1].flush(begin);
    }
    void receive(Time now, uint32_t bytes = 64, bool ack_may_wait = true) {
        const TransferKey k = key(1, ++ops);
        RecvSpec spec = recv_spec(k, 0, to, chunk_bytes_max, Class::small);
        spec.memory[0].bytes = bytes;
        spec.ack_may_wait = ack_may_wait;
        net[1].post(batch(ops, {spec}, {}));
        SendSpec sent = send_spec(k, 1, from, chunk_bytes_max, Class::small);
        sent.memory[0].bytes = bytes;
        net[0].post(batch(ops, {}, {sent}));
        net[0].flush();
        net.deliver(0, 1, Class::small, SIZE_MAX);
        net[1].flush(now);
        net[1].check_invariants();
        net.collect(1);
    }
    size_t acks() { return net.wire(1, 0).frames_of_kind[ack_kind]; }
    bool all_sent() {
        net.deliver(1, 0, Class::control, SIZE_MAX);
        for (uint64_t op = 1; op <= ops; ++op)
            if (!net.done(0, op)) return false;
        return true;
    }
};

MeshConfig all_eager() {
    MeshConfig out;
    out.eager_bytes_max = chunk_bytes_max;
    out.eager_room_per_group = 1 << 20;
    return out;
}

}  // namespace

TEST_CASE("an ack that no sender awaits waits a millisecond, and not longer", "[T6]") {
    Pair t;
    t.receive(begin);
    CHECK(t.net.done(1, 1));
    CHECK(t.acks() == 0);
    CHECK(t.net[1].acks_due() == begin + Due::ack_delay_max);
    t.net[1].flush(begin + Due::ack_delay_max - Duration{1});
    t.net[1].on_room(peer(0));
    CHECK(t.acks() == 0);
    t.net[1].flush(begin + Due::ack_delay_max);
    CHECK(t.acks() == 1);
    CHECK(t.net[1].acks_due() == never);
    CHECK(t.all_sent());
}

TEST_CASE("each ack has its millisecond, whatever was flushed before it", "[T6]") {
    Pair t;
    t.receive(begin);
    t.net[1].flush(begin + Due::ack_delay_max);
    CHECK(t.acks() == 1);
    // A send has the peer looked at, with no ack there.
    const TransferKey k = key(0, 900);
    t.net[1].post(batch(900, {}, {send_spec(k, 0, t.to, 64, Class::small)}));
    t.net[1].flush(begin + 2 * Due::ack_delay_max);
    CHECK(t.net[1].acks_due() == never);
    const Time later = begin + 5 * Due::ack_delay_max;
    t.receive(later);
    CHECK(t.acks() == 1);
    CHECK(t.net[1].acks_due() == later + Due::ack_delay_max);
    t.net[1].flush(later + Due::ack_delay_max);
    CHECK(t.acks() == 2);
    CHECK(t.all_sent());
}

TEST_CASE("acks leave together: when there are 16, or of 256 KiB of chunks", "[T6]") {
    Pair t(all_eager());
    const uint32_t bytes = GENERATE(uint32_t{64}, uint32_t{64 * 1024});
    const size_t together = bytes == 64 ? Due::waiting_acks_max : Due::waiting_bytes_max / bytes;
    const size_t at_first = t.net.wire(1, 0).written.size();
    for (size_t round = 0; round < 3; ++round) {
        for (size_t i = 1; i < together; ++i) t.receive(begin, bytes);
        CHECK(t.acks() == round);
        t.receive(begin, bytes);
        CHECK(t.acks() == round + 1);
        CHECK(t.all_sent());
    }
    CHECK(t.net.wire(1, 0).written.size() == at_first + 3);
}

TEST_CASE("an ack that is awaited takes those along that wait", "[T6]") {
    Pair t;
    t.receive(begin);
    t.receive(begin);
    CHECK(t.acks() == 0);
    t.receive(begin, 64, false);
    CHECK(t.acks() == 1);
    CHECK(t.all_sent());
    t.receive(begin);
    CHECK(t.acks() == 1);  // the next one waits again
}

TEST_CASE("without a time no ack waits", "[T6]") {
    Pair t;
    t.receive(begin);
    CHECK(t.acks() == 0);
    t.net[1].flush();
    CHECK(t.acks() == 1);
    t.receive(never);
    CHECK(t.acks() == 2);
    CHECK(t.all_sent());
}

TEST_CASE("acks that wait leave before a grant: one anew would make a later one wrong", "[T6]") {
    Pair t;
    t.receive(begin);
    const size_t at = t.net.wire(1, 0).written.size();
    const TransferKey k = key(1, 2);
    RecvSpec spec = recv_spec(k, 0, t.to, 64, Class::bulk);
    t.net[1].post(batch(2, {spec}, {}));
    t.net[1].flush(begin);
    const auto& written = t.net.wire(1, 0).written;
    REQUIRE(written.size() == at + 2);
    CHECK(written[at].second == FrameKind::ack);
    CHECK(written[at + 1].second == FrameKind::grant);
    CHECK(t.all_sent());
}

TEST_CASE("acks that wait are lost with their connection, and the sender is answered anew", "[T6]") {
    Pair t;
    t.receive(begin);
    t.net.connect(0, 1);
    REQUIRE(t.net.run());
    CHECK(t.acks() == 1);
    CHECK(t.net.done(0, 1));
    CHECK(t.net[1].stats(peer(0)).chunks_applied == 1);
}

}  // namespace nexar::link::test
