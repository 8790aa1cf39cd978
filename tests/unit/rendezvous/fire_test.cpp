// The rendezvous under fire: its leader is killed after each message that is delivered, so before the next
// one, and with all that it had sent and that had not arrived.
#include <catch2/catch_test_macros.hpp>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr uint64_t seeds = 12;

// Kills the leader at every message of the same run. `play(cluster)`: opens; `look(cluster)`: after the dust.
template <class Play, class Look>
size_t at_each_message(unsigned nodes, Play play, Look look) {
    size_t runs = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        size_t most = 0;
        {
            Cluster whole(nodes, seed);
            play(whole);
            whole.run(ms(200));
            most = whole.delivered();
        }
        for (size_t message = 0; message <= most; ++message) {
            CAPTURE(seed, message);
            Cluster cluster(nodes, seed);
            play(cluster);
            cluster.run_until_delivered(message);
            cluster.kill(0);
            look(cluster);
            ++runs;
        }
    }
    return runs;
}

// All that live and were asked have one group, or an error; none of them another one's.
void require_one_outcome(const Cluster& cluster) {
    std::optional<GroupId> group;
    for (const auto& opener : cluster.openers()) {
        if (!cluster.alive(opener.node) || !opener.group) continue;
        if (!group) group = opener.group;
        REQUIRE(opener.group == group);
    }
}

}  // namespace

TEST_CASE("the leader, no member, is killed at each message: the others meet all the same",
          "[rendezvous][R1][R8]") {
    const size_t runs = at_each_message(
        4,
        [](Cluster& c) {
            for (unsigned node = 1; node < 4; ++node) c.open(node, "train", 3, node - 1);
        },
        [](Cluster& c) {
            c.run(ms(10'000));
            c.require_all_answered();
            for (const auto& opener : c.openers()) REQUIRE(opener.group);
            require_one_outcome(c);
            REQUIRE(c.disowned() == 0);
        });
    CHECK(runs > seeds * 10);
}

TEST_CASE("the leader, a member, is killed at each message: nobody is left with a part of the group",
          "[rendezvous][R8][R12]") {
    size_t made = 0, not_made = 0;
    at_each_message(
        3,
        [](Cluster& c) {
            for (unsigned node = 0; node < 3; ++node) c.open(node, "train", 3, node, ms(4000));
        },
        [&](Cluster& c) {
            c.run(ms(10'000));
            c.require_all_answered();
            require_one_outcome(c);
            REQUIRE(c.openers()[1].group.has_value() == c.openers()[2].group.has_value());
            if (c.openers()[1].group) {
                ++made;
            } else {
                ++not_made;
                for (const size_t i : {size_t{1}, size_t{2}}) {
                    CHECK(c.openers()[i].failed->code == Errc::group_incomplete);
                    CHECK(c.openers()[i].failed->rank == 0);
                }
            }
            REQUIRE(c.disowned() == 0);
        });
    CHECK(made > 0);
    CHECK(not_made > 0);
}

TEST_CASE(
    "one opener too many, and the leader killed at each message: so many as fit meet, the rest learns who "
    "is missing",
    "[rendezvous][R3]") {
    at_each_message(
        4,
        [](Cluster& c) {
            for (unsigned i = 0; i < 4; ++i) c.open(1 + i % 3, "train", 3, -1, ms(3000));
        },
        [](Cluster& c) {
            c.run(ms(12'000));
            c.require_all_answered();
            size_t in = 0;
            for (const auto& opener : c.openers()) {
                in += opener.group.has_value();
                if (opener.failed) CHECK(opener.failed->code == Errc::group_incomplete);
            }
            REQUIRE(in == 3);
            require_one_outcome(c);
        });
}

TEST_CASE(
    "openers with different sizes, and the leader killed at each message: no group of either, and what was "
    "corrected meets",
    "[rendezvous][R3]") {
    at_each_message(
        4,
        [](Cluster& c) {
            c.open(1, "train", 3, 0, ms(3000));
            c.open(2, "train", 3, 1, ms(3000));
            c.open(3, "train", 4, 2, ms(3000));
        },
        [](Cluster& c) {
            c.run(ms(12'000));
            c.require_all_answered();
            for (const auto& opener : c.openers()) {
                REQUIRE(opener.failed);
                const bool known = opener.failed->code == Errc::options_differ ||
                                   opener.failed->code == Errc::group_incomplete;
                CHECK(known);
            }
            for (unsigned node = 1; node < 4; ++node) c.open(node, "train", 3, node - 1);
            c.run(ms(100));
            for (size_t i = 3; i < 6; ++i) REQUIRE(c.openers()[i].group);
        });
}

TEST_CASE(
    "[R37] an open that its owner ends while an attempt has it is opened, or ends with the owner's error",
    "[rendezvous]") {
    size_t opened = 0, ended = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed)
        for (size_t message = 0; message < 14; ++message)
            for (const bool killed : {false, true}) {
                CAPTURE(seed, message, killed);
                Cluster cluster(4, seed);
                for (unsigned node = 1; node < 4; ++node) cluster.open(node, "train", 3, node - 1, ms(3000));
                cluster.run_until_delivered(message);
                cluster.end(1, {Errc::peer_lost, "the parent ended", 7, -1, {}});
                if (killed) cluster.kill(0);
                cluster.run(ms(10'000));
                cluster.require_all_answered();
                require_one_outcome(cluster);
                const auto& own = cluster.openers()[1];
                for (const size_t i : {size_t{0}, size_t{2}})
                    REQUIRE(cluster.openers()[i].group.has_value() == own.group.has_value());
                if (own.group) {
                    ++opened;
                } else {
                    ++ended;
                    CHECK(own.failed->text == "the parent ended");
                    CHECK(own.failed->rank == 7);
                }
                REQUIRE(cluster.disowned() == 0);
            }
    CHECK(opened > 0);
    CHECK(ended > 0);
}

}  // namespace nexar::rendezvous
