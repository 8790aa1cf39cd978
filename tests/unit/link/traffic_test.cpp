// What each end counts by class: the same, whatever is sent.
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

namespace {

void check_agree(const TrafficCounts& one, const TrafficCounts& other) {
    for (size_t c = 0; c < class_count; ++c) {
        CAPTURE(c);
        CHECK(one.sent[c] == other.received[c]);
        CHECK(one.received[c] == other.sent[c]);
    }
}

}  // namespace

TEST_CASE("both ends count the same frames and bytes, by class", "[U10]") {
    Net net(2, 1);
    Random random(5);
    Memory large(random, 100'000), into(random, 100'000), little(random, 300), little_into(random, 300);
    net[1].post(batch(7, {recv_spec(key(1, 1), 0, into, 4096)}, {}));
    net[0].post(batch(9, {}, {send_spec(key(1, 1), 1, large, 4096)}));
    net[0].post(batch(10, {}, {send_spec(key(2, 1), 1, little, 64, Class::small)}));
    REQUIRE(net.run());
    net[1].post(batch(8, {recv_spec(key(2, 1), 0, little_into, 64, Class::small)}, {}));
    REQUIRE(net.run());

    const TrafficCounts here = net[0].traffic(peer(1)), there = net[1].traffic(peer(0));
    check_agree(here, there);
    CHECK(here.sent[index_of(Class::bulk)] == Amount{25, 25 * sizeof(DataFrame) + 100'000, 100'000});
    CHECK(here.sent[index_of(Class::small)].payload == 300);
    CHECK(here.sent[index_of(Class::small)].frames == 5);
    CHECK(there.sent[index_of(Class::control)].frames > 0);
    CHECK(there.sent[index_of(Class::control)].payload == 0);
    CHECK(here.sent[index_of(Class::rpc)] == Amount{});
}

TEST_CASE("what is counted for all peers is the sum of each", "[U10]") {
    Net net(3, 2);
    Random random(6);
    Memory from(random, 10'000), one(random, 10'000), other(random, 10'000);
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, one, 1024)}, {}));
    net[2].post(batch(1, {recv_spec(key(1, 2), 0, other, 1024)}, {}));
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 1024), send_spec(key(1, 2), 2, from, 1024)}));
    REQUIRE(net.run());
    TrafficCounts sum = net[0].traffic(peer(1));
    sum += net[0].traffic(peer(2));
    const TrafficCounts all = net[0].traffic()->read();
    CHECK(all.sent == sum.sent);
    CHECK(all.received == sum.received);
    CHECK(all.sent[index_of(Class::bulk)].payload == 20'000);
}

TEST_CASE("a reader that shares the counters needs nothing of the mesh", "[U10]") {
    const auto shared = std::make_shared<Traffic>();
    Random random(7);
    {
        Net net(2, 3);
        Memory from(random, 5000), to(random, 5000);
        net[1].count_in(peer(0), shared);
        net[1].post(batch(1, {recv_spec(key(1, 1), 0, to, 1024)}, {}));
        net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, from, 1024)}));
        REQUIRE(net.run());
        check_agree(net[0].traffic(peer(1)), shared->read());
    }
    CHECK(shared->read().received[index_of(Class::bulk)].payload == 5000);
}

}  // namespace nexar::link::test
