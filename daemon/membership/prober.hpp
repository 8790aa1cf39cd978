// Prober: finds out whether anybody can make a round trip to a node now (docs/protocol/failure.md [F5]-[F7]).
// Both sides: asks for our own arbiter, and answers or passes on the questions of others. Sans-io.
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
    Duration deadline{250'000'000};         // Q: of a question of our own
    Duration helper_deadline{150'000'000};  // H: of one asked on behalf of another node
    Duration stall_limit{100'000'000};      // our timer came so much late: ask again
    unsigned restarts_max = 2;
    size_t questions_max = 1024;  // on behalf of each other node, at a time
};

class Prober {
  public:
    struct Answer {
        uint64_t question = 0;
        bool heard_directly = false;  // we had the round trip ourselves
        bool heard_by_other = false;
    };

    Prober(const ProbeConfig& config, const NodeId& self, Incarnation life);

    // One node, one life, asked directly and through the helpers. Answered by poll_answer() within
    // deadline * (1 + restarts_max). `prefer_direct`: an answer by a helper does not end the question.
    uint64_t ask(const NodeId& target, Incarnation life, std::vector<NodeId> helpers, bool prefer_direct,
                 Time now);
    void cancel(uint64_t question);

    void on_request(const NodeId& from, const wire::ProbeRequest& request, Time now);
    void on_reply(const NodeId& from, const wire::ProbeReply& reply, Time now);
    void on_time(Time now);

    std::optional<Outgoing> poll_send();
    std::optional<Answer> poll_answer();
    Time wake_at() const;

  private:
    struct Question {
        NodeId target;
        Incarnation life;
        std::vector<NodeId> helpers;  // ours
        bool prefer_direct = false;
        bool heard_by_other = false;
        unsigned restarts = 0;
        NodeId asker;  // not ours: whom to tell, and under which nonce
        uint64_t asker_nonce = 0;
        Time deadline;
    };
    void send_all(uint64_t nonce, const Question& question);
    void end(uint64_t nonce, bool heard_directly);

    ProbeConfig config_;
    NodeId self_;
    Incarnation life_;
    uint64_t next_nonce_ = 1;
    std::map<NodeId, size_t> foreign_;  // questions by asker
    std::map<uint64_t, Question> questions_;
    std::deque<Outgoing> sends_;
    std::deque<Answer> answers_;
};

}  // namespace nexar::membership
