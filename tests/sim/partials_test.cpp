// Deterministic reductions and f32 partials over production engines and meshes: bits, on every placement and
// chunk size, and bytes between hosts (docs/protocol/partials.md).
#include "reduce/partials.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "program.hpp"
#include "reduce/kernels.hpp"
#include "reduce/reduce.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Bytes = std::vector<std::byte>;

OpDescriptor words(OpKind kind, Dtype dtype, ReduceOp op, uint64_t count, Partials partials,
                   uint32_t root = 0) {
    OpDescriptor out{kind, dtype, op, count, root};
    out.partials = partials;
    return out;
}

void expect_right(Cluster& cluster, Program& program) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    REQUIRE(program.wrong() == "");
    cluster.check();
}

void expect_predicted(const Cluster& cluster, const Program& program, uint32_t hosts) {
    for (uint32_t a = 0; a < hosts; ++a)
        for (uint32_t b = 0; b < hosts; ++b)
            if (a != b && bytes_are_exact())
                REQUIRE(cluster.bytes_sent(a, b) == program.predicted_bytes(a, b));
}

// The tree by its definition: a range of more than one rank is split at the largest power of two below its
// length. Each rank's values are widened, the halves of each range combined one element at a time.
Bytes tree_partial(const OpDescriptor& d, uint64_t salt, uint64_t elements, uint32_t begin, uint32_t end) {
    const Dtype wide = reduce::partial_type(d.dtype);
    if (end - begin == 1) {
        Bytes values = Reference::input(salt, begin, elements, d.dtype);
        if (d.op == ReduceOp::premul_sum) {
            void* const to = values.data();
            const void* const from = values.data();
            const uint64_t scalar = Reference::scalar(begin, d.dtype);
            reduce::premul_sum({&to, 1}, {&from, 1}, {&scalar, 1}, elements, d.dtype);
        }
        Bytes out(elements * reduce::size_of(wide));
        reduce::widen(out.data(), values.data(), elements, d.dtype);
        return out;
    }
    const uint32_t middle = begin + std::bit_floor(end - begin - 1);
    Bytes left = tree_partial(d, salt, elements, begin, middle);
    const Bytes right = tree_partial(d, salt, elements, middle, end);
    const ReduceOp op = d.op == ReduceOp::prod ? ReduceOp::prod : ReduceOp::sum;
    reduce::reduce_into(left.data(), right.data(), elements, wide, op);
    return left;
}

Bytes tree_result(const OpDescriptor& d, uint64_t salt, uint64_t elements, uint32_t ranks) {
    Bytes partial = tree_partial(d, salt, elements, 0, ranks);
    const Dtype wide = reduce::partial_type(d.dtype);
    if (d.op == ReduceOp::avg) reduce::finish_avg(partial.data(), elements, wide, ranks);
    Bytes out(elements * reduce::size_of(d.dtype));
    reduce::narrow(out.data(), partial.data(), elements, d.dtype);
    return out;
}

// A rank's part of the whole result; none: it has no result.
Bytes part_of_rank(const OpDescriptor& d, const Bytes& all, uint32_t size, uint32_t rank) {
    const size_t width = reduce::size_of(d.dtype);
    if (d.kind == OpKind::all_reduce || (d.kind == OpKind::reduce && rank == d.root)) return all;
    if (d.kind == OpKind::reduce) return {};
    const CountsRef counts = Reference::counts(d, size);
    const uint64_t begin = counts ? counts->begin(rank) : rank * d.count;
    const uint64_t count = counts ? counts->of(rank) : d.count;
    return Bytes(all.begin() + ptrdiff_t(begin * width), all.begin() + ptrdiff_t((begin + count) * width));
}

void expect_tree(const Program& program) {
    const uint32_t size = program.group.size();
    for (const Step& step : program.steps) {
        const OpDescriptor& d = step.words;
        const uint64_t elements = d.count * (d.kind == OpKind::reduce_scatter ? size : 1);
        const Bytes all = tree_result(d, step.salt, elements, size);
        for (uint32_t rank = 0; rank < size; ++rank) {
            const Bytes want = part_of_rank(d, all, size, rank);
            if (d.kind == OpKind::reduce && want.empty()) continue;
            CAPTURE(d.text(), rank);
            REQUIRE((step.calls[rank]->out_at_end == want));
        }
    }
}

// Of 7 ranks on up to 5 nodes: blocked, cyclic, uneven, and by chance.
std::vector<std::vector<uint32_t>> placements() {
    std::vector<std::vector<uint32_t>> out{
        {0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0},
        {0, 1, 2, 0, 1, 2, 0}, {0, 1, 2, 3, 0, 1, 2}, {0, 1, 2, 3, 4, 0, 1}, {0, 0, 1, 1, 2, 2, 3},
        {4, 3, 2, 1, 0, 4, 3}, {0, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 0}, {0, 0, 1, 0, 0, 0, 2}};
    Random random(4);
    while (out.size() < 21) {
        out.emplace_back();
        for (int rank = 0; rank < 7; ++rank) out.back().push_back(static_cast<uint32_t>(random.below(5)));
    }
    return out;
}

constexpr OpKind reducing[] = {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter,
                               OpKind::reduce_scatterv};

void add_reductions(Program& program, Dtype dtype, ReduceOp op, uint64_t count, Partials partials) {
    for (const OpKind kind : reducing)
        for (const bool in_place : {false, true})
            program.add(words(kind, dtype, op, count, partials, 3), in_place);
}

// Of a step's results, in the order of ranks.
uint64_t hash_of(const Step& step) {
    uint64_t hash = 0xcbf29ce484222325;
    for (uint32_t rank = 0; rank < step.calls.size(); ++rank) {
        if (step.words.kind == OpKind::reduce && rank != step.words.root) continue;
        for (const std::byte byte : step.calls[rank]->out_at_end)
            hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
    }
    return hash;
}

// Of all results, in the order of calls and ranks.
std::vector<uint64_t> hashes_of(const Program& program) {
    std::vector<uint64_t> out;
    for (const Step& step : program.steps) out.push_back(hash_of(step));
    return out;
}

// With every set of instructions, on every placement, in chunks of every size.
void everywhere(const std::function<void(const std::vector<uint32_t>& placement, uint32_t chunk)>& run) {
    for (const reduce::Kernels* kernels : reduce::usable_kernels())
        for (const std::vector<uint32_t>& placement : placements())
            for (const uint32_t chunk : {64u, 192u, 4096u}) {
                CAPTURE(kernels->target, placement, chunk);
                reduce::choose_kernels_for_test(kernels);
                run(placement, chunk);
            }
    reduce::choose_kernels_for_test(nullptr);
}

ClusterShape shape_with(uint32_t chunk) {
    ClusterShape shape;
    shape.nodes = 5;
    shape.plan = {1, 256, 64, chunk, 4096, 3};
    return shape;
}

std::vector<uint64_t> hashes_of_program(const std::vector<uint32_t>& placement, uint32_t chunk) {
    Cluster cluster(chunk, shape_with(chunk));
    Program program(cluster, cluster.make_group(placement));
    if (chunk == 192) program.stage(2);
    add_reductions(program, Dtype::f32, ReduceOp::sum, 901, Partials::tree);
    add_reductions(program, Dtype::bf16, ReduceOp::avg, 37, Partials::tree);
    add_reductions(program, Dtype::f64, ReduceOp::prod, 5, Partials::tree);

    program.start(20us, 3);

    expect_right(cluster, program);
    expect_tree(program);
    expect_predicted(cluster, program, 5);
    return hashes_of(program);
}

}  // namespace

TEST_CASE(
    "deterministic reductions are the tree over the ranks on every placement and chunk size, with every set "
    "of "
    "instructions, and bytes [Z1][Z5]") {
    std::set<std::vector<uint64_t>> hashes;  // one: the same bits everywhere
    everywhere([&](const std::vector<uint32_t>& placement, uint32_t chunk) {
        hashes.insert(hashes_of_program(placement, chunk));
    });
    REQUIRE(hashes.size() == 1);
}

// An all_reduce of each type with each reduction that it has, and where the order matters one more kind.
TEST_CASE(
    "in deterministic groups every type and reduction has the same bits on every placement and chunk size, "
    "with every set of instructions [Z1]") {
    std::vector<OpDescriptor> all;
    const auto add = [&](OpKind kind, Dtype dtype, ReduceOp op) {
        const Partials partials =
            partials_of(row_of(kind), uint64_t(dtype), uint64_t(op), flag_deterministic);
        // More bytes than small operations have, which are 256 here, in several chunks but of the largest
        // size.
        all.push_back(words(kind, dtype, op, 600 / reduce::size_of(dtype) + 1, partials, 3));
    };
    size_t pairs = 0, in_order = 0;
    for (int d = 0; d < reduce::dtype_count; ++d)
        for (int o = 0; o < reduce::reduce_op_count; ++o) {
            if (!Reference::may(OpKind::all_reduce, Dtype(d), ReduceOp(o))) continue;
            add(OpKind::all_reduce, Dtype(d), ReduceOp(o));
            ++pairs;
            if (all.back().partials == Partials::tree)
                add(reducing[1 + ++in_order % 3], Dtype(d), ReduceOp(o));
        }
    REQUIRE(in_order == 24);
    REQUIRE(pairs >= 148);
    std::vector<uint64_t> first;
    everywhere([&](const std::vector<uint32_t>& placement, uint32_t chunk) {
        Cluster cluster(chunk, shape_with(chunk));
        Program program(cluster, cluster.make_group(placement));
        for (const OpDescriptor& each : all) program.add(each, program.steps.size() % 4 < 2);

        program.start(20us, 3);

        REQUIRE(cluster.run());
        cluster.check();
        const std::vector<uint64_t> hashes = hashes_of(program);
        if (first.empty()) {  // then so are all that have the same bits
            REQUIRE(program.wrong() == "");
            first = hashes;
        }
        for (size_t i = 0; i < all.size(); ++i) {
            CAPTURE(all[i].text());
            REQUIRE(hashes[i] == first[i]);
        }
    });
}

TEST_CASE("deterministic reductions of every float and reduction, with every set of instructions [Z1]") {
    for (const reduce::Kernels* kernels : reduce::usable_kernels()) {
        reduce::choose_kernels_for_test(kernels);
        for (const Dtype dtype :
             {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::f8e4m3fn, Dtype::f8e5m2})
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::avg, ReduceOp::premul_sum}) {
                CAPTURE(kernels->target, int(dtype), int(op));
                ClusterShape shape;
                shape.nodes = 3;
                shape.plan = {1, 256, 64, 128, 4096, 3};
                Cluster cluster(9, shape);
                Program program(cluster, cluster.make_group({0, 1, 1, 2, 0, 0}));
                add_reductions(program, dtype, op, 0, Partials::tree);
                add_reductions(program, dtype, op, 1, Partials::tree);
                add_reductions(program, dtype, op, 1300, Partials::tree);

                program.start(20us);

                expect_right(cluster, program);
                expect_tree(program);
            }
    }
    reduce::choose_kernels_for_test(nullptr);
}

TEST_CASE("f32 partials: values, the same bits on all ranks, and bytes as the plan predicts [Z4]") {
    const std::vector<std::vector<uint32_t>> some{{0, 1}, {0, 1, 2, 0, 1}, {2, 0, 0, 1, 3, 4, 4}};
    std::vector<wire::PlanTableRecord> plans{{1, 256, 64, 128, 4096, 3}};
    for (uint8_t family = 1; family < collectives::families; ++family)
        plans.push_back({3, 256, 64, 128, 4096, 3, 0, 1, 1, 1, 1, 1, 1, 0, 0, family});
    for (const std::vector<uint32_t>& placement : some)
        for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3fn})
            for (const uint64_t count : {0u, 1u, 30u, 100u, 3001u})
                for (const wire::PlanTableRecord& plan : plans) {
                    CAPTURE(placement, int(dtype), count, plan.version, int{plan.family});
                    ClusterShape shape;
                    shape.nodes = 5;
                    shape.plan = plan;
                    Cluster cluster(count, shape);
                    Program program(cluster, cluster.make_group(placement));
                    if (count == 100) program.stage(2);
                    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum})
                        for (const OpKind kind : reducing)
                            program.add(words(kind, dtype, op, count, Partials::wide, 1), count % 2 == 0);

                    program.start(20us, 3);

                    expect_right(cluster, program);
                    expect_predicted(cluster, program, 5);
                }
}

TEST_CASE("f32 partials of bf16 are twice the bytes between hosts") {
    const std::vector<uint32_t> nodes{0, 1, 2, 0, 1, 2};
    const collectives::Layout layout(nodes);
    const collectives::PlanTable table;
    for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter})
        for (const uint64_t count : {100u, 1'000'000u}) {
            collectives::Shape shape{kind, count, 2, 1};
            const auto bytes = [&](Partials partials) {
                shape.partials = partials;
                uint64_t sum = 0;
                for (const uint64_t each :
                     collectives::predict_bytes(collectives::plan(shape, layout, table), shape, layout))
                    sum += each;
                return sum;
            };
            CHECK(bytes(Partials::wide) == 2 * bytes(Partials::native));
        }
}

namespace {

// Values of all magnitudes and both signs, so that sums cancel.
Bytes adversarial(Random& random, Dtype dtype, uint64_t count) {
    std::vector<float> values;
    for (uint64_t i = 0; i < count; ++i) {
        const int exponent = static_cast<int>(random.below(12)) - 6;
        const float sign = random.one_in(2) ? -1.0f : 1.0f;
        values.push_back(sign * std::ldexp(1.0f + static_cast<float>(random.below(8)) / 8, exponent));
    }
    Bytes out(count * reduce::size_of(dtype));
    reduce::narrow(out.data(), values.data(), count, dtype);
    return out;
}

double value_at(const Bytes& bytes, uint64_t i, Dtype dtype) {
    return Reference::as_double(Reference::load(bytes.data() + i * reduce::size_of(dtype), dtype), dtype);
}

// docs/types.md: half the distance from 1 to the next number.
double roundoff(Dtype dtype) {
    return Reference::epsilon(dtype) / 2;
}

}  // namespace

TEST_CASE("sums with f32 partials and deterministic ones are within their bounds, whatever cancels [Z4]") {
    constexpr uint64_t count = 500;
    for (const Partials partials : {Partials::wide, Partials::tree})
        for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3fn, Dtype::f8e5m2})
            for (const uint64_t seed : seeds(5)) {
                CAPTURE(int(partials), int(dtype), seed);
                ClusterShape shape;
                shape.nodes = 5;
                Cluster cluster(seed, shape);
                Random random(seed);
                const SimGroup group = cluster.make_group({0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0});
                std::vector<Bytes> inputs;
                std::vector<Call*> calls;
                for (uint32_t rank = 0; rank < group.size(); ++rank) {
                    inputs.push_back(adversarial(random, dtype, count));
                    calls.push_back(&cluster.submit(
                        group, rank,
                        request_of(words(OpKind::all_reduce, dtype, ReduceOp::sum, count, partials)),
                        inputs.back(), inputs.back().size()));
                }

                REQUIRE(cluster.run());

                const double depth = partials == Partials::tree ? 4 : group.size() - 1;
                const double bound = std::pow(1 + std::ldexp(1.0, -24), depth) * (1 + roundoff(dtype)) - 1;
                for (uint64_t i = 0; i < count; ++i) {
                    double sum = 0, magnitude = 0;  // exact: few bits, near each other
                    for (const Bytes& input : inputs) {
                        sum += value_at(input, i, dtype);
                        magnitude += std::fabs(value_at(input, i, dtype));
                    }
                    const double got = value_at(calls[0]->out_at_end, i, dtype);
                    const double subnormal = dtype == Dtype::f8e4m3fn ? std::ldexp(1.0, -10) : 0;
                    REQUIRE(std::fabs(got - sum) <= bound * magnitude + subnormal);
                }
                for (const Call* call : calls) REQUIRE(call->out_at_end == calls[0]->out_at_end);
            }
}

TEST_CASE("ones that each host would round away count with either flag [Z4]") {
    for (const Partials partials : {Partials::wide, Partials::tree}) {
        ClusterShape shape;
        shape.nodes = 9;
        Cluster cluster(1, shape);
        const SimGroup group = cluster.make_group({0, 1, 2, 3, 4, 5, 6, 7, 8});
        std::vector<Call*> calls;
        for (uint32_t rank = 0; rank < group.size(); ++rank) {
            const std::vector<uint16_t> values(100, rank == 0 ? 0x4380 : 0x3f80);  // 256, 1
            const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
            calls.push_back(&cluster.submit(
                group, rank, request_of(words(OpKind::reduce, Dtype::bf16, ReduceOp::sum, 100, partials, 8)),
                Bytes(bytes, bytes + 200), 200));
        }

        REQUIRE(cluster.run());

        for (uint64_t i = 0; i < 100; ++i) REQUIRE(value_at(calls[8]->out_at_end, i, Dtype::bf16) == 264);
    }
}

TEST_CASE("flags that change nothing are none [Z2]") {
    const auto is = [](OpKind kind, Dtype dtype, ReduceOp op, uint64_t flags) {
        return partials_of(row_of(kind), uint64_t(dtype), uint64_t(op), flags);
    };
    constexpr uint64_t both = flag_deterministic | flag_f32_partials;
    CHECK(is(OpKind::all_reduce, Dtype::bf16, ReduceOp::sum, 0) == Partials::native);
    CHECK(is(OpKind::all_reduce, Dtype::bf16, ReduceOp::sum, both) == Partials::tree);
    CHECK(is(OpKind::all_reduce, Dtype::bf16, ReduceOp::sum, flag_f32_partials) == Partials::wide);
    CHECK(is(OpKind::reduce_scatterv, Dtype::f64, ReduceOp::prod, flag_deterministic) == Partials::tree);
    CHECK(is(OpKind::all_reduce, Dtype::f32, ReduceOp::sum, flag_f32_partials) == Partials::native);
    for (const OpKind kind : collective_kinds)
        for (int d = 0; d < reduce::dtype_count; ++d)
            for (int o = 0; o < reduce::reduce_op_count; ++o) {
                const bool has_order =
                    (Dtype(d) <= Dtype::bf16 || Dtype(d) == Dtype::f8e4m3fn || Dtype(d) == Dtype::f8e5m2) &&
                    (ReduceOp(o) == ReduceOp::sum || ReduceOp(o) == ReduceOp::prod ||
                     ReduceOp(o) == ReduceOp::avg || ReduceOp(o) == ReduceOp::premul_sum);
                const bool reduces = std::ranges::find(reducing, kind) != std::end(reducing);
                CAPTURE(int(kind), d, o);
                REQUIRE((is(kind, Dtype(d), ReduceOp(o), both) != Partials::native) ==
                        (reduces && has_order));
            }
}

TEST_CASE("ranks that ask for different partials get MISMATCH, which names both [Z3]") {
    for (const std::vector<uint32_t>& placement :
         {std::vector<uint32_t>{0, 0}, std::vector<uint32_t>{0, 1}}) {
        Cluster cluster(3, {});
        SimGroup group = cluster.make_group(placement);
        std::vector<Call*> calls;
        for (uint32_t rank = 0; rank < 2; ++rank) {
            const Partials partials = rank == 0 ? Partials::tree : Partials::native;
            calls.push_back(&cluster.submit(
                group, rank, request_of(words(OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 1000, partials)),
                Reference::input(1, rank, 1000, Dtype::f32), 4000));
        }

        REQUIRE(cluster.run());

        for (const Call* call : calls) {
            REQUIRE(call->outcome.error.code == Errc::mismatch);
            CHECK(call->outcome.error.text.find("all_reduce f32 sum count 1000, deterministic") !=
                  std::string::npos);
        }
    }
}

}  // namespace nexar::sim
