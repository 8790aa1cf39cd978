#include "control/server.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "control/request.hpp"

namespace nexar::control {

namespace {
constexpr size_t closing_threads_max = 4096;  // each that is stuck has a descriptor
constexpr uint64_t no_users_lane = uint64_t{1} << 40;
constexpr Duration listener_pause = std::chrono::seconds(1);
constexpr Duration let_in_pause = std::chrono::milliseconds(500);
}  // namespace

// The states of a connection:
//   reading    not `waiting`, not `writing`       until a line is whole
//   waiting    the facade has a request           until it answers
//   writing    `writing`                          until the caller has read it all; then reading, or closed
//   if `last`
struct Server::Connection {
    Server* server = nullptr;
    uint64_t id = 0;
    SocketRef socket;
    Caller caller;
    std::unique_ptr<loop::Loop::Watch> watch;  // null: dropped
    std::string in;                            // received and not handled
    bool being_read = false;                   // by a call that has not ended
    bool writing = false;                      // its answer
    std::string rest;                          // of it, for which the socket has no room yet
    uint64_t questions = 0;                    // requests so far: an answer to an earlier one is ignored
    bool waiting = false;                      // for the answer to request number `questions`
    bool ended = false;                        // the caller sends no more; it may still read its answer
    bool last = false;                         // close after `out`
    Time resume_at = never;                    // whole lines are left, for the next turn or by pace_
    bool advancing = false;                    // advance() runs: an answer inside ask() does not enter it
    Time deadline = never;                     // of the present state

    ~Connection() {
        watch.reset();
        server->calls_->hang_up(std::move(socket));
    }
};

ServerConfig ServerConfig::of_status(std::string path, std::string label) {
    ServerConfig c;
    c.path = std::move(path);
    c.mode = 0666;
    c.status_label = std::move(label);
    c.connections_max = 128;
    c.connections_per_user_max = 8;
    c.request_bytes_max = 4096;
    c.answer_bytes_max = 2 << 20;
    c.requests_per_turn_max = 1;
    c.accepts_per_turn_max = 4;
    c.connection_interval = std::chrono::milliseconds(2);
    c.connections_at_once_max = 256;
    c.waiting_of_user_max = 256;
    c.request_interval = std::chrono::milliseconds(200);
    c.requests_at_once_max = 10;
    c.request_deadline = std::chrono::seconds(5);
    c.answer_deadline = std::chrono::seconds(5);
    return c;
}

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config, loop::Loop& loop, Facade& facade,
                                             Log& log) {
    NEXAR_TRY(auto closer, loop::Releaser::open(closing_threads_max, config.closings_wait));
    NEXAR_TRY(auto calls, Calls::open(config.connections_max, closer));
    NEXAR_TRY(AdminSocket socket, listen_on(config.path, config.mode, config.group));
    return std::unique_ptr<Server>(
        new Server(config, loop, facade, log, socket, std::move(closer), std::move(calls)));
}

namespace {

// Fewer with few descriptors: most are for sessions.
size_t unclosed_max() {
    constexpr size_t part = 8;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return closing_threads_max;
    return std::min<rlim_t>(closing_threads_max, files.rlim_cur / part);
}

}  // namespace

Server::Server(const ServerConfig& config, loop::Loop& loop, Facade& facade, Log& log, AdminSocket socket,
               loop::ReleaserRef closer, std::unique_ptr<Calls> calls)
    : config_(config),
      loop_(&loop),
      facade_(&facade),
      log_(&log),
      socket_(socket),
      closer_(std::move(closer)),
      calls_(std::move(calls)),
      unclosed_max_(unclosed_max()),
      shut_out_(config.path, config.mode),
      newcomers_(config.connection_interval, config.connections_at_once_max),
      pace_(config.request_interval, config.requests_at_once_max) {
    constexpr size_t users = 8;
    config_.waiting_of_user_max = std::clamp<size_t>(unclosed_max_ / users, 1, config_.waiting_of_user_max);
    listener_ = loop.watch(socket_.fd, true, false, [this](loop::Loop::Ready) { accept_some(); });
    ended_ = loop.watch(calls_->ready_fd(), true, false, [this](loop::Loop::Ready) { take_ended(); });
}

Server::~Server() {
    // Answers that come later find no connection: they hold the connections weakly.
    connections_.clear();
    newcomers_.take_all();
    listener_.reset();
    ended_.reset();
    remove_socket(config_.path, socket_);
    closer_->release(no_users_lane, loop::Fd(socket_.fd));  // with what waits to be accepted
}

void Server::accept_some() {
    for (int i = 0; i < config_.accepts_per_turn_max; ++i) {
        if (closer_->descriptors() + calls_->to_hang_up() + newcomers_.waiting() > unclosed_max_)
            return pause_listening("too many descriptors are not closed yet");
        const int fd = ::accept4(socket_.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            admit(loop::Fd(fd));
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            return pause_listening(std::strerror(errno));
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

void Server::pause_listening(const std::string& why) {
    log_->warn("admin_accept_failed", {field("why", why)});
    listener_->want(false, false);
    listen_again_ = config_.clock() + listener_pause;
}

// A connection that came beyond its user's pace waits, unread [N18].
void Server::admit(loop::Fd fd) {
    auto connection = std::make_shared<Connection>();
    connection->server = this;
    connection->id = next_connection_++;
    const auto caller = caller_of(fd.get(), socket_.group);
    connection->socket =
        std::make_shared<Socket>(std::move(fd), connection->id, caller ? caller->uid : UINT32_MAX);
    if (!caller) return;
    connection->caller = *caller;
    if (config_.status_label) {
        connection->caller.may_change = false;
        connection->caller.status_label = config_.status_label;
    }
    const Time now = config_.clock();
    const uint32_t uid = caller->uid;
    const size_t most =
        std::min(config_.waiting_of_user_max, waiting_of_user_max(newcomers_.waiting(), unclosed_max_));
    if (newcomers_.add(uid, now, connection, most)) return begin_some(now, 1);
    calls_->answer(connection->socket,
                   fail(Errc::table_full, std::to_string(newcomers_.waiting(uid)) + " connections of user " +
                                              std::to_string(uid) + " wait"));
    if (newcomers_.is_at_pace(uid, now)) shut_out(uid);
}

void Server::begin_some(Time now, size_t of_user_max) {
    newcomers_.ask(now, of_user_max, [this](const std::shared_ptr<Connection>& connection) {
        begin(connection);
        return true;
    });
}

void Server::begin(const std::shared_ptr<Connection>& connection) {
    ++begun_;
    const uint32_t uid = connection->caller.uid;
    const bool too_many = calls_->unclosed(uid) > config_.unclosed_of_user_max;
    if (too_many) shut_out(uid);
    const std::string why =
        too_many ? "too many connections of user " + std::to_string(uid) + " are not closed yet"
                 : why_refused(uid);
    if (!why.empty()) return calls_->answer(connection->socket, fail(Errc::table_full, why));
    connection->deadline = config_.clock() + config_.request_deadline;
    connection->watch =
        loop_->watch(connection->socket->fd.get(), true, false,
                     [this, id = connection->id](loop::Loop::Ready ready) { on_ready(id, ready); });
    connections_.emplace(connection->id, connection);
}

// Empty: there is room for another connection of this user.
std::string Server::why_refused(uint32_t uid) const {
    const auto own = static_cast<size_t>(std::ranges::count_if(
        connections_, [&](const auto& entry) { return entry.second->caller.uid == uid; }));
    if (own >= config_.connections_per_user_max)
        return "too many connections of user " + std::to_string(uid) + "; at most " +
               std::to_string(config_.connections_per_user_max);
    if (connections_.size() >= config_.connections_max)
        return "too many connections; at most " + std::to_string(config_.connections_max);
    return "";
}

// Those of him that wait to be accepted still come, and are refused.
void Server::shut_out(uint32_t uid) {
    if (shut_out_.users().contains(uid)) return;
    const auto done = shut_out_.add(uid);
    log_->warn("user_shut_out", {field("socket", config_.path), field("uid", uid),
                                 field("unclosed_connections", calls_->unclosed(uid)),
                                 field("connections_waiting", newcomers_.waiting(uid)),
                                 field("reason", done ? "" : done.error().text)});
    let_in_at_ = std::min(let_in_at_, config_.clock() + let_in_pause);
}

void Server::let_in(Time now) {
    if (now < let_in_at_) return;
    for (const uint32_t uid : std::set(shut_out_.users()))
        if (calls_->unclosed(uid) <= config_.unclosed_of_user_max / 2 &&
            newcomers_.waiting(uid) <= config_.waiting_of_user_max / 2 && shut_out_.remove(uid))
            log_->info("user_let_in", {field("socket", config_.path), field("uid", uid)});
    let_in_at_ = shut_out_.users().empty() ? never : now + let_in_pause;
}

std::shared_ptr<Server::Connection> Server::find(uint64_t id) const {
    const auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second;
}

// While it is read or written it is not watched for that.
void Server::on_ready(uint64_t id, loop::Loop::Ready ready) {
    const auto connection = find(id);
    if (!connection) return;
    Connection& c = *connection;
    if (ready.writable && !c.rest.empty()) calls_->write(c.socket, std::exchange(c.rest, {}));
    if (ready.readable && !c.being_read) {
        c.being_read = true;
        calls_->read(c.socket);
    }
    settle(connection);
}

void Server::take_ended() {
    for (const Calls::Ended& call : calls_->take()) {
        const auto connection = find(call.connection);  // exists until advance() returns, also dropped
        if (!connection) continue;
        Connection& c = *connection;
        switch (call.what) {
            case Calls::Ended::What::broken:
                drop(c.id);
                continue;
            case Calls::Ended::What::end_of_file:
                c.ended = true;
                [[fallthrough]];
            case Calls::Ended::What::received:
                c.being_read = false;
                c.in.append(call.bytes);
                break;
            case Calls::Ended::What::full:
                c.rest = call.bytes;
                break;
            case Calls::Ended::What::written:
                c.writing = false;
                c.deadline = config_.clock() + config_.request_deadline;
        }
        advance(connection);
    }
}

// Handles whole lines while the connection neither waits nor writes.
void Server::advance(const std::shared_ptr<Connection>& connection) {
    Connection& c = *connection;
    if (c.advancing) return;  // the facade answered inside ask()
    c.advancing = true;
    c.resume_at = never;
    for (unsigned taken = 0; !c.waiting && !c.writing && !c.last; ++taken)
        if (!take_line(connection, taken)) break;
    c.advancing = false;
    settle(connection);
}

// Handles the next line, the `taken`-th of this turn. False: it is not whole, or its time has not come.
bool Server::take_line(const std::shared_ptr<Connection>& connection, unsigned taken) {
    Connection& c = *connection;
    const size_t end = c.in.find('\n');
    if (std::min(end, c.in.size()) > config_.request_bytes_max) {
        answer(c, fail(Errc::protocol_error,
                       "the request is longer than " + std::to_string(config_.request_bytes_max) + " bytes"));
        c.last = true;
        return true;
    }
    if (end == std::string::npos) {
        if (!c.ended) return false;
        if (!c.in.empty()) answer(c, fail(Errc::protocol_error, "the request ended before its newline"));
        c.last = true;
        return true;
    }
    const Time now = config_.clock();
    const Time begin = pace_.next(c.caller.uid, now);
    if (taken == config_.requests_per_turn_max || begin > now) {
        c.resume_at = begin > now ? begin : Time{};
        return false;
    }
    pace_.take(c.caller.uid, now);
    const std::string line = c.in.substr(0, end);
    c.in.erase(0, end + 1);
    ask(connection, line);
    return true;
}

void Server::ask(const std::shared_ptr<Connection>& connection, const std::string& line) {
    Connection& c = *connection;
    const auto request = parse_request(line);
    if (!request) return answer(c, fail(request.error()));
    c.waiting = true;
    c.deadline = config_.clock() + config_.answer_deadline;
    const uint64_t question = ++c.questions;
    // Weak: the answer may come after the end of the connection or of the server.
    Caller caller = c.caller;
    caller.connection = connection;
    facade_->ask(caller, request->command, request->arguments,
                 [weak = std::weak_ptr(connection), question](Result<std::string> result) {
                     if (const auto alive = weak.lock())
                         alive->server->answered(alive, question, std::move(result));
                 });
}

void Server::answered(const std::shared_ptr<Connection>& connection, uint64_t question,
                      Result<std::string> result) {
    if (!connection->waiting || question != connection->questions) return;
    connection->waiting = false;
    answer(*connection, std::move(result));
    advance(connection);
}

void Server::answer(Connection& connection, Result<std::string> result) {
    if (result && result->size() > config_.answer_bytes_max)
        return answer(connection,
                      fail(Errc::table_full,
                           "the answer has " + std::to_string(result->size()) + " bytes, at most " +
                               std::to_string(config_.answer_bytes_max) + " are sent; ask for one group"));
    connection.writing = true;
    connection.deadline = config_.clock() + config_.write_deadline;
    calls_->answer(connection.socket, std::move(result));
}

// Closes a finished connection; otherwise watches for its next events.
void Server::settle(const std::shared_ptr<Connection>& connection) {
    Connection& c = *connection;
    if (!c.watch) return;  // dropped meanwhile
    if (c.last && !c.writing) return drop(c.id);
    const bool room = !c.ended && !c.last && c.in.size() <= config_.request_bytes_max;
    c.watch->want(room && !c.being_read, !c.rest.empty());
}

void Server::drop(uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    found->second->watch.reset();
    found->second->waiting = false;
    connections_.erase(found);
}

void Server::on_time(Time now) {
    if (listen_again_ <= now) {
        listen_again_ = never;
        listener_->want(true, false);
    }
    let_in(now);
    begin_some(now, static_cast<size_t>(config_.accepts_per_turn_max));
    std::vector<std::shared_ptr<Connection>> due;
    for (const auto& [id, connection] : connections_)
        if (connection->resume_at <= now || connection->deadline <= now) due.push_back(connection);
    for (const auto& connection : due) {
        if (!connection->watch) continue;
        if (connection->deadline <= now) {
            // A caller that waits for an answer receives an error; one that does not send or read is closed.
            if (connection->waiting) {
                connection->waiting = false;
                connection->last = true;
                answer(*connection, fail(Errc::timed_out, "the daemon found no answer in time"));
                settle(connection);
            } else {
                drop(connection->id);
            }
        } else {
            advance(connection);
        }
    }
}

Time Server::wake_at() const {
    Time wake = std::min({listen_again_, let_in_at_, newcomers_.next()});
    for (const auto& [id, connection] : connections_)
        wake = std::min({wake, connection->resume_at, connection->deadline});
    return wake;
}

}  // namespace nexar::control
