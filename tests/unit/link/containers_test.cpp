// The link's containers against the standard ones; and the tombstones' bound.
#include "link/containers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "harness.hpp"
#include "link/tombstones.hpp"

namespace nexar::link::test {

namespace {

struct BadHash {  // many collisions, so that runs grow, wrap around and close again
    size_t operator()(uint32_t k) const { return k % 13; }
};

TransferKey nth(uint64_t i) {
    return key(1 + i % 2, i);
}

}  // namespace

TEST_CASE("the flat map behaves as a map") {
    Random random(1);
    FlatMap<uint32_t, uint64_t, BadHash> map;
    std::map<uint32_t, uint64_t> oracle;
    for (size_t i = 0; i < 20'000; ++i) {
        const auto k = static_cast<uint32_t>(random.below(40));
        if (random.one_in(2)) {
            CHECK(map.erase(k) == (oracle.erase(k) == 1));
        } else if (!oracle.contains(k)) {
            map.insert(k, i);
            oracle[k] = i;
        }
        const auto probe = static_cast<uint32_t>(random.below(40));
        const uint64_t* at = map.find(probe);
        REQUIRE((at != nullptr) == oracle.contains(probe));
        if (at != nullptr) REQUIRE(*at == oracle[probe]);
        REQUIRE(map.size() == oracle.size());
    }
}

TEST_CASE("a chunk set finds its lowest chunk, of any size") {
    for (const uint32_t bits : {1u, 63u, 64u, 65u, 300u}) {
        Random random(bits);
        ChunkSet set;
        set.reset(bits);
        std::set<uint32_t> oracle;
        for (int i = 0; i < 2000; ++i) {
            const auto at = static_cast<uint32_t>(random.below(bits));
            if (random.one_in(2)) {
                set.set(at);
                oracle.insert(at);
            } else {
                set.clear(at);
                oracle.erase(at);
            }
            REQUIRE(set.first() == (oracle.empty() ? ChunkSet::none : *oracle.begin()));
            REQUIRE(set.test(at) == oracle.contains(at));
        }
        set.reset(bits, true);
        for (uint32_t i = 0; i < bits; ++i) {
            CHECK(set.first() == i);
            set.clear(i);
        }
        CHECK_FALSE(set.any());
    }
}

TEST_CASE("tombstones go when the sender has seen the ack, or did not ask after a break") {
    Tombstones stones(1000);
    for (uint64_t i = 0; i < 10; ++i) stones.add(nth(i), {1, 1, i + 1});
    stones.confirm(1, 4);
    CHECK(stones.size() == 6);
    CHECK(stones.find(nth(3)) == nullptr);
    CHECK(stones.find(nth(4)) != nullptr);
    stones.new_generation();
    stones.confirm(2, 9);  // of acks of the new generation: says nothing about the old ones
    CHECK(stones.size() == 6);
    stones.answered(nth(5), {1, 2, 10});
    stones.add(nth(20), {1, 2, 11});
    stones.asks_ended(2);
    CHECK(stones.size() == 2);
    stones.confirm(2, 10);
    CHECK(stones.find(nth(5)) == nullptr);
    CHECK(stones.find(nth(20)) != nullptr);
}

TEST_CASE("tombstones stay below their limit") {
    Tombstones stones(8);
    for (uint64_t i = 0; i < 100; ++i) {
        stones.add(nth(i), {1, 1, i + 1});
        if (i % 30 == 29) stones.new_generation();
        for (int n = 0; n < 50; ++n) stones.answered(nth(i), {1, 1, i + 1});
    }
    CHECK(stones.size() == 8);
    CHECK(stones.find(nth(99)) != nullptr);
    CHECK(stones.find(nth(91)) == nullptr);
}

TEST_CASE("a one-sided flow of small transfers leaves few tombstones") {
    // Seen from outside: the sender confirms by itself, although it sends nothing else.
    Net net(2, 1);
    Memory from(8), to(8);
    for (uint64_t op = 0; op < 1000; ++op) {
        net[1].post(batch(1 + op, {recv_spec(key(1, op), 0, to, 64, Class::small)}, {}));
        net[0].post(batch(1 + op, {}, {send_spec(key(1, op), 1, from, 64, Class::small)}));
        REQUIRE(net.run());
    }
    CHECK(net[1].stats(peer(0)).tombstones <= 1);
    // Each data frame confirms what came before it: no frame is needed for that alone.
    CHECK(net.wire(0, 1).frames_of_kind[5] == 0);
    for (uint64_t op = 2000; op < 2100; ++op)
        net[0].post(batch(op, {}, {send_spec(key(1, op), 1, from, 64, Class::small)}));
    REQUIRE(net.run());
    for (uint64_t op = 2000; op < 2100; ++op) {
        net[1].post(batch(op, {recv_spec(key(1, op), 0, to, 64, Class::small)}, {}));
        REQUIRE(net.run());
    }
    CHECK(net.done(0, 2099));
    CHECK(net[1].stats(peer(0)).tombstones <= 64);
    CHECK(net.wire(0, 1).frames_of_kind[5] == 1);  // after 64 acks that nothing else confirmed
}

}  // namespace nexar::link::test
