// Pieces of jobs whose extent lists are each cut differently, against the simple reference.
#include <catch2/catch_test_macros.hpp>
#include <deque>

#include "engine/local_job.hpp"
#include "memory.hpp"

using namespace nexar;
using engine::WorkerJob;
using workers::test::Cut;
using workers::test::numbers;
using workers::test::sum;

namespace {

// Runs the job in pieces with bounds at multiples of `element`, in any order.
void run_in_pieces(Random& random, const WorkerJob& job, size_t element) {
    const size_t bytes = engine::bytes_of(job);
    std::vector<std::pair<size_t, size_t>> pieces;
    for (size_t at = 0; at < bytes;) {
        const size_t n = std::min(bytes - at, (1 + random.below(500)) * element);
        pieces.emplace_back(at, at + n);
        at += n;
    }
    while (!pieces.empty()) {
        const auto i = pieces.begin() + static_cast<ptrdiff_t>(random.below(pieces.size()));
        engine::run_piece(job, i->first, i->second);
        pieces.erase(i);
    }
}

template <class T>
void check_sum(uint64_t seed, Dtype dtype) {
    Random random(seed);
    const size_t count = 1 + random.below(3000), sources = 1 + random.below(5), targets = 1 + random.below(3);
    std::deque<Cut> srcs, dsts;
    std::vector<std::vector<std::byte>> inputs;
    WorkerJob job;
    job.kind = WorkerJob::Kind::reduce;
    job.dtype = dtype;
    for (size_t i = 0; i < sources; ++i) {
        inputs.push_back(numbers<T>(count, seed * 10 + i));
        srcs.emplace_back(random, count * sizeof(T), sizeof(T)).set(inputs.back());
        job.srcs.push_back(srcs.back().extents());
    }
    for (size_t i = 0; i < targets; ++i) {
        dsts.emplace_back(random, count * sizeof(T), sizeof(T));
        job.dsts.push_back(dsts.back().extents());
    }
    const bool in_place = random.one_in(3);
    if (in_place) job.dsts.push_back(job.srcs[random.below(sources)]);  // a target may be one of the sources
    run_in_pieces(random, job, sizeof(T));
    const auto expected = sum<T>(inputs);
    for (const Cut& d : dsts) {
        CHECK(d.flat() == expected);
        CHECK(d.canaries_live());
    }
    size_t changed = 0;
    for (size_t i = 0; i < sources; ++i) {
        CHECK(srcs[i].canaries_live());
        changed += srcs[i].flat() != inputs[i];
    }
    CHECK(changed <= (in_place ? 1u : 0u));
}

}  // namespace

TEST_CASE("a sum over lists cut in any way equals the reference", "[workers]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        INFO("seed " << seed);
        check_sum<uint32_t>(seed, Dtype::u32);
        check_sum<uint8_t>(seed, Dtype::u8);
        check_sum<uint64_t>(seed, Dtype::u64);
    }
}

TEST_CASE("a copy reaches every target, and its own source may be one of them", "[workers]") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        INFO("seed " << seed);
        Random random(seed);
        const size_t bytes = 1 + random.below(5000);
        const auto input = numbers<uint8_t>(bytes, seed);
        Cut source(random, bytes, 1), a(random, bytes, 1), b(random, bytes, 1);
        source.set(input);
        WorkerJob job;
        job.srcs = {source.extents()};
        job.dsts = {a.extents(), source.extents(), b.extents()};
        run_in_pieces(random, job, 1);
        CHECK(a.flat() == input);
        CHECK(b.flat() == input);
        CHECK(source.flat() == input);
        CHECK((a.canaries_live() && b.canaries_live() && source.canaries_live()));
    }
}

TEST_CASE("an average is divided once per element, however it is cut", "[workers]") {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        INFO("seed " << seed);
        Random random(seed);
        const size_t count = 1 + random.below(2000);
        Cut target(random, count * 4, 4);
        const auto before = numbers<uint32_t>(count, seed);
        target.set(before);
        WorkerJob job;
        job.kind = WorkerJob::Kind::finish_avg;
        job.dtype = Dtype::u32;
        job.divisor = 3;
        job.dsts = {target.extents()};
        run_in_pieces(random, job, 4);
        auto expected = before;
        for (size_t i = 0; i < count; ++i) {
            uint32_t x;
            std::memcpy(&x, expected.data() + 4 * i, 4);
            x /= 3;
            std::memcpy(expected.data() + 4 * i, &x, 4);
        }
        CHECK(target.flat() == expected);
        CHECK(target.canaries_live());
    }
}

TEST_CASE("a job of nothing does nothing", "[workers]") {
    WorkerJob job;
    CHECK(engine::bytes_of(job) == 0);
    engine::run_piece(job, 0, 0);
    job.dsts = {{}};
    job.srcs = {{}};
    CHECK(engine::bytes_of(job) == 0);
    engine::run_piece(job, 0, 0);
    std::byte some[8] = {};
    const Place at = nexar::test::place_of(some);
    job.dsts = {{{at, 0}, {at, 8}, {at, 0}}};
    CHECK(engine::bytes_of(job) == 8);
}
