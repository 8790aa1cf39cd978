// When a node asks for a new leaf, whom it asks, and how long it waits when that fails: [A8] to [A11] of
// docs/protocol/admission.md. It sends nothing and signs nothing; its owner does what the actions say. Dry:
// both clocks are handed in. One thread.
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
// Two thirds of its life.
WallSeconds renewal_due(const LeafTimes& leaf);

// What an issuer sent: for our key, of our root, valid now, and longer than what we have [A10].
Result<LeafTimes> check_renewed(const std::string& certificate, const std::string& issuer_certificate,
                                const std::string& root_certificate, const NodeId& self,
                                const LeafTimes& current, WallSeconds now);

struct RenewalConfig {
    Duration reply_timeout{5'000'000'000};
    Duration backoff_min{1'000'000'000};
    Duration backoff_max{3'600'000'000'000};
    // Clocks are set and machines sleep: the wall clock is looked at this often.
    Duration look_again{3'600'000'000'000};
};

struct AskIssuer {  // answered by on_renewed, on_refused, or by nobody
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

    // `connected`: the members that can be asked now. Which of them are issuers shows when they are asked.
    void on_time(Time now, WallSeconds wall, std::span<const NodeId> connected);
    void on_renewed(const LeafTimes& leaf, Time now);
    // `why` with the code unsupported: it is no issuer.
    void on_refused(const NodeId& from, const Error& why, Time now);
    // An answer counts only from whom was asked last.
    bool waits_for(const NodeId& node) const { return asked_ == node; }

    std::optional<RenewalAction> poll_action();
    Time wake_at() const { return wake_at_; }

    const LeafTimes& leaf() const { return leaf_; }
    unsigned failures() const { return failures_; }  // rounds in which nobody renewed it
    const std::string& why() const { return why_; }  // of the last one

  private:
    void ask_next(Time now, WallSeconds wall, std::span<const NodeId> connected);
    void round_failed(Time now, WallSeconds wall);
    Duration pause(WallSeconds wall);
    std::string nobody() const;
    void note(Level level, std::string_view event, const std::string& why, WallSeconds wall);

    NodeId self_;
    bool is_issuer_;
    LeafTimes leaf_;
    RenewalConfig config_;
    Random random_;
    std::deque<RenewalAction> actions_;
    std::optional<NodeId> asked_;
    std::optional<NodeId> last_issuer_;  // who renewed it last: asked first
    std::set<NodeId> tried_;             // in this round
    std::string complaint_;              // of this round, by somebody who is an issuer
    std::string why_;
    Time asked_until_ = never;
    Time next_round_{};
    Time wake_at_{};
    unsigned failures_ = 0;
    bool said_expired_ = false;
};

}  // namespace nexar::admission
