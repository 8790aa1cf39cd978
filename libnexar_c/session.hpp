// Session: the client's side of a connection. Requests live in op slots; their private records here say what
// to do when they end. Any thread; docs/protocol/shm.md has the order of everything shared.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
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
    Duration daemon_unresponsive{};  // never(): Duration::max()
    uint64_t scratch_limit = 0;
    Duration spin{};
};

struct AllocOptions {
    bool lazy = false;        // the application touches the pages itself, when it likes
    bool huge_pages = false;  // transparent ones, where the system gives them to shared memory
};

// What an operation needs besides its descriptor, given up when it ends.
struct Plan {
    Region* in_use[2] = {nullptr, nullptr};  // regions whose users were raised
    ScratchBlock scratch[2];
    void* copy_to = nullptr;  // ordinary output memory
    const std::byte* copy_from = nullptr;
    uint64_t copy_bytes = 0;
    Stage stage;  // or none; its windows are in scratch
};

struct Slot {
    uint32_t index = 0;
    uint64_t generation = 0;  // 36 bits
};

// Who waits for a request, and gives its slot back.
enum class Holder : uint8_t {
    handle,  // the application, by the handle that it has
    call     // the blocking call that made it: nobody else ever hears of it
};

// A request's handle: slot (12 bits), session (12), generation (36).
constexpr unsigned request_session_shift = 12, request_generation_shift = 24;
static_assert(NEXAR_SHM_SLOTS_MAX <= 1 << request_session_shift);

// Whose request it is: for its completion and its errors.
struct Label {
    uint64_t user_data = 0;
    uint64_t group = 0;  // handle; of GROUP_OPEN: the one that it makes
    uint32_t epoch = 0;
    Holder holder = Holder::call;
    std::shared_ptr<const std::string> group_name{};
};

// How a request ended, or that it did not yet.
struct Outcome {
    nexar_completion completion = NEXAR_COMPLETION_INIT;
    nexar_shm_result result{};
    std::optional<Error> error;
    uint8_t kind = 0;
    std::shared_ptr<const std::string> group_name{};
    uint8_t node[32] = {};  // GROUP_NODE's answer
    bool freed = false;     // the handle was freed by another thread
    ErrorContext context() const;
};
const char* kind_name(uint8_t kind);

class Session {
  public:
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Calls from other threads return with CLOSED; the object goes when the last of them has left.
    void close();
    void send_goodbye();  // tells the daemon that this is an orderly end
    // The session cannot be used: closed here, or the daemon is gone. Cheap.
    std::optional<Error> unusable();

    // Takes a slot, fills it and submits it. The plan is given up in every case.
    Result<Slot> submit(const nexar_shm_descriptor& descriptor, Plan plan, const Label& label = {},
                        const nexar_shm_group_open* payload = nullptr);
    // Submits a command and waits for its end.
    Result<Outcome> command(const nexar_shm_descriptor& descriptor,
                            const nexar_shm_group_open* payload = nullptr, bool interruptible = false);

    enum class Waited { completed, timed_out, signal };
    // `interruptible`: returns at a signal. `ended` also when the session became unusable: take_outcome
    // tells.
    Waited wait(const Slot& slot, Time until, bool interruptible);
    // Waits until one of them has ended; its index.
    Waited wait_any(const Slot* slots, size_t count, Time until, size_t& index);
    bool is_completed(const Slot& slot);
    // False: it is a blocking call's, whatever the application has guessed.
    bool may_have_handle(const Slot& slot) const;
    // Pending: completion.status says so. Ended: copies output out, once; the same answer every time.
    Outcome test(const Slot& slot);
    void cancel(const Slot& slot);
    // *unseen: a group that it opened, and that nobody can know (seen() was not called).
    Result<void> free(const Slot& slot, uint64_t* unseen = nullptr);
    void seen(const Slot& slot);
    bool is_freed(const Slot& slot) const {
        return requests_[slot.index].generation.load(std::memory_order_acquire) != slot.generation;
    }
    nexar_request handle_of(const Slot& slot) const {
        return slot.generation << request_generation_shift | uint64_t{handle_index} << request_session_shift |
               slot.index;
    }
    // Blocking operations: waits as long as it takes, and frees it. The daemon keeps the deadline.
    Outcome finish_blocking(const Slot& slot);
    // A signal cancels it, and is its end if that was in time.
    Outcome finish_command(const Slot& slot, bool interruptible);

    // Also moves bytes, as wait, wait_any and look do.
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
    bool may_copy(uint64_t bytes) { return scratch_.may_fit(bytes); }
    void release_plan(const Plan& plan);
    void release_scratch(Plan& plan);
    void count_copy(uint64_t bytes) { bytes_copied_.fetch_add(bytes, std::memory_order_relaxed); }

    const Connection& connection() const { return *connection_; }
    void stats(nexar_session_stats& out) const;
    uint32_t slots() const { return control_.slots(); }
    // In the table of sessions, before anybody can find it there.
    void set_index(uint32_t index);
    uint32_t handle_index = 0;
    uint64_t handle = 0;
    uint32_t fork_epoch = 0;

  private:
    struct Request {
        std::mutex mutex;
        std::atomic<uint64_t> generation{0};  // 0: free
        bool finished = false;
        bool seen = false;  // its completion, by the program
        std::atomic<uint8_t> kind{0};
        std::atomic<Holder> holder{Holder::handle};
        std::atomic<uint64_t> cancelled{0};  // the generation whose cancel is in the ring
        Label label;
        Plan plan;  // but its stage, which is below once the request is pending
        bool staged = false;
        std::unique_ptr<Outcome> outcome;

        // Held while bytes move, by one thread; taken after `mutex` where both are.
        std::mutex stage_mutex;
        std::atomic<bool> progress_again{false};  // somebody came while they moved
        uint64_t stage_generation = 0;
        Stage stage;
    };
    enum class Progress : uint8_t {
        nothing,
        something,
        unannounced
    };  // not told: to the daemon, the ring was full

    Session(const SessionOptions& options, std::unique_ptr<Connection> connection);
    // Memory, registering.cpp.
    Result<Region*> make_region(const char* name, uint64_t bytes, bool scratch, const AllocOptions& options);
    // It is the daemon's, too, but not ready.
    Result<Region*> add_region(const Segment& segment, uint64_t offset, bool mapped_here, bool scratch);
    Result<void> request_region(const Region& region, int memfd, uint64_t offset);
    bool send_region(const Slot& slot, const Region& region, int memfd, uint64_t offset);
    Result<void> drop_region(Region* region);

    std::string full_text(shm::SlotPool::For purpose) const;
    Result<Slot> take_slot(uint8_t kind, const Plan& plan, const Label& label);
    void mark_pending(const Slot& slot);
    bool push_submission(const Slot& slot);
    void undo_submission(const Slot& slot);
    // False: the session became unusable, or the ring was full until then.
    bool push(const shm::Entry& entry, Time until = never);
    void ring_doorbell();
    void label(const Request& request, const Slot& slot, Outcome& outcome) const;
    void finish(Request& request, const Slot& slot);
    void copy_out(Request& request, Outcome& outcome);
    Outcome take_outcome(const Slot& slot);

    // Staged requests, progress.cpp.
    bool any_staged() const { return staged_count_.load(std::memory_order_acquire) != 0; }
    bool submit_staged(const Slot& slot, const Stage& stage);
    uint64_t end_stage(const Slot& slot, bool take_rest);
    void drop_stage(Request& request, uint32_t slot);
    Progress progress_staged();
    Progress progress_one(uint32_t slot);
    Progress progress_once(Request& request, uint32_t slot);
    Progress announce_stage(Request& request, uint32_t slot);
    void fail_all(Errc code, const std::string& text);

    uint32_t pending_word(const Slot& slot) const;
    enum class Polled { no, spun, yielded };
    Polled poll_awake(uint32_t& word, uint32_t expected);
    // One sleep, with its looks at the daemon's life. `timed_out` is for `until` only.
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
    shm::SlotPool pool_;
    std::vector<Request> requests_;
    Regions regions_;
    Scratch scratch_;
    shm::WaitWindow window_;

    Sleepers sleepers_;
    std::mutex lost_mutex_;
    std::optional<Error> lost_;
    std::atomic<int32_t> lost_code_{0};

    std::mutex poll_mutex_;
    shm::CompletionConsumer completions_;
    std::vector<Slot> poll_backlog_;  // from a look at the whole table
    std::vector<uint64_t> reported_;  // by slot: the generation that was reported last

    std::vector<std::atomic<uint64_t>> staged_;  // a bit per slot
    std::atomic<uint32_t> staged_count_{0};

    TickWatch tick_watch_;
    std::atomic<uint64_t> operations_{0}, bytes_copied_{0}, doorbells_{0};
    std::atomic<uint64_t> waits_ready_{0}, waits_spun_{0}, waits_yielded_{0}, waits_slept_{0};
};

// Threads of this process that are inside a wait: for the choice between spinning and yielding.
extern std::atomic<uint32_t> waiting_threads;

}  // namespace nexar::c
