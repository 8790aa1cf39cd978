// nexarctl status: this node and how it sees the others.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/render.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;

namespace {

std::string address_text(const json& status) {
    std::string out = text_of(status, "listen");
    for (const auto& a : list_of(status, "addresses"))
        if (flag_of(a, "chosen")) out += ", known to others as " + text_of(a, "address");
    return out;
}

std::string certificate_text(const json& status) {
    if (!has(status, "certificate")) return "none";
    const json& c = status["certificate"];
    const double left = number_of(c, "expires_in_s");
    const std::string failures = std::to_string(count_of(c, "renewal_failures"));
    const std::string why = text_of(c, "why").empty() ? "" : ": " + text_of(c, "why");
    if (text_of(c, "state") == "expired")
        return "EXPIRED " + seconds_text(-left) + " ago; other nodes refuse this one until it joins again" +
               why;
    std::string out = "expires in " + seconds_text(left);
    if (text_of(c, "state") == "renewing") out += ", is being renewed";
    if (text_of(c, "state") == "renewal failed") out += ", RENEWAL FAILED " + failures + " times" + why;
    return out;
}

// A node that left or was lost stays in the list for a while.
std::string why_text(const json& peer) {
    const std::string why = text_of(peer, "why");
    if (!has(peer, "forgotten_in_s")) return why;
    return why + (why.empty() ? "" : "; ") + "forgotten in " +
           seconds_text(number_of(peer, "forgotten_in_s"));
}

// Payload of all classes; --json has each class, and the frames.
std::string data_text(const json& of, const char* direction) {
    if (!has(of, "traffic")) return "";
    uint64_t bytes = 0;
    for (const json& counts : of["traffic"])
        if (has(counts, direction)) bytes += count_of(counts[direction], "payload_bytes");
    return bytes_text(bytes);
}

// The carrier of one shard's connection, of QUIC with the reason, or why there is none; empty: not known.
std::string carrier_text(const json& bulk) {
    std::string why = text_of(bulk, "carrier_why");
    // The shards differ in their ports only, which --json has; "; " is between shards here.
    const auto replace = [&why](const std::string& old, const std::string& with) {
        for (size_t found; (found = why.find(old)) != std::string::npos;)
            why.replace(found, old.size(), with);
    };
    replace(" at " + text_of(bulk, "address"), "");
    replace("; ", ", ");
    if (!flag_of(bulk, "up")) return why.empty() ? "" : "down: " + why;
    return text_of(bulk, "carrier") + (flag_of(bulk, "encrypted") ? "" : ", NOT ENCRYPTED") +
           (why.empty() ? "" : ": " + why);
}

// Shards that have the same are shown once.
std::string bulk_text(const json& peer) {
    std::vector<std::string> shown;
    for (const auto& b : list_of(peer, "bulk"))
        if (std::string text = carrier_text(b);
            !text.empty() && std::ranges::find(shown, text) == shown.end())
            shown.push_back(std::move(text));
    std::string out;
    for (const std::string& text : shown) out += (out.empty() ? "" : "; ") + text;
    return out;
}

std::string peers_text(const json& status) {
    const json& peers = list_of(status, "peers");
    if (peers.empty()) return "no peers\n";
    Table table({"PEER", "STATE", "ADDRESS", ">RTT", ">LAST PACKET", ">SENT", ">RECEIVED", ">INCARNATION",
                 "BULK DATA", "WHY"});
    for (const auto& p : peers)
        table.row(
            {node_text(p), text_of(p, "state"), text_of(p, "address"),
             has(p, "rtt_ms") ? milliseconds_text(number_of(p, "rtt_ms")) : "",
             has(p, "received_ago_ms") ? milliseconds_text(number_of(p, "received_ago_ms")) + " ago" : "",
             data_text(p, "sent"), data_text(p, "received"), std::to_string(count_of(p, "incarnation")),
             bulk_text(p), why_text(p)});
    return table.text();
}

// What this node's configuration permits; with which peers it is so, the table shows.
std::string plain_text(const json& status) {
    if (!flag_of(status, "bulk_may_be_plain")) return "";
    return "WARNING      encrypt_bulk is false: bulk data is NOT ENCRYPTED to nodes that say the same\n";
}

std::string holes_text(const json& status) {
    if (!has(status, "holes_unguarded")) return "";
    return "WARNING      holes in clients' memory are filled on the daemon's account (" +
           text_of(status, "holes_unguarded") + "); nexarctl doctor has the remedy\n";
}

// What each user has of his share of each limit (docs/protocol/tenants.md).
std::string users_text(const json& status) {
    const json& users = list_of(status, "users");
    if (users.empty()) return "";
    const auto share = [&](const char* name) {
        return status.contains("limits") && has(status["limits"], name)
                   ? count_of(status["limits"][name], "share")
                   : 0;
    };
    const auto used = [&](const json& user, const char* name) {
        return std::to_string(count_of(user, name)) + " of " + std::to_string(share(name));
    };
    Table table({"USER", "LABEL", ">SESSIONS", ">REGIONS", ">REGISTERED", ">GROUPS", ">SCRATCH", ">REQUESTS",
                 ">LOG LINES LEFT OUT"});
    const auto bytes_used = [&](const json& user, const char* name) {
        return bytes_text(count_of(user, name)) + " of " + bytes_text(share(name));
    };
    for (const auto& user : users)
        table.row({std::to_string(count_of(user, "uid")), text_of(user, "label"), used(user, "sessions"),
                   used(user, "regions"), bytes_used(user, "region_bytes"), used(user, "groups"),
                   bytes_used(user, "scratch_bytes"), used(user, "requests"),
                   std::to_string(count_of(user, "log_lines_left_out"))});
    return "\n" + table.text();
}

// What a status socket answers: the rest of the daemon's state is not for every user.
std::string render_own(const json& s) {
    std::string out = aligned({
        {"node", node_text(s)},
        {"state", text_of(s, "state") + ", up for " + seconds_text(number_of(s, "uptime_s"))},
        {"cluster", text_of(s, "cluster_name").empty() ? "none" : text_of(s, "cluster_name")},
        {"version", text_of(s, "version")},
        {"user", std::to_string(count_of(s["own"], "uid")) +
                     (text_of(s["own"], "label").empty() ? "" : " of " + text_of(s["own"], "label"))},
        {"sessions", std::to_string(count_of(s, "sessions")) + ", with " +
                         bytes_text(count_of(s, "session_memory_bytes")) + " of shared memory"},
        {"groups", std::to_string(count_of(s, "groups")) + ", operations in flight " +
                       std::to_string(count_of(s, "ops_in_flight"))},
    });
    Table sessions({">PID", ">MEMORY", ">IN FLIGHT"});
    for (const auto& p : list_of(s, "processes"))
        sessions.row({std::to_string(count_of(p, "pid")), bytes_text(count_of(p, "memory_bytes")),
                      std::to_string(count_of(p, "ops_in_flight"))});
    if (!list_of(s, "processes").empty()) out += "\n" + sessions.text();
    Table peers({"PEER", "STATE"});
    for (const auto& p : list_of(s, "peers")) peers.row({node_text(p), text_of(p, "state")});
    return out + "\n" + (list_of(s, "peers").empty() ? "no peers\n" : peers.text());
}

class Status final : public Command {
    int run(const Context& context) override {
        return ask_for_own_and_show(context, "status", json::object(), render_status);
    }
};

}  // namespace

std::string render_status(const json& s) {
    if (has(s, "own")) return render_own(s);
    const std::string cluster =
        has(s, "cluster") ? text_of(s, "cluster_name") + " (" + text_of(s, "cluster") + ")"
                          : "none, groups of this host only; " +
                                (has(s, "why_no_cluster") ? text_of(s, "why_no_cluster") + "; " : "") +
                                "for other nodes: nexarctl cluster init, or cluster join -";
    return aligned({
               {"node", node_text(s)},
               {"state", text_of(s, "state")},
               {"cluster", cluster},
               {"incarnation", std::to_string(count_of(s, "incarnation")) + ", up for " +
                                   seconds_text(number_of(s, "uptime_s")) + ", pid " +
                                   std::to_string(count_of(s, "pid"))},
               {"certificate", certificate_text(s)},
               {"version", text_of(s, "version")},
               {"address", address_text(s)},
               {"sessions", std::to_string(count_of(s, "sessions")) + ", with " +
                                bytes_text(count_of(s, "session_memory_bytes")) + " of shared memory"},
               {"groups", std::to_string(count_of(s, "groups")) + ", operations in flight " +
                              std::to_string(count_of(s, "ops_in_flight"))},
               {"data", data_text(s, "sent") + " sent, " + data_text(s, "received") + " received"},
               {"threads", std::to_string(count_of(s, "shards")) + " for bulk data, " +
                               std::to_string(count_of(s, "workers")) + " for reductions"},
           }) +
           holes_text(s) + plain_text(s) + "\n" + peers_text(s) + users_text(s);
}

std::unique_ptr<Command> make_status() {
    return std::make_unique<Status>();
}

}  // namespace nexarctl
