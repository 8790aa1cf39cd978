// See calls.hpp.
#include "control/calls.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "control/request.hpp"
#include "loop/no_descriptor.hpp"
#include "loop/receive.hpp"

namespace nexar::control {

namespace {

using Ended = Calls::Ended;
using What = Ended::What;

constexpr size_t read_bytes = 16 * 1024;

Ended receive(const Socket& socket, loop::Releaser& closer) {
    Ended out{What::broken, socket.connection, {}};
    const int fd = socket.fd.get();
    if (closer.descriptors(loop::descriptors_lane(socket.uid)) >= Calls::unclosed_of_user_max &&
        loop::brings_descriptors(fd))
        return out;
    char buffer[read_bytes];
    loop::Received got = loop::receive(fd, std::as_writable_bytes(std::span(buffer)));
    if (!got.descriptors.empty()) {  // no request has descriptors: they may be anything [S16]
        closer.release(loop::descriptors_lane(socket.uid), {.descriptors = std::move(got.descriptors)});
        return out;
    }
    if (got.bytes == 0) out.what = What::end_of_file;
    if (got.bytes > 0 || (got.bytes < 0 && errno == EAGAIN)) out.what = What::received;
    if (got.bytes > 0) out.bytes.assign(buffer, static_cast<size_t>(got.bytes));
    return out;
}

// What the socket takes.
Ended send(const Socket& socket, std::string bytes) {
    size_t written = 0;
    while (written < bytes.size()) {
        const ssize_t sent = ::send(socket.fd.get(), bytes.data() + written, bytes.size() - written,
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) written += static_cast<size_t>(sent);
        if (sent >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) return {What::broken, socket.connection, {}};
        bytes.erase(0, written);
        return {What::full, socket.connection, std::move(bytes)};
    }
    return {What::written, socket.connection, {}};
}

}  // namespace

struct Calls::State {
    State(loop::Fd signal, loop::ReleaserRef releaser)
        : ready_fd(std::move(signal)), closer(std::move(releaser)) {}

    void end(Ended call) {
        {
            const std::lock_guard lock(mutex);
            ended.push_back(std::move(call));
        }
        const uint64_t one = 1;
        static_cast<void>(::write(ready_fd.get(), &one, sizeof one));
    }

    const loop::Fd ready_fd;
    const loop::ReleaserRef closer;
    std::mutex mutex;
    std::vector<Ended> ended;
    std::map<uint32_t, size_t> to_hang_up;  // by uid; no count is 0
};

Result<std::unique_ptr<Calls>> Calls::open(size_t connections_max, loop::ReleaserRef closer) {
    loop::Fd signal(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!signal) return loop::fail_without_descriptor("an eventfd");
    NEXAR_TRY(loop::Lanes lanes, loop::Lanes::open(connections_max));
    return std::unique_ptr<Calls>(
        new Calls(std::make_shared<State>(std::move(signal), std::move(closer)), std::move(lanes)));
}

Calls::Calls(std::shared_ptr<State> state, loop::Lanes lanes)
    : state_(std::move(state)), lanes_(std::move(lanes)) {}

void Calls::read(const SocketRef& socket) {
    lanes_.add(socket->connection, 0,
               [state = state_, socket] { state->end(receive(*socket, *state->closer)); });
}

void Calls::write(const SocketRef& socket, std::string bytes) {
    lanes_.add(socket->connection, 0, [state = state_, socket, bytes = std::move(bytes)]() mutable {
        state->end(send(*socket, std::move(bytes)));
    });
}

void Calls::answer(const SocketRef& socket, Result<std::string> result) {
    lanes_.add(socket->connection, 0, [state = state_, socket, result = std::move(result)]() mutable {
        std::string line = answer_line(result);
        result = {};
        state->end(send(*socket, std::move(line)));
    });
}

void Calls::hang_up(SocketRef socket) {
    const uint64_t lane = socket->connection;
    {
        const std::lock_guard lock(state_->mutex);
        ++state_->to_hang_up[socket->uid];
    }
    lanes_.add(lane, 1, [state = state_, socket = std::move(socket)] {
        ::shutdown(socket->fd.get(), SHUT_RDWR);
        state->closer->release(loop::connections_lane(socket->uid), std::move(socket->fd));
        const std::lock_guard lock(state->mutex);
        if (--state->to_hang_up[socket->uid] == 0) state->to_hang_up.erase(socket->uid);
    });
}

size_t Calls::unclosed(uint32_t uid) const {
    const std::lock_guard lock(state_->mutex);
    const auto row = state_->to_hang_up.find(uid);
    return (row == state_->to_hang_up.end() ? 0 : row->second) +
           state_->closer->descriptors(loop::connections_lane(uid));
}

int Calls::ready_fd() const {
    return state_->ready_fd.get();
}

std::vector<Calls::Ended> Calls::take() {
    const std::lock_guard lock(state_->mutex);
    uint64_t count = 0;
    static_cast<void>(::read(state_->ready_fd.get(), &count, sizeof count));
    return std::exchange(state_->ended, {});
}

}  // namespace nexar::control
