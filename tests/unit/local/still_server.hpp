// A daemon that is not scheduled: the server runs in the test's thread, and takes nothing by itself. Its
// engine gives one group, keeps every operation, and counts.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "local/server.hpp"

namespace nexar::test {

struct KeepingEngine final : engine::Service {
    local::Server* server = nullptr;
    size_t ops = 0, ops_at_end = 0, ends = 0, crashes = 0;
    size_t ops_at_first_end = 0, given_up = 0;
    Regions rows;
    Result<void> open(Time, const engine::OpenRequest& request) override {
        engine::GroupInfo info;
        info.id = {1, 1, 1}, info.size = 1, info.rank = Rank(0);
        info.members = {{Rank(0), NodeId{{7}}, 1}};
        server->group_opened(request.session, request.ticket, info);
        return {};
    }
    Result<void> submit(Time, const engine::OpRequest&) override {
        ++ops;
        return {};
    }
    Regions& regions() override { return rows; }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    Result<void> abort_group(Time, SessionId, const GroupId&, uint32_t, const std::string&) override {
        return {};
    }
    void session_ended(Time, SessionId, engine::SessionEnd how, const std::string&) override {
        if (++ends == 1) ops_at_first_end = ops;
        crashes += how == engine::SessionEnd::crashed;
        given_up += how == engine::SessionEnd::given_up;
        ops_at_end = ops;
    }
};

class StillServer {
  public:
    static constexpr Time now{std::chrono::hours(1)};

    // Beside `path`, a socket for each label, at path_of(it).
    explicit StillServer(const std::vector<std::string>& labels = {}, local::ServerConfig config = {},
                         const TenantLimits& limits = {})
        : path("/tmp/nexar-still-" + std::to_string(::getpid()) + ".sock"), tenants(limits) {
        config.sockets[0].path = path;
        config.clock = [] { return now; };
        config.session.memfds_in_place = true;
        for (const std::string& label : labels) config.sockets.push_back({path_of(label), label, {}});
        auto opened = local::Server::open(config, engine, tenants, descriptors_, log_);
        REQUIRE(opened);
        server_ = std::move(*opened);
        engine.server = server_.get();
    }

    // The clients' clock, for tests in which they look at the tick.
    static Time real_now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

    // Takes what has come; false: nothing did in that time.
    bool take(int timeout_ms, Time at = now) {
        std::vector<pollfd> all;
        for (const auto& [fd, key] : descriptors_.keys) all.push_back({fd, POLLIN, 0});
        if (::poll(all.data(), all.size(), timeout_ms) <= 0) return false;
        for (const pollfd& each : all)
            if (each.revents != 0 && descriptors_.keys.contains(each.fd))
                server_->on_readable(at, descriptors_.keys[each.fd]);
        server_->read_sockets();
        REQUIRE(server_->idle_within(60));
        return true;
    }
    std::string path_of(const std::string& label) const { return path + "." + label; }
    local::Server* operator->() const { return server_.get(); }

    const std::string path;
    KeepingEngine engine;
    std::vector<std::string> lines;  // of the log
    Tenants tenants;

  private:
    struct Descriptors final : local::Descriptors {
        std::map<int, uint64_t> keys;
        void watch(int fd, uint64_t key) override { keys[fd] = key; }
        void unwatch(int fd, uint64_t) override { keys.erase(fd); }
    };
    Log log_{[this](Level, const std::string& line) { lines.push_back(line); }};
    Descriptors descriptors_;
    std::unique_ptr<local::Server> server_;
};

}  // namespace nexar::test
