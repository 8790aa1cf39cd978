// Memory that the daemon makes for its clients [S19]: what it lends, takes back, and refuses, and that it
// uses no memory of theirs unless its configuration says so.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <numeric>
#include <vector>

#include "by_hand.hpp"
#include "integration/clients/raw_session.hpp"
#include "local/unreturned.hpp"
#include "nexar.h"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using hostile::RawSession;
using local::Fd;

namespace {

constexpr uint64_t mib = 1 << 20;

// The end of a REGION_ADD of lent memory, as region `number` in slot 2.
struct Added {
    int32_t status;
    std::string text;
};
Added add_lent(RawSession& session, uint32_t number, uint64_t bytes) {
    auto add = message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD);
    add.slot = 2, add.generation = number, add.region = number, add.bytes = bytes;
    add.kind = NEXAR_MEMORY_LENT;
    std::atomic_ref(session.slot(2).state).store(NEXAR_SLOT_WORD(add.generation, NEXAR_SLOT_SUBMITTED));
    REQUIRE(session.send(&add, sizeof add));
    REQUIRE(session.await(2, add.generation));
    const int32_t status = session.slot(2).result.status;
    return {status, status == 0 ? "" : session.detail(2).text};
}

// Lent memory with the pages that are pinned.
Fd touched(RawSession& session, uint64_t bytes) {
    Fd memfd(session.borrow(bytes));
    for (uint64_t at = 0; memfd && at < bytes; at += 2 * mib)
        REQUIRE(::pwrite(memfd.get(), "", 1, static_cast<off_t>(at)) == 1);
    return memfd;
}

// What is left of it: one end of a socketpair, in which it waits to be read.
Fd in_flight(const Fd& memfd) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const Fd to(ends[0]);
    Fd from(ends[1]);
    REQUIRE(local::send_packet(to.get(), std::as_bytes(std::span("x")), std::vector<int>{memfd.get()}));
    return from;
}

DaemonOptions as_configured() {
    DaemonOptions out;
    out.memfds_in_place = false;
    return out;
}

}  // namespace

TEST_CASE("[S19] what is lent can be registered once, by its length", "[local][hostile]") {
    ThreadDaemon daemon(as_configured());
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    CHECK(add_lent(session, 2, mib).text == "no memory of 1048576 bytes was lent");
    const Fd memfd = touched(session, mib);
    REQUIRE(memfd);
    CHECK(add_lent(session, 3, 2 * mib).status == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(add_lent(session, 4, mib).status == NEXAR_OK);
    CHECK(add_lent(session, 5, mib).status == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(::fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
}

TEST_CASE("[S19] a wish takes back what was lent before, and its charge", "[local][hostile]") {
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::region_bytes) = 400 * mib;
    options.limits.region_bytes_max = 400 * mib;
    ThreadDaemon daemon(options);
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    const uint64_t share = options.tenants.share(Resource::region_bytes);  // 120 MiB
    const uint64_t most = share - share / 4;                               // twice that is more than a share
    for (int i = 0; i < 3; ++i) CHECK(daemon.eventually([&] { return touched(session, most).get() >= 0; }));
    CHECK(session.borrow(share + 1) < 0);
    CHECK(add_lent(session, 2, share + 1).text.contains("user_share_percent"));
    CHECK(touched(session, mib));
    CHECK(add_lent(session, 3, mib).status == NEXAR_OK);
}

TEST_CASE("[S19] a wish that is none is answered with the registration, and ends nothing",
          "[local][hostile]") {
    ThreadDaemon daemon(as_configured());
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    CHECK(session.borrow(0) < 0);
    CHECK(add_lent(session, 2, 4096).text.contains("not 0"));
    auto wish = message<nexar_msg_lend>(NEXAR_MSG_LEND);
    wish.bytes = mib;
    const Fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const int fd = file.get();
    REQUIRE(session.send(&wish, sizeof wish, std::span(&fd, 1)));
    CHECK(add_lent(session, 3, mib).text.contains("socketpair"));
    CHECK(touched(session, mib));
    CHECK(add_lent(session, 4, mib).status == NEXAR_OK);
}

TEST_CASE("[S19] lent memory counts as long as a client has it, also kept from being sealed",
          "[local][hostile]") {
    enum class How { mapped, in_flight, sealed, punched, path };
    const How how = GENERATE(How::mapped, How::in_flight, How::sealed, How::punched, How::path);
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::regions) = 100;  // 30 of one user
    ThreadDaemon daemon(options);
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    const size_t free = 30 - 1;  // its region

    std::vector<Fd> hoard;
    const auto keep_one = [&] {
        Fd memfd = touched(session, 4096);
        if (!memfd) return false;
        if (how == How::sealed) REQUIRE(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0);
        if (how == How::punched)
            REQUIRE(::fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
        if (how == How::path)  // open for nothing, until it is opened again
            memfd.reset(::open(("/proc/self/fd/" + std::to_string(memfd.get())).c_str(), O_PATH | O_CLOEXEC));
        hoard.push_back(how == How::in_flight ? in_flight(memfd) : std::move(memfd));
        return true;
    };
    while (hoard.size() < free) REQUIRE(keep_one());
    CHECK_FALSE(keep_one());
    CHECK(add_lent(session, 2, 4096).text.contains("regions"));

    hoard.pop_back();
    CHECK(daemon.eventually(keep_one));
    CHECK(hoard.size() == free);
    hoard.clear();
    CHECK(daemon.eventually([&] {
        const bool kept = keep_one();
        return kept && hoard.size() == free;
    }));
}

TEST_CASE("[S19] only the daemon may take pages out of what it lends", "[local][hostile]") {
    ThreadDaemon daemon(as_configured());
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    const Fd memfd(session.borrow(4096));
    REQUIRE(memfd);
    struct stat status{};
    REQUIRE(::fstat(memfd.get(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0);
}

TEST_CASE("[S19] with what ends, it is asked whether what ended before is returned", "[local]") {
    local::Unreturned list;
    bool returned = false;
    list.add([&] { return returned; });
    CHECK_FALSE(list.empty());
    returned = true;
    list.add([] { return true; });
    CHECK(list.empty());
}

TEST_CASE("[S19] a session counts until what came to its connection is read, or closed", "[local][hostile]") {
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::sessions) = 10;  // 3 of one user
    ThreadDaemon daemon(options);
    std::vector<Fd> unread;
    for (int i = 0; i < 3; ++i) {
        unread.push_back(dial(daemon.path()));
        REQUIRE(say(unread.back(), hello()));                              // WELCOME has two descriptors
        REQUIRE(say(unread.back(), nexar_msg_head{1, NEXAR_MSG_ATTACH}));  // ends the session
    }
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    const auto welcome = [&] {
        const Fd fd = dial(daemon.path());
        return say(fd, hello()) && receive_type(fd) == NEXAR_MSG_WELCOME;
    };
    CHECK_FALSE(welcome());
    CHECK_FALSE(welcome());
    unread.pop_back();
    CHECK(daemon.eventually(welcome));
    while (receive_type(unread[0]) != 0) {
    }
    CHECK(daemon.eventually(welcome));
}

TEST_CASE("[S19] a session counts until its client has given back the alive page", "[local][hostile]") {
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::sessions) = 10;  // 3 of one user
    ThreadDaemon daemon(options);
    std::vector<Fd> pages;
    const auto hoard_one = [&] {
        const Fd fd = dial(daemon.path());
        if (!say(fd, hello())) return false;
        local::Packet welcome;
        for (int i = 0; i < 60000 && welcome.kind == local::Packet::Kind::nothing_yet; ++i) {
            pollfd readable{fd.get(), POLLIN, 0};
            ::poll(&readable, 1, 1000);
            welcome = local::receive_packet(fd.get());
        }
        if (welcome.fds.size() != 2) return false;
        pages.push_back(std::move(welcome.fds[1]));
        return true;
    };
    for (int i = 0; i < 3; ++i) REQUIRE(hoard_one());
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    for (int i = 0; i < 20; ++i) CHECK_FALSE(hoard_one());
    pages.pop_back();
    CHECK(daemon.eventually(hoard_one));
}

TEST_CASE("[S19] a client's end in its own connection keeps no session", "[local][hostile]") {
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::sessions) = 10;  // 3 of one user
    ThreadDaemon daemon(options);
    for (int i = 0; i < 20; ++i) {
        const auto into_itself = [&] {
            const Fd fd = dial(daemon.path());
            REQUIRE(say(fd, hello()));
            if (!say(fd, nexar_msg_head{1, 2})) return false;  // ends the session, if there is one
            local::send_packet(fd.get(), Bytes{}, std::vector<int>{fd.get()});
            local::send_packet(fd.get(), Bytes{}, std::vector<int>{fd.get()});
            return true;
        };
        REQUIRE(daemon.eventually(into_itself));
    }
    CHECK(daemon.eventually([&] { return RawSession().open(daemon.path()); }));
}

TEST_CASE("[S19] memfds of clients are refused, unless the configuration says otherwise",
          "[local][hostile]") {
    ThreadDaemon daemon(as_configured());
    const Fd control = memfd(attach(16).control_bytes);
    const Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    CHECK(receive_type(fd) == NEXAR_MSG_REFUSED);
}

TEST_CASE("[S19] memory of nexar_register_memfd is copied where the daemon does not use it", "[local]") {
    ThreadDaemon daemon(as_configured());
    const TestSession session(daemon.path());
    nexar_group* group = session.group("copied");
    const Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), mib) == 0);
    void* at = ::mmap(nullptr, mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(at != MAP_FAILED);
    for (int round = 0; round < 2; ++round) {
        REQUIRE(nexar_register_memfd(session.get(), at, mib, fd.get(), 0) == NEXAR_OK);
        CHECK(nexar_register_memfd(session.get(), at, mib, fd.get(), 0) == NEXAR_ERR_INVALID_ARGUMENT);
        auto* values = static_cast<uint64_t*>(at);
        constexpr size_t count = mib / 16;
        std::iota(values, values + count, uint64_t{7});
        REQUIRE(nexar_all_reduce(group, values, values + count, count, NEXAR_U64, NEXAR_SUM, nullptr) ==
                NEXAR_OK);
        CHECK(std::memcmp(values, values + count, mib / 2) == 0);
        CHECK(nexar_unregister(session.get(), at) == NEXAR_OK);
    }
    CHECK(nexar_unregister(session.get(), at) == NEXAR_ERR_NOT_FOUND);
    ::munmap(at, mib);
}

TEST_CASE("[S19] memory that was freed can be lent again at once", "[local]") {
    DaemonOptions options = as_configured();
    options.tenants.total(Resource::region_bytes) = 400 * mib;
    options.limits.region_bytes_max = 400 * mib;
    ThreadDaemon daemon(options);
    const TestSession session(daemon.path());
    const uint64_t share = options.tenants.share(Resource::region_bytes);
    for (int round = 0; round < 50; ++round) {
        void* at = nullptr;
        REQUIRE(nexar_alloc(session.get(), share / 2, nullptr, &at) == NEXAR_OK);
        std::memset(at, 1, 4096);
        REQUIRE(nexar_free(session.get(), at) == NEXAR_OK);
    }
}

// What a fork() amid nexar_alloc() leaves in the child.
TEST_CASE("[S19] a refusal is answered also while somebody has a copy of the client's end", "[local]") {
    ThreadDaemon daemon(as_configured());
    RawSession session;
    REQUIRE(session.open(daemon.path()));
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const Fd own(ends[0]), passed(ends[1]);  // kept open here
    auto wish = message<nexar_msg_lend>(NEXAR_MSG_LEND);
    wish.bytes = UINT64_MAX / 2;
    REQUIRE(local::send_packet(session.socket_fd(), std::as_bytes(std::span(&wish, 1)),
                               std::vector<int>{passed.get()}));
    const timeval limit{60, 0};
    ::setsockopt(own.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    nexar_msg_head answer{};
    CHECK(::recv(own.get(), &answer, sizeof answer, 0) == sizeof answer);
    CHECK(answer.type == NEXAR_MSG_LEND);
}
