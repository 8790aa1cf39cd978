#include "node/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "node/forming_report.hpp"
#include "node/report_time.hpp"

namespace nexar::node::report {

using json = nlohmann::ordered_json;

namespace {

// Names come from clients and peers; bytes that are not UTF-8 are replaced, because dump() would throw.
std::string print(const json& document) {
    return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

json text_or_null(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

std::string host_of(const HostNames& hosts, const NodeId& node) {
    const auto found = hosts.find(node);
    return found == hosts.end() ? std::string() : found->second;
}

std::string nonce_hex(uint64_t nonce) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out += digits[(nonce >> shift) & 15];
    return out;
}

json addresses_json(const std::vector<Address>& addresses) {
    json list = json::array();
    for (const auto& a : addresses)
        list.push_back({{"address", a.address}, {"chosen", a.chosen}, {"why", a.why}});
    return list;
}

json amount_json(const link::Amount& amount) {
    return {{"frames", amount.frames}, {"bytes", amount.bytes}, {"payload_bytes", amount.payload}};
}

json traffic_json(const link::TrafficCounts& counts) {
    static constexpr std::array names{"control", "rpc", "small", "bulk"};
    static_assert(names.size() == class_count);
    json out = json::object();
    for (size_t c = 0; c < class_count; ++c)
        out[names[c]] = {{"sent", amount_json(counts.sent[c])},
                         {"received", amount_json(counts.received[c])}};
    return out;
}

json bulk_json(const std::vector<Bulk>& bulk) {
    json list = json::array();
    for (const auto& b : bulk)
        list.push_back({{"address", b.address},
                        {"up", b.up},
                        {"carrier", b.carrier},
                        {"encrypted", b.encrypted},
                        {"carrier_why", b.carrier_why},
                        {"tcp", b.tcp},
                        {"answers", b.answers ? json(*b.answers) : json(nullptr)}});
    return list;
}

json peers_json(const std::vector<Peer>& peers) {
    json list = json::array();
    for (const auto& p : peers)
        list.push_back({{"node", p.record.node.hex()},
                        {"host", p.record.hostname},
                        {"state", p.state},
                        {"address", p.address},
                        {"incarnation", p.incarnation.counter},
                        {"version", p.agreed.version},
                        {"features", p.agreed.features},
                        {"rtt_ms", optional_ms(p.rtt)},
                        {"received_ago_ms", optional_ms(p.received_ago)},
                        {"bulk", bulk_json(p.bulk)},
                        {"traffic", p.traffic ? traffic_json(*p.traffic) : json(nullptr)},
                        {"forgotten_in_s", p.forgotten_in ? json(ms(*p.forgotten_in) / 1e3) : json(nullptr)},
                        {"why", p.why}});
    return list;
}

json rank_json(const engine::RankSnapshot& r, const HostNames& hosts) {
    return {{"rank", r.rank.value}, {"node", r.node.hex()}, {"host", host_of(hosts, r.node)}, {"pid", r.pid}};
}

json error_json(const Error& error) {
    if (error.code == Errc::ok) return nullptr;
    return {{"code", static_cast<int32_t>(error.code)},
            {"name", name_of(error.code)},
            {"text", error.text},
            {"rank", error.rank},
            {"other_rank", error.other_rank},
            {"node", error.node},
            {"host", error.host},
            {"pid", error.pid},
            {"lost_ranks", error.lost_ranks}};
}

json group_json(const engine::GroupSnapshot& g, const HostNames& hosts) {
    json ranks = json::array();
    for (const auto& r : g.ranks) {
        if (ranks.size() == ranks_shown_max) continue;
        json one = rank_json(r, hosts);
        one["local"] = r.local;
        one["gone"] = r.gone;
        one["posted"] = r.posted;
        ranks.push_back(std::move(one));
    }
    return {{"name", g.name},
            {"id", g.id.text()},
            {"parent", g.parent ? json{{"name", g.parent_name}, {"id", g.parent->text()}} : json()},
            {"size", g.size},
            {"nodes", g.nodes},
            {"epoch", g.epoch.value},
            {"next_op", g.next_op},
            {"ops_in_flight", g.ops_in_flight},
            {"messages_waiting", g.messages_waiting},
            {"timeouts_ms",
             {{"collective", ms(g.timeouts.collective)},
              {"barrier", ms(g.timeouts.barrier)},
              {"rpc", ms(g.timeouts.rpc)}}},
            {"failed", error_json(g.failed)},
            {"frozen", g.frozen},
            {"ranks", std::move(ranks)}};
}

json op_json(const engine::OpSnapshot& op, const HostNames& hosts) {
    json missing = json::array();
    for (const auto& r : op.missing) {
        if (missing.size() == missing_shown_max) break;
        missing.push_back(rank_json(r, hosts));
    }
    json unanswered = json::array();
    for (const auto& node : op.unanswered) {
        if (unanswered.size() == missing_shown_max) break;
        unanswered.push_back({{"node", node.hex()}, {"host", host_of(hosts, node)}});
    }
    json arrived = json::array();
    for (const auto& r : op.arrived) {
        if (arrived.size() == ranks_shown_max) break;
        arrived.push_back(r.rank.value);
    }
    return {{"group", op.group_name},
            {"group_id", op.group.text()},
            {"seq", op.seq},
            {"op", op.descriptor.text()},
            {"age_ms", ms(op.age)},
            {"phase", op.phase},
            {"plan", op.plan},
            {"priority", op.priority},
            {"arrived", std::move(arrived)},
            {"arrived_count", op.arrived_count},
            {"missing", std::move(missing)},
            {"missing_count", op.missing_count},
            {"unanswered", std::move(unanswered)},
            {"unanswered_count", op.unanswered_count}};
}

bool is(const std::string& wanted, const std::string& name, const GroupId& id) {
    return wanted.empty() || wanted == name || wanted == id.text();
}

std::unexpected<Error> no_group(const engine::Snapshot& snapshot, const std::string& wanted) {
    std::string known;
    for (const auto& g : snapshot.groups) {
        if (known.size() > 200) {
            known += ", ...";
            break;
        }
        known += (known.empty() ? "" : ", ") + g.name;
    }
    return fail(Errc::not_found, "there is no group '" + wanted +
                                     "' on this node; there is: " + (known.empty() ? "none" : known));
}

json member_json(const wire::NodeRecord& record) {
    return {{"node", record.node.hex()}, {"host", record.hostname}, {"addresses", record.addresses}};
}

json certificate_json(const std::optional<Certificate>& c) {
    if (!c) return nullptr;
    const char* state = c->now > c->expires       ? "expired"
                        : c->failures > 0         ? "renewal failed"
                        : c->now < c->renewal_due ? "valid"
                                                  : "renewing";
    return {{"state", state},
            {"expires", c->expires},
            {"expires_in_s", c->expires - c->now},
            {"renewal_due_in_s", c->renewal_due - c->now},
            {"renewal_failures", c->failures},
            {"why", c->why}};
}

json users_json(const std::optional<Use>& use) {
    json list = json::array();
    if (!use) return list;
    for (const UserUse& user : use->users) {
        json one = {{"uid", user.name.uid}, {"label", user.name.label}};
        for (size_t i = 0; i < resource_count; ++i) one[name_of(static_cast<Resource>(i))] = user.used[i];
        one["log_lines_left_out"] = user.log_lines_left_out;
        list.push_back(std::move(one));
    }
    return list;
}

json limits_json(const std::optional<Use>& use) {
    json out = json::object();
    if (!use) return out;
    for (size_t i = 0; i < resource_count; ++i) {
        const auto resource = static_cast<Resource>(i);
        out[name_of(resource)] = {{"used", use->used[i]},
                                  {"total", use->limits.total(resource)},
                                  {"share", use->limits.share(resource)},
                                  {"key", key_of(resource)}};
    }
    return out;
}

UserUse use_of(const Tenant& tenant) {
    UserUse out{tenant.name, {}, tenant.lines.left_out_in_all()};
    for (size_t i = 0; i < resource_count; ++i) out.used[i] = tenant.used(static_cast<Resource>(i));
    return out;
}

Use totals_of(const Tenants& tenants) {
    Use out{tenants.totals().limits, {}, {}};
    for (size_t i = 0; i < resource_count; ++i) out.used[i] = tenants.totals().used[i].load();
    return out;
}

}  // namespace

Use use_of(const Tenants& tenants) {
    Use out = totals_of(tenants);
    for (const TenantRef& tenant : tenants.all()) {
        if (out.users.size() == users_shown_max) break;
        UserUse user = use_of(*tenant);
        const bool idle = std::ranges::all_of(user.used, [](uint64_t used) { return used == 0; });
        if (!idle || user.log_lines_left_out > 0) out.users.push_back(std::move(user));
    }
    return out;
}

Use use_of(const Tenants& tenants, const TenantName& only) {
    Use out = totals_of(tenants);
    const TenantRef tenant = tenants.find(only);
    out.users.push_back(tenant ? use_of(*tenant) : UserUse{only, {}, 0});
    return out;
}

std::string status(const Status& s) {
    return print({{"node", s.node.is_zero() ? std::string() : s.node.hex()},
                  {"host", s.host},
                  {"incarnation", s.incarnation.counter},
                  {"incarnation_nonce", nonce_hex(s.incarnation.nonce)},
                  {"cluster", s.cluster.empty() ? json(nullptr) : json(s.cluster)},
                  {"cluster_name", s.cluster_name},
                  {"state", s.state},
                  {"why_no_cluster", text_or_null(s.why_no_cluster)},
                  {"version", s.version},
                  {"pid", s.pid},
                  {"uptime_s", ms(s.uptime) / 1e3},
                  {"certificate", certificate_json(s.certificate)},
                  {"listen", s.listen},
                  {"addresses", addresses_json(s.addresses)},
                  {"peers", peers_json(s.peers)},
                  {"sessions", s.sessions},
                  {"session_memory_bytes", s.session_memory_bytes},
                  {"groups", s.groups},
                  {"ops_in_flight", s.ops_in_flight},
                  {"traffic", traffic_json(s.traffic)},
                  {"shards", s.shards},
                  {"workers", s.workers},
                  {"bulk_may_be_plain", s.bulk_may_be_plain},
                  {"holes_unguarded", text_or_null(s.holes_unguarded)},
                  {"users", users_json(s.use)},
                  {"limits", limits_json(s.use)}});
}

namespace {

json forming_json(const engine::Snapshot& snapshot, const HostNames& hosts, const std::string& group,
                  size_t& omitted) {
    json out = json::array();
    omitted += snapshot.omitted_forming;
    const Hints hints(snapshot);
    for (const auto& opening : snapshot.forming) {
        if (!group.empty() && group != opening.name) continue;
        if (out.size() == groups_shown_max)
            ++omitted;
        else
            out.push_back(opening_json(opening, hints, hosts));
    }
    return out;
}

}  // namespace

Result<std::string> groups(const engine::Snapshot& snapshot, const HostNames& hosts,
                           const std::string& group) {
    json list = json::array();
    size_t omitted = snapshot.omitted_groups;
    for (const auto& g : snapshot.groups) {
        if (!is(group, g.name, g.id)) continue;
        if (list.size() == groups_shown_max)
            ++omitted;
        else
            list.push_back(group_json(g, hosts));
    }
    json forming = forming_json(snapshot, hosts, group, omitted);
    if (list.empty() && forming.empty() && !group.empty()) return no_group(snapshot, group);
    return print({{"groups", std::move(list)}, {"forming", std::move(forming)}, {"omitted", omitted}});
}

Result<std::string> ops(const engine::Snapshot& snapshot, const HostNames& hosts, const std::string& group) {
    size_t omitted = snapshot.omitted_ops + snapshot.omitted_messages;
    json forming = forming_json(snapshot, hosts, group, omitted);
    const bool known =
        group.empty() || !forming.empty() ||
        std::ranges::any_of(snapshot.groups, [&](const auto& g) { return is(group, g.name, g.id); });
    if (!known) return no_group(snapshot, group);
    json list = json::array(), messages = json::array();
    for (const auto& op : snapshot.ops) {
        if (!is(group, op.group_name, op.group)) continue;
        if (list.size() == ops_shown_max)
            ++omitted;
        else
            list.push_back(op_json(op, hosts));
    }
    std::map<GroupId, std::string> names;
    for (const auto& g : snapshot.groups) names.emplace(g.id, g.name);
    for (const auto& m : snapshot.messages) {
        const auto found = names.find(m.group);
        const std::string name = found == names.end() ? std::string() : found->second;
        if (!is(group, name, m.group)) continue;
        if (messages.size() == ops_shown_max)
            ++omitted;
        else
            messages.push_back(
                {{"group", name}, {"group_id", m.group.text()}, {"what", m.what}, {"age_ms", ms(m.age)}});
    }
    return print({{"ops", std::move(list)},
                  {"messages", std::move(messages)},
                  {"forming", std::move(forming)},
                  {"omitted", omitted}});
}

namespace {

json table_json(const collectives::PlanTable& table) {
    return {{"version", table.version},
            {"small_bytes_max", table.small_bytes_max},
            {"doubling_bytes_max", table.doubling_bytes_max},
            {"chunk_bytes", table.chunk_bytes},
            {"segment_bytes", table.segment_bytes},
            {"lanes", table.lanes},
            {"model", collectives::object_of<json>(table.model)},
            {"large_message_bytes", table.large_message_bytes},
            {"ring_nodes_max", table.ring_nodes_max},
            {"algorithms", name_of(table.family)}};
}

}  // namespace

Result<std::string> plan(const engine::Snapshot& snapshot, const HostNames& hosts, const std::string& group) {
    const auto found = std::find_if(snapshot.groups.begin(), snapshot.groups.end(),
                                    [&](const auto& g) { return is(group, g.name, g.id); });
    if (found == snapshot.groups.end()) return no_group(snapshot, group);
    std::map<NodeId, size_t> index;  // nodes are numbered by their first rank, as the layout does
    json nodes = json::array(), node_of_rank = json::array();
    for (const auto& r : found->ranks) {
        const auto [at, fresh] = index.emplace(r.node, index.size());
        if (fresh) nodes.push_back({{"node", r.node.hex()}, {"host", host_of(hosts, r.node)}});
        node_of_rank.push_back(at->second);
    }
    return print({{"group", found->name},
                  {"nodes", std::move(nodes)},
                  {"node_of_rank", std::move(node_of_rank)},
                  {"table", table_json(found->table)}});
}

std::string tuned(const Tuned& t) {
    return print({{"model", collectives::object_of<json>(t.model)},
                  {"is_tuned", t.is_tuned},
                  {"before", collectives::object_of<json>(t.before)},
                  {"was_tuned", t.was_tuned}});
}

std::string doctor(const Doctor& d) {
    return print({{"pid", d.pid},
                  {"state", d.state},
                  {"why_no_cluster", text_or_null(d.why_no_cluster)},
                  {"certificate", certificate_json(d.certificate)},
                  {"listen", d.listen},
                  {"addresses", addresses_json(d.addresses)},
                  {"peers", peers_json(d.peers)},
                  {"gso", d.gso ? json(*d.gso) : json(nullptr)},
                  {"gro", d.gro ? json(*d.gro) : json(nullptr)},
                  {"send_buffer_bytes", d.send_buffer_bytes},
                  {"receive_buffer_bytes", d.receive_buffer_bytes},
                  {"holes_unguarded", text_or_null(d.holes_unguarded)},
                  {"state_dir", d.state_dir},
                  {"socket", d.socket},
                  {"admin_socket", d.admin_socket}});
}

std::string cluster(const Cluster& c) {
    json members = json::array();
    for (const auto& m : c.members) members.push_back(member_json(m));
    return print({{"name", c.name},
                  {"cluster", c.cluster.empty() ? json(nullptr) : json(c.cluster)},
                  {"root_key_hash", c.root_key_hash},
                  {"node", c.self.hex()},
                  {"issuer", c.issuer},
                  {"certificate_expires", c.certificate_expires},
                  {"members", std::move(members)}});
}

std::string left(const NodeId& node, const std::string& cluster, const std::string& set_aside) {
    return print({{"node", node.hex()}, {"cluster", cluster}, {"set_aside", set_aside}});
}

std::string tokens(const std::vector<Token>& tokens) {
    json list = json::array();
    for (const auto& t : tokens)
        list.push_back({{"id", t.id}, {"expires", t.expires}, {"uses_left", t.uses_left}});
    return print({{"tokens", std::move(list)}});
}

std::string token_created(const Token& token, const Secret& secret) {
    return print(
        {{"token", secret.text()}, {"id", token.id}, {"expires", token.expires}, {"uses", token.uses_left}});
}

std::string config(const config::Config& config) {
    json values = json::object();
    for (const auto& key : config::keys())
        if (!key.secret) values[key.name] = key.get(config);
    return print({{"values", std::move(values)}, {"toml", config::to_toml(config)}});
}

// ---- Arguments ----

namespace {

std::unexpected<Error> bad_argument(const std::string& key, const std::string& allowed) {
    return fail(Errc::invalid_argument, "argument '" + key.substr(0, 64) + "': allowed: " + allowed);
}

Result<json> parse(const std::string& arguments, const std::vector<std::string>& known) {
    json document = json::parse(arguments.empty() ? "{}" : arguments, nullptr, /*allow_exceptions=*/false);
    if (!document.is_object()) return fail(Errc::invalid_argument, "the arguments are not a JSON object");
    std::string names;
    for (const auto& name : known) names += (names.empty() ? "" : ", ") + name;
    for (const auto& [key, value] : document.items())
        if (std::find(known.begin(), known.end(), key) == known.end())
            return fail(Errc::invalid_argument, "there is no argument '" + key.substr(0, 64) +
                                                    "'; allowed: " + (names.empty() ? "none" : names));
    return document;
}

// Within [1, most]; absent: `otherwise`.
Result<int64_t> count_argument(const json& document, const std::string& key, int64_t most,
                               int64_t otherwise) {
    const auto found = document.find(key);
    if (found == document.end()) return otherwise;
    const bool fits = found->is_number_unsigned() && found->get<uint64_t>() >= 1 &&
                      found->get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits) return bad_argument(key, "a whole number from 1 to " + std::to_string(most));
    return found->get<int64_t>();
}

}  // namespace

Result<TokenWish> token_wish(const std::string& arguments) {
    NEXAR_TRY(const json document, parse(arguments, {"uses", "lifetime_s"}));
    TokenWish wish;
    NEXAR_TRY(const int64_t uses, count_argument(document, "uses", token_uses_max, wish.uses));
    NEXAR_TRY(wish.lifetime, count_argument(document, "lifetime_s", token_lifetime_max, wish.lifetime));
    wish.uses = static_cast<uint32_t>(uses);
    return wish;
}

namespace {

Result<Trial> trial_of(const json& given) {
    Trial out;
    const auto group = given.find("group"), most = given.find("doubling_bytes_max");
    const bool is_complete = given.is_object() && given.size() == 2 && group != given.end() &&
                             group->is_string() && most != given.end() && most->is_number_unsigned();
    if (is_complete) {
        out.group = group->get<std::string>();
        out.doubling_bytes_max = most->get<uint64_t>();
    }
    if (out.group.empty() || out.group.size() > text_bytes_max || out.doubling_bytes_max == 0 ||
        out.doubling_bytes_max > collectives::doubling_bytes_most)
        return bad_argument("trial", "an object with group, a text of 1 to " +
                                         std::to_string(text_bytes_max) +
                                         " bytes, and doubling_bytes_max, 1 to " +
                                         std::to_string(collectives::doubling_bytes_most));
    return out;
}

}  // namespace

Result<TuneWish> tune_wish(const std::string& arguments) {
    NEXAR_TRY(const json document, parse(arguments, {"model", "forget", "trial"}));
    TuneWish wish;
    if (const auto found = document.find("forget"); found != document.end()) {
        if (!found->is_boolean()) return bad_argument("forget", "true or false");
        wish.forget = found->get<bool>();
    }
    if (const auto trial = document.find("trial"); trial != document.end()) {
        if (document.size() > 1) return bad_argument("trial", "alone");
        NEXAR_TRY(wish.trial, trial_of(*trial));
    }
    const auto found = document.find("model");
    if (found == document.end()) return wish;
    if (wish.forget) return bad_argument("model", "none together with forget");
    if (!found->is_object())
        return bad_argument("model",
                            "an object with the six parameters, and doubling_bytes_max where it is known");
    std::string text;  // in the form of the file, so that there is one check
    for (const auto& [name, value] : found->items()) {
        if (!value.is_number_unsigned()) return bad_argument(name, "a whole number");
        if (name.find('\n') != std::string::npos) return bad_argument(name, "the name of a parameter");
        text += name.substr(0, 64) + " = " + std::to_string(value.get<uint64_t>()) + "\n";
    }
    NEXAR_TRY(wish.model, collectives::tuning_from(text));
    return wish;
}

Result<std::string> text_argument(const std::string& arguments, const std::string& key, bool required) {
    NEXAR_TRY(const json document, parse(arguments, {key}));
    const auto found = document.find(key);
    if (found == document.end())
        return required ? Result<std::string>(
                              fail(Errc::invalid_argument, "the argument '" + key + "' is missing"))
                        : Result<std::string>(std::string());
    const bool fits = found->is_string() && !found->get_ref<const std::string&>().empty() &&
                      found->get_ref<const std::string&>().size() <= text_bytes_max;
    if (!fits) return bad_argument(key, "a text of 1 to " + std::to_string(text_bytes_max) + " bytes");
    return found->get<std::string>();
}

Result<bool> flag_argument(const std::string& arguments, const std::string& key) {
    NEXAR_TRY(const json document, parse(arguments, {key}));
    const auto found = document.find(key);
    if (found == document.end()) return false;
    if (!found->is_boolean()) return bad_argument(key, "true or false");
    return found->get<bool>();
}

Result<void> no_arguments(const std::string& arguments) {
    const auto document = parse(arguments, {});
    if (!document) return fail(document.error());
    return {};
}

}  // namespace nexar::node::report
