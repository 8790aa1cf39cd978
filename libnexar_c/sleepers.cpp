// See sleepers.hpp.
#include "sleepers.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "shm/words.hpp"

namespace nexar::c {

namespace {

void ring(int eventfd) {
    const uint64_t one = 1;
    // The write fails when the counter is at its maximum, and the descriptor is readable then.
    while (::write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void silence(int eventfd) {
    uint64_t count = 0;
    while (::read(eventfd, &count, sizeof count) < 0 && errno == EINTR) {
    }
}

bool add_to(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Sleepers::Sleepers(const Connection& connection) : connection_(&connection), by_doorbell_(!waitv_works()) {}

Sleepers::~Sleepers() {
    for (const int fd : {nudge_fd_, app_fd_, app_eventfd_})
        if (fd >= 0) ::close(fd);
}

Result<void> Sleepers::open() {
    if (!by_doorbell_) return {};
    nudge_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (nudge_fd_ < 0) return fail(io_error("cannot create an eventfd"));
    return {};
}

uint32_t Sleepers::nudges() {
    return shm::load_acquire(nudges_);
}

void Sleepers::nudge() {
    std::atomic_ref<uint32_t>(nudges_).fetch_add(1, std::memory_order_release);
    wake_all(&nudges_);
    if (!by_doorbell_) return;
    shm::fence();  // pairs with lead(): either the leader sees the nudge, or this thread sees `leading_`
    if (leading_.load(std::memory_order_relaxed)) ring(nudge_fd_);
}

Woken Sleepers::sleep(const Watched* words, unsigned count, uint32_t nudges_seen, Time until) {
    if (!by_doorbell_) {
        Watched all[4];
        std::copy_n(words, count, all);
        all[count] = {&nudges_, nudges_seen};
        return sleep_on(all, count + 1, until);
    }
    if (has_changed(words, count, nudges_seen)) return Woken::changed_or_woken;
    if (leading_.exchange(true, std::memory_order_acq_rel))
        return sleep_on_one({&nudges_, nudges_seen}, until);
    return lead(words, count, nudges_seen, until);
}

bool Sleepers::has_changed(const Watched* words, unsigned count, uint32_t nudges_seen) {
    for (unsigned i = 0; i < count; ++i)
        if (shm::load_acquire(*words[i].word) != words[i].expected) return true;
    return shm::load_acquire(nudges_) != nudges_seen;
}

// One sleep of the leader. Then all threads check their words, and the first that must sleep again leads.
Woken Sleepers::lead(const Watched* words, unsigned count, uint32_t nudges_seen, Time until) {
    {
        std::lock_guard lock(doorbell_mutex_);
        shm::store_relaxed(bell_wanted(), 1u);
    }
    shm::fence();  // [S5]: arm, check again, poll
    // A completion while the doorbell was not armed rang nothing, and the other threads may have checked
    // before it.
    const bool news = shm::load_acquire(connection_->control().header().completion_tail) != tail_notified_;
    Woken out = Woken::changed_or_woken;
    if (!news && !has_changed(words, count, nudges_seen)) out = poll_socket(until);
    const bool rang = connection_->drain();
    leave(rang);
    return out;
}

void Sleepers::leave(bool rang) {
    {
        std::lock_guard lock(doorbell_mutex_);
        if (!fd_used_) shm::store_relaxed(bell_wanted(), 0u);
        if (fd_used_ && rang) ring(app_eventfd_);
    }
    tail_notified_ = shm::load_acquire(connection_->control().header().completion_tail);
    leading_.store(false, std::memory_order_release);
    std::atomic_ref<uint32_t>(nudges_).fetch_add(1, std::memory_order_release);
    wake_all(&nudges_);
}

Woken Sleepers::poll_socket(Time until) {
    pollfd fds[] = {{connection_->fd(), POLLIN, 0}, {nudge_fd_, POLLIN, 0}};
    const Duration left = until == never ? Duration::zero() : std::max(until - now(), Duration::zero());
    const timespec relative = spec_of(left);
    const int ready = ::ppoll(fds, 2, until == never ? nullptr : &relative, nullptr);
    if (ready == 0) return Woken::timed_out;
    if (ready < 0) return errno == EINTR ? Woken::signal : Woken::changed_or_woken;
    if (fds[1].revents != 0) silence(nudge_fd_);
    return fds[0].revents & (POLLHUP | POLLERR) ? Woken::hung_up : Woken::changed_or_woken;
}

// ---- The application's own poll ----

Result<int> Sleepers::arm_fd() {
    {
        std::lock_guard lock(doorbell_mutex_);
        if (app_fd_ < 0) {
            const int doorbell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
            const int both = ::epoll_create1(EPOLL_CLOEXEC);
            if (doorbell < 0 || both < 0 || !add_to(both, doorbell) || !add_to(both, connection_->fd())) {
                Error error = io_error("cannot create a descriptor to poll");
                if (doorbell >= 0) ::close(doorbell);
                if (both >= 0) ::close(both);
                return fail(std::move(error));
            }
            app_eventfd_ = doorbell;
            app_fd_ = both;
        }
        fd_used_ = true;
        shm::store_relaxed(bell_wanted(), 1u);
    }
    shm::fence();
    return app_fd_;
}

void Sleepers::notify_application() {
    ring(app_eventfd_);
}

void Sleepers::begin_poll() {
    std::lock_guard lock(doorbell_mutex_);
    shm::store_relaxed(bell_wanted(), 0u);
    connection_->drain();
    if (app_eventfd_ >= 0) silence(app_eventfd_);
}

void Sleepers::rearm() {
    {
        std::lock_guard lock(doorbell_mutex_);
        shm::store_relaxed(bell_wanted(), 1u);
    }
    shm::fence();  // [S5]
}

// The doorbell was not armed meanwhile, and begin_poll() may have read the leader's doorbell.
void Sleepers::end_poll() {
    if (by_doorbell_) nudge();
}

}  // namespace nexar::c
