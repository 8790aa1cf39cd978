#include "node/forming_report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "node/report_time.hpp"

namespace nexar::node::report {

using json = nlohmann::ordered_json;

namespace {

json node_json(const NodeId& node, const HostNames& hosts) {
    const auto found = hosts.find(node);
    return {{"node", node.hex()}, {"host", found == hosts.end() ? std::string() : found->second}};
}

json processes_json(const std::vector<engine::OpeningSnapshot::Process>& processes, const HostNames& hosts) {
    json list = json::array();
    for (const auto& process : processes) {
        if (list.size() == ranks_shown_max) break;
        json one = {{"rank", process.rank ? json(*process.rank) : json(nullptr)}};
        one.update(node_json(process.node, hosts));
        one["pid"] = process.pid;
        if (process.age) one["age_ms"] = ms(*process.age);
        list.push_back(std::move(one));
    }
    return list;
}

}  // namespace

Hints::Hints(const engine::Snapshot& snapshot) : in_cluster_(snapshot.in_cluster) {
    for (const auto& o : snapshot.forming) keys_[{o.name, o.opener_mark}].emplace(o.key, o.local);
    for (const auto& g : snapshot.groups) sizes_[{g.name, g.opener_mark}].insert(g.size);
}

std::vector<std::string> Hints::of(const engine::OpeningSnapshot& o) const {
    std::vector<std::string> out;
    const Name name(o.name, o.opener_mark);
    if (!o.trouble.empty()) out.push_back("the last attempt to make it failed: " + o.trouble);
    if (o.being_made || (o.reported && o.missing_count == 0)) return out;
    const auto keys = keys_.find(name);
    const bool others_here = keys != keys_.end() && std::ranges::any_of(keys->second, [&](const auto& other) {
                                 return other != std::pair(o.key, o.local);
                             });
    if ((o.others > 0 && !o.local) || others_here)
        out.push_back(
            "ranks that have another job secret, or none, wait for a group of this name: nexarctl groups on "
            "their nodes shows another key; give all ranks one secret (NEXAR_JOB_SECRET, --secret-file)");
    if (const auto sizes = sizes_.find(name); sizes != sizes_.end())
        if (const auto other =
                std::ranges::find_if(sizes->second, [&](size_t size) { return size != o.size; });
            other != sizes->second.end())
            out.push_back("there is a group of this name with " + std::to_string(*other) +
                          " ranks: do all ranks state one size?");
    if (o.local)
        out.push_back("without a job secret only processes of this host and user can meet");
    else if (!in_cluster_)
        out.push_back(
            "this node is in no cluster, so ranks of other nodes cannot come: nexarctl cluster init, or "
            "nexarctl cluster join -");
    else if (!o.reported)
        out.push_back("the node that collects its ranks has not answered");
    else if (std::ranges::all_of(o.came, [&](const auto& p) { return p.node == o.here.front().node; }))
        out.push_back(
            "no rank of another node has come: have they been started, with this name and "
            "secret, and is each of those nodes up in nexarctl status?");
    return out;
}

json opening_json(const engine::OpeningSnapshot& o, const Hints& hints, const HostNames& hosts) {
    json missing = json::array();
    for (const uint32_t rank : o.missing) missing.push_back(rank);
    return {{"name", o.name},
            {"size", o.size},
            {"key", o.key},
            {"local", o.local},
            {"being_made", o.being_made},
            {"age_ms", ms(o.age)},
            {"left_ms", optional_ms(o.left)},
            {"here", processes_json(o.here, hosts)},
            {"here_count", o.here_count},
            {"collected_by", node_json(o.leader, hosts)},
            {"reported", o.reported},
            {"came", processes_json(o.came, hosts)},
            {"came_count", o.came_count},
            {"missing", std::move(missing)},
            {"missing_count", o.missing_count},
            {"others", o.others},
            {"hints", hints.of(o)}};
}

}  // namespace nexar::node::report
