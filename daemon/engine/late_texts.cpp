// CollectiveRun: the ranks that a late collective waits for, in words.
#include <algorithm>

#include "engine/group.hpp"

namespace nexar::engine {

std::string CollectiveRun::missing_text() const {
    constexpr size_t named_max = 8;
    std::string out;
    size_t missing = 0;
    for (uint32_t rank = 0; rank < group_.facts.size(); ++rank) {
        if (!counted_missing(rank)) continue;
        if (missing++ >= named_max) continue;
        out += (out.empty() ? "" : ", ") + group_.facts.describe(rank);
    }
    if (missing > named_max) out += " and " + std::to_string(missing - named_max) + " more";
    return out;
}

std::vector<uint32_t> CollectiveRun::unmoved_here() const {
    std::vector<uint32_t> out;
    for (const LocalRank& local : group_.locals())
        if (waits_for_bytes_of(local.rank)) out.push_back(local.rank);
    return out;
}

// Ranks whose bytes a segment waits for: of this node, and of nodes that have answered.
std::vector<uint32_t> CollectiveRun::unmoved() const {
    std::vector<uint32_t> out = unmoved_here();
    for (const Word& word : words_)
        if (word.arrival)
            for (const wire::Arrival& arrival : word.arrival->ranks)
                if (arrival.stalled && arrival.rank < group_.facts.size()) out.push_back(arrival.rank);
    std::ranges::sort(out);
    return out;
}

std::string CollectiveRun::unmoved_text() const {
    constexpr size_t named_max = 8;
    std::string out;
    const std::vector<uint32_t> ranks = unmoved();
    for (size_t i = 0; i < std::min(ranks.size(), named_max); ++i)
        out += (i == 0 ? "" : ", ") + group_.facts.describe(ranks[i]);
    if (ranks.size() > named_max) out += " and " + std::to_string(ranks.size() - named_max) + " more";
    if (ranks.size() == 1) out += " has not moved its bytes: it must call wait, test or poll";
    if (ranks.size() > 1) out += " have not moved their bytes: they must call wait, test or poll";
    return out;
}

}  // namespace nexar::engine
