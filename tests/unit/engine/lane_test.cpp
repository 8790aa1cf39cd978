// MeshLane: what a segment's verbs state about their operation to the mesh.
#include "engine/lane.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "collectives/algorithms.hpp"
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

    // Of a job of this kind, whose lists are one of each, of so many bytes together.
    bool is_handed_over(WorkerJob::Kind kind, Dtype dtype, size_t moved) {
        const bool is_one = kind == WorkerJob::Kind::finish_avg;
        const size_t bytes = is_one ? moved : moved / 3;
        std::byte* at = memory.data();
        WorkerJob job;
        job.kind = kind;
        job.dtype = dtype;
        job.divisor = 3;
        job.dsts.push_back({{nexar::test::place_of(at), bytes}});
        for (int i = 0; i < (is_one ? 0 : 2); ++i)
            job.srcs.push_back({{nexar::test::place_of(at += bytes), bytes}});
        if (kind == WorkerJob::Kind::premul_sum) job.scalars = {1, 1};
        const int before = workers.jobs;
        lane.job(std::move(job));
        return workers.jobs > before;
    }

    NoPorts ports;
    Posted mesh;
    Handed workers;
    Context context{EngineConfig{}, EnginePorts{ports, workers, ports, {&mesh}, ports.log}, 7};
    OpOnNode op;
    MeshLane lane{context, op, 0, 0};
    std::vector<std::byte> memory = std::vector<std::byte>(2 * inline_step_bytes_max);
};

}  // namespace

TEST_CASE("a job of a small collective runs at once; workers have the longer ones", "[N12]") {
    Copies copies;
    CHECK_FALSE(copies.is_handed_over(inline_step_bytes_max));
    CHECK(copies.is_handed_over(inline_step_bytes_max + 2));
}

// By type and kind of job they take up to 100 times as long for the same bytes.
TEST_CASE("what takes long for its bytes is the workers' from fewer bytes on", "[N12]") {
    using Kind = WorkerJob::Kind;
    constexpr size_t quick = inline_step_bytes_max / 48 * 48, usual = inline_job_bytes_max / 48 * 48,
                     slow = inline_slow_bytes_max / 48 * 48;
    const struct {
        Kind kind;
        Dtype dtype;
        size_t most;
    } rows[] = {{Kind::reduce, Dtype::f32, quick},      {Kind::reduce, Dtype::i64, quick},
                {Kind::reduce, Dtype::f8e4m3fn, usual}, {Kind::reduce, Dtype::i8, usual},
                {Kind::finish_avg, Dtype::f32, usual},  {Kind::finish_avg, Dtype::f8e4m3fn, slow},
                {Kind::finish_avg, Dtype::i8, slow},    {Kind::finish_avg, Dtype::i64, slow},
                {Kind::premul_sum, Dtype::f32, usual},  {Kind::premul_sum, Dtype::f8e4m3fn, slow}};
    for (const auto& row : rows) {
        Copies copies;
        CAPTURE(int(row.kind), reduce::name_of(row.dtype), row.most);
        CHECK_FALSE(copies.is_handed_over(row.kind, row.dtype, row.most));
        CHECK(copies.is_handed_over(row.kind, row.dtype, row.most + 48));
    }
}

TEST_CASE("in a turn of the loop jobs of collectives run at once up to a limit, and again in the next one",
          "[N12]") {
    Copies copies;
    for (const Time turn : {Time{Duration{1000}}, Time{Duration{2000}}}) {
        copies.context.now = turn;
        CHECK_FALSE(copies.is_handed_over(inline_step_bytes_max / 2));
        CHECK_FALSE(copies.is_handed_over(inline_step_bytes_max / 2));
        CHECK(copies.is_handed_over(inline_job_bytes_max + 2));
        CHECK_FALSE(copies.is_handed_over(inline_job_bytes_max));  // handing it over would take as long
    }
    // As soon as another group's come, half as much.
    copies.context.now = Time{Duration{3000}};
    CHECK_FALSE(copies.is_handed_over(inline_turn_bytes_max));
    copies.op.origin.group = 2;
    CHECK(copies.is_handed_over(inline_job_bytes_max + 2));
    copies.op.origin.group = 0;
    CHECK(copies.is_handed_over(inline_job_bytes_max + 2));
    CHECK_FALSE(copies.is_handed_over(inline_job_bytes_max));
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

TEST_CASE("a ring's transfers are one batch that is awaited together; what is posted later is not", "[T7]") {
    namespace coll = collectives;
    std::vector<std::byte> bytes(64);
    const Place first = nexar::test::place_of(bytes.data());
    const link::Extents half{{first, 32}}, other_half{{first + 32, 32}};
    const coll::Arithmetic sums{Dtype::u32, ReduceOp::sum};
    const auto ring = [&](int kind, coll::Lane& lane) {
        Vector<coll::Extents> blocks{half, other_half};
        if (kind == 0) return coll::ring_all_reduce(lane, std::move(blocks), sums);
        if (kind == 1) return coll::ring_reduce_scatter(lane, std::move(blocks), sums);
        return coll::ring_all_gather(lane, std::move(blocks));
    };
    for (const int kind : {0, 1, 2}) {
        CAPTURE(kind);
        NoPorts ports;
        Posted mesh;
        Context context(EngineConfig{}, EnginePorts{ports, ports, ports, {&mesh}, ports.log}, 7);
        const std::vector<link::PeerIndex> peers{link::PeerIndex(0), link::PeerIndex(1)};
        OpOnNode op;
        op.peers = peers;
        op.self = coll::NodeIndex(0);
        op.chunk_bytes = 1024;
        MeshLane lane(context, op, 0, 0);
        lane.await_together();  // of nothing
        Task<> task = ring(kind, lane);
        task.start(context.executor);
        lane.flush();
        REQUIRE(mesh.batches.size() == 1);
        const link::Batch& batch = mesh.batches[0];
        CHECK(batch.awaited_together);
        const size_t transfers = batch.recvs.size() + batch.sends.size();
        CHECK(transfers == (kind == 0 ? 4 : 2));
        for (size_t i = 0; i < transfers; ++i) {
            CHECK_FALSE(task.ended());
            CHECK(context.complete(batch.first_handle + i, {}));
            context.executor.run_ready();
        }
        REQUIRE(task.ended());
        CHECK(task.take_result());
        lane.await_together();  // of nothing, again
        lane.send(coll::NodeIndex(1), 9, half);
        lane.flush();
        REQUIRE(mesh.batches.size() == 2);
        CHECK_FALSE(mesh.batches[1].awaited_together);
        CHECK(context.complete(mesh.batches[1].first_handle, {}));
    }
}

}  // namespace nexar::engine
