#include "config/config.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "core/cores.hpp"

using namespace nexar;
using namespace nexar::config;

namespace {
Sources file(std::string text) {
    return {"/etc/nexar.toml", std::move(text), {}, {}};
}
Sources environment(std::map<std::string, std::string> variables) {
    return {"", std::nullopt, std::move(variables), {}};
}
}  // namespace

TEST_CASE("without any source the defaults hold") {
    const Config c = *load({});
    REQUIRE(c.collective_timeout == 30);
    REQUIRE(c.heartbeat_interval == 1);
    REQUIRE(c.heartbeat_timeout == 5);
    REQUIRE(c.socket == "/run/nexar/nexard.sock");
}

TEST_CASE("a flag beats the environment, which beats the file") {
    Sources s = file("heartbeat_timeout = 7\nrpc_timeout = 8\ncollective_timeout = 9\n");
    s.environment = {{"NEXAR_HEARTBEAT_TIMEOUT_SECS", "17"}, {"NEXAR_RPC_TIMEOUT_SECS", "18.5"}};
    s.flags = {{"heartbeat_timeout", "27"}};
    const Config c = *load(s);
    REQUIRE(c.heartbeat_timeout == 27);
    REQUIRE(c.rpc_timeout == 18.5);
    REQUIRE(c.collective_timeout == 9);
}

TEST_CASE("a bad value names key, value, place and what is allowed") {
    const auto e = load(file("\nheartbeat_interval = -3\n")).error();
    REQUIRE(e.code == Errc::bad_config);
    REQUIRE(e.text.find("/etc/nexar.toml line 2") != std::string::npos);
    REQUIRE(e.text.find("heartbeat_interval") != std::string::npos);
    REQUIRE(e.text.find("-3") != std::string::npos);
    REQUIRE(e.text.find("0.05 to 86400 seconds") != std::string::npos);

    const auto v = load(environment({{"NEXAR_ELASTIC_ENABLED", "maybe"}})).error();
    REQUIRE(v.text.find("NEXAR_ELASTIC_ENABLED") != std::string::npos);
    REQUIRE(v.text.find("maybe") != std::string::npos);
}

TEST_CASE("an unknown key is refused and the known ones are listed") {
    const auto e = load(file("heartbeet = 3\n")).error();
    REQUIRE(e.text.find("heartbeet") != std::string::npos);
    REQUIRE(e.text.find("heartbeat_timeout") != std::string::npos);
}

TEST_CASE("a character that the parser cannot judge is an error, a byte order mark is not") {
    for (const char* text : {"\xEF\xBA\xBFrt = 1\n", "\xC6\x9C", "heartbeat_timeout = 7 \xC3\xA9\n",
                             "cluster_name = \"\"\"\\\n\xC3\xA9\"\"\"\n"})
        REQUIRE(load(file(text)).error().text.find("not TOML") != std::string::npos);
    const auto marked = load(file("\xEF\xBB\xBFheartbeat_timeout = 7\n"));
    REQUIRE(marked);
    REQUIRE(marked->heartbeat_timeout == 7);
    REQUIRE(load(file("cluster_name = \"\\\"\xC3\xA9\" # \xC3\xA9\n")));
}

TEST_CASE("a file that is not TOML names the line") {
    REQUIRE(load(file("a = = 3\n")).error().text.find("line 1") != std::string::npos);
    REQUIRE_FALSE(load(file("[listen]\nx = 1\n")));
    REQUIRE_FALSE(load(file("advertise = [1, 2]\n")));
    REQUIRE(load(file("advertise = [\"10.0.0.1\", \"eth*\"]\n"))->advertise == "10.0.0.1,eth*");
}

TEST_CASE("every environment name of the seed is read and checked") {
    const char* const names[] = {"NEXAR_TOPOLOGY",
                                 "NEXAR_COLLECTIVE_TIMEOUT_SECS",
                                 "NEXAR_BARRIER_TIMEOUT_SECS",
                                 "NEXAR_RPC_TIMEOUT_SECS",
                                 "NEXAR_LARGE_MSG_BYTES",
                                 "NEXAR_PIPELINE_SEGMENT_BYTES",
                                 "NEXAR_RING_MAX_WORLD",
                                 "NEXAR_ENABLE_TCP_BULK_SIDECAR",
                                 "NEXAR_ENCRYPT_BULK_TRANSPORT",
                                 "NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES",
                                 "NEXAR_HEARTBEAT_INTERVAL_SECS",
                                 "NEXAR_HEARTBEAT_TIMEOUT_SECS",
                                 "NEXAR_RECOVERY_TIMEOUT_SECS",
                                 "NEXAR_ELASTIC_ENABLED",
                                 "NEXAR_ELASTIC_MIN_WORLD_SIZE",
                                 "NEXAR_ELASTIC_MAX_WORLD_SIZE",
                                 "NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS",
                                 "NEXAR_RECOVERY_POLICY"};
    for (const char* name : names) {
        CAPTURE(name);
        const auto bad = load(environment({{name, "certainly not"}}));
        REQUIRE_FALSE(bad);
        REQUIRE(bad.error().text.find(name) != std::string::npos);
    }
    REQUIRE(load(environment({{"NEXAR_CLUSTER_TOKEN", "nexar1.x"}}))->join_token == "nexar1.x");
}

TEST_CASE("a key of what is to come has the one value that describes the daemon", "[U14]") {
    for (const auto& [name, value] :
         {std::pair("NEXAR_TOPOLOGY", "Full_Mesh"), std::pair("NEXAR_ELASTIC_ENABLED", "off"),
          std::pair("NEXAR_RECOVERY_POLICY", "abort"), std::pair("NEXAR_RECOVERY_TIMEOUT_SECS", "0.0"),
          std::pair("NEXAR_ELASTIC_MIN_WORLD_SIZE", "1")})
        REQUIRE(load(environment({{name, value}})));
    const auto refused = load(environment({{"NEXAR_RECOVERY_POLICY", "automatic"}}));
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().text ==
            "environment variable NEXAR_RECOVERY_POLICY: recovery_policy = 'automatic' is "
            "not allowed; allowed: abort (automatic and manual wait for recovery)");
    for (const auto& [name, value] : {std::pair("NEXAR_ELASTIC_MIN_WORLD_SIZE", "true"),
                                      std::pair("NEXAR_ELASTIC_MAX_WORLD_SIZE", "8")}) {
        CAPTURE(name);
        const auto other = load(environment({{name, value}}));
        REQUIRE_FALSE(other);
        REQUIRE(other.error().text.find("for") != std::string::npos);
    }
}

TEST_CASE("what overrides the cost model is configured, within its limits", "[O5]") {
    const auto none = load(environment({}));
    REQUIRE((none->large_message_bytes == 0 && none->ring_max_world == 0 && none->algorithms == "automatic"));
    const auto other = load(environment({{"NEXAR_LARGE_MSG_BYTES", "8388608"},
                                         {"NEXAR_RING_MAX_WORLD", "8"},
                                         {"NEXAR_ALGORITHMS", "Halving"}}));
    REQUIRE((other->large_message_bytes == 8 << 20 && other->ring_max_world == 8));
    REQUIRE(other->algorithms == "halving");
    for (const auto& [name, value] :
         {std::pair("NEXAR_LARGE_MSG_BYTES", "63"), std::pair("NEXAR_LARGE_MSG_BYTES", "1099511627777"),
          std::pair("NEXAR_RING_MAX_WORLD", "65537"), std::pair("NEXAR_ALGORITHMS", "tree")}) {
        CAPTURE(name, value);
        REQUIRE_FALSE(load(environment({{name, value}})));
    }
}

TEST_CASE("bulk data over TCP and its encryption are on; both may be switched", "[B6][B7]") {
    const auto none = load(environment({}));
    REQUIRE((none->tcp_bulk && none->encrypt_bulk));
    const auto other = load(
        environment({{"NEXAR_ENABLE_TCP_BULK_SIDECAR", "no"}, {"NEXAR_ENCRYPT_BULK_TRANSPORT", "false"}}));
    REQUIRE((!other->tcp_bulk && !other->encrypt_bulk));
    REQUIRE_FALSE(load(environment({{"NEXAR_ENCRYPT_BULK_TRANSPORT", "perhaps"}})));
}

TEST_CASE("an address to listen on is digits and a port, and leaves ports for bulk data") {
    for (const char* good : {"0.0.0.0:7654", "127.0.0.1:1", "10.0.0.1:65533", "[::]:7654", "[fd00::2]:80"}) {
        CAPTURE(good);
        REQUIRE(load(environment({{"NEXAR_LISTEN", good}, {"NEXAR_BULK_SHARDS", "1"}}))->listen == good);
    }
    for (const char* bad : {"",         "foo",          "7654",          ":7654",      "1.2.3.4",
                            "1.2.3.4:", "1.2.3.4:0",    "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:80x",
                            "1.2.3:80", "localhost:80", "::1:80",        "[::1]",      "[::1]80",
                            "[::1:80",  "[]:80",        "[1.2.3.4]:80",  "]:80",       " 1.2.3.4:80"}) {
        CAPTURE(bad);
        const auto loaded = load(environment({{"NEXAR_LISTEN", bad}}));
        REQUIRE_FALSE(loaded);
        REQUIRE(loaded.error().text.find("ADDRESS:PORT") != std::string::npos);
    }
    Sources s = environment({{"NEXAR_LISTEN", "0.0.0.0:65534"}, {"NEXAR_BULK_SHARDS", "1"}});
    REQUIRE(load(s).error().text.find("up to 65533") != std::string::npos);
    s.environment = {{"NEXAR_LISTEN", "[::]:65532"}, {"NEXAR_BULK_SHARDS", "3"}};
    REQUIRE(load(s).error().text.find("up to 65531") != std::string::npos);
    s.environment["NEXAR_LISTEN"] = "[::]:65531";
    REQUIRE(load(s));
    // By cores: one of the loop's own, and one to four.
    s.environment = {{"NEXAR_LISTEN", "[::]:65534"}};
    REQUIRE_FALSE(load(s));
    s.environment["NEXAR_LISTEN"] = "[::]:65530";
    REQUIRE(load(s));
}

TEST_CASE("there are as many bulk shards as configured, or one for four cores, from one to four") {
    const auto by_cores = bulk_shards_of(*load(environment({})));
    REQUIRE(by_cores == std::clamp<uint64_t>(usable_cores() / 4, 1, 4));
    REQUIRE(bulk_shards_of(*load(environment({{"NEXAR_BULK_SHARDS", "7"}}))) == 7);
}

TEST_CASE("a cluster's name fits into a certificate") {
    for (const std::string& name :
         {std::string(), std::string(54, 'x'), std::string("a\nb"), std::string("\x7f")}) {
        const auto loaded = load(environment({{"NEXAR_CLUSTER_NAME", name}}));
        REQUIRE_FALSE(loaded);
        REQUIRE(loaded.error().text.find("1 to 53 bytes") != std::string::npos);
    }
    REQUIRE(load(environment({{"NEXAR_CLUSTER_NAME", std::string(53, 'x')}})));
}

TEST_CASE("variables that mean nothing to anybody are found") {
    REQUIRE(unknown_variables({{"NEXAR_HEARTBEAT_TIMEOUT_SECS", "5"},
                               {"NEXAR_RANK", "0"},
                               {"NEXAR_LIBRARY", "x"},
                               {"NEXAR_DETERMINISTIC", "1"},
                               {"NEXAR_NEXARD", "x"},
                               {"PATH", "/bin"}})
                .empty());
    REQUIRE(unknown_variables({{"NEXAR_HEARTBEAT_TIMEOUT", "5"}, {"NEXAR_WORKERS", "1"}}) ==
            std::vector<std::string>{"NEXAR_HEARTBEAT_TIMEOUT"});
}

TEST_CASE("session sockets have a path, a label, and an owner, group and mode if wanted", "[H19]") {
    const auto loaded = [](const std::string& value) {
        return load({"f", {}, {{"NEXAR_SESSION_SOCKETS", value}}, {}});
    };
    const auto two = loaded("/run/a/s label=a,/run/b/s owner=1000 group=hpc mode=0660 label=b.2");
    REQUIRE(two);
    REQUIRE(two->session_sockets == std::vector<SessionSocket>{{"/run/a/s", "a", "", "", 0666},
                                                               {"/run/b/s", "b.2", "1000", "hpc", 0660}});
    const auto again = load({"f", to_toml(*two), {}, {}});
    REQUIRE(again);
    REQUIRE(again->session_sockets == two->session_sockets);
    const auto of_file = load({"f", "session_sockets = [\"/a label=x\", \"/b label=y\"]", {}, {}});
    REQUIRE(of_file);
    REQUIRE(of_file->session_sockets.size() == 2);
    REQUIRE(loaded("")->session_sockets.empty());

    for (const char* bad :
         {"run/a label=a", "/run/a", "/run/a label=", "/run/a label=a/b", "/run/a label=a mode=0888",
          "/run/a label=a mode=0066", "/run/a label=a mode=01777",
          "/run/a label=a owner=", "/run/a label=a x", "/run/a label=a x=y", "/a label=a,/a label=b"})
        REQUIRE_FALSE(loaded(bad));
    REQUIRE_FALSE(loaded("/run/a label=" + std::string(65, 'a')));
    REQUIRE_FALSE(loaded("/" + std::string(107, 'a') + " label=a"));
    REQUIRE_FALSE(loaded("/run/nexar/nexard.sock label=a"));
    REQUIRE_FALSE(loaded("/run/nexar/admin.sock label=a"));
}

TEST_CASE("a status socket is beside the admin socket, elsewhere, or off, and never on another socket's path",
          "[U12]") {
    using Sockets = std::vector<std::pair<std::string, std::string>>;
    REQUIRE(status_sockets(*load({})) == Sockets{{"/run/nexar/status.sock", ""}});
    REQUIRE(status_sockets(*load(file("admin_socket = \"/a/b.sock\"\n"))) == Sockets{{"/a/status.sock", ""}});
    REQUIRE(status_sockets(*load(file("status_socket = \"/x/y\"\n"))) == Sockets{{"/x/y", ""}});
    REQUIRE(status_sockets(*load(file("status_socket = \"OFF\"\n"))).empty());
    const auto labelled = load(file("session_sockets = \"/a/s label=a status=/a/status.sock\"\n"));
    REQUIRE(labelled);
    REQUIRE(status_sockets(*labelled) == Sockets{{"/run/nexar/status.sock", ""}, {"/a/status.sock", "a"}});
    REQUIRE(load({"f", to_toml(*labelled), {}, {}})->session_sockets == labelled->session_sockets);

    for (const char* bad :
         {"status_socket = \"status.sock\"", "status_socket = \"/run/nexar/admin.sock\"",
          "status_socket = \"/run/nexar/nexard.sock\"", "session_sockets = \"/a/s label=a status=x\"",
          "session_sockets = \"/a/s label=a status=/a/s\"",
          "session_sockets = \"/run/nexar/status.sock label=a\"",
          "session_sockets = \"/a/s label=a status=/run/nexar/status.sock\""}) {
        CAPTURE(bad);
        REQUIRE_FALSE(load(file(bad)));
    }
    REQUIRE_FALSE(load(file("status_socket = \"/" + std::string(107, 'x') + "\"\n")));
}

TEST_CASE("conditions between keys are checked") {
    const auto short_of = load(file("heartbeat_timeout = 1.5\n")).error().text;
    REQUIRE(short_of ==
            "heartbeat_timeout = 1.5 s is too short; allowed: at least twice heartbeat_interval (1 s)");
    REQUIRE(load(file("socket = \"/x\"\nadmin_socket = \"/x\"\n")).error().text.find("two different paths") !=
            std::string::npos);
    REQUIRE_FALSE(load(file("heartbeat_interval = 4\n")));
    REQUIRE_FALSE(load(file("init_cluster = true\njoin_token = \"x\"\n")));
}

TEST_CASE("what to_toml writes is read back alike, and holds no secret") {
    Config c;
    c.heartbeat_timeout = 6.25;
    c.listen = "[::]:9";
    c.join_token = "nexar1.secret";
    const std::string text = to_toml(c);
    REQUIRE(text.find("secret") == std::string::npos);
    const Config back = *load(file(text));
    REQUIRE(back.heartbeat_timeout == 6.25);
    REQUIRE(back.listen == "[::]:9");
}

TEST_CASE("every key has a name, a variable, a range and a help line, each once") {
    std::map<std::string, int> seen;
    for (const Key& k : keys()) {
        REQUIRE(std::string(k.environment).starts_with("NEXAR_"));
        REQUIRE_FALSE(std::string(k.allowed).empty());
        REQUIRE_FALSE(std::string(k.help).empty());
        REQUIRE(++seen[k.name] == 1);
        REQUIRE(++seen[k.environment] == 1);
        Config c;
        REQUIRE(k.set(c, k.get(c)) ==
                !(k.get(c).empty() && std::string(k.allowed).starts_with("an absolute")));
    }
}

TEST_CASE("text on which the parser itself stumbles is an error like any other") {
    for (std::string text :
         {std::string("[\x02"), std::string("[ ="), std::string("[\0a]", 4), std::string("[a.\x01]"),
          std::string("a = { \x02 = 1 }"), std::string("["), std::string("[[ ]]")}) {
        const auto loaded = load(file(text));
        REQUIRE_FALSE(loaded);
        REQUIRE(loaded.error().text.find("/etc/nexar.toml") != std::string::npos);
    }
}

TEST_CASE("the effective configuration is TOML again, whatever its texts hold") {
    Sources s;
    s.flags = {{"state_dir", "/tmp/a \"b\"\\c"},
               {"socket_group", "tab\there"},
               {"advertise", "10.0"},
               {"cluster_name", "007"}};
    const auto config = load(s);
    REQUIRE(config);
    const auto again = load(file(to_toml(*config)));
    REQUIRE(again);
    REQUIRE(again->state_dir == config->state_dir);
    REQUIRE(again->socket_group == config->socket_group);
    REQUIRE(again->advertise == "10.0");
    REQUIRE(again->cluster_name == "007");
}

TEST_CASE("a join token is overwritten in all its places") {
    const std::string token = "a-token-that-is-longer-than-what-a-string-keeps-in-itself";
    Sources sources = file("join_token = \"" + token + "\"\n");
    sources.environment["NEXAR_CLUSTER_TOKEN"] = token;
    sources.flags["join_token"] = token;
    Config config = *load(sources);
    REQUIRE(config.join_token == token);
    const std::string_view seen[] = {*sources.file_text, sources.environment["NEXAR_CLUSTER_TOKEN"],
                                     sources.flags["join_token"], config.join_token};
    wipe_token(sources, config);
    for (const std::string_view place : seen) CHECK(std::ranges::count(place, '\0') == std::ssize(place));
    CHECK(config.join_token.empty());
}
