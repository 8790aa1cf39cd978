// A member's step, driven by hand: what it says about work decides whether the control loop sleeps.
#include "node/member.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "clusters.hpp"
#include "support/faults.hpp"
#include "transport/quic_port.hpp"
#include "writers/state_writer.hpp"

using namespace nexar;
using namespace nexar::node;
using namespace nexar::test;
using namespace nexar::node::test;
using namespace std::chrono_literals;
using loop::Loop;

namespace {

struct Start {
    const writers::StateDir& state;
    const config::Config& config;
    Identity& identity;
    writers::StateWriter& writer;
    Loop& loop;
    loop::Wakeup& wakeup;
    Log& log;
    std::string roster{};  // beside the file's
    std::shared_ptr<Starts> starts = std::make_shared<Starts>(Starts::read(state).value());

    Result<std::unique_ptr<Member>> alone() {
        const Incarnation incarnation = starts->next();
        REQUIRE(state.apply(starts->files()).result);
        return Member::start({config, identity.node, incarnation, writer, loop, wakeup, log}, Loop::now());
    }
    Result<void> enter(Member& member) {
        return member.enter_cluster(
            {identity, [starts = starts](uint16_t port) { return starts->reset_secret(port); },
             text_of(state, roster_file) + roster},
            Loop::now());
    }
    Result<std::unique_ptr<Member>> in_cluster() {
        NEXAR_TRY(auto member, alone());
        NEXAR_TRY_VOID(enter(*member));
        return member;
    }
};

struct Alone {
    Folder folder;
    config::Config config;
    std::optional<writers::StateDir> state;
    std::optional<Identity> identity;
    Loop loop;
    loop::Wakeup wakeup;
    std::function<void(const std::string&)> on_line = [](const std::string&) {};
    Log log{[this](Level, const std::string& line) { on_line(line); }};
    std::optional<writers::StateWriter> writer;
    std::unique_ptr<Member> member;

    explicit Alone(uint64_t workers = 1) {
        config.socket = folder.file("nexard.sock");
        config.state_dir = folder.file("state");
        config.advertise = "127.0.0.1";
        config.workers = workers;
        state.emplace(open_state(config.state_dir));
        auto made = init_cluster(*state, "one", std::time(nullptr));
        REQUIRE(made);
        identity = std::move(*made);
        writer.emplace(*state, wakeup);
        // Two ports, one after the other: a few tries find them.
        for (int port = 20000 + ::getpid() % 10000, tries = 0; !member && tries < 50; ++tries, port += 2) {
            config.listen = "127.0.0.1:" + std::to_string(port);
            auto started = Start{*state, config, *identity, *writer, loop, wakeup, log}.in_cluster();
            if (started) member = std::move(*started);
        }
        REQUIRE(member);
    }

    // A datagram that nobody asked for, there when this returns.
    void send_datagram() const {
        const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        const quic::SocketAddress to(member->plane().local());
        REQUIRE(::sendto(fd, "x", 1, 0, &to.base, to.size) == 1);
        ::close(fd);
        pollfd there{member->plane().fd(), POLLIN, 0};
        REQUIRE(::poll(&there, 1, 10000) == 1);
    }

    // An application that connects and says nothing.
    int connect_silently() {
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, config.socket.c_str(), sizeof address.sun_path - 1);
        REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        const Time end = Loop::now() + 10s;
        loop.set_turn([&] {
            if (member->server().sessions() == 1 || Loop::now() > end) loop.stop();
            return end;
        });
        loop.run();
        REQUIRE(member->server().sessions() == 1);
        return fd;
    }
};

}  // namespace

TEST_CASE("what arrives while a member's step runs is read by the next one, and is work", "[node]") {
    Alone alone;
    Member& member = *alone.member;
    const int client = alone.connect_silently();
    Time now = Loop::now();
    for (int i = 0; i < 100 && member.step(now); ++i) {
    }
    REQUIRE_FALSE(member.step(now + 1s));

    // The handshake's deadline is looked at between receiving and sending, and its line is the moment.
    size_t closed = 0;
    alone.on_line = [&](const std::string& line) {
        if (!line.starts_with("session_closed")) return;
        ++closed;
        alone.send_datagram();
    };
    member.step(now + 11s);

    CHECK(closed == 1);
    CHECK(member.plane().socket_stats().datagrams_received == 0);  // its descriptor wakes the loop
    CHECK(member.step(now + 11s));
    CHECK(member.plane().socket_stats().datagrams_received == 1);
    ::close(client);
}

TEST_CASE("a member in no cluster takes sessions, and keeps them over a failed and a good way into a cluster",
          "[node][U20]") {
    Alone alone;
    const std::string taken = alone.config.listen;
    Member& other = *alone.member;
    Alone lonely;  // its first member has shown which ports are free
    const std::string free = lonely.config.listen;
    lonely.member.reset();
    Start start{*lonely.state, lonely.config, *lonely.identity, *lonely.writer,
                lonely.loop,   lonely.wakeup, lonely.log};
    lonely.member = std::move(start.alone().value());
    Member& member = *lonely.member;
    const int client = lonely.connect_silently();
    REQUIRE_FALSE(member.in_cluster());
    REQUIRE(member.self() == lonely.identity->node);
    member.step(Loop::now());

    lonely.config.listen = taken;
    REQUIRE_FALSE(start.enter(member));
    REQUIRE_FALSE(member.in_cluster());
    REQUIRE(member.shard_count() == 0);
    member.step(Loop::now());
    REQUIRE(member.server().sessions() == 1);

    lonely.config.listen = free;
    REQUIRE(start.enter(member));
    REQUIRE(member.in_cluster());
    REQUIRE(member.shard_count() == 1);
    REQUIRE(member.tokens() != nullptr);
    member.step(Loop::now());
    REQUIRE(member.server().sessions() == 1);
    REQUIRE(other.in_cluster());
    ::close(client);
}

// Can only fail where there are more than two cores.
TEST_CASE("a daemon that may use one core has one worker", "[node]") {
    const pid_t child = ::fork();  // the number of cores is found out once per process
    if (child == 0) {
        ::alarm(30);
        cpu_set_t allowed, one;
        CPU_ZERO(&one);
        if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) ::_exit(0);  // too many CPUs for the set
        for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
        if (::sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(3);
        Alone alone(0);
        ::_exit(alone.member->worker_count() == 1 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

namespace {

// A second member of the same cluster, which can be started again and again.
struct Beside {
    Folder folder;
    config::Config config;
    writers::StateDir state = open_state(folder.file("state"));
    std::optional<Identity> identity;
    Loop loop;
    loop::Wakeup wakeup;
    size_t goodbyes = 0;  // that it has received
    Log log{[this](Level, const std::string& line) {
        goodbyes += line.starts_with("peer_down") && contains(line, "sent goodbye");
    }};
    writers::StateWriter writer{state, wakeup};
    std::unique_ptr<Member> member;

    explicit Beside(const Alone& issuer) {
        config.socket = folder.file("nexard.sock");
        config.advertise = "127.0.0.1";
        config.workers = 1;
        const Secret key = admission::make_key().value();
        const auto reply = reply_of(*issuer.identity, key, std::time(nullptr));
        identity =
            join_cluster(state, key, reply, issuer.identity->root_key_hash, std::time(nullptr)).value();
    }
    void start(const Alone& issuer) {
        member.reset();
        for (int port = 30000 + ::getpid() % 10000, tries = 0; !member && tries < 50; ++tries, port += 2) {
            config.listen = "127.0.0.1:" + std::to_string(port);
            auto started =
                Start{state, config, *identity, writer, loop, wakeup, log, issuer.config.listen + "\n"}
                    .in_cluster();
            if (started) member = std::move(*started);
        }
        REQUIRE(member);
    }
};

// Steps both until the first has a peer in this incarnation of the second; returns how often the steps of the
// first waited for its disk.
size_t syncs_until_connected(Alone& first, Beside& second) {
    size_t syncs = 0;
    const Time end = Loop::now() + 20s;
    for (bool connected = false; !connected;) {
        REQUIRE(Loop::now() < end);
        {
            const Disk disk;
            first.writer->step();
            first.member->step(Loop::now());
            syncs += faults().fsyncs;
        }
        second.member->step(Loop::now());
        for (const auto& [index, peer] : first.member->peers())
            connected = connected || (peer.up && peer.info.incarnation == second.member->incarnation());
    }
    return syncs;
}

// Steps the first until its roster has this text.
void wait_for_roster(Alone& first, const std::string& text) {
    const Time end = Loop::now() + 20s;
    while (!contains(first.folder.get("state/roster"), text)) {
        REQUIRE(Loop::now() < end);
        first.writer->step();
        first.member->step(Loop::now());
    }
}

}  // namespace

TEST_CASE("a peer that comes again at its old address costs no write", "[node][H11]") {
    Alone first;
    Beside second(first);
    second.start(first);
    syncs_until_connected(first, second);
    wait_for_roster(first, second.config.listen);
    const std::string roster = first.folder.get("state/roster");
    const auto written = std::filesystem::last_write_time(first.folder.file("state/roster"));
    for (int start = 0; start < 3; ++start) {
        second.start(first);
        syncs_until_connected(first, second);
    }
    first.writer.reset();  // when all is written
    CHECK(first.folder.get("state/roster") == roster);
    CHECK(std::filesystem::last_write_time(first.folder.file("state/roster")) == written);
    first.member.reset();
}

TEST_CASE("the control loop does not wait for the disk when a peer comes, be it one that hangs [K9]",
          "[node][H11]") {
    Alone first;
    Beside second(first);
    second.start(first);
    {
        const HungDisk hung;
        CHECK(syncs_until_connected(first, second) == 0);
        CHECK_FALSE(contains(first.folder.get("state/roster"), second.config.listen));
    }
    wait_for_roster(first, second.config.listen);
}

TEST_CASE("a roster that cannot be saved is an event, and the next change tries again [K9]", "[node][H11]") {
    Alone first;
    size_t events = 0;
    first.on_line = [&](const std::string& line) { events += line.starts_with("roster_not_saved"); };
    const std::string in_the_way = first.folder.file("state/roster");
    std::filesystem::create_directory(in_the_way);
    Beside second(first);
    second.start(first);
    const Time end = Loop::now() + 20s;
    syncs_until_connected(first, second);
    while (events == 0) {
        REQUIRE(Loop::now() < end);
        first.writer->step();
        first.member->step(Loop::now());
    }
    std::filesystem::remove(in_the_way);
    second.start(first);
    syncs_until_connected(first, second);
    wait_for_roster(first, second.config.listen);
    CHECK(events == 1);
}

TEST_CASE("a member that stops says goodbye to all of its peers, however many there are", "[node]") {
    constexpr size_t peers = 10;  // more than two turns of the port send to
    static_assert(peers > 2 * transport::QuicPort::batches_per_turn);
    Alone first;
    std::vector<std::unique_ptr<Beside>> others;
    for (size_t i = 0; i < peers; ++i) {
        others.push_back(std::make_unique<Beside>(first));
        others.back()->start(first);
        syncs_until_connected(first, *others.back());
    }
    const NodeId gone = first.identity->node;
    first.member->say_goodbye(Loop::now(), "stopping");
    first.member.reset();
    const Time end = Loop::now() + 20s;
    const auto knows = [&](const auto& other) {
        return std::ranges::none_of(other->member->peers(),
                                    [&](const auto& peer) { return peer.second.info.record.node == gone; });
    };
    while (!std::ranges::all_of(others, knows)) {
        REQUIRE(Loop::now() < end);
        for (auto& other : others) other->member->step(Loop::now());
    }
    for (const auto& other : others) CHECK(other->goodbyes == 1);
}
