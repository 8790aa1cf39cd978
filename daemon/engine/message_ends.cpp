// Messages: how sends and receives end, by themselves, with a rank, or with the group. See messages.hpp.
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void Messages::drop_offer_of(const Send& send) {
    std::erase_if(offers_, [&](const Offer& o) { return o.local == &send; });
}

void Messages::end(Send& send, const Error& error, bool tell) {
    if (send.ending) return;
    if (send.copied_by != nullptr) return;  // the copy ends by itself, soon
    send.ending = error;
    send.wake_at(never);
    drop_offer_of(send);
    if (send.waiting) {
        stop_waiting(send);
        return finish(send, error);
    }
    if (tell && send.to != group_.facts.self) {
        const wire::MessageWithdraw words{group_.facts.id, send.words.number};
        const std::vector<std::byte> bytes = wire::encode(words);
        group_.context().ports.peers.append(group_.facts.peers[send.to.value], bytes,
                                            send.room.spend(bytes.size()));
    }
    if (send.transfer) return withdraw(send.words.number);  // over() follows
    finish(send, error);
}

void Messages::end(Recv& recv, const Error& error, Rest rest) {
    if (recv.ending) return;
    if (recv.moving && recv.taken->local != nullptr) return;  // the copy ends by itself, soon
    recv.ending = error;
    recv.wake_at(never);
    if (!recv.moving) return finish(recv, error);
    recv.rest = rest;  // over() follows, and may still say that it went well
    const uint64_t number = recv.taken->words.number;
    if (rest != Rest::given_back) return withdraw(number);
    hold(recv);
    for (MeshPort* mesh : group_.context().ports.meshes) mesh->retract(key(number));
}

void Messages::ended_early(Recv& recv) {
    // After a newer one that a later receive has got, the message would be out of order.
    if (recv.rest == Rest::given_back && overtaken(recv)) recv.rest = Rest::refused;
    if (recv.rest == Rest::given_back && !recv.retry) {
        give_back(*recv.taken);
    } else if (recv.rest == Rest::refused) {
        const Error told{
            Errc::aborted, "the receiving rank gave up: " + recv.ending->text, recv.rank, -1, {}};
        refuse(*recv.taken, told);
    }
    finish(recv, *recv.ending);
}

void Messages::give_back(Offer offer) {
    if (const auto gone = group_.gone_error(offer.words.dst, true)) return refuse(offer, *gone);
    if (group_.failed()) return;
    offer.begun = true;
    offers_.insert(std::ranges::find_if(offers_, [&](const Offer& o) { return o.place > offer.place; }),
                   offer);
}

void Messages::on_over(Send& send, const Result<void>& result) {
    send.transfer = false;
    if (result) return finish(send, {});
    if (send.ending) return finish(send, *send.ending);
    if (const auto& failed = group_.failed()) return finish(send, *failed);
    group_.transfer_lost(result.error());  // the group's end ends it
}

void Messages::on_over(Recv& recv, const Result<void>& result) {
    if (recv.taken->local != nullptr) {
        Send* send = recv.taken->local;
        send->copied_by = nullptr;
        finish(*send, recv.spoiled);
        return finish(recv, recv.spoiled);
    }
    const bool held = std::exchange(recv.holds, false);
    recv.moving = false;
    transferred(recv, result);
    if (held && --held_ == 0) match_again();
}

void Messages::transferred(Recv& recv, const Result<void>& result) {
    if (result) return finish(recv, {});
    if (recv.ending) return ended_early(recv);
    if (result.error().code == Errc::mismatch) {  // a transfer that could not be begun
        refuse(*recv.taken, result.error());
        return finish(recv, result.error());
    }
    if (recv.retry && recv.only_now) {
        recv.timeout = OpRequest::only_now;
        return recv.on_time();
    }
    if (const auto& failed = group_.failed()) return finish(recv, *failed);
    if (recv.retry) return;
    recv.taken.reset();
    group_.transfer_lost(result.error());
}

void Messages::finish(Send& send, Error error) {
    drop_offer_of(send);
    const SessionId session = send.session;
    const uint64_t ticket = send.ticket;
    std::erase_if(sends_, [&](const auto& s) { return s.get() == &send; });
    group_.complete(session, ticket, Outcome{.error = std::move(error)});
    group_.run_changed();
}

void Messages::finish(Recv& recv, Error error) {
    Outcome outcome{.error = error};
    if (error.code == Errc::ok) {
        outcome.bytes = recv.taken->words.bytes;
        outcome.source = recv.taken->words.src;
        outcome.tag = recv.taken->words.tag;
        for (auto& earlier : recvs_) {
            if (earlier.get() == &recv) break;
            earlier->passed = earlier->passed || earlier->wants(recv.taken->words);
        }
    }
    const SessionId session = recv.session;
    const uint64_t ticket = recv.ticket;
    std::erase_if(recvs_, [&](const auto& r) { return r.get() == &recv; });
    group_.complete(session, ticket, std::move(outcome));
    group_.run_changed();
}

void Messages::on_rank_gone(uint32_t rank) {
    if (const auto& failed = group_.failed())
        return end_with(*failed, [&](uint32_t r) { return r == rank; }, false);
    end_never_offered(rank, any_rank,
                      {Errc::closed, "its rank left before the receiver had granted a credit", rank, -1, {}});
    const auto gone = group_.gone_error(rank, true);
    if (!gone) return;
    std::vector<Offer> unwanted;
    std::erase_if(offers_, [&](const Offer& o) {
        if (o.words.dst == rank) unwanted.push_back(o);
        return o.words.dst == rank;
    });
    for (const Offer& offer : unwanted) refuse(offer, *gone);
    end_never_offered(any_rank, rank, *gone);
    std::vector<Recv*> own;
    for (auto& recv : recvs_)
        if (!recv->moving && recv->rank == rank) own.push_back(recv.get());
    for (Recv* recv : own) end(*recv, *gone);
    end_without_sender();
}

void Messages::end_without_sender() {
    if (held_ > 0) return;  // there may be messages that match_again() gives them
    std::vector<std::pair<Recv*, Error>> over;
    for (auto& recv : recvs_)
        if (!recv->moving)
            if (const auto error = no_sender_left(*recv, true)) over.emplace_back(recv.get(), *error);
    for (auto& [recv, error] : over) end(*recv, error);
}

// Everything with a lost rank, and what a receive has not been found for. `tell`: the other side may be
// there, and has to end its half as well.
template <class Lost>
void Messages::end_with(const Error& error, Lost lost, bool tell) {
    std::vector<Send*> sends;
    std::vector<Recv*> recvs;
    for (auto& send : sends_)
        if (send->waiting || lost(send->words.src) || lost(send->words.dst)) sends.push_back(send.get());
    for (auto& recv : recvs_)
        if (!recv->moving || lost(recv->rank) || lost(recv->taken->words.src)) recvs.push_back(recv.get());
    for (Send* send : sends) end(*send, error, tell);
    for (Recv* recv : recvs) end(*recv, error, tell ? Rest::refused : Rest::dropped);
}

void Messages::cut(const Error& error) {
    const auto lost = [this](uint32_t rank) { return group_.is_out(rank); };
    for (Offer& offer : std::exchange(offers_, {}))
        if (!lost(offer.words.src)) refuse(offer, error);
    end_with(error, lost, false);
}

void Messages::end_with_node(NodeIndex node, const Error& error) {
    end_with(error, [&](uint32_t rank) { return group_.facts.layout.node_of(rank) == node; }, true);
}

void Messages::fail_all(const Error& error) {
    offers_.clear();
    std::vector<Send*> sends;
    std::vector<Recv*> recvs;
    for (auto& send : sends_) sends.push_back(send.get());
    for (auto& recv : recvs_) recvs.push_back(recv.get());
    for (Send* send : sends) end(*send, error, false);
    for (Recv* recv : recvs) end(*recv, error, Rest::dropped);
}

}  // namespace nexar::engine
