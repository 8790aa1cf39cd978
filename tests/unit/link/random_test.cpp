// Random transfers between three nodes over channels that break, compared with an oracle; and the sabotages
// that only such runs notice.
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

namespace {

struct Planned {
    size_t from, to;
    TransferKey key;
    Class cls;
    bool reduce;
    uint32_t chunk_bytes;
    std::unique_ptr<Memory> source, target;
    std::vector<std::byte> expected;
    uint64_t handle;
    size_t send_at, recv_at;  // steps
};

std::vector<Planned> make_plan(Random& random, size_t nodes, size_t count) {
    std::vector<Planned> plan;
    for (size_t i = 0; i < count; ++i) {
        Planned p;
        p.from = random.below(nodes);
        p.to = (p.from + 1 + random.below(nodes - 1)) % nodes;
        // Pairs of transfers share a key in the two directions; that is allowed.
        p.key = key(1 + random.below(3), i / 2, static_cast<uint32_t>(i % 2));
        p.cls = random.one_in(2) ? Class::bulk : random.one_in(2) ? Class::small : Class::rpc;
        p.reduce = random.one_in(2);
        p.chunk_bytes = static_cast<uint32_t>(64 * (1 + random.below(16)));
        const size_t bytes = random.one_in(12)  ? 0
                             : random.one_in(3) ? 4 * random.below(30)
                                                : 4 * random.below(6000);
        p.source = std::make_unique<Memory>(random, bytes, 1);
        p.target = std::make_unique<Memory>(random, bytes, 4);
        p.source->set(pattern(bytes, 2 * i));
        p.target->set(pattern(bytes, 2 * i + 1));
        p.expected =
            p.reduce ? sum_u32(pattern(bytes, 2 * i + 1), pattern(bytes, 2 * i)) : pattern(bytes, 2 * i);
        p.handle = 100 + i;
        p.send_at = random.below(400);
        p.recv_at = random.below(400);
        plan.push_back(std::move(p));
    }
    return plan;
}

MeshConfig config_for(Random& random, MeshConfig::Sabotage sabotage) {
    MeshConfig config;
    config.sabotage = sabotage;
    if (random.one_in(2)) config.eager_room_per_group = 2000;
    if (random.one_in(3)) config.eager_groups_max = 1;
    if (random.one_in(3)) config.grants_per_group_max = 2;
    if (random.one_in(3)) config.wanted_per_group_max = 2;
    if (random.one_in(3)) config.eager_bytes_max = 512;
    if (random.one_in(4)) config.class_floor_bytes = 1000;
    return config;
}

void post_due(Net& net, const std::vector<Planned>& plan, size_t step) {
    for (const Planned& p : plan) {
        if (p.recv_at == step)
            net[p.to].post(
                batch(p.handle, {recv_spec(p.key, p.from, *p.target, p.chunk_bytes, p.cls, p.reduce)}, {}));
        if (p.send_at == step)
            net[p.from].post(batch(p.handle, {}, {send_spec(p.key, p.to, *p.source, p.chunk_bytes, p.cls)}));
    }
}

void break_something(Net& net, Random& random, size_t nodes) {
    const size_t a = random.below(nodes), b = (a + 1 + random.below(nodes - 1)) % nodes;
    if (random.one_in(2) && net.is_up(a, b)) {
        net.disconnect(a, b);
        for (size_t i = random.below(50); i > 0; --i) net.step();
    }
    net.connect(a, b);
}

struct Outcome {
    bool right = true;
    size_t duplicates = 0, nacks = 0;
    std::string why;
    void require(bool ok, const std::string& text) {
        if (!ok && right) why = text;
        right = right && ok;
    }
};

Outcome run_random(uint64_t seed, size_t breaks, MeshConfig::Sabotage sabotage = {}) {
    constexpr size_t nodes = 3;
    Random random(seed);
    Net net(nodes, seed + 1, config_for(random, sabotage));
    net.set_capacity(3000 + random.below(20000));
    net.piece_max = 1 + random.below(8000);
    if (seed % 4 == 0) net.set_ahead(seed % nodes);  // [V3]
    const std::vector<Planned> plan = make_plan(random, nodes, 30);
    for (size_t step = 0; step < 400; ++step) {
        post_due(net, plan, step);
        net.step();
        if (breaks > 0 && random.one_in(1 + 400 / breaks)) break_something(net, random, nodes);
    }
    for (size_t i = 0; i < breaks; ++i) {
        for (size_t n = random.below(300); n > 0; --n) net.step();
        break_something(net, random, nodes);
    }
    Outcome out;
    out.require(net.run(200'000), "did not come to rest");
    for (const Planned& p : plan) {
        const std::string who = "transfer " + std::to_string(p.handle);
        out.require(net.done(p.from, p.handle), who + ": the send is not done exactly once");
        out.require(net.done(p.to, p.handle), who + ": the receive is not done exactly once");
        out.require(p.target->flat() == p.expected, who + ": wrong bytes");
        out.require(p.target->canaries_live(), who + ": bytes outside the extents");
    }
    out.require(net.garbage.empty(), net.garbage.empty() ? "" : "garbage: " + net.garbage.front());
    out.require(net.wires_are_sound(), "a malformed frame, or one beyond the room");
    for (size_t a = 0; a < nodes; ++a)
        for (size_t b = 0; b < nodes; ++b) {
            out.duplicates += net[a].stats(peer(b)).chunks_duplicate;
            out.nacks += net[a].stats(peer(b)).nacks_sent;
        }
    return out;
}

// Whether some of the seeds show that something is wrong.
bool oracle_fails(MeshConfig::Sabotage sabotage, size_t breaks) {
    for (uint64_t seed = 1; seed <= 40; ++seed)
        if (!run_random(seed, breaks, sabotage).right) return true;
    return false;
}

}  // namespace

TEST_CASE("random transfers end exactly once with the right bytes") {
    size_t nacks = 0;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        const Outcome out = run_random(seed, 0);
        INFO("seed " << seed << ": " << out.why);
        CHECK(out.right);
        CHECK(out.duplicates == 0);
        nacks += out.nacks;
    }
    CHECK(nacks > 0);  // the scenario takes the path it is there for
}

TEST_CASE("random transfers end exactly once with the right bytes although channels break", "[W10][W3][V3]") {
    for (uint64_t seed = 1; seed <= 400; ++seed) {
        const Outcome out = run_random(seed, 1 + seed % 12);
        INFO("seed " << seed << ": " << out.why);
        CHECK(out.right);
        CHECK(out.duplicates == 0);  // [W6]: an honest sender never sends an applied chunk twice
    }
}

TEST_CASE("sabotage: a chunk applied twice is caught") {
    MeshConfig::Sabotage sabotage;
    sabotage.apply_chunk_twice = true;
    CHECK(oracle_fails(sabotage, 0));
    CHECK_FALSE(oracle_fails({}, 0));
}

TEST_CASE("sabotage: missing de-duplication is caught") {
    MeshConfig::Sabotage sabotage;
    sabotage.no_deduplication = true;
    CHECK(oracle_fails(sabotage, 6));
    CHECK_FALSE(oracle_fails({}, 6));
}

TEST_CASE("sabotage: a skipped grant is caught") {
    MeshConfig::Sabotage sabotage;
    sabotage.skip_grant = true;
    CHECK(oracle_fails(sabotage, 0));
}

}  // namespace nexar::link::test
