// See texts.hpp.
#include "rendezvous/texts.hpp"

#include <algorithm>
#include <vector>

#include "shm_layout.h"

namespace nexar::rendezvous {
namespace {

constexpr size_t listed_max = 12;  // of ranks in a text

template <class Text>
void add(Listing& listing, const Text& text_of_next) {
    if (++listing.count <= listed_max) listing.first.push_back(text_of_next());
}

// Of a create's error the engine names the parent and what the rank does instead, in front of the text.
constexpr size_t room_of_text = NEXAR_SHM_TEXT_BYTES - 1, room_of_parent = 192;
constexpr size_t room_of_count = 32;  // ". N came", and "missing: "

std::string missing_text(const Listing& missing, size_t besides) {
    const std::string text = missing.text(room_of_text - std::min(room_of_text, besides));
    return text.empty() ? std::to_string(missing.count) + " ranks" : text;
}

std::string span_text(Duration span) {
    const int64_t ms = to_ms(span);
    return ms >= 1000 && ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

std::string advice(const Unfilled& unfilled) {
    const bool local = unfilled.local;
    if (!unfilled.parent_ranks.empty())
        return "Did they all call nexar_group_create, with this list of ranks and this tag? To wait longer: "
               "timeout_ms";
    return std::string("Were all started, and do they give this name, size") +
           (local ? "? With no job_secret only processes of this host and user can meet"
                  : " and job_secret?") +
           (local ? ". " : " ") + "To wait longer: timeout_ms, or NEXAR_OPEN_TIMEOUT_SECS";
}

// What the opens that came let suppose.
std::string hint(const Unfilled& unfilled, const RollCall& roll,
                 const std::function<std::string(const NodeId&)>& name_of) {
    if (!unfilled.parent_ranks.empty()) return "";
    if (roll.others > 0 && !unfilled.local)
        return std::to_string(roll.others) + (roll.others == 1 ? " other waits" : " others wait") +
               " for this name with another job_secret, or without one. ";
    if (!unfilled.in_cluster && !unfilled.local)
        return "This node is in no cluster, so only its own ranks can come: for ranks on other nodes run "
               "nexarctl cluster init, or nexarctl cluster join. ";
    if (!unfilled.apart.first.is_zero() && !unfilled.local)
        return "Nodes " + name_of(unfilled.apart.first) + " and " + name_of(unfilled.apart.second) +
               " do not reach each other: run nexarctl doctor there. ";
    // How many the leader refused is not in its answer: each of them has got its own error.
    return roll.alone && !unfilled.local
               ? "No rank of another node was accepted (one that asks for a rank already "
                 "taken gets RANK_CLASH there: check --node-index, NEXAR_RANK). "
               : "";
}

}  // namespace

std::string Listing::text(size_t room) const {
    const auto more = [this](size_t listed) {
        return listed == count ? "" : " and " + std::to_string(count - listed) + " more";
    };
    std::string all, fitting;
    for (size_t i = 0; i < first.size(); ++i) {
        all += (i > 0 ? ", " : "") + first[i];
        if (const std::string whole = all + more(i + 1); whole.size() <= room) fitting = whole;
    }
    return fitting;
}

RollCall roll_call(const wire::GroupOpen& open, const SharedList<uint32_t>& parent_ranks,
                   const wire::GroupStatus& status,
                   const std::function<std::string(const NodeId&)>& name_of) {
    RollCall out;
    out.came_count = status.present.size() - std::min<size_t>(status.present.size(), status.gave_up);
    out.others = status.others;
    out.alone = true;
    std::vector<bool> there(open.size);
    const auto text_of = [&parent_ranks](uint32_t rank) {
        return "rank " + std::to_string(rank < parent_ranks.size() ? parent_ranks[rank] : rank);
    };
    for (size_t i = 0; i < status.present.size(); ++i) {
        const wire::GroupMemberRecord& member = status.present[i];
        const bool has_rank = member.rank < open.size;
        if (has_rank) there[member.rank] = true;
        out.automatic |= !has_rank;
        out.alone &= member.node == open.id.origin;
        add(i < out.came_count ? out.came : out.gave_up, [&] {
            return (has_rank ? text_of(member.rank) : "automatic rank") + " (pid " +
                   std::to_string(member.pid) + " on node " + name_of(member.node) + ")";
        });
    }
    for (uint32_t rank = 0; rank < open.size; ++rank)
        if (!there[rank]) add(out.missing, [&] { return text_of(rank); });
    if (!out.automatic && out.missing.count > 0)
        out.first_missing = std::ranges::find(there, false) - there.begin();
    else if (!out.automatic && out.gave_up.count > 0)
        out.first_missing = status.present[out.came_count].rank;
    return out;
}

// The missing ranks and the advice come first, and who came gets the room that is left.
Error group_incomplete(const Unfilled& unfilled, const RollCall* roll,
                       const std::function<std::string(const NodeId&)>& name_of) {
    const wire::GroupOpen& open = unfilled.open;
    const bool has_parent = !unfilled.parent_ranks.empty();
    Error error{Errc::group_incomplete,
                "group \"" + open.name + "\" of " + std::to_string(open.size) +
                    (has_parent ? " (ranks are the parent's)" : "") + " after " + span_text(unfilled.waited) +
                    ": ",
                -1,
                -1,
                {}};
    const std::string trouble = unfilled.trouble.empty() ? "" : "; last attempt: " + unfilled.trouble;
    if (!roll) {
        error.text += "the node that collects its ranks did not report the arrived ones. " + advice(unfilled);
    } else {
        const size_t gone = roll->gave_up.count;
        const size_t count = open.size - std::min<size_t>(open.size, roll->came_count + gone);
        const bool all_there = count + gone == 0;
        const std::string rest =
            all_there ? "" : ". " + (count == 0 ? "" : hint(unfilled, *roll, name_of)) + advice(unfilled);
        const std::string gave_up = gone == 0 ? "" : "; " + std::to_string(gone) + " gave up before";
        const size_t besides = error.text.size() + rest.size() + trouble.size() + room_of_count +
                               gave_up.size() + (has_parent ? room_of_parent : 0);
        error.text += all_there         ? "nobody is missing, but it could not be formed"
                      : count == 0      ? "its ranks were not there at the same time"
                      : roll->automatic ? "missing: " + std::to_string(count) + " of any rank"
                                        : "missing: " + missing_text(roll->missing, besides);
        error.text += rest;
        const auto list = [&](const Listing& listing, size_t kept) {
            const size_t taken =
                error.text.size() + 2 + kept + trouble.size() + (has_parent ? room_of_parent : 0);
            const std::string listed = listing.text(room_of_text - std::min(room_of_text, taken));
            if (!listed.empty()) error.text += ": " + listed;
        };
        error.text += (all_there ? "; " : ". ") + std::to_string(roll->came_count) + " came";
        list(roll->came, gave_up.size());
        error.text += gave_up;
        if (gone > 0) list(roll->gave_up, 0);
        error.rank = roll->first_missing;
    }
    error.text += trouble;
    return error;
}

std::string opens_of(const std::function<std::string(const NodeId&)>& name_of, const NodeId& origin,
                     const NodeId& via) {
    return "node " + name_of(origin) + (via == origin ? "" : " through node " + name_of(via));
}

Error too_many_opens(const std::string& whose, const std::string& at, size_t most) {
    return {Errc::table_full,
            "node " + at + " keeps " + std::to_string(most) + " opens of " + whose +
                ", which is the limit; groups_max of node " + at +
                " raises it. Wait until some of them have ended",
            -1,
            -1,
            {}};
}

std::string unreachable_text(const std::string& node, const std::string& other, const std::string& group) {
    return "nodes " + node + " and " + other + " do not reach each other, so group \"" + group +
           "\" cannot be formed: run nexarctl doctor on both; their firewalls and what is between them must "
           "pass nexard's UDP ports both ways";
}

std::string unproven_text(const std::string& node_name) {
    return "node " + node_name + " did not prove that it has the job's secret";
}

}  // namespace nexar::rendezvous
