// Clients that pass descriptors whose close() waits for them [S16]: the loop goes on.
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>
#include <vector>

#include "by_hand.hpp"
#include "still_server.hpp"
#include "support/stuck_socket.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;

namespace {

// A handshake by hand is answered: the daemon's loop runs.
bool answers(const ThreadDaemon& daemon) {
    const Fd fd = dial(daemon.path());
    return say(fd, hello()) && receive_type(fd) == NEXAR_MSG_WELCOME;
}

Fd ready(const ThreadDaemon& daemon) {
    const Fd control = memfd(nexar_shm_control_bytes(16));
    Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    REQUIRE(receive_type(fd) == NEXAR_MSG_READY);
    return fd;
}

// The last copy is not this thread's, which would wait: the daemon closes none of them before it is released.
bool pass(ThreadDaemon& daemon, const Fd& connection, StuckSocket& stuck, Bytes packet) {
    const auto held = daemon.hold();
    if (!local::send_packet(connection.get(), packet, std::vector<int>{stuck.fd()})) return false;
    stuck.take();
    return true;
}

void pass_copies(const Fd& connection, int descriptor, size_t count) {
    nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
    iovec part{&doorbell, sizeof doorbell};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * count));
    msghdr header{};
    header.msg_iov = &part, header.msg_iovlen = 1;
    header.msg_control = control.data(), header.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * count);
    const std::vector<int> copies(count, descriptor);
    std::memcpy(CMSG_DATA(c), copies.data(), sizeof(int) * count);
    REQUIRE(::sendmsg(connection.get(), &header, MSG_NOSIGNAL) == sizeof doorbell);
}

size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

template <class T>
Bytes packet(const T& body) {
    return std::as_bytes(std::span<const T>(&body, 1));
}

nexar_msg_region_add one_page() {
    auto out = message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD);
    out.kind = NEXAR_MEMORY_MEMFD;
    out.bytes = 4096;
    return out;
}

// A session that passed what is no memory, and whose close() waits.
struct PassedNoMemory {
    ThreadDaemon daemon{[] {
        DaemonOptions out;
        out.closings_wait = true;
        return out;
    }()};
    StuckSocket stuck;
    Fd session = ready(daemon);
    PassedNoMemory() { REQUIRE(pass(daemon, session, stuck, packet(one_page()))); }
};

bool ends(const Fd& connection) {
    for (int i = 0; i < 8; ++i)  // answers may come first
        if (receive_type(connection) == 0) return true;
    return false;
}

}  // namespace

TEST_CASE("[S16] a descriptor that does not belong to its message is closed elsewhere", "[local][hostile]") {
    ThreadDaemon daemon;
    std::vector<StuckSocket> stuck(3);
    const Fd garbage = dial(daemon.path());
    REQUIRE(pass(daemon, garbage, stuck[0], packet(nexar_msg_head{1, 2})));
    CHECK(ends(garbage));
    const Fd doorbell = ready(daemon);
    REQUIRE(pass(daemon, doorbell, stuck[1], packet(nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL})));
    CHECK(ends(doorbell));
    const Fd empty = dial(daemon.path());
    REQUIRE(pass(daemon, empty, stuck[2], Bytes{}));
    CHECK(ends(empty));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] so is one that is no memory", "[local][hostile]") {
    const PassedNoMemory scene;
    CHECK(answers(scene.daemon));
}

TEST_CASE("[S16] so are those that nobody has read when the connection ends", "[local][hostile]") {
    ThreadDaemon daemon;
    std::vector<StuckSocket> stuck(2);
    const Fd session = dial(daemon.path());
    REQUIRE(say(session, nexar_msg_head{1, 2}));  // ends the session
    for (auto& one : stuck)
        if (!pass(daemon, session, one, packet(nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL}))) break;
    CHECK(ends(session));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] so are those of a connection that is refused", "[local][hostile]") {
    DaemonOptions options;
    options.tenants.total(Resource::sessions) = 10;
    options.tenants.share_percent = 10;
    ThreadDaemon daemon(options);
    Fd only = ready(daemon);
    StuckSocket stuck;
    const Fd refused = dial(daemon.path());
    pass(daemon, refused, stuck, packet(nexar_msg_head{1, 2}));
    CHECK(ends(refused));
    only.reset();
    CHECK(daemon.eventually([&] { return answers(daemon); }));
}

TEST_CASE("[S16] a session whose user has too many that are not closed ends", "[local][hostile]") {
    const PassedNoMemory scene;
    const auto& [daemon, stuck, session] = scene;
    const Fd other(::dup(session.get()));
    bool open = true;
    for (int i = 0; i < 2000 && open; ++i) open = say(session, one_page(), {other.get()});
    CHECK(ends(session));
    CHECK(answers(daemon));
}

TEST_CASE("[S16] while too many are not closed nobody is accepted, and afterwards all who waited are",
          "[local][hostile]") {
    local::ServerConfig config;
    config.unclosed_max = 0;
    config.closings_wait = true;
    StillServer daemon({}, config);
    const auto logged = [&](std::string_view word) {
        return std::ranges::any_of(daemon.lines,
                                   [&](const std::string& line) { return line.contains(word); });
    };
    StuckSocket stuck;
    const Fd client = dial(daemon.path);
    REQUIRE(local::send_packet(client.get(), packet(nexar_msg_head{1, 2}), std::vector<int>{stuck.fd()}));
    stuck.take();
    while (receive_type_now(client) != NEXAR_MSG_REFUSED) REQUIRE(daemon.take(60'000));

    const Fd waits = dial(daemon.path);
    REQUIRE(say(waits, hello()));
    while (!logged("accept_paused")) REQUIRE(daemon.take(60'000));
    CHECK_FALSE(daemon.take(0));  // it is not looked at either
    CHECK(daemon->wake_at() <= StillServer::now + std::chrono::milliseconds(100));
    daemon->on_time(daemon->wake_at());
    CHECK_FALSE(daemon.take(0));

    stuck.let_go();
    do daemon->on_time(daemon->wake_at());
    while (!daemon.take(10));
    while (receive_type_now(waits) != NEXAR_MSG_WELCOME) REQUIRE(daemon.take(60'000));
}

TEST_CASE("[S16] however many sessions pass however many, a user has few that are not closed",
          "[local][hostile]") {
    constexpr size_t sessions = 20, of_one = 253;  // the most that the kernel passes with a message
    local::ServerConfig config;
    config.closings_wait = true;
    StillServer daemon({}, config);
    StuckSocket stuck;  // what comes behind it waits
    const Fd first = dial(daemon.path), any = memfd(4096);
    REQUIRE(local::send_packet(first.get(), packet(nexar_msg_head{1, 2}), std::vector<int>{stuck.fd()}));
    stuck.take();
    while (receive_type_now(first) != NEXAR_MSG_REFUSED) REQUIRE(daemon.take(60'000));
    std::vector<Fd> clients;
    for (size_t i = 0; i < sessions; ++i) {
        clients.push_back(dial(daemon.path));
        while (daemon->sessions() <= i) REQUIRE(daemon.take(60'000));
    }
    for (const Fd& client : clients) pass_copies(client, any.get(), of_one);
    const size_t before = open_descriptors();
    while (daemon->sessions() > 0) {
        REQUIRE(daemon.take(60'000));
        daemon->poll(StillServer::now);
    }
    CHECK(open_descriptors() <= before + 256 + of_one);
    stuck.let_go();
}

TEST_CASE("[S16] a daemon that ends closes elsewhere what was read and not handled", "[local][hostile]") {
    StuckSocket stuck;
    StillServer daemon;
    const Fd client = dial(daemon.path);
    REQUIRE(local::send_packet(client.get(), packet(nexar_msg_head{1, 2}), std::vector<int>{stuck.fd()}));
    stuck.take();
    const auto unread = [&] {
        int bytes = 0;
        return ::ioctl(client.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
    };
    while (unread()) REQUIRE(daemon.take(60'000));
}

TEST_CASE(
    "[S16] a connection is closed in its own user's lane, also where another's thread sees that nothing is "
    "left in it",
    "[local][hostile]") {
    DaemonOptions options;
    options.tenants.total(Resource::sessions) = 10;
    options.tenants.share_percent = 10;
    options.closings_wait = true;
    ThreadDaemon daemon(options);
    StuckSocket stuck;
    const Fd unread = dial(daemon.path());
    REQUIRE(say(unread, hello()));
    REQUIRE(say(unread, nexar_msg_head{1, 2}));  // ends the session; WELCOME and the reason are not read
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    const Fd refused = dial(daemon.path());
    pass(daemon, refused, stuck, packet(nexar_msg_head{1, 2}));
    CHECK(ends(refused));
    REQUIRE(stuck.is_being_closed());

    CHECK(ends(unread));
    CHECK_FALSE(answers(daemon));  // its session counts until it is closed, behind the other
    stuck.let_go();
    CHECK(daemon.eventually([&] { return answers(daemon); }));
}

TEST_CASE("[S16] while nobody can be accepted the loop sleeps", "[local]") {
    StillServer daemon;
    const Fd client = dial(daemon.path);
    REQUIRE(say(client, hello()));
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{3, before.rlim_max};  // poll() wants as many as it is to look at
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const bool first = daemon.take(60'000), second = daemon.take(0);
    daemon->on_time(daemon->wake_at());
    const bool third = daemon.take(60'000), fourth = daemon.take(0);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK((first && !second && third && !fourth));
    CHECK(std::ranges::any_of(daemon.lines, [](const std::string& line) {
        return line.contains("accept_paused") && line.contains("Too many open files");
    }));
    daemon->on_time(daemon->wake_at());
    while (receive_type_now(client) != NEXAR_MSG_WELCOME) REQUIRE(daemon.take(60'000));
}

// The kernel calls each item that waits for a socket when somebody sends there, reads from it, or ends it.
TEST_CASE("[S16] what waits for a client's end of its connection costs the loop nothing",
          "[local][hostile]") {
    constexpr size_t epolls = 50, copies = 400, doorbells = 50;
    StillServer daemon;
    const Fd client = dial(daemon.path), control = memfd(nexar_shm_control_bytes(16));
    REQUIRE(say(client, hello()));
    while (receive_type_now(client) != NEXAR_MSG_WELCOME) REQUIRE(daemon.take(60000));
    REQUIRE(say(client, attach(16), {control.get()}));
    while (receive_type_now(client) != NEXAR_MSG_READY) REQUIRE(daemon.take(60000));
    std::vector<Fd> watchers, ends;
    for (size_t i = 0; i < copies; ++i) ends.emplace_back(::dup(client.get()));
    for (size_t i = 0; i < epolls; ++i) {
        watchers.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
        epoll_event event{};
        event.events = EPOLLIN | EPOLLET;
        for (const Fd& end : ends)
            REQUIRE(::epoll_ctl(watchers.back().get(), EPOLL_CTL_ADD, end.get(), &event) == 0);
    }

    const auto used = [] {
        timespec t{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
    };
    const double before = used();
    for (size_t i = 0; i < doorbells; ++i) {
        REQUIRE(say(client, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL}));
        REQUIRE(daemon.take(60000));
    }
    REQUIRE(say(client, nexar_msg_head{1, 2}));  // is refused, and ends the session
    while (daemon->sessions() > 0) REQUIRE(daemon.take(60000));
    const double spent = used() - before;
    ends.clear();
    watchers.clear();
    INFO(spent << " ms of processor time");
    CHECK(spent < 40);  // 20,000 items: 50 calls in this thread take more than 100 ms
}

TEST_CASE("[S16] a user whose connections cannot be closed cannot connect until they are",
          "[local][hostile]") {
    if (::getuid() != 0) SKIP("needs root: another user connects");
    local::ServerConfig config;
    config.unclosed_of_user_max = 0;
    config.unclosed_max = 400;  // half of what all may have; below what his backlog was
    config.closings_wait = true;
    StillServer daemon({}, config);
    StuckSocket stuck;
    int report[2];
    REQUIRE(::pipe2(report, O_CLOEXEC) == 0);
    const Fd news(report[0]);
    Fd sender(report[1]);
    Child nobody([&] {
        if (::setresuid(65534, 65534, 65534) != 0) return 1;
        {
            const Fd first = session_socket();
            if (!connect_to(first, daemon.path) || !say(first, nexar_msg_head{1, 2})) return 2;
            if (!local::send_packet(first.get(), packet(nexar_msg_head{1, 2}), std::vector<int>{stuck.fd()}))
                return 3;
            static_cast<void>(stuck.take());
            stuck.let_go();  // the other process's copy counts
            if (::write(sender.get(), "s", 1) != 1) return 4;
        }
        const auto connects = [&] { return connect_to(session_socket(), daemon.path); };
        while (connects()) {
        }
        if (errno != EACCES || ::write(sender.get(), "r", 1) != 1) return 5;
        while (!connects()) ::usleep(1000);  // sleep: between two looks
        return 0;
    });
    sender.reset();
    char word = 0;
    REQUIRE(::read(news.get(), &word, 1) == 1);
    static_cast<void>(stuck.take());  // the last copy is in flight
    pollfd refused{news.get(), POLLIN, 0};
    while (::poll(&refused, 1, 0) == 0) daemon.take(10);
    REQUIRE(::read(news.get(), &word, 1) == 1);
    CHECK(word == 'r');
    const Fd other = dial(daemon.path);  // others are not concerned
    REQUIRE(say(other, hello()));
    while (receive_type_now(other) != NEXAR_MSG_WELCOME) REQUIRE(daemon.take(60'000));

    stuck.let_go();
    const auto let_in = [&] {
        return std::ranges::any_of(daemon.lines,
                                   [](const std::string& line) { return line.contains("user_let_in"); });
    };
    Time now = StillServer::now;
    for (int i = 0; i < 6000 && !let_in(); ++i) {
        daemon->on_time(now += std::chrono::seconds(1));
        daemon.take(10, now);
    }
    CHECK(nobody.wait(60) == 0);
}
