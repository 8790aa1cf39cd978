// MeshLane: what a segment's verbs state about their operation to the mesh.
#include "engine/lane.hpp"

#include <catch2/catch_test_macros.hpp>

#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

struct Posted final : MeshPort {
    void post(link::Batch batch) override { batches.push_back(std::move(batch)); }
    void withdraw(const link::OpKey&) override {}
    void retract(const link::OpKey&) override {}
    void forget_group(const GroupId&) override {}
    std::vector<link::Batch> batches;
};

}  // namespace

TEST_CASE("a collective's transfers are those of the tenant that its jobs count for, and as urgent",
          "[N14][K23]") {
    NoPorts ports;
    Posted mesh;
    Context context(EngineConfig{}, EnginePorts{ports, ports, ports, {&mesh}, ports.log}, 7);
    const std::vector<link::PeerIndex> peers{link::PeerIndex(0), link::PeerIndex(1)};
    OpOnNode op;
    op.peers = peers;
    op.chunk_bytes = 1024;
    op.origin = {.tenant = 42, .session = 3, .group = 4, .priority = Priority::critical};
    std::vector<std::byte> bytes(64);
    const link::Extents memory{{nexar::test::place_of(bytes.data()), bytes.size()}};
    MeshLane lane(context, op, 0, 0);
    const collectives::NodeIndex other(1);
    lane.send(other, 0, memory);
    lane.recv_copy_send(other, other, 1, 2, memory);
    lane.flush();

    REQUIRE(mesh.batches.size() == 1);
    REQUIRE(mesh.batches[0].sends.size() == 2);
    for (const link::SendSpec& send : mesh.batches[0].sends) {
        CHECK(send.account == link::Account(42));
        CHECK(send.priority == Priority::critical);
    }
}

}  // namespace nexar::engine
