// Session's waits: stay a little, then sleep on the word, the daemon's life and the session's end [S9].
#include <algorithm>

#include "session.hpp"
#include "shm/words.hpp"
#include "sleep.hpp"

namespace nexar::c {

std::atomic<uint32_t> waiting_threads{0};

namespace {

struct Counted {
    Counted() { waiting_threads.fetch_add(1, std::memory_order_relaxed); }
    ~Counted() { waiting_threads.fetch_sub(1, std::memory_order_relaxed); }
};

// [S5]: raised before the last look, lowered after the sleep.
struct Announced {
    uint32_t& count;
    explicit Announced(uint32_t& c) : count(c) {
        shm::add(count, 1u);
        shm::fence();
    }
    ~Announced() { std::atomic_ref<uint32_t>(count).fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace

// The phase before sleeping. True: the word changed.
bool Session::stay_awake(uint32_t& word, uint32_t expected) {
    const Duration window = window_.window();
    // Of this process all waiters count, of the others those with something in flight; and the daemon itself.
    const uint32_t busy = shm::load_relaxed(connection_->daemon().busy_sessions);
    const uint32_t waiters = std::max(waiting_threads.load(std::memory_order_relaxed), busy);
    if (shm::WaitWindow::may_spin(waiters, usable_cores())) {
        if (stay_while(word, expected, window / 4, false)) {
            waits_spun_.fetch_add(1, std::memory_order_relaxed);
            return true;
        }
    }
    if (!stay_while(word, expected, window, true)) return false;
    waits_yielded_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Session::Waited Session::wait(const Slot& slot, Time until, bool interruptible) {
    auto& shared = control_.slot(slot.index);
    const uint32_t pending = pending_word(slot);
    if (shm::load_acquire(shared.state) != pending) {
        waits_ready_.fetch_add(1, std::memory_order_relaxed);
        return Waited::ended;
    }
    Counted counted;
    const Time started = now();
    Waited out = Waited::ended;
    if (until > started && !stay_awake(shared.state, pending)) {
        waits_slept_.fetch_add(1, std::memory_order_relaxed);
        Announced announced(shared.waiters);
        while (!ended(slot)) {
            out = sleep_once(shared.state, pending, until, interruptible, started);
            if (out != Waited::ended) break;
        }
    }
    if (ended(slot))
        out = Waited::ended;
    else if (out == Waited::ended)
        out = Waited::timed_out;  // until was over from the start
    if (out == Waited::ended) window_.on_wait_ended(now() - started);
    return out;
}

Session::Waited Session::wait_any(const Slot* slots, size_t count, Time until, size_t& index) {
    Counted counted;
    const Time started = now();
    auto& header = control_.header();
    const auto look = [&] {
        for (size_t i = 0; i < count; ++i) {
            if (!ended(slots[i])) continue;
            index = i;
            return true;
        }
        return false;
    };
    // The tail is read before the look: what ends after the look changes it.
    uint32_t tail = shm::load_acquire(header.completion_tail);
    if (look()) return Waited::ended;
    if (until <= started) return Waited::timed_out;
    if (stay_awake(header.completion_tail, tail) && look()) return Waited::ended;
    waits_slept_.fetch_add(1, std::memory_order_relaxed);
    Announced announced(header.completion_waiters);
    for (;;) {
        tail = shm::load_acquire(header.completion_tail);
        if (look()) return Waited::ended;
        const Waited out = sleep_once(header.completion_tail, tail, until, true, started);
        if (out != Waited::ended) return look() ? Waited::ended : out;
    }
}

Session::Waited Session::sleep_once(uint32_t& word, uint32_t expected, Time until, bool interruptible,
                                    Time started) {
    auto& alive = connection_->alive();
    const uint32_t alive_now = shm::load_acquire(alive);
    const uint32_t closing_now = shm::load_acquire(closing_);
    if (unusable()) return Waited::ended;
    static_cast<void>(started);
    const Time check_at = next_tick_check(now());
    const Watched words[] = {{&word, expected}, {&alive, alive_now}, {&closing_, closing_now}};
    switch (sleep_on(words, 3, std::min(until, check_at))) {
        case Woken::signal:
            return interruptible ? Waited::signal : Waited::ended;
        case Woken::changed_or_woken:
            return Waited::ended;
        case Woken::timed_out:
            break;
    }
    const Time at = now();
    if (at >= check_at) check_tick(at);
    return at >= until ? Waited::timed_out : Waited::ended;
}

// When the daemon's tick would have stood still for too long.
Time Session::next_tick_check(Time at) const {
    if (options_.daemon_unresponsive >= Duration::max() / 4) return never;
    const uint64_t stale_since = tick_stale_since_.load(std::memory_order_relaxed);
    if (stale_since != 0)
        return Time(Duration(static_cast<int64_t>(stale_since))) +
               std::chrono::milliseconds(2 * NEXAR_SHM_TICK_MS);
    const Time tick(Duration(static_cast<int64_t>(shm::load_acquire(connection_->daemon().tick_ns))));
    return std::max(tick + options_.daemon_unresponsive, at);
}

// Called at that time. Stale at first sight may mean that we were stopped together with the daemon (a frozen
// container): it gets two more periods before we believe it [S9].
void Session::check_tick(Time at) {
    const uint64_t tick = shm::load_acquire(connection_->daemon().tick_ns);
    const bool moved = tick_seen_.exchange(tick, std::memory_order_relaxed) != tick;
    const Time last(Duration(static_cast<int64_t>(tick)));
    if (at < last + options_.daemon_unresponsive) {
        tick_stale_since_.store(0, std::memory_order_relaxed);
        return;
    }
    const uint64_t since = tick_stale_since_.load(std::memory_order_relaxed);
    if (since == 0 || moved) {
        tick_stale_since_.store(static_cast<uint64_t>(at.time_since_epoch().count()),
                                std::memory_order_relaxed);
        return;
    }
    if (at < Time(Duration(static_cast<int64_t>(since))) + std::chrono::milliseconds(2 * NEXAR_SHM_TICK_MS))
        return;
    fail_all(Errc::daemon_unresponsive,
             "the daemon has not run for " + std::to_string(to_ms(at - last)) + " ms");
}

}  // namespace nexar::c
