// Server: answers nexarctl on the admin socket or on a status socket, one JSON line per request
// (docs/protocol/control.md). It never blocks, and its limits bound what it keeps: a caller that is silent,
// endless, greedy or absent takes a bounded buffer for a bounded time. Thread: the control loop's. Requires:
// the loop's turn calls on_time() at wake_at().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "control/admin_socket.hpp"
#include "control/calls.hpp"
#include "control/facade.hpp"
#include "core/log.hpp"
#include "core/pace.hpp"
#include "core/paced_queue.hpp"
#include "core/time.hpp"
#include "loop/fd.hpp"
#include "loop/loop.hpp"
#include "loop/releaser.hpp"
#include "loop/shut_out.hpp"

namespace nexar::control {

struct ServerConfig {
    std::string path = "/run/nexar/admin.sock";
    unsigned mode = 0660;
    std::string group;  // empty: the daemon's own
    // Of a status socket: the label of the tenants that it answers. None: the admin socket.
    std::optional<std::string> status_label;
    size_t connections_max = 64;
    size_t connections_per_user_max = 64;  // of one uid
    size_t unclosed_of_user_max = 64;      // connections that are not closed yet; he is shut out then
    bool closings_wait = false;            // for tests
    size_t request_bytes_max = 64 * 1024;
    size_t answer_bytes_max = 8 << 20;
    unsigned requests_per_turn_max = 16;  // of one connection, before the loop continues
    int accepts_per_turn_max = 16;
    // Connections of one uid that begin: one in each interval, some at once after a pause [N18]. Later ones
    // wait; he is shut out when more than `waiting` do. An interval of 0: no limit.
    Duration connection_interval{0};
    unsigned connections_at_once_max = 1;
    size_t waiting_of_user_max = 64;    // fewer with few descriptors
    Duration request_interval{0};       // of one uid; earlier requests wait. 0: no limit
    unsigned requests_at_once_max = 1;  // of one uid after a pause, with request_interval
    Duration request_deadline{
        15'000'000'000};  // from connecting, or from the last answer, to the end of a line
    Duration answer_deadline{60'000'000'000};  // for the facade; a join takes seconds
    Duration write_deadline{10'000'000'000};   // for the caller to read its answer
    std::function<Time()> clock = loop::Loop::now;

    // Open to every user of the host, who gets the answers of tenant (label, uid): tight limits [C8].
    static ServerConfig of_status(std::string path, std::string label);
};

class Server {
  public:
    static Result<std::unique_ptr<Server>> open(const ServerConfig& config, loop::Loop& loop, Facade& facade,
                                                Log& log);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    void on_time(Time now);
    Time wake_at() const;
    size_t connections() const { return connections_.size(); }
    uint64_t begun() const { return begun_; }  // connections, also those that were refused then
    size_t waiting() const { return newcomers_.waiting(); }

  private:
    struct Connection;

    Server(const ServerConfig& config, loop::Loop& loop, Facade& facade, Log& log, AdminSocket socket,
           loop::ReleaserRef closer, std::unique_ptr<Calls> calls);
    void accept_some();
    void admit(loop::Fd fd);
    void begin_some(Time now, size_t of_user_max);
    void begin(const std::shared_ptr<Connection>& connection);
    void pause_listening(const std::string& why);
    std::string why_refused(uint32_t uid) const;
    void shut_out(uint32_t uid);
    void let_in(Time now);
    std::shared_ptr<Connection> find(uint64_t id) const;
    void on_ready(uint64_t id, loop::Loop::Ready ready);
    void take_ended();
    bool take_line(const std::shared_ptr<Connection>& connection, unsigned taken);
    void advance(const std::shared_ptr<Connection>& connection);
    void ask(const std::shared_ptr<Connection>& connection, const std::string& line);
    void answer(Connection& connection, Result<std::string> result);
    void answered(const std::shared_ptr<Connection>& connection, uint64_t question,
                  Result<std::string> result);
    void settle(const std::shared_ptr<Connection>& connection);
    void drop(uint64_t id);

    ServerConfig config_;
    loop::Loop* loop_;
    Facade* facade_;
    Log* log_;
    AdminSocket socket_;
    loop::ReleaserRef closer_;  // of descriptors that callers brought, and of connections [S16]
    std::unique_ptr<Calls> calls_;
    std::unique_ptr<loop::Loop::Watch> listener_;  // on socket_
    std::unique_ptr<loop::Loop::Watch> ended_;     // calls
    const size_t unclosed_max_;                    // of all users
    loop::ShutOut shut_out_;
    Time let_in_at_ = never;     // to look who may come again
    Time listen_again_ = never;  // accept() failed: the listener is not watched until then; never: it is
    std::map<uint64_t, std::shared_ptr<Connection>> connections_;  // by id
    uint64_t next_connection_ = 1;
    PacedQueue<std::shared_ptr<Connection>> newcomers_;  // accepted, by uid
    uint64_t begun_ = 0;
    Pace pace_;  // of requests
};

}  // namespace nexar::control
