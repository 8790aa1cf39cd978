// Session: one client's connection: the handshake, the socket, and a SessionCore behind them. It owns the
// connection's descriptors and mappings; its Server drives it.
//
// Thread: the control loop's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "local/alive.hpp"
#include "local/mapper.hpp"
#include "local/session_core.hpp"
#include "local/socket.hpp"

namespace nexar::local {

// The server's objects and settings that every session uses.
struct SessionHost {
    engine::Service* service = nullptr;
    RobustList* robust = nullptr;
    int daemon_page_fd = -1;
    NodeId node;
    SessionLimits limits;
    SessionCore::Sabotage sabotage;
    CrowdWaker* waker = nullptr;
    MappingHost mapping;
    Mapper* mapper = nullptr;
    ReleaserRef closer;         // in lanes as below
    bool* any_ended = nullptr;  // set when a session ends
};

// A user's lanes of the closer. What nobody has read of a connection is closed without a call of its file
// system's, so these never wait for long, and connections of a user whose descriptors are stuck go on being
// closed [S16].
constexpr uint64_t connections_lane(uint64_t tenant) {
    return 2 * tenant;
}
constexpr uint64_t descriptors_lane(uint64_t tenant) {
    return 2 * tenant + 1;
}

// A connection that the server has accepted.
struct Client {
    Fd connection;
    PeerProcess process;
    TenantRef tenant;
    ChargeRef charge;  // for the session
};

class Session final : private Waker {
  public:
    Session(SessionId id, Client client, const SessionHost& host, Time handshake_until);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    void on_readable(Time now);       // the connection; takes a bounded number of packets
    void on_process_ended(Time now);  // the pidfd
    void on_mapped(Time now, Mapper::Mapped mapped);
    void on_time(Time now);          // the handshake's deadline
    void end_if_given_up(Time now);  // [S15]
    void end_if_faulted(Time now);   // [S18]
    // Handles submitted entries, at most so many; returns how many.
    size_t drain(Time now, size_t entries_max);
    bool has_work() const { return (ending_ && !ended_) || (core_ && core_->has_work()); }
    Time wake_at() const { return state_ == State::ready || ended_ ? never : handshake_until_; }

    // Ends the session: sends the reason to the client if the socket takes it, and reports the end to the
    // engine if the session was ready.
    void end(Time now, engine::SessionEnd how, Error why);
    bool ended() const { return ended_.has_value(); }
    std::optional<Error> fault() const;  // of memory that it has; the session is to end with it
    const Error& why() const { return *ended_; }

    SessionId id() const { return id_; }
    Tenant& tenant() const { return *client_.tenant; }
    uint32_t pid() const { return client_.process.pid; }
    int connection() const { return client_.connection.get(); }
    int pidfd() const { return client_.process.pidfd.get(); }
    bool ready() const { return state_ == State::ready && !ended_; }
    SessionCore* core() { return core_.get(); }

  private:
    enum class State { expects_hello, expects_attach, mapping, ready };
    static constexpr int packets_per_turn_max = 4;
    static constexpr size_t unclosed_max = 256;      // descriptors of a user; an honest one's are all mapped
    static constexpr int packets_at_end_max = 4096;  // above the capacity of a socket's buffer
    static constexpr size_t rest_at_once_max = 8;    // entries of a client that has ended

    void handle(Time now, Packet& packet);
    uint64_t lane() const { return client_.tenant->number; }  // of memory, and of other things as above
    size_t unclosed() const { return host_.closer->descriptors(descriptors_lane(lane())); }
    bool passes_too_many() const;
    Error too_many_unclosed() const;
    void on_packet(Time now, Packet& packet);
    Result<void> on_hello(const Packet& packet);
    Result<void> on_attach(Packet& packet);
    Result<void> on_ready_packet(Time now, uint32_t type, Packet& packet);
    Result<void> on_region_add(Packet& packet);
    Result<void> on_lend(Packet& packet);
    Result<SessionCore::Charges> charge_loan(const nexar_msg_lend& wish, int answer) const;
    void on_made(Mapper::Mapped made);
    void take_back();
    Result<Mapper::Wanted> region_memory(const nexar_msg_region_add& add, Packet& packet);
    Result<Mapper::Wanted> memory_of(Packet& packet, uint64_t bytes);
    Result<void> attach(const Result<std::shared_ptr<Mapping>>& control);
    void end_with_rest(Time now, Error crash);
    size_t take_rest(Time now, size_t entries_max);
    void drain_socket(Time now);
    void end_by_client(Time now, Error crash);
    void wake_all(uint32_t* word) override;
    void ring_doorbell() override;

    SessionId id_;
    Client client_;
    SessionHost host_;
    Time handshake_until_;  // the session ends when it is not ready by then
    State state_ = State::expects_hello;
    std::unique_ptr<AliveWord> alive_;   // null before HELLO
    std::optional<Mapping::Lent> lent_;  // since the last LEND, and not used yet
    bool lending_ = false;               // the last LEND is not answered yet
    std::optional<Error> not_lent_;      // why the last LEND was refused; none: it was not
    uint32_t slots_ = 0;                 // that the client has asked for
    std::shared_ptr<Mapping> control_;   // the control segment; null before it is mapped
    std::unique_ptr<SessionCore> core_;  // null before that
    std::optional<Error> ended_;         // the reason, once the session has ended
    std::optional<Error> ending_;        // its client has ended; entries that came before are left
    size_t rest_ = 0;                    // at most so many
    bool goodbye_received_ = false;
};

}  // namespace nexar::local
