#include "program.hpp"

#include <optional>

#include "engine/records.hpp"
#include "support/regions.hpp"

namespace nexar::sim {

std::vector<std::byte> lay_out_in_place(const OpRow& row, size_t own_at, size_t out,
                                        std::vector<std::byte> in, engine::OpRequest& request) {
    if (row.in_place == InPlace::block_of_out) {
        request.in.offset = own_at, request.in.bytes = in.size();
        std::vector<std::byte> memory(out, std::byte{0xdd});
        std::ranges::copy(in, memory.begin() + static_cast<ptrdiff_t>(own_at));
        return memory;
    }
    if (row.in_place == InPlace::block_of_in) request.out.offset = own_at, request.out.bytes = out;
    return in;
}

namespace {

collectives::PlanTable table_of(const wire::PlanTableRecord& r) {
    return engine::table_of(r);
}

// Rank `rank` has a result of all ranks below this number.
uint32_t ranks_needed(const OpDescriptor& d, uint32_t size, uint32_t rank) {
    switch (d.kind) {
        case OpKind::barrier:
        case OpKind::all_reduce:
        case OpKind::all_gather:
        case OpKind::all_gatherv:
        case OpKind::reduce_scatter:
        case OpKind::reduce_scatterv:
        case OpKind::all_to_all:
        case OpKind::all_to_allv:
            return size;
        case OpKind::gather:
        case OpKind::gatherv:
            return rank == d.root ? size : 0;
        case OpKind::scan:
        case OpKind::exclusive_scan:
            return rank;
        default:
            return 0;
    }
}

// The rank that came after the end of this one, which has something of it; a barrier is nothing else. The
// group's size: none.
uint32_t ended_before(const OpDescriptor& d, const Counts* counts, const std::vector<Call*>& calls,
                      uint32_t rank) {
    const auto size = static_cast<uint32_t>(calls.size());
    for (uint32_t other = 0; other < ranks_needed(d, size, rank); ++other) {
        bool has_data = counts == nullptr || d.count == 0 || counts->of(other) > 0;
        if (d.kind == OpKind::all_to_allv) has_data = Reference::sent(d.count, size, other, rank) > 0;
        if (d.kind == OpKind::reduce_scatterv) has_data = d.count == 0 || counts->of(rank) > 0;
        if (has_data && (calls[other] == nullptr || calls[other]->submitted > calls[rank]->finished))
            return other;
    }
    return size;
}

// Element i of all blocks one after the other.
uint64_t gathered(const Counts& counts, const Step& step, uint64_t i) {
    uint32_t rank = 0;
    while (i >= counts.begin(rank) + counts.of(rank)) ++rank;
    return Reference::element(step.salt, rank, i - counts.begin(rank), step.words.dtype);
}

// The first element of a rank's result that is wrong.
template <class At>
std::optional<uint64_t> wrong_in_counts(const Counts& counts, const Step& step, uint32_t rank, At at) {
    const OpDescriptor& d = step.words;
    const bool has_own = row_of(d.kind).out == SideSize::own;
    const uint64_t elements = has_own ? counts.of(rank) : counts.sum();
    if (d.kind == OpKind::gatherv && rank != d.root) return {};
    for (uint64_t i = 0; i < elements; ++i) {
        if (d.kind == OpKind::reduce_scatterv) {
            const uint64_t position = counts.begin(rank) + i;
            const auto size = static_cast<uint32_t>(step.calls.size());
            if (!Reference::reduced(at(i), step.salt, size, position, d.dtype, d.op)) return i;
            continue;
        }
        const uint64_t want = has_own ? Reference::element(step.salt, d.root, counts.begin(rank) + i, d.dtype)
                                      : gathered(counts, step, i);
        if (at(i) != want) return i;
    }
    return {};
}

template <class At>
std::optional<uint64_t> wrong_in_exchange(const Step& step, uint32_t size, uint32_t rank, At at) {
    const OpDescriptor& d = step.words;
    uint64_t next = 0;
    for (uint32_t from = 0; from < size; ++from) {
        const Counts sent = Reference::own_counts(d, size, from)->sends;
        for (uint64_t i = 0; i < sent.of(rank); ++i, ++next)
            if (at(next) != Reference::element(step.salt, from, sent.begin(rank) + i, d.dtype)) return next;
    }
    return {};
}

// Nothing, too, for operations without counts.
template <class At>
std::optional<uint64_t> wrong_with_counts(const Counts* counts, const Step& step, uint32_t rank, At at) {
    if (counts != nullptr) return wrong_in_counts(*counts, step, rank, at);
    if (!has_own_counts(row_of(step.words.kind))) return {};
    return wrong_in_exchange(step, static_cast<uint32_t>(step.calls.size()), rank, at);
}

}  // namespace

Call& Program::post(size_t index, uint32_t rank) {
    Step& step = steps[index];
    const OpDescriptor& d = step.words;
    const size_t width = Reference::width(d.dtype);
    const uint32_t size = group.size();
    const OpRow& row = row_of(d.kind);
    const CountsRef counts = Reference::counts(d, size);
    const OwnCountsRef own = Reference::own_counts(d, size, rank);
    const auto [in_elements, out_elements] = elements_of(
        row, d.count, own_elements(counts.get(), own.get(), rank), blocks_of(row, size, rank, d.root));
    std::vector<std::byte> in = Reference::input(step.salt, rank, in_elements, d.dtype);
    const size_t out = out_elements * width;
    const bool is_source = d.kind == OpKind::broadcast && rank == d.root;
    bool in_place = is_source || (step.in_place && in_elements > 0 && out_elements > 0 && !own);
    engine::OpRequest request = request_of(d);
    request.timeout = step.timeout;
    if (!known_.empty()) request.known = known_[rank];
    if (!step.priorities.empty()) request.priority = step.priorities[rank];
    if (d.op == ReduceOp::premul_sum) request.scalar = Reference::scalar(rank, d.dtype);
    std::shared_ptr<StagedMemory> staged;
    if (windows_max_ > 0 && d.kind != OpKind::barrier && !own && d.count > 0 &&
        cluster_.clock.random.one_in(2)) {
        staged = lend(d, counts, rank, in, is_source ? 0 : out, request);
        if (staged) in_place = is_source && !request.stage.in;
    }
    const size_t own_at = (counts ? counts->begin(rank) : rank * d.count) * width;
    if (in_place) in = lay_out_in_place(row, own_at, out, std::move(in), request);
    if (step.impatient.value_or(rank) != rank) request.timeout = Duration{-1};
    Call& call = cluster_.submit(group, rank, request, std::move(in), out, in_place, staged);
    step.calls[rank] = &call;
    return call;
}

// Nothing: the side that was to be staged has no bytes for this rank.
std::shared_ptr<StagedMemory> Program::lend(const OpDescriptor& d, const CountsRef& counts, uint32_t rank,
                                            std::vector<std::byte>& in, size_t out_bytes,
                                            engine::OpRequest& request) {
    Random& random = cluster_.clock.random;
    const uint64_t sides = random.below(3);  // both; input; output
    const uint64_t width = Reference::width(d.dtype), one = d.count * width;
    auto staged = std::make_shared<StagedMemory>();
    staged->count = d.count;
    staged->element = width;
    staged->segments = segments_of(
        row_of(d.kind), d.count, d.cut_bytes(), group.size(),
        collectives::segment_bytes_of(collectives::Layout(group.placement), table_of(cluster_.shape.plan)));
    staged->windows = 1 + static_cast<uint32_t>(random.below(windows_max_));
    staged->at_most = random.one_in(2) ? UINT32_MAX : 1 + static_cast<uint32_t>(random.below(3));
    const auto windows_of = [&](StagedMemory::Side& side, uint64_t bytes, uint64_t& stride) {
        side.blocks = counts ? 1 : bytes / one;
        side.stride = stride = nexar_shm_window_bytes(d.count, staged->segments, width, side.blocks);
        auto memory = std::make_shared<std::vector<std::byte>>(stride * staged->windows, std::byte{0xcc});
        side.windows = memory->data();
        return nexar::test::ref_of(staged_regions_, std::move(memory));
    };
    engine::Stage& stage = request.stage;
    stage.in = sides != 2 && !in.empty();
    stage.out = sides != 1 && out_bytes > 0;
    if (!stage.in && !stage.out) return {};
    stage.windows = staged->windows;
    if (stage.in) {
        request.in = windows_of(staged->in, in.size(), stage.in_stride);
        staged->in.user = std::exchange(in, {});
        if (row_of(d.kind).in == SideSize::own) staged->in.limit_to_own(*counts, rank);
    }
    if (stage.out) {
        request.out = windows_of(staged->out, out_bytes, stage.out_stride);
        staged->out.user.assign(out_bytes, std::byte{0x77});
        if (row_of(d.kind).out == SideSize::own) staged->out.limit_to_own(*counts, rank);
    }
    return staged;
}

// Looks again a little later until there is room for the next one: the rank's own thread, waiting.
void Program::schedule(uint32_t rank, Duration pause) {
    ++cluster_.to_be_submitted;
    cluster_.clock.after(Duration(1) + cluster_.clock.some(pause), [this, rank, pause] {
        --cluster_.to_be_submitted;
        if (stopped.contains(rank) || cluster_.hosts[group.placement[rank]]->dead) return;
        size_t in_flight = 0;
        for (size_t i = 0; i < next_[rank]; ++i) in_flight += steps[i].calls[rank]->ended ? 0u : 1u;
        const bool may = in_flight < depth_ && next_[rank] < steps.size();
        if (may) post(next_[rank]++, rank);
        // A rank that waits long is looked at less and less often.
        if (next_[rank] < steps.size()) schedule(rank, may ? pause_ : std::min<Duration>(2 * pause, 2ms));
    });
}

std::string Program::wrong_result(const Step& step, uint32_t rank) const {
    const OpDescriptor& d = step.words;
    const size_t width = Reference::width(d.dtype);
    const std::vector<std::byte>& out = step.calls[rank]->out_at_end;
    const auto at = [&](uint64_t i) { return Reference::load(out.data() + i * width, d.dtype); };
    const auto bad = [&](uint64_t i) {
        return "rank " + std::to_string(rank) + " has a wrong value at " + std::to_string(i) + " (salt " +
               std::to_string(step.salt) + ")";
    };
    const CountsRef counts = Reference::counts(d, group.size());
    if (const auto i = wrong_with_counts(counts.get(), step, rank, at)) return bad(*i);
    switch (d.kind) {
        case OpKind::all_reduce:
        case OpKind::reduce:
            if (d.kind == OpKind::reduce && rank != d.root) break;
            for (uint64_t i = 0; i < d.count; ++i)
                if (!Reference::reduced(at(i), step.salt, group.size(), i, d.dtype, d.op)) return bad(i);
            break;
        case OpKind::broadcast:
            for (uint64_t i = 0; i < d.count; ++i)
                if (at(i) != Reference::element(step.salt, d.root, i, d.dtype)) return bad(i);
            break;
        case OpKind::scan:
        case OpKind::exclusive_scan: {
            const uint32_t ranks = d.kind == OpKind::scan ? rank + 1 : rank;
            for (uint64_t i = 0; i < d.count; ++i)
                if (ranks == 0 ? at(i) != Reference::identity(d.dtype, d.op)
                               : !Reference::reduced(at(i), step.salt, ranks, i, d.dtype, d.op))
                    return bad(i);
            break;
        }
        case OpKind::scatter:
            for (uint64_t i = 0; i < d.count; ++i)
                if (at(i) != Reference::element(step.salt, d.root, rank * d.count + i, d.dtype))
                    return bad(i);
            break;
        case OpKind::gather:
            if (rank != d.root) break;
            [[fallthrough]];
        case OpKind::all_gather:
            for (uint64_t i = 0; i < d.count * group.size(); ++i)
                if (at(i) !=
                    Reference::element(step.salt, static_cast<uint32_t>(i / d.count), i % d.count, d.dtype))
                    return bad(i);
            break;
        case OpKind::reduce_scatter:
            for (uint64_t i = 0; i < d.count; ++i)
                if (!Reference::reduced(at(i), step.salt, group.size(), rank * d.count + i, d.dtype, d.op))
                    return bad(i);
            break;
        case OpKind::all_to_all:
            for (uint64_t i = 0; i < d.count * group.size(); ++i)
                if (at(i) != Reference::element(step.salt, static_cast<uint32_t>(i / d.count),
                                                rank * d.count + i % d.count, d.dtype))
                    return bad(i);
            break;
        default:
            break;
    }
    if (const uint32_t other = ended_before(d, counts.get(), step.calls, rank); other < group.size())
        return "rank " + std::to_string(rank) + " had ended before rank " + std::to_string(other) + " came";
    // The same bits on all ranks that have a result.
    const Call* first = step.calls[0];
    if (d.kind == OpKind::all_reduce && first != nullptr && first->ok() && out != first->out_at_end)
        return "rank " + std::to_string(rank) + " has other bits than rank 0";
    return {};
}

std::string Program::wrong(const Step& step) const {
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
        const Call* call = step.calls[rank];
        const std::string who = "rank " + std::to_string(rank);
        if (call == nullptr) return who + " has not posted it";
        if (!call->ended) return who + " has not ended";
        if (!call->ok()) return who + " failed: " + call->outcome.error.text;
        if (const std::string w = wrong_result(step, rank); !w.empty()) return w;
    }
    return {};
}

uint64_t Program::predicted_bytes(uint32_t from_host, uint32_t to_host) const {
    const collectives::Layout layout(group.placement);
    const uint32_t nodes = layout.nodes();
    uint64_t total = 0;
    for (const Step& step : steps) {
        const OpDescriptor& d = step.words;
        const CountsRef counts = Reference::counts(d, group.size());
        const std::vector<Counts> sends = Reference::sends(d, group.size());
        const collectives::Shape shape{collectives::Kind(d.kind),
                                       d.count,
                                       static_cast<uint32_t>(Reference::width(d.dtype)),
                                       d.root,
                                       counts.get(),
                                       sends,
                                       d.partials};
        const auto plan = collectives::plan(shape, layout, table_of(cluster_.shape.plan));
        const auto bytes = collectives::predict_bytes(plan, shape, layout);
        for (uint32_t a = 0; a < nodes; ++a)
            for (uint32_t b = 0; b < nodes; ++b) {
                const uint32_t host_a = group.placement[layout.ranks_on(collectives::NodeIndex(a))[0]];
                const uint32_t host_b = group.placement[layout.ranks_on(collectives::NodeIndex(b))[0]];
                if (host_a == from_host && host_b == to_host) total += bytes[a * nodes + b];
            }
    }
    return total;
}

}  // namespace nexar::sim
