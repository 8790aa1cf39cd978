// See prober.hpp.
#include "membership/prober.hpp"

#include <algorithm>

namespace nexar::membership {

Prober::Prober(const ProbeConfig& config, const NodeId& self, Incarnation life)
    : config_(config), self_(self), life_(life) {}

uint64_t Prober::ask(const NodeId& target, Incarnation life, std::vector<NodeId> helpers, bool prefer_direct,
                     Time now) {
    const uint64_t nonce = next_nonce_++;
    Question& question = questions_[nonce];
    question.target = target;
    question.life = life;
    question.helpers = std::move(helpers);
    question.prefer_direct = prefer_direct;
    question.deadline = now + config_.deadline;
    send_all(nonce, question);
    return nonce;
}

void Prober::send_all(uint64_t nonce, const Question& question) {
    const wire::ProbeRequest request{nonce, question.target, question.life};
    sends_.push_back({question.target, request});
    for (const NodeId& helper : question.helpers)
        if (helper != self_ && helper != question.target) sends_.push_back({helper, request});
}

void Prober::cancel(uint64_t question) {
    questions_.erase(question);
}

void Prober::on_request(const NodeId& from, const wire::ProbeRequest& request, Time now) {
    if (request.target == self_) {
        const bool same_life = request.incarnation == Incarnation{} || request.incarnation == life_;
        sends_.push_back({from, wire::ProbeReply{request.nonce, same_life, 0}});
        return;
    }
    size_t& of_asker = foreign_[from];
    if (of_asker >= config_.questions_max) return;  // [F14]
    ++of_asker;
    const uint64_t nonce = next_nonce_++;
    Question& question = questions_[nonce];
    question.target = request.target;
    question.life = request.incarnation;
    question.asker = from;
    question.asker_nonce = request.nonce;
    question.deadline = now + config_.helper_deadline;
    send_all(nonce, question);
}

void Prober::on_reply(const NodeId& from, const wire::ProbeReply& reply, Time) {
    const auto at = questions_.find(reply.nonce);
    if (at == questions_.end()) return;  // late, or not ours
    Question& question = at->second;
    // From the target: a "no" means that another life of it answers, which ends the question too [F7].
    if (from == question.target) return end(reply.nonce, reply.heard);
    if (!reply.heard ||
        std::find(question.helpers.begin(), question.helpers.end(), from) == question.helpers.end())
        return;
    question.heard_by_other = true;
    if (!question.prefer_direct) end(reply.nonce, false);
}

void Prober::end(uint64_t nonce, bool heard_directly) {
    const auto at = questions_.find(nonce);
    const Question& question = at->second;
    if (question.asker.is_zero()) {
        answers_.push_back({nonce, heard_directly, question.heard_by_other});
    } else {
        if (--foreign_.at(question.asker) == 0) foreign_.erase(question.asker);
        sends_.push_back({question.asker, wire::ProbeReply{question.asker_nonce, heard_directly, 0}});
    }
    questions_.erase(at);
}

void Prober::on_time(Time now) {
    std::vector<uint64_t> over;
    for (auto& [nonce, question] : questions_) {
        if (now < question.deadline) continue;
        const bool stalled = now > question.deadline + config_.stall_limit;
        if (!stalled || !question.asker.is_zero() || question.restarts >= config_.restarts_max) {
            over.push_back(nonce);
            continue;
        }
        // We slept through the answers: they may be in our sockets still [F6].
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

Time Prober::wake_at() const {
    Time next = never;
    for (const auto& [nonce, question] : questions_) next = std::min(next, question.deadline);
    return next;
}

}  // namespace nexar::membership
