// Session's waits: poll for a moment, then sleep on the word, the daemon's alive word and nudges [S9]. While
// there are staged requests every waiter makes progress on them, and sleeps on the completion ring [S12].
#include <algorithm>

#include "core/cores.hpp"
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

// [S5]: raised before the last check, lowered after the sleep.
struct Announced {
    uint32_t& count;
    explicit Announced(uint32_t& c) : count(c) {
        shm::add(count, 1u);
        shm::fence();
    }
    ~Announced() { std::atomic_ref<uint32_t>(count).fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace

// The phase before sleeping. `no`: the word has not changed.
Session::Polled Session::poll_awake(uint32_t& word, uint32_t expected) {
    const uint32_t bulk = shm::load_relaxed(connection_->daemon().bulk_threads);
    if (!Yields::may_pay(bulk, usable_cores())) return Polled::no;  // nor does spinning, then
    const Duration window = window_.window();
    // Spinning needs a core per waiter: the waiters of this process, or all sessions with operations in
    // flight.
    const uint32_t busy = shm::load_relaxed(connection_->daemon().busy_sessions);
    const uint32_t waiters = std::max(waiting_threads.load(std::memory_order_relaxed), busy);
    if (shm::WaitWindow::may_spin(waiters, usable_cores()) && spin_while(word, expected, window / 4))
        return Polled::spun;
    return yield_while(word, expected, window, yields_) ? Polled::yielded : Polled::no;
}

Session::Waited Session::wait(const Slot& slot, Time until, bool interruptible) {
    auto& shared = control_.slot(slot.index);
    const uint32_t pending = pending_word(slot);
    if (shm::load_acquire(shared.state) != pending) {
        waits_ready_.fetch_add(1, std::memory_order_relaxed);
        return Waited::completed;
    }
    Counted counted;
    const Time started = now();
    Waited out = Waited::completed;
    if (!any_staged() && until > started) {
        const Polled stayed = poll_awake(shared.state, pending);
        if (stayed != Polled::no) {
            (stayed == Polled::spun ? waits_spun_ : waits_yielded_).fetch_add(1, std::memory_order_relaxed);
        } else {
            waits_slept_.fetch_add(1, std::memory_order_relaxed);
            Announced announced(shared.waiters);
            for (;;) {
                const uint32_t nudges = sleepers_.nudges();
                if (is_completed(slot) || any_staged()) break;
                out = sleep_once(shared.state, pending_word(slot), nudges, until, interruptible);
                if (out != Waited::completed) break;
            }
        }
    }
    if (out == Waited::completed && !is_completed(slot))
        out = wait_on_tail([&] { return is_completed(slot); }, until, interruptible);
    if (is_completed(slot)) out = Waited::completed;
    if (out == Waited::completed) window_.on_wait_ended(now() - started);
    return out;
}

Session::Waited Session::wait_any(const Slot* slots, size_t count, Time until, size_t& index) {
    Counted counted;
    const auto any_completed = [&] {
        for (size_t i = 0; i < count; ++i) {
            if (!is_completed(slots[i])) continue;
            index = i;
            return true;
        }
        return false;
    };
    return wait_on_tail(any_completed, until, true);
}

// Every completion and every segment that is done changes completion_tail. It is read before the progress and
// the check, so that a later change ends the sleep.
template <class Predicate>
Session::Waited Session::wait_on_tail(Predicate is_done, Time until, bool interruptible) {
    auto& header = control_.header();
    auto& word = header.completion_tail;
    bool slept = false;
    for (;;) {
        const uint32_t nudges = sleepers_.nudges();
        const uint32_t tail = shm::load_acquire(word);
        const Progress moved = progress_staged();
        if (is_done()) return Waited::completed;
        if (now() >= until) {
            check_tick_when_due();  // a caller that only tests never sleeps, and sleep_once() would not check
            return is_done() ? Waited::completed : Waited::timed_out;
        }
        if (moved == Progress::something) continue;  // the daemon may have made progress meanwhile
        if (!slept && poll_awake(word, tail) != Polled::no) continue;
        Announced announced(header.completion_waiters);
        if (shm::load_acquire(word) != tail) continue;
        if (!slept) waits_slept_.fetch_add(1, std::memory_order_relaxed);
        slept = true;
        // The ring was full: the daemon does not know the counts and will not wake this thread for them.
        const Time again = moved == Progress::unannounced ? now() + std::chrono::milliseconds(10) : never;
        const Waited out = sleep_once(word, tail, nudges, std::min(until, again), interruptible);
        if (out == Waited::signal) return is_done() ? Waited::completed : out;
    }
}

Session::Waited Session::sleep_once(uint32_t& word, uint32_t expected, uint32_t nudges, Time until,
                                    bool interruptible) {
    auto& alive = connection_->alive();
    const uint32_t alive_now = shm::load_acquire(alive);
    if (unusable()) return Waited::completed;
    const Time check_at = tick_watch_.check_at(daemon_tick());
    const Watched words[] = {{&word, expected}, {&alive, alive_now}};
    const Woken woken = sleepers_.sleep(words, 2, nudges, std::min(until, check_at));
    // [S8]: the kernel wakes one sleeper when the daemon ends; unusable() wakes the others.
    if (shm::load_acquire(alive) != alive_now) static_cast<void>(unusable());
    switch (woken) {
        case Woken::signal:
            return interruptible ? Waited::signal : Waited::completed;
        case Woken::changed_or_woken:
            return Waited::completed;
        case Woken::hung_up:
            on_hung_up();
            return Waited::completed;
        case Woken::timed_out:
            break;
    }
    const Time at = now();
    if (at >= check_at) check_tick();
    return at >= until ? Waited::timed_out : Waited::completed;
}

// The kernel marks the alive word of an ended daemon before it closes its sockets. When the word is not
// marked, the daemon has closed the connection.
void Session::on_hung_up() {
    if (!unusable()) fail_all(Errc::daemon_lost, "the daemon closed the connection");
}

Time Session::daemon_tick() const {
    return Time(Duration(static_cast<int64_t>(shm::load_acquire(connection_->daemon().tick_ns))));
}

// For a program that tests again and again and never sleeps here.
void Session::check_tick_when_due() {
    if (now() >= tick_watch_.check_at(daemon_tick())) check_tick();
}

void Session::check_tick() {
    Time tick, at;
    const auto read = [&] {
        tick = daemon_tick();
        at = now();
        return std::pair(tick, at);
    };
    const auto report = [&](bool given_up) {
        shm::store_release(control_.header().given_up, given_up ? 1u : 0u);
        shm::fence();  // [S15]: before the tick is read again
    };
    if (!tick_watch_.expired(read, report)) return;
    fail_all(Errc::daemon_unresponsive, "the daemon has not run for " + std::to_string(to_ms(at - tick)) +
                                            " ms: it is stopped, or its host is overloaded; "
                                            "daemon_unresponsive_ms of the session allows more");
    connection_->shut_down();  // wakes the daemon when it runs again
}

}  // namespace nexar::c
