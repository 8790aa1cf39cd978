// See courier.hpp.
#include "local/courier.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "local_protocol.h"
#include "loop/no_descriptor.hpp"
#include "loop/receive.hpp"

namespace nexar::local {

namespace {

// A thread waits for the processor at most, so there are more than enough.
constexpr size_t calling_threads_max = 64;
constexpr std::chrono::milliseconds pause{1};

bool is_doorbell(const Packet& packet) {
    nexar_msg_head head{};
    if (packet.kind != Packet::Kind::message || packet.size != sizeof head || !packet.fds.empty())
        return false;
    std::memcpy(&head, packet.bytes, sizeof head);
    return head.magic == NEXAR_LOCAL_MAGIC && head.type == NEXAR_MSG_BELL;
}

bool is_for_courier(const Connection& connection, const Packet& packet) {
    return connection.takes_doorbells && is_doorbell(packet);
}

bool is_readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) != 0;
}

Packet bad(std::string problem) {
    Packet out;
    out.kind = Packet::Kind::bad;
    out.problem = std::move(problem);
    return out;
}

std::vector<int> numbers_of(const std::vector<Fd>& fds) {
    std::vector<int> out;
    for (const Fd& fd : fds) out.push_back(fd.get());
    return out;
}

// What the client sent, after which it can send no more. The other end may be among it. And with something
// unread the end of the connection would be an error there, before what the daemon sent last.
void drop_unread(int connection) {
    // A message may be empty, as the end is; but only a message comes with credentials. There is no room for
    // its descriptors.
    const int on = 1;
    ::setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    for (;;) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        msghdr header{};
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        if (::recvmsg(connection, &header, MSG_DONTWAIT) < 0 || header.msg_controllen == 0) return;
    }
}

}  // namespace

struct Courier::State : std::enable_shared_from_this<State> {
    State(Fd signal, ReleaserRef releaser, size_t most, loop::Lanes calls)
        : ready_fd(std::move(signal)),
          closer(std::move(releaser)),
          unclosed_max(most),
          lanes(std::move(calls)) {}

    struct Count {
        size_t own = 0, all = 0;
    };
    // That were delivered, or are not closed yet.
    Count descriptors_of(uint64_t tenant) {
        Count out{closer->descriptors(descriptors_lane(tenant)), closer->descriptors()};
        const std::lock_guard lock(mutex);
        for (const auto& [lane, packets] : delivered)
            for (const Delivered& one : packets) {
                out.all += one.packet.fds.size();
                if (lane == tenant) out.own += one.packet.fds.size();
            }
        return out;
    }

    // Before a message is taken: so hundreds of sessions with 253 descriptors each do not take all that the
    // daemon may have. Those that are not taken are closed with the connection.
    Packet next(const Connection& connection) {
        const int fd = connection.fd.get();
        const auto [own, all] = descriptors_of(connection.tenant);
        if (own > unclosed_of_user_max && loop::brings_descriptors(fd))
            return bad("more than " + std::to_string(unclosed_of_user_max) +
                       " descriptors that this user passed are not closed yet");
        if (all > unclosed_max && loop::brings_descriptors(fd))
            return bad("more than " + std::to_string(unclosed_max) +
                       " descriptors that users passed are not closed yet");
        return receive_packet(fd);
    }

    void deliver(const Connection& connection, Packet packet) {
        {
            const std::lock_guard lock(mutex);
            delivered[connection.tenant].push_back(
                {connection.session, connection.tenant, std::move(packet)});
        }
        signal();  // the loop, which this wakes, takes the mutex
    }

    void signal() {
        const uint64_t one = 1;
        static_cast<void>(::write(ready_fd.get(), &one, sizeof one));
    }

    // Until a packet is delivered, or nothing is left and nobody has asked since.
    static void read(State& state, const ConnectionRef& connection) {
        Connection& c = *connection;
        int doorbells = std::exchange(c.goes_on, false) ? 1 : 0;
        for (; doorbells < doorbells_max && !c.hung_up;) {
            uint32_t asked = c.asked.load();
            if (c.to_end) return read_to_end(state, c);  // it was not when this began; who says so asks, too
            Packet packet = state.next(c);
            if (packet.kind == Packet::Kind::nothing_yet) {
                if (!c.asked.compare_exchange_strong(asked, 0)) continue;
                return state.look(c, doorbells);
            }
            if (is_for_courier(c, packet)) {
                ++doorbells;
                continue;
            }
            state.look(c, doorbells);
            return state.deliver(c, std::move(packet));
        }
        state.look(c, doorbells);
        if (c.hung_up) return;
        c.goes_on = true;
        std::this_thread::sleep_for(pause);
        state.add(connection, &State::read);
    }

    // The first one was there when the loop asked for this, so its ring is looked at after that. Others may
    // have come when the loop slept again, or have kept some from coming.
    void look(Connection& connection, int doorbells) {
        if (doorbells >= 2 && !connection.to_look.exchange(true)) deliver(connection, {});
    }

    static void read_to_end(State& state, Connection& c) {
        Packet end;
        end.kind = Packet::Kind::closed;
        while (!c.hung_up && --c.left_at_end > 0) {
            Packet packet = state.next(c);
            if (packet.kind == Packet::Kind::nothing_yet) break;
            if (!is_for_courier(c, packet)) return state.deliver(c, std::move(packet));
        }
        if (!c.hung_up) state.deliver(c, std::move(end));
    }

    void add(const ConnectionRef& connection, void (*call)(State&, const ConnectionRef&)) {
        lanes.add(connection->tenant, 0,
                  [state = shared_from_this(), connection, call] { call(*state, connection); });
    }

    const Fd ready_fd;
    const ReleaserRef closer;
    const size_t unclosed_max;
    loop::Lanes lanes;
    std::mutex mutex;
    std::map<uint64_t, std::deque<Delivered>> delivered;  // by tenant; no row is empty
};

Courier::Courier(std::shared_ptr<State> state) : state_(std::move(state)), lanes_(state_->lanes) {}

Result<std::unique_ptr<Courier>> Courier::open(ReleaserRef closer, size_t unclosed_max) {
    Fd signal(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!signal) return loop::fail_without_descriptor("an eventfd");
    NEXAR_TRY(loop::Lanes lanes, loop::Lanes::open(calling_threads_max));
    return std::unique_ptr<Courier>(new Courier(
        std::make_shared<State>(std::move(signal), std::move(closer), unclosed_max, std::move(lanes))));
}

void Courier::read(const ConnectionRef& connection) {
    if (connection->asked.fetch_add(1) == 0) begin(connection);
}

void Courier::resume(const ConnectionRef& connection) {
    begin(connection);
}

// Only where something is there: epoll does not report an arrival that was read before it could. So a thread
// reads nothing by itself that the loop has not seen, unless it says so (look()).
void Courier::begin(const ConnectionRef& connection) {
    if (connection->to_end || is_readable(connection->fd.get()))
        state_->add(connection, &State::read);
    else
        connection->asked = 0;  // no thread reads, so the next arrival is seen
}

void Courier::read_to_end(const ConnectionRef& connection) {
    connection->to_end = true;
    read(connection);
}

void Courier::send(const ConnectionRef& connection, std::vector<std::byte> packet, std::vector<Fd> fds) {
    lanes_.add(connection->tenant, 0, [connection, packet = std::move(packet), fds = std::move(fds)] {
        send_packet(connection->fd.get(), packet, numbers_of(fds));
    });
}

// When the socket is full, it already holds a doorbell that was not read.
void Courier::ring(const ConnectionRef& connection) {
    if (connection->rings.exchange(true)) return;
    state_->add(connection, [](State&, const ConnectionRef& c) {
        c->rings = false;
        const nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};
        send_packet(c->fd.get(), std::as_bytes(std::span(&doorbell, 1)));
    });
}

void Courier::send_last(uint64_t tenant, Fd socket, std::vector<std::byte> packet, std::vector<Fd> fds) {
    lanes_.add(tenant, 0,
               [closer = state_->closer, tenant, socket = std::move(socket), packet = std::move(packet),
                fds = std::move(fds)]() mutable {
                   send_packet(socket.get(), packet, numbers_of(fds));
                   closer->release(connections_lane(tenant), std::move(socket));
               });
}

void Courier::hang_up(ConnectionRef connection, std::move_only_function<void()> then) {
    const uint64_t tenant = connection->tenant;
    lanes_.add(
        tenant, 1,
        [connection = std::move(connection), closer = state_->closer, then = std::move(then)]() mutable {
            connection->hung_up = true;
            ::shutdown(connection->fd.get(), SHUT_RDWR);
            const uint64_t lane = connections_lane(connection->tenant);
            // It is closed there, so what is left here may not be the last reference.
            closer->release(lane,
                            {.connection = [held = std::move(connection), last = std::move(then)]() mutable {
                                drop_unread(held->fd.get());
                                last();
                            }});
        });
}

int Courier::ready_fd() const {
    return state_->ready_fd.get();
}

std::vector<Courier::Delivered> Courier::take(size_t of_user_max) {
    std::vector<Delivered> out;
    const std::lock_guard lock(state_->mutex);
    uint64_t count = 0;
    static_cast<void>(::read(state_->ready_fd.get(), &count, sizeof count));
    for (auto row = state_->delivered.begin(); row != state_->delivered.end();) {
        auto& waiting = row->second;
        for (size_t i = 0; i < of_user_max && !waiting.empty(); ++i) {
            out.push_back(std::move(waiting.front()));
            waiting.pop_front();
        }
        row = waiting.empty() ? state_->delivered.erase(row) : std::next(row);
    }
    if (!state_->delivered.empty()) state_->signal();
    return out;
}

}  // namespace nexar::local
