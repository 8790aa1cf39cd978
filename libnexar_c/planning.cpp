// See planning.hpp.
#include "planning.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/operations.hpp"
#include "core/partials.hpp"

namespace nexar::c {

namespace {

// A blocking call with more segments than this is staged: copies then run at the same time as the operation.
constexpr uint32_t whole_segments_max = 2;
// Windows per side: two in the daemon's work, one that is filled, one that is read. Fewer if scratch_limit is
// small.
constexpr uint32_t windows_wanted = 4;

bool aligned(const void* data, uint64_t align) {
    return reinterpret_cast<uintptr_t>(data) % align == 0;
}

// True: `span` is in a region, so nothing is copied.
Result<bool> use_region(Session& session, const Span& span, uint64_t align, nexar_shm_extent& extent,
                        Region*& in_use) {
    if (span.bytes == 0) return false;
    NEXAR_TRY(Region * region, session.find_and_use(span.data, span.bytes));
    if (!region) return false;
    if (!aligned(span.data, align)) {
        region->users.fetch_sub(1, std::memory_order_release);
        return false;
    }
    in_use = region;
    extent.region = region->id;
    extent.offset = static_cast<uint64_t>(span.data - region->base);
    if (region->populated)
        NEXAR_TRY_VOID(region->populated->ensure({region->base, region->bytes}, extent.offset, span.bytes));
    return true;
}

void point_to(nexar_shm_extent& extent, const ScratchBlock& block, uint64_t offset) {
    extent.region = block.region->id;
    extent.offset = block.offset + offset;
}

class Planner {
  public:
    Planner(Session& session, const Group& group, const Checked& checked, Use use,
            nexar_shm_descriptor& descriptor)
        : session_(session), group_(group), checked_(checked), use_(use), descriptor_(descriptor) {}

    Result<void> plan();
    Plan result;

  private:
    Result<void> plan_sides();
    Result<void> plan_pieces();
    Result<void> copy_pieces(std::vector<nexar_shm_piece>& list, PlanPieces& plan, bool sends);
    Result<void> lend_counts();
    Result<void> find_regions();
    uint64_t bytes_to_copy() const;
    Cut cut() const;
    Result<void> copy_whole();
    bool sides_share() const;
    Result<void> copy_sides();
    Result<void> copy_together();
    Result<void> copy_shared();
    Result<void> copy_side_by_side();
    void copy_in(const ScratchBlock& block, uint64_t at);
    void copy_out(const ScratchBlock& block, uint64_t at);
    Result<void> stage(Cut cut);
    void limit_to_own(StagedSide& side, const Span& span) const;
    Result<ScratchBlock> take_windows(Cut& cut, uint64_t& in_bytes);
    Result<ScratchBlock> take_scratch(uint64_t bytes);
    const OpRow& row() const { return row_of(static_cast<OpKind>(descriptor_.kind)); }
    Partials partials() const {
        const bool tree = (descriptor_.flags & NEXAR_SHM_FLAG_DETERMINISTIC) != 0;
        const bool wide = (descriptor_.flags & NEXAR_SHM_FLAG_F32_PARTIALS) != 0;
        return partials_of(row(), descriptor_.dtype, descriptor_.op,
                           (tree ? flag_deterministic : 0) | (wide ? flag_f32_partials : 0));
    }
    uint64_t in_blocks() const { return side_blocks(row().in, group_.size); }
    uint64_t out_blocks() const { return side_blocks(row().out, group_.size); }
    bool message() const { return !row().collective; }

    Session& session_;
    const Group& group_;
    const Checked& checked_;
    const Use use_;
    nexar_shm_descriptor& descriptor_;
    bool copy_in_ = false, copy_out_ = false;  // this side is ordinary memory
};

Result<void> Planner::plan() {
    if (!checked_.pieces.empty()) return plan_pieces();
    NEXAR_TRY_VOID(lend_counts());
    return plan_sides();
}

// Pieces in regions stay there, the others share one block.
Result<void> Planner::plan_pieces() {
    const auto pieces = std::make_shared<PlanPieces>();
    result.pieces = pieces;  // before a piece is in use
    std::vector<nexar_shm_piece> list;
    for (const Span& span : checked_.pieces) {
        nexar_shm_extent extent{};
        Region* region = nullptr;
        NEXAR_TRY(const bool in_place, use_region(session_, span, checked_.align, extent, region));
        if (region) pieces->in_use.push_back(region);
        list.push_back({in_place ? extent.region : 0, extent.offset, span.bytes});
        pieces->pieces.push_back({nullptr, nullptr, span.bytes});
    }
    NEXAR_TRY_VOID(copy_pieces(list, *pieces, row().in == SideSize::one));
    const uint64_t bytes = list.size() * sizeof list[0];
    NEXAR_TRY(result.scratch[2], take_scratch(bytes));
    std::memcpy(result.scratch[2].data(), list.data(), bytes);
    point_to(descriptor_.args, result.scratch[2], 0);
    descriptor_.args.entries = static_cast<uint32_t>(list.size());
    return {};
}

Result<void> Planner::copy_pieces(std::vector<nexar_shm_piece>& list, PlanPieces& plan, bool sends) {
    constexpr uint64_t align = 64;
    const auto room_of = [](const nexar_shm_piece& piece) {
        return piece.region != 0 ? 0 : (piece.bytes + align - 1) / align * align;
    };
    uint64_t room = 0;
    for (const nexar_shm_piece& piece : list) room += room_of(piece);
    if (room == 0) return {};
    NEXAR_TRY(result.scratch[0], take_scratch(room));
    const ScratchBlock& block = result.scratch[0];
    uint64_t at = 0;
    for (size_t i = 0; i < list.size(); ++i) {
        const uint64_t taken = room_of(list[i]);
        if (taken == 0) continue;
        const Span& span = checked_.pieces[i];
        if (sends) {
            std::memcpy(block.data() + at, span.data, span.bytes);
            session_.count_copy(span.bytes);
        } else {
            plan.pieces[i].to = const_cast<std::byte*>(span.data);
            plan.pieces[i].from = block.data() + at;
        }
        list[i].region = block.region->id;
        list[i].offset = block.offset + at;
        at += taken;
    }
    return {};
}

// The daemon reads the lists when it takes the operation, which may be after this call.
Result<void> Planner::lend_counts() {
    std::vector<uint64_t> list;
    const auto add = [&list](const Counts& counts) {
        for (uint32_t rank = 0; rank < counts.size(); ++rank) list.push_back(counts.of(rank));
    };
    if (checked_.counts) add(*checked_.counts);
    if (checked_.own_counts) add(checked_.own_counts->sends), add(checked_.own_counts->receives);
    if (list.empty()) return {};
    NEXAR_TRY(result.scratch[2], session_.take_scratch(list.size() * sizeof list[0]));
    std::memcpy(result.scratch[2].data(), list.data(), list.size() * sizeof list[0]);
    point_to(descriptor_.args, result.scratch[2], 0);
    descriptor_.args.entries = static_cast<uint32_t>(list.size());
    return {};
}

Result<void> Planner::plan_sides() {
    NEXAR_TRY_VOID(find_regions());
    if (!copy_in_ && !copy_out_) return {};
    const Cut cut = this->cut();
    const bool stageable = cut.segments != 0, blocking = use_ == Use::blocking;
    if (stageable && ((blocking && cut.segments > whole_segments_max) || !session_.may_copy(bytes_to_copy())))
        return stage(cut);
    const auto copied = copy_sides();
    if (copied || copied.error().code != Errc::no_memory || !stageable) return copied;
    session_.release_sides(result);  // other threads have taken the room
    return stage(cut);
}

// One that is only started and copied whole keeps its blocks for long, and shares nothing: with more room
// left a later one would be copied whole as well, and leave none to those behind it.
Result<void> Planner::copy_sides() {
    if (checked_.in_place) return copy_together();
    if (use_ == Use::blocking && sides_share()) return copy_shared();
    auto copied = copy_whole();
    if (copied || copied.error().code != Errc::no_memory || !copy_in_ || !copy_out_) return copied;
    session_.release_sides(result);
    return copy_side_by_side();
}

Result<void> Planner::find_regions() {
    const Checked& c = checked_;
    bool in_there = false;
    if (!c.replaces) {
        NEXAR_TRY(in_there, use_region(session_, c.in, c.align, descriptor_.in, result.in_use[0]));
    }
    NEXAR_TRY(const bool out_there, use_region(session_, c.out, c.align, descriptor_.out, result.in_use[1]));
    copy_in_ = c.in.bytes != 0 && !in_there;
    copy_out_ = c.out.bytes != 0 && !out_there;
    if (!c.in_place || copy_in_ == copy_out_) return {};
    // Only one of two overlapping sides is in a region: both are treated as ordinary memory.
    for (Region*& region : result.in_use) {
        if (region) region->users.fetch_sub(1, std::memory_order_release);
        region = nullptr;
    }
    copy_in_ = copy_out_ = true;
    return {};
}

// Both are copied, and the daemon reduces where the values stand: then it copies nothing. What only moves in
// place it copies first, and a scan's first rank may have no result.
bool Planner::sides_share() const {
    const bool reduces_in_place = row().in_place == InPlace::same && row().reduces && !row().in_rank_order;
    return copy_in_ && copy_out_ && reduces_in_place && checked_.in.bytes == checked_.out.bytes;
}

uint64_t Planner::bytes_to_copy() const {
    if (checked_.in_place) return std::max(checked_.in.bytes, checked_.out.bytes);
    return (copy_in_ ? checked_.in.bytes : 0) + (copy_out_ ? checked_.out.bytes : 0);
}

// The engine's segments; none: the operation cannot be staged.
Cut Planner::cut() const {
    if (group_.segment_bytes == 0 || message() || checked_.own_counts) return {};
    Cut out;
    out.count = descriptor_.count;
    out.element = checked_.element;
    const uint64_t wide = partial_bytes(out.element, partials());
    out.segments = segments_of(row(), out.count, wide, group_.size, group_.segment_bytes);
    return out;
}

Result<ScratchBlock> Planner::take_scratch(uint64_t bytes) {
    auto block = session_.take_scratch(bytes);
    // A message cannot be staged; one that does not fit gets its own block.
    if (!block && block.error().code == Errc::no_memory && message()) return session_.take_own_scratch(bytes);
    return block;
}

Result<void> Planner::copy_whole() {
    if (copy_in_) {
        NEXAR_TRY(result.scratch[0], take_scratch(checked_.in.bytes));
        copy_in(result.scratch[0], 0);
    }
    if (copy_out_) {
        NEXAR_TRY(result.scratch[1], take_scratch(checked_.out.bytes));
        copy_out(result.scratch[1], 0);
    }
    return {};
}

// Both sides in one block, which needs less room than two: each block is rounded up.
Result<void> Planner::copy_side_by_side() {
    NEXAR_TRY(result.scratch[0], take_scratch(checked_.in.bytes + checked_.out.bytes));
    copy_in(result.scratch[0], 0);
    copy_out(result.scratch[0], checked_.in.bytes);
    return {};
}

void Planner::copy_in(const ScratchBlock& block, uint64_t at) {
    result.fill_to = block.data() + at;
    result.fill_from = checked_.in.data;
    result.fill_bytes = checked_.in.bytes;
    if (use_ != Use::persistent) session_.fill(result);
    point_to(descriptor_.in, block, at);
}

void Planner::copy_out(const ScratchBlock& block, uint64_t at) {
    point_to(descriptor_.out, block, at);
    result.copy_to = const_cast<std::byte*>(checked_.out.data);
    result.copy_from = block.data() + at;
    result.copy_bytes = checked_.out.bytes;
}

// Both sides in one block, laid out as the caller has them.
Result<void> Planner::copy_together() {
    const Checked& c = checked_;
    const Span& whole = c.in.holds(c.out) ? c.in : c.out;
    NEXAR_TRY(result.scratch[0], take_scratch(whole.bytes));
    const ScratchBlock& block = result.scratch[0];
    copy_in(block, static_cast<uint64_t>(c.in.data - whole.data));
    copy_out(block, static_cast<uint64_t>(c.out.data - whole.data));
    return {};
}

// Both sides in the same bytes.
Result<void> Planner::copy_shared() {
    NEXAR_TRY(result.scratch[0], take_scratch(checked_.in.bytes));
    copy_in(result.scratch[0], 0);
    copy_out(result.scratch[0], 0);
    return {};
}

// Windows of both sides in one block, as many as scratch_limit allows; in_bytes: where those of the output
// begin.
Result<ScratchBlock> Planner::take_windows(Cut& cut, uint64_t& in_bytes) {
    const uint64_t in_window = copy_in_ ? StagedSide{nullptr, nullptr, in_blocks()}.window_bytes(cut) : 0;
    const uint64_t out_window = copy_out_ ? StagedSide{nullptr, nullptr, out_blocks()}.window_bytes(cut) : 0;
    for (uint32_t windows = windows_wanted;; windows /= 2) {
        cut.windows = std::min(windows, cut.segments);
        in_bytes = sides_share() ? 0 : cut.windows * in_window;
        auto block = session_.take_scratch(in_bytes + cut.windows * out_window);
        if (block || block.error().code != Errc::no_memory || windows == 1) return block;
    }
}

void Planner::limit_to_own(StagedSide& side, const Span& span) const {
    side.first = checked_.own_begin;
    side.end = side.first + span.bytes / checked_.element;
}

Result<void> Planner::stage(Cut cut) {
    uint64_t in_bytes = 0;
    NEXAR_TRY(result.scratch[0], take_windows(cut, in_bytes));
    const ScratchBlock& block = result.scratch[0];
    StagedSide in, out;
    if (copy_in_) {
        in = {const_cast<std::byte*>(checked_.in.data), block.data(), in_blocks()};
        if (row().in == SideSize::own) limit_to_own(in, checked_.in);
        point_to(descriptor_.in, block, 0);
        descriptor_.flags |= NEXAR_SHM_FLAG_STAGED_IN;
    }
    if (copy_out_) {
        out = {const_cast<std::byte*>(checked_.out.data), block.data() + in_bytes, out_blocks()};
        if (row().out == SideSize::own) limit_to_own(out, checked_.out);
        point_to(descriptor_.out, block, in_bytes);
        descriptor_.flags |= NEXAR_SHM_FLAG_STAGED_OUT;
    }
    descriptor_.stage_windows = cut.windows;
    result.stage = Stage(cut, in, out);
    return {};
}

}  // namespace

Result<Plan> make_plan(Session& session, const Group& group, const Checked& checked, Use use,
                       nexar_shm_descriptor& descriptor) {
    Planner planner(session, group, checked, use, descriptor);
    auto planned = planner.plan();
    if (planned) return planner.result;
    session.release_plan(planner.result);
    return std::unexpected(planned.error());
}

}  // namespace nexar::c
