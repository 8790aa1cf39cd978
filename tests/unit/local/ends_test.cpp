// What a client had put into its ring when it ended was handed over: it is taken, all of it, before its
// engine hears of the end. The server runs in this thread and takes nothing by itself in between.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "local/server.hpp"
#include "local/socket.hpp"
#include "shm/ring.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr uint32_t slots = 256, submitted = 200;  // more than one turn takes
constexpr Time now{std::chrono::hours(1)};

struct Descriptors final : local::Descriptors {
    std::map<int, uint64_t> keys;
    void watch(int fd, uint64_t key) override { keys[fd] = key; }
    void unwatch(int fd, uint64_t) override { keys.erase(fd); }
    // Only what has come; waits for something.
    void run(local::Server& server) {
        std::vector<pollfd> all;
        for (const auto& [fd, key] : keys) all.push_back({fd, POLLIN, 0});
        REQUIRE(::poll(all.data(), all.size(), 10000) > 0);
        for (const pollfd& each : all)
            if (each.revents != 0 && keys.contains(each.fd)) server.on_readable(now, keys[each.fd]);
    }
};

struct Engine final : engine::Service {
    local::Server* server = nullptr;
    size_t ops = 0, ops_at_end = 0, ends = 0;
    bool crashed = false;
    Result<void> open(Time, const engine::OpenRequest& request) override {
        engine::GroupInfo info;
        info.id = {1, 1, 1}, info.size = 1, info.rank = Rank(0);
        info.members = {{Rank(0), NodeId{{7}}, 1}};
        server->group_opened(request.session, request.ticket, info);
        return {};
    }
    Result<void> submit(Time, const engine::OpRequest&) override {
        ++ops;
        return {};
    }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    void session_ended(Time, SessionId, bool how, const std::string&) override {
        ++ends;
        ops_at_end = ops;
        crashed = how;
    }
};

template <class T>
void say(int fd, T body, uint32_t type, std::vector<int> fds = {}) {
    reinterpret_cast<nexar_msg_head&>(body) = {NEXAR_LOCAL_MAGIC, type};
    REQUIRE(local::send_packet(fd, std::as_bytes(std::span<const T>(&body, 1)), fds));
}

enum class End { goodbye, end_of_file, process };

// A session whose ring holds a group's opening, and then operations that nobody was woken for; and its end.
void end_with_a_full_ring(End how) {
    const std::string path = "/tmp/nexar-ends-" + std::to_string(::getpid()) + ".sock";
    Log log([](Level, const std::string&) {});
    Descriptors descriptors;
    Engine engine;
    local::ServerConfig config;
    config.path = path;
    auto server = local::Server::open(config, engine, descriptors, log);
    REQUIRE(server);
    engine.server = server->get();
    // Whoever connects is the client for the kernel, whoever speaks.
    local::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto connects = [&] {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    };
    Child process([&] {
        if (how == End::process && connects() == 0) ::pause();
        return 0;
    });
    if (how != End::process) REQUIRE(connects() == 0);
    descriptors.run(**server);  // accepts

    nexar_msg_hello hello{};
    hello.version_min = hello.version_max = NEXAR_LOCAL_VERSION;
    say(fd.get(), hello, NEXAR_MSG_HELLO);
    descriptors.run(**server);
    const size_t bytes = nexar_shm_control_bytes(slots);
    const local::Fd control(::memfd_create("ends", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(control.get(), static_cast<off_t>(bytes)) == 0);
    REQUIRE(::fcntl(control.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
    REQUIRE(at != MAP_FAILED);
    auto view = *shm::ControlView::over({static_cast<std::byte*>(at), bytes}, slots);
    view.initialise();
    nexar_msg_attach attach{};
    attach.slots = slots;
    attach.control_bytes = bytes;
    say(fd.get(), attach, NEXAR_MSG_ATTACH, {control.get()});
    descriptors.run(**server);

    shm::SubmissionProducer producer(view);
    for (uint32_t i = 0; i <= submitted; ++i) {
        auto& d = view.slot(i).descriptor;
        d.kind = i == 0 ? NEXAR_CMD_GROUP_OPEN : NEXAR_OP_BARRIER;
        if (i != 0) d.group = 1, d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
        view.slot(i).state = NEXAR_SLOT_WORD(1u, 1u);
        view.payload(0).group_open.size = view.payload(0).group_open.name_bytes = 1;
        REQUIRE(producer.try_push({i, 1, NEXAR_ENTRY_SUBMIT}));
    }
    REQUIRE(engine.ops == 0);

    if (how == End::goodbye) say(fd.get(), nexar_msg_head{}, NEXAR_MSG_GOODBYE);
    if (how == End::end_of_file) fd.reset();
    if (how == End::process) process.kill(SIGKILL);
    descriptors.run(**server);

    CHECK(engine.ends == 1);
    CHECK(engine.ops_at_end == submitted);
    CHECK(engine.crashed == (how != End::goodbye));
    CHECK((*server)->sessions() == 0);
    ::munmap(at, bytes);
}

}  // namespace

TEST_CASE("what stands in the ring at a goodbye is taken first", "[local][death]") {
    end_with_a_full_ring(End::goodbye);
}

TEST_CASE("what stands in the ring when the connection ends is taken first", "[local][death]") {
    end_with_a_full_ring(End::end_of_file);
}

TEST_CASE("what stands in the ring when the process ends is taken first, whoever holds its socket",
          "[local][death]") {
    end_with_a_full_ring(End::process);
}
