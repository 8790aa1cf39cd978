// The session socket, from its first packet on: a client that sends whatever it likes, with whatever
// descriptors, over a real SOCK_SEQPACKET pair. The input is a sequence of packets: what descriptors it
// brings, its length, its bytes. What the daemon answers must be whole messages of the protocol.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "core/bytes.hpp"
#include "local/session.hpp"

namespace {

using namespace nexar;

constexpr size_t packet_bytes_max = NEXAR_MSG_BYTES_MAX + 8;  // longer than is allowed
constexpr size_t descriptors_max = NEXAR_MSG_FDS_MAX + 1;     // more than are allowed
constexpr int packets_max = 64;
constexpr size_t entries_max = 64;

struct Engine final : engine::Service {
    Regions rows;
    Regions& regions() override { return rows; }
    Result<void> open(Time, const engine::OpenRequest&) override { return {}; }
    Result<void> submit(Time, const engine::OpRequest&) override { return {}; }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    Result<void> abort_group(Time, SessionId, const GroupId&, uint32_t, const std::string&) override {
        return {};
    }
    void session_ended(Time, SessionId, engine::SessionEnd, const std::string&) override {}
};

constexpr size_t unclosed_max = 100;

void must(bool what) {
    if (!what) std::abort();
}

local::Fd memory(size_t bytes, bool sealed) {
    local::Fd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    must(fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    must(bytes == 0 || fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0);  // [S18]
    if (sealed) must(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

// What a client might attach; the first two are what an honest one does.
local::Fd descriptor(uint8_t kind) {
    switch (kind % 5) {
        case 0:
            return memory(nexar_shm_control_bytes(16), true);
        case 1:
            return memory(2 * local::page_bytes, true);
        case 2:
            return memory(nexar_shm_control_bytes(16), false);
        case 3:
            return memory(0, true);
        default:
            return local::Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    }
}

// As local::send_packet, which only its own honest callers use, but with more descriptors than it has room
// for.
bool send_anything(int socket, Bytes bytes, std::span<const int> fds) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * descriptors_max)] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    }
    return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void read_answers(int client) {
    for (int i = 0; i < packets_max; ++i) {
        const local::Packet packet = local::receive_packet(client);
        if (packet.kind != local::Packet::Kind::message) return;
        nexar_msg_head head{};
        must(packet.size >= sizeof head);
        std::memcpy(&head, packet.bytes, sizeof head);
        must(head.magic == NEXAR_LOCAL_MAGIC);
        const size_t expected = head.type == NEXAR_MSG_WELCOME   ? sizeof(nexar_msg_welcome)
                                : head.type == NEXAR_MSG_REFUSED ? sizeof(nexar_msg_refused)
                                                                 : sizeof(nexar_msg_head);
        must(packet.size == expected);
        must(packet.fds.size() == (head.type == NEXAR_MSG_WELCOME ? 2 : 0));
    }
}

// Of one connection one packet is there at a time.
void handle_all(local::Courier& courier, local::Session& session, Time now) {
    for (bool more = true; more;) {
        must(courier.idle_within(60));
        auto all = courier.take(1);
        more = !all.empty();
        for (auto& one : all) session.on_packet(now, std::move(one.packet));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static local::RobustList robust;
    static const local::Fd page = memory(local::page_bytes, true);
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    const local::Fd client(pair[1]);
    Engine engine;
    static const auto unmapper = *loop::Releaser::open(1), closer = *loop::Releaser::open(4);
    local::SessionHost host;
    host.service = &engine;
    host.robust = &robust;
    host.daemon_page_fd = page.get();
    static const auto waker = *local::CrowdWaker::open();
    host.waker = waker.get();
    host.mapping.unmapper = unmapper;
    host.closer = closer;
    static const auto mapper = std::move(*local::Mapper::open(4));
    host.mapper = mapper.get();
    static const auto courier = std::move(*local::Courier::open(closer, 64));
    host.courier = courier.get();
    bool any_ended = false;
    host.any_ended = &any_ended;
    Tenants tenants;
    const TenantRef tenant = tenants.of("", 1000);
    const auto connection = std::make_shared<local::Connection>(local::Fd(pair[0]), tenant->number);
    connection->session = SessionId(5);
    local::Session session(SessionId(5),
                           {connection, {1000, 1000, 77, {}}, tenant, *tenant->charge(Resource::sessions)},
                           host, Time(Duration(1000)));

    Reader in(std::as_bytes(std::span(data, size)));
    for (int i = 0; i < packets_max && in.left() > 0 && !session.ended(); ++i) {
        std::vector<local::Fd> kept;
        std::vector<int> fds;
        const size_t count = in.get<uint8_t>() % (descriptors_max + 1);
        for (size_t n = 0; n < count; ++n) {
            kept.push_back(descriptor(in.get<uint8_t>()));
            fds.push_back(kept.back().get());
        }
        const Bytes bytes = in.take(std::min({size_t{in.get<uint16_t>()}, in.left(), packet_bytes_max}));
        if (!send_anything(client.get(), bytes, fds)) break;
        courier->read(connection);
        handle_all(*courier, session, Time(Duration(i)));
        session.drain(Time(Duration(i)), entries_max);
        read_answers(client.get());
    }
    session.on_time(Time(Duration(1000)));
    must(session.ended() || session.ready());  // no handshake goes on after its deadline
    read_answers(client.get());
    // Threads close what was passed; this one may be quicker.
    if (closer->descriptors() > unclosed_max) must(courier->idle_within(60) && closer->idle_within(60));
    return 0;
}
