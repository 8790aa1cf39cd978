// See own_report.hpp.
#include "node/own_report.hpp"

#include <nlohmann/json.hpp>

namespace nexar::node::report {

using json = nlohmann::ordered_json;

namespace {

json own_peers_json(const std::vector<Peer>& peers) {
    json list = json::array();
    for (const Peer& p : peers)
        list.push_back({{"node", p.record.node.hex()}, {"host", p.record.hostname}, {"state", p.state}});
    return list;
}

json sessions_json(const std::vector<OwnSession>& sessions) {
    json list = json::array();
    for (const OwnSession& s : sessions) {
        if (list.size() == sessions_shown_max) break;
        list.push_back(
            {{"pid", s.pid}, {"memory_bytes", s.memory_bytes}, {"ops_in_flight", s.ops_in_flight}});
    }
    return list;
}

// What the user has of his share. What all users have together is not his to know.
json shares_json(const std::optional<Use>& use) {
    json out = json::object();
    if (!use || use->users.empty()) return out;
    for (size_t i = 0; i < resource_count; ++i) {
        const auto resource = static_cast<Resource>(i);
        out[name_of(resource)] = {{"used", use->users[0].used[i]},
                                  {"share", use->limits.share(resource)},
                                  {"key", key_of(resource)}};
    }
    return out;
}

}  // namespace

std::string own_status(const OwnStatus& s) {
    uint64_t memory = 0;
    for (const OwnSession& session : s.sessions) memory += session.memory_bytes;
    const json document = {{"own", {{"uid", s.tenant.uid}, {"label", s.tenant.label}}},
                           {"node", s.node.is_zero() ? std::string() : s.node.hex()},
                           {"host", s.host},
                           {"cluster_name", s.cluster_name},
                           {"state", s.state},
                           {"version", s.version},
                           {"uptime_s", static_cast<double>(s.uptime.count() / 1'000'000) / 1e3},
                           {"peers", own_peers_json(s.peers)},
                           {"sessions", s.sessions.size()},
                           {"session_memory_bytes", memory},
                           {"processes", sessions_json(s.sessions)},
                           {"groups", s.groups},
                           {"ops_in_flight", s.ops_in_flight},
                           {"shares", shares_json(s.use)}};
    return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace nexar::node::report
