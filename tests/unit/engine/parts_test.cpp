// The engine's small parts: descriptors, scratch, jobs done on the spot. What they are for is tested
// in sim/.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <set>
#include <vector>

#include "engine/local_job.hpp"
#include "engine/scratch.hpp"
#include "support/regions.hpp"

namespace nexar::engine {
namespace {

using namespace std::chrono_literals;

link::Extents over(std::vector<float>& v, size_t first, size_t count) {
    return {{nexar::test::place_of(v.data() + first), 4 * count}};
}

}  // namespace

TEST_CASE("the hash of a descriptor changes with every field, and its text says what matters for its kind") {
    const OpDescriptor base{OpKind::reduce, Dtype::f32, ReduceOp::sum, 8, 1};
    std::set<uint64_t> seen{base.hash()};
    std::array<OpDescriptor, 5> others{base, base, base, base, base};
    others[0].kind = OpKind::broadcast;
    others[1].dtype = Dtype::f64;
    others[2].op = ReduceOp::max;
    others[3].count = 9;
    others[4].root = 2;
    for (const OpDescriptor& d : others) REQUIRE(seen.insert(d.hash()).second);

    REQUIRE(base.text() == "reduce f32 sum count 8 root 1");
    REQUIRE(others[0].text() == "broadcast f32 count 8 root 1");
    REQUIRE(OpDescriptor{}.text() == "barrier");
}

TEST_CASE("scratch is used again, and what is kept is bounded") {
    Regions regions;
    ScratchPool pool(regions, 8192);
    std::byte* first = nullptr;
    {
        const auto a = pool.take(4000);
        first = a.place().resolve();
        REQUIRE(pool.in_use() == 4096);
    }
    REQUIRE(pool.kept() == 4096);
    {
        const auto a = pool.take(4096);
        REQUIRE(a.place().resolve() == first);
        const auto b = pool.take(8192);
        const auto c = pool.take(100);
    }
    REQUIRE(pool.in_use() == 0);
    REQUIRE(pool.kept() <= 8192);
}

TEST_CASE("a small job walks extent lists that are cut at different places") {
    std::vector<float> a{1, 2, 3, 4, 5, 6}, b{10, 20, 30, 40, 50, 60}, sum(6), copy(6);
    WorkerJob job;
    job.kind = WorkerJob::Kind::reduce;
    job.dtype = Dtype::f32;
    job.op = ReduceOp::sum;
    job.srcs = {over(a, 0, 6), {over(b, 0, 1)[0], {Place{}, 0}, over(b, 1, 5)[0]}};
    job.dsts = {{over(sum, 0, 4)[0], over(sum, 4, 2)[0]}, over(copy, 0, 6)};

    run_here(job);

    REQUIRE(sum == std::vector<float>{11, 22, 33, 44, 55, 66});
    REQUIRE(copy == sum);
    REQUIRE(total_bytes(job) == 4 * 24);

    WorkerJob divide;
    divide.kind = WorkerJob::Kind::finish_avg;
    divide.dtype = Dtype::f32;
    divide.divisor = 11;
    divide.dsts = {over(sum, 0, 6)};
    run_here(divide);
    REQUIRE(sum == std::vector<float>{1, 2, 3, 4, 5, 6});
}

}  // namespace nexar::engine
