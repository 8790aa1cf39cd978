// A whole ring all-reduce by forwarding chunks: every step of it is posted before a byte moves.
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

namespace {

// What node `self` does with segment `s`: it combines what comes (once around), then copies the result
// (again). Hop h carries the segment from node s + h to node s + h + 1.
void post_segment(Batch& b, size_t nodes, size_t self, size_t s, const Memory& segment,
                  uint32_t chunk_bytes) {
    const size_t prev = (self + nodes - 1) % nodes, next = (self + 1) % nodes;
    const size_t d = (self + nodes - s) % nodes;
    const auto hop = [&](size_t h) { return key(1, 1, static_cast<uint32_t>(s * 2 * nodes + h)); };
    const auto send = [&](size_t h, bool ready) {
        b.sends.push_back(send_spec(hop(h), next, segment, chunk_bytes));
        b.sends.back().ready = ready;
        return b.sends.size() - 1;
    };
    if (d == 0) {
        send(0, true);
    } else {
        b.recvs.push_back(recv_spec(hop(d - 1), prev, segment, chunk_bytes, Class::bulk, true));
        b.recvs.back().forward = send(d, false);
    }
    if (d == nodes - 1) return;  // it combined last, so it has the result
    b.recvs.push_back(recv_spec(hop(nodes - 1 + d), prev, segment, chunk_bytes));
    if (d < nodes - 2) b.recvs.back().forward = send(nodes + d, false);
}

// Empty, or what went wrong.
std::string ring(size_t nodes, size_t segment_bytes, uint64_t seed, size_t breaks) {
    Random random(seed);
    Net net(nodes, seed);
    net.set_capacity(20'000);
    std::vector<std::vector<std::unique_ptr<Memory>>> memory(nodes);
    std::vector<std::vector<std::byte>> expected(nodes);
    std::vector<size_t> transfers(nodes);
    for (size_t node = 0; node < nodes; ++node)
        for (size_t s = 0; s < nodes; ++s) {
            memory[node].push_back(std::make_unique<Memory>(random, segment_bytes));
            const auto mine = pattern(segment_bytes, 100 * node + s);
            memory[node][s]->set(mine);
            expected[s] = node == 0 ? mine : sum_u32(expected[s], mine);
        }
    for (size_t node = 0; node < nodes; ++node) {
        Batch b;
        b.first_handle = 1;
        for (size_t s = 0; s < nodes; ++s) post_segment(b, nodes, node, s, *memory[node][s], 1024);
        transfers[node] = b.recvs.size() + b.sends.size();
        net[node].post(std::move(b));
        for (size_t i = random.below(20); i > 0; --i) net.step();
    }
    for (size_t i = 0; i < breaks; ++i) {
        for (size_t n = random.below(400); n > 0; --n) net.step();
        const size_t a = random.below(nodes);
        net.connect(a, (a + 1) % nodes);
    }
    if (!net.run()) return "did not come to rest";
    for (size_t node = 0; node < nodes; ++node) {
        for (uint64_t h = 1; h <= transfers[node]; ++h)
            if (!net.done(node, h)) return "node " + std::to_string(node) + ": transfer " + std::to_string(h);
        for (size_t s = 0; s < nodes; ++s)
            if (memory[node][s]->flat() != expected[s] || !memory[node][s]->canaries_live())
                return "node " + std::to_string(node) + ": segment " + std::to_string(s) + " is wrong";
    }
    if (net[0].stats(peer(1)).bytes_sent != 2 * (nodes - 1) * segment_bytes && breaks == 0)
        return "bytes sent";
    return net.garbage.empty() ? "" : net.garbage.front();
}

}  // namespace

TEST_CASE("a ring all-reduce of forwarded chunks gives every node the sum") {
    for (size_t nodes = 3; nodes <= 5; ++nodes)
        for (uint64_t seed = 1; seed <= 5; ++seed) {
            INFO("nodes " << nodes << " seed " << seed);
            CHECK(ring(nodes, 4 * 5003, seed, 0) == "");
        }
}

TEST_CASE("a ring all-reduce of forwarded chunks survives channels that break") {
    for (size_t nodes = 3; nodes <= 5; ++nodes)
        for (uint64_t seed = 1; seed <= 30; ++seed) {
            INFO("nodes " << nodes << " seed " << seed);
            CHECK(ring(nodes, 4 * 3001, seed, 8) == "");
        }
}

}  // namespace nexar::link::test
