// The hot paths of an operation, one after the other and as often as NEXAR_ROUNDS says: count.py holds each
// to a number of instructions.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../engine/start_nodes.hpp"
#include "../tcp/pair.hpp"
#include "engine/known_operation.hpp"
#include "support/mesh_pair.hpp"
#include "support/regions.hpp"

namespace nexar {
namespace {

using engine::OpKind;
using engine::OpRequest;
using engine::StartNodes;

uint64_t rounds() {
    const char* const given = std::getenv("NEXAR_ROUNDS");
    return given == nullptr ? 20 : std::strtoull(given, nullptr, 10);
}

// A rank on each of two nodes, and what they submit of one number.
struct TwoRanks {
    StartNodes nodes{{0, 1}, engine::EngineConfig::default_plan()};
    uint64_t in[2] = {3, 4}, out[2] = {};
    Regions regions;

    OpRequest request(OpKind kind, uint32_t rank) {
        OpRequest made;
        made.session = StartNodes::session(rank);
        made.group = nodes.group;
        made.rank = rank;
        made.descriptor = {kind, Dtype::u64, ReduceOp::sum, 1, 0};
        made.peer = 1 - rank;
        made.known = std::make_shared<engine::KnownOperation>();
        if (kind != OpKind::recv) made.in = memory(in[rank]);
        if (kind != OpKind::send) made.out = memory(out[rank]);
        return made;
    }
    MemoryRef memory(uint64_t& word) {
        return {regions.add(RegionKind::memfd, {}, nexar::test::memory_of_test(&word, sizeof word)), 0,
                sizeof word};
    }
    void submit(uint32_t rank, OpRequest& given) {
        if (!nodes.submit(rank, given)) FAIL("refused");
    }
    void settle() {
        nodes.settle();
        nodes.pass(Duration{1000});
    }
    // So many rounds of a send and its receive, whose turn to be first changes.
    void exchange(uint64_t tag, uint64_t times) {
        OpRequest send = request(OpKind::send, 0), receive = request(OpKind::recv, 1);
        send.tag = receive.tag = tag;
        for (uint64_t round = 0; round < times; ++round) {
            submit(round % 2 == 0 ? 0 : 1, round % 2 == 0 ? send : receive);
            submit(round % 2 == 0 ? 1 : 0, round % 2 == 0 ? receive : send);
            settle();
        }
    }
};

}  // namespace

TEST_CASE("all_reduce of 8 bytes", "[path]") {
    TwoRanks two;
    OpRequest requests[] = {two.request(OpKind::all_reduce, 0), two.request(OpKind::all_reduce, 1)};
    for (uint64_t round = 0; round < rounds(); ++round) {
        for (uint32_t rank = 0; rank < 2; ++rank) two.submit(rank, requests[rank]);
        two.settle();
    }
    CHECK(two.nodes.succeeded == 2 * rounds());
    CHECK((two.out[0] == 7 && two.out[1] == 7));
}

TEST_CASE("message of 8 bytes", "[path]") {
    TwoRanks two;
    two.exchange(5, rounds());
    CHECK(two.nodes.succeeded == 2 * rounds());
    CHECK(two.out[1] == 3);
}

TEST_CASE("message beside 500 receives", "[path]") {
    TwoRanks two;
    OpRequest other = two.request(OpKind::recv, 1);
    for (other.tag = 1000; other.tag < 1500; ++other.tag) two.submit(1, other);
    two.settle();
    two.exchange(5, rounds());
    CHECK(two.nodes.succeeded == 2 * rounds());
    CHECK(two.out[1] == 3);
}

TEST_CASE("transfer of 8 bytes", "[path]") {
    std::vector<std::byte> from(8, std::byte{9}), to(8);
    const Region source = link::region_of(from), target = link::region_of(to);
    link::MeshPair pair;
    for (uint64_t round = 0; round < rounds(); ++round)
        link::transfer(pair, round, source, target, from.size(), Class::small, false);
    CHECK(pair.ended == 2 * rounds());
    CHECK(from == to);
}

// So small that no library copies it byte by byte, which valgrind would count.
TEST_CASE("chunk of 1000 bytes", "[path]") {
    std::vector<std::byte> from(1000, std::byte{9}), to(from.size());
    const Region source = link::region_of(from), target = link::region_of(to);
    link::MeshPair pair;
    for (uint64_t round = 0; round < rounds(); ++round)
        link::transfer(pair, round, source, target, from.size(), Class::bulk, false);
    CHECK(pair.ended == 2 * rounds());
    CHECK(from == to);
}

// Without TLS, whose instructions are OpenSSL's.
TEST_CASE("record of 1000 bytes", "[path]") {
    test::TcpPair pair;
    pair.start(tcp::Mode::plain);
    pair.run();
    REQUIRE(pair.open());
    const std::vector<std::byte> sent(1000, std::byte{9});
    const Bytes part(sent);
    std::vector<std::byte>& got = pair.b.got[Class::bulk];
    for (uint64_t round = 0; round < rounds(); ++round) {
        got.clear();
        pair.a.machine->write(Class::bulk, std::span(&part, 1));
        pair.run(1);
    }
    CHECK(got == sent);
    CHECK(pair.open());
}

}  // namespace nexar
