#include "loop/loop.hpp"

#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include <vector>

#include "core/check.hpp"

namespace nexar::loop {
namespace {

// A uv handle stays on the heap until its close callback. Source: libuv, "Handles and requests".
struct PollHandle {
    uv_poll_t uv{};
    std::function<void(Loop::Ready)> on_ready;  // empty: its Watch was destroyed
    int events = 0;                             // UV_READABLE and UV_WRITABLE as wanted; 0: not watched

    void start();
};

void on_poll(uv_poll_t* uv, int status, int events) {
    auto* handle = static_cast<PollHandle*>(uv->data);
    Loop::Ready ready;
    ready.readable = status < 0 || (events & UV_READABLE) != 0;  // an error shows on the next read
    ready.writable = (events & UV_WRITABLE) != 0;
    ready.hung_up = status < 0 || (events & UV_DISCONNECT) != 0;
    if (auto callback = handle->on_ready) callback(ready);  // a copy: it may destroy its own Watch
    // libuv stops a handle at an error. On a UDP socket the error is only what ICMP left: start again.
    if (status < 0 && handle->on_ready) handle->start();
}

void PollHandle::start() {
    if (events == 0)
        uv_poll_stop(&uv);
    else
        NEXAR_CHECK(uv_poll_start(&uv, events, on_poll) == 0);
}

class PollWatch final : public Loop::Watch {
  public:
    PollWatch(uv_loop_t* loop, int fd, std::function<void(Loop::Ready)> on_ready) : handle_(new PollHandle) {
        handle_->on_ready = std::move(on_ready);
        NEXAR_CHECK(uv_poll_init(loop, &handle_->uv, fd) == 0);
        handle_->uv.data = handle_;
    }
    ~PollWatch() override {
        handle_->on_ready = nullptr;
        uv_poll_stop(&handle_->uv);
        uv_close(reinterpret_cast<uv_handle_t*>(&handle_->uv),
                 [](uv_handle_t* h) { delete static_cast<PollHandle*>(h->data); });
    }
    void want(bool readable, bool writable) override {
        handle_->events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
        handle_->start();
    }

  private:
    PollHandle* handle_;
};

}  // namespace

struct Loop::Impl {
    uv_loop_t uv{};
    uv_prepare_t prepare{};
    uv_idle_t idle{};                    // active: the next poll does not block
    bool idling = false;                 // `idle` is active
    int timer_fd = -1;                   // one timerfd for all deadlines
    Time armed = never;                  // when timer_fd expires; never: disarmed
    std::unique_ptr<Watch> timer_watch;  // on timer_fd
    std::function<Time()> turn;          // empty: set_turn() was not called
    struct Signal {
        uv_signal_t uv{};
        std::function<void(int)> handler;
    };
    std::vector<std::unique_ptr<Signal>> signals;

    void before_poll() {
        const Time wake = turn ? turn() : never;
        const bool busy = wake <= Loop::now();
        if (busy && !idling) uv_idle_start(&idle, [](uv_idle_t*) {});
        if (!busy && idling) uv_idle_stop(&idle);
        idling = busy;
        if (!busy) arm(wake);
    }
    // Moves the timer only when the deadline has changed: that saves a system call on nearly every turn.
    void arm(Time wake) {
        if (wake == armed) return;
        armed = wake;
        itimerspec spec{};
        if (wake != never) {
            const auto ns = wake.time_since_epoch().count();
            spec.it_value.tv_sec = ns / 1'000'000'000;
            spec.it_value.tv_nsec = ns % 1'000'000'000;
        }
        NEXAR_CHECK(timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
    }
    void on_timer() {
        uint64_t expirations;
        [[maybe_unused]] const auto n = read(timer_fd, &expirations, sizeof expirations);
        armed = never;
    }
};

Loop::Loop() : impl_(new Impl) {
    Impl& i = *impl_;
    NEXAR_CHECK(uv_loop_init(&i.uv) == 0);
    uv_prepare_init(&i.uv, &i.prepare);
    uv_idle_init(&i.uv, &i.idle);
    i.prepare.data = &i;
    uv_prepare_start(&i.prepare, [](uv_prepare_t* h) { static_cast<Impl*>(h->data)->before_poll(); });
    i.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    NEXAR_CHECK(i.timer_fd >= 0);
    i.timer_watch = watch(i.timer_fd, true, false, [&i](Ready) { i.on_timer(); });
}

Loop::~Loop() {
    Impl& i = *impl_;
    i.timer_watch.reset();
    uv_walk(
        &i.uv,
        [](uv_handle_t* h, void*) {
            if (!uv_is_closing(h)) uv_close(h, nullptr);
        },
        nullptr);
    uv_run(&i.uv, UV_RUN_DEFAULT);
    uv_loop_close(&i.uv);
    close(i.timer_fd);
}

Time Loop::now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Time(Duration(t.tv_sec * 1'000'000'000 + t.tv_nsec));
}

std::unique_ptr<Loop::Watch> Loop::watch(int fd, bool readable, bool writable,
                                         std::function<void(Ready)> on_ready) {
    auto w = std::make_unique<PollWatch>(&impl_->uv, fd, std::move(on_ready));
    w->want(readable, writable);
    return w;
}

void Loop::set_turn(std::function<Time()> turn) {
    impl_->turn = std::move(turn);
}

void Loop::on_signal(int signal, std::function<void(int)> handler) {
    auto s = std::make_unique<Impl::Signal>();
    s->handler = std::move(handler);
    uv_signal_init(&impl_->uv, &s->uv);
    s->uv.data = s.get();
    uv_signal_start(
        &s->uv, [](uv_signal_t* h, int number) { static_cast<Impl::Signal*>(h->data)->handler(number); },
        signal);
    impl_->signals.push_back(std::move(s));
}

void Loop::run() {
    uv_run(&impl_->uv, UV_RUN_DEFAULT);
}
void Loop::stop() {
    uv_stop(&impl_->uv);
}

}  // namespace nexar::loop
