// Node's answers on the admin socket. Every process that may open it may query; a change needs
// Caller::may_change.
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "node/node.hpp"
#include "node/report.hpp"

namespace nexar::node {
namespace {

constexpr const char* in_no_cluster =
    "this node is in no cluster: `nexarctl cluster init` or `nexarctl cluster join -`";

constexpr const char* in_cluster_already =
    "this node is in a cluster already (nexarctl status); nexarctl cluster leave takes it out";
constexpr const char* no_member =
    "this daemon serves no processes: it could not start again after it left its cluster (its log says why); "
    "restart it";

bool is_change(const std::string& command) {
    return command == "token_create" || command == "token_revoke" || command == "cluster_init" ||
           command == "cluster_join" || command == "cluster_leave" || command == "tune";
}

std::vector<report::Address> addresses_of(const Member& member) {
    std::vector<report::Address> out;
    for (const auto& a : member.addresses().chosen) out.push_back({a.address, true, a.why});
    for (const auto& a : member.addresses().rejected) out.push_back({a.address, false, a.why});
    return out;
}

// The reason of the last close and that of the last failed dial.
std::string why_not_up(const Member& member, const NodeId& node, const std::string& why_closed) {
    const std::string dialled = member.plane().dial_failure(node);
    return why_closed + (why_closed.empty() || dialled.empty() ? "" : "; dialled: ") + dialled;
}

// Of a peer that is up; empty: all of it is.
std::string why_partly_up(const PeerView& view) {
    for (const BulkView& bulk : view.bulk)
        if (!bulk.up)
            return "no connection for bulk data (" + std::string(bulk.tcp ? "TCP and UDP " : "UDP ") +
                   bulk.address + ")";
    return "";
}

std::string carrier_of(const BulkView& bulk) {
    if (!bulk.up) return "";
    return bulk.carrier == connections::CarrierKind::quic ? "quic" : "tcp";
}

std::vector<report::Peer> peers_of(const Member& member, Duration silence_max, bool asked, Time now) {
    std::vector<report::Peer> out;
    std::map<NodeId, bool> shown;
    for (const auto& [index, view] : member.peers()) {
        report::Peer p;
        p.record = view.info.record;
        p.incarnation = view.info.incarnation;
        p.agreed = view.info.agreed;
        p.state = view.up ? "up" : "down";
        p.address = view.remote;
        if (const auto stats = member.plane().stats(index)) p.rtt = stats->rtt;
        p.traffic = member.traffic(index, view);
        if (view.last_received_at != Time{}) p.received_ago = now - view.last_received_at;
        if (view.up && p.received_ago && *p.received_ago > silence_max) p.state = "suspected";
        p.why = view.up ? why_partly_up(view) : why_not_up(member, p.record.node, view.why_down);
        for (const BulkView& b : view.bulk)
            p.bulk.push_back({b.address, b.up, asked ? std::optional(b.answers) : std::nullopt, carrier_of(b),
                              b.carrier != connections::CarrierKind::tcp_plain, b.carrier_why, b.tcp});
        shown[p.record.node] = true;
        out.push_back(std::move(p));
    }
    for (const auto& record : member.plane().table().roster()) {
        if (shown.contains(record.node)) continue;
        report::Peer p;
        p.record = record;
        p.state = "connecting";
        if (const auto place = member.plane().table().place_of(record.node)) {
            using Standing = connections::Roster::Standing;
            if (place->standing == Standing::lost) p.state = "lost";
            if (place->standing == Standing::departed) p.state = "left";
            if (place->expires != never) p.forgotten_in = std::max(place->expires - now, Duration{0});
        }
        p.why = why_not_up(member, record.node, member.why_departed(record.node));
        if (!record.addresses.empty()) p.address = record.addresses.front();
        out.push_back(std::move(p));
    }
    return out;
}

report::Certificate certificate_of(const Member& member) {
    const auto& renewal = member.renewer().renewal();
    return {std::time(nullptr), renewal.leaf().expires, admission::renewal_due(renewal.leaf()),
            renewal.failures(), renewal.why()};
}

report::HostNames hosts_of(const Member& member) {
    report::HostNames out;
    if (!member.in_cluster()) return out;
    for (const auto& record : member.plane().table().roster()) out[record.node] = record.hostname;
    return out;
}

// What keeps a node from leaving, unless it is forced; empty: nothing.
std::string stays_because(size_t sessions, bool issuer) {
    if (sessions > 0)
        return "processes of this host have " + std::to_string(sessions) +
               (sessions == 1 ? " session" : " sessions") +
               " open (nexarctl groups, ops): end them first. With --force their calls end with "
               "DAEMON_LOST";
    if (issuer)
        return "this node made the cluster: without it no node can join, and no certificate is renewed. "
               "--force, if the other nodes are to leave as well";
    return "";
}

}  // namespace

void Node::ask(const control::Caller& caller, const std::string& command, const std::string& arguments,
               control::Answer answer) {
    if (caller.status_label) return ask_own(caller, command, arguments, std::move(answer));
    if (is_change(command) && !caller.may_change)
        return answer(fail(Errc::permission, "'" + command +
                                                 "' is for root, the daemon's user and its group; uid " +
                                                 std::to_string(caller.uid) + " may only query"));
    if (command == "cluster_join") return join(arguments, std::move(answer));
    if (command == "cluster_init") {
        if (auto begun = init(arguments, answer); !begun) answer(fail(begun.error()));
        return;
    }
    if (command == "cluster_leave") {
        if (auto begun = leave(arguments, answer); !begun) answer(fail(begun.error()));
        return;
    }
    if (command == "tune") {
        if (auto begun = tune(arguments, answer); !begun) answer(fail(begun.error()));
        return;
    }
    if (command.starts_with("token_")) return token(command, arguments, std::move(answer));
    Question question{command, arguments, {}, caller.uid, caller.connection, answer, {}};
    if (command == "groups" || command == "ops") return query_forming(std::move(question));
    if (command == "plan") return questions_.add(std::move(question));
    if (auto none = report::no_arguments(arguments); !none) return answer(fail(none.error()));
    if (command == "config") return answer(report::config(config_));
    if (command == "status") return questions_.add(std::move(question));
    if (command == "cluster_show") return answer(cluster());
    if (command == "doctor") return query_doctor(std::move(question));
    answer(fail(Errc::unsupported, "there is no command '" + command + "'"));
}

// The ranks of a forming group are known to the node that collects them; it is asked first. An inquiry ends
// the one before it: a user who asks all the time must not end those of others, so it shares one that is
// young.
void Node::query_forming(Question question) {
    constexpr Duration wait_max = std::chrono::milliseconds(300);
    if (!member_) return question.answer(fail(Errc::bad_state, no_member));
    auto group = report::text_argument(question.arguments, "group", false);
    if (!group) return question.answer(fail(group.error()));
    const Time now = loop::Loop::now();
    const bool begins = !question.own || now >= inquired_until_;
    member_->engine().inquire_forming(now, {question.own, std::move(*group)}, !begins);
    if (begins) inquired_until_ = now + wait_max;
    question.until = inquired_until_;
    questions_.add(std::move(question));
}

// What shows whether a bulk connection works is what comes back over it.
void Node::query_doctor(Question question) {
    constexpr Duration wait_max = std::chrono::seconds(1);
    if (identity_ && !questions_.has(question.command)) member_->ask_bulk();
    question.until = loop::Loop::now() + wait_max;
    questions_.add(std::move(question));
}

bool Node::is_due(const Question& question, Time now) const {
    if (now >= question.until) return true;
    return question.command == "doctor" ? !identity_ || member_->bulk_answers()
                                        : !member_ || !member_->engine().is_inquiring();
}

// One question in a turn of the loop, and the next one when its answer is made [N17].
bool Node::answer_next(Time now) {
    if (answered_ || !renderer_.is_free()) return false;
    auto question = questions_.take([&](const Question& q) { return is_due(q, now); });
    if (!question) return false;
    answered_ = true;
    auto work = prepare(*question, now);
    if (work)
        renderer_.start(std::move(*work), std::move(question->answer));
    else
        question->answer(fail(work.error()));
    return true;
}

// Copies what the answer is about.
Result<Renderer::Work> Node::prepare(const Question& question, Time now) {
    if (question.command == "doctor")
        return [d = doctor(now)] { return Result<std::string>(report::doctor(d)); };
    if (question.command != "status") return prepare_group(question, now);
    if (question.own)
        return [s = own_status(*question.own, now)] { return Result<std::string>(report::own_status(s)); };
    return [s = status(now)] { return Result<std::string>(report::status(s)); };
}

// What has the name, or for the text of an error some of what there is.
engine::Snapshot Node::snapshot(Time now, const std::string& group, const Question& question) {
    constexpr size_t names_max = 64;
    engine::SnapshotScope scope{question.own, group};
    if (question.command == "plan") {  // of all ranks of one group
        scope.ranks_max = SIZE_MAX;
        scope.groups_max = 1;
        scope.ops_max = scope.messages_max = scope.forming_max = 0;
    }
    auto named = member_->engine().snapshot(now, scope);
    if (group.empty() || !named.groups.empty() || !named.forming.empty()) return named;
    return member_->engine().snapshot(
        now,
        {.tenant = question.own, .rows_max = names_max, .groups_max = names_max, .forming_max = names_max});
}

Result<Renderer::Work> Node::prepare_group(const Question& question, Time now) {
    if (!member_) return fail(Errc::bad_state, no_member);
    const bool is_plan = question.command == "plan";
    NEXAR_TRY(std::string group, report::text_argument(question.arguments, "group", is_plan));
    auto hosts = hosts_of(*member_);
    hosts[member_->self()] = host_name();
    return [command = question.command, group, hosts = std::move(hosts),
            snapshot = snapshot(now, group, question)] {
        if (command == "groups") return report::groups(snapshot, hosts, group);
        if (command == "ops") return report::ops(snapshot, hosts, group);
        return report::plan(snapshot, hosts, group);
    };
}

const char* Node::state_name() const {
    return drain_until_           ? "draining"
           : joiner_ || entering_ ? "joining"
           : identity_            ? "running"
                                  : "no cluster";
}

std::vector<report::Peer> Node::peers(Time now, bool asked) const {
    if (!identity_) return {};
    return peers_of(*member_, config::seconds(config_.heartbeat_timeout), asked, now);
}

report::Status Node::status(Time now) const {
    report::Status s;
    s.host = host_name();
    s.version = NEXAR_VERSION;
    s.pid = static_cast<uint32_t>(getpid());
    s.listen = config_.listen;
    s.state = state_name();
    s.why_no_cluster = why_no_cluster_;
    s.uptime = now - began_;
    if (identity_) {
        s.cluster = admission::hex(identity_->cluster);
        s.cluster_name = identity_->cluster_name();
        s.certificate = certificate_of(*member_);
        s.addresses = addresses_of(*member_);
        s.peers = peers(now);
    }
    if (member_) {
        s.node = member_->self();
        s.incarnation = member_->incarnation();
        s.sessions = member_->server().sessions();
        s.holes_unguarded = member_->server().holes_unguarded();
        s.bulk_may_be_plain = config_.tcp_bulk && !config_.encrypt_bulk;
        s.use = report::use_of(member_->tenants());
        s.session_memory_bytes = member_->server().memory_bytes();
        s.groups = member_->engine().groups({});
        s.ops_in_flight = member_->engine().collectives();
        s.traffic = member_->traffic();
        s.shards = member_->shard_count();
        s.workers = member_->worker_count();
    }
    return s;
}

report::Doctor Node::doctor(Time now) const {
    report::Doctor d;
    d.pid = static_cast<uint32_t>(getpid());
    d.state = state_name();
    d.why_no_cluster = why_no_cluster_;
    d.listen = config_.listen;
    d.state_dir = config_.state_dir;
    d.socket = config_.socket;
    d.admin_socket = config_.admin_socket;
    if (member_) d.holes_unguarded = member_->server().holes_unguarded();
    if (identity_) {
        d.certificate = certificate_of(*member_);
        d.addresses = addresses_of(*member_);
        d.peers = peers(now, true);
        const auto& stats = member_->plane().socket_stats();
        d.gso = stats.segmentation;
        d.gro = stats.coalescing;
        d.send_buffer_bytes = stats.send_buffer;
        d.receive_buffer_bytes = stats.receive_buffer;
    }
    return d;
}

std::string Node::cluster() const {
    report::Cluster c;
    if (identity_) {
        c.name = identity_->cluster_name();
        c.cluster = admission::hex(identity_->cluster);
        c.root_key_hash = admission::hex(identity_->root_key_hash);
        c.self = identity_->node;
        c.issuer = identity_->issuer.has_value();
        if (const auto expires = admission::expiry_of_certificate(identity_->certificate))
            c.certificate_expires = *expires;
        c.members = member_->plane().table().present();
        wire::NodeRecord self{identity_->node, host_name(), {}};
        for (const auto& a : member_->addresses().chosen) self.addresses.push_back(a.address);
        c.members.push_back(std::move(self));
    }
    return report::cluster(c);
}

Result<void> Node::init(const std::string& arguments, const control::Answer& answer) {
    if (identity_) return fail(Errc::bad_state, in_cluster_already);
    if (joiner_ || entering_) return fail(Errc::bad_state, "this node is just joining a cluster");
    if (!member_) return fail(Errc::bad_state, no_member);
    NEXAR_TRY(std::string name, report::text_argument(arguments, "name", false));
    if (name.empty()) name = config_.cluster_name;
    if (!config::is_cluster_name(name))
        return fail(Errc::invalid_argument,
                    "name = '" + name + "' is not allowed; allowed: " + config::cluster_name_allowed);
    NEXAR_TRY(auto made, make_cluster(name, node_key_, std::time(nullptr),
                                      static_cast<WallSeconds>(config_.certificate_lifetime)));
    found(name, std::move(made), [this, answer](Result<void> result) {
        answer(result ? Result<std::string>(cluster()) : fail(result.error()));
    });
    return {};
}

// On disk first: a crash leaves the node in the cluster, or out of it.
Result<void> Node::leave(const std::string& arguments, const control::Answer& answer) {
    NEXAR_TRY(const bool force, report::flag_argument(arguments, "force"));
    if (joiner_ || entering_) return fail(Errc::bad_state, "this node is just joining a cluster");
    if (!identity_) return fail(Errc::bad_state, in_no_cluster);
    const auto why = stays_because(member_->server().sessions(), identity_->issuer.has_value());
    if (!force && !why.empty()) return fail(Errc::bad_state, why);
    NEXAR_TRY(auto files, files_of_leave(state_, configured_entry_));
    changes_.push_back({writer_.save(std::move(files)), [this, answer, force](Result<void> result) {
                            if (!result) return answer(fail(result.error()));
                            const auto left = depart(force);
                            if (!left) return answer(left);
                            remove_what_came_late(answer, *left);
                        }});
    return {};
}

// What was saved while the node left, a renewed certificate for one, is of the identity that is gone.
void Node::remove_what_came_late(const control::Answer& answer, const std::string& left) {
    changes_.push_back({writer_.save(no_files()), [answer, left](Result<void> result) {
                            answer(result ? Result<std::string>(left) : fail(result.error()));
                        }});
}

Result<std::string> Node::depart(bool forced) {
    if (!identity_) return fail(Errc::bad_state, in_no_cluster);  // a second one came meanwhile
    const NodeId node = identity_->node;
    const std::string cluster = admission::hex(identity_->cluster);
    member_->say_goodbye(loop::Loop::now(), "this node has left the cluster (nexarctl cluster leave)");
    member_.reset();
    identity_.reset();
    Questions waiting = std::exchange(questions_, {});
    while (const auto question = waiting.take([](const Question&) { return true; }))
        question->answer(fail(Errc::bad_state, in_no_cluster));
    // The token ledger that would end them has gone.
    for (const Change& change : std::exchange(changes_, {}))
        change.then(fail(Errc::bad_state, in_no_cluster));
    log_->info("cluster_left", {field("node", node), field("forced", forced)});
    systemd_.status("in no cluster: groups of this host only");
    // With another key: whatever it joins next, it is another node there.
    if (auto started = start_alone(loop::Loop::now()); !started)
        log_->error("local_groups_not_served", {field("why", started.error().text)});
    return report::left(node, cluster, state_.path() + "/" + set_aside_prefix + "*");
}

void Node::join(const std::string& arguments, control::Answer answer) {
    const auto begin = [&]() -> Result<void> {
        if (identity_) return fail(Errc::bad_state, in_cluster_already);
        if (joiner_ || entering_) return fail(Errc::bad_state, "this node is joining already");
        if (!member_) return fail(Errc::bad_state, no_member);
        NEXAR_TRY(const std::string given, report::text_argument(arguments, "token", true));
        return begin_join(given, loop::Loop::now());
    };
    if (auto begun = begin(); !begun) return answer(fail(begun.error()));
    join_answer_ = std::move(answer);
}

// On disk first: what a restart finds is what the node uses [O7].
Result<void> Node::tune(const std::string& arguments, const control::Answer& answer) {
    NEXAR_TRY(auto wish, report::tune_wish(arguments));
    if (!wish.model && !wish.forget) {
        if (wish.trial && !member_) return fail(Errc::bad_state, no_member);
        if (wish.trial) member_->set_trial(wish.trial->group, wish.trial->doubling_bytes_max);
        const auto model = tuned_.value_or(collectives::Tuning{});
        answer(report::tuned({model, model, tuned_.has_value(), tuned_.has_value()}));
        return {};
    }
    storage::Change change{model_file, {}};
    if (wish.model) change.content = Secret(collectives::text_of(*wish.model));
    storage::Batch batch;
    batch.push_back(std::move(change));
    changes_.push_back({writer_.save(std::move(batch)), [this, wish, answer](Result<void> result) {
                            if (!result) return answer(fail(result.error()));
                            take_tuned(wish.model, answer);
                        }});
    return {};
}

void Node::take_tuned(std::optional<collectives::Tuning> tuned, const control::Answer& answer) {
    const collectives::Tuning built_in, before = tuned_.value_or(built_in);
    const report::Tuned outcome{tuned.value_or(built_in), before, tuned.has_value(), tuned_.has_value()};
    tuned_ = tuned;
    if (member_) member_->set_tuned(tuned);
    log_->info("model_tuned", {field("is_tuned", outcome.is_tuned), field("model", text_of(outcome.model))});
    answer(report::tuned(outcome));
}

// A change is answered when it is saved [K6].
void Node::token(const std::string& command, const std::string& arguments, control::Answer answer) {
    const auto carry_out = [&]() -> Result<void> {
        if (!identity_) return fail(Errc::bad_state, in_no_cluster);
        if (!member_->tokens())
            return fail(Errc::bad_state,
                        "this node is no issuer; run the command on the node that made the cluster");
        if (command == "token_revoke") return revoke_token(arguments, answer);
        if (command == "token_create") return create_token(arguments, answer);
        if (command != "token_list") return fail(Errc::unsupported, "there is no command '" + command + "'");
        NEXAR_TRY(std::string list, list_tokens(arguments));
        answer(std::move(list));
        return {};
    };
    if (auto done = carry_out(); !done) answer(fail(done.error()));
}

Result<std::string> Node::list_tokens(const std::string& arguments) const {
    NEXAR_TRY_VOID(report::no_arguments(arguments));
    std::vector<report::Token> list;
    for (const auto& e : member_->tokens()->saved().entries())
        list.push_back({admission::hex(e.id), e.expires, e.uses_left});
    return report::tokens(list);
}

Result<void> Node::revoke_token(const std::string& arguments, const control::Answer& answer) {
    NEXAR_TRY(const std::string id, report::text_argument(arguments, "id", true));
    auto saving = member_->tokens()->change([id](auto& tokens) { return tokens.revoke(id); });
    changes_.push_back({std::move(saving), [answer](Result<void> result) {
                            answer(result ? Result<std::string>("{}") : fail(result.error()));
                        }});
    return {};
}

Result<void> Node::create_token(const std::string& arguments, const control::Answer& answer) {
    NEXAR_TRY(const auto wish, report::token_wish(arguments));
    std::vector<std::string> addresses;
    for (const auto& a : member_->addresses().chosen) addresses.push_back(a.address);
    addresses.resize(std::min(addresses.size(), admission::token_addresses_max));
    const auto made = std::make_shared<admission::Token>();
    auto saving = member_->tokens()->change([this, wish, addresses, made](auto& tokens) -> Result<void> {
        NEXAR_TRY(*made, tokens.create(identity_->root_key_hash, addresses, std::time(nullptr), wish.lifetime,
                                       wish.uses));
        return {};
    });
    changes_.push_back({std::move(saving), [this, wish, made, answer](Result<void> result) {
                            if (!result) return answer(fail(result.error()));
                            log_->info("token_created",
                                       {field("id", admission::hex(made->id)), field("uses", wish.uses),
                                        field("lifetime_s", wish.lifetime)});
                            answer(report::token_created({admission::hex(made->id), made->expires, wish.uses},
                                                         made->text()));
                        }});
    return {};
}

}  // namespace nexar::node
