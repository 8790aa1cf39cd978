// Clients that do not play by the rules: half handshakes, garbage, wrong descriptors, floods, memory taken
// away. The daemon goes on serving others.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "by_hand.hpp"
#include "calls.hpp"
#include "core/random.hpp"
#include "local/memory.hpp"
#include "local/socket.hpp"
#include "loop/fd.hpp"
#include "nexar.h"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;

namespace {

// A whole handshake by hand.
Fd ready(const std::string& path, const Fd& control) {
    Fd fd = dial(path);
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    REQUIRE(receive_type(fd) == NEXAR_MSG_READY);
    return fd;
}

bool serves(ThreadDaemon& daemon) {
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = daemon.path().c_str();
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    nexar_group_options group_options;
    nexar_group_options_init(&group_options, sizeof group_options);
    group_options.size = 1;
    group_options.name = "serves";
    uint64_t x = 5;
    const bool ok = nexar_session_open(&options, &session) == NEXAR_OK &&
                    nexar_group_open(session, &group_options, &group) == NEXAR_OK &&
                    nexar_all_reduce(group, &x, &x, 1, NEXAR_U64, NEXAR_SUM, within(10000)) == NEXAR_OK &&
                    x == 5;
    return nexar_session_close(session) == NEXAR_OK && ok;
}

// From now on this process gets no more descriptors, until the end of the scope.
class NoMoreDescriptors {
  public:
    NoMoreDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit none{0, before_.rlim_max};  // no new one has a number below it
        ::setrlimit(RLIMIT_NOFILE, &none);
    }
    ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoMoreDescriptors(const NoMoreDescriptors&) = delete;

  private:
    rlimit before_{};
};

size_t open_descriptors() {
    size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
}

}  // namespace

TEST_CASE("a handshake that is wrong in any way is refused, closed, and leaks no descriptor",
          "[local][hostile]") {
    ThreadDaemon daemon;
    REQUIRE(serves(daemon));
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    const size_t before = open_descriptors();
    {
        const Fd good = memfd(nexar_shm_control_bytes(16));
        const Fd pages = memfd(nexar_shm_control_bytes(16), 0), small = memfd(4096);
        const Fd file(::open("/dev/zero", O_RDWR | O_CLOEXEC));
        auto old = hello();
        old.version_min = 7, old.version_max = 9;
        auto foreign = hello();
        foreign.head.magic = 1;
        const auto after_hello = [&](auto body, std::vector<int> fds) {
            Fd fd = dial(daemon.path());
            REQUIRE(say(fd, hello()));
            REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
            say(fd, body, std::move(fds));
            return receive_type(fd);
        };
        const auto first = [&](auto body, std::vector<int> fds = {}) {
            Fd fd = dial(daemon.path());
            say(fd, body, std::move(fds));
            return receive_type(fd);
        };
        const uint32_t refused = NEXAR_MSG_REFUSED;
        CHECK(first(old) == refused);
        CHECK(first(foreign) == refused);
        CHECK(first(hello(), {good.get()}) == refused);
        CHECK(first(attach(16), {good.get()}) == refused);
        CHECK(first(std::array<char, 3>{'x', 'y', 'z'}) == refused);
        CHECK(first(std::array<char, 5000>{}) == refused);
        CHECK(after_hello(attach(16), {}) == refused);
        CHECK(after_hello(attach(16), {good.get(), good.get()}) == refused);
        CHECK(after_hello(attach(16), {pages.get()}) == refused);   // not sealed
        CHECK(after_hello(attach(16), {small.get()}) == refused);   // too small
        CHECK(after_hello(attach(16), {file.get()}) == refused);    // not a memfd
        CHECK(after_hello(attach(17), {good.get()}) == refused);    // no power of two
        CHECK(after_hello(attach(8192), {good.get()}) == refused);  // too many
        CHECK(after_hello(hello(), {}) == refused);
        dial(daemon.path());  // and gone
    }
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    CHECK(daemon.eventually([&] { return open_descriptors() <= before; }));
    CHECK(serves(daemon));
}

TEST_CASE("a half-done handshake ends at its deadline", "[local][hostile]") {
    DaemonOptions options;
    options.handshake_timeout = Duration(100'000'000);
    ThreadDaemon daemon(options);
    Fd silent = dial(daemon.path()), half = dial(daemon.path());
    REQUIRE(say(half, hello()));
    REQUIRE(receive_type(half) == NEXAR_MSG_WELCOME);

    CHECK(receive_type(silent) == NEXAR_MSG_REFUSED);
    CHECK(receive_type(half) == NEXAR_MSG_REFUSED);
    CHECK(receive_type(half) == 0);
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

TEST_CASE("one user has a limit of sessions, and connections that are not ready count", "[local][N1][N3]") {
    DaemonOptions options;
    options.tenants.total(Resource::sessions) = 5;
    options.tenants.share_percent = 100;
    ThreadDaemon daemon(options);
    std::vector<Fd> connections;
    for (int i = 0; i < 5; ++i) connections.push_back(dial(daemon.path()));
    Fd extra = dial(daemon.path());
    CHECK(receive_type(extra) == NEXAR_MSG_REFUSED);
    nexar_session* session = nullptr;
    CHECK(try_open_session(daemon.path(), &session) == NEXAR_ERR_SESSION_REFUSED);
    CHECK(std::string(last_failure().text).find("sessions_max = 5") != std::string::npos);
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 5; }));
    connections.clear();
    CHECK(daemon.eventually([&] { return serves(daemon); }));  // connections count until they are closed
}

TEST_CASE("many processes of one user that start together all get their sessions", "[local][N3][D6]") {
    ThreadDaemon daemon;
    constexpr size_t processes = 512;
    std::vector<Fd> connections;
    for (size_t i = 0; i < processes; ++i) connections.push_back(dial(daemon.path()));
    size_t welcome = 0;
    for (const Fd& fd : connections) {
        say(fd, hello());
        welcome += receive_type(fd) == NEXAR_MSG_WELCOME;
    }
    CHECK(welcome == processes);
}

TEST_CASE("a ready client's garbage ends its session; too many descriptors are closed", "[local][hostile]") {
    ThreadDaemon daemon;
    const size_t before = open_descriptors() + 1;  // `control`
    Fd control;
    for (int kind = 0; kind < 4; ++kind) {
        control = memfd(nexar_shm_control_bytes(16));  // each can be registered once
        Fd fd = ready(daemon.path(), control);
        const int one = control.get();
        if (kind == 0) say(fd, message<nexar_msg_attach>(99));
        if (kind == 1) say(fd, std::array<char, 300>{});
        if (kind == 2) say(fd, message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD), {one, one});
        if (kind == 3) say(fd, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL}, {one, one, one, one});
        CAPTURE(kind);
        CHECK(receive_type(fd) == NEXAR_MSG_REFUSED);
        CHECK(receive_type(fd) == 0);
    }
    {
        // More descriptors than there is room for: the kernel cuts them off.
        control = memfd(nexar_shm_control_bytes(16));
        Fd fd = ready(daemon.path(), control);
        char data = 'x';
        iovec part{&data, 1};
        alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * 50)] = {};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = space;
        header.msg_controllen = sizeof space;
        cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * 50);
        for (size_t i = 0; i < 50; ++i)
            std::memcpy(CMSG_DATA(c) + i * 4, std::array{control.get()}.data(), 4);
        REQUIRE(::sendmsg(fd.get(), &header, 0) == 1);
        CHECK(receive_type(fd) == NEXAR_MSG_REFUSED);
    }
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    CHECK(daemon.eventually([&] { return open_descriptors() <= before; }));
    CHECK(serves(daemon));
}

TEST_CASE("memory of another kind, or with a field that must be 0, is refused in its slot",
          "[local][hostile]") {
    ThreadDaemon daemon;
    const size_t bytes = nexar_shm_control_bytes(16);
    const Fd control = memfd(bytes), region = memfd(4096);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
    REQUIRE(at != MAP_FAILED);
    Fd fd = ready(daemon.path(), control);
    auto view = *shm::ControlView::over({static_cast<std::byte*>(at), bytes}, 16);
    struct Case {
        uint32_t kind;
        uint64_t reserved;
        Errc status;
    };
    const Case cases[] = {{0, 0, Errc::unsupported},
                          {3, 0, Errc::unsupported},
                          {NEXAR_MEMORY_LENT, 0, Errc::invalid_argument},  // but a memfd came
                          {NEXAR_MEMORY_MEMFD, 1, Errc::invalid_argument},
                          {NEXAR_MEMORY_MEMFD, 0, Errc::ok}};
    uint32_t number = 0;
    for (const Case& c : cases) {
        ++number;
        CAPTURE(number);
        auto body = message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD);
        body.slot = number, body.generation = 1, body.region = number, body.bytes = 4096;
        body.kind = c.kind, body.reserved = c.reserved;
        auto& slot = view.slot(number);
        std::atomic_ref<uint32_t>(slot.state).store(NEXAR_SLOT_WORD(1u, 1u));
        REQUIRE(say(fd, body, {region.get()}));
        REQUIRE(daemon.eventually(
            [&] { return std::atomic_ref<uint32_t>(slot.state).load() == NEXAR_SLOT_WORD(1u, 2u); }));
        CHECK(slot.result.status == static_cast<int32_t>(c.status));
    }
    CHECK(daemon.counters.sessions == 1);
    ::munmap(at, bytes);
}

TEST_CASE("a region that comes when there are no descriptors is refused alone: its session goes on",
          "[local][hostile][H18]") {
    ThreadDaemon daemon;
    const size_t bytes = nexar_shm_control_bytes(16);
    const Fd control = memfd(bytes), region = memfd(4096);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
    REQUIRE(at != MAP_FAILED);
    Fd fd = ready(daemon.path(), control);
    auto view = *shm::ControlView::over({static_cast<std::byte*>(at), bytes}, 16);
    // How the registration of region `number` ends, in slot `number`.
    const auto add = [&](uint32_t number) -> int32_t {
        auto body = message<nexar_msg_region_add>(NEXAR_MSG_REGION_ADD);
        body.slot = number, body.generation = 1, body.region = number, body.bytes = 4096;
        body.kind = NEXAR_MEMORY_MEMFD;
        auto& slot = view.slot(number);
        std::atomic_ref<uint32_t>(slot.state).store(NEXAR_SLOT_WORD(1u, 1u));
        if (!say(fd, body, {region.get()})) return 1001;
        const auto ended = [&] {
            return std::atomic_ref<uint32_t>(slot.state).load() == NEXAR_SLOT_WORD(1u, 2u);
        };
        return daemon.eventually(ended) ? slot.result.status : 1002;
    };
    REQUIRE(add(1) == 0);
    int32_t refused = 0;
    {
        const NoMoreDescriptors none;
        refused = add(2);
    }
    CHECK(refused == static_cast<int32_t>(Errc::no_memory));
    CHECK(add(3) == 0);
    CHECK(daemon.counters.sessions == 1);
    CHECK(daemon.eventually([&] { return daemon.counters.regions == 2; }));
    ::munmap(at, bytes);
}

TEST_CASE("a handshake that comes when there are no descriptors is refused, saying so",
          "[local][hostile][H18]") {
    ThreadDaemon daemon;
    const Fd control = memfd(nexar_shm_control_bytes(16));
    const Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    const NoMoreDescriptors none;
    REQUIRE(say(fd, attach(16), {control.get()}));
    nexar_msg_refused refused{};
    const timeval limit{60, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    REQUIRE(::recv(fd.get(), &refused, sizeof refused, 0) == sizeof refused);
    CHECK(refused.head.type == NEXAR_MSG_REFUSED);
    CHECK(refused.code == static_cast<int32_t>(Errc::no_memory));
}

TEST_CASE("a library of protocol 1 is refused with both sides' versions", "[local][hostile]") {
    ThreadDaemon daemon;
    const Fd fd = dial(daemon.path());
    auto old = hello();
    old.version_min = old.version_max = 1;
    REQUIRE(say(fd, old));
    nexar_msg_refused refused{};
    const timeval limit{60, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    REQUIRE(::recv(fd.get(), &refused, sizeof refused, 0) == sizeof refused);
    CHECK(refused.head.type == NEXAR_MSG_REFUSED);
    CHECK(refused.code == static_cast<int32_t>(Errc::session_refused));
    for (const char* versions : {"1 to 1", "2 to 2"}) CHECK(std::string(refused.text).contains(versions));
}

TEST_CASE("a client that never reads does not block the daemon", "[local][hostile][S11]") {
    ThreadDaemon daemon;
    const Fd control = memfd(nexar_shm_control_bytes(16));
    void* at =
        ::mmap(nullptr, nexar_shm_control_bytes(16), PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
    REQUIRE(at != MAP_FAILED);
    Fd fd = ready(daemon.path(), control);
    const int flags = ::fcntl(fd.get(), F_GETFL);
    ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
    // Endless doorbells: each completion of a bad entry rings one, and the client reads none.
    auto view = *shm::ControlView::over({static_cast<std::byte*>(at), nexar_shm_control_bytes(16)}, 16);
    view.header().bell_wanted = 1;
    shm::SubmissionProducer producer(view);
    for (uint32_t generation = 1; generation <= 3000; ++generation) {
        auto& slot = view.slot(generation % 16);
        slot.descriptor.kind = NEXAR_OP_BARRIER;  // of no group: refused in the slot
        std::atomic_ref<uint32_t>(slot.state).store(NEXAR_SLOT_WORD(generation, 1u));
        bool pushed = false;
        for (int i = 0; i < 50000 && !pushed; ++i) {
            pushed = producer.try_push({generation % 16, generation, NEXAR_ENTRY_SUBMIT});
            const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
            if (!pushed) say(fd, doorbell), ::usleep(100);  // sleep: between two tries
        }
        REQUIRE(pushed);
        for (int i = 0;
             i < 50000 && std::atomic_ref<uint32_t>(slot.state).load() != NEXAR_SLOT_WORD(generation, 2u);
             ++i) {
            const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
            if (i % 100 == 0) say(fd, doorbell);
            ::usleep(1);  // sleep: between two looks
        }
    }
    CHECK(serves(daemon));
    ::munmap(at, nexar_shm_control_bytes(16));
}

TEST_CASE("random scribbling over a live segment never crashes the daemon", "[local][hostile]") {
    ThreadDaemon daemon;
    Random random(20260101);
    for (int round = 0; round < 6; ++round) {
        const Fd control = memfd(nexar_shm_control_bytes(16));
        const size_t bytes = nexar_shm_control_bytes(16);
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
        REQUIRE(at != MAP_FAILED);
        Fd fd = ready(daemon.path(), control);
        auto* words = static_cast<uint32_t*>(at);
        for (int i = 0; i < 20000; ++i) {
            const uint64_t r = random.next();
            std::atomic_ref<uint32_t>(words[r % (bytes / 4)])
                .store(static_cast<uint32_t>(random.next()) >> (r >> 59));
            if (i % 256 == 0) say(fd, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL});
        }
        ::munmap(at, bytes);
    }
    CHECK(serves(daemon));
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

TEST_CASE("what the daemon shows to all its clients none of them can write, cut or punch",
          "[local][hostile]") {
    ThreadDaemon daemon;
    Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    pollfd wait{fd.get(), POLLIN, 0};
    REQUIRE(::poll(&wait, 1, 60'000) == 1);
    const local::Packet welcome = local::receive_packet(fd.get());
    REQUIRE(welcome.fds.size() == 2);  // the daemon's page, and the alive word
    for (const Fd& page : welcome.fds) {
        const auto reopened = "/proc/self/fd/" + std::to_string(page.get());
        const Fd again(::open(reopened.c_str(), O_RDWR | O_CLOEXEC));
        for (const int descriptor : {page.get(), again.get()}) {
            if (descriptor < 0) continue;  // not even that
            CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) == MAP_FAILED);
            void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
            REQUIRE(at != MAP_FAILED);
            CHECK(::mprotect(at, 4096, PROT_READ | PROT_WRITE) != 0);
            CHECK(::madvise(at, 4096, MADV_REMOVE) != 0);
            ::munmap(at, 4096);
            CHECK(::pwrite(descriptor, "x", 1, 0) < 0);
            CHECK(::ftruncate(descriptor, 0) != 0);
            CHECK(::ftruncate(descriptor, 8192) != 0);
            CHECK(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
            CHECK(::fallocate(descriptor, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
        }
    }
    CHECK(serves(daemon));
}

TEST_CASE("sockets closed in one direction, with work in flight and doorbells to come", "[local][hostile]") {
    ThreadDaemon daemon;
    const size_t bytes = nexar_shm_control_bytes(16), before = open_descriptors();
    for (const int direction : {SHUT_RD, SHUT_WR, SHUT_RDWR}) {
        Fd control = memfd(bytes);
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
        REQUIRE(at != MAP_FAILED);
        Fd fd = ready(daemon.path(), control);
        auto view = *shm::ControlView::over({static_cast<std::byte*>(at), bytes}, 16);
        view.header().bell_wanted = 1;
        control.reset();
        ::shutdown(fd.get(), direction);
        shm::SubmissionProducer producer(view);
        for (uint32_t i = 1; i < 16; ++i) {
            view.slot(i).descriptor.kind =
                NEXAR_OP_BARRIER;  // of no group: refused in the slot, with a doorbell
            std::atomic_ref<uint32_t>(view.slot(i).state).store(NEXAR_SLOT_WORD(1u, 1u));
            CHECK(producer.try_push({i, 1, NEXAR_ENTRY_SUBMIT}));
            say(fd, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL});
        }
        CAPTURE(direction);
        CHECK(serves(daemon));
        fd.reset();
        ::munmap(at, bytes);
    }
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
    CHECK(daemon.eventually([&] { return open_descriptors() <= before; }));
}

TEST_CASE("memory that is taken away under the daemon reads as zeros and is noticed", "[local][hostile]") {
    const Fd unsealed = memfd(8192, 0);
    auto mapping = local::Mapping::unchecked(unsealed.get(), 0, 8192, {*loop::Releaser::open(1)});
    REQUIRE(mapping);
    auto bytes = (*mapping)->bytes();
    bytes[5000] = std::byte{7};
    REQUIRE(!(*mapping)->faulted());

    REQUIRE(::ftruncate(unsealed.get(), 0) == 0);

    CHECK(*static_cast<volatile std::byte*>(&bytes[5000]) == std::byte{0});
    CHECK((*mapping)->faulted());
    *static_cast<volatile std::byte*>(&bytes[0]) = std::byte{1};  // writing as well
}

TEST_CASE("a SIGBUS that is not a client's memory stays deadly", "[local][hostile]") {
    Child child([] {
        ::signal(SIGBUS, SIG_DFL);  // not a sanitizer's
        const Fd guarded = memfd(4096, 0);
        auto mapping = local::Mapping::unchecked(guarded.get(), 0, 4096,
                                                 {*loop::Releaser::open(1)});  // installs the handler
        Fd other(::memfd_create("other", MFD_CLOEXEC));
        void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, other.get(), 0);
        return static_cast<int>(*static_cast<volatile char*>(at));
    });
    CHECK(child.wait() == -SIGBUS);
}

TEST_CASE("the socket's place: a stale one is replaced, a live one is not, a file is left alone", "[local]") {
    std::string path;
    {
        ThreadDaemon daemon;
        path = daemon.path();
        auto second = local::listen_on(path, {0600, {}, {}});
        REQUIRE(!second);
        CHECK(second.error().code == Errc::bad_state);
        CHECK(second.error().text.contains(path));
        CHECK(serves(daemon));
    }
    {
        auto stale = local::listen_on(path, {0600, {}, {}});
        REQUIRE(stale);
    }  // closed, but the name is still there
    auto again = local::listen_on(path, {0600, {}, {}});
    CHECK(again);
    again->reset();
    ::unlink(path.c_str());
    Fd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    CHECK(!local::listen_on(path, {0600, {}, {}}));
    CHECK(::access(path.c_str(), F_OK) == 0);
    ::unlink(path.c_str());
    CHECK(!local::listen_on("/tmp/" + std::string(200, 'x'), {}));
    const std::string folder = "/tmp/nexar-test-folder-" + std::to_string(::getpid());
    {
        const mode_t before = ::umask(0077);  // as systemd starts daemons
        auto created = local::listen_on(folder + "/nexard.sock", {});
        ::umask(before);
        CHECK(created);
        struct stat status{};
        CHECK(::stat(folder.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0755);
    }
    ::unlink((folder + "/nexard.sock").c_str());
    ::rmdir(folder.c_str());
}

TEST_CASE("registered memory is used in place; what is not a sealable memfd is refused", "[local]") {
    ThreadDaemon daemon;
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = daemon.path().c_str();
    nexar_session* session = nullptr;
    REQUIRE(nexar_session_open(&options, &session) == NEXAR_OK);
    nexar_group_options group_options;
    nexar_group_options_init(&group_options, sizeof group_options);
    group_options.size = 1;
    group_options.name = "stuck";
    nexar_group *stuck = nullptr, *group = nullptr;
    REQUIRE(nexar_group_open(session, &group_options, &stuck) == NEXAR_OK);
    group_options.name = "alone";
    REQUIRE(nexar_group_open(session, &group_options, &group) == NEXAR_OK);
    const Fd fd = memfd(16384, 0);
    auto* memory =
        static_cast<uint64_t*>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 8192));

    REQUIRE(nexar_register_memfd(session, memory, 8192, fd.get(), 8192) == NEXAR_OK);

    for (uint64_t i = 0; i < 8; ++i) memory[i] = 11 * i;
    CHECK(nexar_all_reduce(group, memory, memory + 512, 8, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
    CHECK(memory[512 + 7] == 77);
    nexar_session_stats stats{};
    stats.struct_size = sizeof stats;
    REQUIRE(nexar_session_stats_get(session, &stats) == NEXAR_OK);
    CHECK(stats.bytes_copied == 0);
    CHECK(nexar_register_memfd(session, memory, 4096, fd.get(), 8192) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_free(session, memory) == NEXAR_ERR_NOT_FOUND);  // it is not from nexar_alloc
    nexar_request pending = 0;
    REQUIRE(nexar_all_reduce_start(stuck, memory, memory, 8, NEXAR_U64, NEXAR_SUM, nullptr, &pending) ==
            NEXAR_OK);
    CHECK(nexar_unregister(session, memory) == NEXAR_ERR_BAD_STATE);
    REQUIRE(nexar_request_cancel(pending) == NEXAR_OK);
    REQUIRE(nexar_request_wait(pending, 60'000, nullptr) == NEXAR_ERR_CANCELLED);
    REQUIRE(nexar_request_free(pending) == NEXAR_OK);
    CHECK(nexar_unregister(session, memory) == NEXAR_OK);
    CHECK(nexar_unregister(session, memory) == NEXAR_ERR_NOT_FOUND);
    const Fd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    CHECK(nexar_register_memfd(session, memory, 4096, zero.get(), 0) == NEXAR_ERR_UNSUPPORTED);
    const Fd fixed(::memfd_create("fixed", MFD_CLOEXEC));  // no MFD_ALLOW_SEALING
    CHECK(nexar_register_memfd(session, memory, 4096, fixed.get(), 0) == NEXAR_ERR_UNSUPPORTED);
    CHECK(nexar_register_memfd(session, memory, 1 << 20, fd.get(), 8192) ==
          NEXAR_ERR_INVALID_ARGUMENT);  // beyond its end
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
    ::munmap(memory, 8192);
}
