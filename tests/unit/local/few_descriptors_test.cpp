// A server that is opened with any number of descriptors left is there, or an error: the daemon never ends
// for it.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "local/server.hpp"
#include "still_server.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;

namespace {

struct NoLoop final : local::Descriptors {
    void watch(int, uint64_t) override {}
    void unwatch(int, uint64_t) override {}
};

}  // namespace

TEST_CASE("[N23] with too few descriptors the session server is an error that names one", "[local]") {
    local::ServerConfig config;
    config.sockets[0].path = "/tmp/nexar-few-" + std::to_string(::getpid()) + ".sock";
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    constexpr rlim_t many = 64;
    rlim_t left = 0;
    // Threads of earlier servers may close descriptors meanwhile: then it begins anew.
    for (int tries = 0;; ++left) {
        REQUIRE(left < many);
        KeepingEngine engine;
        Tenants tenants;
        NoLoop loop;
        Log log{[](Level, const std::string&) {}};
        const int next = Fd(::dup(0)).get();  // the number that a new one gets
        REQUIRE(next >= 0);
        const rlimit few{static_cast<rlim_t>(next) + left, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        const auto server = local::Server::open(config, engine, tenants, loop, log);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        if (server && (left > 8 || ++tries == 100)) break;
        if (server) {
            left = 0;
            continue;
        }
        INFO(server.error().text);
        CHECK(server.error().code != Errc::ok);
        CHECK(server.error().text.contains("Too many open files"));
    }
    CHECK(left > 8);
}
