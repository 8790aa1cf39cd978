// Server: accepts clients on the local socket and drives their sessions (docs/protocol/shm.md). It has
// descriptors but no event loop: the owner watches the descriptors that it passes to Descriptors::watch and
// calls on_readable(); before the owner sleeps it calls prepare_to_sleep() [S7].
//
// Thread: the control loop's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "engine/clients.hpp"
#include "local/bus_guard.hpp"
#include "local/newcomers.hpp"
#include "local/ring_turns.hpp"
#include "local/session.hpp"
#include "local/user_sockets.hpp"
#include "loop/loop.hpp"
#include "loop/shut_out.hpp"
#include "shm/words.hpp"

namespace nexar::local {

struct ServerConfig {
    struct Socket {
        std::string path = NEXAR_LOCAL_SOCKET;
        std::string label;  // of the tenants that come through it
        // Beside it, access control is the folder's mode and the tenancy rules, over the uid that the kernel
        // attests.
        SocketAccess access;
    };
    std::vector<Socket> sockets{{}};
    NodeId node;
    Duration handshake_timeout{10'000'000'000};  // of a client that has yet to be scheduled, too
    SessionLimits session;
    // Connections that are not closed yet [S16]: of one user, who is shut out then, sooner where the half of
    // `unclosed_max` is taken; and, with descriptors, of all: with twice as many nobody's is accepted. Fewer
    // with few descriptors.
    size_t unclosed_of_user_max = 4096, unclosed_max = 32768;
    // Handshakes that a user may begin [N15]: one in each interval, some at once after a pause. He is shut
    // out when more than `waiting` wait.
    Duration handshake_interval{500'000};
    unsigned handshakes_at_once = 256;
    size_t waiting_of_user_max = 1024;
    // A handshake waits for a place: for what its user has closed to be over, on threads that are behind. A
    // client's own patience is longer.
    Duration place_patience{1'000'000'000};
    bool closings_wait = false;  // for tests
    SessionCore::Sabotage sabotage;
    std::function<Time()> clock = loop::Loop::now;  // of what users' entries take [N12]
};

// The owner's event loop: level-triggered readability. on_readable() may call unwatch().
class Descriptors {
  public:
    virtual void watch(int fd, uint64_t key) = 0;
    virtual void unwatch(int fd, uint64_t key) = 0;

  protected:
    ~Descriptors() = default;
};

struct SessionUse {  // of one session, for nexarctl
    uint32_t pid = 0;
    uint64_t memory_bytes = 0;
    uint64_t ops_in_flight = 0;
};

class Server final : public engine::Clients {
  public:
    // Requires: called on the control loop's thread, because it makes that thread's robust list.
    static Result<std::unique_ptr<Server>> open(const ServerConfig& config, engine::Service& service,
                                                Tenants& tenants, Descriptors& descriptors, Log& log);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Ends the sessions of clients that gave this daemon up while it was stopped, and of those whose memory
    // has faulted [S18]. The former only while the tick is due, because no client gives up a daemon whose
    // tick moves [S15]. Requires: called first in a turn, before inputs that may belong to such a session.
    void end_withdrawn(Time now);
    // Reads from a bounded number of a user's sessions, and ends a bounded number until the next poll(): then
    // the descriptors of others stay readable.
    void on_readable(Time now, uint64_t key);
    // Handles submitted entries, a bounded number of each user [N12]. Returns how many; 0: nothing is known
    // of.
    size_t poll(Time now);
    // Has what came to sessions' sockets read. Requires: called between on_readable() and sleeping; poll()
    // ends with it.
    void read_sockets();
    // For tests: nothing is left to read or to send. False after `seconds`.
    bool idle_within(unsigned seconds) const { return courier_->idle_within(seconds); }
    // True: every ring is empty and clients will ring the doorbell. The caller then sleeps on the descriptors
    // and calls on_woken() afterwards.
    bool prepare_to_sleep();
    void on_woken();

    void on_time(Time now);
    Time wake_at() const;
    // Ends all sessions: clients get DAEMON_LOST at once. No new session is accepted.
    void stop(Time now, const std::string& reason);

    // In the page that clients see: how many of the daemon's threads have bulk work [K35]. They count
    // themselves there (AtWork), and end before this does.
    uint32_t& bulk_count() { return page().bulk_threads; }
    uint32_t bulk_threads() const { return shm::load_relaxed(page().bulk_threads); }

    size_t sessions() const { return sessions_.size(); }
    // Why holes in clients' memory are filled on the daemon's account [S18]; empty: they are not.
    const std::string& holes_unguarded() const { return holes_unguarded_; }
    size_t regions() const;
    uint64_t memory_bytes() const;                                        // of all sessions' regions
    std::vector<SessionUse> sessions_of(const TenantName& tenant) const;  // in order of arrival

    // From the engine. A call for a session that has ended is ignored.
    void complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) override;
    void group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) override;
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override;
    // Operations have completed since the last call: threads of clients may go on.
    bool take_completed() { return std::exchange(completed_, false); }

  private:
    static constexpr size_t unmapping_threads_max = 8;  // users who free much wait for each other beyond it

    // Doorbells that stay in a socket: to have them read wakes a thread, which the operation waits for that
    // came with the last one. A socket holds 278, and 43 where its buffer is 32 KiB.
    static constexpr uint32_t unread_max = 32;
    static_assert(2 * unread_max <= Courier::doorbells_max);  // an honest client's are read without a pause
    struct Row {
        std::unique_ptr<Session> session;
        RingTurns<Session>::Place turn;
        bool busy = false;    // an operation is in flight
        uint32_t unread = 0;  // arrivals that were left in the socket
    };

    Server(const ServerConfig& config, engine::Service& service, Tenants& tenants, Descriptors& descriptors,
           Log& log);
    Result<void> start();
    void accept_all(Time now, size_t listener);
    void add(Time now, Newcomer one);
    size_t waiting_max(const Tenant& user) const;
    void begin_handshakes(Time now, size_t of_user_max);
    bool begin_handshake(Time now, Newcomer& one);  // or refuses it; false: it waits for a place
    Result<void> begin_session(Time now, Newcomer& one, ChargeRef charge);
    void refuse(Time now, Newcomer one, const Error& why);
    void refuse(ConnectionRef connection, const Error& why);
    void refuse_newcomers(const Error& why);
    void limit_unclosed();
    size_t unclosed_of_user_max() const;
    size_t pause_at() const { return 2 * config_.unclosed_max; }
    size_t unclosed() const;                    // descriptors, and connections that wait
    size_t unclosed_of(uint64_t tenant) const;  // connections
    void shut_out(size_t listener, const Tenant& user);
    void let_in();
    void pause_accepting(Time now, const std::string& why);
    void accept_again(Time now);
    bool refuse_without_descriptors(size_t listener);
    void unwatch_listeners();
    Result<void> watch(const Tenant& user, int fd, uint64_t key);
    void unwatch(const Tenant& user, int fd);
    void unwatch(const Session& session);
    bool take_one(Time now, Session& session);
    void on_descriptor(const UserSockets::Ready& ready);
    bool tick_is_due(Time now) const;
    void tick(Time now);
    void end_all_given_up(Time now);
    void note_faults();
    void take_mapped(Time now);
    void take_delivered(Time now);
    void end_faulted(Time now);
    void sweep(Time now);
    void forget(Session& session, Time now);
    Row* find(SessionId session);
    Row* row_of_news(SessionId session);
    void update_busy(Row& row);  // one of its slots may have been taken or ended
    void publish_busy();
    void forget_handshakes();
    nexar_shm_daemon_page& page() const { return *reinterpret_cast<nexar_shm_daemon_page*>(page_.page); }

    ServerConfig config_;
    engine::Service* service_;
    Tenants* tenants_;
    Descriptors* descriptors_;
    Log* log_;
    std::vector<Fd> listeners_;            // of config_.sockets, in that order
    std::vector<loop::ShutOut> shut_out_;  // of the same
    Newcomers newcomers_;
    std::unique_ptr<CrowdWaker> waker_;
    ReleaserRef unmapper_;
    std::shared_ptr<const Holes> holes_;  // null: refused here
    std::string holes_unguarded_;         // the reason, while holes_ is null
    std::unique_ptr<Mapper> mapper_;
    std::weak_ptr<Unreturned> unreturned_;                         // the mapper's, if there are witnesses
    std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();  // by session
    ReleaserRef closer_;
    std::unique_ptr<Courier> courier_;
    std::vector<SessionId> to_read_;  // when the rings of this turn are served: doorbells are for these
    Time accept_again_at_ = never;    // the listeners are not watched until then; never: they are
    Fd spare_;            // closed to accept and refuse one connection when the process is out of descriptors
    PublishedPage page_;  // nexar_shm_daemon_page, which all clients map
    RobustList robust_;
    std::unordered_map<uint64_t, Row> sessions_;  // by SessionId, until sweep()
    std::vector<Session*> order_;                 // the same sessions, in order of arrival
    // The same, by the tenant's number and in order of arrival [N22].
    std::map<std::pair<uint64_t, SessionId>, Session*> by_user_;
    RingTurns<Session> turns_;
    UserSockets sockets_;
    // By deadline: those that are not over, and some others.
    std::deque<std::pair<Time, SessionId>> handshakes_;
    uint32_t busy_ = 0;       // sessions with an operation in flight
    uint64_t sleep_ = 0;      // the number of the loop's last one
    bool any_ended_ = false;  // since the last sweep()
    bool completed_ = false;  // since the last take_completed()
    uint64_t next_session_ = 1;
    std::vector<SessionId> faulted_;  // whose memory is to be looked at
    Time last_tick_{};                // zero before the first tick
    bool stopped_ = false;            // stop() was called
};

}  // namespace nexar::local
