// A session made by hand, without libnexar_c: every byte that a client may write is at hand.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "local_protocol.h"
#include "shm_layout.h"

namespace hostile {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

class RawSession {
  public:
    static constexpr uint32_t slots = 16;
    static inline int patience_ms = 60'000;  // for an answer

    // `sparse`: of the region there are only the pages that the daemon wants to be there [S19].
    explicit RawSession(uint64_t bytes_of_region = 1 << 20, bool sparse = false)
        : region_bytes(bytes_of_region), sparse_(sparse) {}
    ~RawSession() {
        if (control_) munmap(control_, control_bytes());
        if (region_) munmap(region_, region_bytes);
        for (const int fd : {socket_, control_fd_, region_fd_, page_fd_})
            if (fd >= 0) close(fd);
    }
    RawSession(const RawSession&) = delete;
    RawSession& operator=(const RawSession&) = delete;

    const uint64_t region_bytes;
    // Called with each memfd before it is passed.
    std::function<void(int memfd, uint64_t bytes)> on_memory = [](int, uint64_t) {};

    // Handshake, a region, a group of one. False: the daemon refused.
    bool open(const std::string& path) {
        static int number = 0;
        const std::string name = "hostile-" + std::to_string(getpid()) + "-" + std::to_string(++number);
        return attach(path) && finish_group(begin_group(name));
    }

    // Handshake and a region.
    bool attach(const std::string& path) {
        if (!dial(path)) return false;
        nexar_msg_hello hello{};
        hello.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_HELLO};
        hello.version_min = hello.version_max = NEXAR_LOCAL_VERSION;
        if (!send(&hello, sizeof hello) || receive() != NEXAR_MSG_WELCOME) return false;
        control_fd_ = borrow(control_bytes());
        if (control_fd_ < 0) return false;
        control_ = map(control_fd_, control_bytes(), false);
        on_memory(control_fd_, control_bytes());
        nexar_msg_attach attach{};
        attach.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_ATTACH};
        attach.slots = slots;
        attach.control_bytes = control_bytes();
        if (!send(&attach, sizeof attach) || receive() != NEXAR_MSG_READY) return false;
        region_fd_ = borrow(region_bytes);
        if (region_fd_ < 0) return false;
        region_ = map(region_fd_, region_bytes, sparse_);
        on_memory(region_fd_, region_bytes);
        return add_region();
    }

    // An open of the group: its generation in slot 0.
    uint32_t begin_group(const std::string& name, const std::string& secret = {}, uint32_t size = 1,
                         uint32_t rank = 0) {
        auto& open = payload(0).group_open;
        open.size = size;
        open.rank = rank;
        open.name_bytes = static_cast<uint32_t>(name.size());
        open.secret_bytes = static_cast<uint32_t>(secret.size());
        open.timeout_ns = int64_t{patience_ms} * 1'000'000;
        open.collective_timeout_ns = open.barrier_timeout_ns = open.rpc_timeout_ns = -1;
        std::memcpy(open.name, name.data(), name.size());
        std::memcpy(open.secret, secret.data(), secret.size());
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_OPEN;
        return submit(0, d);
    }
    bool finish_group(uint32_t generation) {
        if (!await(0, generation) || slot(0).result.status != 0) return false;
        group_ = slot(0).result.group;
        epoch_ = slot(0).result.group_epoch;
        return true;
    }

    bool dial(const std::string& path) {
        socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
        return connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }

    bool send(const void* bytes, size_t size, std::span<const int> fds = {}, int flags = 0) {
        iovec iov{const_cast<void*>(bytes), size};
        alignas(cmsghdr) char room[CMSG_SPACE(16 * sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &iov;
        message.msg_iovlen = 1;
        if (!fds.empty()) {
            message.msg_control = room;
            message.msg_controllen = CMSG_SPACE(fds.size_bytes());
            cmsghdr* head = CMSG_FIRSTHDR(&message);
            *head = {CMSG_LEN(fds.size_bytes()), SOL_SOCKET, SCM_RIGHTS};
            std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
        }
        return sendmsg(socket_, &message, MSG_NOSIGNAL | flags) == static_cast<ssize_t>(size);
    }

    // A memfd of the daemon's; -1: it was refused.
    int borrow(uint64_t bytes) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) _exit(3);
        nexar_msg_lend wish{};
        wish.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_LEND};
        wish.bytes = bytes;
        send(&wish, sizeof wish, std::span(&ends[1], 1));
        close(ends[1]);
        int memfd = -1;
        pollfd ready{ends[0], POLLIN, 0};
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        char byte[sizeof(nexar_msg_head)];
        iovec iov{byte, sizeof byte};
        msghdr message{};
        message.msg_iov = &iov;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        if (poll(&ready, 1, patience_ms) > 0 && recvmsg(ends[0], &message, MSG_DONTWAIT) > 0 &&
            CMSG_FIRSTHDR(&message))
            std::memcpy(&memfd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memfd);
        close(ends[0]);
        return memfd;
    }

    // The type of the next message; 0: the end, or nothing in that time. Of the descriptors that come along
    // the first is kept, which is the daemon page's; the others are dropped.
    uint32_t receive() {
        pollfd ready{socket_, POLLIN, 0};
        if (poll(&ready, 1, patience_ms) <= 0) return 0;
        char bytes[NEXAR_MSG_BYTES_MAX];
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof page_fd_)] = {};
        iovec iov{bytes, sizeof bytes};
        msghdr message{};
        message.msg_iov = &iov;
        message.msg_iovlen = 1;
        message.msg_control = page_fd_ < 0 ? room : nullptr;
        message.msg_controllen = page_fd_ < 0 ? sizeof room : 0;
        nexar_msg_head head{};
        const ssize_t got = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0 && page_fd_ < 0 && CMSG_FIRSTHDR(&message))
            std::memcpy(&page_fd_, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof page_fd_);
        if (got >= static_cast<ssize_t>(sizeof head)) std::memcpy(&head, bytes, sizeof head);
        return got > 0 ? head.type : 0;
    }

    // The daemon has ended this session.
    bool ended() {
        pollfd state{socket_, POLLRDHUP, 0};
        return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    }

    static uint64_t control_bytes() { return nexar_shm_control_bytes(slots); }
    uint8_t* control() { return control_; }
    uint8_t* region() { return region_; }
    int control_fd() const { return control_fd_; }
    int region_fd() const { return region_fd_; }
    int page_fd() const { return page_fd_; }  // the daemon page's
    int socket_fd() const { return socket_; }
    uint32_t group() const { return group_; }
    nexar_shm_header& header() { return *reinterpret_cast<nexar_shm_header*>(control_); }
    nexar_shm_slot& slot(uint32_t i) {
        return *reinterpret_cast<nexar_shm_slot*>(control_ + nexar_shm_slots_offset() +
                                                  i * sizeof(nexar_shm_slot));
    }
    nexar_shm_payload& payload(uint32_t i) {
        return *reinterpret_cast<nexar_shm_payload*>(control_ + nexar_shm_payloads_offset(slots) +
                                                     i * sizeof(nexar_shm_payload));
    }
    nexar_shm_detail& detail(uint32_t i) {
        return *reinterpret_cast<nexar_shm_detail*>(control_ + nexar_shm_details_offset(slots) +
                                                    i * sizeof(nexar_shm_detail));
    }

    // Publishes an entry with the turn that the daemon expects next.
    void push(uint32_t kind, uint32_t slot_index, uint32_t generation) {
        const uint32_t entries = nexar_shm_submission_entries(slots), at = tail_++;
        auto* ring = reinterpret_cast<uint64_t*>(control_ + nexar_shm_submission_offset(slots));
        const uint64_t turn = (at / entries + 1) & 0xff;
        std::atomic_ref(ring[at % entries])
            .store(uint64_t{generation} << 32 | turn << 24 | uint64_t{kind} << 16 | slot_index);
        std::atomic_ref(header().submit_tail).store(tail_);
        const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
        send(&doorbell, sizeof doorbell, {}, MSG_DONTWAIT);
    }

    uint32_t submit(uint32_t i, const nexar_shm_descriptor& descriptor) {
        const uint32_t generation = ++generations_[i] & 0xffffff;
        slot(i).descriptor = descriptor;
        std::atomic_ref(slot(i).state).store(NEXAR_SLOT_WORD(generation, NEXAR_SLOT_SUBMITTED));
        push(NEXAR_ENTRY_SUBMIT, i, generation);
        return generation;
    }

    bool await(uint32_t i, uint32_t generation, int milliseconds = patience_ms) {
        const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
        while (std::atomic_ref(slot(i).state).load() != NEXAR_SLOT_WORD(generation, NEXAR_SLOT_DONE)) {
            if (Clock::now() > end || ended()) return false;
            usleep(50);  // sleep: between two looks
        }
        return true;
    }

    nexar_shm_descriptor all_reduce(uint64_t count) const {
        nexar_shm_descriptor d{};
        d.kind = NEXAR_OP_ALL_REDUCE;
        d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
        d.group = group_;
        d.epoch = epoch_;
        d.count = count;
        d.timeout_ns = 1'000'000'000;
        d.in = {1, 0, 0};
        d.out = {1, 0, region_bytes / 2};
        return d;
    }

    static int sealed_memory(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
        const int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) _exit(3);
        if (seals && fcntl(fd, F_ADD_SEALS, seals) != 0) _exit(3);
        return fd;
    }

  private:
    static uint8_t* map(int fd, uint64_t bytes, bool sparse) {
        const int pages = sparse ? 0 : MAP_POPULATE;  // [S18]
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | pages, fd, 0);
        if (at == MAP_FAILED) _exit(3);
        auto* const out = static_cast<uint8_t*>(at);
        for (uint64_t i = 0; sparse && i < bytes; i += uint64_t{2} << 20) out[i] = 1;
        return out;
    }

    bool add_region() {
        nexar_msg_region_add add{};
        add.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_REGION_ADD};
        add.slot = 0;
        add.generation = ++generations_[0];
        add.region = 1;
        add.kind = NEXAR_MEMORY_LENT;
        add.bytes = region_bytes;
        std::atomic_ref(slot(0).state).store(NEXAR_SLOT_WORD(add.generation, NEXAR_SLOT_SUBMITTED));
        return send(&add, sizeof add) && await(0, add.generation) && slot(0).result.status == 0;
    }

    const bool sparse_;
    int socket_ = -1, control_fd_ = -1, region_fd_ = -1, page_fd_ = -1;
    uint8_t *control_ = nullptr, *region_ = nullptr;
    uint32_t tail_ = 0, group_ = 0, epoch_ = 0;
    uint32_t generations_[slots] = {};
};

}  // namespace hostile
