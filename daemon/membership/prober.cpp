// See prober.hpp.
#include "membership/prober.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::membership {

Prober::Prober(const ProbeConfig& config, const NodeId& self, Incarnation incarnation)
    : config_(config), self_(self), incarnation_(incarnation) {}

uint64_t Prober::ask(const NodeId& target, Incarnation incarnation, std::vector<NodeId> helpers, Asks asks,
                     Time now) {
    const uint64_t nonce = next_nonce_++;
    Question& question = questions_[nonce];
    question.target = target;
    question.incarnation = incarnation;
    question.helpers = std::move(helpers);
    question.asks = asks;
    question.deadline = now + config_.deadline;
    send_all(nonce, question);
    return nonce;
}

void Prober::send_all(uint64_t nonce, const Question& question) {
    const wire::ProbeRequest request{nonce, question.target, question.incarnation};
    if (question.asks != Asks::helper) sends_.push_back({question.target, request});
    for (const NodeId& helper : question.helpers)
        if (helper != self_ && helper != question.target) sends_.push_back({helper, request});
}

void Prober::cancel(uint64_t question) {
    questions_.erase(question);
}

void Prober::on_request(const NodeId& from, const wire::ProbeRequest& request, Time now) {
    if (request.target == self_) {
        const bool is_same = request.incarnation == Incarnation{} || request.incarnation == incarnation_;
        sends_.push_back({from, wire::ProbeReply{request.nonce, is_same}});
        return;
    }
    size_t& of_requester = foreign_[from];
    if (of_requester >= config_.questions_max) return;  // [F14]
    ++of_requester;
    const uint64_t nonce = next_nonce_++;
    Question& question = questions_[nonce];
    question.target = request.target;
    question.incarnation = request.incarnation;
    question.requester = from;
    question.requester_nonce = request.nonce;
    question.deadline = now + config_.helper_deadline;
    send_all(nonce, question);
}

void Prober::on_reply(const NodeId& from, const wire::ProbeReply& reply) {
    const auto at = questions_.find(reply.nonce);
    if (at == questions_.end()) return;  // late, or invented
    Question& question = at->second;
    // From the target: a "no" means that another incarnation answers, which ends the question too [F7].
    if (from == question.target && question.asks != Asks::helper) return end(reply.nonce, reply.reached);
    if (std::find(question.helpers.begin(), question.helpers.end(), from) == question.helpers.end()) return;
    question.reached_by_helper |= reply.reached;
    if (question.asks == Asks::helper || (question.asks == Asks::anyone && reply.reached))
        end(reply.nonce, false);
}

void Prober::end(uint64_t nonce, bool reached_directly) {
    const auto at = questions_.find(nonce);
    const Question& question = at->second;
    if (question.requester.is_zero()) {
        answers_.push_back({nonce, reached_directly, question.reached_by_helper});
    } else {
        if (--foreign_.at(question.requester) == 0) foreign_.erase(question.requester);
        sends_.push_back({question.requester, wire::ProbeReply{question.requester_nonce, reached_directly}});
    }
    questions_.erase(at);
}

void Prober::on_time(Time now) {
    std::vector<uint64_t> over;
    for (auto& [nonce, question] : questions_) {
        if (now < question.deadline) continue;
        const bool stalled = now > question.deadline + config_.stall_limit;
        if (!stalled || !question.requester.is_zero() || question.restarts >= config_.restarts_max) {
            over.push_back(nonce);
            continue;
        }
        // This process was stalled, and the answers may still be in its sockets [F6].
        ++question.restarts;
        question.deadline = now + config_.deadline;
        send_all(nonce, question);
    }
    for (const uint64_t nonce : over) end(nonce, false);
}

std::optional<Outgoing> Prober::poll_send() {
    if (sends_.empty()) return std::nullopt;
    Outgoing out = std::move(sends_.front());
    sends_.pop_front();
    return out;
}

std::optional<Prober::Answer> Prober::poll_answer() {
    if (answers_.empty()) return std::nullopt;
    const Answer out = answers_.front();
    answers_.pop_front();
    return out;
}

void Prober::check_invariants() const {
    std::map<NodeId, size_t> foreign;
    for (const auto& [nonce, question] : questions_) {
        NEXAR_CHECK(nonce < next_nonce_);
        NEXAR_CHECK(question.restarts <= config_.restarts_max);
        NEXAR_CHECK(question.deadline != never);
        if (!question.requester.is_zero()) ++foreign[question.requester];
    }
    NEXAR_CHECK(foreign == foreign_);
    for (const auto& [requester, count] : foreign_) NEXAR_CHECK(count <= config_.questions_max);
}

Time Prober::wake_at() const {
    Time next = never;
    for (const auto& [nonce, question] : questions_) next = std::min(next, question.deadline);
    return next;
}

}  // namespace nexar::membership
