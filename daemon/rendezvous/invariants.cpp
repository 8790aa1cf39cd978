// The invariants of Directory and Rendezvous, which tests check after every input.
#include <algorithm>

#include "core/check.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

void Directory::check_invariants() const {
    size_t waiting = 0;
    for (const auto& [key, gathering] : gatherings_) {
        NEXAR_CHECK(!gathering.entries.empty());
        std::map<NodeId, size_t> nodes;
        size_t ranked = 0;
        for (const auto& [arrival, entry] : gathering.entries) {
            const auto at = where_.find(entry.open.id);
            NEXAR_CHECK(at != where_.end() && at->second == std::pair(key, arrival));
            NEXAR_CHECK(entry.arrival == arrival && arrival < next_arrival_);
            NEXAR_CHECK(entry.open.key == key && entry.open.size == gathering.size);
            ++nodes[entry.open.id.origin];
            if (entry.open.rank < 0) continue;
            const auto taken = gathering.taken.find(static_cast<uint32_t>(entry.open.rank));
            NEXAR_CHECK(taken != gathering.taken.end() && taken->second == arrival);
            ++ranked;
        }
        NEXAR_CHECK(nodes == gathering.nodes);
        NEXAR_CHECK(ranked == gathering.taken.size());
        NEXAR_CHECK(ranked == 0 || ranked == gathering.entries.size());  // [R3]
        waiting += gathering.entries.size();
    }
    NEXAR_CHECK(waiting == where_.size());
    check_indexes();
    for (const auto& [id, forming] : forming_) {
        NEXAR_CHECK(id == forming.prepare.group);
        NEXAR_CHECK(forming.entries.size() == forming.prepare.members.size());
        NEXAR_CHECK(!forming.waiting_for.empty());
        for (const NodeId& node : forming.waiting_for) NEXAR_CHECK(forming.nodes.contains(node));
        for (const NodeId& node : forming.unsent) NEXAR_CHECK(forming.nodes.contains(node));
        for (const Entry& entry : forming.entries) {
            NEXAR_CHECK(forming.nodes.contains(entry.open.id.origin));
            NEXAR_CHECK(!where_.contains(entry.open.id));
        }
    }
    NEXAR_CHECK(expired_.size() <= config_.expired_max && expired_.size() == expired_order_.size());
    size_t named = 0, with_mark = 0;
    for (const auto& [name, namesakes] : names_) {
        NEXAR_CHECK(namesakes.opens > 0);
        named += namesakes.opens;
    }
    for (const auto& [key, gathering] : gatherings_)
        for (const auto& [arrival, entry] : gathering.entries) with_mark += entry.open.opener_mark != 0;
    for (const auto& [key, expired] : expired_) with_mark += expired.open.opener_mark != 0;
    NEXAR_CHECK(named == with_mark);
}

void Directory::check_indexes() const {
    size_t retries = 0, in_attempts = 0, listed = 0, ways = 0;
    const auto look = [&](const Entry& entry) {
        NEXAR_CHECK(origins_.at(entry.open.id.origin).at(entry.open.incarnation).contains(entry.open.id));
        ways += 1 + entry.relays.size();
    };
    for (const auto& [key, gathering] : gatherings_) {
        const bool waits = gathering.not_before != Time{};
        retries += waits;
        NEXAR_CHECK(waits == retries_.contains(gathering.whose, gathering.not_before, key));
        NEXAR_CHECK(waits || gathering.entries.size() < gathering.size);
        for (const auto& [arrival, entry] : gathering.entries) look(entry);
    }
    for (const auto& [id, forming] : forming_) {
        NEXAR_CHECK(deadlines_.contains(forming.whose, forming.deadline, id));
        for (size_t i = 0; i < forming.entries.size(); ++i) {
            const wire::GroupOpen& open = forming.entries[i].open;
            NEXAR_CHECK(attempt_of_.at(open.id) == std::pair(id, i));
            look(forming.entries[i]);
        }
        in_attempts += forming.entries.size();
    }
    for (const auto& [origin, incarnations] : origins_)
        for (const auto& [incarnation, opens] : incarnations) listed += opens.size();
    NEXAR_CHECK(retries == retries_.size() && deadlines_.size() == forming_.size());
    NEXAR_CHECK(ways == ways_.size());
    NEXAR_CHECK(in_attempts == attempt_of_.size() && listed == where_.size() + in_attempts);
}

void Rendezvous::check_indexes() const {
    size_t due = 0, waiting = 0, opens = 0, reservations_due = 0, shown = 0;
    for (const auto& [request, own] : own_) {
        const Time ends = own.status_until == never ? own.deadline : own.status_until;
        NEXAR_CHECK(own.due_at == (own.reserved ? never : std::min(own.list_at, ends)));
        NEXAR_CHECK((own.due_at != never) == due_.contains(turn_of(own), own.due_at, request));
        NEXAR_CHECK(by_session_.contains({own.session, request}));
        NEXAR_CHECK(own.local != by_mark_.contains({own.open.opener_mark, request}));
        NEXAR_CHECK(own.withdrawn != waiting_.contains(own.open));
        shown += !own.withdrawn;
        due += own.due_at != never;
        const auto muster = musters_.find({own.local, own.open.key});
        NEXAR_CHECK(muster != musters_.end());
        NEXAR_CHECK((own.status_until != never) == muster->second.waiting.contains(request));
        waiting += own.status_until != never;
    }
    for (const auto& [key, muster] : musters_) {
        NEXAR_CHECK(muster.opens > 0 && (muster.waiting.empty() || muster.waiting.contains(muster.by)));
        waiting -= muster.waiting.size();
        opens += muster.opens;
    }
    for (const auto& [group, r] : reservations_) {
        NEXAR_CHECK(r.due_at ==
                    std::min(r.link_deadline, r.query_until == never ? r.decision_deadline : r.query_until));
        NEXAR_CHECK((r.due_at != never) == reservations_due_.contains(r.whose, r.due_at, group));
        reservations_due += r.due_at != never;
    }
    NEXAR_CHECK(due == due_.size() && by_session_.size() == own_.size() && waiting == 0);
    NEXAR_CHECK(opens == own_.size());
    NEXAR_CHECK(reservations_due == reservations_due_.size() && shown == waiting_.opens());
}

void Rendezvous::check_invariants() const {
    check_indexes();
    directory_.check_invariants();
    local_.check_invariants();
    refusals_.check_invariants();
    NEXAR_CHECK(refusals_.empty() || refusals_at_ != never);
    NEXAR_CHECK(inbox_.empty());
    NEXAR_CHECK(leader_ == (peers_.empty() ? config_.self : std::min(config_.self, peers_.begin()->first)));
    NEXAR_CHECK(!is_relisting() || relist_at_ != never);  // what was left may have been withdrawn
    NEXAR_CHECK(leader_ != config_.self || relayed_.empty() || is_relisting());
    NEXAR_CHECK(leader_ == config_.self || !directory_.has_waiting() || is_relisting());
    relayed_.check_invariants();
    for (const auto& [node, incarnation] : peers_) NEXAR_CHECK(!lost_.contains(node));
    for (const auto& [request, own] : own_) {
        NEXAR_CHECK(own.open.id == request && request.origin == config_.self);
        NEXAR_CHECK(!own.withdrawn || own.reserved);
        NEXAR_CHECK(!own.reserved || reservations_.contains(*own.reserved));
        NEXAR_CHECK(!own.local || own.listed == config_.self);
        if (own.local) continue;
        const bool sent_in = own.sent_in == leader_changes_ && own.listed == leader_;
        NEXAR_CHECK(sent_in || own.reserved || own.list_at != never ||
                    relisting_.contains(own.open.opener_mark));
    }
    for (const auto& [group, reservation] : reservations_) {
        NEXAR_CHECK(!decisions_.contains(group));
        for (const wire::GroupMemberRecord& member : reservation.prepare.members) {
            if (member.node != config_.self) continue;
            const auto own = own_.find(member.request);
            NEXAR_CHECK(own != own_.end() && own->second.reserved == group);
        }
    }
    size_t decisions = 0, with_group = 0;
    for (const auto& [maker, groups] : decision_order_) decisions += groups.size();
    for (const auto& [group, decision] : decisions_) with_group += decision.has_group;
    NEXAR_CHECK(decisions_.size() == decisions + groups_ && decisions <= config_.decisions_max);
    NEXAR_CHECK(with_group == groups_);
    for (const auto& [node, groups] : promised_)
        NEXAR_CHECK(!groups.empty() && groups.size() <= config_.promises_max);
}

}  // namespace nexar::rendezvous
