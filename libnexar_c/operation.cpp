// See operation.hpp.
#include "operation.hpp"

#include <algorithm>
#include <cstring>

#include "core/types.hpp"
#include "planning.hpp"
#include "structs.hpp"

namespace nexar::c {

namespace {

uint32_t shm_flags(uint64_t flags) {
    return ((flags & NEXAR_FLAG_DETERMINISTIC) != 0 ? NEXAR_SHM_FLAG_DETERMINISTIC : 0u) |
           ((flags & NEXAR_FLAG_F32_PARTIALS) != 0 ? NEXAR_SHM_FLAG_F32_PARTIALS : 0u);
}

// Requires: the kind is in the operation table.
const OpRow& row_of(const Operation& o) {
    return row_of(static_cast<OpKind>(o.kind));
}

// Of a table in types.def.
template <class Rows>
std::string numbers_of(const Rows& rows) {
    const auto text = [](const auto& row) { return std::to_string(row.number) + " (" + row.constant + ")"; };
    return text(*std::begin(rows)) + " to " + text(*std::rbegin(rows));
}

Result<void> check_codes(const Group& group, const Operation& o) {
    if (dtype_size(o.dtype) == 0)
        return fail(Errc::invalid_argument,
                    "dtype is " + std::to_string(o.dtype) + "; allowed: " + numbers_of(type_table::types));
    const auto type = static_cast<uint64_t>(o.dtype);
    const auto op = static_cast<uint64_t>(int64_t{o.op});
    if (find_reduction(op) == nullptr)
        return fail(Errc::invalid_argument,
                    "op is " + std::to_string(o.op) + "; allowed: " + numbers_of(type_table::reductions));
    const OpRow& row = row_of(o);
    if (row.reduces && !may_reduce(type, op))
        return fail(Errc::invalid_argument, reduction_refusal(type, op));
    if (!may_reduce(row, op)) return fail(Errc::invalid_argument, reduction_refusal(row, op));
    if (o.kind == NEXAR_OP_SEND && o.peer == NEXAR_ANY_SOURCE)
        return fail(Errc::invalid_argument, "a message cannot be sent to NEXAR_ANY_SOURCE");
    const bool any = row.any_source && o.peer == NEXAR_ANY_SOURCE;
    if (o.peer >= group.size && !any)
        return fail(Errc::invalid_argument, (row.rooted       ? "root is "
                                             : row.any_source ? "source is "
                                                              : "to is ") +
                                                std::to_string(o.peer) + "; allowed: 0 to " +
                                                std::to_string(group.size - 1) +
                                                (row.any_source ? ", or NEXAR_ANY_SOURCE" : ""));
    if (o.kind == NEXAR_OP_SEND && o.tag == NEXAR_ANY_TAG)
        return fail(Errc::invalid_argument, "a message cannot be sent with NEXAR_ANY_TAG");
    return {};
}

Result<void> read_lists(const Group& group, const Operation& o, Checked& out) {
    const OpRow& row = row_of(o);
    if (has_counts(row)) {
        if (o.counts == nullptr) return fail(Errc::invalid_argument, "counts is NULL");
        NEXAR_TRY(out.counts, Counts::of({o.counts, group.size}));
        out.count = out.counts->sum();
        out.own_begin = out.counts->begin(group.rank);
    }
    if (has_own_counts(row)) {
        if (o.counts == nullptr || o.receive_counts == nullptr)
            return fail(Errc::invalid_argument,
                        o.counts == nullptr ? "send_counts is NULL" : "receive_counts is NULL");
        out.own_counts.emplace();
        NEXAR_TRY(out.own_counts->sends, Counts::of({o.counts, group.size}));
        NEXAR_TRY(out.own_counts->receives, Counts::of({o.receive_counts, group.size}));
    }
    return {};
}

// Of the sides. An error: so many bytes do not exist, of one side or of all ranks' together.
Result<SideElements> bytes_of_sides(const Group& group, const Operation& o, const Checked& c) {
    const OpRow& row = row_of(o);
    uint64_t block = 0, all = 0;
    if (__builtin_mul_overflow(c.count, c.element, &block) ||
        __builtin_mul_overflow(block, group.size, &all) || all >> 63 != 0)
        return fail(Errc::invalid_argument,
                    "count is " + std::to_string(c.count) + ": that many bytes do not exist");
    const SideElements own =
        own_elements(c.counts ? &*c.counts : nullptr, c.own_counts ? &*c.own_counts : nullptr, group.rank);
    const SideElements elements =
        elements_of(row, c.count, own, blocks_of(row, group.size, group.rank, o.peer));
    SideElements bytes;
    if (__builtin_mul_overflow(elements.in, c.element, &bytes.in) ||
        __builtin_mul_overflow(elements.out, c.element, &bytes.out) || (bytes.in | bytes.out) >> 63 != 0)
        return fail(Errc::invalid_argument, "the counts are together " + std::to_string(elements.in) +
                                                " and " + std::to_string(elements.out) +
                                                ": that many bytes do not exist");
    return bytes;
}

// Without empty ones. An error names the piece.
Result<std::vector<Span>> read_pieces(const Operation& o, uint64_t element) {
    if (o.piece_count > NEXAR_PIECES_MAX || (!o.pieces && o.piece_count != 0))
        return fail(Errc::invalid_argument, !o.pieces && o.piece_count != 0
                                                ? "pieces is NULL"
                                                : "piece_count is " + std::to_string(o.piece_count) +
                                                      "; allowed: 0 to " + std::to_string(NEXAR_PIECES_MAX));
    std::vector<Span> out;
    for (uint64_t i = 0; i < o.piece_count; ++i) {
        const nexar_piece& piece = o.pieces[i];
        uint64_t bytes = 0;
        if (__builtin_mul_overflow(piece.count, element, &bytes) || bytes >> 62 != 0)
            return fail(Errc::invalid_argument, "the count of piece " + std::to_string(i) + " is " +
                                                    std::to_string(piece.count) +
                                                    ": that many bytes do not exist");
        if (bytes == 0) continue;
        if (!piece.data)
            return fail(Errc::invalid_argument, "the data of piece " + std::to_string(i) + " is NULL");
        out.push_back({static_cast<const std::byte*>(piece.data), bytes});
    }
    return out;
}

Result<void> check_apart(std::vector<Span> pieces) {
    std::ranges::sort(pieces, {}, &Span::data);
    for (size_t i = 1; i < pieces.size(); ++i)
        if (pieces[i - 1].overlaps(pieces[i]))
            return fail(Errc::invalid_argument, "pieces of the output overlap");
    return {};
}

// Of no pieces and of one this makes an ordinary message.
Result<Checked> check_pieces(const Group& group, const Operation& o) {
    NEXAR_TRY_VOID(check_codes(group, o));
    Checked out;
    out.element = dtype_size(o.dtype);
    out.align = find_type(static_cast<uint64_t>(o.dtype))->align;
    NEXAR_TRY(out.pieces, read_pieces(o, out.element));
    uint64_t bytes = 0;
    for (const Span& piece : out.pieces)
        if ((bytes += piece.bytes) >> 62 != 0)
            return fail(Errc::invalid_argument, "the pieces are together too large");
    const bool sends = row_of(o).in == SideSize::one;
    if (!sends) NEXAR_TRY_VOID(check_apart(out.pieces));
    out.count = bytes / out.element;
    Span& side = sends ? out.in : out.out;
    if (!out.pieces.empty()) side = out.pieces[0];
    if (out.pieces.size() == 1) out.pieces.clear();
    return out;
}

Result<Checked> check(const Group& group, const Operation& o) {
    if (o.in_pieces) return check_pieces(group, o);
    NEXAR_TRY_VOID(check_codes(group, o));
    Checked out;
    out.element = dtype_size(o.dtype);
    out.align = find_type(static_cast<uint64_t>(o.dtype))->align;
    const OpRow& row = row_of(o);
    out.count = o.count;
    out.own_begin = group.rank * o.count;
    NEXAR_TRY_VOID(read_lists(group, o, out));
    NEXAR_TRY(const SideElements bytes, bytes_of_sides(group, o, out));
    const auto* in = static_cast<const std::byte*>(o.in);
    const auto* memory = static_cast<const std::byte*>(o.out);
    out.in = {in, bytes.in}, out.out = {memory, bytes.out};
    // In place where one side is a block of the other: the caller may pass the start of the larger side for
    // both. A rank with one side passes anything as the other one.
    const uint64_t mine = out.own_begin * out.element;
    const bool same = in && in == memory && out.in.bytes != 0 && out.out.bytes != 0;
    if (row.in_place == InPlace::block_of_out && same) out.in.data += mine;
    if (row.in_place == InPlace::block_of_in && same) out.out.data += mine;
    if ((out.in.bytes != 0 && !out.in.data) || (out.out.bytes != 0 && !out.out.data))
        return fail(Errc::invalid_argument,
                    out.in.bytes != 0 && !out.in.data ? "the input is NULL" : "the output is NULL");
    return out;
}

// In place means the same memory, or this rank's block of the larger side. Every other overlap is refused.
Result<bool> in_place(const Operation& o, const Checked& c) {
    if (c.in.bytes == 0 || c.out.bytes == 0 || !c.in.overlaps(c.out)) return false;
    const uint64_t own = c.own_begin * c.element;
    const auto position = [](const std::byte* at) { return reinterpret_cast<uintptr_t>(at); };
    if (may_share(row_of(o).in_place, position(c.in.data), position(c.out.data), own)) return true;
    return fail(Errc::invalid_argument, "input and output overlap, and not as they may in place");
}

}  // namespace

uint64_t dtype_size(nexar_dtype dtype) {
    const TypeRow* row = find_type(static_cast<uint64_t>(int64_t{dtype}));
    return row != nullptr ? row->bytes : 0;
}

const char* kind_name(uint8_t kind) {
    if (const OpRow* row = find_operation(kind)) return row->name;
    return kind == NEXAR_CMD_GROUP_OPEN     ? "group_open"
           : kind == NEXAR_CMD_GROUP_CREATE ? "group_create"
                                            : "command";
}

bool opens_group(uint8_t kind) {
    const OpRow* row = find_operation(kind);
    return kind == NEXAR_CMD_GROUP_OPEN || kind == NEXAR_CMD_GROUP_CREATE ||
           (row != nullptr && row->makes_groups);
}

ErrorContext Outcome::context() const {
    ErrorContext out(name_of_call(kind, called));
    out.group = group_name.get();
    out.epoch = completion.epoch;
    out.sequence = completion.sequence;
    return out;
}

nexar_op_options op_defaults() {
    return NEXAR_OP_OPTIONS_INIT;
}

namespace {

Result<int64_t> timeout_ns(const Operation& o, int64_t ms) {
    if (ms == NEXAR_TIMEOUT_DEFAULT) return -1;
    if (ms == NEXAR_TIMEOUT_NONE) return 0;
    if (ms > 0) return nanoseconds(ms);
    // The daemon's 0 means "none", so a timeout of 0 becomes 1 ns: a deadline that has passed at once.
    if (ms == 0 && !is_collective(o.kind)) return 1;
    return fail(
        Errc::invalid_argument,
        "timeout_ms is " + std::to_string(ms) +
            (ms == 0 ? ": a collective cannot have 0, its ranks never arrive in one instant" : "") +
            "; allowed: a positive number of milliseconds, NEXAR_TIMEOUT_DEFAULT (-1), "
            "NEXAR_TIMEOUT_NONE (-2)" +
            (ms == 0 ? " (were the options initialised with NEXAR_OP_OPTIONS_INIT?)" : "; messages: 0 too"));
}

// Read now: the program may change it when the call has returned. A type that has no such sum is refused
// later.
Result<uint64_t> scalar_of(const Operation& o, const void* scalar) {
    const bool wanted =
        row_of(o).reduces && has_form(static_cast<uint64_t>(int64_t{o.op}), ReductionForm::scaled);
    if (wanted != (scalar != nullptr))
        return fail(Errc::invalid_argument,
                    wanted
                        ? "premul_sum has no scalar: set nexar_op_options.scalar to one element of the dtype"
                        : "nexar_op_options.scalar is for NEXAR_PREMUL_SUM only; must be NULL");
    uint64_t out = 0;
    if (wanted) std::memcpy(&out, scalar, std::min<uint64_t>(dtype_size(o.dtype), sizeof out));
    return out;
}

}  // namespace

Result<OpOptions> read_op_options(const Operation& o, const nexar_op_options* given) {
    OpOptions out;
    if (!given) {
        NEXAR_TRY(out.scalar, scalar_of(o, nullptr));
        return out;
    }
    NEXAR_TRY(const auto options, read_options(given, op_defaults(), "nexar_op_options"));
    if (options.flags != 0 && !is_collective(o.kind))
        return fail(Errc::invalid_argument,
                    "nexar_op_options.flags is " + std::to_string(options.flags) + "; messages have none: 0");
    NEXAR_TRY_VOID(check_flags(options.flags, "nexar_op_options"));
    NEXAR_TRY(out.timeout_ns, timeout_ns(o, options.timeout_ms));
    if (options.priority < NEXAR_PRIORITY_DEFAULT || options.priority > NEXAR_PRIORITY_BULK)
        return fail(Errc::invalid_argument,
                    "priority is " + std::to_string(options.priority) +
                        "; allowed: NEXAR_PRIORITY_DEFAULT (-1), NEXAR_PRIORITY_CRITICAL (0), "
                        "NEXAR_PRIORITY_REALTIME (1), NEXAR_PRIORITY_BULK (2)");
    if (options.priority != NEXAR_PRIORITY_DEFAULT) out.priority = static_cast<uint8_t>(options.priority);
    if (options.match_id != 0 && !is_collective(o.kind))
        return fail(Errc::invalid_argument,
                    "match_id is for collectives; messages are distinguished by their tag");
    NEXAR_TRY(out.scalar, scalar_of(o, options.scalar));
    out.match_id = options.match_id;
    out.flags = options.flags;
    out.user_data = options.user_data;
    return out;
}

Result<Taken> prepare(Session& session, const Group& group, const Operation& o, Use use,
                      const OpOptions& options) {
    NEXAR_TRY(Checked checked, check(group, o));
    NEXAR_TRY(checked.in_place, in_place(o, checked));
    if (auto error = session.unusable()) return fail(*error);

    nexar_shm_descriptor d{};
    d.kind = o.kind;
    d.dtype = static_cast<uint8_t>(o.dtype);
    const OpRow& row = row_of(o);
    d.op = row.reduces ? static_cast<uint8_t>(o.op) : 0;
    d.priority = options.priority;
    d.group = group.membership;
    d.epoch = group.epoch;
    d.count = checked.count;
    d.peer = o.peer;
    d.tag = o.tag;
    d.match_id = options.match_id;
    d.scalar = options.scalar;
    if (row.any_source && o.tag == NEXAR_ANY_TAG) d.flags = NEXAR_SHM_FLAG_ANY_TAG;
    if (row.collective) d.flags |= shm_flags(options.flags | group.flags);
    d.timeout_ns = options.timeout_ns;
    if (use == Use::persistent) d.flags |= NEXAR_SHM_FLAG_PERSISTENT;
    checked.replaces = o.replaces;
    NEXAR_TRY(const Plan plan, make_plan(session, group, checked, use, d));
    return session.take(d, plan,
                        {options.user_data, group.handle, group.epoch, holder_of(use), group.name, o.called});
}

}  // namespace nexar::c
