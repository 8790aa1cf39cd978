#include "nexarctl/client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "nexarctl/descriptor.hpp"
#include "nexarctl/table.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t answer_bytes_max = 64 << 20;
constexpr int retry_ms = 50;

int left_ms(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::max<decltype(left)>(left, 0));
}

Reply no_daemon(const std::string& socket) {
    return {exit_no_daemon,
            "no daemon listens on " + socket +
                "; start it with: systemctl start nexard (without systemd: nexard); or name its admin socket "
                "with --socket",
            "NO_DAEMON"};
}
Reply no_answer(const std::string& socket, int timeout_ms) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", timeout_ms / 1000.0);
    return {exit_no_answer,
            "the daemon on " + socket + " does not answer within " + seconds +
                " s; it is stopped or stuck: systemctl status nexard, or restart it",
            "NO_ANSWER"};
}
Reply broken(const std::string& socket, const std::string& why) {
    return {exit_no_answer,
            "the daemon on " + socket + " ended the connection: " + why + "; see journalctl -u nexard",
            "NO_ANSWER"};
}

Reply connect_error(const std::string& socket) {
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) {
        const bool absent = errno != ECONNREFUSED;
        Reply reply = no_daemon(socket);
        reply.shut_out = absent;  // a container may have the sockets of its users only
        return reply;
    }
    if (errno == EACCES || errno == EPERM)
        return {
            exit_failed,
            "you may not use " + socket +
                ": run nexarctl with sudo, or be a member of the group that socket_group in nexar.toml "
                "names (ls -l " +
                socket +
                " shows it; \"user_shut_out\" in the daemon's log: more of this user's connections than it "
                "can close)",
            "PERMISSION", true};
    if (errno == EPROTOTYPE)
        return {exit_failed,
                socket +
                    " is another kind of socket, perhaps that of sessions: --socket is to name the one that "
                    "nexard's configuration has as admin_socket",
                "IO"};
    return {exit_failed, "cannot connect to " + socket + ": " + std::strerror(errno), "IO"};
}

// A full backlog is EAGAIN on Unix sockets: the daemon does not accept.
Reply connect_to(int fd, const std::string& socket, Clock::time_point deadline, int timeout_ms) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket.empty() || socket.size() >= sizeof address.sun_path)
        return {exit_usage, "a socket's path has 1 to 107 bytes: " + socket, "INVALID_ARGUMENT"};
    std::memcpy(address.sun_path, socket.data(), socket.size());
    while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR) return connect_error(socket);
        if (left_ms(deadline) == 0) return no_answer(socket, timeout_ms);
        ::poll(nullptr, 0, retry_ms);
    }
    return {};
}

bool ready(int fd, short events, Clock::time_point deadline) {
    pollfd watched{fd, events, 0};
    for (;;) {
        const int got = ::poll(&watched, 1, left_ms(deadline));
        if (got > 0) return true;
        if (got == 0 || errno != EINTR) return false;
    }
}

Reply parse_answer(const std::string& socket, const std::string& line) {
    const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object() || !answer.contains("ok"))
        return broken(socket, "its answer is not of this protocol");
    if (flag_of(answer, "ok"))
        return {exit_ok, answer.contains("result") ? answer["result"].dump() : "null", ""};
    const json error = answer.contains("error") ? answer["error"] : json::object();
    return {exit_failed, text_of(error, "text"), text_of(error, "name")};
}

}  // namespace

Reply ask(const std::string& socket, const std::string& command, const std::string& arguments,
          int timeout_ms) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    Descriptor connection{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    Reply reply = connect_to(connection.fd, socket, deadline, timeout_ms);
    if (reply.exit != exit_ok) return reply;

    const std::string line = "{\"command\":" + json(command).dump() + ",\"arguments\":" + arguments + "}\n";
    size_t written = 0;
    std::string answer;
    for (;;) {
        const bool writing = written < line.size();
        if (!ready(connection.fd, static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), deadline))
            return no_answer(socket, timeout_ms);
        if (writing) {
            const ssize_t sent =
                ::send(connection.fd, line.data() + written, line.size() - written, MSG_NOSIGNAL);
            if (sent > 0)
                written += static_cast<size_t>(sent);
            else if (errno != EAGAIN && errno != EINTR)
                written = line.size();  // refused: the reason may be readable
        }
        char buffer[65536];
        const ssize_t got = ::recv(connection.fd, buffer, sizeof buffer, 0);
        if (got > 0) answer.append(buffer, static_cast<size_t>(got));
        if (const size_t end = answer.find('\n'); end != std::string::npos)
            return parse_answer(socket, answer.substr(0, end));
        if (answer.size() > answer_bytes_max) return broken(socket, "its answer is too long");
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return broken(socket, got == 0 ? "no answer came" : std::strerror(errno));
    }
}

int show_error(const Context& context, const Reply& reply) {
    if (context.json) {
        const json error = {{"error", {{"name", reply.name}, {"text", reply.text}}}};
        std::printf("%s\n", error.dump(2, ' ', false, json::error_handler_t::replace).c_str());
    } else {
        std::fprintf(stderr, "nexarctl: %s\n", printable(reply.text).c_str());
    }
    return reply.exit;
}

Reply ask_for_own(const Context& context, const std::string& command, const std::string& arguments) {
    Reply reply = ask(context.socket, command, arguments);
    if (!reply.shut_out || ::access(context.status_socket.c_str(), F_OK) != 0) return reply;
    Reply own = ask(context.status_socket, command, arguments);
    if (own.shut_out) return reply;
    std::fprintf(
        stderr,
        "nexarctl: only your own sessions, groups and operations are shown: for all, use sudo, or be "
        "a member of the group of %s\n",
        context.socket.c_str());
    return own;
}

namespace {

int show(const Context& context, const Reply& reply, const Render& render) {
    if (reply.exit != exit_ok) return show_error(context, reply);
    const json result = json::parse(reply.text, nullptr, false);
    std::printf("%s", context.json ? (result.dump(2) + "\n").c_str() : render(result).c_str());
    return exit_ok;
}

std::string line_of(const json& arguments) {
    return arguments.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

int ask_and_show(const Context& context, const std::string& command, const json& arguments,
                 const Render& render, int timeout_ms) {
    return show(context, ask(context.socket, command, line_of(arguments), timeout_ms), render);
}

int ask_for_own_and_show(const Context& context, const std::string& command, const json& arguments,
                         const Render& render) {
    return show(context, ask_for_own(context, command, line_of(arguments)), render);
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double number_of(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
uint64_t count_of(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}
bool flag_of(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_boolean() && found->get<bool>();
}
bool has(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && !found->is_null();
}
const json& list_of(const json& object, const char* key) {
    static const json empty = json::array();
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_array() ? *found : empty;
}

std::string node_text(const json& object) {
    const std::string host = text_of(object, "host");
    const std::string id = text_of(object, "node").substr(0, 12);
    if (host.empty() || id.empty()) return host.empty() ? id : host;
    return host + " (" + id + ")";
}

}  // namespace nexarctl
