// The order of what leaves: strict priority, floors, turns, and that nobody's stream is held up by another's
// lack.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"
#include "link/overtaking.hpp"
#include "link/send_turns.hpp"

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

namespace {

// What node 0 sends to node 1: a tenant's sends of so many bytes each. Its receives are posted and granted.
struct Tenants {
    struct Sends {
        uint64_t tenant;
        size_t count, bytes;
        Class cls = Class::bulk;
        Priority priority = cls == Class::bulk ? Priority::bulk : Priority::realtime;
    };
    explicit Tenants(const std::vector<Sends>& all) : net(2, 4) {
        net.wire(0, 1).keep_frames = true;
        net.wire(0, 1).capacity = {1 << 28, 1 << 28, 1 << 28, 1 << 28};
        for (const Sends& each : all)
            for (size_t i = 0; i < each.count; ++i) post(each, i);
        for (Batch& recv : recvs) net[1].post(std::move(recv));
        REQUIRE(net.run());
    }
    void send() {
        for (Batch& batch : sends) net[0].post(std::move(batch));
        net[0].flush();
        net[0].check_invariants();
    }
    static uint64_t handle_of(uint64_t tenant, Class cls, Priority priority, size_t i = 0) {
        return tenant * 100'000 + (index_of(cls) * priority_count + index_of(priority)) * 10'000 + i;
    }
    // The priorities of the chunks that left, in order.
    std::vector<Priority> priorities() {
        std::vector<Priority> out;
        for (const auto& f : net.wire(0, 1).frames)
            if (read_at<FrameStart>(f, 0).kind == uint8_t(FrameKind::data))
                out.push_back(static_cast<Priority>(read_at<DataFrame>(f, 0).key.phase % priority_count));
        return out;
    }
    // The tenants of the chunks that left, in order; a group's number is its tenant's.
    std::vector<uint64_t> order() {
        std::vector<uint64_t> out;
        for (const auto& f : net.wire(0, 1).frames)
            if (read_at<FrameStart>(f, 0).kind == uint8_t(FrameKind::data))
                out.push_back(read_at<DataFrame>(f, 0).key.counter);
        return out;
    }

    Net net;

  private:
    void post(const Sends& what, size_t i) {
        const Memory& memory = memories.emplace_back(what.bytes);
        const auto phase =
            static_cast<uint32_t>(index_of(what.cls) * priority_count + index_of(what.priority));
        const TransferKey k = key(what.tenant, i + 1, phase);
        const uint64_t handle = handle_of(what.tenant, what.cls, what.priority, i);
        recvs.push_back(batch(handle, {recv_spec(k, 0, memory, chunk_bytes_max, what.cls)}, {}));
        SendSpec spec = send_spec(k, 1, memory, chunk_bytes_max, what.cls);
        spec.account = Account(what.tenant);
        spec.priority = what.priority;
        sends.push_back(batch(handle, {}, {spec}));
    }
    std::deque<Memory> memories;
    std::vector<Batch> recvs, sends;
};

size_t count_of(uint64_t tenant, std::span<const uint64_t> order) {
    return static_cast<size_t>(std::count(order.begin(), order.end(), tenant));
}

}  // namespace

TEST_CASE("tenants take turns, whatever number of transfers each has", "[link][N14]") {
    constexpr size_t chunks = 4;
    Tenants tenants({{1, 40, chunks * chunk_bytes_max}, {2, 1, chunks * chunk_bytes_max}});
    tenants.send();
    const auto order = tenants.order();
    REQUIRE(order.size() == 41 * chunks);
    CHECK(std::vector<uint64_t>(order.begin(), order.begin() + 8) ==
          std::vector<uint64_t>{1, 2, 1, 2, 1, 2, 1, 2});
    REQUIRE(tenants.net.run());
    CHECK(tenants.net.done(0, Tenants::handle_of(2, Class::bulk, Priority::bulk)));
}

TEST_CASE("of three tenants each gets a third of the bytes, whatever its chunks", "[link][N14]") {
    Tenants tenants({{1, 4, 4 * chunk_bytes_max}, {2, 400, 10'000}, {3, 40, 64 * 1024}});
    tenants.send();
    const auto order = tenants.order();
    // By when the first one has sent 10 chunks, the others have sent as many bytes, up to two turns.
    size_t at = 0;
    for (size_t chunks = 0; chunks < 10; ++at) chunks += order[at] == 1;
    const std::span<const uint64_t> before(order.data(), at);
    CHECK(count_of(2, before) * 10'512 + 2 * 262'656 >= 10 * 262'656);
    CHECK(count_of(2, before) * 10'512 <= 12 * 262'656);
    CHECK(count_of(3, before) * 66'048 + 2 * 262'656 >= 10 * 262'656);
    CHECK(count_of(3, before) * 66'048 <= 12 * 262'656);
}

TEST_CASE("a small transfer waits for one turn of each other tenant", "[link][N14]") {
    Tenants tenants({{1, 2000, 8, Class::small}, {2, 1, 8, Class::small}});
    tenants.send();
    const auto order = tenants.order();
    REQUIRE(order.size() == 2001);
    const auto at = std::find(order.begin(), order.end(), 2) - order.begin();
    CHECK(at <= turn_cost_of(Class::small) / chunk_cost);
}

TEST_CASE("a chunk above a turn costs its tenant the next turns", "[link][N14]") {
    Tenants tenants({{1, 8, chunk_bytes_max, Class::small}, {2, 1000, 8, Class::small}});
    tenants.send();
    const auto order = tenants.order();
    const auto first = std::find(order.begin(), order.end(), 1);
    const auto second = std::find(first + 1, order.end(), 1);
    CHECK((second - first) * chunk_cost >= chunk_bytes_max - turn_cost_of(Class::small));
}

namespace {

struct TwoTenants {  // with a small send each
    TenantSends tenants[2];
    Send sends[2];
    SendTurns turns;
    TwoTenants() {
        for (size_t i : {0u, 1u}) {
            tenants[i].cls = sends[i].cls = Class::small;
            sends[i].tenant = &tenants[i];
        }
    }
};

}  // namespace

TEST_CASE("a tenant that comes back has saved nothing, and is behind the others", "[link][N14]") {
    TwoTenants two;
    auto& [tenants, sends, turns] = two;
    turns.add(sends[0]);
    for (int i = 0; i < 20; ++i) {
        turns.add(sends[1]);
        CHECK(turns.front() == &sends[0]);
        turns.took(sends[0], 16 * 1024);  // a whole turn
        REQUIRE(turns.front() == &sends[1]);
        turns.took(sends[1], 1);
        turns.remove(sends[1]);  // it had no more
        CHECK(tenants[1].credit == 0);
        turns.check_invariants();
    }
    turns.remove(sends[0]);
    CHECK(turns.front() == nullptr);
}

TEST_CASE("a tenant that runs out of sends keeps its debt", "[link][N14]") {
    TwoTenants two;
    auto& [tenants, sends, turns] = two;
    for (Send& send : sends) turns.add(send);
    // The first one's chunks cost two turns, and it has one at a time.
    constexpr auto chunk = static_cast<uint32_t>(2 * turn_cost_of(Class::small) - chunk_cost);
    int64_t bytes[2] = {};
    for (int i = 0; i < 3000; ++i) {
        Send& next = *turns.front();
        const bool first = &next == &sends[0];
        turns.took(next, first ? chunk : 512);
        bytes[first ? 0 : 1] += first ? chunk + chunk_cost : 512 + chunk_cost;
        if (first) turns.remove(next), turns.add(next);
        turns.check_invariants();
    }
    CHECK(bytes[0] <= bytes[1] + 4 * turn_cost_of(Class::small));
    CHECK(bytes[1] <= bytes[0] + 4 * turn_cost_of(Class::small));
}

TEST_CASE("of one tenant's transfers the most urgent leave first, each on its priority's stream",
          "[link][K23]") {
    for (const Class cls : {Class::small, Class::bulk}) {
        Tenants tenants({{1, 3, 600, cls, Priority::bulk},
                         {1, 3, 600, cls, Priority::realtime},
                         {1, 3, 600, cls, Priority::critical}});
        tenants.send();
        const auto order = tenants.priorities();
        REQUIRE(order.size() == 9);
        CHECK(std::is_sorted(order.begin(), order.end()));
        const Wire& wire = tenants.net.wire(0, 1);
        CHECK(data_order(wire) == std::vector<Class>{Class::rpc, Class::rpc, Class::rpc, Class::small,
                                                     Class::small, Class::small, Class::bulk, Class::bulk,
                                                     Class::bulk});
        REQUIRE(tenants.net.run());
        CHECK(tenants.net.done(0, Tenants::handle_of(1, cls, Priority::bulk, 2)));
    }
}

TEST_CASE("a less urgent transfer that was passed over for long has a chunk sent", "[link][K23]") {
    Tenants tenants({{1, 1, 8 * chunk_bytes_max, Class::bulk, Priority::bulk},
                     {1, 4, 10 * chunk_bytes_max, Class::bulk, Priority::critical}});
    tenants.send();
    const auto order = tenants.priorities();
    REQUIRE(order.size() == 48);
    CHECK(std::vector<Priority>(order.begin(), order.begin() + 4) ==
          std::vector<Priority>(4, Priority::critical));
    size_t since = 0;
    for (const Priority p : order) {
        since = p == Priority::bulk ? 0 : since + 1;
        CHECK(since <= 8);  // at the end there is no bulk left
    }
    CHECK(std::count(order.begin(), order.begin() + 40, Priority::bulk) == 8);
}

TEST_CASE("a tenant whose transfers are all urgent gets no more than another", "[link][K23][N14]") {
    Tenants tenants({{1, 4, 20 * chunk_bytes_max, Class::bulk, Priority::critical},
                     {2, 1, 40 * chunk_bytes_max, Class::bulk, Priority::bulk}});
    tenants.send();
    const auto order = tenants.order();
    CHECK(count_of(1, std::span(order).first(40)) == 20);
    CHECK(count_of(2, std::span(order).first(40)) == 20);
}

TEST_CASE("a tenant's turn waits for room in its stream, and no other one's urgency passes it",
          "[link][K23][N14]") {
    Tenants tenants({{1, 1, 40 * chunk_bytes_max, Class::bulk, Priority::critical},
                     {2, 1, 40 * chunk_bytes_max, Class::bulk, Priority::bulk}});
    Wire& wire = tenants.net.wire(0, 1);
    wire.capacity = {1 << 28, 1 << 28, 1 << 28, 0};
    tenants.send();
    const size_t first = tenants.order().size();
    CHECK(first <= 2);  // the first tenant's turn
    CHECK(count_of(1, tenants.order()) == first);
    for (int i = 0; i < 10; ++i) {
        wire.capacity[3] = chunk_bytes_max + 4096;
        for (const Class cls : {Class::rpc, Class::bulk}) tenants.net.deliver(0, 1, cls, 1 << 28);
        tenants.net[0].flush();
        const auto order = tenants.order();
        const size_t one = count_of(1, order), two = count_of(2, order);
        CAPTURE(data_order(wire), one, two);
        CHECK(two >= static_cast<size_t>(i));
        CHECK(one <= two + 2);
    }
    wire.capacity = {1 << 28, 1 << 28, 1 << 28, 1 << 28};
    tenants.net[0].on_room(peer(1));
    REQUIRE(tenants.net.run());
    CHECK(tenants.order().size() == 80);
}

namespace {

// The most urgent stream is emptied first, as a connection does; to the end of so many chunks of `cls`. What
// of `urgent` went before.
size_t bytes_before(Tenants& tenants, Class urgent, Class cls, size_t chunks) {
    Wire& wire = tenants.net.wire(0, 1);
    size_t before = 0;
    for (size_t left = chunks * frame_bytes_max; left > 0;) {
        const Class next = wire.streams[index_of(urgent)].empty() ? cls : urgent;
        const size_t n =
            std::min<size_t>(wire.streams[index_of(next)].size(), next == cls ? left : 64 * 1024);
        REQUIRE(n > 0);
        tenants.net.deliver(0, 1, next, n);
        tenants.net.flush();
        (next == cls ? left : before) += next == cls ? -n : n;
    }
    return before;
}

}  // namespace

TEST_CASE("urgent chunks pass another tenant's bytes in a connection by their share", "[link][K31]") {
    for (const auto& [priority, stream] :
         {std::pair(Priority::realtime, Class::small), std::pair(Priority::bulk, Class::bulk)}) {
        constexpr size_t chunks = 4;
        Tenants tenants({{2, chunks, chunk_bytes_max, Class::bulk, priority},
                         {1, 40, chunk_bytes_max, Class::bulk, Priority::critical}});
        Wire& wire = tenants.net.wire(0, 1);
        wire.capacity[index_of(Class::rpc)] = 2 * frame_bytes_max;
        tenants.send();
        REQUIRE(count_of(2, tenants.order()) == chunks);
        CHECK(bytes_before(tenants, Class::rpc, stream, chunks) <= (chunks + 2) * frame_bytes_max);
        REQUIRE(tenants.net.run());
        CHECK(tenants.order().size() == 40 + chunks);
    }
}

namespace {

// A connection of which the test says what is not acknowledged.
struct Held final : Channel {
    size_t bytes[class_count] = {};
    size_t room(Class) const override { return 1 << 28; }
    void write(Class, std::span<const Bytes>) override {}
    size_t held(Class cls) const override { return bytes[index_of(cls)]; }
};

}  // namespace

TEST_CASE("what passed bytes that have left counts for nothing when there are others", "[link][K31]") {
    constexpr uint64_t few = 1000;
    const Account urgent(1), other(2);
    for (const bool own_behind : {false, true}) {
        CAPTURE(own_behind);
        Held channel;
        Overtaking overtaking;
        const auto write = [&](Class stream, Account tenant, uint64_t bytes) {
            overtaking.wrote(channel, stream, tenant, bytes);
            channel.bytes[index_of(stream)] += bytes;
        };
        for (int again = 0; again < 4; ++again) {
            CAPTURE(again);
            write(Class::bulk, other, few);
            REQUIRE(overtaking.stream_for(channel, Class::rpc, urgent, frame_bytes_max) == Class::rpc);
            write(Class::rpc, urgent, frame_bytes_max);
            REQUIRE(overtaking.stream_for(channel, Class::rpc, urgent, frame_bytes_max) == Class::bulk);
            if (own_behind) {
                write(Class::bulk, urgent, few);
                channel.bytes[index_of(Class::bulk)] = few;
                REQUIRE(overtaking.stream_for(channel, Class::rpc, urgent, few) == Class::rpc);
            }
            // All of it is acknowledged, and nothing urgent was sent meanwhile.
            channel.bytes[index_of(Class::rpc)] = channel.bytes[index_of(Class::bulk)] = 0;
        }
    }
}

TEST_CASE("urgent chunks wait for a full stream of their own tenant's only as its share", "[link][K23]") {
    constexpr size_t urgent = 12, filled = 6;
    Tenants tenants({{1, 1, 40 * chunk_bytes_max, Class::bulk, Priority::bulk}});
    Net& net = tenants.net;
    Wire& wire = net.wire(0, 1);
    wire.capacity = {1 << 28, 1 << 28, 1 << 28, filled * frame_bytes_max};
    tenants.send();
    REQUIRE(tenants.order().size() == filled);
    Memory memory(urgent * chunk_bytes_max);
    net[1].post(batch(7, {recv_spec(key(1, 77), 0, memory, chunk_bytes_max)}, {}));
    for (const Class cls : {Class::control, Class::rpc}) net.deliver(1, 0, cls, 1 << 20);
    net[1].flush();
    net.deliver(1, 0, Class::control, 1 << 20);
    SendSpec send = send_spec(key(1, 77), 1, memory, chunk_bytes_max);
    send.account = Account(1);
    send.priority = Priority::critical;
    net[0].post(batch(7, {}, {send}));
    net[0].flush();
    // A connection empties the most urgent stream first.
    const auto left = [&wire] { return std::ranges::count(data_order(wire), Class::rpc); };
    size_t bulk = 0;
    while (left() < static_cast<int64_t>(urgent)) {
        const Class next = wire.streams[index_of(Class::rpc)].empty() ? Class::bulk : Class::rpc;
        const size_t n = std::min<size_t>(wire.streams[index_of(next)].size(), 4096);
        REQUIRE(n > 0);
        net.deliver(0, 1, next, n);
        net[0].on_room(peer(1));
        if (next == Class::bulk) bulk += n;
    }
    CHECK(bulk <= urgent / 4 * frame_bytes_max);
    wire.capacity.fill(1 << 28);
    net[0].on_room(peer(1));
    REQUIRE(net.run());
}

TEST_CASE("urgent chunks pass all of their own tenant's bytes in a connection", "[link][K31][K23]") {
    Tenants tenants({{1, 4, chunk_bytes_max, Class::bulk, Priority::bulk}});
    Net& net = tenants.net;
    net.wire(0, 1).capacity = {1 << 28, 1 << 28, 1 << 28, 2 * frame_bytes_max};
    tenants.send();
    Memory memory(4 * chunk_bytes_max);  // then it is the other transfer's turn
    net[1].post(batch(7, {recv_spec(key(1, 77), 0, memory, chunk_bytes_max)}, {}));
    for (const Class cls : {Class::control, Class::rpc}) net.deliver(1, 0, cls, 1 << 20);
    net[1].flush();
    net.deliver(1, 0, Class::control, 1 << 20);
    SendSpec urgent = send_spec(key(1, 77), 1, memory, chunk_bytes_max);
    urgent.account = Account(1);
    urgent.priority = Priority::critical;
    net[0].post(batch(7, {}, {urgent}));
    net[0].flush();
    CHECK(std::ranges::count(data_order(net.wire(0, 1)), Class::rpc) == 4);
    REQUIRE(net.run());
}

TEST_CASE("an urgent chunk passes what a full stream holds of less urgent ones", "[link][K23]") {
    Tenants tenants({{1, 1, 4 * chunk_bytes_max, Class::bulk, Priority::bulk}});
    Net& net = tenants.net;
    Memory from(64), to(64);
    from.set(pattern(64, 3));
    const TransferKey k = key(1, 77, 0);
    net[1].post(batch(7, {recv_spec(k, 0, to, 64)}, {}));
    REQUIRE(net.run());
    net.wire(0, 1).capacity = {1 << 28, 1 << 28, 1 << 28, chunk_bytes_max + 4096};
    tenants.send();
    REQUIRE(tenants.order().size() == 1);  // the stream is full
    SendSpec urgent = send_spec(k, 1, from, 64);
    urgent.account = Account(1);
    urgent.priority = Priority::critical;
    net[0].post(batch(7, {}, {urgent}));
    net[0].flush();
    REQUIRE(tenants.order().size() == 2);
    CHECK(data_order(net.wire(0, 1)).back() == Class::rpc);
    REQUIRE(net.run());
    CHECK(net.done(0, 7));
    CHECK((to.flat() == pattern(64, 3)));
}

TEST_CASE("a transfer that is never received holds up none of another priority", "[link][K27]") {
    for (const Class cls : {Class::small, Class::bulk})
        for (size_t stuck = 0; stuck < priority_count; ++stuck)
            for (size_t free = 0; free < priority_count; ++free) {
                CAPTURE(index_of(cls), stuck, free);
                Net net(2, 3);
                net.set_capacity(4000);
                const size_t bytes = cls == Class::small ? 9000 : 100'000;
                Memory from(bytes), to(bytes);
                from.set(pattern(bytes, 1));
                const auto spec = [&](uint64_t group, uint64_t op, size_t priority) {
                    SendSpec s = send_spec(key(group, op), 1, from, 1024, cls);
                    s.account = Account(5);
                    s.priority = static_cast<Priority>(priority);
                    return s;
                };
                for (uint64_t op = 0; op < 100; ++op) net[0].post(batch(1 + op, {}, {spec(1, op, stuck)}));
                for (int i = 0; i < 100; ++i) net.step();
                net[1].post(batch(1000, {recv_spec(key(2, 1), 0, to, 1024, cls)}, {}));
                net[0].post(batch(1000, {}, {spec(2, 1, free)}));
                REQUIRE(net.run());
                CHECK(net.done(0, 1000));
                CHECK(net.done(1, 1000));
                CHECK((to.flat() == pattern(bytes, 1)));
                CHECK(net.end_of(0, 1).done == 0);
            }
}

}  // namespace nexar::link::test
