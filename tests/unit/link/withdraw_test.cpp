// Withdrawal: each transfer of the op fails once, and its memory is not touched afterwards [W7].
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

namespace {

constexpr std::byte later{0x5C};  // what the memory holds after it was given back

struct Side {
    std::vector<std::unique_ptr<Memory>> memory;
    uint64_t first = 0, count = 0;
};

// Transfers of op `op` in both directions between nodes 0 and 1.
Side post_op(Net& net, size_t self, uint64_t op, uint64_t first, bool reduce) {
    Side side{{}, first, 0};
    Batch b;
    b.first_handle = first;
    const size_t other = 1 - self;
    for (uint32_t phase = 0; phase < 4; ++phase) {
        const Class cls = phase % 2 == 0 ? Class::bulk : Class::small;
        const size_t bytes = phase % 2 == 0 ? 40'000 : 3000;
        side.memory.push_back(std::make_unique<Memory>(net.random, bytes));
        b.recvs.push_back(recv_spec(key(1, op, phase), other, *side.memory.back(), 1024, cls, reduce));
        side.memory.push_back(std::make_unique<Memory>(net.random, bytes));
        side.memory.back()->set(pattern(bytes, op * 10 + phase));
        b.sends.push_back(send_spec(key(1, op, phase), other, *side.memory.back(), 1024, cls));
    }
    side.count = b.recvs.size() + b.sends.size();
    net[self].post(std::move(b));
    return side;
}

// Withdraws op 1 at node 0 after `steps`, and later at node 1; op 2 must not notice. Empty, or what went
// wrong.
std::string withdraw_at(size_t steps, bool reduce, bool break_after) {
    Net net(2, steps + 1);
    net.set_capacity(5000);
    Side a1 = post_op(net, 0, 1, 1, reduce);
    const Side b2 = post_op(net, 1, 2, 101, false);
    for (size_t i = 0; i < steps / 2; ++i) net.step();
    Side b1 = post_op(net, 1, 1, 1, reduce);
    const Side a2 = post_op(net, 0, 2, 101, false);
    for (size_t i = steps / 2; i < steps; ++i) net.step();

    for (const auto& [node, side] : {std::pair<size_t, Side*>(0, &a1), {1, &b1}}) {
        net[node].withdraw(key(1, 1).op);
        net.collect(node);
        for (auto& m : side->memory) m->fill(later);
        if (break_after) net.connect(0, 1);
        if (!net.run()) return "did not come to rest";
    }
    for (const auto& [node, side] : {std::pair<size_t, Side*>(0, &a1), {1, &b1}}) {
        for (auto& m : side->memory)
            if (!m->all(later)) return "memory touched after the withdrawal at node " + std::to_string(node);
        for (uint64_t h = 1; h <= side->count; ++h) {
            const Terminal t = net.end_of(node, h);
            if (t.done + t.failed != 1) return "not ended exactly once";
        }
    }
    for (size_t node = 0; node < 2; ++node)
        for (uint64_t h = 101; h < 101 + a2.count; ++h)
            if (!net.done(node, h)) return "the other op was harmed";
    for (uint32_t phase = 0; phase < 4; ++phase)
        if (a2.memory[2 * phase]->flat() != b2.memory[2 * phase + 1]->flat()) return "the other op's bytes";
    return net.garbage.empty() ? "" : net.garbage.front();
}

}  // namespace

TEST_CASE("an op withdrawn at any moment fails once and leaves its memory alone", "[W7]") {
    for (size_t steps = 0; steps < 160; ++steps) {
        INFO("steps " << steps);
        CHECK(withdraw_at(steps, steps % 2 == 0, steps % 3 == 0) == "");
    }
}

TEST_CASE("a chunk half received when its op is withdrawn is skipped, and the frame behind it is read",
          "[W7]") {
    for (const bool reduce : {false, true}) {
        Net net(2, 1);
        Memory from(4096), to(4096), to2(4096);
        from.set(pattern(4096, 1));
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 4096, Class::small, reduce)}, {}));
        net[1].post(batch(2, {recv_spec(key(1, 2), 0, to2, 4096, Class::small)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 4096, Class::small)}));
        net[0].post(batch(2, {}, {send_spec(key(1, 2), 1, from, 4096, Class::small)}));
        net.flush();
        net.deliver(0, 1, Class::small, 1500);
        net[1].withdraw(key(1, 1).op);
        to.fill(later);
        REQUIRE(net.run());
        CHECK(to.all(later));
        CHECK(net.done(1, 2));
        CHECK(net.done(0, 2));
        CHECK((to2.flat() == pattern(4096, 1)));
        // Neither ack nor nack: the sender's half ends by the engine's abort.
        CHECK(net.end_of(0, 1).done == 0);
        CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    }
}

TEST_CASE(
    "what is posted to an op after its withdrawal fails, and its grants and buffered chunks are dropped") {
    Net net(2, 2);
    Memory from(1000), to(1000);
    net[0].post(batch(1, {}, {send_spec(key(1, 1, 0), 1, from, 64, Class::small)}));
    net[0].post(batch(2, {recv_spec(key(1, 1, 1), 1, to, 64)}, {}));
    REQUIRE(net.run());
    net[1].withdraw(key(1, 1).op);
    net[1].post(
        batch(1, {recv_spec(key(1, 1, 0), 0, to, 64, Class::small)}, {send_spec(key(1, 1, 1), 0, from, 64)}));
    REQUIRE(net.run());
    CHECK(net.end_of(1, 1).failed == 1);
    CHECK(net.end_of(1, 2).failed == 1);
    CHECK(to.all(Memory::canary));
    CHECK(net.end_of(0, 1).done + net.end_of(0, 2).done == 0);
}

TEST_CASE("a withdrawn receive does not send its forward any more") {
    Net net(3, 3);
    net.set_capacity(3000);
    Memory from(40'000), middle(40'000), to(40'000);
    from.set(pattern(40'000, 1));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 1024)}));
    RecvSpec r = recv_spec(key(1, 1), 0, middle, 1024);
    r.forward = 0;
    SendSpec s = send_spec(key(1, 1), 2, middle, 1024);
    s.ready = false;
    net[1].post(batch(1, {r}, {s}));
    net[2].post(batch(1, {recv_spec(key(1, 1), 1, to, 1024)}, {}));
    for (int i = 0; i < 60; ++i) net.step();
    const uint64_t before = net[1].stats(peer(2)).bytes_sent;
    net[1].withdraw(key(1, 1).op);
    middle.fill(later);
    REQUIRE(net.run());
    CHECK(middle.all(later));
    CHECK(net[1].stats(peer(2)).bytes_sent == before);
    CHECK(net.end_of(1, 1).failed == 1);
    CHECK(net.end_of(1, 2).failed == 1);
}

TEST_CASE("what came early for an op goes with it, and what comes later is neither kept nor refused") {
    Net net(2, 4);
    Memory from(40'000), to(40'000), little(64);
    net[1].post(batch(1, {recv_spec(key(1, 1, 2), 0, to, 20'032)}, {}));
    net[0].post(batch(1, {recv_spec(key(1, 1, 1), 1, to, 64)}, {}));
    net[0].post(batch(2, {}, {send_spec(key(1, 1, 0), 1, little, 64, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).unexpected_bytes > 0);
    CHECK(net[1].stats(peer(0)).grants_unclaimed == 1);
    net[1].withdraw(key(1, 1).op);
    CHECK(net[1].stats(peer(0)).unexpected_bytes == 0);
    CHECK(net[1].stats(peer(0)).grants_unclaimed == 0);
    // The peer still holds the grant of phase 2, and knows nothing of the withdrawal.
    net[0].post(batch(3, {}, {send_spec(key(1, 1, 2), 1, from, 20'032)}));
    net[0].post(batch(4, {}, {send_spec(key(1, 1, 3), 1, little, 64, Class::small)}));
    REQUIRE(net.run());
    CHECK(net[1].stats(peer(0)).bytes_received >= 40'000);
    CHECK(net[1].stats(peer(0)).nacks_sent == 0);
    CHECK(net[1].stats(peer(0)).unexpected_bytes == 0);
    CHECK(net.end_of(0, 3).done == 0);
}

// A receive retracted after `steps` and posted again, into other memory, after some more.
TEST_CASE("a receive retracted at any moment fails alone; posted again it gets all, also over a break") {
    size_t retracted = 0;
    for (size_t steps = 0; steps < 240; ++steps) {
        CAPTURE(steps);
        const bool eager = steps % 3 == 0, breaks = steps % 4 == 1, breaks_after = steps % 5 == 2;
        const Class cls = eager ? Class::small : Class::bulk;
        const size_t bytes = eager ? 9000 : 60'000;
        Net net(2, steps + 1);
        net.set_capacity(5000);
        Memory from(bytes), first(bytes), again(bytes), other(bytes);
        from.set(pattern(bytes, steps));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 1024, cls)}));
        net[0].post(batch(2, {}, {send_spec(key(1, 2), 1, from, 1024, cls)}));
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, first, 1024, cls)}, {}));
        net[1].post(batch(2, {recv_spec(key(1, 2), 0, other, 1024, cls)}, {}));
        for (size_t i = 0; i < steps; ++i) net.step();
        net[1].retract(key(1, 1).op);
        net.collect(1);
        if (net.done(1, 1)) continue;  // it was too late
        ++retracted;
        REQUIRE(net.end_of(1, 1).failed == 1);
        first.fill(later);
        if (breaks) net.connect(0, 1);
        for (size_t i = 0; i < steps % 40; ++i) net.step();
        CHECK_FALSE(net.done(0, 1));

        RecvSpec spec = recv_spec(key(1, 1), 0, again, 1024, cls);
        spec.anew = true;
        net[1].post(batch(3, {spec}, {}));
        for (size_t i = 0; breaks_after && i < 30; ++i) net.step();
        if (breaks_after) net.connect(0, 1);
        REQUIRE(net.run());
        CHECK((net.done(0, 1) && net.done(1, 3)));
        CHECK((again.flat() == pattern(bytes, steps) && again.canaries_live()));
        CHECK(first.all(later));
        CHECK((net.done(0, 2) && net.done(1, 2) && other.flat() == pattern(bytes, steps)));
        CHECK(net.garbage.empty());
    }
    CHECK(retracted > 50);
}

}  // namespace nexar::link::test
