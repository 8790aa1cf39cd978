// The peer table alone: what a hello must say, and what a hostile or confused peer cannot do.
#include "connections/peer_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "nodes.hpp"
#include "wire/codec.hpp"
#include "wire/limits.hpp"

namespace nexar::connections {
namespace {

const NodeId self = node_id(5), low = node_id(1), high = node_id(9);

PeerTableConfig config() {
    PeerTableConfig out;
    out.self = {self, "me", {"me:1"}};
    out.incarnation = {1, 1};
    return out;
}
wire::Hello hello_of(const NodeId& node, Incarnation incarnation = {1, 7}) {
    wire::Hello hello;
    hello.node = node;
    hello.self = {node, "host", {"there:1"}};
    hello.incarnation = incarnation;
    return hello;
}
struct Seen {
    std::vector<Dial> dials;
    std::vector<CloseConnection> closes;
    std::vector<SendOn> sends;
    std::vector<PeerUp> ups;
    std::vector<PeerDown> downs;
};
Seen drain(PeerTable& table) {
    Seen seen;
    table.check_invariants();
    while (const auto action = table.poll_action()) {
        if (const auto* a = std::get_if<Dial>(&*action)) seen.dials.push_back(*a);
        if (const auto* a = std::get_if<CloseConnection>(&*action)) seen.closes.push_back(*a);
        if (const auto* a = std::get_if<SendOn>(&*action)) seen.sends.push_back(*a);
        if (const auto* a = std::get_if<PeerUp>(&*action)) seen.ups.push_back(*a);
        if (const auto* a = std::get_if<PeerDown>(&*action)) seen.downs.push_back(*a);
    }
    return seen;
}
constexpr ConnectionId c1{1}, c2{2};
// A later connection has a higher generation, unless one is given.
void connect(PeerTable& table, ConnectionId id, const NodeId& node, bool outgoing, const std::string& remote,
             Time now, Incarnation incarnation = {1, 7}, uint32_t generation = 0) {
    const auto counted = static_cast<uint32_t>(id.value);
    table.on_connected({id, node, outgoing, remote, generation ? generation : counted, incarnation, {}}, now);
}

TEST_CASE("a hello is refused for a wrong name, cluster or node, and the text says which",
          "[connections][P1]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    drain(table);
    wire::Hello hello = hello_of(low);
    std::string expected;
    SECTION("stolen name") {
        hello.node = high, expected = "its certificate";
    }
    SECTION("stolen record") {
        hello.self.node = high, expected = "its certificate";
    }
    SECTION("cluster") {
        hello.cluster[0] = 1, expected = "another cluster";
    }
    table.on_message(c1, hello, at_ms(1));
    const Seen seen = drain(table);
    REQUIRE(seen.closes.size() == 1);
    INFO(seen.closes[0].reason);
    CHECK(seen.closes[0].reason.find(expected) != std::string::npos);
    CHECK(seen.ups.empty());
    CHECK_FALSE(table.peer_of(c1));
}

TEST_CASE("anything before a hello closes the connection, and no hello at all does too",
          "[connections][P1]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    drain(table);
    SECTION("another message") {
        table.on_message(c1, wire::Heartbeat{}, at_ms(1));
    }
    SECTION("silence") {
        CHECK(table.wake_at() == at_ms(3000));
        table.on_time(at_ms(3000));
    }
    CHECK(drain(table).closes.size() == 1);
    CHECK(table.on_message(c1, hello_of(low), at_ms(3001)));
    CHECK(drain(table).ups.empty());
}

TEST_CASE("a second hello is a fault", "[connections][P1]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_of(low), at_ms(1));
    drain(table);
    table.on_message(c1, hello_of(low, {2, 2}), at_ms(2));
    const Seen seen = drain(table);
    CHECK(seen.closes.size() == 1);
    CHECK(seen.downs.size() == 1);
}

TEST_CASE("of the connections of one incarnation the one with the highest generation stays",
          "[connections][P4]") {
    const bool higher_first = GENERATE(true, false), outgoing_first = GENERATE(true, false);
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, outgoing_first, "there:1", at_ms(0), {1, 7}, higher_first ? 3 : 2);
    connect(table, c2, low, !outgoing_first, "there:1", at_ms(0), {1, 7}, higher_first ? 2 : 3);
    table.on_message(c1, hello_of(low), at_ms(1));
    table.on_message(c2, hello_of(low), at_ms(2));
    const Seen seen = drain(table);

    CHECK(table.connection_of(low) == (higher_first ? c1 : c2));
    REQUIRE(seen.closes.size() == 1);
    CHECK(seen.closes[0].connection == (higher_first ? c2 : c1));
    CHECK(seen.downs.empty());
    table.on_closed(higher_first ? c1 : c2, "cut", at_ms(3));
    connect(table, ConnectionId{3}, low, true, "there:1", at_ms(4), {1, 7}, 3);  // late, of before
    table.on_message(ConnectionId{3}, hello_of(low), at_ms(5));
    CHECK_FALSE(table.connection_of(low));
}

TEST_CASE("of an old and a new connection the new one stays", "[connections][P4]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_of(low), at_ms(1));
    connect(table, c2, low, true, "there:1", at_ms(9000));
    table.on_message(c2, hello_of(low), at_ms(9001));
    const Seen seen = drain(table);
    CHECK(table.connection_of(low) == c2);
    REQUIRE(seen.ups.size() == 2);
    CHECK(seen.ups[1].info.peer == seen.ups[0].info.peer);
    CHECK(seen.ups[1].generation > seen.ups[0].generation);
}

TEST_CASE("unidentified connections, rosters and dials are bounded", "[connections][P5][P6][P9]") {
    auto limits = config();
    limits.unidentified_max = 4;
    limits.roster.nodes_max = 40;
    limits.dial.dials_max = 4;
    PeerTable table(limits, Random(1), at_ms(0));
    for (uint64_t i = 0; i < 10; ++i)
        connect(table, ConnectionId{100 + i}, node_id(20), false, "x", at_ms(0));
    CHECK(drain(table).closes.size() == 6);
    for (uint64_t i = 0; i < 4; ++i) table.on_closed(ConnectionId{100 + i}, "gone", at_ms(0));

    connect(table, c1, low, false, "there:1", at_ms(0));
    auto hello = hello_of(low);
    for (unsigned i = 0; i < 50; ++i) hello.roster.push_back({node_id(50 + i), "h", {"a:1"}});
    table.on_message(c1, hello, at_ms(1));
    CHECK(table.roster().size() == 11);
    table.on_time(at_ms(1000));
    CHECK(drain(table).dials.size() == 3);
    table.on_time(at_ms(4000));  // nobody answered
    CHECK(drain(table).dials.size() == 3);
}

TEST_CASE("a roster that is full of met nodes takes no more, and says so", "[connections][P6]") {
    auto limits = config();
    limits.roster.nodes_max = 2;
    PeerTable table(limits, Random(1), at_ms(0));
    for (unsigned n = 20; n < 23; ++n) {
        connect(table, ConnectionId{n}, node_id(n), false, "there:1", at_ms(0));
        table.on_message(ConnectionId{n}, hello_of(node_id(n)), at_ms(1));
    }
    const Seen seen = drain(table);
    CHECK(seen.ups.size() == 2);
    REQUIRE(seen.closes.size() == 1);
    CHECK(seen.closes[0].reason.find("roster is full") != std::string::npos);
}

TEST_CASE("a hello of another incarnation than its connection's preamble is refused", "[connections][P1]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0), {2, 8});
    table.on_message(c1, hello_of(low, {1, 7}), at_ms(1));
    const Seen seen = drain(table);
    REQUIRE(seen.closes.size() == 1);
    CHECK(seen.closes[0].reason.find("began as incarnation 2") != std::string::npos);
    CHECK(seen.ups.empty());
    CHECK(table.roster().empty());
}

TEST_CASE("a relay's address is kept and passed on, and never dialled", "[connections][P5]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    connect(table, c2, node_id(2), false, "there:2", at_ms(0));
    table.on_message(c2, hello_of(node_id(2)), at_ms(1));
    auto hello = hello_of(low);
    const std::string relayed = "via:" + std::string(43, 'A');
    hello.roster.push_back({high, "h", {relayed, "b:1"}});
    hello.roster.push_back({node_id(10), "h", {relayed}});
    table.on_message(c1, hello, at_ms(1));
    size_t passed_on = 0;
    for (const SendOn& send : drain(table).sends)
        if (const auto* update = std::get_if<wire::RosterUpdate>(&send.message))
            passed_on += update->nodes[0].addresses[0] == relayed ? 1 : 0;
    CHECK(passed_on == 2);
    for (int ms = 1; ms < 30'000; ms += 500) {
        table.on_time(at_ms(ms));
        for (const Dial& dial : drain(table).dials) CHECK(dial.address == "b:1");
    }
}

TEST_CASE("a node takes no gossip of its own former self and never dials its own address",
          "[connections][P14]") {
    PeerTableConfig c = config();
    c.seeds = {"me:1", "there:1"};
    PeerTable table(c, Random(1), at_ms(0));
    table.on_time(at_ms(0));
    Seen seen = drain(table);
    REQUIRE(seen.dials.size() == 1);
    CHECK(seen.dials[0].address == "there:1");
    connect(table, c1, low, false, "there:1", at_ms(0));
    wire::Hello hello = hello_of(low);
    hello.roster = {{node_id(7), "me", {"me:1"}}, {high, "other", {"me:1", "far:1"}}};
    table.on_message(c1, hello, at_ms(1));
    for (int ms = 1; ms < 5000; ms += 10) {
        table.on_time(at_ms(ms));
        for (const Dial& dial : drain(table).dials) CHECK(dial.address != "me:1");
    }
    CHECK_FALSE(table.place_of(node_id(7)));
    CHECK(table.place_of(high));
}

TEST_CASE("a node that announced its departure is remembered, and passed on to nobody",
          "[connections][P14]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_of(low), at_ms(1));
    table.on_message(c1, wire::Goodbye{"left"}, at_ms(2));
    drain(table);
    CHECK((table.roster().size() == 1 && table.present().empty()));
    connect(table, c2, high, false, "far:1", at_ms(3));
    const Seen seen = drain(table);
    REQUIRE(seen.sends.size() == 1);
    CHECK(std::get<wire::Hello>(seen.sends[0].message).roster.empty());
}

TEST_CASE("a hello with a long roster comes in pieces that a greeting may have", "[connections]") {
    auto limits = config();
    PeerTable table(limits, Random(1), at_ms(0));
    wire::NodeRecord longest{{}, std::string(wire::hostname_bytes_max, 'h'), {}};
    longest.addresses.assign(wire::addresses_max, std::string(wire::address_bytes_max, 'a'));
    const auto nodes = static_cast<unsigned>(limits.roster.nodes_max);
    for (unsigned sender = 0; sender < 5; ++sender) {  // each has a quarter at most
        const ConnectionId from{10 + sender};
        connect(table, from, node_id(20 + sender), false, "there:1", at_ms(1));
        table.on_message(from, hello_of(node_id(20 + sender)), at_ms(1));
        for (unsigned i = 0; i < nodes / 4; ++i) {
            longest.node = node_id(100 + sender);
            std::memcpy(longest.node.bytes.data() + 20, &i, sizeof i);
            table.on_message(from, wire::RosterUpdate{{longest}}, at_ms(2));
        }
    }
    CHECK(table.roster().size() == nodes);
    while (table.poll_action()) {
    }
    connect(table, c2, high, true, "there:2", at_ms(3));
    size_t messages = 0, bytes = 0, records = 0;
    for (const SendOn& sent : drain(table).sends) {
        const size_t size = wire::encode(sent.message).size();
        CHECK(size <= 256 * 1024);  // greeting_bytes_max
        ++messages;
        bytes += size;
        if (const auto* hello = std::get_if<wire::Hello>(&sent.message)) records += hello->roster.size();
        if (const auto* more = std::get_if<wire::RosterUpdate>(&sent.message)) records += more->nodes.size();
    }
    CHECK(records == nodes);
    CHECK(messages < 64);       // greetings_max of an opening
    CHECK(bytes < (4u << 20));  // a control stream's send buffer
}

TEST_CASE(
    "incarnations are bounded, over all and of each node: a node that is started again for ever is refused",
    "[connections][P2]") {
    auto limits = config();
    limits.incarnations_max = 8;  // of one node: a quarter
    PeerTable table(limits, Random(1), at_ms(0));
    size_t ups = 0, refused = 0;
    for (uint64_t i = 0; i < 40; ++i) {
        const NodeId node = node_id(20 + static_cast<unsigned>(i / 8));
        const ConnectionId connection{100 + i};
        const auto now = at_ms(static_cast<int>(1000 * i));
        connect(table, connection, node, false, "there:1", now, {i + 1, i + 1});
        table.on_message(connection, hello_of(node, {i + 1, i + 1}), now);
        table.on_time(at_ms(static_cast<int>(1000 * i + 500)));  // the incarnation before does not answer
        const Seen seen = drain(table);
        ups += seen.ups.size();
        for (const PeerUp& up : seen.ups) CHECK(up.info.peer.value < limits.incarnations_max);
        for (const CloseConnection& close : seen.closes)
            refused += close.reason.contains("incarnations") ? 1 : 0;
    }
    CHECK(ups == 8);
    CHECK(refused == 32);
    // A connection of an incarnation that is known is no new one.
    connect(table, c1, node_id(20), true, "there:1", at_ms(100'000), {2, 2}, 900);
    table.on_message(c1, hello_of(node_id(20), {2, 2}), at_ms(100'000));
    CHECK(drain(table).ups.size() == 1);
}

TEST_CASE("what a node says about itself wins over gossip, and gossip is passed on once",
          "[connections][P6]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_of(low), at_ms(0));
    connect(table, c2, high, false, "there:2", at_ms(0));
    table.on_message(c2, hello_of(high), at_ms(0));
    drain(table);
    const NodeId third = node_id(7);
    const wire::NodeRecord rumour{third, "rumour", {"r:1"}}, other{third, "other", {"o:1"}};
    table.on_message(c1, wire::RosterUpdate{{rumour, {self, "liar", {"l:1"}}, {high, "liar", {"l:1"}}}},
                     at_ms(1));
    table.on_message(c1, wire::RosterUpdate{{other}}, at_ms(2));

    const Seen seen = drain(table);
    REQUIRE(seen.sends.size() == 1);
    CHECK(seen.sends[0].connection == c2);
    for (const auto& record : table.roster()) {
        if (record.node == third) CHECK(record.hostname == "rumour");
        if (record.node == high) CHECK(record.hostname == "host");
    }
    CHECK(table.roster().size() == 3);
}

TEST_CASE("addresses are tried in order", "[connections][P5]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    auto hello = hello_of(low);
    hello.roster.push_back({high, "h", {"a:1", "b:1", "c:1"}});
    table.on_message(c1, hello, at_ms(0));
    drain(table);
    std::vector<std::string> dialled;
    for (Time now = table.wake_at(); dialled.size() < 6; now = table.wake_at()) {
        table.on_time(now);
        for (const Dial& dial : drain(table).dials) {
            CHECK(dial.expected == high);
            dialled.push_back(dial.address);
            table.on_dial_failed(dial.address, dial.expected, "refused", now);
        }
    }
    CHECK(dialled == std::vector<std::string>{"a:1", "b:1", "c:1", "a:1", "b:1", "c:1"});
}

// A member that reports others.
wire::Hello hello_with(const NodeId& teller, unsigned first, unsigned count) {
    wire::Hello hello = hello_of(teller);
    for (unsigned n = first; n < first + count; ++n) hello.roster.push_back({node_id(n), "h", {"a:1"}});
    return hello;
}

TEST_CASE("a node that came back is dialled although many others never answer", "[connections][P5][H7]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_with(low, 100, 60), at_ms(1));
    drain(table);
    Time now = at_ms(1);
    // For a while nobody answers at all. Then the one that is last by its name does.
    const NodeId back = node_id(159);
    size_t turns = 0;
    for (const Time returns = now + std::chrono::seconds(60);; ++turns) {
        REQUIRE(turns < 100'000);
        now = std::max(now, table.wake_at());
        table.on_time(now);
        size_t dialled = 0;
        bool found = false;
        for (const Dial& dial : drain(table).dials) {
            ++dialled;
            found = found || (now >= returns && dial.expected == back);
        }
        CHECK(dialled <= config().dial.dials_max);
        if (found) break;
        REQUIRE(now < returns + std::chrono::seconds(30));
    }
    // Sixty of them, twelve at a time, three seconds each: five turns.
    CHECK(now <= at_ms(60'000 + 6 * 3'000 + 1'000));
}

TEST_CASE("a peer that was just lost is dialled before those that never answer", "[connections][P5][H7]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, high, true, "there:1", at_ms(0));
    table.on_message(c1, hello_with(high, 100, 60), at_ms(1));
    for (int ms = 1; ms < 20'000; ms += 50) table.on_time(at_ms(ms));
    drain(table);
    table.on_closed(c1, "cut", at_ms(20'000));
    std::vector<int> dials;
    for (int ms = 20'000; ms < 20'200; ++ms) {
        table.on_time(at_ms(ms));
        for (const Dial& dial : drain(table).dials)
            if (dial.expected == high) {
                dials.push_back(ms - 20'000);
                table.on_dial_failed(dial.address, high, "refused", at_ms(ms));
            }
    }
    REQUIRE(dials.size() >= 3);
    CHECK(dials[0] == 0);
    CHECK(dials[2] <= 45);
}

TEST_CASE("a turn of the loop does not walk the whole roster", "[connections][P10][H7]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_with(low, 10, 200), at_ms(1));
    table.on_time(at_ms(2));
    drain(table);
    const uint64_t before = table.nodes_walked();
    for (int turn = 0; turn < 10; ++turn) {  // nothing is due
        table.on_time(at_ms(3));
        (void)table.wake_at();
    }
    CHECK(table.nodes_walked() - before <= 10);
}

TEST_CASE("a node that left a day ago is in the roster no more", "[connections][P7][H7]") {
    PeerTable table(config(), Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_of(low), at_ms(1));
    table.on_message(c1, wire::Goodbye{"maintenance"}, at_ms(2));
    drain(table);
    REQUIRE(table.roster().size() == 1);
    for (Time now = at_ms(3); now < at_ms(0) + std::chrono::hours(24);) {
        now = std::min(std::max(now, table.wake_at()), now + std::chrono::minutes(1));
        table.on_time(now);
        for (const Dial& dial : drain(table).dials) table.on_dial_failed(dial.address, low, "gone", now);
        now += std::chrono::milliseconds(1);
    }
    CHECK(table.roster().empty());
}

TEST_CASE("a peer that is lost for a week is over, and its configured address is a seed again",
          "[connections][P5][P7]") {
    using namespace std::chrono_literals;
    auto with_seed = config();
    with_seed.seeds = {"seed:1"};
    PeerTable table(with_seed, Random(1), at_ms(0));
    table.on_time(at_ms(0));
    REQUIRE(drain(table).dials.size() == 1);
    connect(table, c1, low, true, "seed:1", at_ms(1));
    table.on_message(c1, hello_of(low), at_ms(2));
    table.on_closed(c1, "cut", at_ms(3));
    const Seen lost = drain(table);
    REQUIRE(lost.downs.size() == 1);
    CHECK_FALSE(lost.downs[0].proof);
    table.on_time(at_ms(2) + 7 * 24h);
    CHECK(drain(table).downs.empty());
    table.on_time(at_ms(3) + 7 * 24h);
    const Seen over = drain(table);
    REQUIRE(over.downs.size() == 1);
    CHECK(over.downs[0].proof);
    CHECK(over.downs[0].peer == lost.ups[0].info.peer);
    CHECK(table.roster().empty());
    CHECK_FALSE(table.index_of(low));
    table.on_time(at_ms(10'000) + 7 * 24h);
    const Seen later = drain(table);
    REQUIRE(later.dials.size() == 1);
    CHECK(later.dials[0].address == "seed:1");
    CHECK(later.dials[0].expected.is_zero());
    // It comes back: a new index; its highest counter is remembered.
    const Time back_at = at_ms(11'000) + 7 * 24h;
    connect(table, c2, low, false, "there:1", back_at);
    table.on_message(c2, hello_of(low), back_at);
    const Seen back = drain(table);
    REQUIRE(back.ups.size() == 1);
    CHECK(back.ups[0].info.peer != lost.ups[0].info.peer);
    table.on_closed(c2, "cut", back_at);
    connect(table, ConnectionId{3}, low, false, "copy:1", back_at, {0, 9});
    table.on_message(ConnectionId{3}, hello_of(low, {0, 9}), back_at);
    REQUIRE(drain(table).closes.size() == 1);
}

TEST_CASE("one member's gossip does not keep another node out", "[connections][P6][H7]") {
    auto limits = config();
    limits.roster.nodes_max = 64;
    PeerTable table(limits, Random(1), at_ms(0));
    connect(table, c1, low, false, "there:1", at_ms(0));
    table.on_message(c1, hello_with(low, 50, 200), at_ms(1));
    drain(table);
    connect(table, c2, high, false, "there:2", at_ms(2));
    table.on_message(c2, hello_of(high), at_ms(3));
    CHECK(drain(table).ups.size() == 1);
}

}  // namespace
}  // namespace nexar::connections
