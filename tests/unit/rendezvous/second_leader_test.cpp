// Two leaders that do not reach each other: who reaches both lists with both, so a group meets that does not
// need their link, and the others learn which link they need.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

bool says(const Error& error, std::string_view what) {
    UNSCOPED_INFO(error.text);
    return error.text.find(what) != std::string::npos;
}

// Of the nodes 0 to 3 those whose bit is set.
std::vector<unsigned> nodes_of(unsigned bits) {
    std::vector<unsigned> out;
    for (unsigned node = 0; node < 4; ++node)
        if ((bits >> node & 1) != 0) out.push_back(node);
    return out;
}

}  // namespace

TEST_CASE("two leaders that lost each other keep no group apart that does not need both",
          "[rendezvous][R36]") {
    size_t met = 0, failed = 0;
    for (uint64_t seed = 1; seed <= 600; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const unsigned bits = 1 + static_cast<unsigned>(seed % 15);
        const std::vector<unsigned> nodes = nodes_of(bits);
        const auto size = static_cast<uint32_t>(nodes.size());
        const bool needs_both = (bits & 3) == 3;
        const bool never_met = seed % 2 == 0;  // from the beginning, or their link is cut
        Cluster cluster(4, seed, !never_met);
        const auto link = [&] {
            for (const auto& [a, b] : {std::pair(0u, 2u), {0u, 3u}, {1u, 2u}, {1u, 3u}, {2u, 3u}})
                if (never_met) cluster.link(a, b);
        };
        const bool open_first = seed % 4 == 0;  // then connect
        if (!open_first) link();
        const auto some = [&](uint64_t most_ms) {
            cluster.run(Duration(static_cast<int64_t>(random.below(most_ms * 1'000'000))));
        };
        const uint64_t cut_before = random.below(size + 1);
        const auto cut = [&] {
            if (never_met) return;
            const auto first = static_cast<unsigned>(random.below(2));
            cluster.cut(first, 1 - first);
            some(random.one_in(2) ? 20 : 4000);
            cluster.notice_cut(1 - first, first);
        };
        for (uint32_t rank = 0; rank < size; ++rank) {
            if (rank == cut_before) cut();
            cluster.open(nodes[rank], "train", size, rank, ms(20'000));
            some(random.one_in(4) ? 3000 : 4);
        }
        if (cut_before == size) cut();
        if (open_first) link();
        cluster.run(ms(10'000));
        if (needs_both && cluster.groups() > 0) continue;  // it was made before the cut
        if (!needs_both) {
            for (const auto& opener : cluster.openers()) {
                CAPTURE(opener.node);
                REQUIRE(opener.group);
            }
            CHECK(cluster.disowned() == 0);
            ++met;
            continue;
        }
        cluster.run(ms(20'000));
        cluster.require_all_answered();
        for (const auto& opener : cluster.openers()) {
            CAPTURE(opener.node);
            REQUIRE(opener.failed);
            CHECK(says(*opener.failed, "host0 and host1 do not reach each other"));
        }
        ++failed;
    }
    CHECK(met > 400);
    CHECK(failed > 50);
}

TEST_CASE("leaders that come to reach each other are one, and what waits with the second one moves",
          "[rendezvous][R36]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Cluster cluster(4, seed);
        cluster.unlink(0, 1);
        for (unsigned node = 0; node < 4; ++node) cluster.open(node, "train", 4, node, ms(20'000));
        cluster.run(ms(4000));
        for (const auto& opener : cluster.openers()) REQUIRE_FALSE(opener.answered_at_all());
        cluster.link(0, 1);
        cluster.run(ms(300));
        for (const auto& opener : cluster.openers()) REQUIRE(opener.group);
        // Nothing of it is left anywhere.
        cluster.run(ms(5000));
        for (const unsigned node : {2u, 3u}) cluster.open(node, "train", 4, node, ms(1000));
        cluster.run(ms(2000));
        for (const size_t opener : {4u, 5u}) {  // one may have given up a moment before the other
            const Error& error = *cluster.openers()[opener].failed;
            CHECK((says(error, ". 2 came: ") ||
                   (says(error, ". 1 came: ") && says(error, "; 1 gave up before"))));
        }
    }
}

TEST_CASE("links of the lowest nodes come and go: every open is answered, and nothing is left of it",
          "[rendezvous][R36]") {
    size_t made = 0, disowned = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        Cluster cluster(5, seed);
        const auto some_node = [&](uint64_t most) { return static_cast<unsigned>(random.below(most)); };
        for (int i = 0; i < 40; ++i) {
            const unsigned a = some_node(3), b = (a + 1 + some_node(4)) % 5;
            if (random.one_in(2)) cluster.unlink(a, b);
            if (random.one_in(3)) cluster.link(a, b);
            const uint32_t size = 1 + some_node(4);
            cluster.open(some_node(5), "g" + std::to_string(size), size, -1, ms(4000));
            if (random.one_in(8)) cluster.withdraw(random.below(cluster.openers().size()));
            cluster.run(
                Duration(static_cast<int64_t>(random.below(random.one_in(2) ? 5'000'000 : 900'000'000))));
        }
        for (unsigned a = 0; a < 5; ++a)
            for (unsigned b = a + 1; b < 5; ++b) cluster.link(a, b);
        cluster.run(ms(12'000));
        cluster.require_all_answered();
        for (const auto& opener : cluster.openers()) made += opener.group.has_value();
        const size_t first = cluster.openers().size();
        for (unsigned node = 0; node < 5; ++node) cluster.open(node, "g4", 5, -1, ms(3000));
        cluster.run(ms(100));
        for (size_t i = first; i < cluster.openers().size(); ++i) REQUIRE(cluster.openers()[i].group);
        disowned += cluster.disowned() > 0;
    }
    CHECK(made > 3000);
    CHECK(disowned < 4);  // the price of having no consensus [R9]
}

namespace {

// A node that follows node 0, reaches `others` and has an open.
struct Follower {
    explicit Follower(const std::vector<unsigned>& others) : machine(config_of(node_id(20))) {
        for (const unsigned node : others) machine.on_peer_up(node_id(node), {}, Time{});
        REQUIRE(machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time{}));
        sent();
    }
    std::vector<std::pair<NodeId, wire::Message>> sent() {
        std::vector<std::pair<NodeId, wire::Message>> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action)) out.emplace_back(send->to, send->message);
        machine.check_invariants();
        return out;
    }
    template <class M>
    size_t sent_to(unsigned node, Time until) {
        size_t out = 0;
        while (machine.wake_at() <= until) machine.on_time(machine.wake_at());
        for (const auto& [to, message] : sent())
            out += to == node_id(node) && std::holds_alternative<M>(message);
        return out;
    }
    void say(unsigned node, unsigned leads) {
        machine.on_message(node_id(node), wire::GroupLeader{node_id(leads)}, Time(ms(1)));
    }
    Rendezvous machine;
};

}  // namespace

TEST_CASE("an open is listed with the second leader after a while, and withdrawn there when it ends",
          "[rendezvous][R36]") {
    Follower f({0, 1, 2});
    f.say(1, 1);
    CHECK(f.sent_to<wire::GroupOpen>(1, Time(ms(1999))) == 0);
    CHECK(f.sent_to<wire::GroupOpen>(1, Time(ms(2500))) == 1);
    SECTION("it ends") {
        f.machine.withdraw_session(SessionId{1}, Time(ms(2600)));
        CHECK(f.sent_to<wire::GroupWithdraw>(1, Time(ms(2600))) == 1);
    }
    SECTION("it ends while that one is not connected, and may be on its way there") {
        f.machine.on_peer_down(node_id(1), {}, Time(ms(2550)));
        f.machine.withdraw_session(SessionId{1}, Time(ms(2600)));
        CHECK(f.sent_to<wire::GroupWithdraw>(1, Time(ms(2600))) == 1);
    }
    SECTION("that one leads no more") {
        f.machine.on_message(node_id(1), wire::GroupLeader{}, Time(ms(2600)));
        CHECK(f.sent_to<wire::GroupWithdraw>(1, Time(ms(5000))) == 1);
        CHECK(f.machine.wake_at() == Time(ms(60'000)));
    }
    SECTION("that one has lost it") {
        const auto request = wire::RequestId{node_id(20), 1};
        f.machine.on_message(node_id(1), wire::GroupUnlisted{request}, Time(ms(2600)));
        CHECK(f.sent_to<wire::GroupOpen>(1, Time(ms(5000))) == 1);
    }
}

TEST_CASE("an attempt of the second leader ends the open with both", "[rendezvous][R36]") {
    Follower f({0, 1, 2});
    f.say(1, 1);
    while (f.machine.wake_at() <= Time(ms(2500))) f.machine.on_time(f.machine.wake_at());
    wire::GroupPrepare prepare;
    for (const auto& [to, message] : f.sent()) {
        const auto* open = std::get_if<wire::GroupOpen>(&message);
        if (open == nullptr) continue;
        REQUIRE(to == node_id(1));
        prepare.group = {to.prefix(), 0, 3};
        prepare.key = open->key;
        prepare.name = open->name;
        prepare.members = {{open->id, open->id.origin, 0, open->pid, {}, 0, open->nonce},
                           {{node_id(2), 5}, node_id(2), 1, 7, {}, 0, {}}};
    }
    f.machine.on_message(node_id(1), prepare, Time(ms(2600)));
    REQUIRE(f.machine.awaits(prepare.group));
    f.sent();
    const Error error{Errc::link_lost, "nodes a and b do not reach each other", 0, 1, {}};
    f.machine.on_message(node_id(1), wire::GroupRefused{{}, prepare.group, error}, Time(ms(2700)));
    CHECK(f.machine.pending() == 0);
    CHECK(f.sent_to<wire::GroupWithdraw>(0, Time(ms(2700))) == 1);
}

TEST_CASE("who says that it leads, and is none of the lowest nodes, gets no opens", "[rendezvous][H2][R36]") {
    Follower f({0, 1, 2, 3, 4});
    f.say(4, 4);
    CHECK(f.sent_to<wire::GroupOpen>(4, Time(ms(10'000))) == 0);
}

TEST_CASE("who says without end that it leads, and does not, causes few messages", "[rendezvous][H2][R36]") {
    Follower f({0, 1, 2});
    for (int i = 0; i < 1000; ++i) {
        f.say(1, 1);
        f.machine.on_message(node_id(1), wire::GroupLeader{}, Time(ms(1)));
        f.machine.on_time(Time(ms(2)));
    }
    CHECK(f.sent().empty());
}

}  // namespace nexar::rendezvous
