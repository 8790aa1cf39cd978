// When a node asks for a new leaf, which node it asks, and how long it waits after a failure: [A8] to [A11]
// of docs/protocol/admission.md. It neither sends nor signs; its owner carries out the actions. Dry: the
// caller passes both clocks. Thread: one.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "admission/certificates.hpp"
#include "core/log.hpp"
#include "core/random.hpp"

namespace nexar::admission {

struct LeafTimes {
    WallSeconds issued = 0;  // without the backdating
    WallSeconds expires = 0;
};
Result<LeafTimes> leaf_times(const std::string& certificate_pem);
// After two thirds of its lifetime.
WallSeconds renewal_due(const LeafTimes& leaf);

// Checks what an issuer sent: for this node's key, of this cluster's root, valid now, and valid for longer
// than `current` [A10].
Result<LeafTimes> check_renewed(const std::string& certificate, const std::string& issuer_certificate,
                                const std::string& root_certificate, const NodeId& self,
                                const LeafTimes& current, WallSeconds now);

struct RenewalConfig {
    Duration reply_timeout{5'000'000'000};
    Duration backoff_min{1'000'000'000};
    Duration backoff_max{3'600'000'000'000};
    // How often the wall clock is read: clocks are set, and machines sleep.
    Duration look_again{3'600'000'000'000};
};

struct AskIssuer {  // answered by on_renewed, by on_refused, or not at all
    NodeId node;
};
struct SignOwn {};    // this node is an issuer; answered by on_renewed or on_refused
struct RenewalNote {  // for the log
    Level level;
    std::string_view event;
    std::vector<std::pair<std::string, std::string>> fields;
};
using RenewalAction = std::variant<AskIssuer, SignOwn, RenewalNote>;

class Renewal {
  public:
    Renewal(const NodeId& self, bool is_issuer, const LeafTimes& leaf, const RenewalConfig& config,
            Random random);

    // `connected`: the members that can be asked now. Only an answer shows whether a member is an issuer.
    void on_time(Time now, WallSeconds wall, std::span<const NodeId> connected);
    void on_renewed(const LeafTimes& leaf, Time now);
    // `why` with the code unsupported: `from` is no issuer.
    void on_refused(const NodeId& from, const Error& why, Time now);
    // Only the node that was asked last may answer.
    bool waits_for(const NodeId& node) const { return asked_ == node; }

    std::optional<RenewalAction> poll_action();
    Time wake_at() const { return wake_at_; }

    const LeafTimes& leaf() const { return leaf_; }
    unsigned failures() const { return failures_; }  // rounds in which no issuer renewed the leaf
    const std::string& why() const { return why_; }  // of the last failed round

  private:
    void ask_next(Time now, WallSeconds wall, std::span<const NodeId> connected);
    void round_failed(Time now, WallSeconds wall);
    Duration pause(WallSeconds wall);
    std::string no_issuer_text() const;
    void note(Level level, std::string_view event, const std::string& why, WallSeconds wall);

    NodeId self_;
    bool is_issuer_;
    LeafTimes leaf_;
    RenewalConfig config_;
    Random random_;
    std::deque<RenewalAction> actions_;  // not polled yet
    std::optional<NodeId> asked_;        // the node whose answer is awaited; nothing: none
    std::optional<NodeId> last_issuer_;  // renewed the leaf last, and is asked first; nothing: none yet
    std::set<NodeId> tried_;             // asked in this round
    std::string complaint_;              // an issuer's reason in this round; empty: no issuer refused
    std::string why_;                    // the last failed round's reason; empty since a renewal
    Time asked_until_ = never;           // the deadline of asked_'s answer
    Time next_round_{};                  // no member is asked earlier
    Time wake_at_{};                     // see wake_at()
    unsigned failures_ = 0;              // failed rounds since the last renewal
    bool expiry_reported_ = false;       // certificate_expired was logged for this leaf
};

}  // namespace nexar::admission
