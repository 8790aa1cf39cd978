// Server: answers nexarctl on the admin socket, one JSON line per request (docs/protocol/control.md). It
// never blocks, and its limits bound what it keeps: a caller that is silent, endless, greedy or absent takes
// a bounded buffer for a bounded time. Thread: the control loop's. Requires: the loop's turn calls on_time()
// at wake_at().
#pragma once

#include <map>
#include <memory>
#include <string>

#include "control/admin_socket.hpp"
#include "control/facade.hpp"
#include "core/log.hpp"
#include "core/time.hpp"
#include "loop/loop.hpp"

namespace nexar::control {

struct ServerConfig {
    std::string path = "/run/nexar/admin.sock";
    unsigned mode = 0660;
    std::string group;  // empty: the daemon's own
    size_t connections_max = 64;
    size_t request_bytes_max = 64 * 1024;
    size_t answer_bytes_max = 8 << 20;
    unsigned requests_per_turn_max = 16;  // of one connection, before the loop continues
    Duration request_deadline{
        15'000'000'000};  // from connecting, or from the last answer, to the end of a line
    Duration answer_deadline{60'000'000'000};  // for the facade; a join takes seconds
    Duration write_deadline{10'000'000'000};   // for the caller to read its answer
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

  private:
    struct Connection;

    Server(const ServerConfig& config, loop::Loop& loop, Facade& facade, Log& log, AdminSocket socket);
    void accept_some();
    void admit(int fd);
    void on_ready(uint64_t id);
    bool read_some(Connection& connection);
    void advance(const std::shared_ptr<Connection>& connection);
    void ask(const std::shared_ptr<Connection>& connection, const std::string& line);
    void answer(Connection& connection, const Result<std::string>& result);
    void answered(const std::shared_ptr<Connection>& connection, uint64_t question,
                  Result<std::string> result);
    bool flush(Connection& connection);
    void settle(const std::shared_ptr<Connection>& connection);
    void drop(uint64_t id);

    ServerConfig config_;
    loop::Loop* loop_;
    Facade* facade_;
    Log* log_;
    AdminSocket socket_;
    std::unique_ptr<loop::Loop::Watch> listener_;  // on socket_
    Time listen_again_ = never;  // accept() failed: the listener is not watched until then; never: it is
    std::map<uint64_t, std::shared_ptr<Connection>> connections_;  // by id
    uint64_t next_connection_ = 1;
    uint64_t refused_ = 0;  // connections over connections_max
};

}  // namespace nexar::control
