#include "shards/shard.hpp"

#include <poll.h>
#include <sched.h>
#include <time.h>

#include "core/check.hpp"
#include "loop/loop.hpp"
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
    out.seed = config.incarnation.nonce;
    return out;
}

}  // namespace

// Everything that only the shard's thread touches.
class Shard::Thread {
  public:
    Thread(Shard& shard, ShardConfig config, std::unique_ptr<transport::QuicPort> port)
        : shard_(&shard),
          config_(std::move(config)),
          port_(std::move(port)),
          mesh_(config_.mesh),
          carrier_(port_->endpoint(), port_->local()),
          connections_(bulk_config(config_), carrier_, mesh_) {}

    void run();
    quic::Address local_address() const { return port_->local(); }

  private:
    size_t take_commands(Time now);
    void obey(Time now, Command command);
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
    transport::QuicCarrier carrier_;
    connections::BulkConnections connections_;
    bool told_ = false;
    uint64_t datagrams_seen_ = 0;
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
    else if (auto* r = std::get_if<Retract>(&command))
        mesh_.retract(r->op);
    else if (auto* f = std::get_if<ForgetGroup>(&command))
        mesh_.forget_group(f->group);
    else if (auto* k = std::get_if<connections::KnownPeer>(&command))
        connections_.introduce(*k, now);
    else if (auto* u = std::get_if<UseIdentity>(&command)) {
        NEXAR_CHECK(port_->endpoint().set_identity(*u->identity));  // the control loop has checked it
        connections_.replace_all(now);
    } else if (auto* d = std::get_if<DropPeer>(&command)) {
        connections_.drop(d->peer);
        mesh_.drop_peer(d->peer);
    }
}

size_t Shard::Thread::drain(Time now) {
    size_t n = 0;
    while (auto event = port_->endpoint().poll_event()) {
        carrier_.on_event(now, *event, connections_.events());
        ++n;
    }
    while (auto address = port_->poll_unreachable())
        port_->endpoint().on_unreachable(now, *address);  // [P11]
    connections_.on_time(now);
    while (auto state = connections_.poll_event()) tell(std::move(*state));
    mesh_.flush();
    while (auto event = mesh_.poll_event()) {
        if (event->kind == link::MeshEvent::Kind::peer_garbage)
            connections_.on_garbage(event->peer, event->text);
        tell(std::move(*event));
        ++n;
    }
    return n;
}

Time Shard::Thread::wake_at() const {
    return std::min(port_->wake_at(), connections_.wake_at());
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
    for (const link::PeerIndex peer : connections_.peers()) {
        const auto s = mesh_.stats(peer);
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
    port_->endpoint().close_all(connections::Channels::close_goodbye, "nexard is stopping");
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
