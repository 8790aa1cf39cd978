// Prober: checks whether this node, or any helper, can make a round trip to a node now
// (docs/protocol/failure.md [F5]-[F7]). Each node has both roles: it asks questions of its own, and it
// answers the questions of other nodes or probes on their behalf. Sans-io.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>

#include "core/ids.hpp"
#include "core/time.hpp"
#include "membership/outgoing.hpp"

namespace nexar::membership {

struct ProbeConfig {
    Duration deadline{250'000'000};         // Q: of a question of this node
    Duration helper_deadline{150'000'000};  // H: of a question on behalf of another node
    Duration stall_limit{100'000'000};      // a timer that is so late means that this process was stalled
    unsigned restarts_max = 2;              // how often a stalled question is asked again [F6]
    size_t questions_max = 1024;            // in flight on behalf of each other node [F14]
};

class Prober {
  public:
    struct Answer {
        uint64_t question = 0;
        bool reached_directly = false;   // this node made the round trip
        bool reached_by_helper = false;  // a helper did
    };

    Prober(const ProbeConfig& config, const NodeId& self, Incarnation incarnation);

    enum class Asks : uint8_t {
        anyone,  // the target, and the helpers: the first that reaches it ends the question
        itself,  // the same, but a helper's answer does not end it
        helper,  // only the helper, of which there is one: its answer ends it, also a no
    };
    // Probes one incarnation of a node, directly and through the helpers. poll_answer() returns the answer
    // within deadline * (1 + restarts_max).
    uint64_t ask(const NodeId& target, Incarnation incarnation, std::vector<NodeId> helpers, Asks asks,
                 Time now);
    void cancel(uint64_t question);

    void on_request(const NodeId& from, const wire::ProbeRequest& request, Time now);
    void on_reply(const NodeId& from, const wire::ProbeReply& reply);
    void on_time(Time now);

    std::optional<Outgoing> poll_send();
    std::optional<Answer> poll_answer();
    Time wake_at() const;

    void check_invariants() const;  // for tests; walks all questions

  private:
    struct Question {
        NodeId target;
        Incarnation incarnation;  // of the target; zero: any
        std::vector<NodeId> helpers;
        Asks asks = Asks::anyone;
        bool reached_by_helper = false;  // a helper's answer has arrived
        unsigned restarts = 0;
        NodeId requester;              // zero: this node; otherwise the node that gets the answer,
        uint64_t requester_nonce = 0;  // under its own number
        Time deadline;
    };
    void send_all(uint64_t nonce, const Question& question);
    void end(uint64_t nonce, bool reached_directly);

    ProbeConfig config_;
    NodeId self_;
    Incarnation incarnation_;
    uint64_t next_nonce_ = 1;
    std::map<NodeId, size_t> foreign_;        // by requester: its questions in flight; an entry is above 0
    std::map<uint64_t, Question> questions_;  // in flight, by nonce
    std::deque<Outgoing> sends_;              // not polled yet
    std::deque<Answer> answers_;              // not polled yet
};

}  // namespace nexar::membership
