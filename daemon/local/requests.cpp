// See requests.hpp.
#include "local/requests.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/controls.hpp"

namespace nexar::local {

using engine::OpKind;

namespace {

// Fields that not every kind of request uses.
enum Use : uint32_t {
    use_dtype = 1,
    use_op = 2,
    use_peer = 4,
    use_count = 8,
    use_tag = 16,
    use_match = 32,
    use_group = 64,
    use_stage = 128,
    use_any_tag = 256,
    use_scalar = 512,
    use_args = 1024,
    use_persistent = 2048,
};
uint32_t uses_of(const OpRow& row) {
    uint32_t uses = use_group;
    if (row.has_elements) uses |= use_dtype;
    if (row.has_elements && !has_own_counts(row)) uses |= use_count;
    if (row.reduces) uses |= use_op;
    if (row.rooted) uses |= use_peer;
    if (has_counts(row) || has_own_counts(row)) uses |= use_args;
    if (row.collective && !row.makes_groups) uses |= use_persistent;
    if (row.collective) return uses | use_match | (row.has_elements && !has_own_counts(row) ? use_stage : 0);
    if (has_pieces(row)) uses |= use_args | use_persistent;
    return uses | use_tag | (row.of_apart ? 0 : use_peer) | (row.any_source ? use_any_tag : 0);
}
uint32_t find_uses(uint8_t kind) {
    if (const OpRow* row = find_operation(kind)) return uses_of(*row);
    switch (kind) {
        case NEXAR_CMD_GROUP_FREE:
        case NEXAR_CMD_GROUP_ABORT:
        case NEXAR_CMD_GROUP_INFO:
        case NEXAR_CMD_GROUP_TRANSLATE:
            return use_group;
        case NEXAR_CMD_GROUP_CREATE:
            return use_group | use_args;
        case NEXAR_CMD_GROUP_NODE:
            return use_group | use_peer;
        default:
            return 0;
    }
}

uint32_t uses_of(uint8_t kind) {
    static const auto table = [] {
        std::array<uint32_t, 256> out;
        for (size_t i = 0; i < out.size(); ++i) out[i] = find_uses(static_cast<uint8_t>(i));
        return out;
    }();
    return table[kind];
}

std::unexpected<Error> not_allowed(const char* field, uint64_t value, const std::string& allowed) {
    return fail(Errc::invalid_argument,
                std::string(field) + " is " + std::to_string(value) + "; allowed: " + allowed);
}

template <class Visit>
void for_fields(const nexar_shm_descriptor& d, Visit visit) {
    visit("dtype", d.dtype, use_dtype);
    visit("op", d.op, use_op);
    visit("peer", d.peer, use_peer);
    visit("count", d.count, use_count);
    visit("tag", d.tag, use_tag);
    visit("match_id", d.match_id, use_match);
    visit("group", d.group, use_group);
    visit("epoch", d.epoch, use_group);
    visit("in.entries", d.in.entries, 0);
    visit("out.entries", d.out.entries, 0);
    visit("args.region", d.args.region, use_args);
    visit("args.entries", d.args.entries, use_args);
    visit("args.offset", d.args.offset, use_args);
    visit("scalar", d.scalar, use_scalar);
    for (const uint8_t byte : d.zero) visit("a reserved byte of the descriptor", byte, 0);
}

// All at once, without a branch for each: nearly always there is none.
Result<void> check_unused(const nexar_shm_descriptor& d, uint32_t uses) {
    uint64_t unused = 0;
    for_fields(d,
               [&](const char*, uint64_t value, uint32_t use) { unused |= (uses & use) == 0 ? value : 0; });
    if (unused == 0) return {};
    Result<void> out;
    for_fields(d, [&](const char* name, uint64_t value, uint32_t use) {
        if (!out || (uses & use) != 0 || value == 0) return;
        const bool reserved = std::string_view(name).starts_with("a reserved");
        out = not_allowed(name, value, reserved ? "0" : std::string("0, ") + kind_name(d.kind) + " has none");
    });
    return out;
}

Result<void> check_flags(const nexar_shm_descriptor& d, uint32_t uses) {
    constexpr uint32_t staged = NEXAR_SHM_FLAG_STAGED_IN | NEXAR_SHM_FLAG_STAGED_OUT;
    constexpr uint32_t partials = NEXAR_SHM_FLAG_DETERMINISTIC | NEXAR_SHM_FLAG_F32_PARTIALS;
    constexpr uint32_t others = NEXAR_SHM_FLAG_ANY_TAG | NEXAR_SHM_FLAG_PERSISTENT;
    const uint32_t unknown = d.flags & ~uint32_t{staged | partials | others};
    if (unknown != 0)
        return fail(Errc::invalid_argument, "flags has the unknown bits " + std::to_string(unknown));
    if ((d.flags & NEXAR_SHM_FLAG_ANY_TAG) != 0 && (uses & use_any_tag) == 0)
        return fail(Errc::invalid_argument,
                    std::string("flags has the bit for any tag; ") + kind_name(d.kind) + " has none");
    if ((d.flags & partials) != 0 && !is_collective(d.kind))
        return fail(Errc::invalid_argument,
                    std::string("flags has bits for partial results; ") + kind_name(d.kind) + " has none");
    if ((d.flags & NEXAR_SHM_FLAG_PERSISTENT) != 0 && (uses & use_persistent) == 0)
        return fail(Errc::invalid_argument, std::string(kind_name(d.kind)) + " cannot be persistent");
    // What is kept is looked through when a region is freed.
    if ((d.flags & NEXAR_SHM_FLAG_PERSISTENT) != 0 && !is_collective(d.kind) && d.args.entries != 0)
        return fail(Errc::invalid_argument, "a message in pieces cannot be persistent");
    if (((d.flags & staged) != 0 || d.stage_windows != 0) && (uses & use_stage) == 0)
        return fail(Errc::invalid_argument, std::string(kind_name(d.kind)) + " cannot be staged");
    return {};
}

// Groups agree on time-outs in milliseconds. A fraction is rounded up, because 0 means "none".
Result<Duration> agreed_timeout(const char* field, int64_t ns) {
    constexpr int64_t ms = 1'000'000;
    if (ns < -1)
        return fail(Errc::invalid_argument, std::string(field) + " is " + std::to_string(ns) +
                                                "; allowed: -1 (the other ranks' value), 0 (none) or more");
    return Duration(ns <= 0 ? ns : ns / ms * ms + (ns % ms != 0 && ns < INT64_MAX - ms ? ms : 0));
}

uint64_t multiply(uint64_t a, uint64_t b, bool& overflow) {
    uint64_t out = 0;
    overflow |= __builtin_mul_overflow(a, b, &out);
    return out;
}

}  // namespace

const char* kind_name(uint8_t kind) {
    static constexpr const char* commands[] = {"group_open", "group_free",      "group_node",
                                               "region_add", "region_free",     "group_abort",
                                               "group_info", "group_translate", "group_create"};
    if (const OpRow* row = find_operation(kind)) return row->name;
    if (kind >= NEXAR_CMD_GROUP_OPEN && kind < NEXAR_CMD_END) return commands[kind - NEXAR_CMD_GROUP_OPEN];
    return "unknown";
}

Result<void> check_fields(const nexar_shm_descriptor& d) {
    const bool op = find_operation(d.kind) != nullptr;
    if (!op && (d.kind < NEXAR_CMD_GROUP_OPEN || d.kind >= NEXAR_CMD_END || d.kind == NEXAR_CMD_REGION_ADD))
        return fail(Errc::unsupported, "request kind " + std::to_string(d.kind) + " is unknown");
    if (op && d.priority >= priority_count && d.priority != NEXAR_SHM_PRIORITY_DEFAULT)
        return not_allowed("priority", d.priority,
                           "0 (critical), 1 (realtime), 2 (bulk) or " +
                               std::to_string(NEXAR_SHM_PRIORITY_DEFAULT) + " (the operation's own)");
    if (!op && d.priority != 0) return not_allowed("priority", d.priority, "0 in a command");
    if (!op && d.timeout_ns != 0) return fail(Errc::invalid_argument, "timeout_ns must be 0 in a command");
    if (d.timeout_ns < -1)
        return fail(Errc::invalid_argument, "timeout_ns is " + std::to_string(d.timeout_ns) +
                                                "; allowed: -1 (the group's), 0 (none) or more");
    uint32_t uses = uses_of(d.kind);
    if ((uses & use_op) != 0 && has_form(d.op, ReductionForm::scaled)) uses |= use_scalar;
    NEXAR_TRY_VOID(check_flags(d, uses));
    return check_unused(d, uses);
}

Result<engine::OpDescriptor> descriptor_from(const nexar_shm_descriptor& asked) {
    const auto dtype = reduce::dtype_from(asked.dtype);
    if (!dtype) return fail(Errc::invalid_argument, "dtype " + std::to_string(asked.dtype) + " is unknown");
    const auto op = reduce::reduce_op_from(asked.op);
    if (!op) return fail(Errc::invalid_argument, "reduction " + std::to_string(asked.op) + " is unknown");
    const OpRow& row = row_of(static_cast<OpKind>(asked.kind));
    if (row.reduces && !may_reduce(*dtype, *op))
        return fail(Errc::invalid_argument, reduction_refusal(asked.dtype, asked.op));
    if (!may_reduce(row, asked.op)) return fail(Errc::invalid_argument, reduction_refusal(row, asked.op));
    if (size_of(*dtype) < sizeof asked.scalar && asked.scalar >> (8 * size_of(*dtype)) != 0)
        return fail(Errc::invalid_argument,
                    "scalar is longer than an element of " + std::string(name_of(*dtype)));
    engine::OpDescriptor out;
    out.kind = static_cast<OpKind>(asked.kind);
    out.dtype = *dtype;
    out.op = *op;
    out.count = asked.count;
    out.root = row_of(out.kind).rooted ? asked.peer : 0;
    out.match_id = asked.match_id;
    const uint64_t flags = ((asked.flags & NEXAR_SHM_FLAG_DETERMINISTIC) != 0 ? flag_deterministic : 0) |
                           ((asked.flags & NEXAR_SHM_FLAG_F32_PARTIALS) != 0 ? flag_f32_partials : 0);
    out.partials = partials_of(row_of(out.kind), asked.dtype, asked.op, flags);
    return out;
}

Result<Lengths> lengths_of(const engine::OpDescriptor& d, uint32_t size, uint32_t rank, const Counts* counts,
                           const OwnCounts* own_counts) {
    bool overflow = false;
    const uint64_t block = multiply(d.count, size_of(d.dtype), overflow);
    const uint64_t all = multiply(block, size, overflow);
    if (overflow || all >> 63 != 0)
        return fail(Errc::invalid_argument,
                    "count " + std::to_string(d.count) + " is too large for its type");
    const OpRow& row = row_of(d.kind);
    const SideElements own = own_elements(counts, own_counts, rank);
    const SideElements elements = elements_of(row, d.count, own, blocks_of(row, size, rank, d.root));
    const Lengths out{multiply(elements.in, size_of(d.dtype), overflow),
                      multiply(elements.out, size_of(d.dtype), overflow)};
    if (overflow || (out.in | out.out) >> 63 != 0)
        return fail(Errc::invalid_argument, "the counts are together " + std::to_string(elements.in) +
                                                " and " + std::to_string(elements.out) +
                                                " elements, too many for their type");
    return out;
}

Result<std::string> reason_from(const nexar_shm_group_abort& asked) {
    if (asked.reserved != 0) return not_allowed("a reserved word of the payload", asked.reserved, "0");
    if (asked.reason_bytes > sizeof asked.reason)
        return not_allowed("reason_bytes", asked.reason_bytes, "0 to " + std::to_string(sizeof asked.reason));
    return without_controls(std::string(asked.reason, asked.reason_bytes), ' ');
}

Result<engine::ChildRequest> child_request_from(const nexar_shm_group_child& asked, OpKind kind) {
    if (asked.reserved != 0) return not_allowed("a reserved word of the payload", asked.reserved, "0");
    if (kind == OpKind::group_dup && (asked.colour != 0 || asked.key != 0))
        return fail(Errc::invalid_argument, "colour is " + std::to_string(asked.colour) + ", key " +
                                                std::to_string(asked.key) +
                                                "; allowed: 0, group_dup has none");
    static_assert(NEXAR_SHM_NO_COLOUR == engine::no_colour);
    engine::ChildRequest out;
    out.colour = asked.colour;
    out.key = asked.key;
    NEXAR_TRY(out.asked.collective, agreed_timeout("collective_timeout_ns", asked.collective_timeout_ns));
    NEXAR_TRY(out.asked.barrier, agreed_timeout("barrier_timeout_ns", asked.barrier_timeout_ns));
    NEXAR_TRY(out.asked.rpc, agreed_timeout("rpc_timeout_ns", asked.rpc_timeout_ns));
    return out;
}

Result<engine::OpenRequest> create_request_from(const nexar_shm_group_create& asked) {
    if (asked.reserved != 0) return not_allowed("a reserved word of the payload", asked.reserved, "0");
    if (asked.timeout_ns < -1)
        return fail(Errc::invalid_argument, "timeout_ns is " + std::to_string(asked.timeout_ns) +
                                                "; allowed: -1 (the parent's), 0 (none) or more");
    engine::OpenRequest out;
    out.timeout = Duration(asked.timeout_ns);
    NEXAR_TRY(out.asked.collective, agreed_timeout("collective_timeout_ns", asked.collective_timeout_ns));
    NEXAR_TRY(out.asked.barrier, agreed_timeout("barrier_timeout_ns", asked.barrier_timeout_ns));
    NEXAR_TRY(out.asked.rpc, agreed_timeout("rpc_timeout_ns", asked.rpc_timeout_ns));
    return out;
}

Result<engine::OpenRequest> open_request_from(const nexar_shm_group_open& asked) {
    const bool short_secret = asked.secret_bytes != 0 && asked.secret_bytes < NEXAR_SHM_SECRET_BYTES_MIN;
    if (asked.name_bytes == 0 || asked.name_bytes > sizeof asked.name || short_secret ||
        asked.secret_bytes > sizeof asked.secret)
        return fail(Errc::invalid_argument,
                    "a group's name has 1 to 128 bytes, its secret 16 to 128, or none");
    if (asked.size == 0 || asked.size > NEXAR_SHM_GROUP_RANKS_MAX)
        return not_allowed("size", asked.size, "1 to " + std::to_string(NEXAR_SHM_GROUP_RANKS_MAX));
    if (asked.rank != NEXAR_SHM_ANY_RANK && asked.rank >= asked.size)
        return fail(Errc::invalid_argument, "rank " + std::to_string(asked.rank) + " is not in a group of " +
                                                std::to_string(asked.size));
    if (asked.timeout_ns < 0)
        return fail(Errc::invalid_argument, "timeout_ns of the opening is " +
                                                std::to_string(asked.timeout_ns) +
                                                "; allowed: 0 (none) or more");
    engine::OpenRequest out;
    out.name.assign(asked.name, asked.name_bytes);
    out.size = asked.size;
    out.rank = asked.rank == NEXAR_SHM_ANY_RANK ? -1 : int64_t{asked.rank};
    out.job_secret = Secret({asked.secret, asked.secret_bytes});
    out.instance = asked.instance;
    out.timeout = Duration(asked.timeout_ns);
    NEXAR_TRY(out.asked.collective, agreed_timeout("collective_timeout_ns", asked.collective_timeout_ns));
    NEXAR_TRY(out.asked.barrier, agreed_timeout("barrier_timeout_ns", asked.barrier_timeout_ns));
    NEXAR_TRY(out.asked.rpc, agreed_timeout("rpc_timeout_ns", asked.rpc_timeout_ns));
    return out;
}

}  // namespace nexar::local
