// The control loop on real descriptors: deadlines, watches that end themselves, signals, another thread's
// wake-up.
#include "loop/loop.hpp"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "loop/wakeup.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using loop::Loop;

namespace {

struct Pipe {
    std::array<int, 2> ends{};
    Pipe() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0); }
    ~Pipe() {
        for (const int fd : ends)
            if (fd >= 0) close(fd);
    }
    void say() { REQUIRE(write(ends[1], "x", 1) == 1); }
    size_t receive() {
        char buffer[16];
        const ssize_t n = read(ends[0], buffer, sizeof buffer);
        return n > 0 ? static_cast<size_t>(n) : 0;
    }
    void hang_up() {
        close(ends[1]);
        ends[1] = -1;
    }
};

// No test may hang: the loop ends after so many turns or at this time.
struct Guard {
    Time end = Loop::now() + 10s;
    bool over() const { return Loop::now() > end; }
};

}  // namespace

TEST_CASE("a turn comes at its deadline, to the nanosecond not earlier, and in between the loop sleeps",
          "[loop]") {
    Loop loop;
    Guard guard;
    constexpr std::array<Duration, 5> waits = {1'234'567ns, 300us, 25ms, 1ns, 2'000'001ns};
    size_t at = 0, turns = 0;
    Time due = Loop::now() + waits[0];
    std::vector<Duration> late;
    loop.set_turn([&] {
        ++turns;
        const Time now = Loop::now();
        if (guard.over()) loop.stop();
        if (now < due) return due;
        late.push_back(now - due);
        if (++at == waits.size()) {
            loop.stop();
            return never;
        }
        due = now + waits[at];
        return due;
    });
    loop.run();
    REQUIRE(late.size() == waits.size());
    for (const Duration l : late) CHECK(l >= 0ns);
    CHECK(turns < 40);  // it slept; it did not spin
}

TEST_CASE("a deadline can be moved nearer by an event", "[loop]") {
    Loop loop;
    Guard guard;
    Pipe pipe;
    Time due = Loop::now() + 1h;
    auto watch = loop.watch(pipe.ends[0], true, false, [&](Loop::Ready) {
        pipe.receive();
        due = Loop::now() + 2ms;
    });
    bool reached = false;
    loop.set_turn([&] {
        if (guard.over()) loop.stop();
        if (Loop::now() < due) return due;
        reached = true;
        loop.stop();
        return never;
    });
    pipe.say();
    loop.run();
    CHECK(reached);
}

TEST_CASE("a turn that returns the past comes again without sleep, and descriptors are still received",
          "[loop]") {
    Loop loop;
    Pipe pipe;
    size_t turns = 0, received = 0;
    auto watch = loop.watch(pipe.ends[0], true, false, [&](Loop::Ready r) {
        CHECK(r.readable);
        received += pipe.receive();
    });
    loop.set_turn([&] {
        if (turns % 10 == 0 && turns < 1000) pipe.say();
        if (++turns < 1010) return Time{};
        loop.stop();
        return never;
    });
    const Time begin = Loop::now();
    loop.run();
    CHECK(turns == 1010);
    CHECK(received == 100);
    CHECK(Loop::now() - begin <
          5s);  // a sleep of a millisecond per turn would be seen by the count, not this
}

TEST_CASE("after busy turns the loop sleeps again", "[loop]") {
    Loop loop;
    Guard guard;
    size_t turns = 0;
    Time due = never;
    loop.set_turn([&] {
        if (++turns < 5) return Time{};
        const Time now = Loop::now();
        if (due == never) due = now + 20ms;
        if (now >= due || guard.over()) loop.stop();
        return due;
    });
    loop.run();
    CHECK(turns < 15);
}

TEST_CASE("a watch may be destroyed inside its own callback, another's, and outside", "[loop]") {
    Loop loop;
    Guard guard;
    Pipe a, b, c;
    std::unique_ptr<Loop::Watch> watch_a, watch_b, watch_c;
    std::vector<std::string> calls;
    // b dies in a's callback or a in b's, whichever is called first: both are readable in one poll.
    watch_a = loop.watch(a.ends[0], true, false, [&](Loop::Ready) {
        calls.push_back("a");
        watch_b.reset();
        watch_a.reset();
        calls.push_back("a is still on its feet");  // the callback keeps what it captured until it returns
    });
    watch_b = loop.watch(b.ends[0], true, false, [&](Loop::Ready) {
        calls.push_back("b");
        watch_a.reset();
        watch_b.reset();
        calls.push_back("b is still on its feet");
    });
    watch_c = loop.watch(c.ends[0], true, false, [&](Loop::Ready) { calls.push_back("c"); });
    watch_c.reset();
    a.say();
    b.say();
    c.say();
    size_t turns = 0;
    loop.set_turn([&] {
        if (++turns > 20 || guard.over()) loop.stop();
        return Time{};
    });
    loop.run();
    REQUIRE(calls.size() == 2);
    CHECK(calls[1] == calls[0] + " is still on its feet");
}

TEST_CASE("a new watch of the same descriptor in the callback of the old one works", "[loop]") {
    Loop loop;
    Guard guard;
    Pipe pipe;
    size_t received = 0;
    std::unique_ptr<Loop::Watch> watch;
    std::function<void(Loop::Ready)> on_ready = [&](Loop::Ready) {
        received += pipe.receive();
        if (received == 5) return loop.stop();
        watch.reset();
        watch = loop.watch(pipe.ends[0], true, false, on_ready);
        pipe.say();
    };
    watch = loop.watch(pipe.ends[0], true, false, on_ready);
    loop.set_turn([&] {
        if (guard.over()) loop.stop();
        return guard.end;
    });
    pipe.say();
    loop.run();
    CHECK(received == 5);
}

TEST_CASE("want() chooses what is watched", "[loop]") {
    Loop loop;
    Guard guard;
    Pipe pipe;
    size_t readable = 0, writable = 0, turns = 0;
    auto watch = loop.watch(pipe.ends[0], false, false, [&](Loop::Ready r) {
        readable += r.readable;
        writable += r.writable;
    });
    pipe.say();
    loop.set_turn([&] {
        ++turns;
        if (turns == 10) {
            CHECK(readable + writable == 0);
            watch->want(false, true);
        }
        if (turns == 20) {
            CHECK(writable > 0);
            CHECK(readable == 0);
            watch->want(true, false);
        }
        if (turns == 30 || guard.over()) loop.stop();
        return Time{};
    });
    loop.run();
    CHECK(readable > 0);
}

TEST_CASE("the other end's hanging up is received", "[loop]") {
    Loop loop;
    Guard guard;
    Pipe pipe;
    bool ended = false;
    auto watch = loop.watch(pipe.ends[0], true, false, [&](Loop::Ready) {
        ended = pipe.receive() == 0;
        loop.stop();
    });
    loop.set_turn([&] {
        if (guard.over()) loop.stop();
        return guard.end;
    });
    pipe.hang_up();
    loop.run();
    CHECK(ended);
}

TEST_CASE("a UDP socket is received also after ICMP has left an error on it", "[loop]") {
    Loop loop;
    Guard guard;
    const auto bound = [](sockaddr_in& address) {
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        return fd;
    };
    const auto send = [](int fd, const sockaddr_in& to) {
        REQUIRE(sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 1);
    };
    sockaddr_in here, nobody;
    const int fd = bound(here);
    const int on = 1;
    REQUIRE(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
    close(bound(nobody));  // a port where nobody listens any more
    size_t errors = 0, received = 0;
    auto watch = loop.watch(fd, true, false, [&](Loop::Ready ready) {
        CHECK(ready.readable);
        char byte, control[512];
        iovec part{&byte, 1};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        if (recvmsg(fd, &message, MSG_ERRQUEUE) >= 0) ++errors;
        while (recv(fd, &byte, 1, 0) == 1) ++received;
        if (errors == 3 && received == 3) loop.stop();
        if (errors != received)
            send(fd, here);  // it comes while the loop sleeps
        else if (errors < 3)
            send(fd, nobody);
    });
    loop.set_turn([&] {
        if (guard.over()) loop.stop();
        return guard.end;
    });
    send(fd, nobody);
    loop.run();
    CHECK(errors == 3);
    CHECK(received == 3);
    watch.reset();
    close(fd);
}

TEST_CASE("a signal is handled in the loop, and the loop's end leaves nothing open", "[loop]") {
    Guard guard;
    int seen = 0;
    {
        Loop loop;
        Pipe pipe;
        loop.on_signal(SIGUSR1, [&](int number) {
            seen = number;
            loop.stop();
        });
        loop.set_turn([&] {
            if (guard.over()) loop.stop();
            return guard.end;
        });
        kill(getpid(), SIGUSR1);
        loop.run();
        CHECK(seen == SIGUSR1);
        // A descriptor's number is free again for a later loop.
        auto watch = loop.watch(pipe.ends[0], true, false, [](Loop::Ready) {});
    }
    const int before = dup(0);
    close(before);
    for (int i = 0; i < 50; ++i) Loop{};
    const int after = dup(0);
    close(after);
    CHECK(after == before);
}

TEST_CASE("another thread's wake-ups all arrive while the loop sleeps and works in turn", "[loop]") {
    Loop loop;
    Guard guard;
    loop::Wakeup wakeup;
    std::atomic<uint64_t> posted{0}, taken{0};
    auto watch = loop.watch(wakeup.fd(), true, false, [&](Loop::Ready) { wakeup.drain(); });
    loop.set_turn([&]() -> Time {
        wakeup.awake();
        taken.store(posted.load());
        if (taken.load() == 2000 || guard.over()) {
            loop.stop();
            return never;
        }
        wakeup.announce_sleep();
        return posted.load() == taken.load() ? guard.end : Time{};
    });
    std::thread other([&] {
        for (uint64_t n = 1; n <= 2000; ++n) {
            posted.store(n);
            wakeup.notify();
            while (taken.load() < n && !guard.over()) std::this_thread::yield();
        }
    });
    loop.run();
    other.join();
    CHECK(taken.load() == 2000);
}
