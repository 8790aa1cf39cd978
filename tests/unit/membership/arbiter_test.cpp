// Whatever fails, every remaining node of a group ends it with the same error within the maximum time of
// docs/protocol/failure.md.
#include "membership/arbiter.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "failure_cluster.hpp"

namespace nexar::membership {
namespace {

constexpr Duration silence_bound = ms(5250 + 50);  // T + Q, and delays of up to 2 ms per hop
constexpr Duration killed_bound = ms(850 + 50);    // W + Q

// All of `who` have this error, with the same text, by `since + bound`.
void require_all(const FailureCluster& cluster, const GroupId& group, const std::vector<unsigned>& who,
                 Errc code, int64_t rank, int64_t other, Time since, Duration bound) {
    const Error* first = cluster.end_of(who[0], group);
    for (unsigned node : who) {
        CAPTURE(node);
        const Error* error = cluster.end_of(node, group);
        REQUIRE(error);
        REQUIRE(first);
        INFO(error->text);
        REQUIRE(error->code == code);
        REQUIRE(error->rank == rank);
        REQUIRE(error->other_rank == other);
        REQUIRE(error->text == first->text);
        REQUIRE(*cluster.decided_at(node, group) <= since + bound);
    }
}

std::vector<unsigned> all_but(unsigned count, unsigned out) {
    std::vector<unsigned> list;
    for (unsigned i = 0; i < count; ++i)
        if (i != out) list.push_back(i);
    return list;
}
std::vector<unsigned> all_of(unsigned count) {
    return all_but(count, count);
}

TEST_CASE("a killed node is named by every survivor, also when it was the arbiter", "[membership][F8]") {
    for (uint64_t seed = 1; seed <= 30; ++seed)
        for (unsigned count = 2; count <= 5; ++count)
            for (unsigned victim = 0; victim < count; ++victim) {
                CAPTURE(seed, count, victim);
                FailureCluster cluster(count, seed);
                const GroupId group = cluster.make_group(all_of(count));
                cluster.run(ms(3000));

                const Time killed = cluster.now();
                cluster.kill(victim);
                cluster.run(ms(3000));

                require_all(cluster, group, all_but(count, victim), Errc::peer_lost, victim, -1, killed,
                            killed_bound);
            }
}

TEST_CASE("a coordinator that dies when one node has its message only: all others end alike",
          "[membership][G1]") {
    for (uint64_t seed = 1; seed <= 30; ++seed)
        for (const unsigned reached : {1u, 2u, 3u}) {
            CAPTURE(seed, reached);
            FailureCluster cluster(4, seed);
            const GroupId group = cluster.make_group({0, 1, 2, 3});
            cluster.run(ms(2000));
            for (const unsigned other : {1u, 2u, 3u})
                if (other != reached) cluster.cut(0, other);

            cluster.rank_lost(3, group, 3, 3, "killed by signal 9");
            cluster.run(ms(3));
            const Time killed = cluster.now();
            cluster.kill(0);
            cluster.run(ms(7000));

            const Error* first = cluster.end_of(1, group);
            REQUIRE(first);
            require_all(cluster, group, {1, 2, 3}, Errc::peer_lost, first->rank, -1, killed, silence_bound);
            REQUIRE((first->rank == 0 || first->rank == 3));
        }
}

TEST_CASE("a silent node is named within the silence timeout and one question", "[membership][F9]") {
    for (uint64_t seed = 1; seed <= 10; ++seed)
        for (unsigned count = 2; count <= 5; ++count)
            for (unsigned victim = 0; victim < count; ++victim) {
                CAPTURE(seed, count, victim);
                FailureCluster cluster(count, seed);
                const GroupId group = cluster.make_group(all_of(count));
                cluster.run(ms(2500));

                const Time stopped = cluster.now();
                cluster.stop(victim);
                cluster.run(ms(4000));
                REQUIRE_FALSE(cluster.end_of(victim == 0 ? 1 : 0, group));
                cluster.run(ms(2000));

                require_all(cluster, group, all_but(count, victim), Errc::peer_lost, victim, -1, stopped,
                            silence_bound);
            }
}

TEST_CASE("a stopped node that resumes reports no suspicion and receives the group's end", "[membership]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        FailureCluster cluster(3, seed);
        const GroupId group = cluster.make_group({0, 1, 2});
        cluster.run(ms(2000));
        const Time stopped = cluster.now();
        cluster.stop(0);
        cluster.run(ms(20000));
        const size_t before = cluster.reports_sent();

        cluster.go_on(0);
        cluster.run(ms(2000));

        REQUIRE(cluster.reports_sent() == before);
        require_all(cluster, group, {1, 2}, Errc::peer_lost, 0, -1, stopped, silence_bound);
        require_all(cluster, group, {0, 1, 2}, Errc::peer_lost, 0, -1, stopped, ms(22000));
    }
}

TEST_CASE("a short stop of a node ends no group", "[membership]") {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        FailureCluster cluster(3, seed);
        const GroupId group = cluster.make_group({0, 1, 2});
        cluster.run(ms(2000));
        cluster.stop(seed % 3);
        cluster.run(ms(3500));
        cluster.go_on(seed % 3);
        cluster.run(ms(10000));

        for (unsigned node = 0; node < 3; ++node) REQUIRE_FALSE(cluster.end_of(node, group));
        REQUIRE(cluster.reports_sent() == 0);
    }
}

// Those that suspected it receive from it again, each in its own time, and maybe after the question.
TEST_CASE("a node that is stopped for about the silence timeout is lost, or nobody is; no link is",
          "[membership][F9]") {
    int lost = 0, kept = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed)
        for (unsigned count = 2; count <= 5; ++count)
            for (int64_t span = 4800; span <= 5500; span += 10) {
                const auto victim = static_cast<unsigned>((static_cast<uint64_t>(span / 10) + seed) % count);
                CAPTURE(seed, count, victim, span);
                FailureCluster cluster(count, seed);
                const GroupId group = cluster.make_group(all_of(count));
                cluster.run(ms(2000));
                const Time stopped = cluster.now();
                cluster.stop(victim);
                cluster.run(ms(span));
                cluster.go_on(victim);
                cluster.run(ms(5000));

                const bool ended = cluster.end_of(victim == 0 ? 1 : 0, group) != nullptr;
                ++(ended ? lost : kept);
                if (ended)
                    require_all(cluster, group, all_of(count), Errc::peer_lost, victim, -1, stopped,
                                ms(10'000));
                for (unsigned node = 0; node < count; ++node) {
                    CAPTURE(node);
                    REQUIRE((cluster.end_of(node, group) != nullptr) == ended);
                }
            }
    CHECK(lost > 0);
    CHECK(kept > 0);
}

TEST_CASE("a one-way cut is a lost link, also for the node that receives from all others", "[membership]") {
    for (uint64_t seed = 1; seed <= 10; ++seed)
        for (unsigned from = 0; from < 3; ++from)
            for (unsigned to = 0; to < 3; ++to) {
                if (from == to) continue;
                CAPTURE(seed, from, to);
                FailureCluster cluster(3, seed);
                const GroupId group = cluster.make_group({0, 1, 2});
                cluster.run(ms(2000));

                const Time since = cluster.now();
                cluster.cut(from, to);
                cluster.run(ms(7000));

                require_all(cluster, group, {0, 1, 2}, Errc::link_lost, std::min(from, to),
                            std::max(from, to), since, silence_bound);
            }
}

TEST_CASE("a cut between two nodes that both reach the others is the same lost link for all",
          "[membership][F9]") {
    for (uint64_t seed = 1; seed <= 20; ++seed)
        for (unsigned count = 3; count <= 5; ++count)
            for (unsigned a = 0; a < count; ++a)
                for (unsigned b = a + 1; b < count; ++b) {
                    CAPTURE(seed, count, a, b);
                    FailureCluster cluster(count, seed);
                    const GroupId group = cluster.make_group(all_of(count));
                    cluster.run(ms(2000));

                    const Time since = cluster.now();
                    cluster.cut_both(a, b);
                    cluster.run(ms(7000));

                    require_all(cluster, group, all_of(count), Errc::link_lost, a, b, since, silence_bound);
                }
}

TEST_CASE("in a group of two a cut ends both sides, each naming the other", "[membership]") {
    FailureCluster cluster(2, 5);
    const GroupId group = cluster.make_group({0, 1}, {0, 3});
    cluster.run(ms(2000));
    const Time since = cluster.now();
    cluster.cut_both(0, 1);
    cluster.run(ms(7000));

    require_all(cluster, group, {0}, Errc::peer_lost, 3, -1, since, silence_bound);
    require_all(cluster, group, {1}, Errc::peer_lost, 0, -1, since, silence_bound);
}

TEST_CASE("in a group of two a one-way cut gives both sides the same error", "[membership]") {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        FailureCluster cluster(2, seed);
        const GroupId group = cluster.make_group({0, 1});
        cluster.run(ms(2000));
        const Time since = cluster.now();
        cluster.cut(0, 1);
        cluster.run(ms(7000));
        require_all(cluster, group, {0, 1}, Errc::peer_lost, 0, -1, since, silence_bound);
    }
}

TEST_CASE("nodes outside the group neither decide about it nor get messages of it", "[membership]") {
    FailureCluster cluster(4, 3);
    const GroupId group = cluster.make_group({1, 3});
    cluster.run(ms(1000));
    const Time since = cluster.now();
    cluster.kill(3);
    cluster.run(ms(3000));

    require_all(cluster, group, {1}, Errc::peer_lost, 1, -1, since, killed_bound);
    REQUIRE_FALSE(cluster.end_of(0, group));
    REQUIRE_FALSE(cluster.end_of(2, group));
}

TEST_CASE("a group made while a member is already suspected ends as soon", "[membership]") {
    FailureCluster cluster(3, 3);
    cluster.kill(1);
    cluster.run(ms(2000));
    const Time since = cluster.now();
    const GroupId group = cluster.make_group({0, 1, 2});
    cluster.run(ms(1000));
    require_all(cluster, group, {0, 2}, Errc::peer_lost, 1, -1, since, ms(300));
}

TEST_CASE("an ended process is named at once, with the same error on every node", "[membership][F10]") {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        CAPTURE(seed);
        FailureCluster cluster(4, seed);
        const GroupId group = cluster.make_group({0, 1, 2, 3}, {0, 2, 4, 6});
        cluster.run(ms(1000));

        const Time since = cluster.now();
        for (unsigned node : {3u, 0u, 2u, 1u}) {
            cluster.rank_lost(node, group, 5, 2, "process 77 was killed by signal 9");
            cluster.run(ms(static_cast<int64_t>(seed % 3)));
        }
        cluster.run(ms(50));

        require_all(cluster, group, {0, 1, 2, 3}, Errc::peer_lost, 5, -1, since, ms(30));
        REQUIRE(cluster.end_of(0, group)->text.find("signal 9") != std::string::npos);
    }
}

TEST_CASE("two processes that end at the same time leave one error on every node", "[membership]") {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        FailureCluster cluster(4, seed);
        const GroupId group = cluster.make_group({0, 1, 2, 3});
        cluster.rank_lost(1, group, 1, 1, "killed");
        cluster.rank_lost(3, group, 3, 3, "killed");
        cluster.rank_lost(2, group, 3, 3, "killed");
        cluster.run(ms(100));

        const Error* first = cluster.end_of(0, group);
        REQUIRE(first);
        require_all(cluster, group, {0, 1, 2, 3}, Errc::peer_lost, first->rank, -1, at_ms(0), ms(30));
        REQUIRE((first->rank == 1 || first->rank == 3));
    }
}

TEST_CASE("a node that was cut off gets the end that the others decided", "[membership][G9][F11]") {
    FailureCluster cluster(3, 9);
    const GroupId group = cluster.make_group({0, 1, 2});
    cluster.cut(0, 2);
    cluster.cut(1, 2);
    cluster.rank_lost(0, group, 1, 1, "killed");
    cluster.run(ms(6000));  // node 2 does not answer: it suspects both, and is excluded
    REQUIRE(cluster.end_of(1, group));

    cluster.join(0, 2);
    cluster.join(1, 2);
    cluster.run(ms(100));

    const Error* first = cluster.end_of(0, group);
    require_all(cluster, group, {0, 1}, Errc::peer_lost, 1, -1, at_ms(0), ms(6000));
    REQUIRE(cluster.end_of(2, group));
    REQUIRE(first);
}

TEST_CASE("a node that is cut off from all decides by itself", "[membership][F12][G5]") {
    FailureCluster cluster(6, 4);
    const GroupId group = cluster.make_group({0, 1, 2, 3, 4, 5});
    cluster.run(ms(500));
    const Time since = cluster.now();
    for (unsigned node = 0; node < 5; ++node) cluster.cut_both(node, 5);  // 5 does not know it yet
    cluster.rank_lost(5, group, 5, 5, "killed");
    cluster.run(ms(9000));

    require_all(cluster, group, {5}, Errc::peer_lost, 5, -1, since, silence_bound + ms(1000));
    require_all(cluster, group, {0, 1, 2, 3, 4}, Errc::peer_lost, 5, -1, since, silence_bound);
}

TEST_CASE("a node that has left the group is no arbiter and no coordinator", "[membership][F12][G9]") {
    FailureCluster cluster(4, 4);
    const GroupId group = cluster.make_group({0, 1, 2, 3});
    cluster.run(ms(500));
    Time since = cluster.now();
    cluster.depart(0, group);
    SECTION("of a process") {
        cluster.rank_lost(2, group, 2, 2, "killed");
        cluster.run(ms(500));
        require_all(cluster, group, {1, 2, 3}, Errc::peer_lost, 2, -1, since, ms(30));
    }
    SECTION("of a node") {
        cluster.kill(3);
        cluster.run(ms(2000));
        require_all(cluster, group, {1, 2}, Errc::peer_lost, 3, -1, since, killed_bound);
    }
    REQUIRE_FALSE(cluster.end_of(0, group));
}

TEST_CASE("a reporter whose own probe the suspect answers withdraws its report", "[membership]") {
    Arbiter arbiter(ArbiterConfig{}, node_id(0), Incarnation{1, 1});
    const GroupId group{1, 2, 3};
    arbiter.on_group(group, GroupEpoch{0}, {{node_id(0), {}, 0}, {node_id(1), {}, 1}}, at_ms(0));
    arbiter.on_suspect(node_id(1), {1, 2}, "closed", at_ms(10));
    const auto question = arbiter.poll_send();
    REQUIRE(question);
    const auto nonce = std::get<wire::ProbeRequest>(question->message).nonce;

    arbiter.on_message(node_id(1), wire::ProbeReply{nonce, true}, at_ms(20));
    arbiter.on_time(at_ms(2000));

    CHECK_FALSE(arbiter.poll_found());
    CHECK(arbiter.wake_at() == never);
}

// Node 0 is the arbiter of four; node 3 is the suspect.
struct Inquiry {
    static constexpr GroupId group{1, 2, 3};
    Arbiter arbiter{ArbiterConfig{}, node_id(0), Incarnation{1, 1}};
    uint64_t nonce = 0;  // of the latest question

    Inquiry() {
        arbiter.on_group(group, GroupEpoch{0},
                         {{node_id(0), {}, 0}, {node_id(1), {}, 1}, {node_id(2), {}, 2}, {node_id(3), {}, 3}},
                         at_ms(0));
    }
    void report(unsigned by) {
        arbiter.on_message(node_id(by), wire::SuspicionReport{group, 0, node_id(by), node_id(3), "", false},
                           at_ms(10));
    }
    void answer(unsigned by, bool reached) {
        arbiter.on_message(node_id(by), wire::ProbeReply{nonce, reached}, at_ms(20));
    }
    // Whom it has asked since.
    std::vector<unsigned> asked() {
        std::vector<unsigned> out;
        while (const auto sent = arbiter.poll_send())
            for (unsigned i = 0; i < 4; ++i)
                if (sent->to == node_id(i)) {
                    nonce = std::get<wire::ProbeRequest>(sent->message).nonce;
                    out.push_back(i);
                }
        return out;
    }
    // The other end of the lost link; nothing: none is found, and nothing is asked any more.
    std::optional<int64_t> found() {
        const auto out = arbiter.poll_found();
        CHECK(arbiter.wake_at() == never);
        arbiter.check_invariants();
        if (!out) return {};
        CHECK(out->error.code == Errc::link_lost);
        CHECK(out->error.other_rank == 3);
        return out->error.rank;
    }
};
using Nodes = std::vector<unsigned>;

TEST_CASE("once the suspect answers, each reporter is asked in turn whether it does not get through",
          "[membership][F9]") {
    Inquiry inquiry;
    inquiry.report(1);
    CHECK(inquiry.asked() == Nodes{3, 2});
    inquiry.report(2);
    inquiry.answer(3, true);
    CHECK(inquiry.asked() == Nodes{1});
    SECTION("the first does, the second does not") {
        inquiry.answer(1, true);
        CHECK(inquiry.asked() == Nodes{2});
        inquiry.answer(2, false);
        CHECK(inquiry.found() == 2);
    }
    SECTION("the first does not") {
        inquiry.answer(1, false);
        CHECK(inquiry.found() == 1);
    }
    SECTION("both do") {
        inquiry.answer(1, true);
        inquiry.asked();
        inquiry.answer(2, true);
        CHECK(inquiry.found() == std::nullopt);
    }
    SECTION("the first does not say") {
        inquiry.arbiter.on_time(at_ms(280));
        CHECK(inquiry.found() == 1);
    }
    SECTION("the first does not say, and is suspected itself; the second does not get through") {
        inquiry.arbiter.on_suspect(node_id(1), {}, "closed", at_ms(30));
        while (const auto sent = inquiry.arbiter.poll_send()) {  // about node 1
        }
        inquiry.arbiter.on_time(at_ms(275));
        CHECK(inquiry.asked() == Nodes{2});
        inquiry.answer(2, false);
        CHECK(inquiry.arbiter.poll_found()->error.rank == 2);
    }
    SECTION("the group excludes the first meanwhile") {
        inquiry.arbiter.on_excluded(Inquiry::group, node_id(1));
        inquiry.answer(1, false);
        CHECK(inquiry.asked() == Nodes{2});
        inquiry.answer(2, false);
        CHECK(inquiry.found() == 2);
    }
}

TEST_CASE("a helper's answer is none to a report of the arbiter's own that came after the question",
          "[membership][F9]") {
    Inquiry inquiry;
    inquiry.report(1);
    CHECK(inquiry.asked() == Nodes{3, 2});
    inquiry.arbiter.on_suspect(node_id(3), {}, "silent", at_ms(15));
    inquiry.answer(2, true);
    CHECK(inquiry.asked() == Nodes{3, 2});
    SECTION("it gets through") {
        inquiry.answer(3, true);
        CHECK(inquiry.asked() == Nodes{1});
        inquiry.answer(1, true);
        CHECK(inquiry.found() == std::nullopt);
    }
    SECTION("it does not") {
        inquiry.answer(2, true);
        CHECK(inquiry.asked().empty());
        inquiry.arbiter.on_time(at_ms(280));
        CHECK(inquiry.found() == 0);
    }
}

TEST_CASE("an answer by another incarnation of the suspect proves the earlier one dead", "[membership][F7]") {
    Arbiter arbiter(ArbiterConfig{}, node_id(0), Incarnation{1, 1});
    Arbiter restarted(ArbiterConfig{}, node_id(1), Incarnation{2, 9});
    const GroupId group{1, 2, 3};
    arbiter.on_group(group, GroupEpoch{0}, {{node_id(0), {1, 1}, 0}, {node_id(1), {1, 2}, 1}}, at_ms(0));
    arbiter.on_suspect(node_id(1), {1, 2}, "closed", at_ms(10));
    const auto question = arbiter.poll_send();
    REQUIRE(question);
    restarted.on_message(node_id(0), question->message, at_ms(11));
    const auto answer = restarted.poll_send();
    REQUIRE(answer);

    arbiter.on_message(node_id(1), answer->message, at_ms(12));

    const auto found = arbiter.poll_found();
    REQUIRE(found);
    CHECK(found->error.code == Errc::peer_lost);
}

TEST_CASE("a proved death is decided without a question", "[membership][F10]") {
    Arbiter arbiter(ArbiterConfig{}, node_id(0), Incarnation{1, 1});
    const GroupId group{1, 2, 3};
    arbiter.on_group(group, GroupEpoch{0}, {{node_id(0), {}, 0}, {node_id(1), {5, 2}, 1}}, at_ms(0));

    arbiter.on_dead(node_id(1), {4, 7}, "goodbye of an earlier incarnation", at_ms(1));
    REQUIRE_FALSE(arbiter.poll_found());
    arbiter.on_dead(node_id(1), {5, 2}, "goodbye", at_ms(2));

    const auto found = arbiter.poll_found();
    REQUIRE(found);
    CHECK(found->error.rank == 1);
}

TEST_CASE("the death of an incarnation ends the groups of it and of earlier ones, also those made later",
          "[membership][F15]") {
    Arbiter arbiter(ArbiterConfig{}, node_id(0), Incarnation{1, 1});
    const auto made_with = [&](uint64_t number, Incarnation incarnation) {
        arbiter.on_group({1, 2, number}, GroupEpoch{0}, {{node_id(0), {}, 0}, {node_id(1), incarnation, 1}},
                         at_ms(1));
    };
    made_with(1, {3, 30});
    made_with(2, {6, 60});
    arbiter.on_dead(node_id(1), {5, 50}, "a later incarnation connected", at_ms(2));
    arbiter.on_suspect(node_id(1), {9, 90}, "silent",
                       at_ms(3));  // another incarnation: the proved death stays
    made_with(3, {4, 40});
    made_with(4, {6, 60});

    std::vector<uint64_t> lost;
    while (const auto found = arbiter.poll_found()) lost.push_back(found->group.counter);
    CHECK(lost == std::vector<uint64_t>{1, 3});
}

TEST_CASE("reports from outside the group, about other nodes or of another epoch have no effect",
          "[membership]") {
    Arbiter arbiter(ArbiterConfig{}, node_id(0), Incarnation{1, 1});
    const GroupId group{1, 2, 3};
    arbiter.on_group(group, GroupEpoch{4}, {{node_id(0), {}, 0}, {node_id(1), {}, 1}, {node_id(2), {}, 2}},
                     at_ms(0));
    const NodeId outsider = node_id(9);
    for (const wire::SuspicionReport& bad :
         {wire::SuspicionReport{group, 4, outsider, node_id(1), "", false},
          wire::SuspicionReport{group, 4, node_id(1), outsider, "", false},
          wire::SuspicionReport{group, 3, node_id(1), node_id(2), "", false},
          wire::SuspicionReport{group, 4, node_id(1), node_id(1), "", true}})
        arbiter.on_message(bad.reporter, bad, at_ms(1));
    arbiter.on_message(node_id(2), wire::SuspicionReport{group, 4, node_id(1), node_id(2), "", false},
                       at_ms(1));

    CHECK_FALSE(arbiter.poll_found());
    CHECK_FALSE(arbiter.poll_send());
}

TEST_CASE("with lost packets every survivor still ends in time", "[membership]") {
    for (uint32_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        FailureCluster cluster(5, seed);
        cluster.lose_one_in(5);
        const GroupId group = cluster.make_group({0, 1, 2, 3, 4});
        cluster.run(ms(1000));
        const Time since = cluster.now();
        cluster.kill(seed % 5);
        cluster.run(ms(9000));
        for (unsigned node : all_but(5, seed % 5)) {
            REQUIRE(cluster.end_of(node, group));
            REQUIRE(*cluster.decided_at(node, group) <= since + ms(600 + 3000 + 250 + 50));
        }
    }
}

}  // namespace
}  // namespace nexar::membership
