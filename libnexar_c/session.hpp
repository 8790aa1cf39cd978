// Session: the library's side of a connection. Each request has an op slot in shared memory, and a private
// record here with what to do at its completion. docs/protocol/shm.md has the order of all accesses to shared
// memory.
//
// Thread: any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "connection.hpp"
#include "errors.hpp"
#include "memory.hpp"
#include "nexar.h"
#include "shm/ring.hpp"
#include "shm/slots.hpp"
#include "shm/wait_window.hpp"
#include "sleepers.hpp"
#include "staging.hpp"
#include "tick_watch.hpp"

namespace nexar::c {

struct SessionOptions {
    ConnectOptions connect;
    Duration daemon_unresponsive{};  // Duration::max(): without a limit
    uint64_t scratch_limit = 0;
    Duration spin{};
};

struct AllocOptions {
    bool lazy = false;        // the application touches the pages itself
    bool huge_pages = false;  // transparent huge pages, if the system has them for shared memory
};

// The memory of a message in pieces, which have the message's bytes one after the other.
struct PlanPieces {
    struct Piece {
        void* to = nullptr;  // of a receive into ordinary memory; null: nothing is to be copied
        const std::byte* from = nullptr;
        uint64_t bytes = 0;
    };
    std::vector<Piece> pieces;
    std::vector<Region*> in_use;  // as in Plan
};

// The memory of an operation, released at its completion.
struct Plan {
    Region* in_use[2] = {nullptr, nullptr};  // regions whose users were raised
    ScratchBlock scratch[3];                 // input, output, list of counts or pieces
    std::byte* fill_to = nullptr;            // ordinary input memory is copied from `fill_from` to here
    const std::byte* fill_from = nullptr;
    uint64_t fill_bytes = 0;
    void* copy_to = nullptr;  // ordinary output memory
    const std::byte* copy_from = nullptr;
    uint64_t copy_bytes = 0;
    std::shared_ptr<const PlanPieces> pieces{};  // null: the memory is not in pieces
    Stage stage;                                 // empty: not staged; its windows are in `scratch`
};

struct Slot {
    uint32_t index = 0;
    uint64_t generation = 0;  // 36 bits
};

// The holder of a request waits for it and frees its slot.
enum class Holder : uint8_t {
    handle,  // the application, which has the request's handle
    call     // the blocking call that made the request; the application never sees it
};

// What a request is prepared for.
enum class Use : uint8_t {
    blocking,   // the caller submits it and waits for its end
    started,    // the caller submits it and returns
    persistent  // it is started later, often
};

inline Holder holder_of(Use use) {
    return use == Use::blocking ? Holder::call : Holder::handle;
}

// A request that has its slot and its memory, and is not submitted yet.
struct Taken {
    Slot slot;
    Stage stage;
};

// A request's handle: slot (12 bits), session (12), generation (36).
constexpr unsigned request_session_shift = 12, request_generation_shift = 24;
static_assert(NEXAR_SHM_SLOTS_MAX <= 1 << request_session_shift);

// The fields of a request that its completion and its errors repeat.
struct Label {
    uint64_t user_data = 0;
    uint64_t group = 0;  // its handle; of a request that opens_group(): the new group's; 0: it gets none
    uint32_t epoch = 0;
    Holder holder = Holder::call;
    std::shared_ptr<const std::string> group_name{};
    const char* called = nullptr;  // the function's name; null: the kind's
};

// The state of a request, and its completion or error once it has ended.
struct Outcome {
    nexar_completion completion = NEXAR_COMPLETION_INIT;
    nexar_shm_result result{};
    std::optional<Error> error;
    uint8_t kind = 0;
    const char* called = nullptr;  // as in Label
    std::shared_ptr<const std::string> group_name{};
    std::shared_ptr<const nexar_shm_detail> answer{};  // of GROUP_NODE, GROUP_INFO, GROUP_TRANSLATE
    bool freed = false;                                // the handle was freed by another thread
    ErrorContext context() const;
};
const char* kind_name(uint8_t kind);
inline const char* name_of_call(uint8_t kind, const char* called) {
    return called != nullptr ? called : kind_name(kind);
}
bool opens_group(uint8_t kind);  // a request of this kind ends with a new group

class Batch;

// The batches of a session, of one thread each (batch.hpp).
class Batches {
  public:
    Batches();
    ~Batches();
    bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    Batch* of_this_thread();
    Batch& begin();
    void end(Batch& batch);

  private:
    std::atomic<uint32_t> count_{0};
    std::mutex mutex_;
    std::vector<std::unique_ptr<Batch>> all_;
};

class Session {
  public:
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Calls of other threads return CLOSED; the last pin of the handle destroys the object.
    void close();
    void send_goodbye();  // announces an orderly end to the daemon
    // An error: the session was closed, or its daemon has stopped. Cheap.
    std::optional<Error> unusable();

    // Takes a slot, fills it and submits it. The plan is released at the completion, or here on failure.
    Result<Slot> submit(const nexar_shm_descriptor& descriptor, Plan plan, const Label& label = {},
                        const nexar_shm_payload* payload = nullptr);
    // The same in two steps, so that a call may have two requests or none.
    Result<Taken> take(const nexar_shm_descriptor& descriptor, Plan plan, const Label& label = {},
                       const nexar_shm_payload* payload = nullptr);
    Result<void> submit_taken(const Taken& taken);
    void drop_taken(const Taken& taken);
    // All of them, with one doorbell. An error: the session is unusable; waits for them return its reason.
    Result<void> submit_all(std::span<const Taken> all);

    // Persistent requests, persistent.cpp. What was taken becomes one, inactive.
    void make_persistent(const Taken& taken);
    struct Persistent {
        uint8_t kind = 0;
        uint64_t group = 0;  // its handle
    };
    Result<Persistent> persistent(const Slot& slot);
    // A new start of it, which is not submitted yet. bad_state: it is active.
    Result<Taken> activate(const Slot& slot);
    // Not started since a call returned its end; only a persistent request can be.
    bool is_inactive(const Slot& slot) const;
    // It is in a batch, so nothing ends it now.
    bool is_held(const Slot& slot) const;

    // This thread's batch, batch.cpp; null: it has none.
    Batch* batch() { return batches_.any() ? batches_.of_this_thread() : nullptr; }
    Batches& batches() { return batches_; }
    void hold(Batch& batch, const Taken& taken);
    Result<void> submit_batch(Batch& batch);
    void drop_batch(Batch& batch);
    // Submits a command and waits for its completion.
    Result<Outcome> command(const nexar_shm_descriptor& descriptor,
                            const nexar_shm_payload* payload = nullptr, bool interruptible = false);

    enum class Waited { completed, timed_out, signal };
    // `interruptible`: returns at a signal. Returns `completed` also when the session became unusable, which
    // take_outcome() reports.
    Waited wait(const Slot& slot, Time until, bool interruptible);
    // Waits until one of the slots has completed, and returns its index.
    Waited wait_any(const Slot* slots, size_t count, Time until, size_t& index);
    bool is_completed(const Slot& slot);
    // False: the request belongs to a blocking call, so the application's handle for it is not valid.
    bool may_have_handle(const Slot& slot) const;
    // Makes progress and returns the request's state. The first call after the completion copies the output;
    // every later call returns the same outcome.
    Outcome test(const Slot& slot);
    void cancel(const Slot& slot);
    // *unseen: the group that the request opened, if its handle was never returned (no call of seen()).
    Result<void> free(const Slot& slot, uint64_t* unseen = nullptr);
    void seen(const Slot& slot);
    bool is_freed(const Slot& slot) const {
        return requests_[slot.index].generation.load(std::memory_order_acquire) != slot.generation;
    }
    nexar_request handle_of(const Slot& slot) const {
        return slot.generation << request_generation_shift | uint64_t{handle_index} << request_session_shift |
               slot.index;
    }
    // Waits without a limit and frees the request. The daemon keeps the operation's deadline.
    Outcome finish_blocking(const Slot& slot);
    // The same; a signal cancels the request, whose outcome is then INTERRUPTED unless it completed before.
    Outcome finish_command(const Slot& slot, bool interruptible);

    // Makes progress too, as wait, wait_any and test do.
    size_t poll(Slot* out, size_t capacity);
    Result<int> arm_fd();

    Result<void*> alloc(uint64_t bytes, const AllocOptions& options = {});
    Result<void> release(void* memory, bool mapped_here);
    Result<void> register_memfd(void* address, uint64_t bytes, int fd, uint64_t offset);
    Result<Region*> find_and_use(const void* data, uint64_t bytes) {
        return regions_.find_and_use(data, bytes);
    }
    Result<ScratchBlock> take_scratch(uint64_t bytes) { return scratch_.take(bytes); }
    Result<ScratchBlock> take_own_scratch(uint64_t bytes) { return scratch_.take_own(bytes); }
    void free_idle_scratch() { scratch_.tidy_up(); }
    bool may_copy(uint64_t bytes) { return scratch_.may_fit(bytes); }
    void release_plan(const Plan& plan);
    void release_sides(Plan& plan);  // their scratch
    void fill(const Plan& plan);     // copies the input, where it is copied
    void count_copy(uint64_t bytes) { bytes_copied_.fetch_add(bytes, std::memory_order_relaxed); }

    const Connection& connection() const { return *connection_; }
    void stats(nexar_session_stats& out) const;
    uint32_t slots() const { return control_.slots(); }
    // Requires: called by the table of sessions, before another thread can find the session.
    void set_index(uint32_t index);
    uint32_t handle_index = 0;  // in the table of sessions
    uint64_t handle = 0;
    uint32_t fork_epoch = 0;  // of the process that opened the session

  private:
    struct Request {
        std::mutex mutex;                     // guards everything up to stage_mutex
        std::atomic<uint64_t> generation{0};  // of its handle; 0: free
        std::atomic<uint64_t> run{0};         // in shared memory: of the latest start; else `generation`
        std::atomic<uint64_t> pushed{0};      // the run whose submission is in the ring
        bool persistent = false;              // its plan stays until it is freed
        std::atomic<bool> inactive{false};    // persistent, and not pending or about to be returned
        std::atomic<bool> held{false};        // in a batch
        bool finished = false;                // finish() has run, and `outcome` is final
        bool seen = false;                    // the application has received the completion
        std::atomic<uint8_t> kind{0};
        std::atomic<Holder> holder{Holder::handle};
        std::atomic<uint64_t> cancelled{0};  // the run whose cancel is in the ring
        Label label;
        Plan plan;                         // empty when finished, if not persistent; its stage is below
        bool staged = false;               // the request has a stage
        std::unique_ptr<Outcome> outcome;  // kept for the slot's next request, to save allocations

        // Guards the stage; the thread that moves its bytes holds it. Taken after `mutex` by a thread that
        // needs both.
        std::mutex stage_mutex;
        std::atomic<bool> progress_again{false};  // another thread wants progress: one more pass
        uint64_t stage_run = 0;                   // of the request that `stage` belongs to
        Stage stage;                              // empty: no staged request in flight in this slot
    };
    // unannounced: bytes were moved, but the ring was full, so the daemon does not know the counts.
    enum class Progress : uint8_t { nothing, something, unannounced };

    Session(const SessionOptions& options, std::unique_ptr<Connection> connection);
    // Memory, registering.cpp.
    Result<Region*> make_region(uint64_t bytes, bool scratch, const AllocOptions& options);
    Result<Region*> borrow_region(uint64_t bytes, bool scratch, bool huge_pages);
    Error reason_of_no_loan(uint64_t bytes);
    Result<void> await_loan(int fd);
    // Registers the region with the daemon; it is not ready yet.
    Result<Region*> add_region(MutableBytes memory, int memfd, uint64_t offset, bool scratch);
    Result<Region*> add_memfd(MutableBytes memory, int fd, uint64_t offset);
    Result<void> request_region(const Region& region, int memfd, uint64_t offset);
    bool send_region(const Slot& slot, const Region& region, int memfd, uint64_t offset);
    Result<void> drop_region(Region* region);

    std::string full_text(shm::SlotPool::For purpose) const;
    Result<Slot> take_slot(uint8_t kind, const Plan& plan, const Label& label);
    void mark_pending(uint32_t slot, uint64_t run);
    bool push_submission(const Slot& slot);
    void undo_submission(const Slot& slot);
    bool push_taken(const Taken& taken);
    void make_inactive(Request& request, uint32_t slot);
    void end_persistent(Request& request);
    // False: the session became unusable, or the ring was full up to `until`. push() rings the doorbell, too.
    bool push(const shm::Entry& entry, Time until = never);
    bool push_quietly(const shm::Entry& entry, Time until = never);
    void ring_doorbell();
    void label(const Request& request, const Slot& slot, Outcome& outcome) const;
    void finish(Request& request, const Slot& slot);
    void copy_out(Request& request, Outcome& outcome);
    Outcome take_outcome(const Slot& slot);

    // Staged requests, progress.cpp.
    bool any_staged() const { return staged_count_.load(std::memory_order_acquire) != 0; }
    bool push_staged(const Slot& slot, const Stage& stage);
    void after_staged(const Slot& slot);
    uint64_t end_stage(uint32_t slot, uint64_t run, bool take_rest);
    void drop_stage(Request& request, uint32_t slot);
    Progress progress_staged();
    Progress progress_one(uint32_t slot);
    Progress progress_once(Request& request, uint32_t slot);
    Progress announce_stage(Request& request, uint32_t slot);
    void fail_all(Errc code, const std::string& text);

    // The number of the request's latest start; of a request that was freed its handle's.
    uint64_t run_of(const Slot& slot) const;
    static uint32_t pending_word(uint64_t run);
    uint32_t pending_word(const Slot& slot) const { return pending_word(run_of(slot)); }
    enum class Polled { no, spun, yielded };
    Polled poll_awake(uint32_t& word, uint32_t expected);
    // One sleep, with checks whether the daemon still runs. Returns `timed_out` for `until` only.
    Waited sleep_once(uint32_t& word, uint32_t expected, uint32_t nudges, Time until, bool interruptible);
    template <class Predicate>
    Waited wait_on_tail(Predicate is_done, Time until, bool interruptible);
    void on_hung_up();
    void check_alive();
    Time daemon_tick() const;
    void check_tick_when_due();
    void check_tick();

    SessionOptions options_;
    std::unique_ptr<Connection> connection_;
    shm::ControlView control_;
    shm::SubmissionProducer submission_;
    shm::SlotPool pool_;             // the free slots
    std::vector<Request> requests_;  // by slot
    Regions regions_;
    std::mutex borrowing_;  // held from the wish for memory to the registration of it
    Scratch scratch_;
    shm::WaitWindow window_;  // how long a wait polls before it sleeps
    Yields yields_;           // whether it yields meanwhile

    Sleepers sleepers_;
    std::mutex lost_mutex_;
    std::optional<Error> lost_;          // why the session is unusable; guarded by lost_mutex_
    std::atomic<int32_t> lost_code_{0};  // its code; 0: usable

    std::mutex poll_mutex_;  // guards the next three
    shm::CompletionConsumer completions_;
    std::vector<Slot> poll_backlog_;  // completed requests (with their run) found by a scan of the whole
                                      // table, not returned yet
    std::vector<uint64_t> reported_;  // by slot: the run that poll() has returned last

    std::vector<std::atomic<uint64_t>> staged_;  // one bit per slot: a staged request is in flight
    std::atomic<uint32_t> staged_count_{0};      // the number of these bits

    Batches batches_;
    TickWatch tick_watch_;
    // For nexar_session_stats_get.
    std::atomic<uint64_t> operations_{0}, bytes_copied_{0}, doorbells_{0};
    std::atomic<uint64_t> rung_for_{0};  // the daemon's sleep
    std::atomic<uint64_t> waits_ready_{0}, waits_spun_{0}, waits_yielded_{0}, waits_slept_{0};
};

// Threads of this process that are inside a wait; they decide between spinning and yielding by it.
extern std::atomic<uint32_t> waiting_threads;

}  // namespace nexar::c
