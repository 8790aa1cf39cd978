// Collectives that a rank cancels, or whose deadline passes, at every event of them (matrix.hpp): every
// rank succeeds with the right result or has the error of include/nexar.h; no memory is touched after its
// completion, which poisons it; and the next collective has its own number and the right result.
#include "matrix.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <utility>

#include "program.hpp"

namespace nexar::sim {
namespace {

constexpr uint32_t ranks = 4;
constexpr Duration pause = 40us;  // in which all ranks come

struct Scene {
    std::string name;
    std::vector<uint32_t> placement;
    uint64_t count;
    bool in_place, staged, persistent = false;
};

// Around the limits of the plan: a few bytes, and several segments over several lanes.
const std::vector<Scene> scenes = {{"small, three nodes", {0, 1, 2, 0}, 9, false, false},
                                   {"large, two nodes", {0, 0, 1, 1}, 1500, true, false},
                                   {"staged, two nodes", {0, 1, 0, 1}, 1500, false, true},
                                   {"one node", {0, 0, 0, 0}, 300, false, false}};
const std::vector<Scene> persistent_scenes = {
    {"persistent, small, three nodes", {0, 1, 2, 0}, 9, false, false, true},
    {"persistent, staged, two nodes", {0, 1, 0, 1}, 1500, false, true, true},
    {"persistent, one node", {0, 0, 0, 0}, 300, true, false, true}};

struct Trial {
    Trial(uint64_t seed, OpKind kind, const Scene& scene)
        : cluster(seed, shape()), program(cluster, cluster.make_group(scene.placement)) {
        for (int i = 0; i < 2; ++i)
            program.add({kind, Dtype::i32, ReduceOp::sum, count_for(kind, scene.count), ranks - 1},
                        scene.in_place);
        if (scene.staged) program.stage(2);
        if (scene.persistent) program.persist();
        program.start(pause, 1 + seed % 2);
    }
    static ClusterShape shape() {
        ClusterShape out;
        out.nodes = 3;
        out.plan = {1, 256, 64, 128, 4096, 2};
        out.collective_timeout = out.barrier_timeout = Duration{0};  // nothing else ends by itself
        return out;
    }
    const Step& first() const { return program.steps[0]; }
    bool is_over() const {
        return std::ranges::all_of(first().calls, [](const Call* c) { return c != nullptr && c->ended; });
    }

    Cluster cluster;
    Program program;
};

struct Undisturbed {
    std::vector<Time> events;
    std::vector<Time> began;  // by rank
};

Undisturbed undisturbed(uint64_t seed, OpKind kind, const Scene& scene) {
    Trial trial(seed, kind, scene);
    Undisturbed out{events_of(trial.cluster, [&] { return trial.is_over(); }), {}};
    for (const Call* call : trial.first().calls) out.began.push_back(call->submitted);
    return out;
}

bool has_cancel(const Hit& hit, uint32_t rank) {
    return hit.blow != Blow::deadline && rank == hit.rank;
}
bool has_deadline(const Hit& hit, uint32_t rank) {
    return hit.blow != Blow::cancel && rank == (hit.blow == Blow::both ? (hit.rank + 1) % ranks : hit.rank);
}

// False: the blow falls before the rank has called.
bool strike(Trial& trial, const Hit& hit, const Undisturbed& before) {
    Step& step = trial.program.steps[0];
    for (uint32_t rank = 0; rank < ranks; ++rank)
        if (has_deadline(hit, rank)) step.timeout = hit.at - before.began[rank], step.impatient = rank;
    if (step.impatient && step.timeout <= Duration{0}) return false;
    run_to_event(trial.cluster, hit.event + 1);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        if (!has_cancel(hit, rank)) continue;
        if (step.calls[rank] == nullptr) return false;
        trial.cluster.cancel(trial.program.group, rank, *step.calls[rank]);
    }
    return true;
}

struct Ends {
    size_t ok = 0, cancelled = 0, timed_out = 0, aborted = 0;

    void look(const Trial& trial, const Hit& hit) {
        size_t succeeded = 0;
        bool own_end = false;
        std::set<std::pair<int64_t, std::string>> errors;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            const Call& call = *trial.first().calls[rank];
            const Error& error = call.outcome.error;
            CAPTURE(rank, error.text);
            REQUIRE(call.outcome.sequence == trial.first().calls[0]->outcome.sequence);
            if (call.ok()) {
                REQUIRE(trial.program.wrong_result(trial.first(), rank) == "");
                ++succeeded;
                continue;
            }
            errors.emplace(error.rank, error.text);
            if (error.code == Errc::aborted) {
                ++aborted;
            } else {
                REQUIRE(error.code == (has_cancel(hit, rank) ? Errc::cancelled : Errc::timed_out));
                REQUIRE((has_cancel(hit, rank) || has_deadline(hit, rank)));
                own_end = true;
                ++(has_cancel(hit, rank) ? cancelled : timed_out);
            }
            if (hit.blow == Blow::cancel) REQUIRE(error.rank == hit.rank);
            if (hit.blow == Blow::cancel)
                REQUIRE(error.text.contains("cancelled by rank " + std::to_string(hit.rank)));
            if (hit.blow == Blow::deadline)
                REQUIRE(error.text.contains("deadline of rank " + std::to_string(hit.rank)));
        }
        // All or some succeed; who fails, fails for one reason, which is somebody's own end.
        if (hit.blow != Blow::both) REQUIRE(errors.size() <= 1);
        REQUIRE(own_end == (succeeded < ranks));
        ok += succeeded;
    }
};

void expect_next(Trial& trial) {
    const bool finished = trial.cluster.run();
    INFO(trial.cluster.unfinished());
    REQUIRE(finished);
    const Step& next = trial.program.steps[1];
    REQUIRE(trial.program.wrong(next) == "");
    for (uint32_t rank = 0; rank < ranks; ++rank)
        REQUIRE(next.calls[rank]->outcome.sequence == trial.first().calls[0]->outcome.sequence + 1);
    trial.cluster.check();
}

void one_round(uint64_t round, OpKind kind, const Scene& scene, Ends& ends) {
    const Rounds rounds(ranks);
    const uint64_t seed = rounds.schedule(round);
    const Undisturbed before = undisturbed(seed, kind, scene);
    for (const uint64_t event : rounds.events(round + uint64_t(kind), before.events.size())) {
        const Hit hit = rounds.hit(round, event, before.events[event]);
        CAPTURE(int(hit.blow), hit.rank, event);
        Trial trial(seed, kind, scene);
        if (!strike(trial, hit, before)) continue;
        expect_next(trial);
        ends.look(trial, hit);
    }
}

}  // namespace

namespace {

void every_kind(const std::vector<Scene>& all) {
    for (const Scene& scene : all) {
        Ends ends;
        for (const OpKind kind : collective_kinds)
            for (const uint64_t round : seeds(1)) {
                CAPTURE(scene.name, row_of(kind).name, round);
                one_round(round, kind, scene, ends);
            }
        CAPTURE(scene.name);
        REQUIRE(met(ends.ok));
        REQUIRE(met(ends.cancelled));
        REQUIRE(met(ends.timed_out));
        REQUIRE(met(ends.aborted));
    }
}

}  // namespace

TEST_CASE(
    "matrix: a collective cancelled or late at any event, on any rank: one end each, and the next is right") {
    every_kind(scenes);
}

TEST_CASE("matrix: a start of a persistent collective ends so too, and the next start knows nothing of it",
          "[S25][S26]") {
    every_kind(persistent_scenes);
}

namespace {

// One rank comes a second late, when all others have given up.
struct LateTrial {
    LateTrial(uint64_t seed, OpKind kind, const Scene& scene, uint32_t absent)
        : cluster(seed, Trial::shape()), program(cluster, cluster.make_group(scene.placement)), late(absent) {
        for (int i = 0; i < 2; ++i)
            program.add({kind, Dtype::i32, ReduceOp::sum, count_for(kind, scene.count), ranks - 1});
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            ++cluster.to_be_submitted;
            cluster.clock.after(rank == late ? Duration{1s} : cluster.clock.some(pause), [this, rank] {
                --cluster.to_be_submitted;
                program.post(0, rank);
            });
        }
    }
    Cluster cluster;
    Program program;
    uint32_t late;
};

void look_at_late(const LateTrial& trial, const Hit& hit, const std::vector<Time>& began, size_t& named) {
    const Step& step = trial.program.steps[0];
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        const Error& error = step.calls[rank]->outcome.error;
        CAPTURE(rank, trial.late, error.text);
        if (step.calls[rank]->ok()) {
            REQUIRE(trial.program.wrong_result(step, rank) == "");
            continue;
        }
        REQUIRE(error.code == (rank == hit.rank ? Errc::timed_out : Errc::aborted));
        const auto named_rank = static_cast<uint32_t>(error.rank);
        REQUIRE((named_rank == trial.late || (named_rank < ranks && began[named_rank] >= hit.at)));
        REQUIRE(error.text.contains("rank " + std::to_string(trial.late)));
        ++named;
    }
}

void one_late_rank(uint64_t seed, OpKind kind, const Scene& scene, size_t& named) {
    const auto late = static_cast<uint32_t>((seed + uint64_t(kind)) % ranks);
    LateTrial calm(seed, kind, scene, late);
    std::vector<Time> events, began(ranks, never);
    while (calm.cluster.clock.next() < Time{} + 900ms && calm.cluster.clock.step())
        events.push_back(calm.cluster.clock.now());
    for (uint32_t rank = 0; rank < ranks; ++rank)
        if (rank != late) began[rank] = calm.program.steps[0].calls[rank]->submitted;
    for (const uint64_t event : Rounds(ranks).events(seed, events.size())) {
        const Hit hit{Blow::deadline, static_cast<uint32_t>((late + 1 + event % (ranks - 1)) % ranks), event,
                      events[event]};
        if (hit.at <= began[hit.rank]) continue;
        CAPTURE(event, hit.rank);
        LateTrial trial(seed, kind, scene, late);
        trial.program.steps[0].timeout = hit.at - began[hit.rank];
        trial.program.steps[0].impatient = hit.rank;
        trial.cluster.run_for(2s);
        for (uint32_t rank = 0; rank < ranks; ++rank) trial.program.post(1, rank);
        REQUIRE(trial.cluster.run());
        look_at_late(trial, hit, began, named);
        REQUIRE(trial.program.wrong(trial.program.steps[1]) == "");
        trial.cluster.check();
    }
}

}  // namespace

TEST_CASE("matrix: a deadline that passes at any event while a rank is missing names that rank to all") {
    size_t named = 0;
    for (const Scene& scene : scenes)
        for (const OpKind kind : collective_kinds)
            for (const uint64_t seed : seeds(1)) {
                if (scene.staged) continue;
                CAPTURE(scene.name, row_of(kind).name, seed);
                one_late_rank(seed, kind, scene, named);
            }
    REQUIRE(met(named));
}

TEST_CASE("a write into memory of an operation that has ended is found") {
    Trial trial(1, OpKind::all_reduce, scenes.front());
    REQUIRE(trial.cluster.run());
    for (const Call* call : trial.first().calls) {
        REQUIRE(call->is_poisoned());
        std::byte& byte = call->out->back();
        const std::byte before = std::exchange(byte, std::byte{0});
        REQUIRE_FALSE(call->is_poisoned());
        byte = before;
    }
    trial.cluster.check();
}

}  // namespace nexar::sim
