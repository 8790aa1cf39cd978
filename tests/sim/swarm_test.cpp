// Seeds for ever: random clusters, groups, collectives (some staged), messages and faults. NEXAR_SIM_SEEDS=n
// runs n seeds (default: what fits the ordinary test run), NEXAR_SIM_FIRST=s begins at seed s,
// NEXAR_SIM_STATE=n prints what every node knows after n virtual seconds. A failure prints its seed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "mail.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

OpDescriptor random_words(Random& random, uint32_t size) {
    const uint64_t counts[] = {
        0, 1, random.below(20), random.below(200), random.below(3000), random.below(20'000)};
    OpDescriptor d;
    d.kind = collective_kinds[random.below(collective_kinds.size())];
    Reference::draw(random, d);
    d.count = counts[random.below(6)] / row_blocks(row_of(d.kind), size);
    d.root = static_cast<uint32_t>(random.below(size));
    return d;
}

wire::PlanTableRecord random_plan(Random& random) {
    const uint64_t small = uint64_t{64} << random.below(8);
    const auto cost = [&] { return static_cast<uint32_t>(1 + (random.next() >> (34 + random.below(30)))); };
    const auto link_of = [&] { return 1 + cost() % collectives::start_ns_max; };
    return {static_cast<uint32_t>(1 + random.below(plan_version_max)),
            small,
            small / (1 + random.below(4)),
            64 * (1 + random.below(16)),
            std::max<uint64_t>(small, uint64_t{4096} << random.below(6)),
            static_cast<uint32_t>(1 + random.below(4)),
            0,
            link_of(),
            1 + cost() % collectives::ps_per_byte_max,
            link_of(),
            1 + cost() % collectives::ps_per_byte_max,
            1 + cost() % collectives::ps_per_byte_max,
            1 + cost() % collectives::ps_per_byte_max,
            random.below(3) == 0 ? uint64_t{64} << random.below(12) : 0,
            random.below(3) == 0 ? static_cast<uint32_t>(1 + random.below(4)) : 0,
            static_cast<uint8_t>(random.below(collectives::families))};
}

std::vector<uint32_t> random_placement(Random& random, uint32_t nodes) {
    std::vector<uint32_t> placement(1 + random.below(17));
    for (uint32_t& host : placement) host = static_cast<uint32_t>(random.below(nodes));
    return placement;
}

// Chosen by the seed: nothing, breaking channels, a process's death, a daemon's death, a cut, or several
// deaths at once.
void plan_faults(Cluster& cluster, std::vector<std::unique_ptr<Program>>& programs, uint64_t fault,
                 uint32_t nodes) {
    Random& random = cluster.clock.random;
    const auto any_node = [&] { return static_cast<uint32_t>(random.below(nodes)); };
    if (fault == 1)
        for (int i = 0; i < 6; ++i)
            cluster.clock.after(cluster.clock.some(2ms), [&cluster, a = any_node(), b = any_node()] {
                if (a != b) cluster.break_channel(a, b, cluster.clock.some(400us));
            });
    if (fault == 2 || fault == 5)
        for (size_t i = 0; i < 1 + random.below(2); ++i) {
            Program& program = *programs[random.below(programs.size())];
            const auto rank = static_cast<uint32_t>(random.below(program.group.size()));
            cluster.clock.after(cluster.clock.some(2ms), [&cluster, &program, rank] {
                if (!program.stopped.insert(rank).second) return;
                cluster.end_session(program.group, rank);
            });
        }
    if (fault == 3 || fault == 5)
        for (size_t i = 0; i < (fault == 3 ? 1 : 2); ++i)
            cluster.clock.after(cluster.clock.some(2ms), [&cluster, n = any_node(), seen = random.one_in(2)] {
                if (!cluster.hosts[n]->dead) cluster.kill(n, seen);
            });
    if (fault == 4) {
        const uint32_t a = any_node(), b = any_node();
        if (a == b) return;
        // Not before both ends have begun the connection: one that is cut then does not stand.
        cluster.clock.after(1ms + cluster.clock.some(2ms), [&cluster, a, b, both = random.one_in(2)] {
            cluster.block(a, b, true);
            if (both) cluster.block(b, a, true);
        });
    }
}

// What a seed allows.
struct Allowed {
    bool faultless = false;       // no rank, node or link fails
    bool cut = false;             // a link does
    bool little_scratch = false;  // some collectives find no memory for their steps [N9]
};

bool found_no_scratch(const Call* call) {
    return call != nullptr && call->ended && call->outcome.error.code == Errc::no_memory &&
           call->outcome.error.text.contains("scratch_bytes_max");
}

// [N9] The collective ends with one error on all ranks, and those after it are as if it had not been.
void check_faultless(const Program& program, bool little_scratch) {
    for (const Step& step : program.steps) {
        CAPTURE(step.words.text());
        if (!little_scratch || !std::ranges::any_of(step.calls, found_no_scratch)) {
            REQUIRE(program.wrong(step) == "");
            continue;
        }
        REQUIRE(std::ranges::all_of(step.calls, found_no_scratch));
    }
}

void check_program(const Program& program, const Cluster& cluster, const Allowed& may) {
    if (may.faultless) check_faultless(program, may.little_scratch);
    std::set<std::string> errors;
    for (const Step& step : program.steps) {
        std::set<std::string> no_scratch;
        for (uint32_t rank = 0; rank < program.group.size(); ++rank) {
            const Call* call = step.calls[rank];
            if (call == nullptr || program.stopped.contains(rank)) continue;
            if (cluster.hosts[program.group.placement[rank]]->dead) continue;
            CAPTURE(rank, step.words.text());
            REQUIRE(call->ended);
            if (call->ok())
                REQUIRE(program.wrong_result(step, rank) == "");
            else if (may.little_scratch && found_no_scratch(call))
                no_scratch.insert(call->outcome.error.text);
            else
                errors.insert(call->outcome.error.text);
        }
        for (const std::string& error : no_scratch) UNSCOPED_INFO(error);
        REQUIRE(no_scratch.size() <= 1);
    }
    for (const std::string& error : errors) UNSCOPED_INFO(error);
    // Two nodes that are cut off from one another have nobody to agree through: each side names the other.
    const std::set<uint32_t> nodes(program.group.placement.begin(), program.group.placement.end());
    REQUIRE(errors.size() <= (may.cut && nodes.size() == 2 ? 2u : 1u));
}

// [G1] All nodes of a group end at the same cut with the same error: their log events are alike.
void check_cuts(const Cluster& cluster) {
    std::map<std::string, std::string> ends;  // by group
    for (const std::string& line : cluster.warnings) {
        if (!line.contains("group_failed")) continue;
        const size_t at = line.find("group=");
        const std::string group = line.substr(at, line.find(' ', at) - at);
        const auto [known, first] = ends.try_emplace(group, line.substr(at));
        if (!first) REQUIRE(known->second == line.substr(at));
    }
}

void run_seed(uint64_t seed) {
    CAPTURE(seed);
    Random random(seed * 7919 + 13);
    ClusterShape shape;
    shape.nodes = static_cast<uint32_t>(1 + random.below(6));
    shape.plan = random_plan(random);
    shape.network.room = size_t{4096} << random.below(7);  // more than the largest frame
    const bool little_scratch = seed % 4 == 3;             // many segments wait
    if (little_scratch) shape.tenants.total(Resource::scratch_bytes) = 64 * shape.plan.segment_bytes;
    if (seed % 3 == 2) shape.engine.ends_per_turn_max = 1 + seed % 4;
    shape.network.jitter = Duration(static_cast<int64_t>(random.below(200'000)));
    shape.worker_delay = Duration(static_cast<int64_t>(random.below(300'000)));
    Cluster cluster(seed, shape);
    std::vector<std::unique_ptr<Program>> programs;
    for (size_t i = 0; i < 1 + random.below(3); ++i) {
        programs.push_back(
            std::make_unique<Program>(cluster, cluster.make_group(random_placement(random, shape.nodes))));
        const size_t steps = 1 + random.below(12);
        for (size_t s = 0; s < steps; ++s)
            programs.back()->add(random_words(random, programs.back()->group.size()), random.one_in(2));
        if (random.one_in(2))
            for (Step& step : programs.back()->steps)
                for (uint32_t rank = 0; rank < programs.back()->group.size(); ++rank)
                    step.priorities.emplace_back(static_cast<Priority>(random.below(priority_count)));
        if (random.one_in(2)) programs.back()->stage(1 + static_cast<uint32_t>(random.below(4)));
    }
    const uint64_t fault = random.below(6);
    plan_faults(cluster, programs, fault, shape.nodes);
    for (auto& program : programs)
        program->start(Duration(static_cast<int64_t>(1 + random.below(100'000))), 1 + random.below(6));

    std::deque<Mail> mail;
    for (auto& program : programs) mail.emplace_back(cluster, *program, random, random.below(12), 2ms);

    if (const uint64_t after = environment("NEXAR_SIM_STATE", 0)) {
        cluster.run_for(after * 1s);
        std::cerr << cluster.state();
    }
    const bool finished = cluster.run(120s);

    INFO(cluster.unfinished());
    CAPTURE(fault, shape.nodes);
    REQUIRE(finished);
    cluster.check();
    if (fault != 4) check_cuts(cluster);
    for (const auto& program : programs)
        check_program(*program, cluster, {fault <= 1, fault == 4, little_scratch});
    for (const Mail& letters : mail) REQUIRE(letters.wrong(fault <= 1) == "");
}

}  // namespace

TEST_CASE("swarm: whatever happens, every survivor ends with the right value or the group's one error") {
    for (const uint64_t seed : seeds(300)) run_seed(seed);
}

}  // namespace nexar::sim
