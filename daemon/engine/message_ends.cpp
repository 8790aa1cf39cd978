// Messages: the end of sends and receives: completion, cancellation, a rank that leaves, the end of the
// group. See messages.hpp.
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void Messages::keep_offer(const Offer& offer) {
    const auto at = offers_.emplace(offer.arrival, offer).first;
    if (offer.local != nullptr) offer.local->offer_at = at;
    if (offers_index_.is_kept()) {
        offers_index_.add(offer.message, offer.arrival);
    } else if (offers_.size() >= OfferIndex::kept_from) {
        offers_index_.begin();
        for (const auto& [arrival, each] : offers_) offers_index_.add(each.message, arrival);
    }
}

Messages::Offer Messages::take_offer(Offers::iterator at) {
    const Offer offer = at->second;
    if (offer.local != nullptr) offer.local->offer_at.reset();
    offers_.erase(at);
    if (offers_index_.is_kept()) offers_index_.remove(offer.message, offer.arrival);
    if (offers_.empty()) offers_index_.end();
    return offer;
}

Messages::Offers Messages::take_offers() {
    for (const auto& [arrival, offer] : offers_)
        if (offer.local != nullptr) offer.local->offer_at.reset();
    offers_index_.end();
    return std::exchange(offers_, {});
}

void Messages::drop_offer_of(const Send& send) {
    if (send.offer_at) take_offer(*send.offer_at);
    if (send.apart != 0) withdraw_apart(apart_.find(send.apart));
}

void Messages::end(Send& send, const Error& error, bool notify) {
    if (send.end_error) return;
    if (send.copied_by != nullptr) return;  // the copy completes soon
    send.end_error = error;
    send.wake_at(never);
    drop_offer_of(send);
    if (send.waiting) {
        stop_waiting(send);
        return finish(send, error);
    }
    if (notify && send.to != group_.facts.self) {
        const wire::MessageWithdraw message{group_.facts.id, send.message.number};
        const std::vector<std::byte> bytes = wire::encode(message);
        group_.context().ports.peers.append(group_.facts.peers[send.to.value], bytes,
                                            send.room.spend(bytes.size()));
    }
    if (send.in_mesh) return withdraw(send.message.number);  // on_completed() follows
    finish(send, error);
}

void Messages::end(Recv& recv, const Error& error, Disposition disposition) {
    if (recv.end_error) return;
    if (recv.in_flight && recv.matched->local != nullptr) return;  // the copy completes soon
    recv.end_error = error;
    recv.wake_at(never);
    if (!recv.in_flight) return finish(recv, error);
    recv.disposition = disposition;  // on_completed() follows, and may still report success
    const uint64_t number = recv.matched->message.number;
    if (disposition != Disposition::rematch) return withdraw(number);
    hold(recv);
    for (MeshPort* mesh : group_.context().ports.meshes) mesh->retract(key(number));
}

void Messages::finish_early(Recv& recv) {
    // A later receive has got a newer message: a rematch of this one would be out of order.
    if (recv.disposition == Disposition::rematch && is_overtaken(recv))
        recv.disposition = Disposition::refuse;
    if (recv.disposition == Disposition::rematch && !recv.was_withdrawn) {
        requeue(*recv.matched);
    } else if (recv.disposition == Disposition::refuse) {
        const Error reason{
            Errc::aborted, "the receiving rank gave up: " + recv.end_error->text, recv.rank, -1, {}};
        refuse(*recv.matched, reason);
    }
    finish(recv, *recv.end_error);
}

void Messages::requeue(Offer offer) {
    if (const auto gone = group_.departure_error(offer.message.dst, true)) return refuse(offer, *gone);
    if (group_.failed()) return;
    offer.was_begun = true;
    keep_offer(offer);
}

void Messages::on_completed(Send& send, const Result<void>& result) {
    send.in_mesh = false;
    if (result) return finish(send, {});
    if (send.end_error) return finish(send, *send.end_error);
    if (const auto& failed = group_.failed()) return finish(send, *failed);
    group_.transfer_lost(result.error());  // the cut ends this send
}

void Messages::on_completed(Recv& recv, const Result<void>& result) {
    if (recv.matched->local != nullptr) {
        Send* send = recv.matched->local;
        send->copied_by = nullptr;
        finish(*send, recv.copy_error);
        return finish(recv, std::move(recv.copy_error));
    }
    const bool held = std::exchange(recv.is_held, false);
    recv.in_flight = false;
    transferred(recv, result);
    if (held && --held_recvs_ == 0) match_again();
}

void Messages::transferred(Recv& recv, const Result<void>& result) {
    if (result) return finish(recv, {});
    if (recv.end_error) return finish_early(recv);
    if (recv.was_withdrawn && recv.kind == OpKind::mrecv)
        return finish(recv, taken_back(recv.text(), recv.matched->message.src));
    if (result.error().code == Errc::mismatch) {  // a transfer that could not be posted
        refuse(*recv.matched, result.error());
        return finish(recv, result.error());
    }
    if (recv.was_withdrawn && recv.only_now) {
        recv.timeout = OpRequest::only_now;
        return recv.on_time();
    }
    if (const auto& failed = group_.failed()) return finish(recv, *failed);
    if (recv.was_withdrawn) return reindex(recv);
    recv.matched.reset();
    reindex(recv);
    group_.transfer_lost(result.error());
}

void Messages::finish(Send& send, Error error) {
    drop_offer_of(send);
    const SessionId session = send.session;
    const uint64_t ticket = send.ticket;
    if (next_send_ == send.at) ++next_send_;
    no_longer_offered(send);
    sends_by_ticket_.removed(sends_, send);
    sends_.erase(send.at);
    group_.complete(session, ticket, Outcome{.error = std::move(error)});
    group_.run_changed();
}

void Messages::finish(Recv& recv, Error error) {
    Outcome outcome{.error = std::move(error)};
    if (outcome.error.code == Errc::ok) {
        outcome.bytes = recv.matched->message.bytes;
        outcome.source = recv.matched->message.src;
        outcome.tag = recv.matched->message.tag;
        outcome.message = recv.apart;
        if (recv.kind == OpKind::recv || recv.kind == OpKind::mprobe) mark_overtaken(recv);
    }
    const SessionId session = recv.session;
    const uint64_t ticket = recv.ticket;
    if (next_recv_ == recv.at) ++next_recv_;
    drop_rows(recv);
    if (recv.kind == OpKind::mprobe) no_longer_apart(recv.rank);
    recvs_by_ticket_.removed(recvs_, recv);
    recvs_.erase(recv.at);
    index_receives();
    group_.complete(session, ticket, std::move(outcome));
    group_.run_changed();
}

void Messages::on_rank_gone(uint32_t rank) {
    if (const auto& failed = group_.failed())
        return sweep({*failed, [rank](uint32_t r) { return r == rank; }, false});
    end_unoffered(rank, any_rank,
                  {Errc::closed, "its rank left before the receiver had granted a credit", rank, -1, {}});
    const auto gone = group_.departure_error(rank, true);
    if (!gone) return;
    std::vector<Offer> unwanted;
    for (auto at = offers_.begin(); at != offers_.end();) {
        const auto offer = at++;
        if (offer->second.message.dst == rank) unwanted.push_back(take_offer(offer));
    }
    for (const Offer& offer : unwanted) refuse(offer, *gone);
    drop_apart_to(rank, *gone);
    end_unoffered(any_rank, rank, *gone);
    std::vector<Recv*> own;
    for (auto& recv : recvs_)
        if (!recv->in_flight && recv->rank == rank) own.push_back(recv.get());
    for (Recv* recv : own) end(*recv, *gone);
    end_without_sender();
}

void Messages::end_without_sender() {
    if (held_recvs_ > 0) return;  // match_again() may find messages for them
    std::vector<std::pair<Recv*, Error>> over;
    for (auto& recv : recvs_)
        if (!recv->in_flight)
            if (const auto error = no_sender_left(*recv, true)) over.emplace_back(recv.get(), *error);
    for (auto& [recv, error] : over) end(*recv, error);
}

void Messages::fail_all(const Error& error) {
    take_offers();
    while (!apart_.empty()) take_apart(apart_.begin());
    std::vector<Send*> sends;
    std::vector<Recv*> recvs;
    for (auto& send : sends_) sends.push_back(send.get());
    for (auto& recv : recvs_) recvs.push_back(recv.get());
    for (Send* send : sends) end(*send, error, false);
    for (Recv* recv : recvs) end(*recv, error, Disposition::drop);
}

}  // namespace nexar::engine
