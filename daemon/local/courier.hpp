// Courier: makes the system calls on clients' connections, on threads [S16]. To send to a socket, to read
// from one, and to shut it down each have the kernel look at everything that waits for its peer, and a client
// may have a million epoll items wait for its end: 0.1 s for a call. Calls for one user are made one after
// the other; how long they take holds up nobody else.
//
// Thread: the control loop's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/ids.hpp"
#include "local/socket.hpp"
#include "loop/lanes.hpp"
#include "loop/releaser.hpp"

namespace nexar::local {

using loop::connections_lane;
using loop::descriptors_lane;
using loop::Releaser;
using loop::ReleaserRef;

// A connection that the server has accepted, and the courier's notes on it.
struct Connection {
    static constexpr int packets_at_end_max = 4096;  // above the capacity of a socket's buffer

    Connection(Fd accepted, uint64_t user, std::shared_ptr<const void> row = {})
        : fd(std::move(accepted)), tenant(user), tenant_row(std::move(row)) {}

    const Fd fd;
    const uint64_t tenant;
    const std::shared_ptr<const void> tenant_row;  // so that the number stays the user's
    SessionId session{};                           // before it is read
    std::atomic<uint32_t> asked{0};            // to read it; 0: no thread reads, and no packet is delivered
    std::atomic<bool> takes_doorbells{false};  // they are the courier's to read
    std::atomic<bool> to_end{false};           // its client has ended
    int left_at_end = packets_at_end_max;      // packets; somebody else may send more
    bool goes_on = false;                      // the thread was not done with it when others had their turn
    std::atomic<bool> rings{false};            // a doorbell is to be sent
    std::atomic<bool> to_look{false};          // take() has it, or will have it
    std::atomic<bool> hung_up{false};
};
using ConnectionRef = std::shared_ptr<Connection>;

class Courier {
  public:
    struct Delivered {
        SessionId session;
        uint64_t tenant = 0;
        Packet packet;
    };

    // The closer gets what is to be closed. While it has more than `unclosed_max` descriptors in all, or many
    // of one user, no packet is read that brings more.
    static Result<std::unique_ptr<Courier>> open(ReleaserRef closer, size_t unclosed_max);

    // Something has come. Doorbells are read; the first packet that is something else is delivered, also the
    // end of file, and the next one after resume(). A packet of the kind nothing_yet is delivered, to look at
    // the ring, where a doorbell was read that the loop may not have seen, or others may have found the
    // socket full [S7].
    void read(const ConnectionRef& connection);
    void resume(const ConnectionRef& connection);
    // As read(), of a process that has ended: when nothing is left, an end of file is delivered.
    void read_to_end(const ConnectionRef& connection);
    // What the socket does not take is dropped: its client reads nothing.
    void send(const ConnectionRef& connection, std::vector<std::byte> packet, std::vector<Fd> fds = {});
    void ring(const ConnectionRef& connection);  // the doorbell
    // On a socket that a client passed, which is closed then.
    void send_last(uint64_t tenant, Fd socket, std::vector<std::byte> packet, std::vector<Fd> fds);
    // Shuts it down after what was sent, and has the closer drop what its client sent and call `then`.
    // Requires: the loop has no other reference, because with the last one the connection is closed, which
    // may take as long as its client likes.
    void hang_up(ConnectionRef connection, std::move_only_function<void()> then);
    size_t to_hang_up(uint64_t tenant) const { return lanes_.weight(tenant); }
    size_t to_hang_up() const { return lanes_.weight(); }

    int ready_fd() const;  // readable while something is delivered
    // At most so many of each user.
    std::vector<Delivered> take(size_t of_user_max);

    // Until all calls are made: false after `seconds`.
    bool idle_within(unsigned seconds) const { return lanes_.idle_within(seconds); }

    static constexpr size_t unclosed_of_user_max = 256;  // an honest user's are all mapped
    // Of one connection, before others of its user have their turn, 1 ms later. Of one that rings without end
    // the lane waits, and the socket, which is full, keeps him quiet.
    static constexpr int doorbells_max = 128;

  private:
    struct State;
    explicit Courier(std::shared_ptr<State> state);
    void begin(const ConnectionRef& connection);

    std::shared_ptr<State> state_;  // also the threads'
    loop::Lanes& lanes_;            // of it
};

}  // namespace nexar::local
