// Node: one nexard from start to stop. Without an identity it answers nexarctl, and joins a cluster on
// request or by configuration; with an identity it runs a Member.
//
// Thread: the one that calls run(), which becomes the control loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.hpp"
#include "control/server.hpp"
#include "core/log.hpp"
#include "loop/loop.hpp"
#include "loop/wakeup.hpp"
#include "node/identity.hpp"
#include "node/join.hpp"
#include "node/member.hpp"
#include "node/sd_notify.hpp"
#include "node/state_dir.hpp"

namespace nexar::node {

class Node final : private control::Facade {
  public:
    static Result<std::unique_ptr<Node>> start(const config::Config& config, Log& log);
    ~Node();
    // Runs until SIGTERM or SIGINT, or until a configured join fails. Returns the exit status.
    int run();

  private:
    Node(const config::Config& config, StateDir state, Log& log);
    Result<void> begin(Time now);
    Result<void> begin_join(const std::string& token, Time now);
    Result<void> become_member(Time now, Identity identity, std::vector<std::string> seeds);
    Time turn();
    bool step(Time now);
    void step_joiner(Time now);
    Time wake_at() const;
    void stop(const std::string& reason);
    void drain(Time now);

    // facade.cpp: answers to nexarctl.
    void ask(const control::Caller& caller, const std::string& command, const std::string& arguments,
             control::Answer answer) override;
    Result<std::string> query_group(const std::string& command, const std::string& arguments);
    Result<std::string> token(const std::string& command, const std::string& arguments);
    Result<std::string> init(const std::string& arguments);
    Result<void> make_cluster(Time now, const std::string& name);
    void join(const std::string& arguments, control::Answer answer);
    const char* state_name() const;
    std::string status(Time now) const;
    std::string doctor(Time now) const;
    std::string cluster() const;

    config::Config config_;
    StateDir state_;
    Log* log_;
    loop::Loop loop_;
    loop::Wakeup wakeup_;
    std::unique_ptr<loop::Loop::Watch> wakeup_watch_;
    std::optional<Identity> identity_;  // none: in no cluster
    std::unique_ptr<Member> member_;    // with identity_
    std::unique_ptr<control::Server> control_;
    std::unique_ptr<Joiner> joiner_;  // while a join is in progress
    std::unique_ptr<loop::Loop::Watch> joiner_watch_;
    control::Answer join_answer_;  // empty: the configuration asked for the join
    SystemdNotifier systemd_;
    bool sleeping_ = false;            // the last turn announced a sleep
    Time began_{};                     // when the node started
    Time active_{};                    // the last time there was work
    Time watchdog_at_ = never;         // when systemd's watchdog is due
    std::optional<Time> drain_until_;  // set by stop(): then the node stops even if operations are in flight
    bool stop_repeated_ = false;       // a second signal ended the drain
    std::string stop_reason_;          // of the first stop()
    int exit_status_ = 0;
};

}  // namespace nexar::node
