// The admin server over a real Unix socket, with a facade that answers when the test says so. One thread: the
// test turns the loop between its own non-blocking calls.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/server.hpp"

namespace nexar::test {

using namespace nexar::control;
using nlohmann::json;
using namespace std::chrono_literals;

class FakeFacade final : public Facade {
  public:
    struct Asked {
        Caller caller;
        std::string command, arguments;
        Answer answer;
    };
    void ask(const Caller& caller, const std::string& command, const std::string& arguments,
             Answer answer) override {
        if (command == "echo") return answer(arguments);
        if (command == "huge")
            return answer("\"" + std::string(size_t(json::parse(arguments)["bytes"]), 'x') + "\"");
        if (command == "refuse") return answer(fail(Errc::permission, "not you"));
        open.push_back({caller, command, arguments, std::move(answer)});
    }
    std::vector<Asked> open;
};

class Client {
  public:
    // Whether it may; errno says why not.
    static bool connects(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        const loop::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    ~Client() { hang_up(); }
    Client(const Client&) = delete;

    void hang_up() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    void end() const { ::shutdown(fd_, SHUT_WR); }
    ssize_t send(std::string_view bytes) const {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    // Takes what is there.
    void receive(size_t most = SIZE_MAX) {
        char buffer[65536];
        while (most > 0) {
            const ssize_t got = ::recv(fd_, buffer, std::min(most, sizeof buffer), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno == ECONNRESET)) closed = true;
            if (got <= 0) return;
            text.append(buffer, size_t(got));
            most -= size_t(got);
        }
    }
    // Until the server has closed the connection; its thread does that when it comes to it.
    void receive_to_end() {
        for (receive(); !closed; receive()) {
            pollfd readable{fd_, POLLIN, 0};
            REQUIRE(::poll(&readable, 1, 60'000) == 1);
        }
    }
    bool has_line() {
        receive();
        return text.find('\n') != std::string::npos;
    }
    json line() {
        const size_t end = text.find('\n');
        REQUIRE(end != std::string::npos);
        const std::string first = text.substr(0, end);
        text.erase(0, end + 1);
        return json::parse(first);
    }
    int fd() const { return fd_; }
    std::string text;
    bool closed = false;

  private:
    int fd_;
};

struct World {
    explicit World(ServerConfig c = {}) : config(std::move(c)) {
        std::string pattern = std::filesystem::temp_directory_path() / "nexar-control.XXXXXX";
        REQUIRE(::mkdtemp(pattern.data()) != nullptr);
        folder = pattern;
        config.path = folder + "/run/admin.sock";
        auto opened = Server::open(config, loop, facade, log);
        REQUIRE(opened);
        server = std::move(*opened);
    }
    ~World() {
        server.reset();
        std::filesystem::remove_all(folder);
    }
    // Turns the loop until the condition holds; false after a minute.
    bool until(const std::function<bool()>& condition) {
        const Time end = loop::Loop::now() + 60s;
        bool held = false;
        loop.set_turn([&] {
            const Time now = config.clock() + skipped;
            if (server) server->on_time(now);
            held = condition();
            if (held || loop::Loop::now() > end) loop.stop();
            return loop::Loop::now() + 1ms;
        });
        loop.run();
        loop.set_turn(nullptr);
        return held;
    }
    void turn(int times) {
        int left = times;
        REQUIRE(until([&] { return left-- <= 0; }));
    }

    ServerConfig config;
    std::string folder;
    loop::Loop loop;
    FakeFacade facade;
    std::string logged;
    Log log{[this](Level, const std::string& line) { logged += line + "\n"; }};
    std::unique_ptr<Server> server;
    Duration skipped{0};  // what on_time() is passed beyond the real clock
};

inline const char* const echo = "{\"command\": \"echo\", \"arguments\": {\"a\": 1}}\n";

}  // namespace nexar::test
