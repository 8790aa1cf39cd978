// See children.hpp.
#include "children.hpp"

#include <cstring>

#include "core/child_name.hpp"
#include "opening.hpp"
#include "structs.hpp"
#include "tables.hpp"

namespace nexar::c {

nexar_child_options child_defaults() {
    return NEXAR_CHILD_OPTIONS_INIT;
}

Result<ChildOptions> read_child_options(uint8_t kind, const nexar_child_options* given) {
    ChildOptions out;
    if (!given) return out;
    NEXAR_TRY(const auto o, read_options(given, child_defaults(), "nexar_child_options"));
    if (o.reserved != 0)
        return fail(Errc::invalid_argument,
                    "nexar_child_options.reserved is " + std::to_string(o.reserved) + "; it must be 0");
    nexar_op_options call = op_defaults();
    call.timeout_ms = o.timeout_ms;
    call.match_id = o.match_id;
    call.user_data = o.user_data;
    NEXAR_TRY(out.call, read_op_options({.kind = kind}, &call));
    NEXAR_TRY(out.collective_ns, group_timeout_ns("collective_timeout_ms", o.collective_timeout_ms));
    NEXAR_TRY(out.barrier_ns, group_timeout_ns("barrier_timeout_ms", o.barrier_timeout_ms));
    NEXAR_TRY(out.rpc_ns, group_timeout_ns("rpc_timeout_ms", o.rpc_timeout_ms));
    return out;
}

namespace {

nexar_shm_payload payload_of(const ChildOf& which, const ChildOptions& options) {
    nexar_shm_payload out{};
    out.group_child.colour = which.colour;
    out.group_child.key = which.key;
    out.group_child.collective_timeout_ns = options.collective_ns;
    out.group_child.barrier_timeout_ns = options.barrier_ns;
    out.group_child.rpc_timeout_ns = options.rpc_ns;
    return out;
}

}  // namespace

Result<Taken> prepare_child(Session& session, const Group& parent, const ChildOf& which,
                            const ChildOptions& options, Use use) {
    if (auto error = session.unusable()) return fail(*error);
    Label label{options.call.user_data, 0, parent.epoch, holder_of(use), parent.name};
    if (which.colour != NEXAR_COLOUR_UNDEFINED) {
        NEXAR_TRY(label.group, reserve_group(session, parent.name, parent.flags));
    }
    nexar_shm_descriptor d{};
    d.kind = which.kind;
    d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
    d.group = parent.membership;
    d.epoch = parent.epoch;
    d.match_id = options.call.match_id;
    d.timeout_ns = options.call.timeout_ns;
    const nexar_shm_payload payload = payload_of(which, options);
    if (label.group != 0) name_child(label.group, which.kind == NEXAR_OP_GROUP_SPLIT, which.colour);
    auto taken = session.take(d, {}, label, &payload);
    if (!taken && label.group != 0) finish_opening(label.group, {}, false);
    return taken;
}

nexar_create_options create_defaults() {
    return NEXAR_CREATE_OPTIONS_INIT;
}

Result<CreateOptions> read_create_options(const nexar_create_options* given) {
    CreateOptions out;
    if (!given) return out;
    NEXAR_TRY(const auto o, read_options(given, create_defaults(), "nexar_create_options"));
    if (o.reserved != 0)
        return fail(Errc::invalid_argument,
                    "nexar_create_options.reserved is " + std::to_string(o.reserved) + "; it must be 0");
    NEXAR_TRY(out.timeout_ns, group_timeout_ns("timeout_ms", o.timeout_ms));
    NEXAR_TRY(out.collective_ns, group_timeout_ns("collective_timeout_ms", o.collective_timeout_ms));
    NEXAR_TRY(out.barrier_ns, group_timeout_ns("barrier_timeout_ms", o.barrier_timeout_ms));
    NEXAR_TRY(out.rpc_ns, group_timeout_ns("rpc_timeout_ms", o.rpc_timeout_ms));
    out.tag = o.tag;
    out.user_data = o.user_data;
    return out;
}

Result<Slot> start_creation(Session& session, const Group& parent, std::span<const uint32_t> ranks,
                            const CreateOptions& options, bool blocking) {
    if (auto error = session.unusable()) return fail(*error);
    Plan plan;
    const uint64_t bytes = ranks.size() * sizeof(uint64_t);
    NEXAR_TRY(plan.scratch[2], session.take_scratch(bytes));
    for (size_t i = 0; i < ranks.size(); ++i) {
        const uint64_t rank = ranks[i];
        std::memcpy(plan.scratch[2].data() + i * sizeof rank, &rank, sizeof rank);
    }
    Label label{options.user_data, 0, parent.epoch, blocking ? Holder::call : Holder::handle, parent.name};
    const auto name = std::make_shared<const std::string>(nexar::created_name(*parent.name, options.tag));
    const auto group = reserve_group(session, name, parent.flags);
    if (!group) {
        session.release_plan(plan);
        return fail(group.error());
    }
    label.group = *group;
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_CREATE;
    d.group = parent.membership;
    d.epoch = parent.epoch;
    d.args = {plan.scratch[2].region->id, static_cast<uint32_t>(ranks.size()), plan.scratch[2].offset};
    nexar_shm_payload payload{};
    payload.group_create = {options.tag,        options.timeout_ns, options.collective_ns,
                            options.barrier_ns, options.rpc_ns,     0};
    auto slot = session.submit(d, std::move(plan), label, &payload);
    if (!slot) finish_opening(label.group, {}, false);
    return slot;
}

}  // namespace nexar::c
