// What a node passes on of another node's opens counts for what came through itself, and for nothing else
// [R17].
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

// A leader and two nodes that pass on the opens of a third one, which is not connected.
struct Relays {
    Relays() : machine(config_of(node_id(0))) {
        for (const NodeId& node : {one, two}) machine.on_peer_up(node, {3, 3}, Time{});
    }
    void say(const NodeId& from, const wire::Message& message) {
        machine.on_message(from, message, Time(ms(1)));
        while (machine.poll_action()) {
        }
    }
    // The processes that wait under the key "g".
    std::vector<uint32_t> present() {
        machine.on_message(one, wire::GroupStatusRequest{{one, 1}, key_of("g")}, Time(ms(2)));
        std::vector<uint32_t> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* status = std::get_if<wire::GroupStatus>(&send->message))
                    for (const auto& member : status->present) out.push_back(member.pid);
        return out;
    }
    wire::GroupOpen open(uint32_t pid, uint64_t counter = 5) const {
        return {{absent, (counter << 32) + 1}, key_of("g"), "g", 3, 1, pid, {counter, 50}};
    }
    const NodeId one = node_id(1), two = node_id(2), absent = node_id(3);
    Rendezvous machine;
};

}  // namespace

TEST_CASE("what came through one relay is not changed by what another one says of the same open, or node",
          "[rendezvous][H6][R17]") {
    Relays r;
    r.say(r.one, r.open(9));
    SECTION("the same, and withdrawn again") {
        r.say(r.two, r.open(9));
        r.say(r.two, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    }
    SECTION("withdrawn alone") {
        r.say(r.two, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    }
    SECTION("another open under its number") {
        wire::GroupOpen other = r.open(9);
        other.rank = 2;
        r.say(r.two, other);
        r.say(r.two, wire::GroupWithdraw{other.id, key_of("g"), false, false});
    }
    SECTION("a later incarnation") {
        r.say(r.two, r.open(8, 6));
    }
    SECTION("the same, and the other relay is lost") {
        r.say(r.two, r.open(9));
        r.machine.on_peer_down(r.two, {3, 3}, Time(ms(1)));
    }
    SECTION("the same, and its own relay is lost: the other one keeps it") {
        r.say(r.two, r.open(9));
        r.machine.on_peer_up(r.one, {4, 4}, Time(ms(1)));
    }
    CHECK(r.present() == std::vector<uint32_t>{9});
}

TEST_CASE("a relay replaces and withdraws what came through itself", "[rendezvous][R15][R17]") {
    Relays r;
    r.say(r.one, r.open(9));
    SECTION("a later incarnation") {
        r.say(r.one, r.open(8, 6));
        CHECK(r.present() == std::vector<uint32_t>{8});
    }
    SECTION("withdrawn") {
        r.say(r.one, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
        CHECK(r.present().empty());
    }
    SECTION("lost") {
        r.machine.on_peer_down(r.one, {3, 3}, Time(ms(1)));
        r.machine.on_peer_up(r.one, {3, 3}, Time(ms(1)));
        CHECK(r.present().empty());
    }
}

}  // namespace nexar::rendezvous
