// Collectives over production engines and meshes in virtual time: values, bits and bytes.
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "reduce/reduce.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

OpDescriptor words(OpKind kind, Dtype dtype, ReduceOp op, uint64_t count, uint32_t root = 0) {
    return {kind, dtype, op, count, root};
}

// Small limits, so that small tests cross all of them: doubling to 64 bytes, bulk beyond 256, 4 KiB segments.
wire::PlanTableRecord tight_plan() {
    return {2, 256, 64, 128, 4096, 3};
}

void expect_right(Cluster& cluster, Program& program) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    REQUIRE(program.wrong() == "");
    cluster.check();
}

}  // namespace

TEST_CASE("an all_reduce of two ranks on two nodes ends with the sum on both") {
    Cluster cluster(1, {});
    Program program(cluster, cluster.make_group({0, 1}));
    program.add(words(OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 100));

    program.start(10us);

    expect_right(cluster, program);
}

TEST_CASE("every kind, with counts around every limit, over interleaved and uneven placements") {
    const std::vector<std::vector<uint32_t>> placements{
        {0}, {0, 0, 0}, {0, 1}, {0, 1, 0, 1}, {0, 0, 1, 2}, {2, 1, 0, 2, 2, 0}, {0, 1, 2, 3, 4, 0, 1}};
    for (size_t p = 0; p < placements.size(); ++p)
        for (uint64_t count : {0u, 1u, 2u, 7u, 16u, 17u, 63u, 65u, 500u, 3001u}) {
            CAPTURE(p, count);
            ClusterShape shape;
            shape.nodes = 5;
            shape.plan = tight_plan();
            Cluster cluster(100 * p + count, shape);
            Program program(cluster, cluster.make_group(placements[p]));
            const uint32_t root = static_cast<uint32_t>(placements[p].size()) - 1;
            for (OpKind kind : collective_kinds)
                program.add(words(kind, Dtype::i32, ReduceOp::sum, count, root));

            program.start(20us);

            expect_right(cluster, program);
        }
}

TEST_CASE(
    "what the cost model chooses, by any family and class, gives the values and sends what is predicted",
    "[O2]") {
    constexpr uint32_t dear = 1'000'000;
    const std::vector<std::vector<uint32_t>> placements{{0, 1},
                                                        {0, 1, 2},
                                                        {0, 0, 1, 2, 1},
                                                        {2, 1, 0, 3, 2, 0},
                                                        {0, 1, 2, 3, 4, 5, 0},
                                                        {0, 1, 2, 3, 4, 5, 6, 7}};
    for (size_t p = 0; p < placements.size(); ++p)
        for (uint8_t family = 0; family < collectives::families; ++family)
            for (const bool is_bulk : {false, true}) {
                CAPTURE(p, int{family}, is_bulk);
                ClusterShape shape;
                shape.nodes = 8;
                shape.plan = tight_plan();
                shape.plan.version = plan_version_max;
                shape.plan.small_start_ns = is_bulk ? dear : 1;
                shape.plan.bulk_start_ns = is_bulk ? 1 : dear;
                for (uint32_t* each : {&shape.plan.small_ps_per_byte, &shape.plan.bulk_ps_per_byte,
                                       &shape.plan.memory_ps_per_byte, &shape.plan.shared_ps_per_byte})
                    *each = 10;
                shape.plan.family = family;
                Cluster cluster(700 + 10 * p + family, shape);
                Program program(cluster, cluster.make_group(placements[p]));
                for (const uint64_t count : {0u, 1u, 5u, 33u, 64u, 1000u, 2500u})
                    for (OpKind kind : collective_kinds)
                        program.add(words(kind, Dtype::f32, ReduceOp::sum, count, 1));

                program.start(20us);

                expect_right(cluster, program);
                for (uint32_t a = 0; a < 8; ++a)
                    for (uint32_t b = 0; b < 8; ++b)
                        if (a != b && bytes_are_exact())
                            REQUIRE(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
            }
}

TEST_CASE("every dtype and operator gives the reference's values, with the same bits on all ranks") {
    for (int d = 0; d < reduce::dtype_count; ++d)
        for (int o = 0; o < reduce::reduce_op_count; ++o)
            for (uint64_t count : {5u, 300u}) {
                if (Reference::width(Dtype(d)) > 8 || !reduce::may_reduce(Dtype(d), ReduceOp(o))) continue;
                CAPTURE(d, o, count);
                ClusterShape shape;
                shape.nodes = 3;
                shape.plan = tight_plan();
                Cluster cluster(static_cast<uint64_t>(d * 20 + o), shape);
                Program program(cluster, cluster.make_group({0, 1, 1, 2, 0}));
                for (OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter, OpKind::scan,
                                    OpKind::exclusive_scan, OpKind::reduce_scatterv})
                    if (Reference::may(kind, Dtype(d), ReduceOp(o)))
                        program.add(words(kind, Dtype(d), ReduceOp(o), count, 1), true);
                program.add(words(OpKind::reduce_scatterv, Dtype(d), ReduceOp(o), 5 * count));

                program.start(20us);

                expect_right(cluster, program);
            }
}

TEST_CASE(
    "all_to_all brings block r of rank s to rank r: apart, in place and staged, blocks short and long") {
    const std::vector<std::vector<uint32_t>> placements{
        {0, 0, 0}, {0, 1}, {0, 1, 0, 1, 1}, {0, 1, 2, 0}, {3, 0, 2, 1, 3, 0}, {0, 4, 1, 2, 3, 4, 0, 1}};
    for (size_t p = 0; p < placements.size(); ++p)
        for (uint64_t count : {0u, 1u, 3u, 511u, 2000u, 20'001u}) {
            CAPTURE(p, count);
            ClusterShape shape;
            shape.nodes = 5;
            shape.plan.segment_bytes = shape.plan.small_bytes_max = 128 * 1024;
            Cluster cluster(10 * p + count, shape);
            Program program(cluster, cluster.make_group(placements[p]));
            if (count == 2000) program.stage(2);
            for (Dtype dtype : {Dtype::u8, Dtype::f64, Dtype::bf16})
                for (bool in_place : {false, true})
                    program.add(words(OpKind::all_to_all, dtype, ReduceOp::sum, count), in_place);

            program.start(20us, 3);

            expect_right(cluster, program);
            for (uint32_t a = 0; a < 5; ++a)
                for (uint32_t b = 0; b < 5; ++b)
                    if (a != b && bytes_are_exact())
                        REQUIRE(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
        }
}

TEST_CASE("blocks and scans: every root, apart, in place and staged, on placements of all kinds") {
    const std::vector<std::vector<uint32_t>> placements{
        {0},          {0, 0, 0},    {0, 1},       {0, 0, 0, 1, 1, 2},          {0, 1, 2, 0, 1, 2},
        {2, 0, 0, 1}, {3, 0, 2, 1}, {4, 4, 1, 4}, {0, 1, 2, 3, 4, 0, 1, 2, 3}, {1, 3, 1, 0, 0, 4, 2, 2, 1}};
    for (const OpKind kind : {OpKind::all_gather, OpKind::reduce_scatter, OpKind::gather, OpKind::scatter,
                              OpKind::scan, OpKind::exclusive_scan, OpKind::all_gatherv, OpKind::gatherv,
                              OpKind::scatterv, OpKind::reduce_scatterv})
        for (size_t p = 0; p < placements.size(); ++p)
            for (const uint64_t count : {0u, 1u, 5u, 33u, 900u}) {
                CAPTURE(int(kind), p, count);
                ClusterShape shape;
                shape.nodes = 5;
                shape.plan = tight_plan();
                Cluster cluster(10 * p + count, shape);
                Program program(cluster, cluster.make_group(placements[p]));
                if (count == 33) program.stage(2);
                const uint64_t all = has_counts(row_of(kind)) ? count * placements[p].size() : count;
                for (uint32_t root = 0; root < (row_of(kind).rooted ? placements[p].size() : 1); ++root)
                    for (const bool in_place : {false, true})
                        program.add(words(kind, Dtype::i16, ReduceOp::sum, all, root), in_place);

                program.start(20us, 3);

                expect_right(cluster, program);
                for (uint32_t a = 0; a < 5; ++a)
                    for (uint32_t b = 0; b < 5; ++b)
                        if (a != b && bytes_are_exact())
                            REQUIRE(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
            }
}

namespace {

// The ranks up to `ranks` one after the other, each rounded to the type: what nexar_scan promises. Of no
// ranks: the operator's identity.
std::vector<std::byte> scan_of(uint64_t salt, uint32_t ranks, const OpDescriptor& d) {
    std::vector<std::byte> sofar;
    const uint64_t identity = Reference::identity(d.dtype, d.op);
    const auto* bytes = reinterpret_cast<const std::byte*>(&identity);
    for (uint64_t i = 0; i < d.count && ranks == 0; ++i)
        sofar.insert(sofar.end(), bytes, bytes + Reference::width(d.dtype));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::vector<std::byte> in = Reference::input(salt, rank, d.count, d.dtype);
        void* const to = in.data();
        const void* const from = in.data();
        const uint64_t scalar = Reference::scalar(rank, d.dtype);
        if (d.op == ReduceOp::premul_sum)
            reduce::premul_sum({&to, 1}, {&from, 1}, {&scalar, 1}, d.count, d.dtype);
        else if (rank == 0 && reduce::is_logical(d.dtype, d.op))
            reduce::reduce_many(to, {&from, 1}, d.count, d.dtype, d.op);
        if (rank == 0)
            sofar = std::move(in);
        else
            reduce::reduce_into(sofar.data(), from, d.count, d.dtype, d.op);
    }
    if (d.op == ReduceOp::avg && ranks > 0) reduce::finish_avg(sofar.data(), d.count, d.dtype, ranks);
    return sofar;
}

}  // namespace

TEST_CASE("a scan takes the ranks in order, to the bit: every type, on every placement, by both algorithms",
          "[Z2]") {
    const std::vector<std::vector<uint32_t>> placements{
        {0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}, {2, 0, 0, 1, 0, 2}};
    for (int d = 0; d < reduce::dtype_count; ++d)
        for (int o = 0; o < reduce::reduce_op_count; ++o)
            for (size_t p = 0; p < placements.size(); ++p)
                for (const bool chain : {false, true}) {
                    if (Reference::width(Dtype(d)) > 8 || !reduce::may_reduce(Dtype(d), ReduceOp(o)))
                        continue;
                    CAPTURE(d, o, p, chain);
                    ClusterShape shape;
                    shape.nodes = 3;
                    shape.plan = tight_plan();
                    if (!chain) shape.plan.small_bytes_max = 4096;
                    Cluster cluster(p + 1, shape);
                    Program program(cluster, cluster.make_group(placements[p]));
                    for (const OpKind kind : {OpKind::scan, OpKind::exclusive_scan})
                        for (const bool in_place : {false, true})
                            if (Reference::may(kind, Dtype(d), ReduceOp(o)))
                                program.add(
                                    words(kind, Dtype(d), ReduceOp(o), 400 / Reference::width(Dtype(d))),
                                    in_place);

                    program.start(20us);

                    expect_right(cluster, program);
                    for (const Step& step : program.steps)
                        for (uint32_t rank = 0; rank < step.calls.size(); ++rank) {
                            const uint32_t ranks = rank + (step.words.kind == OpKind::scan ? 1 : 0);
                            REQUIRE(step.calls[rank]->out_at_end == scan_of(step.salt, ranks, step.words));
                        }
                }
}

TEST_CASE("the bytes between every two nodes are those that the plan predicts, whatever the placement") {
    for (const std::vector<uint32_t>& placement :
         {std::vector<uint32_t>{0, 1, 2, 3}, {0, 1, 0, 1, 2, 2, 3}, {3, 0, 3, 1, 3, 2}})
        for (OpKind kind : collective_kinds)
            for (uint64_t count : {3u, 40u, 10007u}) {
                CAPTURE(int(kind), count, placement.size());
                ClusterShape shape;
                shape.nodes = 4;
                shape.plan = tight_plan();
                Cluster cluster(count, shape);
                Program program(cluster, cluster.make_group(placement));
                program.add(words(kind, Dtype::f32, ReduceOp::max, count, 2));

                program.start(20us);

                expect_right(cluster, program);
                for (uint32_t a = 0; a < 4; ++a)
                    for (uint32_t b = 0; b < 4; ++b)
                        if (a != b && bytes_are_exact())
                            REQUIRE(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
            }
}

TEST_CASE("many collectives in flight end right, in any order") {
    ClusterShape shape;
    shape.nodes = 3;
    shape.plan = tight_plan();
    Cluster cluster(7, shape);
    Program program(cluster, cluster.make_group({0, 1, 2, 0, 1, 2}));
    for (uint64_t i = 0; i < 60; ++i)
        program.add(words(collective_kinds[i % collective_kinds.size()], Dtype::i64, ReduceOp::sum,
                          (i * 37) % 900, static_cast<uint32_t>(i % 6)));

    program.start(5us, 40);

    expect_right(cluster, program);
}

TEST_CASE("two groups over the same nodes whose ranks post in opposite orders do not wait for one another") {
    Cluster cluster(3, {});
    Program one(cluster, cluster.make_group({0, 1}));
    Program two(cluster, cluster.make_group({0, 1}));
    for (Program* program : {&one, &two})
        program->add(words(OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100'000));

    // Node 0 posts group one first and group two only when that has ended; node 1 the other way round, and
    // yet both are in flight at the same time: the engine may not have an order between groups.
    one.post(0, 0);
    two.post(0, 1);
    cluster.run_for(1ms);
    two.post(0, 0);
    one.post(0, 1);

    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    REQUIRE(one.wrong() == "");
    REQUIRE(two.wrong() == "");
    cluster.check();
}

TEST_CASE("a rank that never posts delays only its own group") {
    Cluster cluster(4, {});
    const SimGroup stuck = cluster.make_group({0, 1});
    Program idle(cluster, stuck);
    for (int i = 0; i < 30; ++i) idle.add(words(OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100'000));
    for (size_t i = 0; i < 30; ++i) idle.post(i, 0);  // rank 1 posts nothing
    Program program(cluster, cluster.make_group({0, 1}));
    for (int i = 0; i < 20; ++i) program.add(words(OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 50'000));

    program.start(5us);
    cluster.run_for(100ms);

    REQUIRE(program.wrong() == "");
    for (Call* call : idle.steps[0].calls)
        if (call != nullptr) REQUIRE_FALSE(call->ended);
}

TEST_CASE("channels that break in the middle lose nothing and apply nothing twice") {
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 3;
        shape.plan = tight_plan();
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1, 2, 1}));
        for (int i = 0; i < 12; ++i)
            program.add(
                words(i % 2 ? OpKind::all_reduce : OpKind::reduce_scatter, Dtype::i32, ReduceOp::sum, 2000));
        program.start(5us, 4);
        for (int i = 0; i < 4; ++i)
            cluster.clock.after(cluster.clock.some(800us), [&cluster, i] {
                const uint32_t a = static_cast<uint32_t>(i % 3);
                cluster.break_channel(a, (a + 1) % 3, cluster.clock.some(300us));
            });

        expect_right(cluster, program);
    }
}

}  // namespace nexar::sim
