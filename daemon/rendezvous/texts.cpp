// See texts.hpp.
#include "rendezvous/texts.hpp"

#include <algorithm>
#include <vector>

namespace nexar::rendezvous {
namespace {

constexpr size_t listed_max = 16;  // of ranks in a text

std::string list(const std::vector<std::string>& items) {
    std::string out;
    for (size_t i = 0; i < std::min(items.size(), listed_max); ++i) out += (i ? ", " : "") + items[i];
    if (items.size() > listed_max) out += " and " + std::to_string(items.size() - listed_max) + " more";
    return out;
}

}  // namespace

Error group_incomplete(const wire::GroupOpen& open, const wire::GroupStatus* status,
                       const std::string& trouble, const std::function<std::string(const NodeId&)>& name_of) {
    Error error{Errc::group_incomplete,
                "group \"" + open.name + "\" of " + std::to_string(open.size) + ": ",
                -1,
                -1,
                {}};
    if (!status) {
        error.text += "the node that collects its ranks did not say who is there";
    } else {
        std::vector<bool> there(open.size);
        std::vector<std::string> present, missing;
        bool automatic = false;
        for (const wire::GroupMemberRecord& member : status->present) {
            if (member.rank < open.size)
                there[member.rank] = true;
            else
                automatic = true;
            present.push_back(
                (member.rank < open.size ? "rank " + std::to_string(member.rank) : "automatic rank") +
                " (pid " + std::to_string(member.pid) + " on node " + name_of(member.node) + ")");
        }
        for (uint32_t rank = 0; rank < open.size; ++rank)
            if (!there[rank]) missing.push_back("rank " + std::to_string(rank));
        const size_t count = open.size - std::min<size_t>(open.size, present.size());
        // Who is missing comes first: the text may be cut at its end. If nobody is, `trouble` says the rest.
        error.text += count == 0  ? "nobody is missing, but it could not be formed"
                      : automatic ? "missing: " + std::to_string(count) + " of any rank"
                                  : "missing: " + list(missing);
        error.text += "; " + std::to_string(present.size()) + " came: " + list(present);
        if (!automatic && !missing.empty())
            error.rank = std::find(there.begin(), there.end(), false) - there.begin();
    }
    if (!trouble.empty()) error.text += "; last attempt: " + trouble;
    return error;
}

}  // namespace nexar::rendezvous
