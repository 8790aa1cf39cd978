// Connection: one connection to the daemon. Its handshake on the socket sets up the shared memory
// (docs/protocol/shm.md, "Handshake").
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "local_protocol.h"
#include "segment.hpp"
#include "shm/control.hpp"

namespace nexar::c {

struct ConnectOptions {
    std::string path;
    uint32_t slots = NEXAR_SHM_SLOTS_DEFAULT;
    Duration timeout{};
};

class Connection {
  public:
    static Result<std::unique_ptr<Connection>> open(const ConnectOptions& options);
    Connection() = default;
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    int fd() const { return fd_; }
    shm::ControlView control() const;
    nexar_shm_daemon_page& daemon() const { return *reinterpret_cast<nexar_shm_daemon_page*>(daemon_page_); }
    uint32_t& alive() const { return *reinterpret_cast<uint32_t*>(alive_page_); }
    const nexar_msg_welcome& welcome() const { return welcome_; }

    // Sends one packet with at most one descriptor; never blocks. False: the socket is full or closed
    // (errno).
    bool send(Bytes packet, int descriptor = -1) const;
    void send_goodbye() const;
    bool ring() const;  // the doorbell
    // Asks the daemon for a memfd of so many bytes, of which this session has one at a time: until ATTACH or
    // REGION_ADD has used it. -1: the daemon refuses, and gives its reason in the answer to that. `wait`: is
    // called with a descriptor until that is readable, or it fails.
    using Wait = std::function<Result<void>(int fd)>;
    Result<int> borrow(uint64_t bytes, const Wait& wait) const;
    void shut_down() const;  // both directions: every poll of the socket returns
    // What came before it was shut down. The daemon counts the session until it is read, or closed, and a
    // forked child may keep it open.
    void drop_unread() const;
    // Reads all packets that wait (doorbells, a refusal). True: there was one.
    bool drain() const;
    // The daemon's reason for the close, if drain() has read one; otherwise empty.
    std::string refusal_text() const;

  private:
    bool send_packet(Bytes packet, int descriptor) const;
    Result<void> dial(const ConnectOptions& options, Time until);
    Result<void> handshake(const ConnectOptions& options, Time until);
    Result<void> make_control(uint32_t slots, Time until);
    Result<void> receive(uint32_t type, void* out, size_t size, int* fds, size_t fd_count, Time until);

    int fd_ = -1;           // the socket
    MutableBytes control_;  // the control segment, mapped; empty before the handshake
    uint32_t slots_ = 0;
    void* daemon_page_ = nullptr;  // read-only
    void* alive_page_ = nullptr;   // read-only
    nexar_msg_welcome welcome_{};  // the daemon's answer: limits, node
    mutable std::mutex refusal_mutex_;
    mutable std::string refusal_text_;  // guarded by refusal_mutex_
};

}  // namespace nexar::c
