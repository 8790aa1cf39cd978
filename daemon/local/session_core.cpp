// See session_core.hpp.
#include "local/session_core.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "shm/words.hpp"

namespace nexar::local {

using engine::OpKind;

namespace {

Error at_fault(Errc code, std::string text) {
    return Error{.code = code, .text = std::move(text)};
}

constexpr uint32_t stage_flags = NEXAR_SHM_FLAG_STAGED_IN | NEXAR_SHM_FLAG_STAGED_OUT;

// The library computes the same number with the same function [S12].
uint32_t staged_segments(const engine::OpDescriptor& d, const engine::GroupInfo& group) {
    return segments_of(row_of(d.kind), d.count, d.cut_bytes(), group.size, group.segment_bytes);
}

// A result without values; `epoch`: of the request's group, 0 without one.
nexar_shm_result result_of_epoch(uint32_t epoch) {
    nexar_shm_result out{};
    out.group_epoch = epoch;
    out.sequence = NEXAR_SHM_NO_SEQUENCE;
    return out;
}

}  // namespace

SessionCore::SessionCore(const SessionIdentity& identity, shm::ControlView control, engine::Service& service,
                         Waker& waker, const SessionLimits& limits)
    : identity_(identity),
      control_(control),
      service_(&service),
      waker_(&waker),
      limits_(limits),
      intake_(control),
      completion_(control),
      ledger_(control.slots()),
      kinds_(control.slots()),
      opening_(control.slots()),
      prepared_(control.slots()) {}

size_t SessionCore::drain(Time now, size_t entries_max) {
    size_t taken = 0;
    while (!broken_ && taken < entries_max) {
        const auto entry = intake_.next();
        if (!entry) break;
        ++taken;
        handle_entry(now, *entry);
    }
    return taken;
}

void SessionCore::handle_entry(Time now, const shm::Entry& entry) {
    const Ticket ticket{entry.slot, entry.generation};
    if (entry.slot >= control_.slots()) return bad_entry("names a slot beyond the table");
    switch (entry.kind) {
        case NEXAR_ENTRY_SUBMIT:
            return on_submit(now, ticket);
        case NEXAR_ENTRY_CANCEL:
            // A slot that is no longer in flight is the common race, not an error.
            if (ledger_.in_flight(ticket.slot, ticket.generation))
                service_->cancel(now, identity_.id, ticket.value());
            return;
        case NEXAR_ENTRY_STAGE:
            if (ledger_.in_flight(ticket.slot, ticket.generation)) on_stage(now, ticket);
            return;
        default:
            return bad_entry("is of an unknown kind");
    }
}

// The library never writes such an entry, so there is no slot for an error.
void SessionCore::bad_entry(const char* what) {
    if (++bad_entries_ < limits_.bad_entries_max) return;
    break_off(at_fault(Errc::protocol_error, std::string("an entry of the submission ring ") + what));
}

void SessionCore::on_submit(Time now, Ticket ticket) {
    auto& slot = control_.slot(ticket.slot);
    const uint32_t word = shm::load_acquire(slot.state);
    if (word != NEXAR_SLOT_WORD(ticket.generation, NEXAR_SLOT_SUBMITTED))
        return bad_entry("names a slot that is not submitted");
    if (!ledger_.try_accept(ticket.slot, ticket.generation))
        return bad_entry("names a slot that is in flight");

    const auto asked = shm::copy_once(slot.descriptor);  // [S3]
    kinds_[ticket.slot] = asked.kind;
    auto accepted = check_fields(asked);  // [S14]
    if (accepted) accepted = dispatch(now, ticket, asked);
    if (!accepted) end_with(ticket, asked.kind, accepted.error(), result_of_epoch(epoch_of(asked)));
}

// [S12]: a count only grows, up to the number of segments; any other value is ignored.
void SessionCore::on_stage(Time now, Ticket ticket) {
    const auto found = staged_.find(ticket.slot);
    if (found == staged_.end()) return bad_entry("moves bytes of a slot that is not staged");
    Staged& staged = found->second;
    auto& slot = control_.slot(ticket.slot);
    const uint32_t filled = std::min(shm::load_acquire(slot.stage_filled), staged.segments);
    const uint32_t taken = std::min(shm::load_acquire(slot.stage_taken), staged.segments);
    if (filled <= staged.filled && taken <= staged.taken) return;
    staged.filled = std::max(staged.filled, filled);
    staged.taken = std::max(staged.taken, taken);
    service_->stage(now, identity_.id, ticket.value(), staged.filled, staged.taken);
}

void SessionCore::stage_done(uint64_t value, uint32_t done) {
    const Ticket ticket = Ticket::from(value);
    if (broken_ || !ledger_.in_flight(ticket.slot, ticket.generation)) return;
    const auto found = staged_.find(ticket.slot);
    if (found == staged_.end()) return;
    found->second.done = done;
    shm::store_release(control_.slot(ticket.slot).result.stage, done);
    completion_.push(ticket.slot, ticket.generation);
    wake(ticket.slot);
}

Result<void> SessionCore::dispatch(Time now, Ticket ticket, const nexar_shm_descriptor& asked) {
    if (find_operation(asked.kind) != nullptr) return submit_op(now, ticket, asked);
    switch (asked.kind) {
        case NEXAR_CMD_GROUP_OPEN:
            return open_group(now, ticket);
        case NEXAR_CMD_GROUP_CREATE:
            return create_group(now, ticket, asked);
        case NEXAR_CMD_GROUP_FREE:
            return free_group(now, ticket, asked);
        case NEXAR_CMD_GROUP_ABORT:
            return abort_group(now, ticket, asked);
        case NEXAR_CMD_GROUP_NODE:
            return report_node(ticket, asked);
        case NEXAR_CMD_GROUP_INFO:
            return report_info(ticket, asked);
        case NEXAR_CMD_GROUP_TRANSLATE:
            return translate(ticket, asked);
        case NEXAR_CMD_REGION_FREE:
            return free_region(ticket, asked);
        default:
            return fail(Errc::unsupported, "request kind " + std::to_string(asked.kind) + " is unknown");
    }
}

uint32_t SessionCore::epoch_of(const nexar_shm_descriptor& asked) const {
    const auto found = groups_.find(asked.group);
    return found == groups_.end() ? 0 : found->second.epoch.value;
}

Result<const engine::GroupInfo*> SessionCore::group_named(uint32_t name) const {
    auto found = groups_.find(name);
    if (found == groups_.end()) return fail(Errc::closed, "the group is not open in this session");
    return &found->second;
}

Result<void> SessionCore::submit_op(Time now, Ticket ticket, const nexar_shm_descriptor& asked) {
    if (Prepared* known = find_prepared(ticket.slot, asked))
        return submit_request(now, ticket, known->request, known->segments);
    NEXAR_TRY(const auto* group, group_named(asked.group));
    if (asked.epoch != group->epoch.value)
        return fail(Errc::group_changed, "the handle is of epoch " + std::to_string(asked.epoch) +
                                             ", the group is in epoch " + std::to_string(group->epoch.value));
    NEXAR_TRY(auto descriptor, descriptor_from(asked));
    const OpRow& row = row_of(descriptor.kind);
    const bool is_message = !row.collective;
    const bool any_source = row.any_source && asked.peer == engine::any_rank;
    if ((is_message && !any_source && asked.peer >= group->size) || descriptor.root >= group->size)
        return fail(Errc::invalid_argument, "rank " + std::to_string(asked.peer) + " is not in a group of " +
                                                std::to_string(group->size));
    engine::OpRequest request;
    NEXAR_TRY_VOID(read_counts(asked, row, *group, request));
    if (request.counts) descriptor.counts = request.counts->digest();
    NEXAR_TRY(auto lengths, lengths_of(descriptor, group->size, group->rank.value, request.counts.get(),
                                       request.own_counts.get()));

    const uint64_t align = align_of(descriptor.dtype);
    const bool staged = (asked.flags & stage_flags) != 0 || asked.stage_windows != 0;
    request.descriptor = descriptor;
    if (staged) NEXAR_TRY_VOID(resolve_stage(asked, *group, lengths, request));
    NEXAR_TRY_VOID(read_pieces(asked, row, lengths, request));
    NEXAR_TRY(request.in, name_memory(asked.in, lengths.in, align, "input"));
    NEXAR_TRY(request.out, name_memory(asked.out, lengths.out, align, "output"));
    request.session = identity_.id;
    request.group = group->id;
    request.rank = group->rank.value;
    request.timeout = Duration(asked.timeout_ns);
    if (asked.priority != NEXAR_SHM_PRIORITY_DEFAULT)
        request.priority = static_cast<Priority>(asked.priority);  // check_fields() knows it
    if (is_message) request.peer = asked.peer;
    request.tag = asked.tag;
    request.scalar = asked.scalar;
    request.any_tag = (asked.flags & NEXAR_SHM_FLAG_ANY_TAG) != 0;
    if (row.makes_groups) return submit_child(now, ticket, std::move(request));
    const uint32_t segments = staged ? staged_segments(descriptor, *group) : 0;
    Prepared* kept = keep_prepared(ticket.slot, asked, request, segments);
    return submit_request(now, ticket, kept ? kept->request : request, segments);
}

Result<void> SessionCore::submit_request(Time now, Ticket ticket, engine::OpRequest& request,
                                         uint32_t segments) {
    request.ticket = ticket.value();
    // Before submit(), which may complete the operation.
    if (segments != 0) staged_[ticket.slot].segments = segments;
    return service_->submit(now, request);
}

// [Y4] A session without room for another group takes part all the same, and says so: all ranks get the
// error.
Result<void> SessionCore::submit_child(Time now, Ticket ticket, engine::OpRequest request) {
    const auto asked = shm::copy_once(control_.payload(ticket.slot).group_child);  // [S3]
    NEXAR_TRY(auto child, child_request_from(asked, request.descriptor.kind));
    request.ticket = ticket.value();
    const bool wants = child.colour != engine::no_colour;
    const bool has_room = groups_.size() + groups_opening_ < limits_.groups_max;
    if (wants && !has_room) child.refusal = engine::ChildRefusal::session, child.limit = limits_.groups_max;
    request.child = std::make_shared<const engine::ChildRequest>(std::move(child));
    expect_group(ticket.slot, wants && has_room);  // before submit(), which may complete the operation
    auto accepted = service_->submit(now, request);
    if (!accepted) expect_group(ticket.slot, false);
    return accepted;
}

void SessionCore::expect_group(uint32_t slot, bool expected) {
    if (opening_[slot] == expected) return;
    opening_[slot] = expected;
    groups_opening_ = expected ? groups_opening_ + 1 : groups_opening_ - 1;
}

// A side that has no bytes at this rank is not staged, even if its flag is set.
Result<void> SessionCore::resolve_stage(const nexar_shm_descriptor& asked, const engine::GroupInfo& group,
                                        Lengths& lengths, engine::OpRequest& request) const {
    const engine::OpDescriptor& d = request.descriptor;
    if ((asked.flags & stage_flags) == 0 || asked.stage_windows == 0 ||
        asked.stage_windows > NEXAR_SHM_STAGE_WINDOWS_MAX)
        return fail(Errc::invalid_argument, "a staged operation has a staged side and 1 to " +
                                                std::to_string(NEXAR_SHM_STAGE_WINDOWS_MAX) +
                                                " windows, not " + std::to_string(asked.stage_windows));
    if (group.segment_bytes == 0) return fail(Errc::unsupported, "this group has no staged operations");
    const uint32_t segments = staged_segments(d, group);
    engine::Stage& stage = request.stage;
    stage.windows = asked.stage_windows;
    bool overflow = false;
    // The length of all ranks' blocks is below 2^63, so a window's length does not overflow when it is
    // rounded up.
    const auto side = [&](uint32_t flag, uint64_t& bytes, uint64_t& stride) {
        if ((asked.flags & flag) == 0 || bytes == 0) return false;
        const uint64_t blocks = has_counts(row_of(d.kind)) ? 1 : bytes / (d.count * size_of(d.dtype));
        stride = nexar_shm_window_bytes(d.count, segments, size_of(d.dtype), blocks);
        overflow |= __builtin_mul_overflow(stride, uint64_t{stage.windows}, &bytes);
        return true;
    };
    stage.in = side(NEXAR_SHM_FLAG_STAGED_IN, lengths.in, stage.in_stride);
    stage.out = side(NEXAR_SHM_FLAG_STAGED_OUT, lengths.out, stage.out_stride);
    if (overflow) return fail(Errc::invalid_argument, "the windows of " + d.text() + " are too large");
    return {};
}

Result<MemoryRef> SessionCore::name_memory(const nexar_shm_extent& extent, uint64_t bytes, uint64_t align,
                                           const char* which) const {
    if (bytes == 0) return MemoryRef{};
    const auto refuse = [&](const std::string& before, const std::string& after) {
        return fail(Errc::invalid_argument, std::string("the ") + which + before + " region " +
                                                std::to_string(extent.region) + after);
    };
    const auto found = regions_.find(extent.region);
    if (found == regions_.end())
        return refuse(" names", region_numbers_.is_used(extent.region)
                                    ? ", which this session has freed"
                                    : ", which this session has not registered");
    const RegionMemory& region = found->second->memory;
    if (extent.offset > region.bytes || bytes > region.bytes - extent.offset)
        return refuse(" ends beyond its", " of " + std::to_string(region.bytes) + " bytes");
    if (extent.offset % align != 0) return refuse(" in", " is not aligned to its elements");
    return MemoryRef{found->second, extent.offset, bytes};  // [M3]
}

Result<void> SessionCore::check_group_room() const {
    if (groups_.size() + groups_opening_ < limits_.groups_max) return {};
    return fail(Errc::table_full, "this session may have " + std::to_string(limits_.groups_max) + " groups");
}

Result<void> SessionCore::open_group(Time now, Ticket ticket) {
    NEXAR_TRY_VOID(check_group_room());
    const auto asked = shm::copy_once(control_.payload(ticket.slot)).group_open;  // [S3]
    NEXAR_TRY(auto request, open_request_from(asked));
    return open(now, ticket, std::move(request));
}

Result<void> SessionCore::create_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* parent, group_named(asked.group));
    NEXAR_TRY_VOID(check_group_room());
    const auto payload = shm::copy_once(control_.payload(ticket.slot).group_create);  // [S3]
    NEXAR_TRY(auto request, create_request_from(payload));
    auto create = std::make_shared<engine::CreateRequest>();
    create->parent = parent->id;
    create->rank = parent->rank.value;
    NEXAR_TRY(create->ranks, read_ranks(asked, parent->size));
    create->tag = payload.tag;
    request.create = std::move(create);
    return open(now, ticket, std::move(request));
}

Result<void> SessionCore::open(Time now, Ticket ticket, engine::OpenRequest request) {
    request.session = identity_.id;
    request.ticket = ticket.value();
    request.tenant = identity_.tenant;
    request.pid = identity_.pid;
    expect_group(ticket.slot, true);
    auto accepted = service_->open(now, request);
    if (!accepted) expect_group(ticket.slot, false);
    return accepted;
}

void SessionCore::group_opened(uint64_t value, const Result<engine::GroupInfo>& info) {
    const Ticket ticket = Ticket::from(value);
    if (broken_ || !ledger_.in_flight(ticket.slot, ticket.generation)) return;
    expect_group(ticket.slot, false);
    if (!info) return end_with(ticket, kinds_[ticket.slot], info.error(), result_of_epoch(0));
    nexar_shm_result result = result_of_epoch(info->epoch.value);
    name_group(*info, result);
    end(ticket, result);
}

Result<void> SessionCore::free_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* group, group_named(asked.group));
    const GroupId id = group->id;
    const uint32_t rank = group->rank.value, epoch = group->epoch.value;
    groups_.erase(asked.group);  // also when the engine has removed the group before
    forget_group(asked.group);
    NEXAR_TRY_VOID(service_->free_group(now, identity_.id, id, rank));
    end(ticket, result_of_epoch(epoch));
    return {};
}

Result<void> SessionCore::abort_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked) {
    NEXAR_TRY(const auto* group, group_named(asked.group));
    NEXAR_TRY(const std::string reason,
              reason_from(shm::copy_once(control_.payload(ticket.slot).group_abort)));  // [S3]
    const GroupId id = group->id;
    const uint32_t rank = group->rank.value, epoch = group->epoch.value;
    groups_.erase(asked.group);
    forget_group(asked.group);
    NEXAR_TRY_VOID(service_->abort_group(now, identity_.id, id, rank, reason));
    end(ticket, result_of_epoch(epoch));
    return {};
}

Result<void> SessionCore::free_region(Ticket ticket, const nexar_shm_descriptor& asked) {
    const auto found = regions_.find(asked.in.region);
    if (found == regions_.end())
        return fail(Errc::not_found, "region " + std::to_string(asked.in.region) + " is not one");
    region_bytes_ -= found->second->memory.bytes;
    forget_region(found->second);
    regions_.erase(found);  // [S10] operations in flight pin it
    end(ticket, result_of_epoch(0));
    return {};
}

SessionCore::Charges SessionCore::begin_region(uint32_t slot, uint32_t generation, uint32_t region,
                                               uint64_t bytes, uint64_t descriptors, Charges charged) {
    if (broken_) return {};
    const Ticket ticket{slot, generation};
    if (slot >= control_.slots()) return bad_entry("names a slot beyond the table"), Charges();
    if (!ledger_.try_accept(slot, generation)) return bad_entry("names a slot that is in flight"), Charges();
    kinds_[slot] = NEXAR_CMD_REGION_ADD;
    auto charges = accept_region(region, bytes, descriptors, std::move(charged));
    if (!charges) {
        end_with(ticket, NEXAR_CMD_REGION_ADD, charges.error(), result_of_epoch(0));
        return {};
    }
    region_bytes_ += bytes;
    coming_regions_.emplace(region, ComingRegion{ticket, bytes, *charges});
    return std::move(*charges);
}

Result<SessionCore::Charges> SessionCore::accept_region(uint32_t region, uint64_t bytes, uint64_t descriptors,
                                                        Charges charged) {
    NEXAR_TRY_VOID(use_region_number(region));  // used, also when the memory is refused
    NEXAR_TRY_VOID(check_room(bytes));
    if (!charged.empty()) return charged;
    return charge(*identity_.tenant, bytes, descriptors);
}

void SessionCore::end_region(uint32_t number, Result<RegionMemory> memory) {
    const auto at = coming_regions_.find(number);
    if (broken_ || at == coming_regions_.end()) return;
    ComingRegion coming = std::move(at->second);
    coming_regions_.erase(at);
    if (!memory) {
        region_bytes_ -= coming.bytes;
        return end_with(coming.ticket, NEXAR_CMD_REGION_ADD, memory.error(), result_of_epoch(0));
    }
    regions_.emplace(number, service_->regions().add(RegionKind::memfd, identity_.id, std::move(*memory),
                                                     std::move(coming.charges)));
    end(coming.ticket, result_of_epoch(0));
}

Result<void> SessionCore::use_region_number(uint32_t region) {
    if (region_numbers_.try_use(region)) return {};
    return fail(Errc::invalid_argument, "the region's number is " + std::to_string(region) +
                                            "; allowed: one above 0 that this session has not used before");
}

size_t SessionCore::regions_max() const {
    return std::min<size_t>(limits_.regions_max, NEXAR_SHM_REGIONS_MAX);
}

Result<void> SessionCore::check_room(uint64_t bytes) const {
    if (regions_.size() + coming_regions_.size() >= regions_max())
        return fail(Errc::table_full,
                    "this session may have " + std::to_string(regions_max()) + " regions at once");
    if (bytes > limits_.session_bytes_max - region_bytes_)
        return fail(Errc::no_memory,
                    "this session may register " + std::to_string(limits_.session_bytes_max) +
                        " bytes (session_memory_max_bytes); it has " + std::to_string(region_bytes_));
    return {};
}

Result<SessionCore::Charges> SessionCore::charge(Tenant& tenant, uint64_t bytes, uint64_t descriptors) {
    NEXAR_TRY(ChargeRef rows, tenant.charge(Resource::regions, descriptors));
    NEXAR_TRY(ChargeRef length, tenant.charge(Resource::region_bytes, bytes));
    return Charges{std::move(rows), std::move(length)};
}

void SessionCore::complete(uint64_t value, const engine::Outcome& outcome) {
    const Ticket ticket = Ticket::from(value);
    if (broken_ || !ledger_.in_flight(ticket.slot, ticket.generation)) return;
    expect_group(ticket.slot, false);
    nexar_shm_result result = result_of_epoch(outcome.epoch);
    result.bytes = outcome.bytes;
    result.source = outcome.source;
    result.tag = outcome.tag;
    result.message = outcome.message;
    result.sequence = outcome.sequence;
    if (outcome.error.code != Errc::ok) return end_with(ticket, kinds_[ticket.slot], outcome.error, result);
    if (outcome.child) name_group(*outcome.child, result);
    end(ticket, result);
}

void SessionCore::name_group(const engine::GroupInfo& info, nexar_shm_result& result) {
    result.group = next_group_++;
    result.group_epoch = info.epoch.value;
    result.rank = info.rank.value;
    result.size = info.size;
    result.stage = static_cast<uint32_t>(std::min<uint64_t>(info.segment_bytes, UINT32_MAX));
    groups_.emplace(result.group, info);
}

void SessionCore::end_with(Ticket ticket, uint8_t kind, const Error& error, nexar_shm_result result) {
    result.status = static_cast<int32_t>(error.code);
    result.has_detail = 1;
    write_detail(ticket.slot, kind, error);
    end(ticket, result);
}

void SessionCore::write_detail(uint32_t slot, uint8_t kind, const Error& error) {
    nexar_shm_detail detail{};
    detail.code = static_cast<int32_t>(error.code);
    detail.rank = error.rank;
    detail.other_rank = error.other_rank;
    detail.pid = error.pid;
    detail.system_errno = error.system_errno;
    detail.lost_count = static_cast<uint32_t>(error.lost_ranks.size());
    std::copy_n(error.lost_ranks.begin(), std::min<size_t>(detail.lost_count, NEXAR_SHM_LOST_RANKS),
                detail.lost_ranks);
    NodeId node;
    if (NodeId::parse_hex(error.node, node)) {
        detail.has_node = 1;
        std::memcpy(detail.node, node.bytes.data(), sizeof detail.node);
    }
    std::strncpy(detail.op, kind_name(kind), sizeof detail.op - 1);
    std::strncpy(detail.host, error.host.c_str(), sizeof detail.host - 1);
    detail.text_bytes = static_cast<uint32_t>(std::min(error.text.size(), sizeof detail.text));
    std::memcpy(detail.text, error.text.data(), detail.text_bytes);
    shm::store_words(control_.detail(slot), detail);
}

void SessionCore::end(Ticket ticket, nexar_shm_result result) {
    if (!ledger_.try_finish(ticket.slot, ticket.generation)) return;
    auto& slot = control_.slot(ticket.slot);
    if (!staged_.empty()) {
        if (const auto staged = staged_.extract(ticket.slot)) result.stage = staged.mapped().done;
    }
    shm::store_words(slot.result, result);  // [S4] before DONE
    shm::store_release(slot.state, NEXAR_SLOT_WORD(ticket.generation, uint32_t{NEXAR_SLOT_DONE}));
    completion_.push(ticket.slot, ticket.generation);
    ++completions_;
    if (sabotage.lose_a_wakeup && completions_ % 8 == 0) return;
    wake(ticket.slot);
}

// [S5]: the waker's side; one fence serves the slot, the completion ring and the doorbell.
void SessionCore::wake(uint32_t slot_index) {
    shm::fence();
    auto& slot = control_.slot(slot_index);
    auto& header = control_.header();
    if (shm::load_relaxed(slot.waiters) != 0) waker_->wake_all(&slot.state);
    if (shm::load_relaxed(header.completion_waiters) != 0) waker_->wake_all(&header.completion_tail);
    if (shm::load_relaxed(header.bell_wanted) != 0) waker_->ring_doorbell();
}

bool SessionCore::has_goodbye() const {
    return shm::load_acquire(control_.header().goodbye) == 1;
}

// A message that is between the two counts may come after this look, and is looked for at its arrival.
bool SessionCore::may_have_sent_messages() {
    const nexar_shm_header& header = control_.header();
    const uint32_t sent = shm::load_acquire(header.messages_sent);
    const uint32_t begun = shm::load_acquire(header.messages_begun);
    if (begun == 0 || begun != sent) return true;
    return std::exchange(messages_known_, begun) != begun;
}

bool SessionCore::was_given_up() const {
    return shm::load_acquire(control_.header().given_up) != 0;
}

void SessionCore::check_invariants() const {
    uint64_t bytes = 0;
    for (const auto& [number, region] : regions_) bytes += region->memory.bytes;
    NEXAR_CHECK(bytes == region_bytes_ && bytes <= limits_.session_bytes_max);
    NEXAR_CHECK(regions_.size() <= regions_max());
    NEXAR_CHECK(groups_.size() + groups_opening_ <= limits_.groups_max);
    for (const auto& [handle, group] : groups_)
        NEXAR_CHECK(handle < next_group_ && group.rank.value < group.size);
    size_t in_flight = 0, opening = 0;
    for (uint32_t slot = 0; slot < control_.slots(); ++slot) {
        if (!ledger_.in_flight(slot)) continue;
        ++in_flight;
        opening += opening_[slot];
    }
    NEXAR_CHECK(in_flight == ledger_.count());
    NEXAR_CHECK(opening == groups_opening_);
    for (const auto& [slot, staged] : staged_) {
        NEXAR_CHECK(ledger_.in_flight(slot));
        NEXAR_CHECK(std::max({staged.filled, staged.taken, staged.done}) <= staged.segments);
    }
}

void SessionCore::break_off(Error why) {
    if (broken_) return;
    shm::store_release(control_.header().closed_code, static_cast<uint32_t>(why.code));
    broken_ = std::move(why);
}

}  // namespace nexar::local
