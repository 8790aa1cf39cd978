// See shard.hpp.
#include "shards/shard.hpp"

#include <poll.h>
#include <time.h>

#include "core/at_work.hpp"
#include "core/check.hpp"
#include "core/secret.hpp"
#include "loop/loop.hpp"
#include "loop/processor.hpp"
#include "transport/quic_carrier.hpp"
#include "transport/quic_port.hpp"

namespace nexar::shards {
namespace {

constexpr size_t commands_per_turn = 256;

connections::BulkConfig bulk_config(const ShardConfig& config) {
    connections::BulkConfig out;
    out.self = config.self;
    out.incarnation = config.incarnation;
    out.shard = config.number;
    out.watch = config.watch;
    out.seed = config.incarnation.nonce;
    return out;
}

}  // namespace

// The state of the shard's thread. Thread: the constructor runs on the control loop, all else on the shard.
class Shard::Thread {
  public:
    // `tcp` null: QUIC only.
    Thread(Shard& shard, ShardConfig config, std::unique_ptr<transport::QuicPort> port,
           std::unique_ptr<transport::TcpCarrier> tcp)
        : shard_(&shard),
          config_(std::move(config)),
          port_(std::move(port)),
          tcp_(std::move(tcp)),
          mesh_(config_.mesh),
          carrier_(port_->endpoint(), port_->local()),
          connections_(bulk_config(config_), carrier_, mesh_, tcp_.get()) {}

    void run();
    quic::Address local_address() const { return port_->local(); }
    std::shared_ptr<const link::Traffic> traffic() const { return mesh_.traffic(); }

  private:
    size_t apply_commands(Time now);
    void apply(Time now, Command command);
    size_t drain_events(Time now);
    void push(Event event);
    Time wake_at() const;
    void sleep(Time until);
    void flush_events();
    bool may_sleep();
    bool has_received();

    Shard* shard_;
    ShardConfig config_;
    std::unique_ptr<transport::QuicPort> port_;
    std::unique_ptr<transport::TcpCarrier> tcp_;  // null: QUIC only
    link::Mesh mesh_;
    transport::QuicCarrier carrier_;
    connections::BulkConnections connections_;
    Yields yields_;
    loop::Courtesy courtesy_;
    AtWork at_work_;
    bool pushed_ = false;              // an event since the control loop was notified last
    uint64_t datagrams_received_ = 0;  // the socket's count at the last has_received()
};

void Shard::Thread::push(Event event) {
    shard_->event_outbox_.push(std::move(event));
    pushed_ = true;
}

size_t Shard::Thread::apply_commands(Time now) {
    size_t n = 0;
    while (n < commands_per_turn) {
        auto command = shard_->commands_.pop();
        if (!command) break;
        apply(now, std::move(*command));
        ++n;
    }
    if (n > 0) {
        // Room is made before the flag is read; pairs with Shard::flush().
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (shard_->commands_wait_.load(std::memory_order_relaxed)) shard_->loop_wakeup_->notify();
    }
    return n;
}

void Shard::Thread::apply(Time now, Command command) {
    if (auto* batch = std::get_if<link::Batch>(&command))
        mesh_.post(std::move(*batch));
    else if (auto* w = std::get_if<Withdraw>(&command))
        mesh_.withdraw(w->op);
    else if (auto* r = std::get_if<Retract>(&command))
        mesh_.retract(r->op);
    else if (auto* f = std::get_if<ForgetGroup>(&command))
        mesh_.forget_group(f->group);
    else if (auto* k = std::get_if<connections::KnownPeer>(&command))
        connections_.introduce(*k, now);
    else if (auto* u = std::get_if<UseIdentity>(&command)) {
        NEXAR_CHECK(port_->endpoint().set_identity(*u->identity));  // the control loop has checked it
        if (tcp_) NEXAR_CHECK(tcp_->set_identity(*u->identity));
        connections_.replace_all(now);
    } else if (auto* a = std::get_if<UseAttachKey>(&command)) {
        if (tcp_) tcp_->set_peer(now, a->peer);
        wipe(MutableBytes(a->peer.key));
    } else if (std::holds_alternative<AskPeers>(command)) {
        connections_.ask_all();
    } else if (auto* d = std::get_if<DropPeer>(&command)) {
        connections_.drop(d->peer);
        mesh_.drop_peer(d->peer);
        if (tcp_) tcp_->forget_peer(d->node, d->incarnation);
    }
}

size_t Shard::Thread::drain_events(Time now) {
    size_t n = 0;
    while (auto event = port_->endpoint().poll_event()) {
        carrier_.on_event(now, *event, connections_.events());
        ++n;
    }
    while (auto address = port_->poll_unreachable())
        port_->endpoint().on_unreachable(now, *address);  // [P11]
    connections_.on_time(now);
    while (auto state = connections_.poll_event()) push(std::move(*state));
    if (const auto pause = tcp_ ? tcp_->poll_accept_pause() : std::nullopt) push(AcceptPause{*pause});
    mesh_.flush();
    while (auto event = mesh_.poll_event()) {
        if (event->kind == link::MeshEvent::Kind::peer_garbage)
            connections_.on_garbage(event->peer, event->text);
        push(std::move(*event));
        ++n;
    }
    return n;
}

Time Shard::Thread::wake_at() const {
    return std::min({port_->wake_at(), connections_.wake_at(), tcp_ ? tcp_->wake_at() : never});
}

// ppoll has nanosecond timeouts on every kernel; the third descriptor is the epoll instance of all TCP
// sockets.
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
    pollfd fds[] = {{shard_->wakeup_.fd(), POLLIN, 0},
                    {port_->fd(), port_events, 0},
                    {tcp_ ? tcp_->fd() : -1, POLLIN, 0}};
    if (ppoll(fds, 3, limit, nullptr) > 0 && fds[0].revents != 0) shard_->wakeup_.drain();
}

// Datagrams without an event count as work: the rest of their chunk is still in flight.
bool Shard::Thread::has_received() {
    const uint64_t datagrams = port_->socket_stats().datagrams_received;
    return datagrams != std::exchange(datagrams_received_, datagrams);
}

void Shard::Thread::flush_events() {
    const bool waited = shard_->events_wait_.load(std::memory_order_relaxed);
    shard_->events_wait_.store(!shard_->event_outbox_.flush(), std::memory_order_relaxed);
    if (std::exchange(pushed_, false) || waited) shard_->loop_wakeup_->notify();
}

// Requires: announce_sleep() was called. A thread that makes a condition false after this check sees the
// announcement and wakes the shard.
bool Shard::Thread::may_sleep() {
    if (!shard_->commands_.empty() || shard_->stopping_.load(std::memory_order_acquire)) return false;
    if (!shard_->events_wait_.load(std::memory_order_relaxed)) return true;
    flush_events();
    return shard_->events_wait_.load(std::memory_order_relaxed);
}

void Shard::Thread::run() {
    loop::set_slice(loop::Slice::bulk);
    Time active = loop::Loop::now(), worked = active;
    while (!shard_->stopping_.load(std::memory_order_acquire)) {
        Time now = loop::Loop::now();
        size_t work = apply_commands(now);
        work += port_->on_readable(now) ? 1u : 0u;
        port_->on_time(now);
        if (tcp_) work += tcp_->receive(now, connections_.events()) ? 1u : 0u;
        work += drain_events(now);
        if (port_->wants_writable())
            port_->on_writable(now);
        else
            work += port_->flush(now) ? 1u : 0u;
        if (tcp_) work += tcp_->flush(now, connections_.events()) ? 1u : 0u;
        work += has_received() ? 1u : 0u;
        if (work > 0) worked = now;
        mesh_.has_transfers() && now < worked + config_.stalled_after ? at_work_.begin(config_.at_work)
                                                                      : at_work_.end();
        flush_events();
        if (work > 0) {
            active = now;
            courtesy_.give_way();
            continue;
        }
        now = loop::Loop::now();
        if (now - active < config_.yield_window && loop::yield(yields_, now)) continue;
        shard_->wakeup_.announce_sleep();
        if (may_sleep())
            sleep(at_work_.counts() ? std::min(wake_at(), worked + config_.stalled_after) : wake_at());
        shard_->wakeup_.awake();
        // One turn without the yield phase: a wake-up that brings no work sleeps again at once.
        active = loop::Loop::now() - config_.yield_window;
    }
    port_->endpoint().close_all(connections::Channels::close_goodbye, "nexard is stopping");
    port_->flush(loop::Loop::now());
    if (!tcp_) return;
    tcp_->close_all(connections::Channels::close_goodbye, "nexard is stopping");
    tcp_->flush(loop::Loop::now(), connections_.events());
}

Shard::Shard(ShardConfig, loop::Wakeup& loop_wakeup) : loop_wakeup_(&loop_wakeup) {}

Result<std::unique_ptr<Shard>> Shard::start(ShardConfig config, loop::Wakeup& loop_wakeup) {
    transport::QuicPort::Options options;
    options.listen = config.listen;
    options.quic = config.quic;
    options.reset_secret = config.reset_secret;
    // The control connection detects failures; an idle bulk connection has no deadline.
    options.quic.idle_timeout = std::chrono::hours(24);
    NEXAR_TRY(auto port, transport::QuicPort::open(std::move(options), config.identity, config.verifier));
    std::unique_ptr<transport::TcpCarrier> tcp;
    if (config.tcp) {
        quic::Address listen = port->local();
        NEXAR_TRY(tcp, transport::TcpCarrier::open({listen, config.self, config.incarnation, config.number,
                                                    config.tcp_plain, config.quic.wall_clock},
                                                   config.identity, config.verifier));
    }
    std::unique_ptr<Shard> shard(new Shard(config, loop_wakeup));
    NEXAR_TRY_VOID(shard->wakeup_.made());
    const uint16_t number = config.number;
    shard->state_ = std::make_unique<Thread>(*shard, std::move(config), std::move(port), std::move(tcp));
    shard->traffic_ = shard->state_->traffic();
    shard->thread_ = std::thread([s = shard->state_.get()] { s->run(); });
    const std::string name = "bulk-" + std::to_string(number);  // as top -H shows it
    pthread_setname_np(shard->thread_.native_handle(), name.c_str());
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
    std::atomic_thread_fence(std::memory_order_seq_cst);  // room first, then the flag; pairs with may_sleep()
    if (events_wait_.load(std::memory_order_relaxed)) wakeup_.notify();
    return event;
}

void Shard::flush() {
    if (!command_outbox_.waits()) return;
    // The flag is set before the attempt. In the other order the shard could empty the queue between the
    // attempt and the flag, and it notifies only when it makes room.
    commands_wait_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    commands_wait_.store(!command_outbox_.flush(), std::memory_order_relaxed);
    wakeup_.notify();  // also when all fitted: the shard may have emptied the queue and fallen asleep
}

}  // namespace nexar::shards
