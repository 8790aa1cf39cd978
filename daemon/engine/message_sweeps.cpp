// How the messages of an ended group end: some in each turn of the loop, in the order in which they were
// posted [G11]. See messages.hpp.
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void Messages::cut(const Error& error) {
    sweep({error, [this](uint32_t rank) { return group_.is_failed(rank); }, false});
}

void Messages::end_with_node(NodeIndex node, const Error& error) {
    sweep({error, [this, node](uint32_t rank) { return group_.facts.layout.node_of(rank) == node; }, true});
}

void Messages::sweep(Sweep sweep) {
    sweeps_.push_back(std::move(sweep));
    if (sweeps_.size() == 1) begin_sweep();
    group_.host().group_ending(group_.facts.id);
}

void Messages::begin_sweep() {
    next_send_ = sends_.begin();
    next_recv_ = recvs_.begin();
}

bool Messages::end_some(size_t& left) {
    for (; left > 0 && group_.failed() && !offers_.empty(); --left) {
        const Offer offer = take_offer(offers_.begin());
        if (!group_.is_failed(offer.message.src)) refuse(offer, *group_.failed());
    }
    for (; left > 0 && group_.failed() && !apart_.empty(); --left) {
        const bool was_withdrawn = apart_.begin()->second.was_withdrawn;
        const Offer offer = take_apart(apart_.begin());
        if (!was_withdrawn && !group_.is_failed(offer.message.src)) refuse(offer, *group_.failed());
    }
    for (; left > 0 && !sweeps_.empty(); --left) {
        if (next_send_ != sends_.end()) {
            end_by(sweeps_.front(), **next_send_++);
        } else if (next_recv_ != recvs_.end()) {
            end_by(sweeps_.front(), **next_recv_++);
        } else {
            sweeps_.pop_front();
            begin_sweep();
        }
    }
    return sweeps_.empty();
}

void Messages::end_by(const Sweep& sweep, Send& send) {
    if (send.waiting || sweep.lost(send.message.src) || sweep.lost(send.message.dst))
        end(send, sweep.error, sweep.notify);
}

void Messages::end_by(const Sweep& sweep, Recv& recv) {
    if (!recv.in_flight || sweep.lost(recv.rank) || sweep.lost(recv.matched->message.src))
        end(recv, sweep.error, sweep.notify ? Disposition::refuse : Disposition::drop);
}

}  // namespace nexar::engine
