// See renewer.hpp.
#include "node/renewer.hpp"

#include <type_traits>
#include <utility>

namespace nexar::node {
namespace {

using namespace admission;

// Of one node, whatever came of them: for each the loop verifies a chain and a request, and signs.
constexpr Duration between_requests{1'000'000'000};
constexpr size_t out_max = 4096;  // replies that were not polled yet

}  // namespace

Renewer::Renewer(Identity& identity, const LeafTimes& leaf, storage::Port& port,
                 std::function<WallSeconds()> wall, Log& log, uint64_t seed)
    : identity_(&identity),
      port_(&port),
      wall_(std::move(wall)),
      log_(&log),
      renewal_(identity.node, identity.issuer.has_value(), leaf, {}, Random(seed)) {}

void Renewer::on_time(Time now, const std::vector<NodeId>& connected) {
    if (taking_) return;
    renewal_.on_time(now, wall_(), connected);
    act(now);
}

void Renewer::act(Time now) {
    while (auto action = renewal_.poll_action()) {
        std::visit(
            [&](const auto& a) {
                using A = std::decay_t<decltype(a)>;
                if constexpr (std::is_same_v<A, RenewalNote>) {
                    log_->note(a.level, a.event, a.fields);
                } else if constexpr (std::is_same_v<A, SignOwn>) {
                    sign_own(now);
                } else {
                    auto csr = make_csr(identity_->node_key);
                    if (!csr) return renewal_.on_refused(a.node, csr.error(), now);
                    log_->debug("certificate_renewal_asked", {field("node", a.node)});
                    out_.emplace_back(a.node, wire::RenewalRequest{std::move(*csr)});
                }
            },
            *action);
    }
}

void Renewer::sign_own(Time now) {
    const Issuer& issuer = *identity_->issuer;
    auto renewed = [&]() -> Result<void> {
        NEXAR_TRY(const std::string csr, make_csr(identity_->node_key));
        NEXAR_TRY(const std::string leaf,
                  sign_leaf(issuer.key, issuer.certificate, csr, wall_(), issuer.leaf_lifetime));
        return take(now, identity_->node, leaf, issuer.certificate);
    }();
    if (!renewed) renewal_.on_refused(identity_->node, renewed.error(), now);
}

// The certificate is saved before it is used, so that a restart finds the one that peers have seen.
Result<void> Renewer::take(Time now, const NodeId& from, const std::string& certificate,
                           const std::string& issuer_certificate) {
    NEXAR_TRY(const LeafTimes times,
              check_renewed(certificate, issuer_certificate, identity_->root_certificate, identity_->node,
                            renewal_.leaf(), wall_()));
    taking_ = {from, certificate, issuer_certificate, times,
               port_->save({certificate_change(certificate, issuer_certificate)})};
    step(now);
    return {};
}

void Renewer::step(Time now) {
    const storage::Outcome* outcome = taking_ ? taking_->saving.outcome() : nullptr;
    if (!outcome) return;
    const Result<void> saved = outcome->result;
    const Taking taken = std::move(*taking_);
    taking_.reset();
    // As this node's own failure: `unsupported` would mean that no issuer answered.
    if (!saved)
        return renewal_.on_refused(taken.from, {Errc::bad_certificate, saved.error().text, -1, -1, {}}, now);
    identity_->certificate = taken.certificate;
    identity_->issuer_certificate = taken.issuer_certificate;
    renewed_ = true;
    renewal_.on_renewed(taken.times, now);
    log_->info("certificate_renewed",
               {field("expires", taken.times.expires), field("left_s", taken.times.expires - wall_())});
}

bool Renewer::on_message(Time now, const NodeId& from, const quic::PeerChain& chain,
                         const wire::Message& message) {
    if (const auto* request = std::get_if<wire::RenewalRequest>(&message)) {
        if (out_.size() < out_max) out_.emplace_back(from, answer(now, from, chain, *request));
        return true;
    }
    if (const auto* reply = std::get_if<wire::RenewalReply>(&message)) {
        on_reply(now, from, *reply);
        return true;
    }
    return false;
}

void Renewer::on_reply(Time now, const NodeId& from, const wire::RenewalReply& reply) {
    if (taking_ || !renewal_.waits_for(from)) return;  // late, or never requested
    if (reply.error.code != Errc::ok) return renewal_.on_refused(from, reply.error, now);
    if (auto taken = take(now, from, reply.certificate, reply.issuer_certificate); !taken)
        renewal_.on_refused(from, {Errc::bad_certificate, taken.error().text, -1, -1, {}}, now);
}

wire::RenewalReply Renewer::answer(Time now, const NodeId& from, const quic::PeerChain& chain,
                                   const wire::RenewalRequest& request) {
    if (!identity_->issuer) return {{Errc::unsupported, "this node is no issuer", -1, -1, {}}, {}, {}};
    // Before anything of it is parsed.
    if (auto turn = take_turn(now, from); !turn) return {turn.error(), {}, {}};
    auto leaf = sign(from, chain, request.csr);
    if (leaf) {
        log_->info("certificate_signed", {field("node", from)});
        return {{}, std::move(*leaf), identity_->issuer->certificate};
    }
    log_->warn("certificate_renewal_refused", {field("node", from), field("why", leaf.error().text)});
    return {leaf.error(), {}, {}};
}

// [A8]
Result<std::string> Renewer::sign(const NodeId& from, const quic::PeerChain& chain, const std::string& csr) {
    NEXAR_TRY(const NodeId proven, verify_member(chain, identity_->root_certificate, wall_()));
    NEXAR_TRY(const NodeId wanted, node_id_of_csr(csr));
    if (proven != from || wanted != from)
        return fail(Errc::permission, "node " + from.short_hex() + " asks for a certificate of node " +
                                          wanted.short_hex() + "; it can only renew its own");
    const Issuer& issuer = *identity_->issuer;
    return sign_leaf(issuer.key, issuer.certificate, csr, wall_(), issuer.leaf_lifetime);
}

// The log has one line for each turn, since its sender chooses how many requests there are.
Result<> Renewer::take_turn(Time now, const NodeId& from) {
    std::erase_if(turns_, [&](const auto& t) { return now - t.second.begin >= between_requests; });
    const auto [turn, is_new] = turns_.try_emplace(from, Turn{now});
    if (is_new) return {};
    auto refused = fail(Errc::table_full, "this node has asked for a certificate less than a second ago");
    if (!std::exchange(turn->second.is_noted, true))
        log_->warn("certificate_renewal_refused", {field("node", from), field("why", refused.error().text)});
    return refused;
}

std::optional<std::pair<NodeId, wire::Message>> Renewer::poll_send() {
    if (out_.empty()) return std::nullopt;
    auto front = std::move(out_.front());
    out_.pop_front();
    return front;
}

}  // namespace nexar::node
