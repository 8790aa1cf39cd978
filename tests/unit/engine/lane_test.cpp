// MeshLane: what a segment's verbs state about their operation to the mesh.
#include "engine/lane.hpp"

#include <algorithm>
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

struct Handed final : Workers {
    void submit(WorkerJob) override { ++jobs; }
    int jobs = 0;
};

// A lane whose copies are counted when they are handed over; of that many bytes, read and written.
struct Copies {
    bool is_handed_over(size_t moved) {
        memory.resize(std::max(memory.size(), moved));
        const size_t bytes = moved / 2;
        std::byte* const data = memory.data();
        const int before = workers.jobs;
        lane.copy({{nexar::test::place_of(data + bytes), bytes}}, {{nexar::test::place_of(data), bytes}});
        return workers.jobs > before;
    }

    NoPorts ports;
    Posted mesh;
    Handed workers;
    Context context{EngineConfig{}, EnginePorts{ports, workers, ports, {&mesh}, ports.log}, 7};
    OpOnNode op;
    MeshLane lane{context, op, 0, 0};
    std::vector<std::byte> memory = std::vector<std::byte>(2 * inline_turn_bytes_max);
};

}  // namespace

TEST_CASE("a job of a small collective runs at once; workers have the longer ones", "[N12]") {
    Copies copies;
    CHECK_FALSE(copies.is_handed_over(inline_step_bytes_max));
    CHECK(copies.is_handed_over(inline_step_bytes_max + 2));
}

TEST_CASE("in a turn of the loop jobs of collectives run at once up to a limit, and again in the next one",
          "[N12]") {
    Copies copies;
    for (const Time turn : {Time{Duration{1000}}, Time{Duration{2000}}}) {
        copies.context.now = turn;
        for (size_t moved = 0; moved + inline_step_bytes_max <= inline_turn_bytes_max;
             moved += inline_step_bytes_max)
            CHECK_FALSE(copies.is_handed_over(inline_step_bytes_max));
        CHECK(copies.is_handed_over(inline_step_bytes_max));
        CHECK_FALSE(copies.is_handed_over(inline_job_bytes_max));  // handing it over would take as long
    }
}

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
