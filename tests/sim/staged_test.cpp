// Staged collectives in the simulator (docs/protocol/shm.md [S12] [S13]): applications lend windows and move
// their bytes by segments; production session code and engines.
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Apps = std::vector<std::unique_ptr<App>>;

AppShape random_app(Random& random) {
    AppShape shape;
    shape.sleeps = static_cast<Sleeps>(random.below(3));
    shape.wake_delay = Duration(static_cast<int64_t>(random.below(60'000)));
    shape.turn_delay = Duration(static_cast<int64_t>(random.below(40'000)));
    return shape;
}

// Segments of 4 KiB, so that ordinary counts make many of them.
ClusterShape cluster_of(uint32_t nodes, uint32_t lanes = 2) {
    ClusterShape shape;
    shape.nodes = nodes;
    shape.plan = {1, 1024, 256, 512, 4096, lanes};
    return shape;
}

Apps apps_on(Cluster& cluster, const std::vector<uint32_t>& placement) {
    Apps apps;
    for (const uint32_t host : placement)
        apps.push_back(std::make_unique<App>(cluster, host, random_app(cluster.clock.random)));
    return apps;
}

std::vector<App*> pointers(const Apps& apps) {
    std::vector<App*> out;
    for (const auto& app : apps) out.push_back(app.get());
    return out;
}

OpDescriptor words_of(OpKind kind, uint64_t count, uint32_t root = 0) {
    return {kind, Dtype::i32, ReduceOp::sum, count_for(kind, count), root};
}

OpDescriptor random_words(Random& random, size_t size) {
    const uint64_t counts[] = {0, 1, random.below(300), random.below(9000)};
    OpDescriptor d =
        words_of(collective_kinds[random.below(collective_kinds.size())], counts[random.below(4)]);
    Reference::draw(random, d);
    d.count /= row_blocks(row_of(d.kind), size);
    if (row_of(d.kind).rooted) d.root = static_cast<uint32_t>(random.below(size));
    return d;
}

// Ranks by hand: a group, one region each, and staged all_reduces of i32 whose every element is rank + 1.
struct Ranks {
    static constexpr uint64_t count = 8000;
    Cluster& cluster;
    Apps apps;
    std::vector<uint32_t> group, region;
    std::vector<std::shared_ptr<std::vector<std::byte>>> memory;
    std::vector<std::vector<Done>> ends;
    uint32_t segment_bytes = 0;

    Ranks(Cluster& c, const std::vector<uint32_t>& placement) : cluster(c), apps(apps_on(c, placement)) {
        const size_t size = apps.size();
        group.resize(size), region.resize(size), ends.resize(size);
        for (size_t i = 0; i < size; ++i) {
            memory.push_back(std::make_shared<std::vector<std::byte>>(16 << 20));
            region[i] = apps[i]->add_region(memory[i], {});
            REQUIRE(apps[i]->open("g", static_cast<uint32_t>(size), static_cast<uint32_t>(i),
                                  [this, i](const Done& d) {
                                      REQUIRE(d.status == 0);
                                      group[i] = d.result.group;
                                      segment_bytes = d.result.stage;
                                  }));
        }
        REQUIRE(cluster.run(10s));
    }
    uint32_t segments(uint64_t n) const { return nexar_shm_segments(n, 4, segment_bytes); }

    // windows 0: not staged, in its region. A rank's calls come one after the other, in the same memory.
    std::pair<App::Handle, std::shared_ptr<StagedMemory>> post(size_t i, uint32_t windows, uint64_t n = count,
                                                               Duration timeout = Duration{-1}) {
        nexar_shm_descriptor words{};
        words.kind = NEXAR_OP_ALL_REDUCE;
        words.dtype = static_cast<uint8_t>(Dtype::i32);
        words.op = static_cast<uint8_t>(ReduceOp::sum);
        words.group = group[i];
        words.count = n;
        words.timeout_ns = timeout.count();
        words.in = {region[i], 0, 0};
        words.out = {region[i], 0, n * 4};
        std::vector<std::byte> mine(n * 4);
        const auto value = static_cast<int32_t>(i + 1);
        for (uint64_t e = 0; e < n; ++e) std::memcpy(mine.data() + 4 * e, &value, 4);
        std::shared_ptr<StagedMemory> staged;
        if (windows == 0) {
            std::memcpy(memory[i]->data(), mine.data(), mine.size());
        } else {
            staged = std::make_shared<StagedMemory>();
            staged->count = n, staged->element = 4, staged->segments = segments(n), staged->windows = windows;
            for (StagedMemory::Side* side : {&staged->in, &staged->out}) {
                side->stride = nexar_shm_window_bytes(n, staged->segments, 4, 1);
                side->windows = memory[i]->data() + (side == &staged->in ? words.in : words.out).offset;
            }
            words.out.offset = words.in.offset + windows * staged->in.stride;
            staged->out.windows = memory[i]->data() + words.out.offset;
            staged->in.user = mine;
            staged->out.user.resize(n * 4);
            words.flags = NEXAR_SHM_FLAG_STAGED_IN | NEXAR_SHM_FLAG_STAGED_OUT;
            words.stage_windows = windows;
        }
        const uint64_t at = words.out.offset;
        const auto handle = apps[i]->start(
            words,
            [this, i, n, at, staged](const Done& d) {
                ends[i].push_back(d);
                if (d.status != 0) return;
                const std::byte* out = staged ? staged->out.user.data() : memory[i]->data() + at;
                int32_t sum = 0;
                for (size_t r = 0; r < apps.size(); ++r) sum += static_cast<int32_t>(r + 1);
                for (uint64_t e = 0; e < n && wrong.empty(); ++e)
                    if (std::memcmp(out + 4 * e, &sum, 4) != 0)
                        wrong = "rank " + std::to_string(i) + " at " + std::to_string(e);
            },
            staged);
        REQUIRE(handle);
        return {*handle, staged};
    }
    // All that was posted by ranks that live has ended with this error, naming the rank.
    // Who freed the group ends it for the others; who went otherwise is lost.
    void expect_lost(size_t gone, bool freed = false) const {
        for (size_t i = 0; i < apps.size(); ++i) {
            if (i == gone) continue;
            CAPTURE(i);
            REQUIRE(ends[i].size() == 1);
            CAPTURE(ends[i][0].text);
            REQUIRE(ends[i][0].status == static_cast<int32_t>(freed ? Errc::aborted : Errc::peer_lost));
            REQUIRE(ends[i][0].text.contains("rank " + std::to_string(gone) + " "));
        }
    }
    std::string wrong;
};

}  // namespace

TEST_CASE("staged and in-place ranks give right values: all collectives, any windows, one to five nodes",
          "[S12]") {
    for (const uint64_t seed : seeds(80)) {
        CAPTURE(seed);
        Random random(seed * 911 + 5);
        ClusterShape shape = cluster_of(static_cast<uint32_t>(1 + random.below(5)),
                                        static_cast<uint32_t>(1 + random.below(4)));
        shape.network.jitter = Duration(static_cast<int64_t>(random.below(100'000)));
        shape.worker_delay = Duration(static_cast<int64_t>(random.below(100'000)));
        Cluster cluster(seed, shape);
        std::vector<uint32_t> placement(1 + random.below(7));
        for (uint32_t& host : placement) host = static_cast<uint32_t>(random.below(shape.nodes));
        Apps apps = apps_on(cluster, placement);
        Job job(cluster, "job", pointers(apps));
        job.stage(random, 4);
        for (size_t i = 0; i < 1 + random.below(12); ++i) job.add(random_words(random, apps.size()));
        job.start(Duration(static_cast<int64_t>(1 + random.below(100'000))), 1 + random.below(6));

        REQUIRE(cluster.run(60s));

        cluster.check();
        REQUIRE(job.wrong() == "");
        for (const auto& app : apps) REQUIRE(app->core()->in_flight() == 0);
    }
}

TEST_CASE("on one node an operation with a staged rank is cut into segments of a mebibyte") {
    for (const uint64_t seed : seeds(2))
        for (const OpKind kind : collective_kinds) {
            if (!row_of(kind).has_elements) continue;
            CAPTURE(seed, static_cast<int>(kind));
            Random random(seed * 37 + static_cast<uint64_t>(kind));
            Cluster cluster(seed, cluster_of(1));
            Apps apps = apps_on(cluster, {0, 0, 0});
            Job job(cluster, "job", pointers(apps));
            job.stage(random, 2, 1);
            const uint64_t blocks = row_blocks(row_of(kind), 3);
            job.add(words_of(kind, (5u << 18) / blocks + 77, kind == OpKind::reduce ? 1 : 0));
            job.start(10us, 1);

            REQUIRE(cluster.run(60s));

            cluster.check();
            REQUIRE(job.wrong() == "");
        }
    Cluster cluster(1, cluster_of(1));
    REQUIRE(Ranks(cluster, {0, 0}).segment_bytes == 1 << 20);
    Cluster two(1, cluster_of(2));
    REQUIRE(Ranks(two, {0, 1}).segment_bytes == 4096);
}

TEST_CASE("one window is enough, however many lanes there are") {
    for (const uint32_t lanes : {1u, 2u, 5u})
        for (const uint64_t seed : seeds(10)) {
            CAPTURE(seed, lanes);
            Cluster cluster(seed, cluster_of(3, lanes));
            Ranks ranks(cluster, {0, 1, 2, 1});
            for (size_t i = 0; i < 4; ++i) ranks.post(i, i == 3 ? 0 : 1);

            REQUIRE(cluster.run(20s));

            cluster.check();
            REQUIRE(ranks.wrong == "");
            for (const auto& ends : ranks.ends) REQUIRE((ends.size() == 1 && ends[0].status == 0));
        }
}

TEST_CASE("a rank that does not move its bytes is named: in nexarctl ops, when it is late, at the deadline",
          "[S13]") {
    for (const bool one_node : {true, false}) {
        CAPTURE(one_node);
        Cluster cluster(3, cluster_of(3));
        const std::vector<uint32_t> placement{0, one_node ? 0u : 1u, one_node ? 0u : 2u};
        Ranks ranks(cluster, placement);
        ranks.apps[2]->stop_moving();
        for (size_t i = 0; i < 3; ++i) ranks.post(i, i == 0 ? 0 : 2, Ranks::count, 3s);
        cluster.run_for(100ms);
        auto& at = *cluster.hosts[placement[2]];
        const auto ops = at.engine->snapshot(cluster.clock.now()).ops;
        REQUIRE(ops.size() == 1);
        REQUIRE(ops[0].phase.contains("rank 2"));

        REQUIRE(cluster.run(5s));

        const std::string named = "rank 2 (node " + at.id.short_hex() + ", pid ";
        for (const auto& ends : ranks.ends) {
            REQUIRE(ends.size() == 1);
            CAPTURE(ends[0].text);
            REQUIRE((ends[0].status == static_cast<int32_t>(Errc::timed_out) ||
                     ends[0].status == static_cast<int32_t>(Errc::aborted)));
            REQUIRE(ends[0].text.contains(named));
        }
        REQUIRE(std::ranges::any_of(cluster.warnings, [&](const std::string& w) {
            return w.contains("collective_late") && w.contains("rank 2 (");
        }));
        // The group still works, and so does the rank.
        ranks.apps[2]->move_again();
        for (size_t i = 0; i < 3; ++i) ranks.post(i, 2);
        REQUIRE(cluster.run(5s));
        REQUIRE(ranks.wrong == "");
        for (const auto& ends : ranks.ends) REQUIRE((ends.size() == 2 && ends[1].status == 0));
    }
}

TEST_CASE("a session that ends before its staged input is filled: an error for all others, naming it") {
    enum class How { crash, goodbye, free_group };
    for (const How how : {How::crash, How::goodbye, How::free_group})
        for (const bool one_node : {true, false})
            for (const uint64_t seed : seeds(5)) {
                CAPTURE(static_cast<int>(how), one_node, seed);
                Cluster cluster(seed, cluster_of(3));
                Ranks ranks(cluster,
                            one_node ? std::vector<uint32_t>{0, 0, 0} : std::vector<uint32_t>{0, 1, 2});
                // With one window of four segments it has filled the first one only.
                const uint64_t count = one_node ? 1 << 20 : 4096;
                const auto [handle, staged] = ranks.post(1, 1, count);
                for (const size_t i : {0u, 2u}) ranks.post(i, i == 0 ? 0 : 2, count);
                cluster.run_for(cluster.clock.some(10us));
                staged->at_most = 1;
                if (seed % 2 == 0) cluster.run_for(100us);
                ranks.apps[1]->stop_moving();
                cluster.run_for(2ms);
                if (!ranks.ends[1].empty()) continue;  // it was faster
                if (how == How::crash) ranks.apps[1]->kill();
                if (how == How::goodbye) ranks.apps[1]->quit();
                if (how == How::free_group) {
                    nexar_shm_descriptor words{};
                    words.kind = NEXAR_CMD_GROUP_FREE;
                    words.group = ranks.group[1];
                    REQUIRE(ranks.apps[1]->start(words, {}));
                }

                REQUIRE(cluster.run(10s));

                cluster.check();
                ranks.expect_lost(1, how == How::free_group);
                if (how == How::free_group)
                    REQUIRE(ranks.ends[1].at(0).status == static_cast<int32_t>(Errc::closed));
            }
}

TEST_CASE("a session that ends after its input was filled, its output not taken: the others complete") {
    for (const bool crash : {true, false})
        for (const bool one_node : {true, false}) {
            CAPTURE(crash, one_node);
            Cluster cluster(7, cluster_of(3));
            Ranks ranks(cluster, one_node ? std::vector<uint32_t>{0, 0, 0} : std::vector<uint32_t>{0, 1, 2});
            const uint64_t count = one_node ? 1 << 20 : 4096;
            REQUIRE(ranks.segments(count) == 4);
            // Four windows take all four segments at once; it takes nothing out, then it is gone.
            ranks.post(1, 4, count);
            cluster.run_for(1ms);
            ranks.apps[1]->stop_moving();
            if (crash)
                ranks.apps[1]->kill();
            else
                ranks.apps[1]->quit();
            cluster.run_for(1ms);
            for (const size_t i : {0u, 2u}) ranks.post(i, 2, count);

            REQUIRE(cluster.run(10s));

            cluster.check();
            for (const size_t i : {0u, 2u}) {
                REQUIRE(ranks.ends[i].size() == 1);
                // A crash ends the group, with what the others had not handed over by then.
                CAPTURE(ranks.ends[i][0].text);
                REQUIRE(ranks.ends[i][0].status == (crash ? static_cast<int32_t>(Errc::peer_lost) : 0));
            }
            REQUIRE(ranks.wrong == "");
        }
}

TEST_CASE("freeing the group before the output was taken out of few windows: CLOSED here, ABORTED elsewhere",
          "[D7]") {
    Cluster cluster(7, cluster_of(1));
    Ranks ranks(cluster, {0, 0});
    // Input whole in the region, output staged through one window that is never emptied.
    nexar_shm_descriptor words{};
    const uint64_t count = 1 << 20;
    words.kind = NEXAR_OP_ALL_REDUCE;
    words.dtype = static_cast<uint8_t>(Dtype::i32);
    words.op = static_cast<uint8_t>(ReduceOp::sum);
    words.group = ranks.group[0];
    words.count = count;
    words.timeout_ns = -1;
    words.in = {ranks.region[0], 0, 0};
    words.out = {ranks.region[0], 0, 8 << 20};
    words.flags = NEXAR_SHM_FLAG_STAGED_OUT;
    words.stage_windows = 1;
    const int32_t one = 1;
    for (uint64_t e = 0; e < count; ++e) std::memcpy(ranks.memory[0]->data() + 4 * e, &one, 4);
    int32_t status = -99;
    REQUIRE(ranks.apps[0]->start(words, [&](const Done& d) { status = d.status; }));
    ranks.post(1, 2, count);
    cluster.run_for(20ms);
    REQUIRE(ranks.ends[1].empty());

    nexar_shm_descriptor leave{};
    leave.kind = NEXAR_CMD_GROUP_FREE;
    leave.group = ranks.group[0];
    REQUIRE(ranks.apps[0]->start(leave, {}));
    REQUIRE(cluster.run(10s));

    REQUIRE(status == static_cast<int32_t>(Errc::closed));
    REQUIRE(ranks.ends[1].at(0).status == static_cast<int32_t>(Errc::aborted));
    REQUIRE(ranks.ends[1].at(0).text.contains("rank 0 ("));
}

TEST_CASE("a cancel while segments wait for their bytes ends the call on all ranks; the next one works") {
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        Cluster cluster(seed, cluster_of(3));
        Ranks ranks(cluster, {0, 1, 2, 1});
        std::vector<App::Handle> handles;
        for (size_t i = 0; i < 4; ++i) handles.push_back(ranks.post(i, i == 0 ? 0 : 1).first);
        cluster.run_for(cluster.clock.some(1ms));
        const bool stuck = seed % 2 == 0;
        if (stuck) ranks.apps[2]->stop_moving();
        cluster.run_for(cluster.clock.some(500us));
        ranks.apps[seed % 4]->cancel(handles[seed % 4]);
        REQUIRE(cluster.run(10s));
        if (stuck) ranks.apps[2]->move_again();
        for (size_t i = 0; i < 4; ++i) ranks.post(i, 2);

        REQUIRE(cluster.run(10s));

        cluster.check();
        REQUIRE(ranks.wrong == "");
        for (const auto& ends : ranks.ends) {
            REQUIRE(ends.size() == 2);
            REQUIRE((ends[0].status == 0 || ends[0].status == static_cast<int32_t>(Errc::cancelled) ||
                     ends[0].status == static_cast<int32_t>(Errc::aborted)));
            REQUIRE(ends[1].status == 0);
        }
    }
}

TEST_CASE("a rank that leaves after a cancelled staged call has handed over what it did after that") {
    Cluster cluster(1, cluster_of(2));
    Ranks ranks(cluster, {0, 0, 1});
    const auto handle = ranks.post(0, 1).first;
    ranks.apps[0]->stop_moving();
    cluster.run_for(1ms);
    ranks.apps[0]->cancel(handle);
    cluster.run_for(1ms);
    REQUIRE(ranks.ends[0].size() == 1);  // its sibling has not come to the call yet
    ranks.post(0, 0);
    cluster.run_for(1ms);
    ranks.apps[0]->quit();
    cluster.run_for(1ms);
    for (size_t i = 1; i < 3; ++i) ranks.post(i, 0);
    cluster.run_for(1ms);
    for (size_t i = 1; i < 3; ++i) ranks.post(i, 0);
    REQUIRE(cluster.run(10s));
    cluster.check();
    REQUIRE(ranks.wrong == "");
    for (size_t i = 1; i < 3; ++i) {
        CAPTURE(i, ranks.ends[i][1].text);
        REQUIRE(ranks.ends[i][0].status == static_cast<int32_t>(Errc::aborted));
        REQUIRE(ranks.ends[i][1].status == 0);
    }
}

TEST_CASE("counts that a client makes up end its calls somehow, and spoil nothing but its own group") {
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        Random random(seed * 53 + 1);
        Cluster cluster(seed, cluster_of(2));
        Ranks liars(cluster, {0, 1, 0});
        Apps apps = apps_on(cluster, {0, 1});
        Job honest(cluster, "honest", pointers(apps));
        honest.stage(random, 3);
        for (size_t i = 0; i < 6; ++i) honest.add(random_words(random, 2));
        honest.start(50us, 2);
        const auto [handle, staged] = liars.post(0, 1 + static_cast<uint32_t>(random.below(3)));
        if (random.one_in(2)) liars.apps[0]->stop_moving();
        for (size_t i = 1; i < 3; ++i) liars.post(i, 1);
        for (int i = 0; i < 8; ++i)
            cluster.clock.after(cluster.clock.some(400us), [&, h = handle] {
                const uint32_t counts[] = {
                    0, 1, 3, UINT32_MAX, UINT32_MAX - 1, static_cast<uint32_t>(random.next())};
                if (!liars.apps[0]->ended())
                    liars.apps[0]->lie(h, counts[random.below(6)], counts[random.below(6)]);
            });
        cluster.clock.after(2ms, [&, h = handle] {  // at the latest it says all, so that nobody waits
            if (!liars.apps[0]->ended()) liars.apps[0]->lie(h, UINT32_MAX, UINT32_MAX);
        });

        REQUIRE(cluster.run(20s));

        cluster.check();
        REQUIRE(honest.wrong() == "");
        for (const auto& ends : liars.ends) REQUIRE((ends.size() == 1 && ends[0].status == 0));
    }
}

TEST_CASE("sessions that die at any moment of staged calls: one error for the others of their group") {
    for (const uint64_t seed : seeds(80)) {
        CAPTURE(seed);
        Random random(seed * 613 + 2);
        const auto nodes = static_cast<uint32_t>(1 + random.below(4));
        Cluster cluster(seed, cluster_of(nodes));
        std::vector<uint32_t> placement(6);
        for (uint32_t& host : placement) host = static_cast<uint32_t>(random.below(nodes));
        Apps apps = apps_on(cluster, placement);
        Job hit(cluster, "hit", {apps[0].get(), apps[1].get(), apps[2].get(), apps[3].get()});
        Job whole(cluster, "whole", {apps[1].get(), apps[4].get(), apps[5].get()});
        hit.stage(random, 3, 0);
        whole.stage(random, 3);
        for (int i = 0; i < 12; ++i) hit.add(random_words(random, 4)), whole.add(random_words(random, 3));
        hit.start(40us, 1 + random.below(4));
        whole.start(40us, 1 + random.below(4));
        cluster.clock.after(cluster.clock.some(4ms), [&] { apps[0]->kill(); });
        if (random.one_in(3)) cluster.clock.after(cluster.clock.some(4ms), [&] { apps[2]->quit(); });

        const bool finished = cluster.run(60s);
        INFO(cluster.state());
        REQUIRE(finished);

        cluster.check();
        REQUIRE(whole.wrong() == "");
        REQUIRE(hit.wrong_results() == "");
        REQUIRE(hit.errors().size() <= 1);
        for (size_t i = 1; i < 6; ++i) REQUIRE(apps[i]->pending() == 0);
    }
}

TEST_CASE("beginning a staged segment before its input was filled is noticed") {
    const auto right = [](bool sabotaged) {
        ClusterShape shape = cluster_of(2);
        shape.engine.sabotage.begin_before_filled = sabotaged;
        Cluster cluster(1, shape);
        Ranks ranks(cluster, {0, 1});
        for (size_t i = 0; i < 2; ++i) ranks.post(i, 2);
        return cluster.run(10s) && ranks.wrong.empty();
    };
    REQUIRE(right(false));
    REQUIRE_FALSE(right(true));
}

}  // namespace nexar::sim
