// The exported functions of include/nexar.h that make and ask about children of groups.
#include <algorithm>
#include <cstring>
#include <vector>

#include "batch.hpp"
#include "calls.hpp"
#include "children.hpp"
#include "structs.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

class ChildCall final : public Call {
  public:
    // `out`: where a blocking call returns the child.
    ChildCall(const ChildOf& which, const nexar_child_options* options, bool returns_child = false,
              nexar_group** out = nullptr)
        : Call(which.kind), which_(which), given_(options), lacks_out_(returns_child && !out) {}
    Result<void> read() override {
        if (lacks_out_) return fail(Errc::invalid_argument, "child is NULL");
        NEXAR_TRY(options_, read_child_options(which_.kind, given_));
        return {};
    }
    Result<Taken> prepare(Session& session, const Group& parent, Use use) const override {
        return prepare_child(session, parent, which_, options_, use);
    }

  private:
    const ChildOf which_;
    const nexar_child_options* given_;
    const bool lacks_out_;
    ChildOptions options_;
};

nexar_status make_child(nexar_group* parent, const ChildOf& which, nexar_group** child,
                        const nexar_child_options* options) {
    Outcome outcome;
    const nexar_status status = run(parent, ChildCall(which, options, true, child), outcome);
    if (status == NEXAR_OK) *child = outcome.completion.group;
    return status;
}

Result<Slot> create(PinnedGroup& pinned, const uint32_t* ranks, uint64_t count,
                    const nexar_create_options* options, bool blocking) {
    if (!ranks) return fail(Errc::invalid_argument, "ranks is NULL");
    if (count == 0 || count > pinned.group->size)
        return fail(Errc::invalid_argument, "count is " + std::to_string(count) + "; allowed: 1 to " +
                                                std::to_string(pinned.group->size) +
                                                ", the size of the parent");
    NEXAR_TRY(const CreateOptions wanted, read_create_options(options));
    return start_creation(*pinned.session, *pinned.group, {ranks, count}, wanted, blocking);
}

// A command that answers with so many bytes.
Result<void> ask(PinnedGroup& pinned, uint8_t kind, const nexar_shm_payload* payload, void* answer,
                 size_t bytes, uint32_t peer = 0) {
    nexar_shm_descriptor d{};
    d.kind = kind;
    d.peer = peer;
    d.group = pinned.group->membership;
    d.epoch = pinned.group->epoch;
    NEXAR_TRY(const Outcome outcome, pinned.session->command(d, payload));
    if (!outcome.answer) return fail(Errc::protocol_error, "the daemon gave no answer");
    if (bytes != 0) std::memcpy(answer, outcome.answer.get(), bytes);
    return {};
}

// The daemon has 0 for none.
int64_t timeout_of(int64_t ms) {
    return ms == 0 ? NEXAR_TIMEOUT_NONE : ms;
}

nexar_group_info info_of(const Group& group, const nexar_shm_group_info& given) {
    nexar_group_info out = NEXAR_GROUP_INFO_INIT;
    out.epoch = group.epoch;
    out.rank = group.rank;
    out.size = group.size;
    out.nodes = given.nodes;
    std::memcpy(out.id, given.id, sizeof out.id);
    std::memcpy(out.parent_id, given.parent, sizeof out.parent_id);
    out.collective_timeout_ms = timeout_of(given.collective_timeout_ms);
    out.barrier_timeout_ms = timeout_of(given.barrier_timeout_ms);
    out.rpc_timeout_ms = timeout_of(given.rpc_timeout_ms);
    out.on_failure = NEXAR_ON_FAILURE_ABORT;
    out.plan_version = given.plan_version;
    out.plan_lanes = given.plan_lanes;
    out.plan_chunk_bytes = given.plan_chunk_bytes;
    out.plan_shards = given.plan_shards;
    out.plan_segment_bytes = given.plan_segment_bytes;
    out.plan_small_bytes_max = given.plan_small_bytes_max;
    out.plan_doubling_bytes_max = given.plan_doubling_bytes_max;
    std::memcpy(out.name, given.name, std::min<size_t>(given.name_bytes, sizeof given.name));
    std::memcpy(out.parent_name, given.parent_name,
                std::min<size_t>(given.parent_name_bytes, sizeof given.parent_name));
    return out;
}

Result<void> translate(PinnedGroup& from, const Group& to, const uint32_t* ranks, uint64_t count,
                       uint32_t* out) {
    std::vector<uint32_t> all;
    while (all.size() < count) {
        nexar_shm_payload payload{};
        const auto part = std::min<uint64_t>(count - all.size(), NEXAR_SHM_TRANSLATE_MAX);
        payload.group_translate.to = to.membership;
        payload.group_translate.count = static_cast<uint32_t>(part);
        std::copy_n(ranks + all.size(), part, payload.group_translate.ranks);
        uint32_t answer[NEXAR_SHM_TRANSLATE_MAX];
        NEXAR_TRY_VOID(ask(from, NEXAR_CMD_GROUP_TRANSLATE, &payload, answer, part * sizeof *answer));
        all.insert(all.end(), answer, answer + part);
    }
    std::ranges::copy(all, out);
    return {};
}

}  // namespace

extern "C" {

nexar_status nexar_group_info_get(nexar_group* handle, nexar_group_info* info) {
    auto pinned = group_of(handle);
    if (!pinned) return failed("group_info", pinned.error());
    if (!info) return failed("group_info", Errc::invalid_argument, "info is NULL");
    if (auto good = check_result(info, "nexar_group_info"); !good) return failed("group_info", good.error());
    nexar_shm_group_info given;
    if (auto done = ask(*pinned, NEXAR_CMD_GROUP_INFO, nullptr, &given, sizeof given); !done)
        return failed("group_info", done.error());
    write_result(info, info_of(*pinned->group, given), info->struct_size);
    return NEXAR_OK;
}

nexar_status nexar_group_member_get(nexar_group* handle, uint32_t rank, nexar_group_member* member) {
    constexpr const char* op = "group_member";
    auto pinned = group_of(handle);
    if (!pinned) return failed(op, pinned.error());
    if (!member) return failed(op, Errc::invalid_argument, "member is NULL");
    if (auto good = check_result(member, "nexar_group_member"); !good) return failed(op, good.error());
    nexar_shm_detail given;
    if (auto done = ask(*pinned, NEXAR_CMD_GROUP_NODE, nullptr, &given, sizeof given, rank); !done)
        return failed(op, done.error());
    nexar_group_member out = NEXAR_GROUP_MEMBER_INIT;
    out.rank = rank;
    out.pid = given.pid;
    out.local_rank = given.lost_ranks[0];
    out.local_size = given.lost_ranks[1];
    node_text(given.node, out.node);
    std::memcpy(out.host, given.host, std::min(sizeof out.host, sizeof given.host));
    write_result(member, out, member->struct_size);
    return NEXAR_OK;
}

nexar_status nexar_group_translate(nexar_group* from_handle, const uint32_t* ranks, uint64_t count,
                                   nexar_group* to_handle, uint32_t* out) {
    constexpr const char* op = "group_translate";
    auto from = group_of(from_handle);
    if (!from) return failed(op, from.error());
    auto to = group_of(to_handle);
    if (!to) return failed(op, to.error());
    if ((!ranks || !out) && count != 0)
        return failed(op, Errc::invalid_argument, ranks ? "out is NULL" : "ranks is NULL");
    if (count > NEXAR_RANKS_MAX)
        return failed(
            op, Errc::invalid_argument,
            "count is " + std::to_string(count) + "; allowed: 0 to " + std::to_string(NEXAR_RANKS_MAX));
    if (from->group->session != to->group->session)
        return failed(op, Errc::invalid_argument, "the groups are of two sessions");
    auto done = translate(*from, *to->group, ranks, count, out);
    return done ? NEXAR_OK : failed(op, done.error());
}

void nexar_child_options_init(nexar_child_options* options, uint64_t size) {
    init_options(options, size, child_defaults());
}

nexar_status nexar_group_split(nexar_group* parent, uint32_t colour, int64_t key, nexar_group** child,
                               const nexar_child_options* options) {
    return make_child(parent, {NEXAR_OP_GROUP_SPLIT, colour, key}, child, options);
}
nexar_status nexar_group_split_start(nexar_group* parent, uint32_t colour, int64_t key,
                                     const nexar_child_options* options, nexar_request* request) {
    return begin(parent, ChildCall({NEXAR_OP_GROUP_SPLIT, colour, key}, options), request);
}
nexar_status nexar_group_dup(nexar_group* parent, nexar_group** child, const nexar_child_options* options) {
    return make_child(parent, {NEXAR_OP_GROUP_DUP}, child, options);
}
nexar_status nexar_group_dup_start(nexar_group* parent, const nexar_child_options* options,
                                   nexar_request* request) {
    return begin(parent, ChildCall({NEXAR_OP_GROUP_DUP}, options), request);
}

void nexar_create_options_init(nexar_create_options* options, uint64_t size) {
    init_options(options, size, create_defaults());
}

nexar_status nexar_group_create(nexar_group* parent, const uint32_t* ranks, uint64_t count,
                                nexar_group** group, const nexar_create_options* options) {
    auto pinned = group_of(parent);
    if (!pinned) return failed(kind_name(NEXAR_CMD_GROUP_CREATE), pinned.error());
    const ErrorContext context = context_of(*pinned->group, NEXAR_CMD_GROUP_CREATE);
    if (!group) return failed(context, Errc::invalid_argument, "group is NULL");
    if (auto may = may_block(*pinned->session); !may) return failed(context, may.error());
    auto slot = create(*pinned, ranks, count, options, true);
    if (!slot) return failed(context, slot.error());
    const Outcome outcome = pinned->session->finish_blocking(*slot);
    if (outcome.error) return failed(outcome.context(), *outcome.error);
    *group = outcome.completion.group;
    return NEXAR_OK;
}
nexar_status nexar_group_create_start(nexar_group* parent, const uint32_t* ranks, uint64_t count,
                                      const nexar_create_options* options, nexar_request* request) {
    auto pinned = group_of(parent);
    if (!pinned) return failed(kind_name(NEXAR_CMD_GROUP_CREATE), pinned.error());
    const ErrorContext context = context_of(*pinned->group, NEXAR_CMD_GROUP_CREATE);
    if (!request) return failed(context, Errc::invalid_argument, "request is NULL");
    auto slot = create(*pinned, ranks, count, options, false);
    if (!slot) return failed(context, slot.error());
    *request = pinned->session->handle_of(*slot);
    return NEXAR_OK;
}

}  // extern "C"
