// Probes, and messages that are set apart (docs/protocol/messages.md [X2] to [X6]).
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

Error taken_back(const std::string& what, uint32_t sender) {
    return {
        Errc::aborted, what + ": rank " + std::to_string(sender) + " took its message back", sender, -1, {}};
}

void Messages::report(Recv& probe, const Offer& offer) {
    probe.matched = offer;
    finish(probe, {});
}

// [X2] No receive has taken it.
void Messages::report_to_probes(const Offer& offer) {
    if (held_recvs_ > 0 || offer.message.only_now) return;  // match_again() follows
    std::vector<Recv*> probes;
    const auto look = [&](Recv& recv) {
        ++group_.context().receives_looked_at;
        if (recv.kind == OpKind::probe && fits(recv, offer.message)) probes.push_back(&recv);
    };
    if (receives_index_.is_kept())
        receives_index_.each(ReceiveRole::probes, offer.message, UINT64_MAX, look);
    else
        for (auto& recv : recvs_) look(*recv);
    std::ranges::sort(probes, {}, &Recv::order);
    for (Recv* probe : probes) report(*probe, offer);
}

void Messages::set_apart(Recv& recv, Offer offer) {
    return_credit(offer);
    recv.apart = ++apart_numbers_;
    if (offer.local != nullptr) offer.local->apart = recv.apart;
    recv.matched = offer;
    ++apart_of_[offer.message.dst];
    apart_.emplace(recv.apart, Apart{std::move(offer)});
    finish(recv, {});
}

void Messages::no_longer_apart(uint32_t rank) {
    const auto at = apart_of_.find(rank);
    if (--at->second == 0) apart_of_.erase(at);
}

Result<Messages::AllApart::iterator> Messages::find_apart(uint32_t rank, uint64_t number) {
    const auto at = apart_.find(number);
    if (at != apart_.end() && at->second.offer.message.dst == rank) return at;
    return fail(Errc::bad_handle, "message " + std::to_string(number) + " is not set apart for rank " +
                                      std::to_string(rank) + ": it was received or freed, or never was one");
}

Messages::Offer Messages::take_apart(AllApart::iterator at) {
    Offer offer = std::move(at->second.offer);
    if (offer.local != nullptr) offer.local->apart = 0;
    no_longer_apart(offer.message.dst);
    apart_.erase(at);
    return offer;
}

Result<void> Messages::recv_apart(const LocalRank& to, const OpRequest& request, Count count) {
    NEXAR_TRY(const auto at, find_apart(to.rank, request.tag));
    const bool was_withdrawn = at->second.was_withdrawn;
    const Offer offer = take_apart(at);
    Recv& recv = add_recv(to, request, std::move(count));
    recv.source = offer.message.src;
    recv.tag = offer.message.tag;
    if (was_withdrawn)
        finish(recv, taken_back(recv.text(), offer.message.src));
    else
        begin_recv(recv, offer);
    return {};
}

Result<void> Messages::put_back(uint32_t rank, uint64_t number) {
    NEXAR_TRY(const auto at, find_apart(rank, number));
    const bool was_withdrawn = at->second.was_withdrawn;
    const Offer offer = take_apart(at);
    if (!was_withdrawn) match(offer);
    return {};
}

// Its number stays, so that its owner gets the reason.
void Messages::withdraw_apart(AllApart::iterator at) {
    Apart& apart = at->second;
    apart.was_withdrawn = true;
    if (Send* send = std::exchange(apart.offer.local, nullptr)) send->apart = 0;
}

void Messages::withdraw_apart(NodeIndex from, uint64_t number) {
    const auto at = std::ranges::find_if(apart_, [&](const auto& entry) {
        const Offer& offer = entry.second.offer;
        return offer.from == from && offer.message.number == number;
    });
    if (at != apart_.end()) withdraw_apart(at);
}

void Messages::drop_apart_to(uint32_t rank, const Error& error) {
    for (auto at = apart_.begin(); at != apart_.end();) {
        const auto next = std::next(at);
        if (at->second.offer.message.dst == rank) {
            const bool was_withdrawn = at->second.was_withdrawn;
            const Offer offer = take_apart(at);
            if (!was_withdrawn) refuse(offer, error);
        }
        at = next;
    }
}

}  // namespace nexar::engine
