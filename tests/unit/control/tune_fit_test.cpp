// nexarctl tune: the fit inverts the formulas of the plan.
#include "nexarctl/tune_fit.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "collectives/tuning.hpp"
#include "core/features.hpp"

using namespace nexarctl;
using nexar::Class;
using nexar::collectives::Algorithm;
using nexar::collectives::CostModel;
using nexar::collectives::terms_of;

namespace {

constexpr uint64_t host_ns = 2'000, begin_ns = 21'000;

Timed timed(Algorithm algorithm, uint32_t nodes, uint64_t bytes, const CostModel& model, Class cls) {
    Timed out;
    out.terms = terms_of(algorithm, {nodes, 1, bytes, 256 << 10, 1});
    out.ns = begin_ns + picoseconds(out.terms, model, cls) / 1000;
    return out;
}

Times times_by(const CostModel& real, uint32_t nodes) {
    using A = Algorithm;
    Times out;
    out.host_ns = host_ns;
    out.memory_ps = real.memory_ps_per_byte;
    out.small_short = timed(A::doubling_all_reduce, nodes, 8, real, Class::small);
    out.small_scatter = timed(A::tree_reduce_scatter, nodes, 8, real, Class::small);
    out.small_steps = timed(A::tree_all_reduce, nodes, 8, real, Class::small);
    out.small_long = timed(A::ring_all_reduce, nodes, 128 << 10, real, Class::small);
    out.bulk_short = timed(A::pairwise_all_to_allv, nodes, 0, real, Class::bulk);
    out.bulk_long = timed(A::ring_all_reduce, nodes, 16 << 20, real, Class::bulk);
    out.shift_bytes = 4 << 20;
    const auto exchange_ns = [&](uint64_t all) {
        return begin_ns + out.shift_bytes * real.bulk.ps_per_byte / 1000 +
               all * real.shared_ps_per_byte / 1000;
    };
    out.pair_ns = exchange_ns(2 * out.shift_bytes);
    out.shift_ns = exchange_ns(nodes * out.shift_bytes);
    return out;
}

bool near(uint32_t a, uint32_t b) {
    return a <= b + b / 50 + 2 && b <= a + a / 50 + 2;
}

}  // namespace

TEST_CASE("the parameters by which operations took their times are found again") {
    for (const uint32_t nodes : {2u, 3u, 4u, 8u}) {
        // Two hosts do not show what they share.
        const CostModel real{{9'000, 1100}, {35'000, 420}, 170, nodes > 2 ? 300u : 1u};
        const CostModel found = fit(times_by(real, nodes), nodes);
        CAPTURE(nodes, text_of(found));
        CHECK(near(found.small.start_ns, real.small.start_ns));
        CHECK(near(found.small.ps_per_byte, real.small.ps_per_byte));
        CHECK(near(found.bulk.start_ns, real.bulk.start_ns));
        CHECK(near(found.bulk.ps_per_byte, real.bulk.ps_per_byte));
        CHECK(near(found.shared_ps_per_byte, real.shared_ps_per_byte));
        CHECK(found.memory_ps_per_byte == 170);
    }
}

TEST_CASE("a start is no less than an eighth of a short operation's, and no more than all of it") {
    Times times = times_by({{9'000, 1100}, {35'000, 420}, 170, 1}, 2);
    const uint64_t whole = times.small_short.ns - host_ns;
    times.small_steps.ns = times.small_scatter.ns - 1000;  // a disturbance
    CHECK(fit(times, 2).small.start_ns == whole / 8);
    times.small_steps.ns = times.small_scatter.ns + 10 * whole;
    CHECK(fit(times, 2).small.start_ns == whole);
}

TEST_CASE("times that make no sense give parameters within their ranges") {
    for (const uint32_t nodes : {2u, 3u, 1024u})
        for (const uint64_t ns : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
            Times times;
            times.host_ns = 50;
            times.memory_ps = ns == 0 ? 0 : UINT32_MAX;
            times.shift_ns = ns;
            for (Timed* each : {&times.small_short, &times.small_long, &times.small_scatter,
                                &times.small_steps, &times.bulk_short, &times.bulk_long})
                each->ns = ns;
            CHECK(fit(times, nodes).check());
        }
}

TEST_CASE("the limit of recursive doubling is where the ring begins to win, whatever one size alone says") {
    const auto limit = [](std::vector<Raced> sizes, uint32_t nodes = 3) {
        return doubling_limit(sizes, nodes);
    };
    CHECK(limit({}) == 0);
    CHECK(limit({{8, 10, 20}, {16, 20, 30}, {32, 60, 40}}) == 16);
    CHECK(limit({{8, 10, 20}, {16, 20, 30}, {32, 60, 40}}, 2) == 16 / nexar::doubling_of_two_hosts);
    CHECK(limit({{8, 10, 20}, {16, 20, 30}, {32, 30, 40}}) == 32);
    CHECK(limit({{8, 20, 10}, {16, 30, 20}, {32, 60, 40}}) == 4);
    CHECK(limit({{1, 20, 10}}, 2) == 1);                            // never 0
    CHECK(limit({{8, 10, 20}, {16, 21, 20}, {32, 30, 60}}) == 32);  // one size, disturbed
    CHECK(limit({{8, 10, 20}, {16, 200, 20}, {32, 50, 60}}) == 8);  // too much to lose
    CHECK(limit({{8, 10, 12}, {16, 2000, 20}, {32, 10, 18}, {64, 10, 18}}) ==
          64);  // a lost packet is no more than twice
    CHECK(limit({{8, 53000, 40000},
                 {16, 22000, 30000},
                 {32, 53000, 26000},
                 {64, 24000, 59000},
                 {128, 33000, 20000},
                 {256, 51000, 40000}}) == 16);                             // as good as 64, but for rounding
    CHECK(limit({{64, 53, 72}, {128, 79, 100}, {256, 138, 140}}) == 128);  // within what races differ by
    CHECK(limit({{64, 53, 72}, {128, 79, 100}, {256, 135, 140}}) == 256);
    CHECK(limit({{8, 10, 2000}, {16, 20, 11}, {32, 20, 11}}) == 8);
    CHECK(limit({{8, 10, 10}, {16, 10, 10}}) == 4);  // no difference: the ring, fewer bytes
    CHECK(limit({{uint64_t{1} << 40, 1, 2}}) == nexar::collectives::doubling_bytes_most);
}
