// See shard.hpp.
#include "shards/shard.hpp"

#include <poll.h>
#include <time.h>

#include "core/at_work.hpp"
#include "core/yield_phase.hpp"
#include "loop/loop.hpp"
#include "loop/processor.hpp"
#include "shards/awaited_together.hpp"

namespace nexar::shards {
namespace {

constexpr size_t commands_per_turn = 256;
constexpr size_t borrowed_turn_bytes = 512 * 1024;  // that the loop reads, and encrypts, in a turn

}  // namespace

// The state of the shard's thread. Thread: the constructor runs on the control loop, all else on the shard.
class Shard::Thread final : BulkEndpoint::Listener {
  public:
    Thread(Shard& shard, const ShardConfig& config, std::unique_ptr<BulkEndpoint> endpoint)
        : shard_(&shard),
          stalled_after_(config.stalled_after),
          count_(config.at_work),
          endpoint_(std::move(endpoint)),
          phase_(config.yield_window, loop::Loop::now()) {}

    void run();
    BulkEndpoint& endpoint() const { return *endpoint_; }

  private:
    size_t apply_commands(Time now);
    void on_event(Event event) override;
    void sleep(Time until);
    void take_back();
    void flush_events();
    bool may_sleep();
    bool offer();

    Shard* shard_;
    const Duration stalled_after_;
    uint32_t* const count_;  // ShardConfig::at_work
    std::unique_ptr<BulkEndpoint> endpoint_;
    YieldPhase phase_;
    Yields yields_;
    loop::Courtesy courtesy_;
    AtWork at_work_;
    AwaitedTogether together_;
    // Since the control loop was notified last: an event that it awaits, or one that can wait for others.
    bool pushed_ = false, deferred_ = false;
};

void Shard::Thread::on_event(Event event) {
    const auto* of_mesh = std::get_if<link::MeshEvent>(&event);
    (!of_mesh || together_.is_awaited(*of_mesh) ? pushed_ : deferred_) = true;
    shard_->event_outbox_.push(std::move(event));
}

size_t Shard::Thread::apply_commands(Time now) {
    size_t n = 0;
    while (n < commands_per_turn) {
        auto command = shard_->commands_.pop();
        if (!command) break;
        if (const auto* batch = std::get_if<link::Batch>(&*command)) together_.post(*batch);
        endpoint_->apply(now, std::move(*command));
        ++n;
    }
    if (n > 0) {
        // Room is made before the flag is read; pairs with Shard::flush().
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (shard_->commands_wait_.load(std::memory_order_relaxed)) shard_->loop_wakeup_->notify();
    }
    return n;
}

// ppoll has nanosecond timeouts on every kernel; the third descriptor is the epoll instance of all TCP
// sockets. Without transfers the loop may take the endpoint meanwhile: then this sleeps on until it is back.
void Shard::Thread::sleep(Time until) {
    const Time now = loop::Loop::now();
    timespec timeout{};
    timespec* limit = nullptr;
    if (until != never) {
        const auto ns = std::max<int64_t>(0, (until - now).count());
        timeout = {ns / 1'000'000'000, ns % 1'000'000'000};
        limit = &timeout;
    }
    const short port_events = endpoint_->udp_wants_writable() ? POLLIN | POLLOUT : POLLIN;
    pollfd fds[] = {{shard_->wakeup_.fd(), POLLIN, 0},
                    {endpoint_->udp_fd(), port_events, 0},
                    {endpoint_->tcp_fd(), POLLIN, 0}};
    const bool lends = !endpoint_->has_transfers();
    if (lends) shard_->driver_.store(Driver::parked, std::memory_order_release);  // pairs with borrow()
    if (ppoll(fds, 3, limit, nullptr) > 0 && fds[0].revents != 0) shard_->wakeup_.drain();
    if (lends) take_back();
}

// What nobody has accepted is this thread's again when it has slept, or is to end.
void Shard::Thread::take_back() {
    std::atomic<Driver>& driver = shard_->driver_;
    const auto has = [&](Driver was) {
        return driver.compare_exchange_strong(was, Driver::thread, std::memory_order_acquire);
    };
    if (has(Driver::parked)) return;
    shard_->wakeup_.awake();
    shard_->wakeup_.wait_until([&] {
        if (shard_->stopping_.load(std::memory_order_acquire) && has(Driver::offered)) return true;
        return driver.load(std::memory_order_acquire) == Driver::thread;  // pairs with give_back()
    });
}

void Shard::Thread::flush_events() {
    const bool waited = shard_->events_wait_.load(std::memory_order_relaxed);
    shard_->events_wait_.store(!shard_->event_outbox_.flush(), std::memory_order_relaxed);
    if (!std::exchange(pushed_, false) && !waited) return;
    deferred_ = false;
    shard_->loop_wakeup_->notify();
}

// Requires: announce_sleep() was called. A thread that makes a condition false after this check sees the
// announcement and wakes the shard.
bool Shard::Thread::may_sleep() {
    if (!shard_->commands_.empty() || shard_->stopping_.load(std::memory_order_acquire)) return false;
    if (!shard_->events_wait_.load(std::memory_order_relaxed)) return true;
    flush_events();
    return shard_->events_wait_.load(std::memory_order_relaxed);
}

// Where the loop found this thread at work. Operations that follow each other closely, or a processor that
// others use, would keep it from its sleep. Before the loop knows of the last event: it may begin the next
// operation at once.
bool Shard::Thread::offer() {
    if (!shard_->wanted_.load(std::memory_order_relaxed) || endpoint_->has_transfers()) return false;
    if (shard_->event_outbox_.waits() || !shard_->commands_.empty()) return false;
    shard_->wanted_.store(false, std::memory_order_relaxed);
    at_work_.end();
    shard_->driver_.store(Driver::offered, std::memory_order_release);  // pairs with borrow()
    pushed_ = true;
    flush_events();
    take_back();
    return true;
}

void Shard::Thread::run() {
    loop::set_slice(loop::Slice::bulk);
    Time worked = loop::Loop::now();
    while (!shard_->stopping_.load(std::memory_order_acquire)) {
        Time now = loop::Loop::now();
        size_t work = apply_commands(now);
        work += endpoint_->receive(now, *this);
        work += endpoint_->send(now) ? 1u : 0u;
        if (work > 0) {
            worked = now;
            phase_.worked(now);
        }
        endpoint_->has_transfers() && now < worked + stalled_after_ ? at_work_.begin(count_) : at_work_.end();
        if (offer()) {
            phase_.slept();
            continue;
        }
        flush_events();
        if (work > 0) {
            courtesy_.give_way();
            continue;
        }
        now = loop::Loop::now();
        if (phase_.lasts(now) && loop::yield(yields_, now)) continue;
        // What others of its batch take longer than that for is not to be unknown meanwhile.
        if (std::exchange(deferred_, false)) shard_->loop_wakeup_->notify();
        shard_->wakeup_.announce_sleep();
        if (may_sleep())
            sleep(at_work_.counts() ? std::min(endpoint_->wake_at(), worked + stalled_after_)
                                    : endpoint_->wake_at());
        shard_->wakeup_.awake();
        phase_.slept();
    }
    endpoint_->close(loop::Loop::now());
}

Shard::Shard(loop::Wakeup& loop_wakeup, loop::Loop* lends_to)
    : loop_wakeup_(&loop_wakeup), lends_to_(lends_to) {}

Result<std::unique_ptr<Shard>> Shard::start(const ShardConfig& config, loop::Wakeup& loop_wakeup) {
    NEXAR_TRY(auto endpoint, BulkEndpoint::open(config));
    std::unique_ptr<Shard> shard(new Shard(loop_wakeup, config.lends_to));
    NEXAR_TRY_VOID(shard->wakeup_.made());
    shard->traffic_ = endpoint->traffic();
    shard->state_ = std::make_unique<Thread>(*shard, config, std::move(endpoint));
    shard->thread_ = std::thread([s = shard->state_.get()] { s->run(); });
    const std::string name = "bulk-" + std::to_string(config.number);  // as top -H shows it
    pthread_setname_np(shard->thread_.native_handle(), name.c_str());
    return shard;
}

Shard::~Shard() {
    if (is_borrowed()) give_back();
    stopping_.store(true, std::memory_order_release);
    wakeup_.notify();
    if (thread_.joinable()) thread_.join();
}

quic::Address Shard::local_address() const {
    return state_->endpoint().local_address();
}

// What one of them has for the other would be overtaken: that is looked at when the thread adds no more.
bool Shard::borrow() {
    if (is_borrowed() || !lends_to_) return is_borrowed();
    Driver was = driver_.load(std::memory_order_relaxed);
    const bool has = (was == Driver::parked || was == Driver::offered) &&  // pairs with sleep() and offer()
                     driver_.compare_exchange_strong(was, Driver::loop, std::memory_order_acquire);
    const bool is_its_turn =
        command_outbox_.waits() || !commands_.empty() || events_wait_.load(std::memory_order_relaxed);
    const bool lends = has && !is_its_turn && events_.empty();
    wanted_.store(!lends, std::memory_order_relaxed);
    if (lends) {
        state_->endpoint().limit_turn(borrowed_turn_bytes);
        drive_.begin(state_->endpoint(), *lends_to_);
    } else if (has) {  // an offer stands until its last events were polled
        const bool stands = was == Driver::offered && !is_its_turn;
        driver_.store(stands ? Driver::offered : Driver::thread, std::memory_order_release);
        if (!stands) wakeup_.notify();
    }
    return lends;
}

void Shard::give_back() {
    drive_.end();
    state_->endpoint().limit_turn(SIZE_MAX);
    driver_.store(Driver::thread, std::memory_order_release);  // pairs with take_back()
    wakeup_.notify();
}

void Shard::decline() {
    Driver was = Driver::offered;
    if (driver_.compare_exchange_strong(was, Driver::thread, std::memory_order_release)) wakeup_.notify();
}

bool Shard::has_transfers() const {
    return state_->endpoint().has_transfers();
}

bool Shard::has_visitors() const {
    return drive_.udp_is_due() || state_->endpoint().has_newcomers();
}

// What has to do with connections may take long: the thread does it.
void Shard::post(Command command) {
    const bool is_transfers =
        std::holds_alternative<link::Batch>(command) || std::holds_alternative<Withdraw>(command) ||
        std::holds_alternative<Retract>(command) || std::holds_alternative<ForgetGroup>(command);
    if (is_borrowed() && is_transfers) return drive_.apply(std::move(command));
    if (is_borrowed()) give_back();
    decline();
    command_outbox_.push(std::move(command));
    flush();
    wakeup_.notify();
}

std::optional<Event> Shard::poll_event() {
    // While the loop drives, the thread reports nothing: what the loop found came before what is in the
    // queue.
    if (auto own = drive_.poll_event()) return own;
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
