// See node.hpp.
#include "node/node.hpp"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <ctime>

namespace nexar::node {
namespace {

constexpr int steps_per_turn = 16;  // then libuv polls the other descriptors

WallSeconds wall_now() {
    return std::time(nullptr);
}

}  // namespace

Node::Node(const config::Config& config, StateDir state, Log& log)
    : config_(config), state_(std::move(state)), log_(&log) {}

Node::~Node() {
    joiner_watch_.reset();
    wakeup_watch_.reset();
    member_.reset();
    control_.reset();
}

Result<std::unique_ptr<Node>> Node::start(const config::Config& config, Log& log) {
    NEXAR_TRY(auto state, StateDir::open(config.state_dir));
    std::unique_ptr<Node> node(new Node(config, std::move(state), log));
    NEXAR_TRY_VOID(node->begin(loop::Loop::now()));
    return node;
}

Result<void> Node::begin(Time now) {
    began_ = now;
    signal(SIGPIPE, SIG_IGN);
    wakeup_watch_ = loop_.watch(wakeup_.fd(), true, false, [this](loop::Loop::Ready) { wakeup_.drain(); });
    for (const int number : {SIGTERM, SIGINT})
        loop_.on_signal(number, [this](int n) { stop(n == SIGTERM ? "SIGTERM" : "SIGINT"); });
    loop_.set_turn([this] { return turn(); });

    control::ServerConfig c;
    c.path = config_.admin_socket;
    c.group = config_.socket_group;
    NEXAR_TRY(control_, control::Server::open(c, loop_, *this, *log_));

    const auto leaf_lifetime = static_cast<WallSeconds>(config_.certificate_lifetime);
    NEXAR_TRY(auto identity, load_identity(state_, wall_now(), leaf_lifetime));
    if (identity) return become_member(now, std::move(*identity), {});
    if (config_.init_cluster) return make_cluster(now, config_.cluster_name);
    if (!config_.join_token.empty()) return begin_join(config_.join_token, now);
    log_->info("not_in_a_cluster", {field("do", "nexarctl cluster init, or nexarctl cluster join -")});
    return {};
}

Result<void> Node::begin_join(const std::string& text, Time now) {
    NEXAR_TRY(const auto token, admission::Token::parse(text));
    NEXAR_TRY(joiner_, Joiner::start(token, state_, host_name(), wall_now, now));
    joiner_watch_ = loop_.watch(joiner_->fd(), true, false, [](loop::Loop::Ready) {});  // the turn reads it
    return {};
}

Result<void> Node::become_member(Time now, Identity identity, std::vector<std::string> seeds) {
    identity_ = std::move(identity);
    auto member = Member::start({config_, *identity_, state_, loop_, wakeup_, *log_, std::move(seeds)}, now);
    if (!member) {
        identity_.reset();
        return fail(member.error());
    }
    member_ = std::move(*member);
    std::string addresses;
    for (const auto& a : member_->addresses().chosen) addresses += (addresses.empty() ? "" : ",") + a.address;
    log_->info("node_started",
               {field("node", identity_->node), field("incarnation", member_->incarnation().counter),
                field("addresses", addresses), field("shards", member_->shard_count()),
                field("workers", member_->worker_count())});
    systemd_.status("member " + identity_->node.short_hex() + " at " + addresses);
    return {};
}

int Node::run() {
    systemd_.ready();
    if (const auto interval = systemd_.watchdog_interval()) watchdog_at_ = loop::Loop::now() + *interval / 2;
    loop_.run();
    systemd_.stopping();
    log_->info("node_stopped", {field("reason", stop_reason_)});
    return exit_status_;
}

// One pass over everything that may have work.
bool Node::step(Time now) {
    bool work = member_ && member_->step(now);
    if (joiner_) step_joiner(now);
    if (control_->wake_at() <= now) control_->on_time(now);
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
    if (std::exchange(sleeping_, false)) {
        wakeup_.awake();
        if (member_) member_->on_woken();
    }
    const Duration window(static_cast<int64_t>(config_.yield_microseconds * 1000));
    Time now = loop::Loop::now();
    for (int i = 0; i < steps_per_turn; ++i) {
        if (step(now))
            active_ = now;
        else if (now - active_ < window)
            sched_yield();
        else
            break;
        now = loop::Loop::now();
    }
    if (now - active_ < window) return now;
    sleeping_ = true;
    wakeup_.announce_sleep();
    const bool is_idle = !member_ || member_->prepare_to_sleep();
    if (is_idle && !step(now)) return wake_at();
    active_ = now;
    return now;
}

Time Node::wake_at() const {
    Time at = std::min(control_->wake_at(), watchdog_at_);
    if (member_) at = std::min(at, member_->wake_at());
    if (joiner_) at = std::min(at, joiner_->wake_at());
    if (drain_until_) at = std::min(at, *drain_until_);
    return at;
}

void Node::step_joiner(Time now) {
    auto outcome = joiner_->step(now);
    if (!outcome) return;
    const std::string issuer = joiner_->issuer_address();
    joiner_watch_.reset();
    joiner_.reset();
    Result<void> result;
    if (!*outcome) {
        result = fail(outcome->error());
    } else {
        log_->info("cluster_joined", {field("node", (*outcome)->node), field("issuer", issuer)});
        result = become_member(now, std::move(**outcome), {issuer});
    }
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
    drain_until_ = loop::Loop::now() + config::seconds(config_.drain_timeout);
    active_ = loop::Loop::now();
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
