// See tune_probes.hpp.
#include "nexarctl/tune_probes.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "nexarctl/tune_rank.hpp"
#include "reduce/reduce.hpp"

namespace nexarctl {

namespace coll = nexar::collectives;
using nexar::Errc;
using nexar::fail;
using nexar::OpKind;
using nexar::Result;

namespace {

constexpr uint64_t shift_bytes = 4 << 20;

// Per byte that is combined: a copy and a sum. What comes from another processor lies in no cache near this
// one, and what is longer is no question of the algorithm.
uint32_t memory_ps() {
    constexpr size_t floats = (4 << 20) / sizeof(float);
    std::vector<float> a(floats, 1), b(floats, 2), c(floats, 3);
    uint64_t best = UINT64_MAX;
    for (int n = 0; n < 20; ++n)
        best = std::min(best, ns_of([&] {
                            std::ranges::copy(a, c.begin());
                            nexar::reduce::reduce_into(b.data(), c.data(), floats, nexar::reduce::Dtype::f32,
                                                       nexar::reduce::ReduceOp::sum);
                        }));
    return static_cast<uint32_t>(std::max<uint64_t>(1, best * 1000 / (floats * sizeof(float))));
}

// Of an all_reduce of so many bytes, as this group cuts it.
coll::Plan plan_of(const PlanQuestion& question, uint64_t bytes) {
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    return coll::plan({OpKind::all_reduce, bytes / 4, 4, 0}, layout, question.table);
}

// The longest that goes with control.
uint64_t longest_small(const PlanQuestion& question) {
    for (uint64_t bytes = 256 << 10; bytes > 64; bytes /= 2)
        if (plan_of(question, bytes).cls == nexar::Class::small) return bytes;
    return 64;
}

coll::Terms terms(const PlanQuestion& question, coll::Algorithm algorithm, uint64_t bytes, uint32_t rounds) {
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    return terms_of(algorithm, {layout.nodes(), 1, bytes, question.table.chunk_bytes, rounds});
}

RankPlace place_of(const TuneJob& job, const std::string& group) {
    return {job.session_socket, group, job.secret, job.nodes, job.index};
}

constexpr std::array<uint64_t, 6> raced_bytes{8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10};
constexpr uint32_t race_turns = 3;

// Recursive doubling and the ring, in a group for each.
struct Race {
    std::array<std::unique_ptr<Rank>, 2> groups;
    std::vector<Raced> sizes;
    std::string why_none;  // empty: there is one
};

// Whether it is so on any host.
Result<bool> anywhere(const Rank& rank, bool here) {
    uint64_t flag = here ? 1 : 0;
    NEXAR_TRY_VOID(rank.greatest({&flag, 1}));
    return flag > 0;
}

// Who is to race must make these groups unlike others; all hosts go on together, whichever of them cannot.
// No other user knows the names before.
Result<Race> open_race(const Library& library, const TuneJob& job, const Rank& rank) {
    Race out;
    uint64_t number = std::random_device{}();
    NEXAR_TRY_VOID(rank.greatest({&number, 1}));
    const std::string name = job.group + "-race-" + std::to_string(number);
    const std::array<Trial, 2> trials{{{name + "-doubling", raced_bytes.back()}, {name + "-ring", 1}}};
    uint64_t most = raced_bytes.back();
    for (size_t i = 0; i < trials.size(); ++i) {
        const auto announced = job.announce(trials[i]);
        NEXAR_TRY(const bool is_refused, anywhere(rank, !announced));
        if (is_refused) {
            out.why_none = announced ? "another host's daemon takes no part: its tune says why"
                                     : "this host's daemon takes no part: " + announced.error().text;
            return out;
        }
        NEXAR_TRY(out.groups[i], Rank::open(library, place_of(job, trials[i].group)));
        const auto question = job.plan_of_group(trials[i].group);
        if (question) most = std::min(most, question->table.small_bytes_max);
        const bool is_made =
            question && question->table.doubling_bytes_max ==
                            std::min(question->table.small_bytes_max, trials[i].doubling_bytes_max);
        NEXAR_TRY(const bool is_another, anywhere(rank, !is_made));
        if (is_another) {
            out.why_none = question ? "a group went by other limits: the node that makes groups is none of "
                                      "these hosts, has an older version, or was asked for another trial"
                                    : question.error().text;
            return out;
        }
    }
    for (const uint64_t bytes : raced_bytes)
        if (bytes <= most) out.sizes.push_back({bytes, UINT64_MAX, UINT64_MAX});
    if (out.sizes.empty()) out.why_none = "small_message_bytes is less than the shortest of 8 KiB";
    return out;
}

// In turns, of which the least counts, on the slowest host. Where they take long there are fewer turns.
Result<void> run_race(Race& race, double seconds) {
    const double each =
        seconds / static_cast<double>(2 * race_turns * std::max<size_t>(1, race.sizes.size()));
    const auto median = [each](const Rank& rank, uint64_t bytes) {
        return rank.median_ns(Probe::reduce, bytes, each, 2);
    };
    if (!race.why_none.empty()) return {};
    uint64_t spent_ns = 0;
    for (uint32_t turn = 0; turn < race_turns && static_cast<double>(spent_ns) < seconds * 1e9; ++turn) {
        Result<void> result;
        spent_ns += ns_of([&] {
            result = [&]() -> Result<void> {
                for (Raced& size : race.sizes) {
                    std::array<uint64_t, 2> both{};
                    NEXAR_TRY(both[0], median(*race.groups[0], size.bytes));
                    NEXAR_TRY(both[1], median(*race.groups[1], size.bytes));
                    NEXAR_TRY_VOID(race.groups[0]->greatest(both));
                    size.doubling_ns = std::min(size.doubling_ns, both[0]);
                    size.ring_ns = std::min(size.ring_ns, both[1]);
                }
                return {};
            }();
        });
        NEXAR_TRY_VOID(result);
        NEXAR_TRY_VOID(race.groups[0]->greatest({&spent_ns, 1}));
    }
    return {};
}

Result<Timed> timed(const Rank& rank, const PlanQuestion& question, uint64_t bytes, double seconds) {
    Timed out;
    const coll::Plan plan = plan_of(question, bytes);
    out.terms = terms(question, plan.algorithm, bytes, (plan.segments + plan.lanes - 1) / plan.lanes);
    NEXAR_TRY(out.ns, rank.median_ns(Probe::reduce, bytes, seconds));
    return out;
}

// All ranks' greatest: who has no part in the exchange of two is early.
Result<void> exchanges(const Rank& rank, Times& times, double seconds) {
    std::array<uint64_t, 2> both{};
    NEXAR_TRY(both[0], rank.median_ns(Probe::pair, shift_bytes, seconds));
    NEXAR_TRY(both[1], rank.median_ns(Probe::shift, shift_bytes, seconds));
    NEXAR_TRY_VOID(rank.greatest(both));
    times.shift_bytes = shift_bytes;
    times.pair_ns = both[0];
    times.shift_ns = both[1];
    return {};
}

}  // namespace

Result<Measured> measure(const TuneJob& job) {
    NEXAR_TRY(const Library library, Library::load());
    Measured out;
    Times& times = out.times;
    {
        NEXAR_TRY(const auto alone,
                  Rank::open(library, {job.session_socket, job.group + "-alone", {}, 1, 0}));
        NEXAR_TRY(times.host_ns, alone->median_ns(Probe::reduce, 8, job.seconds / 10));
    }
    times.memory_ps = memory_ps();
    NEXAR_TRY(const auto rank, Rank::open(library, place_of(job, job.group)));
    NEXAR_TRY(const PlanQuestion question, job.plan_of_group(job.group));
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    if (layout.nodes() != job.nodes)
        return fail(Errc::bad_state, "the ranks are on " + std::to_string(layout.nodes()) + " of " +
                                         std::to_string(job.nodes) + " hosts: start one tune on each");
    NEXAR_TRY(Race race, open_race(library, job, *rank));
    out.small_bytes = longest_small(question);
    // All take as many turns, so the longest time that a host was given is everybody's.
    std::array<uint64_t, 2> agreed{static_cast<uint64_t>(job.seconds * 1000), job.is_dry ? 1u : 0u};
    NEXAR_TRY_VOID(rank->greatest(agreed));
    const double seconds = static_cast<double>(agreed[0]) / 1000 / 10;
    out.is_dry = agreed[1] > 0;
    NEXAR_TRY(times.small_short, timed(*rank, question, 8, seconds));
    const uint64_t few = 4 * job.nodes;  // an element of each rank
    times.small_scatter.terms = terms(question, coll::Algorithm::tree_reduce_scatter, few, 1);
    NEXAR_TRY(times.small_scatter.ns, rank->median_ns(Probe::scatter, few, seconds));
    times.small_steps.terms = terms(question, coll::Algorithm::tree_all_reduce, few, 1);
    NEXAR_TRY(times.small_steps.ns, rank->median_ns(Probe::fixed_order, few, seconds));
    NEXAR_TRY(times.small_long, timed(*rank, question, out.small_bytes, seconds));
    // An all_to_allv goes by the shards, however short it is.
    times.bulk_short.terms = terms(question, coll::Algorithm::pairwise_all_to_allv, 0, 1);
    NEXAR_TRY(times.bulk_short.ns, rank->median_ns(Probe::to_all, 8, seconds));
    out.bulk_bytes = std::min(probe_bytes_max, question.table.segment_bytes);  // by one shard
    NEXAR_TRY(times.bulk_long, timed(*rank, question, out.bulk_bytes, seconds));
    if (job.nodes > 2) NEXAR_TRY_VOID(exchanges(*rank, times, seconds));
    NEXAR_TRY_VOID(run_race(race, 2 * seconds));
    out.raced = race.sizes;
    out.why_no_race = race.why_none;

    // The slowest link and host.
    const coll::CostModel own = fit(times, job.nodes);
    std::array<uint64_t, 6> slowest{own.small.start_ns,   own.small.ps_per_byte,  own.bulk.start_ns,
                                    own.bulk.ps_per_byte, own.memory_ps_per_byte, own.shared_ps_per_byte};
    NEXAR_TRY_VOID(rank->greatest(slowest));
    const auto narrow = [&](size_t i) { return static_cast<uint32_t>(slowest[i]); };
    out.found.model = {{narrow(0), narrow(1)}, {narrow(2), narrow(3)}, narrow(4), narrow(5)};
    out.found.doubling_bytes_max = doubling_limit(out.raced, job.nodes);
    return out;
}

}  // namespace nexarctl
