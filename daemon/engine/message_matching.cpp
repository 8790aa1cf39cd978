// Which message a receive gets: the oldest that matches, and what follows when one is taken back or given
// back.
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/local_job.hpp"
#include "engine/message_state.hpp"

namespace nexar::engine {

bool Messages::fits(const Recv& recv, const wire::MessageOffer& offer) const {
    return !recv.moving && !recv.ending && recv.wants(offer);
}

void Messages::match_recv(Recv& recv) {
    if (held_ > 0) return;  // match_again() follows
    const auto it = std::ranges::find_if(offers_, [&](const Offer& o) { return fits(recv, o.words); });
    if (it != offers_.end()) {
        const Offer offer = *it;
        offers_.erase(it);
        return take(recv, offer);
    }
    // What a rank sent before it ended has been offered before that was said.
    if (const auto gone = no_sender_left(recv, false)) end(recv, *gone);
}

void Messages::hold(Recv& recv) {
    if (!std::exchange(recv.holds, true)) ++held_;
}

// What was taken back is out of the receives' memory, and what was given back is in offers_ again. A receive
// that was passed while it was receiving can have nothing more: the order would be wrong.
void Messages::match_again() {
    std::vector<std::pair<Recv*, Error>> over;
    for (auto& recv : recvs_)
        if (recv->retry && overtaken(*recv))
            over.emplace_back(recv.get(),
                              Error{Errc::aborted,
                                    recv->text() + ": rank " + std::to_string(recv->taken->words.src) +
                                        " took its message back when a later receive had got another",
                                    recv->taken->words.src,
                                    -1,
                                    {}});
    for (auto& [recv, error] : over) finish(*recv, error);
    for (auto& recv : recvs_)
        if (std::exchange(recv->retry, false)) recv->taken.reset();
    for (const Offer& offer : std::exchange(offers_, {})) match(offer);
    end_without_sender();
}

bool Messages::overtaken(const Recv& recv) const {
    const auto is_this = [&](const auto& other) { return other.get() == &recv; };
    return recv.passed ||
           std::any_of(std::ranges::find_if(recvs_, is_this), recvs_.end(),
                       [&](const auto& later) { return later->moving && recv.wants(later->taken->words); });
}

// Nothing while a rank is left that may still send what this receive waits for. A rank that is alone from
// the beginning may send to itself.
std::optional<Error> Messages::no_sender_left(const Recv& recv, bool waited) const {
    if (recv.source != any_rank) return group_.gone_error(recv.source, waited);
    const uint32_t size = group_.facts.size();
    if (size == 1 || group_.gone().size() + 1 < size) return {};
    std::optional<Error> last;
    for (uint32_t rank = 0; rank < size; ++rank) {
        if (rank == recv.rank) continue;
        last = group_.gone_error(rank, waited);
        if (!last) return {};
    }
    last->text = recv.text() + ": all other ranks have left the group; " + last->text;
    return last;
}

void Messages::arrive(Offer offer) {
    offer.place = ++arrivals_;
    match(offer);
}

void Messages::match(const Offer& offer) {
    if (held_ == 0)
        for (auto& recv : recvs_)
            if (fits(*recv, offer.words)) return take(*recv, offer);
    if (held_ == 0 && offer.words.only_now)
        return refuse(offer, {Errc::timed_out,
                              "rank " + std::to_string(offer.words.dst) + " is not waiting for tag " +
                                  std::to_string(offer.words.tag) + " from rank " +
                                  std::to_string(offer.words.src) + ", and the send does not wait",
                              offer.words.dst,
                              -1,
                              {}});
    offers_.push_back(offer);
}

Error Messages::unfit(const Recv& recv, const wire::MessageOffer& offer) const {
    if (offer.bytes > recv.capacity)
        return {Errc::mismatch,  // as nexar.h says: they do not agree on what they do
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

void Messages::take(Recv& recv, Offer offer) {
    return_credit(offer);
    recv.taken = offer;
    if (const Error error = unfit(recv, offer.words); error.code != Errc::ok) {
        refuse(offer, error);
        return finish(recv, error);
    }
    if (offer.words.bytes == 0 && offer.local != nullptr) {
        finish(*offer.local, {});
        return finish(recv, {});
    }
    recv.moving = true;
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
    const link::Class cls = class_of(offer.words.bytes);
    link::Batch batch;
    batch.first_handle = context.allot_handles(1);
    context.expect(batch.first_handle, recv);
    batch.recvs.push_back({{key(offer.words.number), 0},
                           facts.peers[offer.from.value],
                           cls,
                           agreement(offer.words),
                           memory_of(recv.out, offer.words.bytes, recv.nothing),
                           facts.table.chunk_bytes,
                           {},
                           {},
                           offer.begun});
    context.ports.meshes[context.mesh_for(cls, offer.words.number, facts.bulk_shards)]->post(
        std::move(batch));
}

void Messages::start_copy(Recv& recv, Send& send) {
    send.moving = true;
    send.copied_by = &recv;
    WorkerJob job;
    job.dsts = {{{recv.out.data, send.words.bytes}}};
    job.srcs = {{{send.in.data, send.words.bytes}}};
    for (const Buffer* buffer : {&recv.out, &send.in})
        if (buffer->keepalive) job.keepalive.push_back(buffer->keepalive);
    group_.context().submit_job(std::move(job), recv);
}

void Messages::refuse(Offer offer, const Error& error) {
    if (offer.local != nullptr) return end(*offer.local, error, false);
    return_credit(offer);
    withdraw(offer.words.number);  // what has come of it already is dropped
    group_.to_node(offer.from, wire::MessageRefused{group_.facts.id, offer.words.number, error});
}

}  // namespace nexar::engine
