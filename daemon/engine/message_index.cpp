// The index of the receives of Messages: which rows a receive has, and when there are rows at all [K33].
#include "engine/group.hpp"
#include "engine/message_state.hpp"

namespace nexar::engine {

namespace {

template <class Act>
void for_roles(uint8_t roles, Act act) {
    for (const ReceiveRole role : {ReceiveRole::takes, ReceiveRole::probes, ReceiveRole::has})
        if ((roles & uint8_t(role)) != 0) act(role);
}

}  // namespace

// A receive whose message its sender has withdrawn waits, and has that message still, until match_again().
uint8_t Messages::roles_of(const Recv& recv) {
    uint8_t roles = 0;
    if (!recv.in_flight && !recv.end_error && recv.kind != OpKind::mrecv)
        roles |= uint8_t(recv.kind == OpKind::probe ? ReceiveRole::probes : ReceiveRole::takes);
    if (recv.kind == OpKind::recv && recv.matched) roles |= uint8_t(ReceiveRole::has);
    return roles;
}

void Messages::reindex(Recv& recv) {
    if (!receives_index_.is_kept()) return;
    const uint8_t roles = roles_of(recv);
    if (roles == recv.indexed) return;
    drop_rows(recv);
    for_roles(roles, [&](ReceiveRole role) { receives_index_.add(role, recv.wanted(), recv.order, recv); });
    recv.indexed = roles;
}

void Messages::drop_rows(Recv& recv) {
    for_roles(recv.indexed,
              [&](ReceiveRole role) { receives_index_.remove(role, recv.wanted(), recv.order); });
    recv.indexed = 0;
}

void Messages::index_receives() {
    const bool many = recvs_.size() >= ReceiveIndex<Recv>::kept_from;
    if (!receives_index_.is_kept() && many) {
        receives_index_.begin();
        for (auto& recv : recvs_) reindex(*recv);
    } else if (receives_index_.is_kept() && recvs_.size() <= ReceiveIndex<Recv>::kept_above) {
        receives_index_.end();
        for (auto& recv : recvs_) recv->indexed = 0;
    }
}

// Those that were posted before `by`, and wanted the message that it has got.
void Messages::mark_overtaken(const Recv& by) {
    uint64_t& looks = group_.context().receives_looked_at;
    const wire::MessageOffer& message = by.matched->message;
    if (receives_index_.is_kept())  // what waits, and has had no message, would have got this one
        return receives_index_.each(ReceiveRole::has, message, by.order, [&](Recv& earlier) {
            ++looks;
            earlier.overtaken = true;
        });
    for (auto& earlier : recvs_) {
        if (earlier.get() == &by) break;
        ++looks;
        earlier->overtaken = earlier->overtaken || earlier->wants(message);
    }
}

}  // namespace nexar::engine
