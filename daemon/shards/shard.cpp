#include "shards/shard.hpp"

#include <poll.h>
#include <sched.h>
#include <time.h>

#include <map>

#include "core/check.hpp"
#include "loop/loop.hpp"
#include "transport/link_port.hpp"
#include "transport/quic_port.hpp"

namespace nexar::shards {
namespace {

constexpr Duration redial_first{20'000'000};
constexpr Duration redial_most{1'000'000'000};
constexpr Duration replace_interval{5'000'000};  // connections with an old certificate, one after the other
constexpr size_t commands_per_turn = 256;
constexpr size_t strangers_max = 256;  // connections of members whom the loop has not introduced yet

}  // namespace

// Everything that only the shard's thread touches.
class Shard::Thread {
  public:
    Thread(Shard& shard, ShardConfig config, std::unique_ptr<transport::QuicPort> port)
        : shard_(&shard),
          config_(std::move(config)),
          port_(std::move(port)),
          mesh_(config_.mesh),
          links_(port_->endpoint(), mesh_, config_.self, preamble()) {}

    void run();
    quic::Address local_address() const { return port_->local(); }

  private:
    struct Peer {
        KnowPeer known;
        bool up = false;
        std::optional<quic::ConnId> dialling;  // the dial that has not ended in a channel or a failure yet
        Time redial_at = never;
        Duration pause = redial_first;
    };

    connections::Preamble preamble() const {
        connections::Preamble p;
        p.purpose = connections::Purpose::bulk;
        p.shard = config_.number;
        p.incarnation = config_.incarnation;
        return p;
    }
    size_t take_commands(Time now);
    void obey(Time now, Command command);
    void on_opened(Time now, const transport::Opened& opened);
    void on_closed(Time now, const transport::Closed& closed);
    void introduce(Time now, const KnowPeer& known);
    void use(Time now, const quic::Identity& identity);
    void dial(Time now, Peer& peer);
    void redial(Time now);
    size_t drain(Time now);
    void tell(Event event);
    Time wake_at() const;
    void sleep(Time until);
    void publish_counters();
    void report();
    bool may_sleep();
    size_t heard_something();

    Shard* shard_;
    ShardConfig config_;
    std::unique_ptr<transport::QuicPort> port_;
    link::Mesh mesh_;
    transport::LinkPort links_;
    bool told_ = false;
    uint64_t datagrams_seen_ = 0;
    std::map<link::PeerIndex, Peer> peers_;
    std::map<NodeId, link::PeerIndex> by_node_;
    std::map<quic::ConnId, transport::Opened> strangers_;
};

void Shard::Thread::tell(Event event) {
    shard_->event_outbox_.push(std::move(event));
    told_ = true;
}

size_t Shard::Thread::take_commands(Time now) {
    size_t n = 0;
    while (n < commands_per_turn) {
        auto command = shard_->commands_.pop();
        if (!command) break;
        obey(now, std::move(*command));
        ++n;
    }
    if (n > 0) {
        std::atomic_thread_fence(
            std::memory_order_seq_cst);  // made room, then look; pairs with the loop's sleep
        if (shard_->commands_wait_.load(std::memory_order_relaxed)) shard_->loop_wakeup_->notify();
    }
    return n;
}

void Shard::Thread::obey(Time now, Command command) {
    if (auto* batch = std::get_if<link::Batch>(&command))
        mesh_.post(std::move(*batch));
    else if (auto* w = std::get_if<Withdraw>(&command))
        mesh_.withdraw(w->op);
    else if (auto* f = std::get_if<ForgetGroup>(&command))
        mesh_.forget_group(f->group);
    else if (auto* k = std::get_if<KnowPeer>(&command))
        introduce(now, *k);
    else if (auto* u = std::get_if<UseIdentity>(&command))
        use(now, *u->identity);
    else if (auto* d = std::get_if<DropPeer>(&command)) {
        links_.close(d->peer, transport::LinkPort::close_goodbye, "this node counts you as gone");
        mesh_.drop_peer(d->peer);
        if (const auto it = peers_.find(d->peer); it != peers_.end()) {
            if (const auto n = by_node_.find(it->second.known.node);
                n != by_node_.end() && n->second == d->peer)
                by_node_.erase(n);
            peers_.erase(it);
        }
    }
}

void Shard::Thread::introduce(Time now, const KnowPeer& known) {
    by_node_[known.node] = known.peer;
    Peer& peer = peers_[known.peer];
    peer.known = known;
    for (auto it = strangers_.begin(); it != strangers_.end();) {
        if (it->second.node != known.node) {
            ++it;
            continue;
        }
        const transport::Opened opened = it->second;
        it = strangers_.erase(it);
        on_opened(now, opened);
    }
    if (known.dial && !peer.up && !peer.dialling) dial(now, peer);
}

// The control loop has checked this identity. A dial that succeeds replaces the connection that stands; its
// transfers go on from their applied-bitmaps.
void Shard::Thread::use(Time now, const quic::Identity& identity) {
    NEXAR_CHECK(port_->endpoint().set_identity(identity));
    Time at = now;
    for (auto& [index, peer] : peers_)
        if (peer.up) peer.redial_at = at += replace_interval;
}

void Shard::Thread::dial(Time now, Peer& peer) {
    const auto id = links_.dial(now, port_->local(), peer.known.address, peer.known.node);
    peer.dialling.reset();
    if (id) peer.dialling = *id;
    peer.redial_at = id ? never : now + peer.pause;
    peer.pause = std::min(2 * peer.pause, redial_most);
}

void Shard::Thread::redial(Time now) {
    for (auto& [index, peer] : peers_)
        if (peer.redial_at <= now) dial(now, peer);
}

// A connection is a peer's if it is of the life that the loop introduced; one that comes before its
// introduction waits (bounded), one of an older life is refused.
void Shard::Thread::on_opened(Time now, const transport::Opened& opened) {
    if (opened.theirs.purpose != connections::Purpose::bulk || opened.theirs.shard != config_.number)
        return links_.refuse(opened.conn, transport::LinkPort::close_refused,
                             "this port is for bulk connections");
    const auto known = by_node_.find(opened.node);
    Peer* peer = known == by_node_.end() ? nullptr : &peers_.at(known->second);
    if (!peer || peer->known.incarnation != opened.theirs.incarnation) {
        const bool older = peer && opened.theirs.incarnation.counter <= peer->known.incarnation.counter;
        if (older || strangers_.size() >= strangers_max)
            return links_.refuse(opened.conn, transport::LinkPort::close_refused,
                                 "not a life of this node that is known here");
        strangers_[opened.conn] = opened;
        return;
    }
    if (peer->dialling == opened.conn) peer->dialling.reset();
    if (!links_.adopt(opened.conn, peer->known.peer)) return;
    peer->up = true;
    peer->pause = redial_first;
    peer->redial_at = never;
    tell(BulkState{peer->known.peer, true, {}});
    (void)now;
}

void Shard::Thread::on_closed(Time now, const transport::Closed& closed) {
    strangers_.erase(closed.conn);
    const auto known = by_node_.find(closed.node);
    if (known == by_node_.end()) return;
    Peer& peer = peers_.at(known->second);
    if (peer.dialling == closed.conn) peer.dialling.reset();
    // The one that replaces it may have been adopted in this very turn.
    if (closed.peer == peer.known.peer && !links_.conn_of(peer.known.peer)) {
        peer.up = false;
        tell(BulkState{peer.known.peer, false, closed.why.reason});
    }
    // Whether the node is alive is the control connection's to say; until it says no, the bulk channel comes
    // back and the transfers go on from their applied-bitmaps.
    if (peer.known.dial && !peer.up && !peer.dialling) peer.redial_at = now + peer.pause;
}

size_t Shard::Thread::drain(Time now) {
    size_t n = 0;
    while (auto event = port_->endpoint().poll_event()) {
        links_.on_event(now, *event);
        ++n;
    }
    links_.on_time(now);
    while (auto opened = links_.poll_opened()) on_opened(now, *opened);
    while (auto closed = links_.poll_closed()) on_closed(now, *closed);
    while (links_.poll_heard()) {
    }
    mesh_.flush();
    while (auto event = mesh_.poll_event()) {
        if (event->kind == link::MeshEvent::Kind::peer_garbage)
            links_.close(event->peer, transport::LinkPort::close_garbage, event->text);
        tell(std::move(*event));
        ++n;
    }
    return n;
}

Time Shard::Thread::wake_at() const {
    Time at = std::min(port_->wake_at(), links_.wake_at());
    for (const auto& [index, peer] : peers_) at = std::min(at, peer.redial_at);
    return at;
}

// ppoll: to the nanosecond on every kernel, and two descriptors are no case for epoll.
void Shard::Thread::sleep(Time until) {
    const Time now = loop::Loop::now();
    timespec timeout{};
    timespec* limit = nullptr;
    if (until != never) {
        const auto ns = std::max<int64_t>(0, (until - now).count());
        timeout = {ns / 1'000'000'000, ns % 1'000'000'000};
        limit = &timeout;
    }
    const short port_events = port_->wants_writable() ? POLLIN | POLLOUT : POLLIN;
    pollfd fds[] = {{shard_->wakeup_.fd(), POLLIN, 0}, {port_->fd(), port_events, 0}};
    if (ppoll(fds, 2, limit, nullptr) > 0 && fds[0].revents != 0) shard_->wakeup_.drain();
}

// Datagrams that brought no event are work too: half a chunk is still on its way.
size_t Shard::Thread::heard_something() {
    const uint64_t datagrams = port_->socket_stats().datagrams_received;
    const bool heard = datagrams != std::exchange(datagrams_seen_, datagrams);
    return heard ? 1 : 0;
}

void Shard::Thread::publish_counters() {
    uint64_t sent = 0, received = 0;
    for (const auto& [index, peer] : peers_) {
        const auto s = mesh_.stats(index);
        sent += s.bytes_sent;
        received += s.bytes_received;
    }
    shard_->bytes_sent_.store(sent, std::memory_order_relaxed);
    shard_->bytes_received_.store(received, std::memory_order_relaxed);
}

void Shard::Thread::report() {
    const bool waited = shard_->events_wait_.load(std::memory_order_relaxed);
    shard_->events_wait_.store(!shard_->event_outbox_.flush(), std::memory_order_relaxed);
    if (std::exchange(told_, false) || waited) shard_->loop_wakeup_->notify();
}

// The recheck after the announcement: whoever makes one of these false later sees the announcement.
bool Shard::Thread::may_sleep() {
    if (!shard_->commands_.empty() || shard_->stopping_.load(std::memory_order_acquire)) return false;
    if (!shard_->events_wait_.load(std::memory_order_relaxed)) return true;
    report();
    return shard_->events_wait_.load(std::memory_order_relaxed);
}

void Shard::Thread::run() {
    Time active = loop::Loop::now();
    while (!shard_->stopping_.load(std::memory_order_acquire)) {
        const Time now = loop::Loop::now();
        size_t work = take_commands(now);
        work += port_->on_readable(now) ? 1u : 0u;
        port_->on_time(now);
        redial(now);
        work += drain(now);
        if (port_->wants_writable())
            port_->on_writable(now);
        else
            work += port_->flush(now) ? 1u : 0u;
        work += heard_something();
        report();
        if (work > 0) {
            active = now;
            continue;
        }
        if (now - active < config_.yield_window) {
            sched_yield();
            continue;
        }
        publish_counters();
        shard_->wakeup_.announce_sleep();
        if (may_sleep()) sleep(wake_at());
        shard_->wakeup_.awake();
        active = loop::Loop::now() -
                 config_.yield_window;  // look once; a wake-up without work sleeps again at once
    }
    port_->endpoint().close_all(transport::LinkPort::close_goodbye, "nexard is stopping");
    port_->flush(loop::Loop::now());
}

Shard::Shard(ShardConfig, loop::Wakeup& loop_wakeup) : loop_wakeup_(&loop_wakeup) {}

Result<std::unique_ptr<Shard>> Shard::start(ShardConfig config, loop::Wakeup& loop_wakeup) {
    transport::QuicPort::Options options;
    options.listen = config.listen;
    options.quic = config.quic;
    options.reset_secret = config.reset_secret;
    // Whether the peer lives is judged on its control connection; an idle bulk connection just waits.
    options.quic.idle_timeout = std::chrono::hours(24);
    NEXAR_TRY(auto port, transport::QuicPort::open(std::move(options), config.identity, config.verifier));
    std::unique_ptr<Shard> shard(new Shard(config, loop_wakeup));
    shard->state_ = std::make_unique<Thread>(*shard, std::move(config), std::move(port));
    shard->thread_ = std::thread([s = shard->state_.get()] { s->run(); });
    return shard;
}

Shard::~Shard() {
    stopping_.store(true, std::memory_order_release);
    wakeup_.notify();
    if (thread_.joinable()) thread_.join();
}

quic::Address Shard::local_address() const {
    return state_->local_address();
}

void Shard::post(Command command) {
    command_outbox_.push(std::move(command));
    flush();
    wakeup_.notify();
}

std::optional<Event> Shard::poll_event() {
    auto event = events_.pop();
    if (!event) return event;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // made room, then look; pairs with may_sleep()
    if (events_wait_.load(std::memory_order_relaxed)) wakeup_.notify();
    return event;
}

void Shard::flush() {
    if (!command_outbox_.waits()) return;
    // Said first, then tried: had we tried first, the shard could have emptied the whole queue before the
    // word, and it tells us of room only when it makes some.
    commands_wait_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    commands_wait_.store(!command_outbox_.flush(), std::memory_order_relaxed);
    wakeup_.notify();  // also when all went in: the shard may sleep since it emptied the queue
}

}  // namespace nexar::shards
