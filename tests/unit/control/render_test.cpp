// What people see of the daemon's answers.
#include "nexarctl/render.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

using namespace nexarctl;
using json = nlohmann::ordered_json;

TEST_CASE("status shows this node, then its peers as a table") {
    const json status = json::parse(R"({
        "node": "3f2a9c01d2e4ffff", "host": "alpha", "incarnation": 4, "cluster": "c0ffee", "cluster_name": "prod",
        "state": "running", "version": "0.1.0",
        "certificate": {"state": "valid", "expires_in_s": 1727999, "why": ""}, "pid": 412, "uptime_s": 3725.5, "listen": "0.0.0.0:7654",
        "addresses": [{"address": "10.0.0.1:7654", "chosen": true}, {"address": "172.17.0.1:7654", "chosen": false}],
        "peers": [
          {"node": "aaaaaaaaaaaaffff", "host": "beta", "state": "up", "address": "10.0.0.2:7654", "incarnation": 2,
           "rtt_ms": 0.21, "received_ago_ms": 12, "why": "",
           "bulk": [{"up": true, "carrier": "quic", "encrypted": true, "carrier_why": "tcp refused"},
                    {"up": true, "carrier": "tcp", "encrypted": false, "carrier_why": ""},
                    {"up": true, "carrier": "quic", "encrypted": true, "carrier_why": "tcp refused"},
                    {"up": false, "carrier": "tcp", "encrypted": true, "carrier_why": ""}],
           "traffic": {"control": {"sent": {"bytes": 99, "payload_bytes": 0}, "received": {"payload_bytes": 0}},
                       "small": {"sent": {"payload_bytes": 1024}, "received": {"payload_bytes": 0}},
                       "bulk": {"sent": {"payload_bytes": 1047552}, "received": {"payload_bytes": 0}}}},
          {"node": "bbbbbbbbbbbbffff", "host": "", "state": "down", "address": "10.0.0.3:7654", "incarnation": 7,
           "rtt_ms": null, "received_ago_ms": null, "traffic": null, "why": "silent\nfor 5 s"}],
        "sessions": 2, "session_memory_bytes": 1536, "groups": 1, "ops_in_flight": 0,
        "traffic": {"bulk": {"sent": {"payload_bytes": 1048576}, "received": {"payload_bytes": 0}}}, "shards": 1, "workers": 1})");
    REQUIRE(render_status(status) ==
            "node         alpha (3f2a9c01d2e4)\n"
            "state        running\n"
            "cluster      prod (c0ffee)\n"
            "incarnation  4, up for 1 h 2 min, pid 412\n"
            "certificate  expires in 19 d 23 h\n"
            "version      0.1.0\n"
            "address      0.0.0.0:7654, known to others as 10.0.0.1:7654\n"
            "sessions     2, with 1.5 KiB of shared memory\n"
            "groups       1, operations in flight 0\n"
            "data         1 MiB sent, 0 B received\n"
            "threads      1 for bulk data, 1 for reductions\n"
            "\n"
            "PEER                 STATE  ADDRESS            RTT  LAST PACKET   SENT  RECEIVED  INCARNATION  "
            "BULK DATA                              WHY\n"
            "beta (aaaaaaaaaaaa)  up     10.0.0.2:7654  0.21 ms    12 ms ago  1 MiB       0 B            2  "
            "quic: tcp refused; tcp, NOT ENCRYPTED  -\n"
            "bbbbbbbbbbbb         down   10.0.0.3:7654        -            -      -         -            7  "
            "-                                      silent?for 5 s\n");
}

TEST_CASE("status says why a connection for bulk data is down, once for all shards, without its address") {
    const json status = json::parse(R"({"peers": [{"node": "aaaaaaaaaaaa", "state": "up", "bulk": [
        {"address": "10.0.0.2:7655", "up": false, "encrypted": true,
         "carrier_why": "tcp refused at 10.0.0.2:7655; quic: not answered at 10.0.0.2:7655"},
        {"address": "10.0.0.2:7656", "up": false, "encrypted": false,
         "carrier_why": "tcp refused at 10.0.0.2:7656; quic: not answered at 10.0.0.2:7656"},
        {"address": "10.0.0.2:7658", "up": true, "carrier": "quic", "encrypted": true,
         "carrier_why": "tcp refused at 10.0.0.2:7658"},
        {"address": "10.0.0.2:7659", "up": true, "carrier": "quic", "encrypted": true,
         "carrier_why": "tcp refused at 10.0.0.2:7659"},
        {"address": "10.0.0.2:7657", "up": true, "carrier": "tcp", "encrypted": true, "carrier_why": ""}]}]})");
    REQUIRE(render_status(status).find("  down: tcp refused, quic: not answered; quic: tcp refused; tcp  ") !=
            std::string::npos);
}

TEST_CASE("status warns of holes that are not guarded") {
    REQUIRE(
        render_status({{"holes_unguarded", "userfaultfd is not allowed"}})
            .find("WARNING      holes in clients' memory are filled on the daemon's account (userfaultfd") !=
        std::string::npos);
    REQUIRE(render_status({{"holes_unguarded", nullptr}}).find("holes") == std::string::npos);
}

TEST_CASE("status shows what each user has of his share") {
    const json status = json::parse(R"({
        "users": [{"uid": 1000, "label": "", "sessions": 2, "regions": 3, "region_bytes": 1024, "groups": 1,
                   "scratch_bytes": 512, "requests": 40, "log_lines_left_out": 40},
                  {"uid": 1000, "label": "pod", "sessions": 600, "regions": 0, "region_bytes": 0, "groups": 0}],
        "limits": {"sessions": {"share": 600}, "regions": {"share": 9830}, "region_bytes": {"share": 1048576},
                   "groups": {"share": 19660}, "scratch_bytes": {"share": 2048},
                   "requests": {"share": 157286}}})");
    const std::string text = render_status(status);
    REQUIRE(text.substr(text.find("USER")) ==
            "USER  LABEL    SESSIONS    REGIONS      REGISTERED      GROUPS         SCRATCH      REQUESTS  "
            "LOG LINES LEFT OUT\n"
            "1000  -        2 of 600  3 of 9830  1 KiB of 1 MiB  1 of 19660  512 B of 2 KiB  40 of 157286    "
            "              40\n"
            "1000  pod    600 of 600  0 of 9830    0 B of 1 MiB  0 of 19660    0 B of 2 KiB   0 of 157286    "
            "               0\n");
}

TEST_CASE("status says loudly when the certificate is not renewed, or has ended") {
    const auto shown = [](const char* state, int left) {
        return render_status({{"certificate",
                               {{"state", state},
                                {"expires_in_s", left},
                                {"renewal_failures", 3u},
                                {"why", "node aaaaaaaaaaaa: No space left on device"}}}});
    };
    REQUIRE(shown("renewing", 7200).find("expires in 2 h, is being renewed\n") != std::string::npos);
    REQUIRE(
        shown("renewal failed", 60)
            .find("expires in 1 min, RENEWAL FAILED 3 times: node aaaaaaaaaaaa: No space left on device") !=
        std::string::npos);
    REQUIRE(shown("expired", -90).find("EXPIRED 1 min 30 s ago; other nodes refuse this one") !=
            std::string::npos);
}

TEST_CASE("an answer without most of its fields is shown as far as it goes") {
    REQUIRE(render_status(json::object())
                .find("none, groups of this host only; for other nodes: nexarctl cluster init") !=
            std::string::npos);
    REQUIRE(render_status({{"host", "alpha"}, {"node", ""}}).starts_with("node         alpha\n"));
    REQUIRE(render_status(json(nullptr)).find("no peers") != std::string::npos);
    REQUIRE(render_groups(json::array()) == "no groups on this node\n");
    REQUIRE(render_ops(json::object()) == "no operations in flight on this node\n");
    REQUIRE(render_tokens(json::object(), 0) == "no tokens\n");
    REQUIRE(render_cluster(json::object()).find("in no cluster") != std::string::npos);
}

TEST_CASE("groups list their ranks, and say what failed") {
    const json groups =
        json::parse(R"({"groups": [{"name": "digits", "id": "01020304-7", "size": 2, "nodes": 2,
        "epoch": 1, "next_op": 43, "ops_in_flight": 1, "failed": {"name": "PEER_LOST", "text": "rank 1 ended"},
        "ranks": [{"rank": 0, "node": "aa", "host": "alpha", "pid": 100, "posted": 43, "local": true},
                  {"rank": 1, "node": "bb", "host": "beta", "pid": 20000, "posted": 42, "gone": true}]}], "omitted": 3})");
    REQUIRE(render_groups(groups) ==
            "digits  id 01020304-7, 2 ranks on 2 nodes, epoch 1, next operation 43, in flight 1\n"
            "  FAILED: PEER_LOST: rank 1 ended\n"
            "  RANK  NODE          PID  POSTED\n"
            "     0  alpha (aa)    100      43  here\n"
            "     1  beta (bb)   20000      42  gone\n"
            "\n3 more groups are not shown; name one\n");
}

TEST_CASE("groups and ops show who came to a group that is forming, who is missing, and what to look at",
          "[U8]") {
    const json forming = json::parse(R"([
        {"name": "digits", "size": 4, "key": "1a2b3c4d", "age_ms": 12300, "left_ms": 17700, "reported": true,
         "came": [{"rank": 0, "node": "aa", "host": "alpha", "pid": 100}, {"rank": 2, "node": "bb", "host": "beta", "pid": 200}],
         "came_count": 2, "missing": [1, 3], "missing_count": 2, "hints": ["do this", "do that"]},
        {"name": "auto", "size": 70, "key": "00000000", "age_ms": 1, "left_ms": null, "reported": true,
         "came": [{"rank": null, "node": "aa", "host": "", "pid": 100}], "came_count": 1, "missing": [], "missing_count": 69},
        {"name": "far", "size": 2, "key": "0", "age_ms": 1, "reported": false,
         "here": [{"rank": 1, "node": "aa", "host": "", "pid": 7}]},
        {"name": "last", "size": 2, "key": "0", "age_ms": 1, "being_made": true}])");
    REQUIRE(render_groups({{"groups", json::array()}, {"forming", forming}}) ==
            "digits  forming for 12.3 s: 2 of 4 ranks came, missing: rank 1, 3; gives up in 17.7 s; key "
            "1a2b3c4d\n"
            "    came: rank 0 on alpha (aa), pid 100\n"
            "    came: rank 2 on beta (bb), pid 200\n"
            "    -> do this\n"
            "    -> do that\n"
            "auto  forming for 1.00 ms: 1 of 70 ranks came, missing: 69 of any rank; key 00000000\n"
            "    came: any rank on aa, pid 100\n"
            "far  forming for 1.00 ms: which of its 2 ranks came is not known here; key 0\n"
            "    came: rank 1 on aa, pid 7\n"
            "last  forming for 1.00 ms: all ranks came, it is being made; key 0\n");
    REQUIRE(render_ops({{"ops", json::array()}, {"forming", json::array({forming[0]})}}) ==
            "digits  forming for 12.3 s: 2 of 4 ranks came, missing: rank 1, 3; gives up in 17.7 s; key "
            "1a2b3c4d\n"
            "    -> do this\n"
            "    -> do that\n");
}

TEST_CASE("ops name who has not arrived, with node and pid") {
    const json ops =
        json::parse(R"({"ops": [{"group": "digits", "seq": 42, "op": "all_reduce f32 sum count 1024",
        "age_ms": 2500, "phase": "waiting for ranks", "plan": "ring, bulk", "priority": "critical", "missing_count": 3,
        "missing": [{"rank": 1, "node": "bb", "host": "beta", "pid": 200}]}],
        "messages": [{"group": "digits", "what": "recv by rank 0, tag 7", "age_ms": 3}]})");
    REQUIRE(render_ops(ops) ==
            "digits #42  all_reduce f32 sum count 1024, for 2.5 s: waiting for ranks\n"
            "    plan: ring, bulk; critical\n"
            "    not arrived: rank 1 on beta (bb), pid 200\n"
            "    and 2 more\n"
            "digits  recv by rank 0, tag 7, for 3.00 ms\n");
}

TEST_CASE("tokens show how long they are good, from either form of the time") {
    const json tokens = json::parse(R"({"tokens": [{"id": "aa", "uses_left": 2, "expires": 1060},
        {"id": "bb", "uses_left": 1, "expires_in_s": -5}]})");
    REQUIRE(render_tokens(tokens, 1000) ==
            "TOKEN  USES LEFT  EXPIRES\n"
            "aa             2  in 1 min\n"
            "bb             1  expired\n");
}

TEST_CASE("the cluster shows its members") {
    const json cluster =
        json::parse(R"({"name": "prod", "cluster": "c0ffee", "root_key_hash": "12", "node": "aa",
        "issuer": true, "members": [{"node": "aa", "host": "alpha", "addresses": ["10.0.0.1:1", "[::1]:1"]}]})");
    const std::string text = render_cluster(cluster);
    REQUIRE(text.find("issuer     yes") != std::string::npos);
    REQUIRE(text.find("alpha (aa)  10.0.0.1:1, [::1]:1") != std::string::npos);
}
