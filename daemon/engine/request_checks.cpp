// check_request(): see group_facts.hpp.
#include "engine/group_facts.hpp"
#include "segments.h"

namespace nexar::engine {
namespace {

Result<void> check_room(const char* which, const MemoryRef& memory, uint64_t needed,
                        const OpDescriptor& descriptor) {
    if (needed == 0 || (memory.region != nullptr && memory.bytes >= needed)) return {};
    return fail(Errc::invalid_argument, descriptor.text() + " needs " + std::to_string(needed) +
                                            " bytes of " + which + ", there are " +
                                            std::to_string(memory.region == nullptr ? 0 : memory.bytes));
}

// [X8]
Result<void> check_pieces(const OpRequest& request, uint64_t bytes) {
    const OpDescriptor& d = request.descriptor;
    uint64_t sum = 0;
    for (const MemoryRef& piece : *request.pieces) sum += piece.region != nullptr ? piece.bytes : 0;
    if (has_pieces(row_of(d.kind)) && sum == bytes) return {};
    return fail(Errc::invalid_argument, d.text() + " needs " + std::to_string(bytes) +
                                            " bytes, its pieces have " + std::to_string(sum));
}

Result<void> check_memory(uint32_t rank, const OpRequest& request, uint64_t in, uint64_t out) {
    const OpDescriptor& d = request.descriptor;
    NEXAR_TRY_VOID(check_room("input", request.in, in, d));
    NEXAR_TRY_VOID(check_room("output", request.out, out, d));
    const Place from = request.in.place(), to = request.out.place();
    if (!overlap(from, in, to, out)) return {};  // [M4]
    // In place: the same start, or this rank's own block of the larger buffer.
    const uint64_t own =
        (request.counts ? request.counts->begin(rank) : rank * d.count) * reduce::size_of(d.dtype);
    if (may_share(row_of(d.kind).in_place, from.in_object(), to.in_object(), own)) return {};
    return fail(Errc::invalid_argument, d.text() + ": input and output overlap, and not as in-place allows");
}

// Windows of one op may be the same memory on both sides where a segment has one place on both.
Result<void> check_stage(const GroupFacts& facts, const OpRequest& request, uint64_t in, uint64_t out) {
    const OpDescriptor& d = request.descriptor;
    const Stage& stage = request.stage;
    const OpRow& row = row_of(d.kind);
    if (!row.collective || !row.has_elements || has_own_counts(row))
        return fail(Errc::invalid_argument, d.text() + " cannot be staged");
    if (stage.windows > NEXAR_SHM_STAGE_WINDOWS_MAX)
        return fail(Errc::invalid_argument, d.text() + ": " + std::to_string(stage.windows) +
                                                " windows; allowed: 1 to " +
                                                std::to_string(NEXAR_SHM_STAGE_WINDOWS_MAX));
    const uint32_t segments = segments_of(row, d.count, d.cut_bytes(), facts.size(),
                                          collectives::segment_bytes_of(facts.layout, facts.table));
    const uint64_t longest = collectives::part_of(d.count, segments, 0).count;
    const auto room = [&](bool staged, uint64_t bytes, uint64_t stride) -> uint64_t {
        if (!staged || bytes == 0) return bytes;
        const uint64_t element = reduce::size_of(d.dtype);
        const uint64_t window = (has_counts(row) ? element : bytes / d.count) * longest;
        uint64_t all = 0;
        const bool fits = stride >= window && !__builtin_mul_overflow(stride, stage.windows, &all);
        return fits ? all : UINT64_MAX;
    };
    const uint64_t in_room = room(stage.in, in, stage.in_stride);
    const uint64_t out_room = room(stage.out, out, stage.out_stride);
    NEXAR_TRY_VOID(check_room("input windows", request.in, in_room, d));
    NEXAR_TRY_VOID(check_room("output windows", request.out, out_room, d));
    const Place from = request.in.place(), to = request.out.place();
    if (!overlap(from, in_room, to, out_room)) return {};  // [M4]
    if (row.in_place == InPlace::same && stage.in && stage.out && from.same(to) &&
        stage.in_stride == stage.out_stride)
        return {};
    return fail(Errc::invalid_argument,
                d.text() + ": windows of input and output overlap, and not as in-place allows");
}

Result<void> check_own_counts(const GroupFacts& facts, const OpDescriptor& d, const OwnCounts& own) {
    const uint64_t most = (uint64_t{1} << 62) / reduce::size_of(d.dtype);
    for (const Counts* list : {&own.sends, &own.receives})
        if (list->size() != facts.size() || list->sum() > most)
            return fail(Errc::invalid_argument, d.text() + ": a list of " + std::to_string(list->size()) +
                                                    " counts, " + std::to_string(list->sum()) +
                                                    " elements in all; the group has " +
                                                    std::to_string(facts.size()) + " ranks");
    return {};
}

Result<void> check_counts(const GroupFacts& facts, const OpRequest& request) {
    const OpDescriptor& d = request.descriptor;
    const Counts* counts = request.counts.get();
    if (has_counts(row_of(d.kind)) != (counts != nullptr) || (counts == nullptr && d.counts != 0))
        return fail(Errc::invalid_argument, d.text() + ": a list of counts that it must not have, or lacks");
    const OwnCounts* own = request.own_counts.get();
    if (has_own_counts(row_of(d.kind)) != (own != nullptr) || (own != nullptr && d.count != 0))
        return fail(Errc::invalid_argument,
                    d.text() + ": lists of its own that it must not have or lacks, or a count besides");
    if (own != nullptr) return check_own_counts(facts, d, *own);
    if (counts == nullptr) return {};
    if (counts->size() != facts.size() || counts->sum() != d.count || counts->digest() != d.counts)
        return fail(Errc::invalid_argument, d.text() + ": its list has " + std::to_string(counts->size()) +
                                                " counts, " + std::to_string(counts->sum()) +
                                                " elements in all; the group has " +
                                                std::to_string(facts.size()) + " ranks");
    return {};
}

}  // namespace

Result<void> check_request(const GroupFacts& facts, uint32_t rank, const OpRequest& request) {
    const OpDescriptor& d = request.descriptor;
    NEXAR_TRY_VOID(facts.check_supported(d));
    const uint32_t size = facts.size();
    const uint64_t element = reduce::size_of(d.dtype);
    if (d.count > (uint64_t{1} << 62) / element / size)
        return fail(Errc::invalid_argument,
                    d.text() + ": the count is too large for " + std::to_string(size) + " ranks");
    const OpRow& row = row_of(d.kind);
    if (d.root >= size && row.rooted)
        return fail(Errc::invalid_argument,
                    d.text() + ": the root must be below the group's size " + std::to_string(size));
    const bool any_allowed = row.any_source && request.peer == any_rank;
    if (!row.collective && request.peer >= size && !any_allowed)
        return fail(Errc::invalid_argument, d.text() + ": rank " + std::to_string(request.peer) +
                                                " does not exist, the group's size is " +
                                                std::to_string(size));
    const uint64_t one = d.count * element;
    if (d.kind == OpKind::send && one > facts.message_bytes_max())
        return fail(Errc::invalid_argument, d.text() + ": " + std::to_string(one) +
                                                " bytes; the longest message of this group is of " +
                                                std::to_string(facts.message_bytes_max()));
    NEXAR_TRY_VOID(check_counts(facts, request));
    const SideElements own = own_elements(request.counts.get(), request.own_counts.get(), rank);
    const auto [in_elements, out_elements] =
        elements_of(row, d.count, own, blocks_of(row, size, rank, d.root));
    const uint64_t in = in_elements * element, out = out_elements * element;
    if (request.pieces) return check_pieces(request, in + out);
    return request.stage.windows > 0 ? check_stage(facts, request, in, out)
                                     : check_memory(rank, request, in, out);
}

}  // namespace nexar::engine
