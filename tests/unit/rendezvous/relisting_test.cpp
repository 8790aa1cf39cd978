// Another leader, or the loss of a node, when there are very many opens: each turn does a part of it.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t many = 3000, at_once_max = 600;

wire::GroupOpen open_of(unsigned node, uint64_t number) {
    const std::string name = std::to_string(node) + "-" + std::to_string(number);
    return {{node_id(node), number}, key_of(name), name, 2, -1, 7, {}, 1};
}

// Node 1 of a cluster; what it sends is read after each input, and must be little.
struct Node {
    explicit Node(std::initializer_list<unsigned> peers) : machine(config()) {
        for (const unsigned n : peers) machine.on_peer_up(node_id(n), {}, now);
    }
    Config config() {
        Config out = config_of(node_id(1));
        out.log_room = [this](const NodeId&) { return room; };
        return out;
    }
    wire::RequestId open(uint64_t user, const std::string& name) {
        OpenSpec spec{SessionId{user}, key_of(name), false, name, 2, 0, 9, ms(60'000)};
        spec.opener_mark = user;
        const auto request = machine.open(spec, now);
        REQUIRE(request);
        return *request;
    }
    void list(unsigned node, size_t count) {
        for (uint64_t n = 1; n <= count; ++n) machine.on_message(node_id(node), open_of(node, n), now);
        read();
        sent.clear();
    }
    size_t read() {
        size_t actions = 0;
        for (; auto action = machine.poll_action(); ++actions)
            if (auto* send = std::get_if<Send>(&*action)) sent.push_back(std::move(*send));
        if (++reads_ % 50 == 0) machine.check_invariants();  // each looks at all opens
        return actions;
    }
    // One turn of the loop. False: there is nothing more to do now.
    bool turn() {
        if (machine.wake_at() > now) return false;
        machine.on_time(now);
        REQUIRE(read() < at_once_max);
        return true;
    }
    void settle() {
        REQUIRE(read() < at_once_max);
        while (turn()) continue;
        machine.check_invariants();
    }
    template <class M>
    std::map<wire::RequestId, size_t> of(unsigned to) const {
        std::map<wire::RequestId, size_t> out;
        for (const Send& send : sent)
            if (const auto* m = std::get_if<M>(&send.message); m != nullptr && send.to == node_id(to))
                ++out[m->id];
        return out;
    }
    LogRoom room;
    Time now{ms(1)};
    std::deque<Send> sent;
    Rendezvous machine;

  private:
    size_t reads_ = 0;
};

}  // namespace

TEST_CASE("a new leader gets very many opens some at a time, and each once", "[rendezvous][R26]") {
    Node node({0, 2, 3});
    SECTION("what another node listed here") {
        node.list(2, many);
        node.list(3, many);
        node.machine.on_peer_down(node_id(0), {}, node.now);
        node.settle();
        node.machine.on_peer_up(node_id(0), {}, node.now);
        node.settle();
        CHECK(node.of<wire::GroupOpen>(0).size() == 2 * many);
    }
    SECTION("this node's own") {
        for (size_t i = 0; i < many; ++i) node.open(1, std::to_string(i));
        node.read();
        node.sent.clear();
        node.machine.on_peer_down(node_id(0), {}, node.now);
        node.settle();
        CHECK(node.of<wire::GroupWithdraw>(0).size() == many);
        node.machine.on_peer_up(node_id(0), {}, node.now);
        node.settle();
        CHECK(node.of<wire::GroupOpen>(0).size() == many);
    }
    for (const auto& [open, times] : node.of<wire::GroupOpen>(0)) CHECK(times == 1);
}

TEST_CASE("a user's one open does not wait for very many of another one to be listed again",
          "[rendezvous][R26]") {
    Node node({});
    for (size_t i = 0; i < many; ++i) node.open(1, std::to_string(i));
    const wire::RequestId last = node.open(2, "one");
    node.read();
    node.machine.on_peer_up(node_id(0), {}, node.now);
    REQUIRE(node.read() < at_once_max);
    CHECK(node.of<wire::GroupOpen>(0).contains(last));
}

TEST_CASE("opens that end before the new leader got them are not listed there", "[rendezvous][R26]") {
    Node node({2});
    node.list(2, many);
    std::vector<wire::RequestId> own;
    for (size_t i = 0; i < many; ++i) own.push_back(node.open(1, std::to_string(i)));
    node.read();
    node.machine.on_peer_up(node_id(0), {}, node.now);
    node.read();
    for (size_t i = 0; i < many; i += 7) {
        const wire::GroupOpen open = open_of(2, i + 1);
        node.machine.on_message(node_id(2), wire::GroupWithdraw{open.id, open.key, false, false}, node.now);
        node.machine.withdraw(own[i], node.now);
        node.read();
        node.turn();
    }
    node.settle();
    const auto lists = node.of<wire::GroupOpen>(0), ends = node.of<wire::GroupWithdraw>(0);
    const auto withdrawn = [&](const wire::RequestId& request) {
        return !lists.contains(request) || ends.contains(request);
    };
    for (size_t i = 0; i < many; ++i) {
        CHECK(withdrawn(own[i]) == (i % 7 == 0));
        CHECK(withdrawn(open_of(2, i + 1).id) == (i % 7 == 0));
    }
}

TEST_CASE("what is listed again waits for room in the log with the leader", "[rendezvous][R24][R26]") {
    Node node({2});
    node.list(2, many);
    for (size_t i = 0; i < many; ++i) node.open(1, std::to_string(i));
    node.read();
    node.room = {0, 0, 0};
    node.machine.on_peer_up(node_id(0), {}, node.now);
    node.settle();
    CHECK(node.of<wire::GroupOpen>(0).empty());
    CHECK(node.of<wire::GroupRefused>(2).empty());
    const size_t one = config_of(node_id(1)).open_log_bytes_max;
    node.room = {0, 0, 3 * one - 1};
    node.now += ms(100);
    node.machine.on_time(node.now);
    node.read();
    CHECK(node.of<wire::GroupOpen>(0).size() == 2);
    node.room = {SIZE_MAX, SIZE_MAX, 0};  // others' opens move, and its own wait without asking all the time
    node.now += ms(100);
    size_t turns = 0;
    while (turns < many && node.turn()) ++turns;
    CHECK(turns < many);
    CHECK(node.of<wire::GroupOpen>(0).size() == many + 2);
    node.room = {};
    node.now += ms(100);
    node.settle();
    CHECK(node.of<wire::GroupOpen>(0).size() == 2 * many);
}

TEST_CASE("groups are made while very many opens move to another leader", "[rendezvous][R26]") {
    Node node({2, 3});
    node.list(2, many);
    node.machine.on_peer_up(node_id(0), {}, node.now);
    node.machine.on_peer_down(node_id(0), {}, node.now);  // and this node leads again
    node.read();
    const auto prepared = [&] {
        return std::ranges::any_of(
            node.sent, [](const Send& s) { return std::holds_alternative<wire::GroupPrepare>(s.message); });
    };
    for (const unsigned from : {2u, 3u}) {
        wire::GroupOpen open = open_of(from, many + 1);
        open.name = "train";
        open.key = key_of("train");
        node.machine.on_message(node_id(from), open, node.now);
    }
    node.read();
    CHECK(prepared());
    node.settle();
    // All of node 2's are where they were: one more rank for each makes its group.
    node.sent.clear();
    for (uint64_t n = 1; n <= many; ++n) {
        wire::GroupOpen open = open_of(2, n);
        open.id = {node_id(3), n};
        node.machine.on_message(node_id(3), open, node.now);
    }
    node.read();
    while (node.turn()) continue;
    size_t attempts = 0;
    for (const Send& send : node.sent)
        attempts += send.to == node_id(2) && std::holds_alternative<wire::GroupPrepare>(send.message);
    CHECK(attempts == many);
}

TEST_CASE("the opens of a lost node are forgotten some at a time, and those that it lists later are kept",
          "[rendezvous][R1][R26]") {
    const bool leads = GENERATE(false, true);
    Node node({2});
    if (!leads) node.machine.on_peer_up(node_id(0), {}, node.now);
    node.list(2, many);
    node.machine.on_peer_down(node_id(2), {}, node.now);
    REQUIRE(node.read() < at_once_max);
    node.machine.on_peer_up(node_id(2), {}, node.now);
    const wire::GroupOpen later = open_of(2, many + 1);
    node.machine.on_message(node_id(2), later, node.now);
    node.settle();
    const auto unlisted = node.of<wire::GroupUnlisted>(2);
    CHECK(unlisted.size() == many);
    CHECK_FALSE(unlisted.contains(later.id));
    if (!leads) CHECK(node.of<wire::GroupWithdraw>(0).size() == many);
    // It lists them again.
    node.sent.clear();
    for (uint64_t n = 1; n <= many; ++n) node.machine.on_message(node_id(2), open_of(2, n), node.now);
    node.read();
    node.machine.on_peer_up(node_id(0), {}, node.now);
    node.settle();
    CHECK(node.of<wire::GroupOpen>(0).size() >= many);
}

}  // namespace nexar::rendezvous
