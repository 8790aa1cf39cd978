// See connection.hpp.
#include "connection.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nexar.h"
#include "segment.hpp"
#include "sleep.hpp"

namespace nexar::c {

namespace {

constexpr const char* stuck =
    " in time; it is stopped or busy: systemctl status nexard. connect_timeout_ms of the session allows more";

template <class T>
T message(uint32_t type) {
    T out{};
    out.head = {NEXAR_LOCAL_MAGIC, type};
    return out;
}
template <class T>
Bytes bytes_of(const T& value) {
    return std::as_bytes(std::span<const T>(&value, 1));
}

Result<void*> map_page(int fd) {
    void* page = ::mmap(nullptr, page_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) return fail(io_error("cannot map the daemon's page"));
    ::madvise(page, page_bytes, MADV_DONTFORK);
    return page;
}

// -1: the other end was closed.
Result<int> take_memfd(int socket) {
    char byte[sizeof(nexar_msg_head)];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{byte, sizeof byte};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return -1;
    if ((header.msg_flags & MSG_CTRUNC) != 0) {
        errno = EMFILE;
        return fail(io_error("cannot take the descriptor that the daemon sends"));
    }
    const cmsghdr* c = CMSG_FIRSTHDR(&header);
    if (c == nullptr || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) return -1;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

// Above the capacity of the socket's buffer; the daemon sends doorbells and one refusal.
constexpr int unread_max = 1024;

Error refusal(const void* packet) {
    nexar_msg_refused refused;
    std::memcpy(&refused, packet, sizeof refused);
    refused.text[sizeof refused.text - 1] = 0;
    return Error{Errc::session_refused, std::string("the daemon refused: ") + refused.text, -1, -1, {}};
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const ConnectOptions& options) {
    auto out = std::make_unique<Connection>();
    const Time until = now() + options.timeout;
    NEXAR_TRY_VOID(out->dial(options, until));
    NEXAR_TRY_VOID(out->handshake(options, until));
    return out;
}

Connection::~Connection() {
    if (!control_.empty()) ::munmap(control_.data(), control_.size());
    if (daemon_page_) ::munmap(daemon_page_, page_bytes);
    if (alive_page_) ::munmap(alive_page_, page_bytes);
    if (fd_ >= 0) ::close(fd_);
}

shm::ControlView Connection::control() const {
    return *shm::ControlView::over(control_, slots_);
}

Result<void> Connection::dial(const ConnectOptions& options, Time until) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options.path.empty() || options.path.size() >= sizeof address.sun_path)
        return fail(Errc::invalid_argument, "the socket's path is empty or too long: " + options.path);
    std::memcpy(address.sun_path, options.path.data(), options.path.size());
    fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return fail(io_error("cannot create a socket"));
    while (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED)
            return fail(Errc::not_found,
                        "no daemon listens on " + options.path +
                            "; start it (systemctl start nexard; without systemd: nexard), "
                            "or name the socket of another daemon in NEXAR_SOCKET. For a first "
                            "try without one: nexarctl dev -n 4 -- PROGRAM");
        if (errno == EACCES)
            return fail(
                io_error("this user may not use " + options.path + " (ls -l " + options.path +
                         " says who may, also of its directory; \"user_shut_out\" in the daemon's log: "
                         "more of this user's connections than it can close)"));
        if (errno == EPROTOTYPE)
            return fail(io_error(options.path +
                                 " is another kind of socket; perhaps the admin or status socket. The "
                                 "session socket is /run/nexar/nexard.sock, or what nexard's "
                                 "configuration has for socket"));
        if (errno != EAGAIN && errno != EINTR) return fail(io_error("cannot connect to " + options.path));
        // The daemon's queue of connections is full; poll(2) cannot wait for room in it.
        if (now() >= until)
            return fail(Errc::daemon_unresponsive,
                        "the daemon on " + options.path + " accepts no connections" + stuck);
        ::poll(nullptr, 0, 1);
    }
    return {};
}

// Until the descriptor is readable.
Result<void> await_daemon(int fd, Time until) {
    for (;;) {
        const Duration left = std::max(until - now(), Duration::zero());
        pollfd wait{fd, POLLIN, 0};
        const int ready = ::poll(&wait, 1, static_cast<int>(to_ms(left) + 1));
        if (ready > 0) return {};
        if (ready < 0 && errno != EINTR) return fail(io_error("cannot wait for the daemon"));
        if (now() >= until)
            return fail(Errc::daemon_unresponsive,
                        std::string("the daemon does not answer the handshake") + stuck);
    }
}

Result<void> Connection::receive(uint32_t type, void* out, size_t size, int* fds, size_t fd_count,
                                 Time until) {
    NEXAR_TRY_VOID(await_daemon(fd_, until));
    alignas(8) char packet[NEXAR_MSG_BYTES_MAX] = {};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * NEXAR_MSG_FDS_MAX)];
    iovec part{packet, sizeof packet};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got = ::recvmsg(fd_, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // When the daemon closes without reading this process's message, the kernel reports that once, before a
    // refusal that was sent.
    if (got < 0 && errno == ECONNRESET) {
        header.msg_controllen = sizeof control;
        got = ::recvmsg(fd_, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (got <= 0) return fail(Errc::daemon_lost, "the daemon closed the connection during the handshake");
    size_t found = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        found = std::min(fd_count, (c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (found > 0) std::memcpy(fds, CMSG_DATA(c), found * sizeof(int));
    }
    // The kernel drops descriptors that this process has no room for.
    if ((header.msg_flags & MSG_CTRUNC) != 0 && found < fd_count) {
        for (size_t i = 0; i < found; ++i) ::close(fds[i]);
        errno = EMFILE;
        return fail(io_error("cannot take the descriptors that the daemon sends"));
    }
    nexar_msg_head head;
    std::memcpy(&head, packet, sizeof head);
    const bool refused = head.magic == NEXAR_LOCAL_MAGIC && head.type == NEXAR_MSG_REFUSED;
    const bool expected = head.magic == NEXAR_LOCAL_MAGIC && head.type == type && found == fd_count;
    if (refused || !expected || static_cast<size_t>(got) != size) {
        for (size_t i = 0; i < found; ++i) ::close(fds[i]);
        if (refused) return fail(refusal(packet));
        return fail(Errc::protocol_error, "the process that listens there does not use nexar's protocol");
    }
    std::memcpy(out, packet, size);
    return {};
}

Result<int> Connection::borrow(uint64_t bytes, const Wait& wait) const {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(io_error("cannot create a socketpair"));
    auto wish = message<nexar_msg_lend>(NEXAR_MSG_LEND);
    wish.bytes = bytes;
    // A full socket holds doorbells, which a daemon that runs reads soon.
    constexpr int tries_max = 25'000;  // 5 s
    for (int i = 0; i < tries_max && !send(bytes_of(wish), ends[1]); ++i) {
        if (errno != EAGAIN && errno != ENOBUFS) break;
        ::usleep(200);
    }
    ::close(ends[1]);  // the daemon's: when it has closed it, too, nothing comes any more
    auto memfd = wait(ends[0]) ? take_memfd(ends[0]) : Result<int>(-1);
    ::close(ends[0]);
    return memfd;
}

Result<void> Connection::make_control(uint32_t slots, Time until) {
    const uint64_t bytes = nexar_shm_control_bytes(slots);
    NEXAR_TRY(const int memfd, borrow(bytes, [until](int fd) { return await_daemon(fd, until); }));
    if (memfd < 0) return {};  // the daemon says why
    auto mapped = map_segment(memfd, bytes);
    ::close(memfd);
    if (!mapped) return fail(mapped.error());
    control_ = *mapped;
    slots_ = slots;
    NEXAR_TRY_VOID(populate(control_));
    ::madvise(control_.data(), control_.size(), MADV_DONTFORK);
    control().initialise();
    return {};
}

Result<void> Connection::handshake(const ConnectOptions& options, Time until) {
    auto hello = message<nexar_msg_hello>(NEXAR_MSG_HELLO);
    hello.version_min = NEXAR_LOCAL_VERSION_MIN;
    hello.version_max = NEXAR_LOCAL_VERSION;
    hello.library_version = nexar_version();
    // A failed send is ignored here: the daemon may have refused and closed already, and receive() reads why.
    send(bytes_of(hello));
    int pages[2] = {-1, -1};
    NEXAR_TRY_VOID(receive(NEXAR_MSG_WELCOME, &welcome_, sizeof welcome_, pages, 2, until));
    auto daemon_page = map_page(pages[0]);
    auto alive_page = map_page(pages[1]);
    ::close(pages[0]);
    ::close(pages[1]);
    if (daemon_page) daemon_page_ = *daemon_page;
    if (alive_page) alive_page_ = *alive_page;
    if (!daemon_page || !alive_page) return fail(daemon_page ? alive_page.error() : daemon_page.error());

    auto attach = message<nexar_msg_attach>(NEXAR_MSG_ATTACH);
    attach.slots = options.slots;
    attach.control_bytes = nexar_shm_control_bytes(options.slots);
    NEXAR_TRY_VOID(make_control(options.slots, until));
    send(bytes_of(attach));
    nexar_msg_head ready;
    return receive(NEXAR_MSG_READY, &ready, sizeof ready, nullptr, 0, until);
}

// [S7]: the daemon reads the socket when these have changed, and leaves doorbells unread for a while.
bool Connection::send(Bytes packet, int descriptor) const {
    if (control_.empty()) return send_packet(packet, descriptor);
    nexar_shm_header& header = control().header();
    __atomic_fetch_add(&header.messages_begun, 1, __ATOMIC_SEQ_CST);
    const bool sent = send_packet(packet, descriptor);
    const int why = errno;
    __atomic_fetch_add(&header.messages_sent, 1, __ATOMIC_SEQ_CST);
    errno = why;
    return sent;
}

bool Connection::send_packet(Bytes packet, int descriptor) const {
    iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
    }
    ssize_t sent;
    do sent = ::sendmsg(fd_, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(packet.size());
}

void Connection::send_goodbye() const {
    const nexar_msg_head goodbye{NEXAR_LOCAL_MAGIC, NEXAR_MSG_GOODBYE};
    send(bytes_of(goodbye));
}

bool Connection::ring() const {
    const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
    return send_packet(bytes_of(doorbell), -1);
}

void Connection::shut_down() const {
    ::shutdown(fd_, SHUT_RDWR);
}

void Connection::drop_unread() const {
    char byte;
    for (int i = 0; i < unread_max; ++i)
        if (::recv(fd_, &byte, sizeof byte, MSG_DONTWAIT) <= 0) return;
}

bool Connection::drain() const {
    alignas(8) char packet[NEXAR_MSG_BYTES_MAX];
    bool any = false;
    for (int i = 0; i < unread_max; ++i) {
        const ssize_t got = ::recv(fd_, packet, sizeof packet, MSG_DONTWAIT);
        if (got < 0 && errno == ECONNRESET) continue;  // reported once, before the packets that wait
        if (got <= 0) break;
        any = true;
        nexar_msg_head head;
        std::memcpy(&head, packet, sizeof head);
        if (head.type != NEXAR_MSG_REFUSED || got != sizeof(nexar_msg_refused)) continue;
        std::lock_guard lock(refusal_mutex_);
        refusal_text_ = refusal(packet).text;
    }
    return any;
}

std::string Connection::refusal_text() const {
    std::lock_guard lock(refusal_mutex_);
    return refusal_text_;
}

}  // namespace nexar::c
