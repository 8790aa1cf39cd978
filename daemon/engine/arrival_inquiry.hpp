// ArrivalInquiry: for a collective that is late, the nodes ask each other which ranks have arrived. This
// object has the times at which to announce, ask, log and expire, and the answers. Dry: the caller passes the
// time and sends the messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/time.hpp"
#include "engine/group_facts.hpp"

namespace nexar::engine {

class ArrivalInquiry {
  public:
    // Since the first call here; EngineConfig has the same names.
    struct Timing {
        Duration announce_after{}, late_after{}, arrival_grace{}, ask_again_max{}, announce_each{};
    };
    struct Due {
        bool announce = false;  // what was posted here, to all nodes
        bool ask = false;       // query(), to those that unasked() names
        bool log_late = false;
        bool expire = false;  // the deadline has passed, and the answers are in or late
    };

    ArrivalInquiry(const GroupFacts& facts, uint64_t seq, const Timing& timing)
        : facts_(facts), seq_(seq), timing_(timing) {}

    // The first rank here has posted; every further post may bring an earlier deadline.
    void begin(Time first_posted, Time deadline);
    Due on_time(Time now);
    Time wake_at() const;

    // The query of this collective; `nonce` is used the first time.
    wire::ArrivalQuery query(uint64_t nonce);
    bool has_asked() const { return nonce_ != 0; }
    // Marks the node as asked. False: its answer to the last query has not arrived, and is as good.
    bool ask(collectives::NodeIndex node);
    // False: not an answer to this collective's query.
    bool on_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply);
    // After a reply: an expired collective ends once all nodes have answered.
    Due all_answered();

    // By the answers: whether this rank of another node has arrived; empty: not known.
    std::optional<bool> has_arrived(uint32_t rank) const;
    std::vector<uint32_t> stalled() const;               // ranks that must move their bytes [S13]
    std::vector<collectives::NodeIndex> silent() const;  // other nodes without an answer
    bool has_announced() const { return announced_; }
    void set_announced() { announced_ = true; }

  private:
    struct Answer {
        bool asked = false;  // and the answer has not come
        std::optional<wire::ArrivalReply> reply;
    };
    enum class Late : uint8_t { no, asked, logged };
    void log_late(Due& due);
    bool is_alone() const { return facts_.nodes.size() == 1; }
    Time announce_at() const;

    const GroupFacts& facts_;
    const uint64_t seq_;
    const Timing timing_;
    Time first_posted_ = never;    // never: no rank here has posted
    Time deadline_ = never;        // the earliest of the ranks here
    std::vector<Answer> answers_;  // by NodeIndex; empty while there are none
    uint64_t nonce_ = 0;           // of its queries; 0: none yet
    bool announced_ = false;       // this node has announced the collective
    Late late_ = Late::no;         // how far a late collective has come: asked about, then logged
    Time ask_again_ = never;   // logged: then asked again, so that `nexarctl ops` shows the ranks missing now
    bool expiring_ = false;    // the deadline has passed
    Time answers_by_ = never;  // expiring: after that the collective ends
};

// "rank 3 (node 01ab…, pid 77), rank 4 (…) and 2 more"
std::string names_of(const GroupFacts& facts, const std::vector<uint32_t>& ranks);
// "…have not moved their bytes: they must call wait, test or poll"; "" for no ranks
std::string stalled_text(const GroupFacts& facts, const std::vector<uint32_t>& ranks);

}  // namespace nexar::engine
