// SessionCore: questions about its groups, answered in the detail's place. See session_core.hpp.
#include <cstring>

#include "local/group_answers.hpp"
#include "local/session_core.hpp"
#include "shm/words.hpp"

namespace nexar::local {

Result<void> SessionCore::report_node(Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* group, group_named(asked.group));
    if (asked.peer >= group->members.size())
        return fail(Errc::invalid_argument, "rank " + std::to_string(asked.peer) + " is not in a group of " +
                                                std::to_string(group->size));
    const engine::GroupMember& member = group->members[asked.peer];
    nexar_shm_detail detail{};
    detail.has_node = 1;
    detail.rank = asked.peer;
    detail.other_rank = -1;
    std::memcpy(detail.node, member.node.bytes.data(), sizeof detail.node);
    detail.pid = member.pid;
    std::strncpy(detail.host, member.host.c_str(), sizeof detail.host - 1);
    detail.lost_ranks[0] = member.local_rank;
    detail.lost_ranks[1] = member.local_size;
    end_with_answer(ticket, &detail, sizeof detail, group->epoch.value);
    return {};
}

void SessionCore::end_with_answer(Ticket ticket, const void* answer, size_t bytes, uint32_t epoch) {
    nexar_shm_detail detail{};
    if (bytes != 0) std::memcpy(&detail, answer, bytes);
    shm::store_words(control_.detail(ticket.slot), detail);
    nexar_shm_result result{};
    result.group_epoch = epoch;
    result.sequence = NEXAR_SHM_NO_SEQUENCE;
    result.has_detail = 1;
    end(ticket, result);
}

Result<void> SessionCore::report_info(Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* group, group_named(asked.group));
    const nexar_shm_group_info info = info_of(*group);
    static_assert(sizeof info <= sizeof(nexar_shm_detail));
    end_with_answer(ticket, &info, sizeof info, group->epoch.value);
    return {};
}

Result<void> SessionCore::translate(Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* from, group_named(asked.group));
    const auto given = shm::copy_once(control_.payload(ticket.slot)).group_translate;  // [S3]
    NEXAR_TRY(const auto* to, group_named(given.to));
    if (given.count > NEXAR_SHM_TRANSLATE_MAX)
        return fail(Errc::invalid_argument, "count is " + std::to_string(given.count) + "; allowed: 0 to " +
                                                std::to_string(NEXAR_SHM_TRANSLATE_MAX));
    NEXAR_TRY(const auto ranks, translated(*from, *to, std::span(given.ranks).first(given.count)));
    end_with_answer(ticket, ranks.data(), ranks.size() * sizeof(uint32_t), from->epoch.value);
    return {};
}

}  // namespace nexar::local
