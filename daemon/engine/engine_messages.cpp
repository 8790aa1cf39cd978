// Messages of other nodes: each goes to its group, is kept until the group begins, or is answered when the
// group has ended. See engine_impl.hpp.
#include <type_traits>

#include "engine/engine_impl.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

// A message of the agreement on a group's end that waits for an answer.
template <class M>
constexpr bool asks_about_end = std::is_same_v<M, wire::GroupFailed> ||
                                std::is_same_v<M, wire::GroupFreeze> || std::is_same_v<M, wire::GroupCut>;
template <class M>
constexpr bool of_agreement =
    asks_about_end<M> || std::is_same_v<M, wire::GroupReport> || std::is_same_v<M, wire::GroupAccepted> ||
    std::is_same_v<M, wire::GroupEnd> || std::is_same_v<M, wire::GroupDeparted>;

}  // namespace

// [G9] [G12]
void Engine::Impl::answer_for_ended_group(link::PeerIndex to, const GroupId& group, uint32_t epoch) {
    const Group* open = find(group);
    if (const auto cut = finished.cut_for(to, group))
        context.send(to, wire::GroupEnd{group, epoch, *cut});
    else if (open != nullptr && open->node_of(to) && open->decided_cut())
        context.send(to, wire::GroupEnd{group, epoch, *open->decided_cut()});
    else if (open == nullptr && !awaits(to, group))
        context.send(to, wire::GroupDeparted{group, epoch});
}

// A message about a group that arrived before the group's commit, which comes from another node.
void Engine::Impl::keep_early(link::PeerIndex from, const GroupId& group, const wire::Message& message) {
    // A group begins nowhere before all its nodes have prepared it, or stated their ranks of its parent. So
    // without that here, it has ended.
    if (!awaits(from, group)) {
        if (const auto* offer = std::get_if<wire::MessageOffer>(&message)) refuse_late(from, *offer);
        std::visit(
            [&]<class M>(const M& m) {
                if constexpr (asks_about_end<M>) answer_for_ended_group(from, group, m.epoch);
            },
            message);
        return;
    }
    const size_t bytes = wire::encode(message).size();
    if (early.keep(from, group, message, bytes)) return;
    early.drop_if(from, [&](const GroupId& other) { return !awaits(from, other); });
    if (early.keep(from, group, message, bytes)) return;
    context.ports.peers.discard_log(from, "too many messages about groups that are not active here yet");
}

// The offer crossed this node's RankGone, which its sender applies before this answer, and which has the
// reason.
void Engine::Impl::refuse_late(link::PeerIndex from, const wire::MessageOffer& offer) {
    const Error error{
        Errc::peer_lost, "rank " + std::to_string(offer.dst) + " has left the group", offer.dst, -1, {}};
    context.send(from, wire::MessageRefused{offer.group, offer.number, error});
}

void Engine::Impl::replay_early(const GroupId& group) {
    for (const EarlyMessages::Kept& e : early.take(group)) dispatch(e.from, e.message);
}

namespace {

// The group that a message is about, and whether its epoch is ours.
template <class M>
concept AboutGroup = requires(const M& m) { m.group; };
template <class M>
concept HasEpoch = requires(const M& m) { m.epoch; };

struct ToGroup {
    Group& group;
    NodeIndex node;
    link::PeerIndex peer;

    void operator()(const wire::RankGone& m) const { group.on_rank_gone(node, m); }
    void operator()(const wire::OpAbort& m) const { group.on_abort(m); }
    void operator()(const wire::OpAnnounce& m) const { group.on_announce(node, m); }
    void operator()(const wire::ArrivalQuery& m) const { group.on_arrival_query(peer, m); }
    void operator()(const wire::ArrivalReply& m) const { group.on_arrival_reply(node, m); }
    void operator()(const wire::MessageOffer& m) const { group.messages().on_offer(node, m); }
    void operator()(const wire::MessageWithdraw& m) const { group.messages().on_withdraw(node, m); }
    void operator()(const wire::MessageRefused& m) const { group.messages().on_refused(node, m); }
    void operator()(const wire::MessageCredit& m) const { group.messages().on_credit(node, m); }
    template <class M>
    void operator()(const M&) const {}
};

}  // namespace

void Engine::Impl::dispatch(link::PeerIndex from, const wire::Message& message) {
    if (watch.on_message(from, message) || opening.on_message(context.peer(from).node, message)) return;
    std::visit(
        [&]<class M>(const M& m) {
            if constexpr (AboutGroup<M>) {
                Group* group = find(m.group);
                if (group == nullptr) return keep_early(from, m.group, message);  // ended here, or not begun
                if constexpr (HasEpoch<M>)
                    if (GroupEpoch(m.epoch) != group->facts.epoch) return;
                const auto node = group->node_of(from);
                if (!node) return;
                if constexpr (std::is_same_v<M, wire::CreateQuery>) {
                    creates.on_query(*group, *node, m);
                } else if constexpr (std::is_same_v<M, wire::CreateAnswer>) {
                    creates.on_answer(*group, *node, m);
                } else if constexpr (of_agreement<M>) {
                    if constexpr (std::is_same_v<M, wire::GroupDeparted>) watch.on_departed(from, m.group);
                    if (const Result<void> kept = group->on_agreement(*node, message); !kept)
                        context.ports.peers.discard_log(from, kept.error().text);
                } else {
                    ToGroup{*group, *node, from}(m);
                }
            }
        },
        message);
}

// [L7] Messages of the rendezvous and of groups are lost.
void Engine::Impl::log_discarded(link::PeerIndex index) {
    const PeerState& peer = context.peer(index);
    if (!peer.known) return;
    watch.on_log_discarded(index);
    if (const auto at = groups_of_node.find(peer.node); at != groups_of_node.end())
        for (const GroupId& id : at->second) groups.at(id)->link_lost(peer.node);
    opening.on_peer_down(peer.node, peer.incarnation);
    if (peer.up && watch.reachable(index)) opening.on_peer_up(peer.node, peer.incarnation);
}

void Engine::Impl::log_has_room() {
    for (const GroupId& id : std::exchange(context.groups_without_room, {}))
        if (Group* group = find(id)) group->messages().send_waiting();
}

}  // namespace nexar::engine
