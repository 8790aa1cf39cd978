// The daemon's reports: snapshots in, JSON out; and the arguments of its questions.
#include "node/report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "node/forming_report.hpp"
#include "node/own_report.hpp"

using namespace nexar;
using namespace nexar::node;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

NodeId node_id(uint8_t n) {
    NodeId id;
    id.bytes.fill(n);
    return id;
}

engine::RankSnapshot rank(uint32_t r, uint8_t on, uint32_t pid, uint64_t posted) {
    return {Rank(r), node_id(on), pid, on == 1, false, posted};
}

// Three ranks on two nodes, interleaved; one operation that waits for rank 1; one message.
engine::Snapshot snapshot() {
    engine::Snapshot s;
    engine::GroupSnapshot g;
    g.id = {0x0403020104030201, 5, 7};
    g.name = "digits";
    g.epoch = GroupEpoch(2);
    g.ranks = {rank(0, 1, 100, 43), rank(1, 2, 200, 42), rank(2, 1, 101, 43)};
    g.size = 3;
    g.next_op = 43;
    g.nodes = 2;
    g.ops_in_flight = 1;
    g.messages_waiting = 3;
    s.groups.push_back(g);
    engine::OpSnapshot op;
    op.group = g.id;
    op.group_name = "digits";
    op.seq = 42;
    op.descriptor = {engine::OpKind::all_reduce, reduce::Dtype::f32, reduce::ReduceOp::sum, 1024, 0};
    op.age = 1500us;
    op.phase = "waiting for ranks";
    op.plan = "ring, bulk";
    op.arrived = {g.ranks[0], g.ranks[2]};
    op.missing = {g.ranks[1]};
    op.arrived_count = 2;
    op.missing_count = 1;
    s.ops.push_back(op);
    s.messages.push_back({g.id, "recv by rank 0 from any rank, tag 7", 2s});
    return s;
}

const report::HostNames hosts = {{node_id(1), "alpha"}, {node_id(2), "beta"}};

}  // namespace

TEST_CASE("groups: name, id, epoch, next operation, and every rank with node and pid") {
    const json answer = json::parse(*report::groups(snapshot(), hosts));
    REQUIRE(answer["omitted"] == 0);
    REQUIRE(answer["groups"].size() == 1);
    const json& g = answer["groups"][0];
    REQUIRE(g["name"] == "digits");
    REQUIRE(g["id"] == "01020304-7");
    REQUIRE(g["size"] == 3);
    REQUIRE(g["nodes"] == 2);
    REQUIRE(g["epoch"] == 2);
    REQUIRE(g["next_op"] == 43);
    REQUIRE(g["messages_waiting"] == 3);
    REQUIRE(g["failed"] == nullptr);
    REQUIRE(g["ranks"][1] == json{{"rank", 1},
                                  {"node", node_id(2).hex()},
                                  {"host", "beta"},
                                  {"pid", 200},
                                  {"local", false},
                                  {"gone", false},
                                  {"posted", 42}});
}

TEST_CASE("a failed group says why, and which rank") {
    auto s = snapshot();
    s.groups[0].failed = {Errc::peer_lost, "the process of rank 1 ended", 1, -1, node_id(2).hex()};
    s.groups[0].failed.host = "beta";
    s.groups[0].failed.pid = 200;
    s.groups[0].failed.lost_ranks = {1, 4};
    s.groups[0].timeouts = {std::chrono::seconds(30), std::chrono::milliseconds(5), Duration{0}};
    const json g = json::parse(*report::groups(s, hosts))["groups"][0];
    REQUIRE(g["failed"]["name"] == "PEER_LOST");
    REQUIRE(g["failed"]["rank"] == 1);
    REQUIRE(g["failed"]["node"] == node_id(2).hex());
    REQUIRE(g["failed"]["code"] == -601);
    REQUIRE(g["failed"]["host"] == "beta");
    REQUIRE(g["failed"]["pid"] == 200);
    REQUIRE(g["failed"]["lost_ranks"] == json{1, 4});
    REQUIRE(g["timeouts_ms"] == json{{"collective", 30000.0}, {"barrier", 5.0}, {"rpc", 0.0}});
}

namespace {

engine::OpeningSnapshot forming(const std::string& name, uint32_t size) {
    engine::OpeningSnapshot out;
    out.name = name;
    out.key = "1a2b3c4d";
    out.size = size;
    out.age = std::chrono::seconds(2);
    out.left = std::chrono::seconds(28);
    out.leader = node_id(2);
    out.here = {{0, node_id(1), 100, std::chrono::seconds(2)}};
    out.reported = true;
    out.came = {{0, node_id(1), 100, {}}, {2, node_id(2), 200, {}}};
    out.came_count = 2;
    out.missing = {1};
    out.missing_count = size - 2;
    return out;
}

}  // namespace

TEST_CASE("groups and ops: who came to a group that is forming, and who is missing", "[U8]") {
    engine::Snapshot s;
    s.forming = {forming("digits", 3), forming("other", 3)};
    const json all = json::parse(*report::groups(s, hosts));
    REQUIRE(all["groups"].empty());
    const json one = all["forming"][0];
    REQUIRE((one["name"] == "digits" && one["size"] == 3 && one["key"] == "1a2b3c4d"));
    REQUIRE((one["age_ms"] == 2000.0 && one["left_ms"] == 28000.0));
    REQUIRE(one["collected_by"] == json{{"node", node_id(2).hex()}, {"host", "beta"}});
    REQUIRE(one["here"][0]["age_ms"] == 2000.0);
    REQUIRE(one["came"][1] == json{{"rank", 2}, {"node", node_id(2).hex()}, {"host", "beta"}, {"pid", 200}});
    REQUIRE((one["came_count"] == 2 && one["missing"] == json{1} && one["missing_count"] == 1));
    REQUIRE(one["hints"].empty());
    REQUIRE(json::parse(*report::groups(s, hosts, "other"))["forming"].size() == 1);
    REQUIRE(json::parse(*report::ops(s, hosts))["forming"].size() == 2);
    REQUIRE(json::parse(*report::ops(s, hosts, "other"))["forming"].size() == 1);
}

TEST_CASE("a group that does not form has hints: another secret, another size, nobody elsewhere", "[U8]") {
    engine::Snapshot s = snapshot();
    auto opening = forming("x", 3);
    const auto hints = [&] {
        s.forming.insert(s.forming.begin(), opening);
        return report::Hints(s).of(opening);
    };
    const auto only = [](const std::vector<std::string>& hints, const std::string& words) {
        return hints.size() == 1 && hints[0].find(words) != std::string::npos;
    };
    SECTION("an opening here or elsewhere has the name and another key") {
        SECTION("elsewhere") {
            opening.others = 3;
        }
        SECTION("here, without a secret") {
            auto local = opening;
            local.local = true;
            s.forming.push_back(local);
        }
        REQUIRE(only(hints(), "another job secret, or none"));
    }
    SECTION("those of another user are nothing to this one") {  // [R30]
        auto theirs = opening;
        theirs.opener_mark = opening.opener_mark + 1;
        theirs.key = "5e6f7a8b";
        s.forming.push_back(theirs);
        s.groups[0].opener_mark = theirs.opener_mark;
        opening.name = s.groups[0].name;
        s.forming[0].name = opening.name;
        opening.size = 17;
        REQUIRE(hints().empty());
    }
    SECTION("this node is in no cluster") {  // [U20]
        s.in_cluster = false;
        REQUIRE(only(hints(), "nexarctl cluster init"));
    }
    SECTION("a group of this name was made with another size") {
        opening.name = s.groups[0].name;
        opening.size = 17;
        REQUIRE(only(hints(), "do all ranks state one size?"));
    }
    SECTION("only ranks of this node came") {
        opening.came.pop_back();
        REQUIRE(only(hints(), "no rank of another node has come"));
    }
    SECTION("it has no secret") {
        opening.local = true;
        REQUIRE(only(hints(), "without a job secret"));
    }
    SECTION("the leader does not answer") {
        opening.reported = false;
        REQUIRE(only(hints(), "has not answered"));
    }
    SECTION("an attempt failed") {
        opening.trouble = "nodes a and b do not reach each other";
        REQUIRE(only(hints(), "a and b do not reach"));
    }
    SECTION("it is being made") {
        opening.being_made = true;
        opening.reported = false;
        REQUIRE(hints().empty());
    }
}

TEST_CASE("ops: what is in flight, who arrived, and who is missing with node and pid") {
    const json answer = json::parse(*report::ops(snapshot(), hosts));
    const json& op = answer["ops"][0];
    REQUIRE(op["op"] == "all_reduce f32 sum count 1024");
    REQUIRE(op["seq"] == 42);
    REQUIRE(op["age_ms"] == 1.5);
    REQUIRE(op["arrived"] == json{0, 2});
    REQUIRE(op["missing"] ==
            json::array({{{"rank", 1}, {"node", node_id(2).hex()}, {"host", "beta"}, {"pid", 200}}}));
    REQUIRE(answer["messages"][0]["what"] == "recv by rank 0 from any rank, tag 7");
    REQUIRE(answer["messages"][0]["group"] == "digits");
}

TEST_CASE("one group can be named, by name or id; a wrong name says which there are") {
    auto s = snapshot();
    s.groups.push_back(s.groups[0]);
    s.groups[1].name = "other";
    s.groups[1].id.counter = 8;
    REQUIRE(json::parse(*report::groups(s, hosts, "other"))["groups"].size() == 1);
    REQUIRE(json::parse(*report::groups(s, hosts, "01020304-8"))["groups"][0]["name"] == "other");
    REQUIRE(json::parse(*report::ops(s, hosts, "other"))["ops"].empty());
    REQUIRE(json::parse(*report::ops(s, hosts, "digits"))["messages"].size() == 1);

    for (const auto& answer : {report::groups(s, hosts, "x"), report::ops(s, hosts, "x")}) {
        REQUIRE(answer.error().code == Errc::not_found);
        REQUIRE(answer.error().text.find("digits, other") != std::string::npos);
    }
    REQUIRE(report::groups({}, hosts, "x").error().text.find("there is: none") != std::string::npos);
}

TEST_CASE("long lists are cut, and say so") {
    engine::Snapshot s = snapshot();
    const auto group = s.groups[0];
    s.groups.assign(report::groups_shown_max + 5, group);
    const json groups = json::parse(*report::groups(s, hosts));
    REQUIRE(groups["groups"].size() == report::groups_shown_max);
    REQUIRE(groups["omitted"] == 5);

    s = snapshot();
    s.ops[0].missing.assign(500, group.ranks[1]);
    s.ops[0].missing_count = 500;
    const json op = json::parse(*report::ops(s, hosts))["ops"][0];
    REQUIRE(op["missing"].size() == report::missing_shown_max);
    REQUIRE(op["missing_count"] == 500);
}

TEST_CASE("a name with bytes that are not UTF-8 is shown, not thrown") {
    auto s = snapshot();
    s.groups[0].name = "bad\xff\nname";
    const std::string text = *report::groups(s, {{node_id(1), "\xfe"}});
    REQUIRE(text.find('\n') == std::string::npos);
    REQUIRE(json::accept(text));
}

TEST_CASE("status: identity, incarnation, peers with state and times that may be unknown") {
    report::Status s;
    s.node = node_id(1);
    s.host = "alpha";
    s.incarnation = {4, 0xabc};
    s.cluster = "c0ffee";
    s.version = "0.1.0";
    s.state = "running";
    s.uptime = 90'500ms;
    s.sessions = 2;
    s.session_memory_bytes = 1 << 20;
    s.traffic.sent[3] = {2, 600, 5};
    report::Peer up{{node_id(2), "beta", {}}, {9, 1}, "up", "10.0.0.2:7654", 210us, 12ms, ""};
    report::Peer down{{node_id(3), "gamma", {}}, {}, "down", "10.0.0.3:7654", {}, {}, "silent for 5 s"};
    up.traffic.emplace().received[0] = {7, 900, 0};
    s.peers = {up, down};

    const json answer = json::parse(report::status(s));
    REQUIRE(answer["node"] == node_id(1).hex());
    REQUIRE(answer["incarnation"] == 4);
    REQUIRE(answer["incarnation_nonce"] == "0000000000000abc");
    REQUIRE(answer["uptime_s"] == 90.5);
    REQUIRE(answer["peers"][0]["state"] == "up");
    REQUIRE(answer["peers"][0]["rtt_ms"] == 0.21);
    REQUIRE(answer["peers"][0]["received_ago_ms"] == 12.0);
    REQUIRE(answer["peers"][1]["rtt_ms"] == nullptr);
    REQUIRE(answer["peers"][0]["traffic"]["control"]["received"] ==
            json{{"frames", 7}, {"bytes", 900}, {"payload_bytes", 0}});
    REQUIRE(answer["peers"][1]["traffic"] == nullptr);
    REQUIRE(answer["traffic"]["bulk"]["sent"] == json{{"frames", 2}, {"bytes", 600}, {"payload_bytes", 5}});
    REQUIRE(answer["traffic"].size() == class_count);
    REQUIRE(answer["peers"][1]["why"] == "silent for 5 s");

    s.cluster.clear();
    s.node = {};  // it has no key yet
    REQUIRE(json::parse(report::status(s))["cluster"] == nullptr);
    REQUIRE(json::parse(report::status(s))["node"] == "");
}

TEST_CASE("status: what each user has, and his share", "[N1][N11]") {
    TenantLimits limits;
    limits.total(Resource::groups) = 100;
    Tenants tenants(limits);
    const TenantRef one = tenants.of("", 1000), other = tenants.of("pod", 1000);
    const auto charge = other->charge(Resource::groups);
    report::Status s;
    REQUIRE(json::parse(report::status(s))["users"].empty());
    const uint64_t share = limits.log_lines_per_second();
    for (uint64_t i = 0; i < share + 5; ++i) one->lines.allows(Time{});
    tenants.of("idle", 1000);
    s.use = report::use_of(tenants);
    const json answer = json::parse(report::status(s));
    REQUIRE(answer["users"].size() == 2);
    REQUIRE(answer["users"][0]["label"] == "");
    REQUIRE(answer["users"][0]["groups"] == 0);
    REQUIRE(answer["users"][0]["log_lines_left_out"] == 5);
    REQUIRE(answer["users"][1]["log_lines_left_out"] == 0);
    REQUIRE(answer["users"][1]["label"] == "pod");
    REQUIRE(answer["users"][1]["uid"] == 1000);
    REQUIRE(answer["users"][1]["groups"] == 1);
    REQUIRE(answer["limits"]["groups"] ==
            json{{"used", 1}, {"total", 100}, {"share", 30}, {"key", "groups_max"}});
}

TEST_CASE("plan names the nodes by their first rank and gives the thresholds") {
    engine::Snapshot of_groups = snapshot();
    collectives::PlanTable& table = of_groups.groups[0].table;
    table.lanes = 3;
    table.model.bulk.start_ns = 77;
    table.ring_nodes_max = 4;
    table.family = collectives::Family::ring;
    const json answer = json::parse(*report::plan(of_groups, hosts, "digits"));
    REQUIRE(answer["node_of_rank"] == json{0, 1, 0});
    REQUIRE(answer["nodes"][1]["host"] == "beta");
    REQUIRE(answer["table"]["lanes"] == 3);
    REQUIRE(answer["table"]["model"]["bulk_start_ns"] == 77);
    REQUIRE(answer["table"]["ring_nodes_max"] == 4);
    REQUIRE(answer["table"]["algorithms"] == "ring");
    REQUIRE(report::plan(of_groups, hosts, "x").error().code == Errc::not_found);
}

TEST_CASE("tune takes all six parameters within their ranges, or forgets, or only asks", "[O7]") {
    const std::string six = R"({"small_start_ns": 1, "small_ps_per_byte": 2, "bulk_start_ns": 3,
                                 "bulk_ps_per_byte": 4, "memory_ps_per_byte": 5, "shared_ps_per_byte": 6})";
    const auto wish = report::tune_wish(R"({"model": )" + six + "}");
    REQUIRE(wish);
    REQUIRE(wish->model == collectives::Tuning{{{1, 2}, {3, 4}, 5, 6}, 0});
    const std::string seven = six.substr(0, six.size() - 1) + R"(, "doubling_bytes_max": 7})";
    REQUIRE(report::tune_wish(R"({"model": )" + seven + "}")->model->doubling_bytes_max == 7);
    const auto trial = report::tune_wish(R"({"trial": {"group": "g", "doubling_bytes_max": 8}})")->trial;
    REQUIRE((trial && trial->group == "g" && trial->doubling_bytes_max == 8));
    REQUIRE((!report::tune_wish("{}")->model && !report::tune_wish("{}")->forget));
    REQUIRE(report::tune_wish(R"({"forget": true})")->forget);
    for (const char* bad :
         {R"({"trial": 1})", R"({"trial": {"group": "g"}})",
          R"({"trial": {"group": "", "doubling_bytes_max": 8}})",
          R"({"trial": {"group": 7, "doubling_bytes_max": 8}})",
          R"({"trial": {"group": "g", "doubling_bytes_max": 0}})",
          R"({"trial": {"group": "g", "doubling_bytes_max": 8, "x": 1}})",
          R"({"forget": true, "trial": {"group": "g", "doubling_bytes_max": 8}})",
          R"({"model": {"small_start_ns": 1}})", R"({"model": 7})", R"({"forget": 1})", R"({"x": 1})",
          R"({"model": {"small_start_ns": "1"}})", R"({"model": {"a = 1\nsmall_start_ns": 1}})"}) {
        CAPTURE(bad);
        REQUIRE(report::tune_wish(bad).error().code == Errc::invalid_argument);
    }
    REQUIRE_FALSE(report::tune_wish(R"({"forget": true, "model": )" + six + "}"));
    const std::string two_lines = R"({"doubling_bytes_max = 5\nsmall_start_ns")" + six.substr(six.find(':'));
    REQUIRE(report::tune_wish(R"({"model": )" + two_lines + "}").error().code == Errc::invalid_argument);
}

TEST_CASE("cluster, tokens, doctor and config are JSON, and the configuration shows no secret", "[C6]") {
    report::Cluster c{
        "prod", "c0ffee", "ab", node_id(1), true, 1'900'000'000, {{node_id(1), "alpha", {"10.0.0.1:7654"}}}};
    REQUIRE(json::parse(report::cluster(c))["members"][0]["addresses"] == json{"10.0.0.1:7654"});
    REQUIRE(json::parse(report::tokens({{"00ff", 123, 2}}))["tokens"][0] ==
            json{{"id", "00ff"}, {"expires", 123}, {"uses_left", 2}});
    REQUIRE(json::parse(report::token_created({"00ff", 123, 2},
                                              Secret(std::string_view("nexar1.x"))))["token"] == "nexar1.x");

    report::Doctor d;
    d.pid = 77;
    d.addresses = {{"10.0.0.1:7654", true, "reached by a peer"}, {"172.17.0.1:7654", false, "a bridge"}};
    d.gso = true;
    d.state = "running";
    d.certificate = {700, 1000, 800, 0, ""};
    const json doctor = json::parse(report::doctor(d));
    REQUIRE(doctor["addresses"][0]["chosen"] == true);
    REQUIRE(doctor["gso"] == true);
    REQUIRE(doctor["gro"] == nullptr);
    REQUIRE(doctor["state"] == "running");
    REQUIRE(doctor["certificate"]["expires_in_s"] == 300);
    REQUIRE(doctor["certificate"]["renewal_due_in_s"] == 100);
    REQUIRE(json::parse(report::doctor({}))["certificate"].is_null());

    config::Config config;
    config.join_token = "nexar1.very-secret";
    const std::string text = report::config(config);
    REQUIRE(text.find("very-secret") == std::string::npos);
    REQUIRE(json::parse(text)["values"]["heartbeat_timeout"] == "5.0");
}

TEST_CASE("arguments: what is wrong is named together with what is allowed") {
    REQUIRE(report::token_wish("{}")->uses == 1);
    REQUIRE(report::token_wish("")->lifetime == 3600);
    REQUIRE(report::token_wish(R"({"uses": 5, "lifetime_s": 60})")->uses == 5);
    for (const char* bad : {R"({"uses": 0})", R"({"uses": 10001})", R"({"uses": -1})", R"({"uses": 1.5})",
                            R"({"uses": "2"})", R"({"lifetime_s": 2592001})", R"({"lifetime_s": 1e300})"}) {
        CAPTURE(bad);
        const auto wish = report::token_wish(bad);
        REQUIRE(wish.error().code == Errc::invalid_argument);
        REQUIRE(wish.error().text.find("from 1 to") != std::string::npos);
    }
    REQUIRE(report::token_wish(R"({"use": 1})").error().text.find("uses, lifetime_s") != std::string::npos);
    REQUIRE(!report::token_wish("[]"));
    REQUIRE(!report::token_wish("{"));

    REQUIRE(*report::text_argument(R"({"group": "g"})", "group", false) == "g");
    REQUIRE(report::text_argument("{}", "group", false)->empty());
    REQUIRE(report::text_argument("{}", "token", true).error().text.find("'token' is missing") !=
            std::string::npos);
    REQUIRE(!report::text_argument(R"({"group": 7})", "group", false));
    REQUIRE(!report::text_argument(R"({"group": ""})", "group", false));
    REQUIRE(!report::text_argument("{\"group\": \"" + std::string(5000, 'x') + "\"}", "group", false));
    REQUIRE(report::no_arguments("{}"));
    REQUIRE(!report::no_arguments(R"({"x": 1})"));
}

TEST_CASE("status: what state this node's certificate is in") {
    const auto state = [](WallSeconds now, unsigned failures) {
        report::Status s;
        s.certificate = {now, 1000, 700, failures, failures ? "no issuer" : ""};
        return json::parse(report::status(s))["certificate"];
    };
    REQUIRE(state(699, 0) == json({{"state", "valid"},
                                   {"expires", 1000},
                                   {"expires_in_s", 301},
                                   {"renewal_due_in_s", 1},
                                   {"renewal_failures", 0},
                                   {"why", ""}}));
    REQUIRE(state(700, 0)["state"] == "renewing");
    REQUIRE(state(800, 2)["state"] == "renewal failed");
    REQUIRE(state(800, 2)["why"] == "no issuer");
    REQUIRE(state(1000, 2)["state"] == "renewal failed");
    REQUIRE(state(1001, 0)["state"] == "expired");
    REQUIRE(state(1001, 0)["expires_in_s"] == -1);
    REQUIRE(json::parse(report::status({}))["certificate"].is_null());
}

TEST_CASE("what a user learns of the node has no address, no other user and no total", "[U12][C8]") {
    Tenants tenants;
    const auto own = tenants.of("", 2001), other = tenants.of("", 4242);
    const auto charge = own->charge(Resource::sessions),
               foreign = other->charge(Resource::region_bytes, 4711);
    report::OwnStatus s;
    s.tenant = own->name;
    s.node = node_id(1);
    s.host = "alpha";
    s.state = "running";
    report::Peer peer;
    peer.record = {node_id(2), "beta", {"192.0.2.7:7654"}};
    peer.state = "down";
    peer.address = "192.0.2.7:7654";
    peer.why = "no answer from 192.0.2.7:7654";
    s.peers = {peer};
    s.sessions = {{100, 4096, 2}, {101, 1, 0}};
    s.use = report::use_of(tenants, s.tenant);
    const std::string text = report::own_status(s);
    const json answer = json::parse(text);

    REQUIRE(answer["own"] == json{{"uid", 2001}, {"label", ""}});
    REQUIRE(answer["peers"] ==
            json::array({{{"node", node_id(2).hex()}, {"host", "beta"}, {"state", "down"}}}));
    REQUIRE(answer["sessions"] == 2);
    REQUIRE(answer["session_memory_bytes"] == 4097);
    REQUIRE(answer["processes"][0] == json{{"pid", 100}, {"memory_bytes", 4096}, {"ops_in_flight", 2}});
    REQUIRE(answer["shares"]["sessions"]["used"] == 1);
    REQUIRE(answer["shares"]["region_bytes"]["used"] == 0);
    for (const char* hidden : {"192.0.2", "4711", "4242"}) REQUIRE(text.find(hidden) == std::string::npos);
}
