// What a client had put into its ring when it ended was handed over: it is taken, all of it, before its
// engine hears of the end.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "local/socket.hpp"
#include "shm/ring.hpp"
#include "still_server.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr uint32_t slots = 256, submitted = 200;  // more than one turn takes

template <class T>
void say(int fd, T body, uint32_t type, std::vector<int> fds = {}) {
    reinterpret_cast<nexar_msg_head&>(body) = {NEXAR_LOCAL_MAGIC, type};
    REQUIRE(local::send_packet(fd, std::as_bytes(std::span<const T>(&body, 1)), fds));
}

enum class End { goodbye, end_of_file, process };

// A session whose ring holds a group's opening, and then operations that nobody was woken for; and its end.
void end_with_a_full_ring(End how) {
    StillServer server;
    const std::string& path = server.path;
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
    REQUIRE(server.take(10000));  // accepts

    nexar_msg_hello hello{};
    hello.version_min = hello.version_max = NEXAR_LOCAL_VERSION;
    say(fd.get(), hello, NEXAR_MSG_HELLO);
    REQUIRE(server.take(10000));
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
    REQUIRE(server.take(10000));

    shm::SubmissionProducer producer(view);
    for (uint32_t i = 0; i <= submitted; ++i) {
        auto& d = view.slot(i).descriptor;
        d.kind = i == 0 ? NEXAR_CMD_GROUP_OPEN : NEXAR_OP_BARRIER;
        if (i != 0) d.group = 1, d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
        view.slot(i).state = NEXAR_SLOT_WORD(1u, 1u);
        view.payload(0).group_open.size = view.payload(0).group_open.name_bytes = 1;
        REQUIRE(producer.try_push({i, 1, NEXAR_ENTRY_SUBMIT}));
    }
    const KeepingEngine& engine = server.engine;
    REQUIRE(engine.ops == 0);

    if (how == End::goodbye) say(fd.get(), nexar_msg_head{}, NEXAR_MSG_GOODBYE);
    if (how == End::end_of_file) fd.reset();
    if (how == End::process) process.kill(SIGKILL);
    REQUIRE(server.take(10000));

    CHECK(engine.ends == 1);
    CHECK(engine.ops_at_end == submitted);
    CHECK((engine.crashes == 1) == (how != End::goodbye));
    CHECK(server->sessions() == 0);
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
