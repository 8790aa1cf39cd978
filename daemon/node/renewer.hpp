// Renewer: renews this node's leaf and, on an issuer, signs the renewals of other nodes, over the members'
// control connections (docs/protocol/admission.md). admission::Renewal decides when; this class has the keys,
// the files and the messages.
//
// Thread: the control loop's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "admission/renewal.hpp"
#include "core/log.hpp"
#include "node/identity.hpp"
#include "quic/config.hpp"
#include "wire/messages.hpp"

namespace nexar::node {

class Renewer {
  public:
    // `identity` is changed when a renewal has succeeded.
    Renewer(Identity& identity, const admission::LeafTimes& leaf, storage::Port& port,
            std::function<WallSeconds()> wall, Log& log, uint64_t seed);

    void on_time(Time now, const std::vector<NodeId>& connected);
    void step(Time now);  // Requires: called in each turn
    // `from`, `chain`: as the connection's handshake proved them. False: the message is not about renewals.
    bool on_message(Time now, const NodeId& from, const quic::PeerChain& chain, const wire::Message& message);
    std::optional<std::pair<NodeId, wire::Message>> poll_send();
    // True once after every renewal: new connections must show identity.certificate.
    bool take_renewed() { return std::exchange(renewed_, false); }
    Time wake_at() const { return taking_ ? never : renewal_.wake_at(); }

    const admission::Renewal& renewal() const { return renewal_; }

  private:
    void act(Time now);
    void sign_own(Time now);
    void on_reply(Time now, const NodeId& from, const wire::RenewalReply& reply);
    Result<void> take(Time now, const NodeId& from, const std::string& certificate,
                      const std::string& issuer_certificate);
    wire::RenewalReply answer(Time now, const NodeId& from, const quic::PeerChain& chain,
                              const wire::RenewalRequest& request);
    Result<std::string> sign(const NodeId& from, const quic::PeerChain& chain, const std::string& csr);
    Result<> take_turn(Time now, const NodeId& from);  // table_full: it had one less than a second ago

    // A leaf that was accepted and is being saved [K10].
    struct Taking {
        NodeId from;
        std::string certificate, issuer_certificate;
        admission::LeafTimes times;
        storage::Saving saving;
    };

    // A node's one request of a second.
    struct Turn {
        Time begin{};
        bool is_noted = false;  // the log has a line of a further one
    };

    Identity* identity_;
    storage::Port* port_;
    std::function<WallSeconds()> wall_;
    Log* log_;
    admission::Renewal renewal_;
    std::optional<Taking> taking_;
    std::deque<std::pair<NodeId, wire::Message>> out_;  // not polled yet
    std::map<NodeId, Turn> turns_;                      // younger than a second
    bool renewed_ = false;                              // since take_renewed()
};

}  // namespace nexar::node
