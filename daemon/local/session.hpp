// Session: one client's connection: the handshake, the socket, and a SessionCore behind them. It owns the
// connection's descriptors and mappings; its Server drives it.
//
// Thread: the control loop's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "local/alive.hpp"
#include "local/courier.hpp"
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
    Courier* courier = nullptr;
    ReleaserRef closer;         // in lanes as the courier's
    bool* any_ended = nullptr;  // set when a session ends
};

// A connection that the server has accepted.
struct Client {
    ConnectionRef connection;
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

    void on_packet(Time now, Packet packet);  // the next one, or the end of file
    void on_process_ended();                  // the pidfd; the end of file comes when all was read
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
    const ConnectionRef& connection() const { return client_.connection; }
    int pidfd() const { return client_.process.pidfd.get(); }
    bool ready() const { return state_ == State::ready && !ended_; }
    SessionCore* core() { return core_.get(); }
    // Of what came to its socket: it need not be read at once when it can only be doorbells.
    bool may_have_sent_messages() { return !ready() || core_->may_have_sent_messages(); }

  private:
    enum class State { expects_hello, expects_attach, mapping, ready };
    static constexpr size_t rest_at_once_max = 8;  // entries of a client that has ended

    void handle(Time now, Packet& packet);
    uint64_t lane() const { return client_.tenant->number; }  // of memory, and of other things as above
    void on_message(Time now, Packet& packet);
    Result<void> on_hello(const Packet& packet);
    Result<void> on_attach(Packet& packet);
    Result<void> on_ready_packet(Time now, uint32_t type, Packet& packet);
    Result<void> on_region_add(Packet& packet);
    Result<void> on_lend(Packet& packet);
    Result<void> check_wish(const nexar_msg_lend& wish) const;
    void lend(uint64_t bytes, Fd answer, bool waits);
    void refuse_loan(Fd answer, Error why);
    void on_made(Mapper::Mapped made);
    void take_back();
    Result<Mapper::Wanted> region_memory(const nexar_msg_region_add& add, Packet& packet);
    Result<Mapper::Wanted> memory_of(Packet& packet, uint64_t bytes);
    Result<void> attach(const Result<std::shared_ptr<Mapping>>& control);
    void end_with_rest(Time now, Error crash);
    size_t take_rest(Time now, size_t entries_max);
    void end_by_client(Time now, Error crash);
    void wake_all(uint32_t* word) override;
    void ring_doorbell() override;

    SessionId id_;
    Client client_;
    SessionHost host_;
    Time handshake_until_;  // the session ends when it is not ready by then
    State state_ = State::expects_hello;
    std::unique_ptr<AliveWord> alive_;   // null before HELLO
    std::optional<int> alive_number_;    // its page's, in the mapper's list of what clients have
    std::optional<Mapping::Lent> lent_;  // since the last LEND, and not used yet
    bool lending_ = false;               // the last LEND is not answered yet
    uint64_t wish_ = 0;                  // bytes of it, until there was a look at what was returned
    Fd wish_answer_;                     // of the same
    std::optional<Error> not_lent_;      // why the last LEND was refused; none: it was not
    uint32_t slots_ = 0;                 // that the client has asked for
    std::shared_ptr<Mapping> control_;   // the control segment; null before it is mapped
    std::unique_ptr<SessionCore> core_;  // null before that
    std::optional<Error> ended_;         // the reason, once the session has ended
    std::optional<Error> ending_;        // its client has ended; entries that came before are left
    size_t rest_ = 0;                    // at most so many
    bool goodbye_received_ = false;
    bool process_ended_ = false;
};

}  // namespace nexar::local
