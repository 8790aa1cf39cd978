// The order of what leaves: strict priority, floors, turns, and that nobody's stream is held up by another's
// lack.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

namespace {

std::vector<Class> data_order(const Wire& wire) {
    std::vector<Class> out;
    for (const auto& [cls, kind] : wire.written)
        if (kind == FrameKind::data || kind == FrameKind::message) out.push_back(cls);
    return out;
}

// Node 0 with sends of all classes ready and granted, and no room yet.
struct Full {
    explicit Full(size_t floor) : net(2, 1, config(floor)), memory(16'000) {
        const std::vector<std::pair<Class, uint32_t>> sends{
            {Class::bulk, 0}, {Class::small, 1}, {Class::rpc, 2}};
        std::vector<RecvSpec> recvs;
        for (const auto& [cls, phase] : sends)
            recvs.push_back(recv_spec(key(1, 1, phase), 0, memory, 1600, cls));
        net[1].post(batch(1, recvs, {}));
        REQUIRE(net.run());
        net.wire(0, 1).capacity = {0, 0, 0, 0};
        std::vector<SendSpec> specs;
        for (const auto& [cls, phase] : sends)
            specs.push_back(send_spec(key(1, 1, phase), 1, memory, 1600, cls));
        net[0].post(batch(1, {}, specs));
        net[0].send_message(peer(1), pattern(500, 1));
        net[0].flush();
        net.wire(0, 1).written.clear();
        net.wire(0, 1).capacity = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
        net[0].on_room(peer(1));
    }
    static MeshConfig config(size_t floor) {
        MeshConfig c;
        c.class_floor_bytes = floor;
        return c;
    }
    Net net;
    Memory memory;
};

}  // namespace

TEST_CASE("higher classes leave first") {
    Full full(1 << 20);
    const auto order = data_order(full.net.wire(0, 1));
    REQUIRE(order.size() == 31);
    CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("a class passed over for long enough sends one chunk") {
    Full full(2 * 1720);  // two chunks of a higher class
    const auto order = data_order(full.net.wire(0, 1));
    REQUIRE(order.size() == 31);
    // While all classes have something to send, each lower one gets a chunk in a few; none starves.
    size_t since = 0, bulk_before_last_small = 0;
    const auto last_small = std::find(order.rbegin(), order.rend(), Class::small).base();
    for (auto at = order.begin(); at != last_small; ++at) {
        since = *at == Class::bulk ? 0 : since + 1;
        bulk_before_last_small += *at == Class::bulk;
        CHECK(since <= 4);
    }
    CHECK(bulk_before_last_small >= 3);
}

TEST_CASE("a full class does not hold up a lower one") {
    Full full(1 << 20);
    Net& net = full.net;
    REQUIRE(net.run());
    net.wire(0, 1).capacity = {1 << 20, 0, 0, 1 << 20};
    Memory a(1000), b(100'000);
    net[1].post(batch(
        50, {recv_spec(key(1, 2, 0), 0, a, 64, Class::small), recv_spec(key(1, 2, 1), 0, b, 1024)}, {}));
    net[0].post(batch(
        50, {}, {send_spec(key(1, 2, 0), 1, a, 64, Class::small), send_spec(key(1, 2, 1), 1, b, 1024)}));
    REQUIRE(net.run());
    CHECK_FALSE(net.done(0, 50));
    CHECK(net.done(0, 51));
    net.wire(0, 1).capacity = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    net[0].on_room(peer(1));
    REQUIRE(net.run());
    CHECK(net.done(0, 50));
}

TEST_CASE("transfers of one class take turns, one chunk each") {
    Net net(2, 2);
    Memory big(64 * 300), little(64 * 3);
    net[1].post(batch(1, {recv_spec(key(1, 1), 0, big, 64), recv_spec(key(2, 1), 0, little, 64)}, {}));
    REQUIRE(net.run());
    net.wire(0, 1).keep_frames = true;
    net[0].post(batch(1, {}, {send_spec(key(1, 1), 1, big, 64), send_spec(key(2, 1), 1, little, 64)}));
    net[0].flush();
    std::vector<uint64_t> groups;
    for (const auto& f : net.wire(0, 1).frames)
        if (read_at<FrameStart>(f, 0).kind == 2) groups.push_back(read_at<DataFrame>(f, 0).key.counter);
    REQUIRE(groups.size() == 303);
    CHECK(std::vector<uint64_t>(groups.begin(), groups.begin() + 8) ==
          std::vector<uint64_t>{1, 2, 1, 2, 1, 2, 1, 1});
}

TEST_CASE("a group whose receiver never posts does not delay another", "[W2]") {
    for (const Class cls : {Class::small, Class::bulk}) {
        Net net(2, 3);
        net.set_capacity(4000);
        const size_t bytes = cls == Class::small ? 9000 : 100'000;
        Memory from(bytes), to(bytes);
        from.set(pattern(bytes, 1));
        for (uint64_t op = 0; op < 100; ++op)  // far more than the buffer takes
            net[0].post(batch(1 + op, {}, {send_spec(key(1, op), 1, from, 1024, cls)}));
        for (int i = 0; i < 100; ++i) net.step();
        net[1].post(batch(1000, {recv_spec(key(2, 1), 0, to, 1024, cls)}, {}));
        net[0].post(batch(1000, {}, {send_spec(key(2, 1), 1, from, 1024, cls)}));
        REQUIRE(net.run());
        CHECK(net.done(0, 1000));
        CHECK(net.done(1, 1000));
        CHECK((to.flat() == pattern(bytes, 1)));
        CHECK(net.end_of(0, 1).done == 0);
    }
}

}  // namespace nexar::link::test
