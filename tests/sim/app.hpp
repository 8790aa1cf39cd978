// App: a simulated application process with one session. It speaks as libnexar_c does - slots from a
// SlotPool, entries in the submission ring, sleeping on words [S5] - through a control segment in plain
// memory to a production SessionCore, whose engine is its host's. The few lines of local::Session that need
// descriptors are played here: when the core has its turns, how regions arrive, how a session ends.
//
// A sleeper looks at its word only before it goes to sleep and when it is woken: a lost wake-up is a call
// that never ends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cluster.hpp"
#include "local/session_core.hpp"
#include "staged.hpp"
#include "support/control_memory.hpp"

namespace nexar::sim {

enum class Sleeps { on_slot, on_ring, on_doorbell };  // one thread per call; a wait_any thread; an event loop

struct AppShape {
    uint32_t slots = 64;
    Sleeps sleeps = Sleeps::on_slot;
    Duration wake_delay{20us};  // until a woken thread runs
    Duration turn_delay{10us};  // until the daemon's loop looks at a ring
    bool lose_a_wakeup = false;
};

struct Done {
    int32_t status = 0;
    nexar_shm_result result{};
    std::string text;
};

class App final : local::Waker {
  public:
    using Then = std::function<void(const Done&)>;
    struct Handle {
        uint32_t slot = 0, generation = 0;
    };

    App(Cluster& cluster, uint32_t host, const AppShape& shape = {});
    ~App();

    // Nothing: the table is full.
    std::optional<Handle> start(const nexar_shm_descriptor& words, Then then,
                                std::shared_ptr<StagedMemory> staged = {});
    std::optional<Handle> open(const std::string& name, uint32_t size, uint32_t rank, Then then,
                               const std::string& secret = "the simulator's secret",
                               Duration timeout = Duration{10s});
    uint32_t add_region(std::shared_ptr<std::vector<std::byte>> memory, Then then);
    bool cancel(Handle handle);

    void kill() { end(true, "the process ended", true); }
    void quit() { end(false, "it sent GOODBYE", true); }
    // From now on no bytes of staged calls move, as in an application that calls nothing; and again.
    void stop_moving() { moves_ = false; }
    void move_again();
    // Writes these counts for a staged call, and says so.
    void lie(Handle handle, uint32_t filled, uint32_t taken);
    // From now on it neither reads what ended nor frees a slot. Nobody waits for it any more.
    void go_deaf();
    // So many words of the control segment, some of them such as a client might write.
    void scribble(size_t words);

    bool ended() const { return !core_; }
    const std::string& why() const { return why_; }
    uint32_t closed_code() { return control_.view().header().closed_code; }
    size_t pending() const { return pending_.size(); }
    const local::SessionCore* core() const { return core_.get(); }
    size_t cancels_refused = 0;  // the ring was full

  private:
    struct Pending {
        uint32_t generation = 0;
        Then then;
        bool asleep = false;
        std::shared_ptr<StagedMemory> staged;
        bool move_due = false;
    };

    std::optional<Handle> take(bool command, Then then);
    void push(Handle handle, uint8_t kind);
    void call_daemon();
    void turn();
    void end(bool crashed, const std::string& why, bool process_too);
    void later(Duration most, std::function<void()> act);

    void look(uint32_t slot);
    void look_at_all();
    void look_at_ring();
    bool finish(uint32_t slot);
    void move(uint32_t slot);
    void move_soon(uint32_t slot);
    void say_moved(Handle handle);
    void wake_all(uint32_t* word) override;
    void ring_doorbell() override;

    Cluster& cluster_;
    Host& host_;
    AppShape shape_;
    SessionId id_;
    test::ControlMemory control_;
    shm::ControlView view_;
    std::unique_ptr<local::SessionCore> core_;
    std::string why_;
    bool turn_due_ = false;

    shm::SlotPool pool_;
    shm::SubmissionProducer submission_;
    shm::CompletionConsumer completion_;
    std::map<uint32_t, Pending> pending_;
    bool ring_asleep_ = false, deaf_ = false, dead_ = false, moves_ = true;
    uint32_t next_region_ = 1;
};

}  // namespace nexar::sim
