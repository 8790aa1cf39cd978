// The TCP carrier over real sockets on loopback: attach, bytes, and what the kernel refuses.
#include "transport/tcp_carrier.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <map>

#include "support/processor_time.hpp"
#include "tcp_side.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using connections::ConnectionId;
using test::free_port;
using test::peer;
using test::processor_time;
using test::Side;
using test::Unidentified;
using transport::TcpCarrier;

namespace {

// The next change of what epoll watches at a descriptor that is watched already finds no memory.
bool refuse_next_change = false;
// The same of the next descriptor that is to be watched.
bool refuse_next_watch = false;

struct Two {
    uint16_t ports[2] = {free_port(), free_port()};
    Side a{"a", ports[0]}, b{"b", ports[1]};

    void introduce_at_a(uint8_t key = 7, Time now = loop::Loop::now()) {
        a.carrier->set_peer(now, peer(b.leaf.id, {1, ports[1]}, key));
    }
    void introduce_at_b(uint8_t key = 7) {
        b.carrier->set_peer(loop::Loop::now(), peer(a.leaf.id, {1, ports[0]}, key));
    }
    void dial() { REQUIRE(a.carrier->dial(loop::Loop::now(), b.address, b.leaf.id)); }
    template <class Done>
    bool run(Done done) {
        return until(done, [this] {
            a.turn();
            b.turn();
        });
    }
    static bool until(auto done, auto turn) {
        for (const Time end = loop::Loop::now() + 20s; loop::Loop::now() < end;) {
            turn();
            if (done()) return true;
        }
        return false;
    }
};

// The least of many, of what introducing an unrelated peer takes.
Duration introducing(TcpCarrier& carrier) {
    Duration least = 1h;
    for (unsigned i = 0; i < 200; ++i) {
        NodeId node;
        node.bytes.fill(static_cast<uint8_t>(i));
        const Duration begin = processor_time();
        carrier.set_peer(loop::Loop::now(), peer(node, {1, 1}));
        least = std::min(least, processor_time() - begin);
    }
    return least;
}

// While it exists the process gets so many further descriptors.
struct FewDescriptors {
    explicit FewDescriptors(size_t count) {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
        std::vector<int> got(count + 1);
        for (int& fd : got) REQUIRE((fd = ::dup(STDERR_FILENO)) >= 0);  // the lowest that are free, in order
        const rlimit few{static_cast<rlim_t>(got.back()), before.rlim_max};
        for (const int fd : got) ::close(fd);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
    FewDescriptors(const FewDescriptors&) = delete;
    rlimit before{};
};

void reset(std::vector<Unidentified>& connections) {
    const linger at_once{1, 0};
    for (const Unidentified& one : connections)
        REQUIRE(::setsockopt(one.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    connections.clear();
}

bool keeps_awake(const TcpCarrier& carrier) {
    pollfd sockets{carrier.fd(), POLLIN, 0};
    return ::poll(&sockets, 1, 0) != 0 || carrier.wake_at() <= loop::Loop::now();
}

}  // namespace

extern "C" int epoll_ctl(int epoll, int op, int fd, struct epoll_event* event) noexcept {
    if ((op == EPOLL_CTL_MOD && std::exchange(refuse_next_change, false)) ||
        (op == EPOLL_CTL_ADD && std::exchange(refuse_next_watch, false))) {
        errno = ENOMEM;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, op, fd, event));
}

TEST_CASE("two nodes attach, and one that is introduced later than it is dialled answers then",
          "[transport][B2][B3]") {
    Two two;
    two.introduce_at_a();
    two.dial();
    for (int i = 0; i < 200; ++i) two.run([] { return true; });
    CHECK(two.a.open.empty());
    CHECK(two.a.closed.empty());
    two.introduce_at_b();
    CHECK(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
}

// Of control connections that are made at once the ends may keep different ones for a moment.
TEST_CASE("a dial with a key that the acceptor never comes to know ends soon after there is a newer one",
          "[transport][B3]") {
    Two two;
    two.introduce_at_a(7);
    two.introduce_at_b(8);
    two.dial();
    for (int i = 0; i < 200; ++i) two.run([] { return true; });  // its hello waits there
    const Time begin = loop::Loop::now() + 1s;
    two.a.turn(begin);
    two.introduce_at_a(7, begin);  // not a newer one
    two.a.turn(begin + 1s);
    CHECK(two.a.closed.empty());
    two.introduce_at_a(8, begin + 1s);
    CHECK(two.a.carrier->wake_at() <= begin + 1s + TcpCarrier::overtaken_patience);
    two.a.turn(begin + 1s + TcpCarrier::overtaken_patience - 1ms);
    CHECK(two.a.closed.empty());
    two.a.turn(begin + 1s + TcpCarrier::overtaken_patience);
    CHECK(two.a.closed == std::vector<std::string>{"tcp not answered"});
    two.dial();
    CHECK(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
}

TEST_CASE("a dial with the key before the latest is answered when the acceptor comes to know it",
          "[transport][B3]") {
    Two two;
    two.introduce_at_a(7);
    two.dial();
    for (int i = 0; i < 200; ++i) two.run([] { return true; });
    two.introduce_at_a(8);
    two.introduce_at_b(7);
    REQUIRE(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
    two.a.turn(loop::Loop::now() + 1h);
    CHECK(two.a.open.size() == 1);
}

TEST_CASE("a dial that has not named a key yet has its whole time, and names the latest", "[transport][B3]") {
    Two two;
    two.introduce_at_a(7);
    two.introduce_at_b(8);
    const Time begin = loop::Loop::now();
    two.dial();
    REQUIRE(Two::until([&] { return two.a.carrier->wake_at() > Time{}; }, [&] { two.a.turn(begin); }));
    two.introduce_at_a(8, begin);
    two.a.turn(begin + TcpCarrier::dial_patience - 1ms);
    CHECK(two.a.closed.empty());
    CHECK(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
}

TEST_CASE("a connection whose socket cannot be watched as it must be ends, and says why", "[transport][B4]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    refuse_next_change = true;  // the dialled socket's
    two.dial();
    REQUIRE_FALSE(refuse_next_change);
    REQUIRE(two.run([&] { return !two.a.closed.empty(); }));
    CHECK(two.a.closed[0] == "the kernel has no room to watch its socket");
    two.dial();
    CHECK(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
}

TEST_CASE("what introducing a peer costs does not grow with the connections that there are",
          "[transport][P10]") {
    Two two;
    two.introduce_at_a();
    const Duration alone = introducing(*two.a.carrier);
    for (int i = 0; i < 400; ++i) two.dial();
    const Duration beside = introducing(*two.a.carrier);
    INFO("alone " << alone.count() << " ns, beside 400 connections " << beside.count() << " ns");
    CHECK(beside < 2 * alone + 1us);
}

// The closing end throws away what comes, and goes on with what it has to send.
TEST_CASE("a close reaches a peer that sends without end", "[transport][B10]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    two.dial();
    REQUIRE(two.run([&] { return !two.a.open.empty() && !two.b.open.empty(); }));
    const std::vector<std::byte> chunk(256 * 1024);
    const Bytes part(chunk);
    const auto send = [&](Side& side) {
        for (const auto& [id, connection] : side.open)
            if (connection->room(Class::bulk) >= chunk.size())
                connection->write(Class::bulk, std::span(&part, 1));
        side.carrier->flush(loop::Loop::now(), side);
    };
    two.b.open.begin()->second->set_receiver(nullptr);
    connections::CarriedConnection& closing = *two.a.open.begin()->second;
    while (closing.room(Class::bulk) >= chunk.size()) send(two.a);  // until nothing is taken any more
    closing.close(19, "kept another");
    struct Bin final : connections::Receiver {
        void on_bytes(Class, Bytes) override {}
    } bin;
    two.b.open.begin()->second->set_receiver(&bin);
    REQUIRE(two.run([&] {
        send(two.b);
        return !two.b.closed.empty();
    }));
    CHECK(two.b.closed.front() == "closed by the peer: kept another");
}

// They are of many sites, since one has few places [B5], and all have their time's end at once.
TEST_CASE("unidentified connections that end in numbers displace no member's close", "[transport][B5][B10]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    two.dial();
    REQUIRE(two.run([&] { return !two.a.open.empty() && !two.b.open.empty(); }));
    const Time begin = loop::Loop::now();
    std::vector<Unidentified> others;
    for (uint8_t site = 1; site <= 6; ++site)
        for (size_t i = 0; i < tcp::HalfOpen::per_site_max; ++i) others.emplace_back(site, two.ports[0]);
    REQUIRE(others.size() > TcpCarrier::lingering_max);
    REQUIRE(
        Two::until([&] { return two.a.carrier->half_open() == others.size(); }, [&] { two.a.turn(begin); }));
    for (int i = 0; i < 16; ++i) two.a.turn(begin);  // their bytes have come, and some are read in each

    const std::vector<std::byte> chunk(256 * 1024);
    const Bytes part(chunk);
    two.b.open.begin()->second->set_receiver(nullptr);
    connections::CarriedConnection& closing = *two.a.open.begin()->second;
    while (closing.room(Class::bulk) >= chunk.size()) {  // until nothing is taken any more: its close waits
        closing.write(Class::bulk, std::span(&part, 1));
        two.a.carrier->flush(begin, two.a);
    }
    closing.close(19, "kept another");
    two.b.open.begin()->second->write(Class::bulk, std::span(&part, 1));  // a reset would follow a drop
    two.b.carrier->flush(begin, two.b);
    two.a.turn(begin + tcp::HalfOpen::patience - 100ms);
    REQUIRE(two.a.carrier->half_open() == others.size());
    two.a.turn(begin + tcp::HalfOpen::patience);
    REQUIRE(two.a.carrier->half_open() == 0);

    struct Bin final : connections::Receiver {
        void on_bytes(Class, Bytes) override {}
    } bin;
    two.b.open.begin()->second->set_receiver(&bin);
    REQUIRE(Two::until([&] { return !two.b.closed.empty(); },
                       [&] {
                           two.a.turn(begin + tcp::HalfOpen::patience);
                           two.b.turn();
                       }));
    CHECK(two.b.closed.front() == "closed by the peer: kept another");
}

TEST_CASE("a dial that nobody answers says no more than that", "[transport]") {
    Two two;
    two.introduce_at_a();
    two.dial();  // nobody turns at the other end: the kernel accepts, and no byte comes
    const Time begin = loop::Loop::now();
    REQUIRE(Two::until([&] { return !two.a.closed.empty(); }, [&] { two.a.turn(begin + 1h); }));
    CHECK(two.a.closed.front() == "tcp not answered");
}

TEST_CASE("without descriptors a newcomer waits, which keeps nobody awake and is reported once",
          "[transport][B5]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    two.dial();
    {
        const FewDescriptors none(0);
        std::optional<bool> news;
        REQUIRE(two.run([&] { return (news = two.b.carrier->poll_accept_pause()).has_value(); }));
        CHECK(*news);
        CHECK_FALSE(two.b.carrier->receive(loop::Loop::now(), two.b));
        CHECK_FALSE(keeps_awake(*two.b.carrier));
        const auto dialled = two.a.carrier->dial(loop::Loop::now(), two.b.address, two.b.leaf.id);
        REQUIRE_FALSE(dialled);
        CHECK(dialled.error().code == Errc::io);
        // It looks again without success, and then there is no memory for the next look.
        const Time before = two.b.carrier->wake_at();
        REQUIRE(two.run([&] { return two.b.carrier->wake_at() > before; }));
        refuse_next_watch = true;
        REQUIRE(two.run([&] { return !refuse_next_watch; }));
        CHECK_FALSE(keeps_awake(*two.b.carrier));
        CHECK_FALSE(two.b.carrier->poll_accept_pause());
        CHECK(two.b.open.empty());
    }
    REQUIRE(two.run([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }));
    CHECK(two.b.carrier->poll_accept_pause() == false);
}

// Time stands still: no pause ends by itself.
TEST_CASE("reset connections in the kernel's queue do not wait for a pause of accepting", "[transport][B5]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    const Time begin = loop::Loop::now();
    std::vector<Unidentified> others;
    for (int i = 0; i < 100; ++i) others.emplace_back(uint8_t{1}, two.ports[1]);
    reset(others);
    two.dial();  // behind them
    const FewDescriptors few(4);
    std::vector<bool> news;
    const auto turn = [&] {
        two.a.turn();
        two.b.turn(begin);
        if (const auto one = two.b.carrier->poll_accept_pause()) news.push_back(*one);
    };
    REQUIRE(Two::until([&] { return two.a.open.size() == 1 && two.b.open.size() == 1; }, turn));
    CHECK(news == std::vector{true, false});
    CHECK(Two::until([&] { return !keeps_awake(*two.b.carrier); }, turn));
}

TEST_CASE("newcomers are not reported as accepted again while others wait in the kernel's queue",
          "[transport][B5]") {
    Two two;
    const Time begin = loop::Loop::now();
    std::vector<Unidentified> others;
    for (int i = 0; i < 10; ++i) others.emplace_back(uint8_t{1}, two.ports[1]);
    std::optional<FewDescriptors> few(4);
    Side& b = two.b;
    REQUIRE(Two::until([&] { return b.carrier->poll_accept_pause() == true; }, [&] { b.turn(begin); }));
    CHECK(b.carrier->half_open() == 4);
    REQUIRE(::shutdown(others.front().fd(), SHUT_WR) == 0);  // its place goes to the fifth
    std::optional<bool> news;
    bool was_free = false;
    REQUIRE(Two::until([&] { return was_free && b.carrier->half_open() == 4 && !keeps_awake(*b.carrier); },
                       [&] {
                           b.turn(begin);
                           was_free |= b.carrier->half_open() < 4;
                           if (const auto one = b.carrier->poll_accept_pause()) news = one;
                       }));
    CHECK_FALSE(news);
    few.reset();
    REQUIRE(Two::until([&] { return b.carrier->poll_accept_pause() == false; },
                       [&] { b.turn(begin + TcpCarrier::accept_pause); }));
    CHECK(b.carrier->half_open() == others.size() - 1);
}

TEST_CASE("where descriptors are short, one that has had its turn at attaching makes room",
          "[transport][B5]") {
    Two two;
    two.introduce_at_a();
    two.introduce_at_b();
    Time now = loop::Loop::now();
    const Time begin = now;
    std::vector<Unidentified> others;
    for (int i = 0; i < 4; ++i) others.emplace_back(uint8_t{1}, two.ports[1]);
    std::vector<Unidentified> more;
    for (int i = 0; i < 6; ++i) more.emplace_back(uint8_t{1}, two.ports[1]);
    two.dial();
    const FewDescriptors few(4);
    Side& b = two.b;
    const auto turn = [&] {
        if (const Time at = b.carrier->wake_at(); at < begin + tcp::HalfOpen::patience)
            now = std::max(now, at);
        two.a.turn();
        b.turn(now);
    };
    REQUIRE(Two::until([&] { return b.carrier->half_open() == 4; }, [&] { b.turn(now); }));
    now = begin + tcp::HalfOpen::spared - 1ms;
    for (int i = 0; i < 200; ++i) b.turn(now);
    CHECK(std::ranges::none_of(others, &Unidentified::is_closed));
    REQUIRE(Two::until([&] { return std::ranges::all_of(others, &Unidentified::is_closed); }, turn));
    CHECK(now < begin + tcp::HalfOpen::spared + TcpCarrier::accept_pause);
    REQUIRE(Two::until([&] { return b.open.size() == 1; }, turn));
    CHECK(now < begin + 3 * (tcp::HalfOpen::spared + TcpCarrier::accept_pause));
}

TEST_CASE("that no descriptor is left takes nobody's place while nobody needs one", "[transport][B5]") {
    Two two;
    Side& b = two.b;
    const Time begin = loop::Loop::now(), later = begin + tcp::HalfOpen::spared;
    const Unidentified first(1, two.ports[1]);
    REQUIRE(Two::until([&] { return b.carrier->half_open() == 1; }, [&] { b.turn(begin); }));
    const Unidentified second(1, two.ports[1]);
    const FewDescriptors few(1);
    for (int i = 0; i < 200; ++i) b.turn(later);
    CHECK(b.carrier->half_open() == 2);
    CHECK_FALSE(b.carrier->poll_accept_pause());
    CHECK_FALSE(keeps_awake(*b.carrier));
}

TEST_CASE("room that is made for a newcomer and is none costs one a pause its place", "[transport][B5]") {
    Two two;
    Side& b = two.b;
    const Time begin = loop::Loop::now(), later = begin + tcp::HalfOpen::spared;
    std::vector<Unidentified> others;
    for (int i = 0; i < 4; ++i) others.emplace_back(uint8_t{1}, two.ports[1]);
    REQUIRE(Two::until([&] { return b.carrier->half_open() == 4; }, [&] { b.turn(begin); }));
    others.emplace_back(uint8_t{1}, two.ports[1]);
    const FewDescriptors few(0);
    const rlimit fewer{3, few.before.rlim_max};  // than are open: it is ENFILE's like
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &fewer) == 0);
    for (int i = 0; i < 200; ++i) b.turn(later);
    CHECK(b.carrier->half_open() == 3);
    CHECK_FALSE(keeps_awake(*b.carrier));
    for (int i = 0; i < 200; ++i) b.turn(later + TcpCarrier::accept_pause);
    CHECK(b.carrier->half_open() == 2);
}

TEST_CASE("a dial that ends while it waits for its key frees its place at once", "[transport][B3][B5]") {
    Two two;
    two.introduce_at_a();
    two.dial();
    for (int i = 0; i < 200; ++i) two.run([] { return true; });
    const Time begin = loop::Loop::now();
    REQUIRE(two.b.carrier->half_open() == 1);
    CHECK_FALSE(keeps_awake(*two.b.carrier));
    two.a.carrier->close_all(3, "shutting down");
    REQUIRE(Two::until([&] { return two.b.carrier->half_open() == 0; },
                       [&] {
                           two.a.turn();
                           two.b.turn(begin);
                       }));
    CHECK_FALSE(keeps_awake(*two.b.carrier));
}
