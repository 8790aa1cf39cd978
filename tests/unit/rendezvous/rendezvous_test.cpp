// Meeting: who gets which rank, who is refused and why, who is missing.
#include "rendezvous/rendezvous.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

bool says(const Error& error, std::string_view what) {
    UNSCOPED_INFO(error.text);
    return error.text.find(what) != std::string::npos;
}
wire::GroupOpen wish(unsigned node, uint64_t number, int64_t rank) {
    return {{node_id(node), number}, {}, "g", 0, rank, 0};
}

TEST_CASE("automatic ranks fill the free numbers, by host, node, process and open", "[rendezvous][R4]") {
    CHECK(assign_ranks({wish(2, 1, -1), wish(0, 1, -1), wish(2, 2, -1), wish(0, 2, -1)}, 4) ==
          std::vector<uint32_t>{2, 0, 3, 1});
    CHECK(assign_ranks({wish(2, 1, -1), wish(0, 1, 1), wish(2, 2, -1), wish(0, 2, -1)}, 4) ==
          std::vector<uint32_t>{2, 1, 3, 0});
    CHECK(assign_ranks({wish(1, 1, 3), wish(1, 2, 0), wish(0, 1, 2), wish(1, 3, 1)}, 4) ==
          std::vector<uint32_t>{3, 0, 2, 1});
    // Names first: the higher node is on the host that comes first; two nodes on one host stay apart.
    const auto host_of = [](const NodeId& node) {
        return node == node_id(2) ? std::string("a") : std::string("b");
    };
    CHECK(assign_ranks({wish(1, 1, -1), wish(0, 1, -1), wish(2, 2, -1), wish(1, 2, -1)}, 4, host_of) ==
          std::vector<uint32_t>{2, 1, 0, 3});
    // The process, and not the number that its open got.
    wire::GroupOpen late = wish(0, 1, -1), early = wish(0, 2, -1);
    late.pid = 90, early.pid = 80;
    CHECK(assign_ranks({late, early}, 2) == std::vector<uint32_t>{1, 0});
}

TEST_CASE("the same processes get the same automatic ranks in whatever order they come", "[rendezvous][R4]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Random random(seed * 31);
        const unsigned nodes = 1 + static_cast<unsigned>(random.below(5));
        const uint32_t size = 2 + static_cast<uint32_t>(random.below(15));
        std::vector<std::pair<unsigned, uint32_t>> processes;  // node, pid
        for (uint32_t i = 0; i < size; ++i)
            processes.emplace_back(static_cast<unsigned>(random.below(nodes)), 100 + i);
        // What must come out: hosts in the order of their names, which is not that of the nodes.
        auto expected = processes;
        std::ranges::sort(expected, {},
                          [](const auto& p) { return std::pair(Cluster::host_of(p.first), p.second); });
        for (int round = 0; round < 3; ++round) {
            auto order = processes;
            for (uint32_t i = size; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
            Cluster cluster(nodes, seed + static_cast<uint64_t>(round) * 1000);
            for (const auto& [node, pid] : order) {
                cluster.open_as(pid, node, "train", size);
                if (random.one_in(2)) cluster.run(Duration(static_cast<int64_t>(random.below(4'000'000))));
            }
            cluster.run(ms(60));
            for (const auto& opener : cluster.openers()) {
                REQUIRE(opener.group);
                REQUIRE(expected[opener.rank] == std::pair(opener.node, opener.spec.pid));
            }
        }
    }
}

TEST_CASE("1 to 17 ranks on 1 to 5 nodes meet in any order of arrival", "[rendezvous]") {
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        Random random(seed * 77);
        const unsigned nodes = 1 + static_cast<unsigned>(random.below(5));
        const uint32_t size = 1 + static_cast<uint32_t>(random.below(17));
        Cluster cluster(nodes, seed);
        std::vector<int64_t> ranks(size);
        for (uint32_t i = 0; i < size; ++i) ranks[i] = i;
        for (uint32_t i = size; i > 1; --i) std::swap(ranks[i - 1], ranks[random.below(i)]);
        const bool given = random.one_in(2);
        for (uint32_t i = 0; i < size; ++i) {
            cluster.open(static_cast<unsigned>(random.below(nodes)), "train", size, given ? ranks[i] : -1);
            if (random.one_in(2)) cluster.run(Duration(static_cast<int64_t>(random.below(4'000'000))));
        }
        cluster.run(ms(30));

        cluster.require_all_answered();
        REQUIRE(cluster.groups() == 1);
        std::set<uint32_t> seen;
        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.group);
            seen.insert(opener.rank);
        }
        REQUIRE(seen.size() == size);
        REQUIRE(*seen.rbegin() == size - 1);
        for (unsigned node = 0; node < nodes; ++node) REQUIRE(cluster[node].pending() == 0);
    }
}

TEST_CASE("nodes that become acquainted only after the opens still meet", "[rendezvous]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Cluster cluster(4, seed, false);
        for (unsigned node = 0; node < 4; ++node) cluster.open(node, "train", 4, 3 - node);
        Random random(seed);
        std::vector<std::pair<unsigned, unsigned>> pairs;
        for (unsigned a = 0; a < 4; ++a)
            for (unsigned b = a + 1; b < 4; ++b) pairs.emplace_back(a, b);
        for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[random.below(i)]);
        for (auto [a, b] : pairs) {
            cluster.run(ms(static_cast<int64_t>(random.below(100))));
            cluster.link(a, b);
        }
        cluster.run(ms(1000));
        cluster.require_all_answered();
        for (const auto& opener : cluster.openers()) REQUIRE(opener.group);
    }
}

TEST_CASE("two groups at once with the same members do not disturb each other", "[rendezvous]") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        for (int64_t rank = 0; rank < 6; ++rank) {
            const auto node = static_cast<unsigned>(rank % 3);
            const bool first = (static_cast<uint64_t>(rank) + seed) % 2;
            cluster.open(node, first ? "a" : "b", 6, first ? rank : -1);
            cluster.open(node, first ? "b" : "a", 6, first ? -1 : rank);
        }
        cluster.run(ms(40));
        cluster.require_all_answered();
        REQUIRE(cluster.groups() == 2);
    }
}

TEST_CASE("a name is opened again while the older group exists, as another group", "[rendezvous][R13]") {
    Cluster cluster(2, 5);
    for (int round = 0; round < 3; ++round) {
        cluster.open(0, "train", 2, 1);
        cluster.open(1, "train", 2, 0);
        cluster.run(ms(30));
    }
    REQUIRE(cluster.groups() == 3);
    std::set<GroupId> ids;
    for (const auto& opener : cluster.openers()) ids.insert(*opener.group);
    CHECK(ids.size() == 3);
}

TEST_CASE("a local group forms without the others, and two nodes' local groups never meet", "[rendezvous]") {
    Cluster cluster(3, 5);
    const size_t before = cluster.messages();
    cluster.open(2, "mine", 2, -1, ms(1000), true);
    cluster.open(2, "mine", 2, -1, ms(1000), true);
    CHECK(cluster.openers()[0].group);
    CHECK(cluster.openers()[1].group);
    CHECK(cluster.messages() == before);

    Cluster alone(1, 5);
    alone.open(0, "mine", 1);
    CHECK(alone.openers()[0].group);
}

TEST_CASE("a rank asked for twice: the latecomer is refused naming both, the others go on",
          "[rendezvous][R3]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Cluster cluster(3, seed);
        cluster.open(1, "train", 3, 1);
        cluster.run(ms(20));
        const size_t late = cluster.open(2, "train", 3, 1);
        cluster.run(ms(20));
        cluster.open(0, "train", 3, 0);
        cluster.open(2, "train", 3, 2);
        cluster.run(ms(30));

        const auto& refused = cluster.openers()[late];
        REQUIRE(refused.failed);
        CHECK(refused.failed->code == Errc::rank_clash);
        CHECK(says(*refused.failed, "rank 1 is asked for twice"));
        CHECK(says(*refused.failed, "check --node-index, NEXAR_RANK"));
        CHECK(says(*refused.failed, "pid 1 on node host1"));
        CHECK(says(*refused.failed, "pid 2 on node host2"));
        for (size_t i : {0u, 2u, 3u}) REQUIRE(cluster.openers()[i].group);
    }
}

TEST_CASE("some ask for a rank, some for any: the latecomer is refused naming both", "[rendezvous]") {
    for (const int64_t first : {0, -1}) {
        CAPTURE(first);
        Cluster cluster(2, 3);
        cluster.open(1, "train", 2, first);
        cluster.run(ms(20));
        const size_t late = cluster.open(0, "train", 2, first < 0 ? 1 : -1);
        cluster.run(ms(20));
        const auto& refused = cluster.openers()[late];
        REQUIRE(refused.failed);
        CHECK(refused.failed->code == Errc::rank_clash);
        CHECK(says(*refused.failed, "pid 1 on node host1"));
        CHECK(says(*refused.failed, "pid 2 on node host0"));
        CHECK(refused.failed->pid == 2);
        CHECK(refused.failed->node == node_id(0).hex());
        REQUIRE_FALSE(cluster.openers()[0].answered_at_all());
    }
}

TEST_CASE("[U2] different sizes under one name: one class of error for all who wait, naming both",
          "[rendezvous][R3]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        cluster.open(1, "train", 3, 0);
        cluster.open(2, "train", 3, 1);
        cluster.run(ms(20));
        cluster.open(0, "train", 4, 2);
        cluster.run(ms(20));

        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.failed);
            CHECK(opener.failed->code == Errc::options_differ);
            CHECK(says(*opener.failed, "different sizes, 3 and 4"));
            CHECK(says(*opener.failed, "on node host0"));
            CHECK(opener.failed->pid == 3);
        }
        // Nothing of it is left: what was corrected meets.
        for (unsigned node = 0; node < 3; ++node) cluster.open(node, "train", 3, node);
        cluster.run(ms(30));
        REQUIRE(cluster.groups() == 1);
    }
}

TEST_CASE("time-outs are agreed: silence takes what the others say, or else the leader's configuration",
          "[rendezvous][R18]") {
    using Record = wire::TimeoutsRecord;
    struct Case {
        Record first, second, third, agreed;
    };
    // Config{} has 30 s for all three.
    const Case cases[] = {
        {{}, {}, {}, {30'000, 30'000, 30'000}},
        {{5000, -1, -1}, {}, {}, {5000, 5000, 30'000}},  // barriers as collectives
        {{}, {}, {-1, 7000, 0}, {30'000, 7000, 0}},
        {{0, -1, -1}, {0, 60'000, -1}, {-1, -1, 9}, {0, 60'000, 9}},
    };
    for (uint64_t seed = 1; seed <= 6; ++seed)
        for (const Case& c : cases) {
            CAPTURE(seed, &c - cases);
            Cluster cluster(3, seed);
            cluster.open(seed % 3, "train", 3, 0, ms(5000), false, c.first);
            cluster.open((seed + 1) % 3, "train", 3, 1, ms(5000), false, c.second);
            cluster.run(ms(static_cast<int64_t>(seed % 50)));  // far from the deadline, whatever the seed
            cluster.open((seed + 2) % 3, "train", 3, 2, ms(5000), false, c.third);
            cluster.run(ms(30));
            for (const auto& opener : cluster.openers()) {
                REQUIRE(opener.group);
                CHECK(cluster.group(*opener.group).timeouts == c.agreed);
            }
        }
}

TEST_CASE("two who say different time-outs: OPTIONS_DIFFER for all who wait, naming both values",
          "[rendezvous]") {
    using Record = wire::TimeoutsRecord;
    const std::tuple<Record, Record, std::string_view> cases[] = {
        {{5000, -1, -1}, {6000, -1, -1}, "different collective time-outs, 5000 ms and 6000 ms"},
        {{-1, 0, -1}, {-1, 1, -1}, "different barrier time-outs, none and 1 ms"},
        {{1, 2, 3}, {1, 2, 0}, "different rpc time-outs, 3 ms and none"},
    };
    for (const auto& [first, second, text] : cases) {
        Cluster cluster(3, 3);
        cluster.open(2, "train", 3, 2);  // says nothing, and is refused with them
        cluster.open(1, "train", 3, 0, ms(5000), false, first);
        cluster.run(ms(20));
        cluster.open(0, "train", 3, 1, ms(5000), false, second);
        cluster.run(ms(20));
        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.failed);
            CHECK(opener.failed->code == Errc::options_differ);
            CHECK(says(*opener.failed, text));
            CHECK(says(*opener.failed,
                       "first by rank 0, pid 2 on node host1, now by rank 1, pid 3 on node host0"));
        }
    }
    // An open that was withdrawn does not count.
    Cluster cluster(2, 3);
    const size_t gone = cluster.open(1, "train", 3, 0, ms(5000), false, {5000, -1, -1});
    cluster.open(1, "train", 3, 1);
    cluster.run(ms(10));
    cluster.withdraw(gone);
    cluster.run(ms(10));
    cluster.open(0, "train", 3, 0, ms(5000), false, {6000, -1, -1});
    cluster.open(0, "train", 3, 2);
    cluster.run(ms(30));
    REQUIRE(cluster.groups() == 1);
    CHECK(cluster.group(*cluster.openers()[1].group).timeouts.collective_ms == 6000);
}

TEST_CASE("different sizes are an error for all that wait and for the new one, and later ones begin anew",
          "[rendezvous]") {
    Cluster cluster(2, 3);
    cluster.open(0, "train", 3, 0);
    cluster.open(1, "train", 3, 1);
    cluster.run(ms(10));
    cluster.open(1, "train", 2, 1);
    cluster.run(ms(10));
    for (const auto& opener : cluster.openers()) {
        REQUIRE(opener.failed);
        CHECK(opener.failed->code == Errc::options_differ);
    }
    cluster.open(0, "train", 2, 0);
    cluster.open(1, "train", 2, 1);
    cluster.run(ms(30));
    CHECK(cluster.openers()[3].group);
    CHECK(cluster.openers()[4].group);
}

TEST_CASE("an open without a deadline waits as long as it takes", "[rendezvous]") {
    Cluster cluster(2, 3);
    cluster.open(1, "train", 2, 0, Duration{0});
    cluster.run(std::chrono::hours(48));
    REQUIRE_FALSE(cluster.openers()[0].answered_at_all());
    cluster.open(0, "train", 2, 1);
    cluster.run(ms(30));
    CHECK(cluster.groups() == 1);
}

TEST_CASE("more openers than the size: the first ones meet, the rest learns who is missing", "[rendezvous]") {
    Cluster cluster(2, 3);
    for (int i = 0; i < 5; ++i) cluster.open(static_cast<unsigned>(i % 2), "train", 2, -1, ms(1000));
    cluster.run(ms(3000));
    cluster.require_all_answered();
    size_t opened = 0;
    for (const auto& opener : cluster.openers()) {
        opened += opener.group.has_value();
        if (opener.failed) CHECK(opener.failed->code == Errc::group_incomplete);
    }
    CHECK(opened == 4);
    CHECK(cluster.groups() == 2);
}

TEST_CASE("a group that never fills fails at the deadline, naming who came and who is missing",
          "[rendezvous][R11]") {
    for (unsigned nodes : {1u, 3u}) {
        Cluster cluster(nodes, 3);
        cluster.open(0, "train", 4, 0, ms(2000));
        cluster.open(nodes - 1, "train", 4, 2, ms(2000));
        cluster.run(ms(1999));
        REQUIRE_FALSE(cluster.openers()[0].answered_at_all());
        cluster.run(ms(400));

        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.failed);
            CHECK(opener.failed->code == Errc::group_incomplete);
            CHECK(opener.answered <= opener.deadline + ms(300));
            CHECK(says(*opener.failed, "missing: rank 1"));
            CHECK(opener.failed->rank == 1);
        }
        CHECK(says(*cluster.openers()[0].failed,
                   "2 came: rank 0 (pid 1 on node host0), rank 2 (pid 2 on node host"));
    }
}

TEST_CASE("an open that gave up shortly before is not counted among those that came", "[rendezvous][R11]") {
    for (const auto& [nodes, automatic] : {std::pair(1u, false), std::pair(3u, false), std::pair(3u, true)}) {
        Cluster cluster(nodes, 3);
        cluster.open(0, "train", 2, automatic ? -1 : 0, ms(1000));
        cluster.run(ms(1200));
        cluster.open(nodes - 1, "train", 2, automatic ? -1 : 1, ms(800));
        cluster.open(nodes - 1, "other", 3, automatic ? -1 : 1, ms(900));
        cluster.run(ms(1200));
        const auto& failed = cluster.openers()[1].failed;
        REQUIRE(failed);
        CAPTURE(failed->text, nodes, automatic);
        const std::string who = automatic ? "automatic rank" : "rank 0";
        CHECK(says(*failed, "after 800 ms: its ranks were not there at the same time. "));
        CHECK(says(*failed, ". 1 came: "));
        CHECK(says(*failed, "; 1 gave up before: " + who + " (pid 1 on node host0)"));
        CHECK(failed->rank == (automatic ? -1 : 0));
        CHECK(says(*cluster.openers()[2].failed, ". 1 came: "));
        CHECK(!says(*cluster.openers()[2].failed, "gave up"));
    }
}

TEST_CASE("the text of an open that failed says how long it waited, what to look at and how to wait longer",
          "[rendezvous][U8]") {
    Cluster cluster(2, 3);
    cluster.open(0, "train", 2, 0, ms(2000));
    cluster.open(1, "train", 2, -1, ms(1500), true);
    cluster.run(ms(3000));
    for (const auto& opener : cluster.openers()) {
        REQUIRE(opener.failed);
        CHECK(says(*opener.failed, "timeout_ms, or NEXAR_OPEN_TIMEOUT_SECS"));
    }
    const Error &far = *cluster.openers()[0].failed, &local = *cluster.openers()[1].failed;
    CHECK(says(far, "group \"train\" of 2 after 2 s: missing: rank 1."));
    CHECK(says(far, "this name, size and job_secret?"));
    CHECK(says(local, "after 1500 ms: missing: 1 of any rank."));
    CHECK(says(local, "With no job_secret only processes of this host and user can meet"));
}

TEST_CASE("with the longest name and long lists the text still says what to do within what is kept of it",
          "[rendezvous]") {
    Cluster cluster(2, 3);
    cluster.open(1, std::string(128, 'n'), 4096, 4095, ms(23'456'789), true);
    cluster.run(std::chrono::hours(7));
    const std::string kept = cluster.openers()[0].failed->text.substr(0, 511);
    INFO(kept);
    CHECK(kept.find("NEXAR_OPEN_TIMEOUT_SECS") != std::string::npos);
}

TEST_CASE("with automatic ranks the count of the missing is named, and long lists are cut", "[rendezvous]") {
    Cluster cluster(2, 3);
    cluster.open(1, "train", 4, -1, ms(500));
    cluster.open(1, "big", 1000, 7, ms(500));
    cluster.run(ms(1000));
    CHECK(says(*cluster.openers()[0].failed, "1 came: automatic rank (pid 1 on node host1)"));
    CHECK(says(*cluster.openers()[0].failed, "missing: 3 of any rank."));
    CHECK(says(*cluster.openers()[1].failed, "rank 12 and 987 more"));
}

TEST_CASE("an opener that gives up or dies is not waited for, and its rank is free again",
          "[rendezvous][R12]") {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        const size_t gone = cluster.open(2, "train", 2, 1);
        cluster.run(ms(10));
        cluster.withdraw(gone);
        cluster.run(ms(10));
        cluster.open(1, "train", 2, 0);
        cluster.run(ms(20));
        REQUIRE_FALSE(cluster.openers()[1].answered_at_all());
        cluster.open(0, "train", 2, 1);
        cluster.run(ms(20));
        REQUIRE(cluster.openers()[1].group);
        REQUIRE(cluster.openers()[2].group);
    }
}

TEST_CASE("an opener that dies at any moment leaves the others a group or the wait for another",
          "[rendezvous][R12]") {
    size_t started_without_it = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        for (unsigned node = 0; node < 3; ++node) cluster.open(node, "train", 3, node, ms(3000));
        cluster.run(Duration(static_cast<int64_t>(seed * 40'000)));
        cluster.withdraw(seed % 3);
        cluster.run(ms(500));
        if (cluster.gone() > 0) {
            ++started_without_it;  // it was too late: the group is formed, with that rank lost
        } else if (cluster.openers()[seed % 3].withdrawn) {
            cluster.open(static_cast<unsigned>(seed % 2), "train", 3, static_cast<int64_t>(seed % 3));
            cluster.run(ms(500));
        }
        for (const auto& opener : cluster.openers())
            if (!opener.withdrawn) REQUIRE(opener.group);
    }
    CHECK(started_without_it > 0);
}

TEST_CASE("an invalid open is refused at once, with the allowed values", "[rendezvous][R14]") {
    Cluster cluster(1, 1);
    auto error_of = [&](OpenSpec spec) {
        const auto result = cluster[0].open(spec, cluster.now());
        REQUIRE_FALSE(result);
        return result.error();
    };
    const OpenSpec good{SessionId{1}, {}, false, "train", 4, -1, 9, ms(100)};
    auto with = [&](auto change) {
        OpenSpec spec = good;
        change(spec);
        return error_of(spec);
    };
    CHECK(says(with([](OpenSpec& s) { s.name = ""; }), "1 to 128 bytes"));
    CHECK(says(with([](OpenSpec& s) { s.name = std::string(129, 'x'); }), "1 to 128 bytes"));
    CHECK(says(with([](OpenSpec& s) { s.name = "a\nb"; }), "control characters"));
    CHECK(says(with([](OpenSpec& s) { s.size = 0; }), "allowed is 1 to 65536"));
    CHECK(says(with([](OpenSpec& s) { s.size = 65537; }), "allowed is 1 to 65536"));
    CHECK(says(with([](OpenSpec& s) { s.rank = 4; }), "allowed is 0 to 3"));
    CHECK(says(with([](OpenSpec& s) { s.rank = -2; }), "allowed is 0 to 3"));
    for (int i = 0; i < 256; ++i) REQUIRE(cluster[0].open(good, cluster.now()));
}

TEST_CASE("a full directory refuses, naming its limit", "[rendezvous][R14]") {
    Config config = config_of(node_id(0));
    config.directory_max = 2;
    Rendezvous machine(config);
    machine.on_peer_up(node_id(1), {}, Time{});
    for (uint64_t n = 1; n <= 3; ++n)
        machine.on_message(node_id(1), wire::GroupOpen{{node_id(1), n}, key_of("g"), "g", 9, -1, 1}, Time{});
    const auto action = machine.poll_action();
    REQUIRE(action);
    const auto& refused = std::get<wire::GroupRefused>(std::get<Send>(*action).message);
    CHECK(refused.id.number == 3);
    CHECK(refused.error.code == Errc::table_full);
}

}  // namespace
}  // namespace nexar::rendezvous
