// A leader's answers to opens wait with the leader while the control log with the opens' node has no room.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t much = 1 << 20;

// A leader, and node 1, whose opens it answers.
struct Leader {
    Leader() : machine(config()) { machine.on_peer_up(node_id(1), {}, Time{}); }

    Config config() {
        Config out = config_of(node_id(0));
        out.log_room = [this](const NodeId&) { return room; };
        return out;
    }
    wire::GroupOpen open(uint64_t number, const std::string& name, uint32_t size, int64_t rank) {
        wire::GroupOpen out;
        out.id = {node_id(1), number};
        out.name = name;
        out.key = key_of(name);
        out.size = size;
        out.rank = rank;
        machine.on_message(node_id(1), out, now);
        machine.check_invariants();
        return out;
    }
    void withdraw(const wire::GroupOpen& open) {
        machine.on_message(node_id(1), wire::GroupWithdraw{open.id, open.key, false, false}, now);
        machine.check_invariants();
    }
    // What goes to node 1 as soon as it may, until this time.
    template <class M>
    std::vector<M> sent(Time until) {
        std::vector<M> out;
        for (;;) {
            while (const auto action = machine.poll_action())
                if (const auto* send = std::get_if<Send>(&*action))
                    if (const auto* m = std::get_if<M>(&send->message)) out.push_back(*m);
            if (machine.wake_at() > until) return out;
            now = std::max(now, machine.wake_at());
            machine.on_time(now);
            machine.check_invariants();
        }
    }
    size_t polled() {
        size_t out = 0;
        while (machine.poll_action()) ++out;
        return out;
    }
    // Some go at once, and all until then.
    template <class M>
    void require_in_pieces(size_t count, Time until) {
        const size_t at_once = polled();
        CHECK(at_once < 100);
        CHECK(at_once + sent<M>(until).size() == count);
    }
    LogRoom room{much, much};
    Time now{ms(1)};
    Rendezvous machine;
};

}  // namespace

TEST_CASE("refusals wait for room, the oldest first, and those of withdrawn opens are forgotten",
          "[rendezvous][R24]") {
    Leader leader;
    leader.open(1, "train", 2, 0);
    leader.room.refusals = 0;
    std::vector<wire::GroupOpen> clashing;
    for (uint64_t i = 2; i < 1002; ++i) clashing.push_back(leader.open(i, "train", 2, 0));
    CHECK(leader.sent<wire::GroupRefused>(Time(ms(500))).empty());

    for (size_t i = 0; i < 900; ++i) leader.withdraw(clashing[i]);
    leader.room.refusals = much;
    const auto refused = leader.sent<wire::GroupRefused>(Time(ms(1000)));
    REQUIRE(refused.size() == 100);
    for (size_t i = 0; i < 100; ++i) CHECK(refused[i].id == clashing[900 + i].id);
    CHECK(leader.machine.wake_at() == never);
}

TEST_CASE("the refusals of one open by all its ways wait each, and are withdrawn each",
          "[rendezvous][R24][R31]") {
    Leader leader;
    leader.machine.on_peer_up(node_id(2), {}, leader.now);
    const auto open = leader.open(1, "train", 2, 0);
    leader.machine.on_message(node_id(2), open, leader.now);
    leader.room.refusals = 0;
    leader.open(2, "train", 3, 0);  // which refuses both
    SECTION("sent") {
        leader.room.refusals = much;
        CHECK(leader.sent<wire::GroupRefused>(Time(ms(500))).size() == 3);
    }
    SECTION("one way is withdrawn") {
        leader.machine.on_message(node_id(2), wire::GroupWithdraw{open.id, open.key, false, false},
                                  leader.now);
        leader.room.refusals = much;
        CHECK(leader.sent<wire::GroupRefused>(Time(ms(500))).size() == 2);
    }
    SECTION("the open is withdrawn") {
        leader.withdraw(open);
        leader.room.refusals = much;
        CHECK(leader.sent<wire::GroupRefused>(Time(ms(500))).size() == 1);
    }
}

TEST_CASE("opens that are all refused at once are not answered all at once", "[rendezvous][R24]") {
    Leader leader;
    for (uint64_t i = 0; i < 1000; ++i) leader.open(1 + i, "train", 2000, static_cast<int64_t>(i));
    leader.open(2000, "train", 3, 0);
    leader.require_in_pieces<wire::GroupRefused>(1001, Time(ms(1000)));
}

TEST_CASE("refusals that wait when their node is lost become lists to be sent again", "[rendezvous][R24]") {
    Leader leader;
    leader.open(1, "train", 2, 0);
    leader.room.refusals = 0;
    const auto clash = leader.open(2, "train", 2, 0);
    leader.machine.on_peer_down(node_id(1), {}, leader.now);
    leader.machine.check_invariants();
    const auto unlisted = leader.sent<wire::GroupUnlisted>(Time(ms(500)));
    REQUIRE(unlisted.size() == 2);
    CHECK(unlisted[0].id == clash.id);
}

TEST_CASE("a group is prepared when there is room in the logs of its nodes", "[rendezvous][R24]") {
    Leader leader;
    leader.room.prepares = 0;
    for (uint64_t i = 1; i <= 300; ++i) leader.open(i, "group " + std::to_string(i), 1, 0);
    CHECK(leader.sent<wire::GroupPrepare>(Time(ms(500))).empty());
    leader.room.prepares = much;
    leader.now = Time(ms(700));
    leader.machine.on_time(leader.now);
    leader.require_in_pieces<wire::GroupPrepare>(300, Time(ms(1000)));
}

TEST_CASE("attempts that nobody answers end a few at a time", "[rendezvous][R24]") {
    Leader leader;
    for (uint64_t i = 1; i <= 300; ++i) leader.open(i, "group " + std::to_string(i), 1, 0);
    REQUIRE(leader.sent<wire::GroupPrepare>(Time(ms(500))).size() == 300);
    leader.now += config_of(node_id(0)).prepare_timeout + ms(1000);
    for (size_t ended = 0; ended < 300;) {
        leader.machine.on_time(leader.now);
        const size_t at_once = leader.polled();
        REQUIRE(at_once > 0);
        REQUIRE(at_once < 200);
        ended += at_once;
        leader.machine.check_invariants();
    }
}

TEST_CASE("who came is not reported where there is no room for it", "[rendezvous][R24]") {
    Leader leader;
    const auto open = leader.open(1, "train", 2, 0);
    leader.machine.on_message(node_id(1), wire::GroupStatusRequest{open.id, open.key}, leader.now);
    CHECK(leader.sent<wire::GroupStatus>(Time(ms(2))).size() == 1);
    leader.room.refusals = 0;
    leader.machine.on_message(node_id(1), wire::GroupStatusRequest{open.id, open.key}, leader.now);
    CHECK(leader.sent<wire::GroupStatus>(Time(ms(2))).empty());
}

TEST_CASE("an open is not passed on where there is no room for it", "[rendezvous][R24]") {
    LogRoom room{much, 0};
    Config config = config_of(node_id(1));
    config.log_room = [&](const NodeId& node) { return node == node_id(0) ? room : LogRoom{}; };
    Rendezvous relay(config);
    relay.on_peer_up(node_id(0), {}, Time{});
    relay.on_peer_up(node_id(2), {}, Time{});
    wire::GroupOpen open;
    open.id = {node_id(2), 1};
    open.name = "train";
    open.size = 2;
    relay.on_message(node_id(2), open, Time{});
    const auto refused = relay.poll_action();
    REQUIRE(refused);
    const auto& send = std::get<Send>(*refused);
    CHECK(send.to == node_id(2));
    CHECK(std::get<wire::GroupRefused>(send.message).error.code == Errc::table_full);
    room.refusals = much;
    relay.on_message(node_id(2), open, Time{});
    CHECK(std::get<Send>(*relay.poll_action()).to == node_id(0));
}

}  // namespace nexar::rendezvous
