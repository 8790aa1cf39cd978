// JoinServer and Joiner: the issuer's and the joiner's side of joining a cluster, over ALPN nexar-join
// (docs/protocol/admission.md).
//
// Thread: the control loop's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/log.hpp"
#include "node/identity.hpp"
#include "node/token_ledger.hpp"
#include "quic/endpoint.hpp"
#include "transport/quic_port.hpp"

namespace nexar::node {

constexpr size_t join_message_bytes_max = 64 * 1024;

// One connection's messages on the control stream, each with its length (u32) before it.
class JoinStream final : public quic::Receiver {
  public:
    void on_bytes(Class cls, Bytes bytes) override;
    std::optional<std::vector<std::byte>> poll();
    bool broken() const { return broken_; }
    static void write(quic::Connection& conn, Bytes message);

  private:
    std::vector<std::byte> in_;  // received and not polled; at most one message and its length
    bool broken_ = false;        // the peer broke the format: nothing more is polled
};

// The issuer's side: each connection has one request, one reply and a deadline.
class JoinServer {
  public:
    JoinServer(const Identity& identity, TokenLedger& tokens, std::function<WallSeconds()> wall, Log& log)
        : identity_(&identity), tokens_(&tokens), wall_(std::move(wall)), log_(&log) {}

    // Later events of a connection do not carry its ALPN; this function recognizes a join connection.
    bool has(quic::ConnId conn) const { return connections_.contains(conn); }
    void on_event(Time now, const quic::Event& event, quic::Endpoint& endpoint);
    void step(Time now, quic::Endpoint& endpoint);
    Time wake_at() const;

  private:
    struct Joining {
        JoinStream stream;
        quic::Address remote;  // for the log
        Time until;            // the connection is closed then, unless its token's use is being saved
        std::string csr;       // of the request
        std::optional<storage::Saving>
            use;             // of the token [A5]; none: no request has come, or it was answered
        bool asked = false;  // further requests are ignored
    };
    void on_request(Time now, quic::Connection& conn, Joining& joining, Bytes request);
    Result<storage::Saving> use_token(quic::Connection& conn, Joining& joining, Bytes request);
    void answer(Time now, quic::Connection& conn, Joining& joining, Result<void> used);
    Result<admission::JoinReply> admit(const std::string& csr);

    const Identity* identity_;
    TokenLedger* tokens_;
    std::function<WallSeconds()> wall_;
    Log* log_;
    std::map<quic::ConnId, Joining> connections_;  // from the event `connected` to the event `closed`
};

// The joiner's side: dials the token's addresses in turn until an issuer admits or refuses this node, or the
// deadline passes.
class Joiner {
  public:
    static Result<std::unique_ptr<Joiner>> start(const admission::Token& token, const Secret& node_key,
                                                 const std::string& hostname,
                                                 std::function<WallSeconds()> wall, Time now);
    // none: in progress. Nothing of the identity is on disk.
    std::optional<Result<Identity>> step(Time now);
    Time wake_at() const;
    int fd() const { return port_->fd(); }
    const std::string& issuer_address() const { return address_; }
    const std::string& last_failure() const { return last_failure_; }

  private:
    Joiner(const admission::Token& token, std::string hostname, std::function<WallSeconds()> wall, Time now);
    void dial(Time now);
    void schedule_redial(Time now);
    void on_unreachable(Time now, const quic::Address& address);
    void ask(quic::Connection& conn);

    admission::Token token_;
    std::string hostname_;
    std::function<WallSeconds()> wall_;
    Time until_;       // the deadline of the whole join
    Secret key_;       // this node's key
    std::string csr_;  // the request to certify it
    std::unique_ptr<transport::QuicPort> port_;
    JoinStream stream_;                 // of conn_
    std::optional<quic::ConnId> conn_;  // the dial in progress or its connection; none: wait for redial_at_
    quic::Address dialled_;             // by conn_
    bool connected_ = false;            // conn_ has completed its handshake
    Time redial_at_;
    size_t next_address_ = 0;  // counts dials; modulo the number of addresses
    std::string address_;      // the last one dialled, as the token has it
    std::string last_failure_ = "no answer";
};

}  // namespace nexar::node
