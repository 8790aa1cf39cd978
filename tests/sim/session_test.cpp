// Sessions in the simulator: applications that speak through op slots and rings, production session code,
// production engines.
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Apps = std::vector<std::unique_ptr<App>>;

AppShape random_app(Random& random) {
    AppShape shape;
    shape.slots = 16u << random.below(3);
    shape.sleeps = static_cast<Sleeps>(random.below(3));
    shape.wake_delay = Duration(static_cast<int64_t>(random.below(60'000)));
    shape.turn_delay = Duration(static_cast<int64_t>(random.below(40'000)));
    return shape;
}

ClusterShape random_cluster(Random& random) {
    ClusterShape shape;
    shape.nodes = static_cast<uint32_t>(2 + random.below(3));
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    shape.network.jitter = Duration(static_cast<int64_t>(random.below(100'000)));
    return shape;
}

Apps some_apps(Cluster& cluster, Random& random, size_t count) {
    Apps apps;
    for (size_t i = 0; i < count; ++i)
        apps.push_back(std::make_unique<App>(
            cluster, static_cast<uint32_t>(random.below(cluster.shape.nodes)), random_app(random)));
    return apps;
}

std::vector<App*> pointers(const Apps& apps) {
    std::vector<App*> out;
    for (const auto& app : apps) out.push_back(app.get());
    return out;
}

OpDescriptor random_words(Random& random, size_t size) {
    const uint64_t counts[] = {0, 1, random.below(30), random.below(2000)};
    OpDescriptor d;
    d.kind = collective_kinds[random.below(collective_kinds.size())];
    Reference::draw(random, d);
    d.count = counts[random.below(4)];
    d.root = row_of(d.kind).rooted ? static_cast<uint32_t>(random.below(size)) : 0;
    return d;
}

void add_random(Job& job, Random& random, size_t size, size_t steps) {
    for (size_t i = 0; i < steps; ++i) job.add(random_words(random, size));
}

nexar_shm_descriptor barrier(uint32_t group) {
    nexar_shm_descriptor words{};
    words.kind = NEXAR_OP_BARRIER;
    words.group = group;
    words.timeout_ns = -1;
    return words;
}

// A group of all these apps; its name in each session.
std::vector<uint32_t> open_group(Cluster& cluster, const std::vector<App*>& apps, const std::string& name) {
    std::vector<uint32_t> names(apps.size());
    for (size_t i = 0; i < apps.size(); ++i)
        REQUIRE(apps[i]->open(name, static_cast<uint32_t>(apps.size()), static_cast<uint32_t>(i),
                              [&names, i](const Done& d) {
                                  REQUIRE(d.status == 0);
                                  names[i] = d.result.group;
                              }));
    REQUIRE(cluster.run(10s));
    return names;
}

}  // namespace

TEST_CASE("sessions open groups and run collectives of all kinds through slots and rings") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Random random(seed * 131 + 7);
        Cluster cluster(seed, random_cluster(random));
        const size_t size = 1 + random.below(8);
        Apps apps = some_apps(cluster, random, size);
        Job job(cluster, "job", pointers(apps));
        add_random(job, random, size, 1 + random.below(15));
        job.start(Duration(static_cast<int64_t>(1 + random.below(100'000))), 1 + random.below(14),
                  random.one_in(2));

        REQUIRE(cluster.run(60s));

        cluster.check();
        REQUIRE(job.wrong() == "");
        for (const auto& app : apps) {
            REQUIRE(app->pending() == 0);
            REQUIRE(app->core()->in_flight() == 0);
            REQUIRE(app->core()->groups() == 0);
            REQUIRE(app->core()->regions() == 0);
        }
    }
}

TEST_CASE("a session takes part in several groups at a time, each with its own ranks") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Random random(seed * 17 + 3);
        Cluster cluster(seed, random_cluster(random));
        Apps apps = some_apps(cluster, random, 4);
        Job all(cluster, "all", pointers(apps)), pair(cluster, "pair", {apps[3].get(), apps[1].get()});
        Job alone(cluster, "alone", {apps[2].get()});
        for (auto [job, size] : {std::pair(&all, 4), std::pair(&pair, 2), std::pair(&alone, 1)}) {
            add_random(*job, random, static_cast<size_t>(size), 8);
            job->start(50us, 3);
        }

        REQUIRE(cluster.run(60s));

        cluster.check();
        REQUIRE(all.wrong() == "");
        REQUIRE(pair.wrong() == "");
        REQUIRE(alone.wrong() == "");
    }
}

TEST_CASE("several ranks of one group in one session, each a membership of its own", "[D3]") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Random random(seed * 19 + 5);
        Cluster cluster(seed, random_cluster(random));
        Apps apps = some_apps(cluster, random, 2);
        std::vector<App*> of_rank;
        for (uint64_t i = 0; i < 2 + random.below(5); ++i)
            of_rank.push_back(apps[seed % 3 == 0 ? 0 : random.below(2)].get());
        Job job(cluster, "job", of_rank);
        add_random(job, random, of_rank.size(), 10);
        // A session of 16 slots has 12 for operations: room for all that up to 6 ranks have in flight.
        job.start(50us, 1 + random.below(2), random.one_in(2));

        REQUIRE(cluster.run(60s));

        cluster.check();
        REQUIRE(job.wrong() == "");
        for (const auto& app : apps) REQUIRE(app->core()->groups() == 0);
    }
}

TEST_CASE("two groups that two sessions use in opposite orders both come to their end") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        ClusterShape shape;
        Cluster cluster(seed, shape);
        App a(cluster, 0), b(cluster, 1);
        const auto g = open_group(cluster, {&a, &b}, "g"), h = open_group(cluster, {&a, &b}, "h");
        auto memory_a = std::make_shared<std::vector<std::byte>>(400'000, std::byte{1});
        auto memory_b = std::make_shared<std::vector<std::byte>>(400'000, std::byte{2});
        const uint32_t region_a = a.add_region(memory_a, {}), region_b = b.add_region(memory_b, {});
        cluster.run(1s);
        size_t well = 0;
        const auto post = [&](App& app, uint32_t group, uint32_t region, uint64_t out) {
            nexar_shm_descriptor words = barrier(group);
            words.kind = NEXAR_OP_ALL_REDUCE;
            words.dtype = static_cast<uint8_t>(Dtype::u8);
            words.op = static_cast<uint8_t>(ReduceOp::sum);
            words.count = 100'000;
            words.in = {region, 0, 0};
            words.out = {region, 0, out};
            REQUIRE(app.start(words, [&](const Done& d) { well += d.status == 0 ? 1 : 0; }));
        };
        post(a, g[0], region_a, 100'000);
        post(a, h[0], region_a, 200'000);
        post(b, h[1], region_b, 200'000);
        post(b, g[1], region_b, 100'000);

        REQUIRE(cluster.run(10s));

        cluster.check();
        REQUIRE(well == 4);
        for (const auto& memory : {memory_a, memory_b})
            for (size_t i = 100'000; i < 300'000; ++i) REQUIRE((*memory)[i] == std::byte{3});
    }
}

TEST_CASE("a full table refuses operations, still takes commands, and recovers when slots are freed") {
    ClusterShape shape;
    Cluster cluster(5, shape);
    AppShape small;
    small.slots = 16;
    App a(cluster, 0, small), b(cluster, 1, small);
    const auto group = open_group(cluster, {&a, &b}, "g");
    size_t ended = 0;
    const auto count = [&](const Done& d) { ended += d.status == 0 ? 1 : 0; };
    size_t posted = 0;
    while (a.start(barrier(group[0]), count)) ++posted;
    REQUIRE(posted == 16 - shm::SlotPool::kept_from_operations);
    // Nobody else is here yet: the table stays full, but a group can be opened and freed.
    cluster.run_for(50ms);
    REQUIRE_FALSE(a.start(barrier(group[0]), count));
    bool opened = false;
    REQUIRE(a.open("own", 1, 0, [&](const Done& d) { opened = d.status == 0; }));
    cluster.run_for(50ms);
    REQUIRE(opened);

    for (size_t i = 0; i < posted; ++i) REQUIRE(b.start(barrier(group[1]), count));
    REQUIRE(cluster.run(10s));

    cluster.check();
    REQUIRE(ended == 2 * posted);
    REQUIRE(a.start(barrier(group[0]), count));
    REQUIRE(b.start(barrier(group[1]), count));
    REQUIRE(cluster.run(10s));
    REQUIRE(ended == 2 * posted + 2);
}

TEST_CASE("cancelling through the ring ends the call here and the group's everywhere") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 3;
        Cluster cluster(seed, shape);
        App a(cluster, 0), b(cluster, 1), c(cluster, 2);
        const auto group = open_group(cluster, {&a, &b, &c}, "g");
        std::vector<int32_t> ends;
        const auto note = [&](const Done& d) { ends.push_back(d.status); };
        const auto handle = a.start(barrier(group[0]), note);
        REQUIRE(b.start(barrier(group[1]), note));
        cluster.run_for(cluster.clock.some(200us));
        REQUIRE(a.cancel(*handle));
        REQUIRE(a.cancel({handle->slot, handle->generation + 5}));  // of nothing: ignored
        cluster.run_for(1s);
        REQUIRE(ends.size() == 2);
        REQUIRE(c.start(barrier(group[2]), note));  // too late: it is the same operation
        REQUIRE(cluster.run(10s));

        cluster.check();
        REQUIRE(ends.size() == 3);
        for (const int32_t status : ends)
            REQUIRE((status == static_cast<int32_t>(Errc::cancelled) ||
                     status == static_cast<int32_t>(Errc::aborted)));
    }
}

TEST_CASE("cancelling an open ends it, and its name can be opened again") {
    ClusterShape shape;
    Cluster cluster(3, shape);
    App a(cluster, 0), b(cluster, 1);
    int32_t status = 1;
    const auto handle = a.open("g", 2, 0, [&](const Done& d) { status = d.status; });
    cluster.run_for(20ms);
    REQUIRE(a.cancel(*handle));
    REQUIRE(cluster.run(1s));
    REQUIRE(status == static_cast<int32_t>(Errc::cancelled));

    const auto group = open_group(cluster, {&a, &b}, "g");
    size_t well = 0;
    for (size_t i = 0; i < 2; ++i)
        REQUIRE((i == 0 ? a : b).start(barrier(group[i]), [&](const Done& d) { well += d.status == 0; }));
    REQUIRE(cluster.run(10s));
    REQUIRE(well == 2);
    cluster.check();
}

TEST_CASE("a session that never reads what ended and never frees a slot delays nobody") {
    // The same two-node job with and without three such sessions beside it, one of them in a group with a
    // live one; the longest of each over several seeds.
    const auto longest = [](bool with_deaf) {
        Duration most{0};
        for (const uint64_t seed : seeds(15)) {
            CAPTURE(seed);
            ClusterShape shape;
            Cluster cluster(seed, shape);
            App a(cluster, 0), b(cluster, 1), deaf(cluster, 0), partner(cluster, 1), lonely(cluster, 1);
            if (with_deaf) {
                const auto group = open_group(cluster, {&deaf, &partner}, "deaf");
                const auto own = open_group(cluster, {&lonely}, "own");
                deaf.go_deaf();
                lonely.go_deaf();
                while (deaf.start(barrier(group[0]), {})) {
                }
                while (lonely.start(barrier(own[0]), {})) {
                }
                // The live partner's calls end although the other side never looks.
                size_t ended = 0;
                for (int i = 0; i < 60; ++i)
                    REQUIRE(partner.start(barrier(group[1]), [&](const Done& d) { ended += d.status == 0; }));
                REQUIRE(cluster.run(5s));
                REQUIRE(ended == 60);
                REQUIRE(deaf.pending() == 60);
                for (int i = 0; i < 200; ++i) lonely.cancel({0, 1});
            }
            Job job(cluster, "job", {&a, &b});
            for (int i = 0; i < 20; ++i) job.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 5000, 0});
            const Time begin = cluster.clock.now();
            job.start(10us, 2);
            REQUIRE(cluster.run(20s));
            cluster.check();
            REQUIRE(job.wrong() == "");
            most = std::max(most, job.finished() - begin);
        }
        return most;
    };
    const Duration without = longest(false), with = longest(true);
    CAPTURE(without.count(), with.count());
    REQUIRE(with < without * 5 / 4);
}

TEST_CASE("a session whose segment is scribbled over is ended with a reason; the others' results are right") {
    size_t ended = 0, tried = 0;
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        ++tried;
        Random random(seed * 977 + 1);
        Cluster cluster(seed, random_cluster(random));
        Apps apps = some_apps(cluster, random, 5);
        App bad(cluster, static_cast<uint32_t>(random.below(cluster.shape.nodes)), random_app(random));
        Job honest(cluster, "honest", pointers(apps));
        add_random(honest, random, apps.size(), 12);
        // A group with one of the honest sessions in it: its calls end, whatever the scribbler writes.
        Job mixed(cluster, "mixed", {apps[0].get(), &bad});
        add_random(mixed, random, 2, 12);
        honest.start(50us, 3);
        mixed.start(50us, 3);
        for (int i = 0; i < 60; ++i)
            cluster.clock.after(100us + Duration(i * 50'000), [&, i] {
                if (!bad.ended()) bad.scribble(1 + static_cast<size_t>(i) * 4);
            });
        cluster.run_for(10ms);
        bad.go_deaf();  // its own threads see garbage: nobody waits for them
        if (bad.ended()) {
            ++ended;
            REQUIRE(bad.closed_code() != 0);
        } else {
            bad.kill();
        }

        REQUIRE(cluster.run(60s));

        REQUIRE(honest.wrong() == "");
        REQUIRE(cluster.errors.empty());
        REQUIRE(apps[0]->pending() == 0);
    }
    REQUIRE((3 * ended > 2 * tried || !all_seeds()));
}

TEST_CASE("sessions that die at any moment: the others of their group get one error, other groups none") {
    for (const uint64_t seed : seeds(80)) {
        CAPTURE(seed);
        Random random(seed * 271 + 9);
        Cluster cluster(seed, random_cluster(random));
        Apps apps = some_apps(cluster, random, 6);
        Job hit(cluster, "hit", {apps[0].get(), apps[1].get(), apps[2].get(), apps[3].get()});
        Job whole(cluster, "whole", {apps[1].get(), apps[4].get(), apps[5].get()});
        add_random(hit, random, 4, 15);
        add_random(whole, random, 3, 15);
        hit.start(40us, 1 + random.below(4));
        whole.start(40us, 1 + random.below(4));
        cluster.clock.after(cluster.clock.some(3ms), [&] { apps[0]->kill(); });
        if (random.one_in(3)) cluster.clock.after(cluster.clock.some(3ms), [&] { apps[2]->kill(); });

        REQUIRE(cluster.run(60s));

        cluster.check();
        REQUIRE(whole.wrong() == "");
        REQUIRE(hit.wrong_results() == "");
        REQUIRE(hit.errors().size() <= 1);
        for (size_t i = 1; i < 6; ++i) REQUIRE(apps[i]->pending() == 0);
    }
}

TEST_CASE("losing a wake-up of a session is noticed: its call never ends") {
    for (const Sleeps sleeps : {Sleeps::on_slot, Sleeps::on_ring, Sleeps::on_doorbell}) {
        CAPTURE(static_cast<int>(sleeps));
        const auto comes_to_its_end = [&](bool sabotaged) {
            ClusterShape shape;
            Cluster cluster(1, shape);
            AppShape words;
            words.sleeps = sleeps;
            App a(cluster, 0, words);
            words.lose_a_wakeup = sabotaged;
            App b(cluster, 1, words);
            Job job(cluster, "job", {&a, &b});
            for (int i = 0; i < 30; ++i) job.add({OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 100, 0});
            job.start(10us, 1);
            return cluster.run(20s) && job.wrong().empty();
        };
        REQUIRE(comes_to_its_end(false));
        REQUIRE_FALSE(comes_to_its_end(true));
    }
}

}  // namespace nexar::sim
