// SessionCore: turns one client's op slots and ring entries into requests to the engine, and the engine's
// results into completions. Dry although its folder is wet: it works on a plain span of memory and has no
// descriptor, so the simulator drives it too. The segment's content is hostile: each descriptor is copied
// once and checked [S3], and every decision is made on private state [S2].
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "engine/clients.hpp"
#include "local/intake.hpp"
#include "local/requests.hpp"
#include "local/used_numbers.hpp"
#include "shm/control.hpp"
#include "shm/ring.hpp"
#include "shm/slots.hpp"

namespace nexar::local {

struct SessionLimits {
    size_t groups_max = NEXAR_SHM_GROUPS_MAX;
    size_t regions_max = NEXAR_SHM_REGIONS_MAX;  // registered at the same time
    uint64_t region_bytes_max = uint64_t{1} << 40;
    uint64_t session_bytes_max = uint64_t{1} << 42;
    bool memfds_in_place = false;  // memory that clients make is mapped: mapping it may wait for them [S19]
    size_t bad_entries_max = 16;   // the session is closed at this many malformed ring entries
};

// Wakes sleepers in the client, on words in shared memory or by its doorbell.
class Waker {
  public:
    virtual void wake_all(uint32_t* word) = 0;
    virtual void ring_doorbell() = 0;

  protected:
    ~Waker() = default;
};

struct SessionIdentity {
    SessionId id;
    TenantRef tenant;
    uint32_t pid = 0;  // attested by the kernel
    NodeId node;       // of this daemon
};

class SessionCore {
  public:
    SessionCore(const SessionIdentity& identity, shm::ControlView control, engine::Service& service,
                Waker& waker, const SessionLimits& limits);
    SessionCore(const SessionCore&) = delete;
    SessionCore& operator=(const SessionCore&) = delete;

    // Handles submitted entries, at most so many. Returns how many.
    size_t drain(Time now, size_t entries_max = 64);
    bool has_work() const { return !broken_ && intake_.has_entry(); }

    // A region of so many bytes that arrived over the socket, and takes `descriptors` of the daemon's.
    // Returns its charges, which are to end when it is unmapped, so that what is mapped never exceeds a share
    // [N1]; empty: it was refused, in the slot of the request. end_region() completes that slot.
    using Charges = std::vector<ChargeRef>;
    // `charged`: what its memory was charged before; empty: nothing.
    Charges begin_region(uint32_t slot, uint32_t generation, uint32_t region, uint64_t bytes,
                         uint64_t descriptors, Charges charged = {});
    static Result<Charges> charge(Tenant& tenant, uint64_t bytes, uint64_t descriptors);
    // Ignored for a region that was not begun.
    void end_region(uint32_t region, Result<RegionMemory> memory);

    // From the engine (engine::Clients). A ticket that is not in flight is ignored: its slot was completed
    // before.
    void complete(uint64_t ticket, const engine::Outcome& outcome);
    void group_opened(uint64_t ticket, const Result<engine::GroupInfo>& info);
    void stage_done(uint64_t ticket, uint32_t done);

    // The client has announced that the end of its socket or process is an orderly one.
    bool has_goodbye() const;
    // What came to the socket since this was asked may be something else than doorbells [S7].
    bool may_have_sent_messages();
    // The client has given its session up and may use its memory for something else [S15].
    bool was_given_up() const;

    // Set: the session must be closed for this reason, and every later input is ignored.
    const std::optional<Error>& broken() const { return broken_; }
    void break_off(Error why);

    uint32_t slots() const { return control_.slots(); }
    template <class Predicate>
    bool any_region(Predicate predicate) const {
        for (const auto& [number, region] : regions_)
            if (predicate(*region)) return true;
        return false;
    }
    size_t prepared() const;  // walks all slots
    size_t in_flight() const { return ledger_.count(); }
    size_t groups() const { return groups_.size(); }
    size_t regions() const { return regions_.size(); }
    uint64_t region_bytes() const { return region_bytes_; }
    const SessionIdentity& identity() const { return identity_; }
    void check_invariants() const;  // for tests; walks all slots

    // Tests only: each switch breaks one thing that a named test must notice.
    struct Sabotage {
        bool lose_a_wakeup = false;  // every 8th completion forgets its sleepers
    } sabotage;

  private:
    struct Ticket {
        uint32_t slot, generation;
        uint64_t value() const { return uint64_t{generation} << 32 | slot; }
        static Ticket from(uint64_t v) { return {static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32)}; }
    };

    // A staged operation in flight [S12]. `filled`, `taken`: the client's counts of segments, as accepted;
    // `done`: the daemon's.
    struct Staged {
        uint32_t segments = 1, filled = 0, taken = 0, done = 0;
    };

    // What a persistent operation's descriptor was made into, when it was submitted last [S22].
    struct Prepared {
        nexar_shm_descriptor asked;
        engine::OpRequest request;
        uint32_t segments = 0;  // of a staged one; else 0
    };

    struct ComingRegion {
        Ticket ticket;
        uint64_t bytes;
        Charges charges;
    };

    void handle_entry(Time now, const shm::Entry& entry);
    void on_stage(Time now, Ticket ticket);
    void on_submit(Time now, Ticket ticket);
    Result<void> dispatch(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> submit_op(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> submit_request(Time now, Ticket ticket, engine::OpRequest& request, uint32_t segments);
    Prepared* keep_prepared(uint32_t slot, const nexar_shm_descriptor& asked,
                            const engine::OpRequest& request, uint32_t segments);
    Prepared* find_prepared(uint32_t slot, const nexar_shm_descriptor& asked);
    void forget_region(const RegionPin& region);
    void forget_group(uint32_t group);
    Result<void> submit_child(Time now, Ticket ticket, engine::OpRequest request);
    void expect_group(uint32_t slot, bool expected);
    void name_group(const engine::GroupInfo& info, nexar_shm_result& result);
    Result<void> resolve_stage(const nexar_shm_descriptor& asked, const engine::GroupInfo& group,
                               Lengths& lengths, engine::OpRequest& request) const;
    Result<void> open_group(Time now, Ticket ticket);
    Result<void> create_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> open(Time now, Ticket ticket, engine::OpenRequest request);
    Result<void> check_group_room() const;
    Result<void> free_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> abort_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> report_node(Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> report_info(Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> translate(Ticket ticket, const nexar_shm_descriptor& asked);
    void end_with_answer(Ticket ticket, const void* answer, size_t bytes, uint32_t epoch);
    Result<void> free_region(Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> use_region_number(uint32_t region);
    Result<Charges> accept_region(uint32_t region, uint64_t bytes, uint64_t descriptors, Charges charged);
    Result<void> check_room(uint64_t bytes) const;
    uint32_t epoch_of(const nexar_shm_descriptor& asked) const;
    Result<std::vector<uint64_t>> copy_list(const nexar_shm_descriptor& asked, uint32_t size,
                                            uint32_t lists) const;
    Result<std::vector<uint64_t>> copy_words(const nexar_shm_extent& list, const char* which) const;
    Result<std::vector<uint32_t>> read_ranks(const nexar_shm_descriptor& asked, uint32_t size) const;
    Result<void> read_counts(const nexar_shm_descriptor& asked, const OpRow& row,
                             const engine::GroupInfo& group, engine::OpRequest& request) const;
    Result<void> read_pieces(const nexar_shm_descriptor& asked, const OpRow& row, Lengths& lengths,
                             engine::OpRequest& request) const;
    Result<MemoryRef> name_memory(const nexar_shm_extent& extent, uint64_t bytes, uint64_t align,
                                  const char* which) const;
    Result<const engine::GroupInfo*> group_named(uint32_t name) const;
    size_t regions_max() const;

    void bad_entry(const char* what);
    void end(Ticket ticket, nexar_shm_result result);
    void end_with(Ticket ticket, uint8_t kind, const Error& error, nexar_shm_result result);
    void write_detail(uint32_t slot, uint8_t kind, const Error& error);
    void wake(uint32_t slot);

    SessionIdentity identity_;
    shm::ControlView control_;
    engine::Service* service_;
    Waker* waker_;
    SessionLimits limits_;
    Intake intake_;
    shm::CompletionProducer completion_;
    shm::SlotLedger ledger_;      // generation and state of each slot, as this daemon knows them
    std::vector<uint8_t> kinds_;  // by slot: the request's kind, valid while it is in flight
    std::vector<bool> opening_;   // by slot: its request may end with a new group, for which there is room
    std::unordered_map<uint32_t, Staged, std::hash<uint32_t>, std::equal_to<>,
                       Recycled<std::pair<const uint32_t, Staged>>>
        staged_;                                       // by slot: operations in flight that are staged
    std::vector<std::unique_ptr<Prepared>> prepared_;  // by slot; null: nothing was kept
    std::unordered_map<uint32_t, RegionPin> regions_;  // by the client's number; registered now
    std::unordered_map<uint32_t, ComingRegion> coming_regions_;  // begun
    UsedNumbers region_numbers_;  // a number is used once, also when it was refused
    uint64_t region_bytes_ = 0;   // sum of regions_
    std::unordered_map<uint32_t, engine::GroupInfo> groups_;  // by the handle that the client knows
    size_t groups_opening_ = 0;                               // slots in opening_
    uint32_t next_group_ = 1;                                 // the next handle; handles are not used again
    size_t bad_entries_ = 0;                                  // since the start of the session
    uint32_t messages_known_ = 0;                             // of those that its client has sent
    uint64_t completions_ = 0;                                // slots completed, for the sabotage
    std::optional<Error> broken_;                             // see broken()
};

}  // namespace nexar::local
