// Persistent operations and op groups through the C ABI: states, memory, errors, and what a start costs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

nexar_completion tested(nexar_request request) {
    nexar_completion out = NEXAR_COMPLETION_INIT;
    static_cast<void>(nexar_request_test(request, &out));
    return out;
}

nexar_request sum_init(nexar_group* group, const uint64_t* in, uint64_t* out, uint64_t count,
                       const nexar_op_options* options = nullptr) {
    nexar_request request = 0;
    REQUIRE(nexar_all_reduce_init(group, in, out, count, NEXAR_U64, NEXAR_SUM, options, &request) ==
            NEXAR_OK);
    return request;
}

}  // namespace

TEST_CASE("a persistent operation is inactive, active, inactive, and keeps its handle", "[local][S21]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    uint64_t in[4] = {}, out[4] = {};
    nexar_op_options options = NEXAR_OP_OPTIONS_INIT;
    options.user_data = 77;
    const nexar_request request = sum_init(alone, in, out, 4, &options);

    // Inactive: it returns at once, and any and some do not see it.
    CHECK(nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr) == NEXAR_OK);
    nexar_completion c = tested(request);
    CHECK(c.status == NEXAR_OK);
    CHECK(c.request == request);
    CHECK(c.user_data == 77);
    CHECK(c.sequence == NEXAR_NO_SEQUENCE);
    uint64_t index = 9, places[1] = {9}, ended = 9;
    CHECK(nexar_request_test_any(&request, 1, &index, nullptr) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_wait_some(&request, 1, 0, places, &ended, nullptr, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_wait_all(&request, 1, 0, nullptr, 0) == NEXAR_OK);
    CHECK(nexar_request_cancel(request) == NEXAR_OK);

    for (uint64_t start = 1; start <= 1000; ++start) {
        for (uint64_t i = 0; i < 4; ++i) in[i] = start * 10 + i, out[i] = 0;
        REQUIRE(nexar_request_start(request) == NEXAR_OK);
        REQUIRE(nexar_request_wait(request, 10000, &c) == NEXAR_OK);
        REQUIRE(std::memcmp(in, out, sizeof in) == 0);
        REQUIRE(c.request == request);
    }
    CHECK(nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr) == NEXAR_OK);
    CHECK(nexar_request_free(request) == NEXAR_OK);
    CHECK(nexar_request_start(request) == NEXAR_ERR_BAD_HANDLE);
    CHECK(nexar_request_free(request) == NEXAR_ERR_BAD_HANDLE);
    // The slot's next request has another handle.
    const nexar_request next = sum_init(alone, in, out, 4);
    CHECK(next != request);
    CHECK(nexar_request_start(request) == NEXAR_ERR_BAD_HANDLE);
    CHECK(nexar_request_free(next) == NEXAR_OK);
}

TEST_CASE("an active persistent request is not started, one that ended not before that was returned",
          "[local][S21]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group *alone = session.group("alone"), *stuck = session.group("stuck");
    uint64_t in = 1, out = 0;
    const nexar_request pending = sum_init(stuck, &in, &out, 1);
    REQUIRE(nexar_request_start(pending) == NEXAR_OK);
    CHECK(nexar_request_start(pending) == NEXAR_ERR_BAD_STATE);
    CHECK(std::string(last_failure().text).find("pending") != std::string::npos);
    CHECK(nexar_request_free(pending) == NEXAR_ERR_BAD_STATE);
    CHECK(tested(pending).status == NEXAR_PENDING);
    CHECK(nexar_request_cancel(pending) == NEXAR_OK);
    CHECK(nexar_request_wait(pending, 10000, nullptr) == NEXAR_ERR_CANCELLED);
    // The same again: the last start's status, until the next one.
    CHECK(nexar_request_wait(pending, 10000, nullptr) == NEXAR_ERR_CANCELLED);
    CHECK(nexar_request_start(pending) == NEXAR_OK);
    CHECK(tested(pending).status == NEXAR_PENDING);
    CHECK(nexar_request_cancel(pending) == NEXAR_OK);  // the second start's cancel is one of its own
    CHECK(nexar_request_wait(pending, 10000, nullptr) == NEXAR_ERR_CANCELLED);
    CHECK(nexar_request_free(pending) == NEXAR_OK);

    const nexar_request quick = sum_init(alone, &in, &out, 1);
    const size_t before = daemon.counters.ops;
    REQUIRE(nexar_request_start(quick) == NEXAR_OK);
    REQUIRE(daemon.eventually([&] { return daemon.counters.ops > before && daemon.counters.pending == 0; }));
    CHECK(nexar_request_start(quick) == NEXAR_ERR_BAD_STATE);
    CHECK(std::string(last_failure().text).find("no call has returned its end") != std::string::npos);
    SECTION("wait returns it") {
        CHECK(nexar_request_wait(quick, 10000, nullptr) == NEXAR_OK);
    }
    SECTION("test returns it") {
        CHECK(nexar_request_test(quick, nullptr) == NEXAR_OK);
    }
    SECTION("wait_some returns it") {
        uint64_t place = 9, ended = 0;
        CHECK(nexar_request_wait_some(&quick, 1, 10000, &place, &ended, nullptr, 0) == NEXAR_OK);
        CHECK(ended == 1);
    }
    SECTION("poll returns it, once for each start") {
        nexar_completion c[4];
        uint64_t count = 0;
        for (int start = 0; start < 3; ++start) {
            while (count == 0)
                REQUIRE(nexar_session_poll(session.get(), c, sizeof c[0], 4, &count) == NEXAR_OK);
            CHECK(count == 1);
            CHECK(c[0].request == quick);
            REQUIRE(nexar_session_poll(session.get(), c, sizeof c[0], 4, &count) == NEXAR_OK);
            CHECK(count == 0);
            if (start < 2) REQUIRE(nexar_request_start(quick) == NEXAR_OK);
        }
    }
    CHECK(nexar_request_start(quick) == NEXAR_OK);
    CHECK(nexar_request_wait(quick, 10000, nullptr) == NEXAR_OK);
    CHECK(nexar_request_free(quick) == NEXAR_OK);
}

TEST_CASE("wait_any and wait_some give each start of a persistent request once", "[local][S21]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    uint64_t in[3] = {1, 2, 3}, out[3] = {};
    std::vector<nexar_request> all;
    for (int i = 0; i < 3; ++i) all.push_back(sum_init(alone, in + i, out + i, 1));
    for (int round = 0; round < 50; ++round) {
        in[0] = in[1] = in[2] = uint64_t(round);
        REQUIRE(nexar_request_start_all(all.data(), 3) == NEXAR_OK);
        int seen[3] = {};
        for (int left = 3; left > 0;) {
            uint64_t places[3], ended = 0;
            REQUIRE(nexar_request_wait_some(all.data(), 3, 10000, places, &ended, nullptr, 0) == NEXAR_OK);
            for (uint64_t i = 0; i < ended; ++i) ++seen[places[i]], --left;
        }
        for (int i = 0; i < 3; ++i) REQUIRE((seen[i] == 1 && out[i] == uint64_t(round)));
        uint64_t index = 0;
        REQUIRE(nexar_request_wait_any(all.data(), 3, 0, &index, nullptr) == NEXAR_ERR_INVALID_ARGUMENT);
    }
    for (const nexar_request request : all) CHECK(nexar_request_free(request) == NEXAR_OK);
}

TEST_CASE("memory of a persistent request is in use from init to free, also ordinary memory",
          "[local][S21]") {
    ThreadDaemon daemon;
    SessionWish wish;
    wish.scratch_limit = 16 << 20;
    const TestSession session(daemon.path(), wish);
    nexar_group* alone = session.group("alone");
    const uint64_t count = GENERATE(uint64_t{5}, uint64_t{1} << 16);
    void* mine = nullptr;
    REQUIRE(nexar_alloc(session.get(), 8 * count, nullptr, &mine) == NEXAR_OK);
    auto* in_place = static_cast<uint64_t*>(mine);
    std::vector<uint64_t> in(count), out(count);
    const nexar_request ordinary = sum_init(alone, in.data(), out.data(), count);
    const nexar_request registered = sum_init(alone, in_place, in_place, count);
    const uint64_t held = session.stats().scratch_bytes;
    for (uint64_t start = 1; start <= 5; ++start) {
        for (uint64_t i = 0; i < count; ++i) in[i] = in_place[i] = start * 1000 + i, out[i] = 0;
        CHECK(nexar_request_start(ordinary) == NEXAR_OK);
        CHECK(nexar_request_start(registered) == NEXAR_OK);
        CHECK(nexar_request_wait(ordinary, 20000, nullptr) == NEXAR_OK);
        CHECK(nexar_request_wait(registered, 20000, nullptr) == NEXAR_OK);
        CHECK(in == out);
        CHECK(in_place[count - 1] == start * 1000 + count - 1);
        CHECK(session.stats().scratch_bytes == held);
    }
    CHECK(nexar_free(session.get(), mine) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_request_free(registered) == NEXAR_OK);
    CHECK(nexar_free(session.get(), mine) == NEXAR_OK);
    CHECK(nexar_request_free(ordinary) == NEXAR_OK);
}
