// Matching: a receive gets the oldest message that fits. Also what follows when a sender withdraws a matched
// message, or a receive returns one.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/group.hpp"
#include "engine/local_job.hpp"
#include "engine/message_state.hpp"

namespace nexar::engine {

bool Messages::fits(const Recv& recv, const wire::MessageOffer& offer) const {
    return !recv.in_flight && !recv.end_error && recv.kind != OpKind::mrecv && recv.wants(offer);
}

// A send that does not wait needs a receive that does [X6].
bool Messages::takes(const Recv& recv, const wire::MessageOffer& offer) const {
    return fits(recv, offer) && recv.kind != OpKind::probe &&
           !(recv.kind == OpKind::mprobe && offer.only_now);
}

void Messages::take(Recv& recv, Offer offer) {
    recv.kind == OpKind::mprobe ? set_apart(recv, std::move(offer)) : begin_recv(recv, std::move(offer));
}

Messages::Offers::iterator Messages::oldest_for(const Recv& recv) {
    const auto good = [&](const Offer& o) {
        ++group_.context().offers_looked_at;
        return recv.kind == OpKind::probe ? fits(recv, o.message) && !o.message.only_now
                                          : takes(recv, o.message);
    };
    if (!offers_index_.is_kept())
        return std::ranges::find_if(offers_, [&](const auto& each) { return good(each.second); });
    return offers_.find(
        offers_index_.oldest(recv.wanted(), [&](uint64_t arrival) { return good(offers_.at(arrival)); }));
}

void Messages::match_recv(Recv& recv) {
    if (held_recvs_ > 0) return;  // match_again() follows
    if (const auto it = oldest_for(recv); it != offers_.end()) {
        if (recv.kind == OpKind::probe) return report(recv, it->second);
        return take(recv, take_offer(it));
    }
    // Sends of a rank are offered before its departure is announced, so none is missed here.
    if (const auto gone = no_sender_left(recv, false)) end(recv, *gone);
}

void Messages::hold(Recv& recv) {
    if (!std::exchange(recv.is_held, true)) ++held_recvs_;
}

// Withdrawn messages are out of the receives' memory, and returned ones are in offers_ again. A receive that
// was overtaken meanwhile ends: any message that it could match now would be out of order.
void Messages::match_again() {
    std::vector<std::pair<Recv*, Error>> over;
    for (auto& recv : recvs_)
        if (recv->was_withdrawn && is_overtaken(*recv))
            over.emplace_back(recv.get(),
                              Error{Errc::aborted,
                                    recv->text() + ": rank " + std::to_string(recv->matched->message.src) +
                                        " took its message back when a later receive had got another",
                                    recv->matched->message.src,
                                    -1,
                                    {}});
    for (auto& [recv, error] : over) finish(*recv, error);
    for (auto& recv : recvs_) {
        if (!std::exchange(recv->was_withdrawn, false)) continue;
        recv->matched.reset();
        reindex(*recv);
    }
    if (group_.failed()) return;  // they end
    for (const auto& [arrival, offer] : take_offers()) match(offer);
    end_without_sender();
}

// One of a message that was set apart never is: that message was out of the order.
bool Messages::is_overtaken(const Recv& recv) const {
    if (recv.kind == OpKind::mrecv) return false;
    return recv.overtaken ||
           std::any_of(Recvs::const_iterator(recv.at), recvs_.end(), [&](const auto& later) {
               return later->in_flight && later->kind == OpKind::recv && recv.wants(later->matched->message);
           });
}

// Empty while a rank is in the group that may still send a message for this receive. In a group of one rank,
// that rank may send to itself.
std::optional<Error> Messages::no_sender_left(const Recv& recv, bool waited) const {
    if (recv.source != any_rank) return group_.departure_error(recv.source, waited);
    const uint32_t size = group_.facts.size();
    if (size == 1 || group_.departed().size() + 1 < size) return {};
    std::optional<Error> last;
    for (uint32_t rank = 0; rank < size; ++rank) {
        if (rank == recv.rank) continue;
        last = group_.departure_error(rank, waited);
        if (!last) return {};
    }
    last->text = recv.text() + ": all other ranks have left the group; " + last->text;
    return last;
}

void Messages::arrive(Offer offer) {
    offer.arrival = ++arrivals_;
    match(offer);
}

// The first posted one that takes it; null: none does.
Messages::Recv* Messages::oldest_receive(const wire::MessageOffer& offer) {
    uint64_t& looks = group_.context().receives_looked_at;
    const auto good = [&](const Recv& recv) { return ++looks, takes(recv, offer); };
    if (receives_index_.is_kept()) return receives_index_.oldest(offer, good);
    const auto at = std::ranges::find_if(recvs_, [&](const auto& recv) { return good(*recv); });
    return at == recvs_.end() ? nullptr : at->get();
}

void Messages::match(const Offer& offer) {
    if (held_recvs_ == 0)
        if (Recv* recv = oldest_receive(offer.message)) return take(*recv, offer);
    if (held_recvs_ == 0 && offer.message.only_now)
        return refuse(offer, {Errc::timed_out,
                              "rank " + std::to_string(offer.message.dst) + " is not waiting for tag " +
                                  std::to_string(offer.message.tag) + " from rank " +
                                  std::to_string(offer.message.src) + ", and the send does not wait",
                              offer.message.dst,
                              -1,
                              {}});
    // At its place: it may have been set apart, and be older than others.
    keep_offer(offer);
    report_to_probes(offer);
}

Error Messages::mismatch_of(const Recv& recv, const wire::MessageOffer& offer) const {
    if (offer.bytes > recv.capacity)
        return {Errc::mismatch,  // nexar.h: the two ranks do not agree on the operation
                "the message of " + std::to_string(offer.bytes) + " bytes from rank " +
                    std::to_string(offer.src) + " does not fit the receive of " +
                    std::to_string(recv.capacity) + " bytes by rank " + std::to_string(recv.rank),
                recv.rank,
                offer.src,
                {}};
    if (offer.dtype != uint8_t(recv.dtype))
        return {Errc::mismatch,
                "rank " + std::to_string(offer.src) + " sent elements of " +
                    std::string(reduce::name_of(Dtype(offer.dtype))) + ", rank " + std::to_string(recv.rank) +
                    " receives " + std::string(reduce::name_of(recv.dtype)),
                recv.rank,
                offer.src,
                {}};
    return {};
}

void Messages::begin_recv(Recv& recv, Offer offer) {
    return_credit(offer);
    recv.matched = offer;
    if (const Error error = mismatch_of(recv, offer.message); error.code != Errc::ok) {
        refuse(offer, error);
        return finish(recv, error);
    }
    if (offer.message.bytes == 0 && offer.local != nullptr) {
        finish(*offer.local, {});
        return finish(recv, {});
    }
    recv.in_flight = true;
    reindex(recv);
    if (recv.only_now) {  // the message is here: its transfer has the usual time
        recv.timeout = group_.facts.timeouts.collective;
        recv.wake_at(deadline(recv.timeout));
    }
    if (offer.local != nullptr)
        start_copy(recv, *offer.local);
    else
        start_transfer(recv, offer);
}

void Messages::start_transfer(Recv& recv, const Offer& offer) {
    const GroupFacts& facts = group_.facts;
    Context& context = group_.context();
    const Class cls = class_of(offer.message.bytes);
    link::Batch batch;
    batch.first_handle = context.allot_handles(1);
    context.expect(batch.first_handle, recv);
    batch.recvs.push_back(
        {{key(offer.message.number), 0},
         facts.peers[offer.from.value],
         cls,
         agreement(offer.message),
         memory_of(recv.out, recv.pieces, offer.message.bytes, recv.placeholder, context.scratch),
         facts.table.chunk_bytes,
         {},
         {},
         offer.was_begun});
    const size_t mesh = context.mesh_for(cls, offer.message.bytes, offer.message.number, facts.bulk_shards);
    context.ports.meshes[mesh]->post(std::move(batch));
}

// Small messages in one piece need no job: to make its lists costs more than the copy.
bool Messages::copy_at_once(const Recv& recv, const Send& send) {
    const uint64_t bytes = send.message.bytes;
    if (recv.pieces || send.pieces || !runs_at_once(2 * bytes)) return false;
    std::memmove(recv.out.place().resolve(), send.in.place().resolve(), bytes);
    return true;
}

void Messages::start_copy(Recv& recv, Send& send) {
    send.in_flight = true;
    send.copied_by = &recv;
    if (copy_at_once(recv, send)) return recv.on_completed({});
    WorkerJob job;
    job.dsts.push_back(extents_of(recv.out, recv.pieces, send.message.bytes));
    job.srcs.push_back(extents_of(send.in, send.pieces, send.message.bytes));
    job.origin = group_.work_origin(send.account, send.session);
    job.origin.priority = send.priority;  // the receive's decides nothing [K21]
    group_.context().submit_job(std::move(job), recv);
}

void Messages::refuse(Offer offer, const Error& error) {
    if (offer.local != nullptr) return end(*offer.local, error, false);
    return_credit(offer);
    withdraw(offer.message.number);  // what has come of it already is dropped
    group_.to_node(offer.from, wire::MessageRefused{group_.facts.id, offer.message.number, error});
}

}  // namespace nexar::engine
