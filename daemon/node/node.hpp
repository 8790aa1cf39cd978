// Node: one nexard from start to stop. Without an identity its Member serves the groups of this host, and it
// joins a cluster on request or by configuration; with an identity the Member is in the cluster.
//
// Thread: the one that calls run(), which becomes the control loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/tuning.hpp"
#include "config/config.hpp"
#include "control/server.hpp"
#include "core/log.hpp"
#include "core/lookout.hpp"
#include "loop/loop.hpp"
#include "loop/processor.hpp"
#include "loop/wakeup.hpp"
#include "node/entering.hpp"
#include "node/identity.hpp"
#include "node/join.hpp"
#include "node/member.hpp"
#include "node/own_report.hpp"
#include "node/questions.hpp"
#include "node/renderer.hpp"
#include "node/report.hpp"
#include "node/sd_notify.hpp"
#include "node/starts.hpp"
#include "writers/state_writer.hpp"

namespace nexar::node {

// In the state directory: what `nexarctl tune` has measured (docs/protocol/planning.md).
constexpr const char* model_file = "plan_model";

class Node final : private control::Facade {
  public:
    static Result<std::unique_ptr<Node>> start(const config::Config& config, Log& log);
    ~Node();
    // Runs until SIGTERM or SIGINT, or until a configured join fails. Returns the exit status.
    int run();

  private:
    // A way into a cluster that waits for the disk: an init, a join, or a daemon's start.
    struct Pending {
        Identity identity;
        std::string roster;
        Incarnation incarnation;
        Entering entering;
        std::function<void(Result<void>)> then;
    };
    // An answer to nexarctl that waits for the disk.
    struct Change {
        storage::Saving saving;
        std::function<void(Result<void>)> then;
    };

    Node(const config::Config& config, writers::StateDir state, Log& log);
    Result<void> begin(Time now);
    Result<void> open_control();
    Result<bool> has_left();
    void stay_out();
    Result<void> start_alone(Time now);
    Result<void> start_member(const NodeId& self, const Incarnation& incarnation, Time now);
    void read_model();
    Result<void> begin_join(const std::string& token, Time now);
    Result<void> restart(Time now, Identity identity);
    Result<void> wait_for_entering(Time now);
    void found(const std::string& name, Cluster cluster, std::function<void(Result<void>)> then);
    void step_entering(Time now);
    Result<void> become_member(Time now);
    void step_changes();
    Time turn();
    bool step(Time now);
    void step_joiner(Time now);
    void end_join(Result<void> result);
    bool yields_may_pay() const;
    Time wake_at() const;
    void stop(const std::string& reason);
    void drain(Time now);

    // facade.cpp: answers to nexarctl.
    void ask(const control::Caller& caller, const std::string& command, const std::string& arguments,
             control::Answer answer) override;
    void query_forming(Question question);
    void query_doctor(Question question);
    bool is_due(const Question& question, Time now) const;
    bool answer_next(Time now);
    Result<Renderer::Work> prepare(const Question& question, Time now);
    Result<Renderer::Work> prepare_group(const Question& question, Time now);
    engine::Snapshot snapshot(Time now, const std::string& group, const Question& question);
    Result<void> tune(const std::string& arguments, const control::Answer& answer);
    void take_tuned(std::optional<collectives::Tuning> tuned, const control::Answer& answer);
    void token(const std::string& command, const std::string& arguments, control::Answer answer);
    Result<std::string> list_tokens(const std::string& arguments) const;
    Result<void> revoke_token(const std::string& arguments, const control::Answer& answer);
    Result<void> create_token(const std::string& arguments, const control::Answer& answer);
    Result<void> init(const std::string& arguments, const control::Answer& answer);
    Result<void> leave(const std::string& arguments, const control::Answer& answer);
    Result<std::string> depart(bool forced);
    void remove_what_came_late(const control::Answer& answer, const std::string& left);
    void join(const std::string& arguments, control::Answer answer);
    const char* state_name() const;
    std::vector<report::Peer> peers(Time now, bool asked = false) const;
    report::Status status(Time now) const;
    report::Doctor doctor(Time now) const;
    std::string cluster() const;
    // facade_own.cpp: answers on a status socket.
    void ask_own(const control::Caller& caller, const std::string& command, const std::string& arguments,
                 control::Answer answer);
    report::OwnStatus own_status(const TenantName& own, Time now) const;

    config::Config config_;
    writers::StateDir state_;
    Log* log_;
    loop::Loop loop_;
    loop::Wakeup wakeup_;
    std::unique_ptr<loop::Loop::Watch> wakeup_watch_;
    writers::StateWriter writer_{state_, wakeup_};
    Starts starts_;
    std::string configured_entry_;       // configured_entry() of this configuration
    std::string why_no_cluster_;         // why it was not followed [A12]; empty: it was, or there is none
    std::unique_ptr<Pending> entering_;  // until the member runs or its files are gone
    std::optional<collectives::Tuning> tuned_;  // none: the built-in model
    std::vector<Change> changes_;               // at most one of each connection to the admin socket
    Secret node_key_;                           // that a cluster will certify; empty: identity_ has it
    std::optional<Identity> identity_;          // none: in no cluster
    std::unique_ptr<Member> member_;  // null: it could not start again after the node left a cluster
    std::unique_ptr<control::Server> control_;
    std::vector<std::unique_ptr<control::Server>> status_;  // one of each status socket
    std::unique_ptr<Joiner> joiner_;                        // while a join is in progress
    std::unique_ptr<loop::Loop::Watch> joiner_watch_;
    control::Answer join_answer_;  // empty: the configuration asked for the join
    Questions questions_;          // at most one of each connection to a control socket
    Renderer renderer_{wakeup_};
    bool answered_ = false;  // in this turn: one question at most is [N17]
    Time inquired_until_{};  // until then the other nodes' answers to the last inquiry count
    SystemdNotifier systemd_;
    bool sleeping_ = false;  // the last turn announced a sleep
    Time began_{};           // when the node started
    // How long the loop waits before it sleeps, and how.
    Lookout lookout_{Duration(static_cast<int64_t>(config_.yield_microseconds * 1000))};
    loop::WaitPolicy wait_policy_;
    Time watchdog_at_ = never;         // when systemd's watchdog is due
    std::optional<Time> drain_until_;  // set by stop(): then the node stops even if operations are in flight
    bool stop_repeated_ = false;       // a second signal ended the drain
    std::string stop_reason_;          // of the first stop()
    int exit_status_ = 0;
};

}  // namespace nexar::node
