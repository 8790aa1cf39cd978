#include "operation.hpp"

#include <cstring>

namespace nexar::c {

namespace {

// What an operation touches, once it is checked.
struct Span {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    bool holds(const Span& inner) const {
        return inner.data >= data && inner.data + inner.bytes <= data + bytes;
    }
    bool overlaps(const Span& other) const {
        return data < other.data + other.bytes && other.data < data + bytes;
    }
};

struct Checked {
    Span in, out;
    uint64_t element = 0;
};

bool reduces(uint8_t kind) {
    return kind == NEXAR_OP_ALL_REDUCE || kind == NEXAR_OP_REDUCE || kind == NEXAR_OP_REDUCE_SCATTER;
}

Result<void> check_codes(const Group& group, const Operation& o) {
    if (dtype_size(o.dtype) == 0)
        return fail(Errc::invalid_argument, "dtype is " + std::to_string(o.dtype) +
                                                "; allowed: 0 (NEXAR_F32) to 11 "
                                                "(NEXAR_U16)");
    if (o.op < NEXAR_SUM || o.op > NEXAR_AVG)
        return fail(Errc::invalid_argument, "op is " + std::to_string(o.op) +
                                                "; allowed: 0 (NEXAR_SUM) to 4 "
                                                "(NEXAR_AVG)");
    const bool any = o.kind == NEXAR_OP_RECV && o.peer == NEXAR_ANY_SOURCE;
    if (o.peer >= group.size && !any)
        return fail(Errc::invalid_argument,
                    "rank " + std::to_string(o.peer) + " is not in a group of " + std::to_string(group.size));
    if (o.kind == NEXAR_OP_SEND && o.tag == NEXAR_ANY_TAG)
        return fail(Errc::invalid_argument, "a message cannot be sent with NEXAR_ANY_TAG");
    return {};
}

Result<Checked> check(const Group& group, const Operation& o) {
    NEXAR_TRY_VOID(check_codes(group, o));
    Checked out;
    out.element = dtype_size(o.dtype);
    uint64_t block = 0, all = 0;
    if (__builtin_mul_overflow(o.count, out.element, &block) ||
        __builtin_mul_overflow(block, group.size, &all) || all >> 63 != 0)
        return fail(Errc::invalid_argument,
                    "count is " + std::to_string(o.count) + ": that many bytes do not exist");
    const auto* in = static_cast<const std::byte*>(o.in);
    const auto* memory = static_cast<const std::byte*>(o.out);
    const uint64_t mine = group.rank * block;
    switch (o.kind) {
        case NEXAR_OP_ALL_REDUCE:
            out.in = {in, block}, out.out = {memory, block};
            break;
        case NEXAR_OP_REDUCE:
            out.in = {in, block}, out.out = {memory, o.peer == group.rank ? block : 0};
            break;
        case NEXAR_OP_BROADCAST:
            if (o.peer == group.rank)
                out.in = {memory, block};
            else
                out.out = {memory, block};
            break;
        case NEXAR_OP_ALL_GATHER:
            out.in = {in == memory && in ? in + mine : in, block}, out.out = {memory, all};
            break;
        case NEXAR_OP_REDUCE_SCATTER:
            out.in = {in, all}, out.out = {in == memory && in ? memory + mine : memory, block};
            break;
        case NEXAR_OP_SEND:
            out.in = {in, block};
            break;
        case NEXAR_OP_RECV:
            out.out = {memory, block};
            break;
        default:
            break;
    }
    if ((out.in.bytes != 0 && !out.in.data) || (out.out.bytes != 0 && !out.out.data))
        return fail(Errc::invalid_argument,
                    out.in.bytes != 0 && !out.in.data ? "the input is NULL" : "the output is NULL");
    return out;
}

// In place is: the same memory, or this rank's own block of the larger side. Anything else that overlaps is
// refused.
Result<bool> in_place(const Group& group, const Operation& o, const Checked& c) {
    if (c.in.bytes == 0 || c.out.bytes == 0 || !c.in.overlaps(c.out)) return false;
    if (c.in.data == c.out.data && c.in.bytes == c.out.bytes) return true;
    if (o.kind == NEXAR_OP_ALL_GATHER && c.in.data == c.out.data + group.rank * c.in.bytes) return true;
    if (o.kind == NEXAR_OP_REDUCE_SCATTER && c.out.data == c.in.data + group.rank * c.out.bytes) return true;
    return fail(Errc::invalid_argument, "input and output overlap, and not as they may in place");
}

bool aligned(const void* data, uint64_t element) {
    return reinterpret_cast<uintptr_t>(data) % element == 0;
}

// Where the daemon finds `span`: in a region, or nowhere (then it is copied).
bool use_region(Session& session, const Span& span, uint64_t element, nexar_shm_extent& extent,
                Region*& in_use) {
    if (!aligned(span.data, element)) return false;
    Region* region = session.find_and_use(span.data, span.bytes);
    if (!region) return false;
    extent.region = region->id;
    extent.offset = static_cast<uint64_t>(span.data - region->base);
    in_use = region;
    return true;
}

void point_to(nexar_shm_extent& extent, const ScratchBlock& block, uint64_t offset) {
    extent.region = block.region->id;
    extent.offset = block.offset + offset;
}

// Both sides in one block, laid out as the caller has them.
Result<void> plan_together(Session& session, const Checked& c, nexar_shm_descriptor& d, Plan& plan) {
    const Span& whole = c.in.holds(c.out) ? c.in : c.out;
    NEXAR_TRY(plan.scratch[0], session.take_scratch(whole.bytes));
    const ScratchBlock& block = plan.scratch[0];
    const auto in_at = static_cast<uint64_t>(c.in.data - whole.data);
    const auto out_at = static_cast<uint64_t>(c.out.data - whole.data);
    std::memcpy(block.data() + in_at, c.in.data, c.in.bytes);
    session.count_copy(c.in.bytes);
    point_to(d.in, block, in_at);
    point_to(d.out, block, out_at);
    plan.copy_to = const_cast<std::byte*>(c.out.data);
    plan.copy_from = block.data() + out_at;
    plan.copy_bytes = c.out.bytes;
    return {};
}

Result<void> plan_input(Session& session, const Checked& c, nexar_shm_descriptor& d, Plan& plan) {
    if (c.in.bytes == 0 || use_region(session, c.in, c.element, d.in, plan.in_use[0])) return {};
    NEXAR_TRY(plan.scratch[0], session.take_scratch(c.in.bytes));
    std::memcpy(plan.scratch[0].data(), c.in.data, c.in.bytes);
    session.count_copy(c.in.bytes);
    point_to(d.in, plan.scratch[0], 0);
    return {};
}

Result<void> plan_output(Session& session, const Checked& c, nexar_shm_descriptor& d, Plan& plan) {
    if (c.out.bytes == 0 || use_region(session, c.out, c.element, d.out, plan.in_use[1])) return {};
    NEXAR_TRY(plan.scratch[1], session.take_scratch(c.out.bytes));
    point_to(d.out, plan.scratch[1], 0);
    plan.copy_to = const_cast<std::byte*>(c.out.data);
    plan.copy_from = plan.scratch[1].data();
    plan.copy_bytes = c.out.bytes;
    return {};
}

Result<void> make_plan(Session& session, const Checked& c, bool together, nexar_shm_descriptor& d,
                       Plan& plan) {
    if (together) {
        const bool in_there = use_region(session, c.in, c.element, d.in, plan.in_use[0]);
        const bool out_there = in_there && use_region(session, c.out, c.element, d.out, plan.in_use[1]);
        if (in_there && out_there) return {};
        if (in_there) plan.in_use[0]->users.fetch_sub(1);
        plan.in_use[0] = nullptr;
        return plan_together(session, c, d, plan);
    }
    NEXAR_TRY_VOID(plan_input(session, c, d, plan));
    return plan_output(session, c, d, plan);
}

}  // namespace

uint64_t dtype_size(nexar_dtype dtype) {
    static constexpr uint8_t sizes[] = {4, 8, 2, 2, 1, 4, 8, 1, 4, 8, 2, 2};
    return dtype >= 0 && dtype < static_cast<int>(sizeof sizes) ? sizes[dtype] : 0;
}

int64_t timeout_ns(const Group& group, int64_t timeout_ms) {
    if (timeout_ms < 0) return group.collective_timeout_ns;
    // The daemon's 0 is "none"; "try" is a deadline that has passed at its next look.
    return timeout_ms == 0 ? 1 : nanoseconds(timeout_ms);
}

Result<Slot> start(Session& session, const Group& group, const Operation& o, int64_t timeout_ms) {
    if (timeout_ms < -1)
        return fail(Errc::invalid_argument,
                    "timeout_ms is " + std::to_string(timeout_ms) + "; allowed: -1 and from 0 up");
    NEXAR_TRY(const Checked checked, check(group, o));
    NEXAR_TRY(const bool together, in_place(group, o, checked));
    if (auto error = session.unusable()) return fail(*error);

    nexar_shm_descriptor d{};
    d.kind = o.kind;
    d.dtype = static_cast<uint8_t>(o.dtype);
    d.op = reduces(o.kind) ? static_cast<uint8_t>(o.op) : 0;
    d.group = group.name;
    d.count = o.count;
    d.peer = o.peer;
    d.tag = o.tag;
    if (o.kind == NEXAR_OP_RECV && o.tag == NEXAR_ANY_TAG) d.flags = NEXAR_SHM_FLAG_ANY_TAG;
    d.timeout_ns = timeout_ns(group, timeout_ms);
    Plan plan;
    auto planned = make_plan(session, checked, together, d, plan);
    if (!planned) {
        session.give_up(plan);
        return std::unexpected(planned.error());
    }
    return session.submit(d, plan);
}

}  // namespace nexar::c
