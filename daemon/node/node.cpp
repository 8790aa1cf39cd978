// See node.hpp.
#include "node/node.hpp"

#include <signal.h>

#include <algorithm>

#include "core/cores.hpp"
#include "node/wall_clock.hpp"

namespace nexar::node {
namespace {

constexpr int steps_per_turn = 16;  // then libuv polls the other descriptors
constexpr const char* status_alone = "in no cluster: groups of this host only";

}  // namespace

Node::Node(const config::Config& config, writers::StateDir state, Log& log)
    : config_(config), state_(std::move(state)), log_(&log) {}

Node::~Node() {
    joiner_watch_.reset();
    wakeup_watch_.reset();
    member_.reset();
    status_.clear();
    control_.reset();
}

Result<std::unique_ptr<Node>> Node::start(const config::Config& config, Log& log) {
    NEXAR_TRY(auto state, writers::StateDir::open(config.state_dir));
    std::unique_ptr<Node> node(new Node(config, std::move(state), log));
    NEXAR_TRY_VOID(node->begin(loop::Loop::now()));
    return node;
}

Result<void> Node::begin(Time now) {
    began_ = now;
    NEXAR_TRY_VOID(wakeup_.made());
    NEXAR_TRY_VOID(writer_.made());
    NEXAR_TRY_VOID(renderer_.made());
    signal(SIGPIPE, SIG_IGN);
    wakeup_watch_ = loop_.watch(wakeup_.fd(), true, false, [this](loop::Loop::Ready) { wakeup_.drain(); });
    for (const int number : {SIGTERM, SIGINT})
        loop_.on_signal(number, [this](int n) { stop(n == SIGTERM ? "SIGTERM" : "SIGINT"); });
    loop_.set_turn([this] { return turn(); });

    NEXAR_TRY_VOID(open_control());
    const auto leaf_lifetime = static_cast<WallSeconds>(config_.certificate_lifetime);
    NEXAR_TRY(auto identity, load_identity(state_, wall_now(), leaf_lifetime));
    NEXAR_TRY(starts_, Starts::read(state_));
    read_model();
    configured_entry_ = configured_entry(config_.join_token, config_.init_cluster);
    if (identity) return restart(now, std::move(*identity));
    NEXAR_TRY_VOID(start_alone(now));
    NEXAR_TRY(const bool left, has_left());
    if (left) {
        stay_out();
        return {};
    }
    if (config_.init_cluster) {
        NEXAR_TRY(auto made, make_cluster(config_.cluster_name, node_key_, wall_now(), leaf_lifetime));
        found(config_.cluster_name, std::move(made), [](const Result<void>&) {});
        return wait_for_entering(now);
    }
    if (!config_.join_token.empty()) {
        auto begun = begin_join(config_.join_token, now);
        wipe(config_.join_token);
        return begun;
    }
    log_->info("not_in_a_cluster", {field("node", member_->self()), field("groups", "of this host only"),
                                    field("do", "nexarctl cluster init, or nexarctl cluster join -")});
    systemd_.status(status_alone);
    return {};
}

// [A12] This node has left a cluster, and the configuration asks for what it asked for then.
Result<bool> Node::has_left() {
    if (configured_entry_.empty()) return false;
    NEXAR_TRY(const auto left, state_.read(left_entry_file));
    return left && left->text() == configured_entry_;
}

void Node::stay_out() {
    wipe(config_.join_token);
    why_no_cluster_ = "it left its cluster, so the configuration that it was started with then (" +
                      (config_.init_cluster ? "init_cluster" : "join_token, " + configured_entry_) +
                      ") does not count";
    log_->warn("stays_out_of_a_cluster",
               {field("node", member_->self()), field("why", why_no_cluster_),
                field("do", "nexarctl cluster join - or cluster init; or configure another token")});
    systemd_.status(status_alone);
}

// In no cluster. Its key is already the one that a cluster will certify: so groups of this host, which have
// its NodeId, go on over an init or a join.
Result<void> Node::start_alone(Time now) {
    NEXAR_TRY(node_key_, admission::make_key());
    NEXAR_TRY(const NodeId self, admission::node_id_of_key(node_key_));
    return start_member(self, starts_.next(), now);
}

Result<void> Node::start_member(const NodeId& self, const Incarnation& incarnation, Time now) {
    NEXAR_TRY(member_,
              Member::start({config_, self, incarnation, writer_, loop_, wakeup_, *log_, tuned_}, now));
    return {};
}

// A file that cannot be used costs time, not the start [O7].
void Node::read_model() {
    const auto read = [&]() -> Result<void> {
        NEXAR_TRY(const auto content, state_.read(model_file));
        if (!content) return {};
        NEXAR_TRY(tuned_, collectives::tuning_from(content->text()));
        return {};
    };
    if (auto done = read(); !done)
        log_->warn("tuned_model_ignored", {field("file", state_.path() + "/" + model_file),
                                           field("why", done.error().text), field("do", "nexarctl tune")});
}

Result<void> Node::open_control() {
    control::ServerConfig c;
    c.path = config_.admin_socket;
    c.group = config_.socket_group;
    NEXAR_TRY(control_, control::Server::open(c, loop_, *this, *log_));
    for (const auto& [path, label] : config::status_sockets(config_)) {
        NEXAR_TRY(auto server,
                  control::Server::open(control::ServerConfig::of_status(path, label), loop_, *this, *log_));
        status_.push_back(std::move(server));
    }
    return {};
}

Result<void> Node::begin_join(const std::string& text, Time now) {
    const auto token = admission::Token::parse(text);
    if (!token)
        return fail(token.error().code,
                    token.error().text + "; a token is the whole line that nexarctl token create prints");
    NEXAR_TRY(joiner_, Joiner::start(*token, node_key_, host_name(), wall_now, now));
    joiner_watch_ = loop_.watch(joiner_->fd(), true, false, [](loop::Loop::Ready) {});  // the turn reads it
    return {};
}

Result<void> Node::restart(Time now, Identity identity) {
    NEXAR_TRY(const auto roster, state_.read(roster_file));
    const Incarnation incarnation = starts_.next();
    storage::Batch files = starts_.files();
    if (identity.leaf_unsaved)
        files.push_back(certificate_change(identity.certificate, identity.issuer_certificate));
    entering_.reset(new Pending{std::move(identity),
                                std::string(roster ? roster->text() : ""),
                                incarnation,
                                Entering(writer_, std::move(files), {}),
                                {}});
    return wait_for_entering(now);
}

// At a daemon's start, before the loop runs.
Result<void> Node::wait_for_entering(Time now) {
    Result<void> out;
    const auto then = std::exchange(entering_->then, {});
    entering_->then = [&](Result<void> result) {
        out = result;
        if (then) then(std::move(result));
    };
    while (entering_) {
        writer_.wait_for(entering_->entering.saving());
        step_entering(now);
    }
    return out;
}

// The first node of a new cluster.
void Node::found(const std::string& name, Cluster cluster, std::function<void(Result<void>)> then) {
    const Incarnation incarnation = member_->incarnation();
    Entering files(writer_, files_of_init(cluster, starts_.files()), no_files());
    const NodeId node = cluster.identity.node;
    entering_.reset(new Pending{std::move(cluster.identity),
                                {},
                                incarnation,
                                std::move(files),
                                [this, name, node, then = std::move(then)](Result<void> result) {
                                    if (result)
                                        log_->info("cluster_created",
                                                   {field("name", name), field("node", node)});
                                    then(std::move(result));
                                }});
}

// The member starts when its files are saved; if it cannot, they are removed again [K7].
void Node::step_entering(Time now) {
    auto outcome = entering_->entering.poll();
    if (!outcome) return;
    if (*outcome)
        if (auto member = become_member(now); !member) return entering_->entering.give_up(member.error());
    const auto ended = std::exchange(entering_, nullptr);
    if (ended->then) ended->then(std::move(*outcome));
}

Result<void> Node::become_member(Time now) {
    if (!member_) NEXAR_TRY_VOID(start_member(entering_->identity.node, entering_->incarnation, now));
    identity_ = entering_->identity;
    const auto reset_secret = [this](uint16_t port) { return starts_.reset_secret(port); };
    if (auto entered = member_->enter_cluster({*identity_, reset_secret, entering_->roster}, now); !entered) {
        identity_.reset();
        return entered;
    }
    node_key_ = Secret();
    why_no_cluster_.clear();
    std::string addresses;
    for (const auto& a : member_->addresses().chosen) addresses += (addresses.empty() ? "" : ",") + a.address;
    log_->info("node_started",
               {field("node", identity_->node), field("incarnation", member_->incarnation().counter),
                field("addresses", addresses), field("shards", member_->shard_count()),
                field("workers", member_->worker_count())});
    systemd_.status("member " + identity_->node.short_hex() + " at " + addresses);
    return {};
}

void Node::step_changes() {
    for (size_t i = 0; i < changes_.size();) {
        const storage::Outcome* outcome = changes_[i].saving.outcome();
        if (!outcome) {
            ++i;
            continue;
        }
        const Result<void> result = outcome->result;
        const auto then = std::move(changes_[i].then);
        changes_.erase(changes_.begin() + static_cast<ptrdiff_t>(i));
        then(result);
    }
}

int Node::run() {
    systemd_.ready();
    if (const auto interval = systemd_.watchdog_interval()) watchdog_at_ = loop::Loop::now() + *interval / 2;
    const bool is_set = wait_policy_.try_slices();
    if (config_.yield_microseconds == 0) loop::set_slice(loop::Slice::control);  // it never yields
    log_->debug("control_slice", {field("is_set", is_set)});
    loop_.run();
    systemd_.stopping();
    log_->info("node_stopped", {field("reason", stop_reason_)});
    return exit_status_;
}

// One pass over everything that may have work.
bool Node::step(Time now) {
    bool work = writer_.step();
    if (entering_) step_entering(now);
    work |= member_ && member_->step(now);
    if (!changes_.empty()) step_changes();
    if (joiner_) step_joiner(now);
    work |= renderer_.step();
    if (!questions_.empty()) work |= answer_next(now);
    if (control_->wake_at() <= now) control_->on_time(now);
    for (const auto& status : status_)
        if (status->wake_at() <= now) status->on_time(now);
    if (watchdog_at_ <= now) {
        systemd_.watchdog();
        watchdog_at_ = now + *systemd_.watchdog_interval() / 2;
    }
    if (drain_until_) drain(now);
    return work;
}

// The wait policy of the control loop: step while there is work, then step and yield the core for a bounded
// time, then announce the sleep, check once more, and sleep.
Time Node::turn() {
    answered_ = false;
    if (std::exchange(sleeping_, false)) {
        wakeup_.awake();
        if (member_) member_->on_woken();
    }
    Time now = loop::Loop::now();
    bool idles = false;
    for (int i = 0; i < steps_per_turn && !idles; ++i) {
        const Time began = now;
        const bool worked = step(now);
        now = loop::Loop::now();
        if (worked) {
            lookout_.worked(began, now);
            const bool may_yield = config_.yield_microseconds != 0 && member_;
            if (may_yield && member_->gives_way(now)) wait_policy_.yield(now, yields_may_pay());
        } else {
            idles = !lookout_.looks(now) || !wait_policy_.yield(now, yields_may_pay());
        }
    }
    if (!idles) return now;
    sleeping_ = true;
    wakeup_.announce_sleep();
    const bool is_idle = !member_ || member_->prepare_to_sleep();
    if (is_idle && !step(now)) return wake_at();
    const Time began = std::exchange(now, loop::Loop::now());
    lookout_.worked(began, now);
    return now;
}

bool Node::yields_may_pay() const {
    return !member_ || Yields::may_pay(member_->bulk_threads(), usable_cores());
}

Time Node::wake_at() const {
    Time at = std::min(control_->wake_at(), watchdog_at_);
    for (const auto& status : status_) at = std::min(at, status->wake_at());
    if (member_) at = std::min(at, member_->wake_at());
    if (joiner_) at = std::min(at, joiner_->wake_at());
    if (drain_until_) at = std::min(at, *drain_until_);
    if (renderer_.is_free()) at = std::min(at, questions_.next());  // otherwise its end wakes the loop
    return at;
}

void Node::step_joiner(Time now) {
    auto joined = joiner_->step(now);
    if (!joined) return;
    const std::string issuer = joiner_->issuer_address();
    joiner_watch_.reset();
    joiner_.reset();
    if (!*joined) return end_join(fail(joined->error()));
    const Incarnation incarnation = member_->incarnation();
    std::string roster = issuer + "\n";
    Entering files(writer_, files_of_join(**joined, starts_.files(), roster), no_files());
    log_->info("cluster_joined", {field("node", (*joined)->node), field("issuer", issuer)});
    entering_.reset(new Pending{std::move(**joined), std::move(roster), incarnation, std::move(files),
                                [this](Result<void> result) { end_join(std::move(result)); }});
}

void Node::end_join(Result<void> result) {
    if (!result && result.error().code == Errc::bad_token)  // as the issuer says it
        result.error().text += "; another token: nexarctl token create on the node that made the cluster";
    if (!result) log_->error("join_failed", {field("why", result.error().text)});
    if (auto answer = std::exchange(join_answer_, nullptr)) {
        answer(result ? Result<std::string>(cluster()) : fail(result.error()));
    } else if (!result) {  // the configuration asked for the join: its failure ends the node
        exit_status_ = 1;
        stop("the cluster could not be joined");
    }
}

void Node::stop(const std::string& reason) {
    if (drain_until_) {
        stop_repeated_ = true;
        drain_until_ = loop::Loop::now();
        return;
    }
    stop_reason_ = reason;
    systemd_.stopping();
    log_->info("stopping", {field("reason", reason)});
    const Time now = loop::Loop::now();
    drain_until_ = now + config::seconds(config_.drain_timeout);
    lookout_.worked(now, now);
}

void Node::drain(Time now) {
    const bool quiet = !member_ || member_->quiet();
    if (!quiet && now < *drain_until_) return;
    if (!quiet && stop_repeated_)
        log_->warn("drain_cut_short", {field("why", "a second signal")});
    else if (!quiet)
        log_->warn("drain_timed_out", {field("after_s", config_.drain_timeout)});
    if (member_) member_->say_goodbye(now, "nexard on this node is stopping (" + stop_reason_ + ")");
    loop_.stop();
}

}  // namespace nexar::node
