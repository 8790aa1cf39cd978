// See children.hpp.
#include "children.hpp"

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

Result<Slot> start_child(Session& session, const Group& parent, const ChildOf& which,
                         const ChildOptions& options, bool blocking) {
    if (auto error = session.unusable()) return fail(*error);
    Label label{options.call.user_data, 0, parent.epoch, blocking ? Holder::call : Holder::handle,
                parent.name};
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
    auto slot = session.submit(d, {}, label, &payload);
    if (!slot && label.group != 0) finish_opening(label.group, {}, false);
    return slot;
}

}  // namespace nexar::c
