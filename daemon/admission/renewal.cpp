#include "admission/renewal.hpp"

#include <algorithm>

#include "admission/openssl.hpp"

namespace nexar::admission {
namespace {

constexpr unsigned doublings_max = 16;

Result<WallSeconds> seconds_of(const ASN1_TIME* time) {
    int days = 0, seconds = 0;
    std::unique_ptr<ASN1_TIME, Free<ASN1_TIME_free>> epoch(ASN1_TIME_set(nullptr, 0));
    if (ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1)
        return openssl_failed(Errc::bad_certificate, "reading a date of a certificate");
    return WallSeconds{days} * 86400 + seconds;
}

Duration seconds_until(WallSeconds then, WallSeconds now) {
    return Duration(std::max<WallSeconds>(0, then - now) * 1'000'000'000);
}

}  // namespace

Result<LeafTimes> leaf_times(const std::string& certificate_pem) {
    NEXAR_TRY(auto cert, read_certificate(certificate_pem));
    LeafTimes times;
    NEXAR_TRY(const WallSeconds begins, seconds_of(X509_get0_notBefore(cert.get())));
    NEXAR_TRY(times.expires, seconds_of(X509_get0_notAfter(cert.get())));
    times.issued = std::min(begins + backdate_seconds, times.expires);
    return times;
}

WallSeconds renewal_due(const LeafTimes& leaf) {
    return leaf.issued + (leaf.expires - leaf.issued) * 2 / 3;
}

Result<LeafTimes> check_renewed(const std::string& certificate, const std::string& issuer_certificate,
                                const std::string& root_certificate, const NodeId& self,
                                const LeafTimes& current, WallSeconds now) {
    DerChain chain;
    for (const std::string* pem : {&certificate, &issuer_certificate}) {
        NEXAR_TRY(auto der, der_of_pem(*pem));
        chain.push_back(std::move(der));
    }
    NEXAR_TRY(const NodeId node, verify_member(chain, root_certificate, now));
    if (node != self)
        return fail(Errc::bad_certificate, "the new certificate is for node " + node.short_hex() +
                                               ", not for this one, " + self.short_hex());
    NEXAR_TRY(const LeafTimes times, leaf_times(certificate));
    if (times.expires <= current.expires)
        return fail(Errc::bad_certificate,
                    "the new certificate ends no later than the present one: the issuer's clock is behind, "
                    "its certificate_lifetime is shorter, or its own certificate ends");
    return times;
}

Renewal::Renewal(const NodeId& self, bool is_issuer, const LeafTimes& leaf, const RenewalConfig& config,
                 Random random)
    : self_(self), is_issuer_(is_issuer), leaf_(leaf), config_(config), random_(random) {}

void Renewal::on_time(Time now, WallSeconds wall, std::span<const NodeId> connected) {
    if (wall > leaf_.expires && !std::exchange(expiry_reported_, true))
        note(Level::error, "certificate_expired",
             "all other nodes refuse connections with this one from now on", wall);
    if (wall < renewal_due(leaf_)) {
        wake_at_ = now + std::min(seconds_until(renewal_due(leaf_), wall), config_.look_again);
        return;
    }
    if (asked_ && now >= asked_until_)
        on_refused(*asked_, {Errc::timed_out, "no answer came", -1, -1, {}}, now);
    if (asked_ && *asked_ != self_ && std::ranges::find(connected, *asked_) == connected.end())
        on_refused(*asked_, {Errc::peer_lost, "its connection was lost", -1, -1, {}}, now);
    if (!asked_ && now >= next_round_) ask_next(now, wall, connected);
    wake_at_ = asked_ ? asked_until_ : next_round_;
    if (!expiry_reported_) wake_at_ = std::min(wake_at_, now + seconds_until(leaf_.expires + 1, wall));
}

// Asks each connected member once: the last issuer first, the others in random order. Most members are no
// issuer, and such a member refuses at once.
void Renewal::ask_next(Time now, WallSeconds wall, std::span<const NodeId> connected) {
    std::vector<NodeId> left;
    if (is_issuer_) left.push_back(self_);
    for (const NodeId& node : connected)
        if (!is_issuer_ && node != self_) left.push_back(node);
    std::erase_if(left, [&](const NodeId& node) { return tried_.contains(node); });
    if (left.empty()) return round_failed(now, wall);
    const bool again = last_issuer_ && std::ranges::find(left, *last_issuer_) != left.end();
    asked_ = again ? *last_issuer_ : left[random_.below(left.size())];
    asked_until_ = now + config_.reply_timeout;
    tried_.insert(*asked_);
    if (is_issuer_)
        actions_.emplace_back(SignOwn{});
    else
        actions_.emplace_back(AskIssuer{*asked_});
}

std::string Renewal::no_issuer_text() const {
    return tried_.empty() ? "this node is connected to no other node"
                          : "none of the " + std::to_string(tried_.size()) + " connected nodes is an issuer";
}

void Renewal::round_failed(Time now, WallSeconds wall) {
    why_ = complaint_.empty() ? no_issuer_text() : complaint_;
    ++failures_;
    next_round_ = now + pause(wall);
    tried_.clear();
    complaint_.clear();
    note(wall > leaf_.expires ? Level::error : Level::warn, "certificate_renewal_failed", why_, wall);
}

// Doubles up to an hour, and leaves at least eight rounds until the expiry [A9]. The jitter spreads the
// rounds of nodes that lost the same issuer.
Duration Renewal::pause(WallSeconds wall) {
    Duration wait = config_.backoff_min;
    for (unsigned i = 1; i < std::min(failures_, doublings_max) && wait < config_.backoff_max; ++i) wait *= 2;
    wait = std::min(wait, config_.backoff_max);
    const auto quarter = static_cast<uint64_t>(wait.count() / 4);
    wait += Duration(static_cast<int64_t>(random_.below(2 * quarter + 1)) - static_cast<int64_t>(quarter));
    if (wall < leaf_.expires) wait = std::min(wait, seconds_until(leaf_.expires, wall) / 8);
    return std::max(wait, config_.backoff_min);
}

void Renewal::on_refused(const NodeId& from, const Error& why, Time now) {
    if (asked_ != from) return;
    asked_.reset();
    next_round_ = wake_at_ = now;  // the next member at once
    if (why.code != Errc::unsupported)
        complaint_ = (from == self_ ? "this issuer" : "node " + from.short_hex()) + ": " + why.text;
}

void Renewal::on_renewed(const LeafTimes& leaf, Time now) {
    last_issuer_ = std::exchange(asked_, std::nullopt);
    leaf_ = leaf;
    failures_ = 0;
    why_.clear();
    complaint_.clear();
    tried_.clear();
    expiry_reported_ = false;
    // A pause, also for a leaf that is due again already (a short lifetime, a clock that is ahead).
    next_round_ = now + config_.backoff_min;
    wake_at_ = now;
}

void Renewal::note(Level level, std::string_view event, const std::string& why, WallSeconds wall) {
    actions_.emplace_back(RenewalNote{level,
                                      event,
                                      {{"why", why},
                                       {"failures", std::to_string(failures_)},
                                       {"left_s", std::to_string(leaf_.expires - wall)}}});
}

std::optional<RenewalAction> Renewal::poll_action() {
    if (actions_.empty()) return std::nullopt;
    RenewalAction out = std::move(actions_.front());
    actions_.pop_front();
    return out;
}

}  // namespace nexar::admission
