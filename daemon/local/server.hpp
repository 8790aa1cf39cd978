// Server: accepts applications on the local socket and drives their sessions. It has descriptors but no event
// loop: whoever owns the loop watches what Descriptors::watch names and calls on_readable; before it sleeps
// it asks prepare_to_sleep [S7]. Everything on the loop's thread. docs/protocol/shm.md.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/log.hpp"
#include "engine/clients.hpp"
#include "local/session.hpp"

namespace nexar::local {

struct ServerConfig {
    std::string path = NEXAR_LOCAL_SOCKET;
    unsigned mode =
        0666;  // who may connect is for the folder and the tenancy rules; the kernel says who it is
    NodeId node;
    size_t sessions_max = 1024;
    size_t sessions_per_uid_max = 256;
    size_t handshakes_per_uid_max = 32;  // connections that are not READY
    Duration handshake_timeout{5'000'000'000};
    SessionLimits session;
    SessionCore::Sabotage sabotage;
};

// The owner's event loop: level-triggered readability. A watch may be dropped from inside on_readable.
class Descriptors {
  public:
    virtual void watch(int fd, uint64_t key) = 0;
    virtual void unwatch(int fd, uint64_t key) = 0;

  protected:
    ~Descriptors() = default;
};

class Server final : public engine::Clients {
  public:
    // Call it on the loop's thread: the robust list is that thread's.
    static Result<std::unique_ptr<Server>> open(const ServerConfig& config, engine::Service& service,
                                                Descriptors& descriptors, Log& log);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Ends the sessions of clients that have given this daemon up while it stood still. First in a turn: what
    // comes from elsewhere may be for them. Looks only while the tick is due, since no client gives up a
    // daemon whose tick moves [S15].
    void end_given_up(Time now);
    void on_readable(Time now, uint64_t key);
    // Takes submitted work from every session, a bounded share of each. Returns how many entries: 0 means
    // idle.
    size_t poll(Time now);
    // True: every ring is empty and clients will ring the bell; sleep on the descriptors, then call
    // on_woken().
    bool prepare_to_sleep();
    void on_woken();

    void on_time(Time now);
    Time wake_at() const;
    // Ends all sessions in order: clients get DAEMON_LOST at once. No new ones are accepted.
    void stop(Time now, const std::string& reason);

    size_t sessions() const { return sessions_.size(); }
    size_t regions() const;
    uint64_t memory_bytes() const;  // of all sessions' regions

    // From the engine. A session that is gone is ignored.
    void complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) override;
    void group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) override;
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override;

  private:
    Server(const ServerConfig& config, engine::Service& service, Descriptors& descriptors, Log& log);
    Result<void> start();
    void accept_all(Time now);
    Result<void> admit(Time now, Fd connection);
    void refuse(int connection, const Error& why);
    void refuse_without_descriptors();
    bool tick_is_due(Time now) const;
    void end_all_given_up(Time now);
    void sweep();
    void update_busy();
    nexar_shm_daemon_page& page() { return *reinterpret_cast<nexar_shm_daemon_page*>(page_.page); }

    ServerConfig config_;
    engine::Service* service_;
    Descriptors* descriptors_;
    Log* log_;
    Fd listener_;
    Fd spare_;  // given up to accept and refuse when the process is out of descriptors
    PublishedPage page_;
    RobustList robust_;
    std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
    std::vector<Session*> order_;  // the same, for walking
    uint64_t next_session_ = 1;
    uint64_t faults_seen_ = 0;
    Time last_tick_{};
    bool stopped_ = false;
};

}  // namespace nexar::local
