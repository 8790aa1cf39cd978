// SessionCore: one client's op slots and rings, turned into requests to the engine and back. Dry although it
// lives in a wet folder: it works on a plain span of memory and never touches a descriptor, so the simulator
// drives it too. Everything in the segment is hostile: each descriptor is copied once and validated [S3],
// each decision is made on private state [S2]. Runs on the control loop's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "engine/clients.hpp"
#include "local/requests.hpp"
#include "local/used_numbers.hpp"
#include "shm/control.hpp"
#include "shm/ring.hpp"
#include "shm/slots.hpp"

namespace nexar::local {

struct SessionLimits {
    size_t entries_per_turn_max = 64;
    size_t groups_max = NEXAR_SHM_GROUPS_MAX;
    size_t regions_max = NEXAR_SHM_REGIONS_MAX;  // at once
    uint64_t region_bytes_max = uint64_t{1} << 40;
    uint64_t session_bytes_max = uint64_t{1} << 42;
    size_t bad_entries_max = 16;  // senseless ring entries before the session is closed
};

// How sleepers in the client are woken; the words are in shared memory.
class Waker {
  public:
    virtual void wake_all(uint32_t* word) = 0;
    virtual void ring_doorbell() = 0;

  protected:
    ~Waker() = default;
};

struct SessionIdentity {
    SessionId id;
    uint32_t uid = 0, pid = 0;  // attested by the kernel
    NodeId node;                // of this daemon
};

class SessionCore {
  public:
    SessionCore(const SessionIdentity& identity, shm::ControlView control, engine::Service& service,
                Waker& waker, const SessionLimits& limits);
    SessionCore(const SessionCore&) = delete;
    SessionCore& operator=(const SessionCore&) = delete;

    // Takes what the client submitted, at most entries_per_turn_max. Returns how many.
    size_t drain(Time now);
    bool has_work() const { return !broken_ && submission_.has_entry(); }

    // A region that came over the socket (the memory is mapped), or could not be taken. Ends the slot that
    // asked.
    void add_region(uint32_t slot, uint32_t generation, uint32_t region, Result<engine::Buffer> memory);

    // From the engine (engine::Clients). Unknown tickets are ignored: late completions of what was given up.
    void complete(uint64_t ticket, const engine::Outcome& outcome);
    void group_opened(uint64_t ticket, const Result<engine::GroupInfo>& info);
    void stage_done(uint64_t ticket, uint32_t done);

    // The client's word that the end of its socket or process is an orderly one. It speaks for itself alone.
    bool has_goodbye() const;
    // The client goes on without us: its memory has other uses by now [S15].
    bool was_given_up() const;

    // The session is to be closed for this reason. It does nothing more.
    const std::optional<Error>& broken() const { return broken_; }
    void break_off(Error why);

    uint32_t slots() const { return control_.slots(); }
    template <class Predicate>
    bool any_region(Predicate predicate) const {
        for (const auto& [number, region] : regions_)
            if (predicate(region)) return true;
        return false;
    }
    size_t in_flight() const { return ledger_.count(); }
    size_t groups() const { return groups_.size(); }
    size_t regions() const { return regions_.size(); }
    uint64_t region_bytes() const { return region_bytes_; }
    const SessionIdentity& identity() const { return identity_; }

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

    // A staged operation in flight [S12]: the client's counts as far as they were believed, and ours.
    struct Staged {
        uint32_t segments = 1, filled = 0, taken = 0, done = 0;
    };

    void handle_entry(Time now, const shm::Entry& entry);
    void on_stage(Time now, Ticket ticket);
    void on_submit(Time now, Ticket ticket);
    Result<void> dispatch(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> submit_op(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> resolve_stage(const nexar_shm_descriptor& asked, const engine::GroupInfo& group,
                               Lengths& lengths, engine::OpRequest& request) const;
    Result<void> open_group(Time now, Ticket ticket);
    Result<void> free_group(Time now, Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> report_node(Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> free_region(Ticket ticket, const nexar_shm_descriptor& asked);
    Result<void> use_region_number(uint32_t region);
    Result<void> accept_region(uint32_t region, engine::Buffer memory);
    uint32_t epoch_of(const nexar_shm_descriptor& asked) const;
    Result<engine::Buffer> resolve(const nexar_shm_extent& extent, uint64_t bytes, uint64_t align,
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
    shm::SubmissionConsumer submission_;
    shm::CompletionProducer completion_;
    shm::SlotLedger ledger_;
    std::vector<uint8_t> kinds_;                   // what each slot in flight asks for: names it in errors
    std::unordered_map<uint32_t, Staged> staged_;  // by slot; mostly empty
    std::unordered_map<uint32_t, engine::Buffer> regions_;  // by the client's number
    UsedNumbers region_numbers_;
    uint64_t region_bytes_ = 0;
    // Memberships (group, epoch, rank), by the name that the client knows.
    std::unordered_map<uint32_t, engine::GroupInfo> groups_;
    size_t groups_opening_ = 0;
    uint32_t next_group_ = 1;
    size_t bad_entries_ = 0;
    uint64_t completions_ = 0;
    std::optional<Error> broken_;
};

}  // namespace nexar::local
