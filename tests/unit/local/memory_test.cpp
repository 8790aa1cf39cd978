// Memory of a session: what is refused, and that a refusal costs nothing and leaves nothing behind.
#include "local/memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "core/region.hpp"
#include "rank.hpp"
#include "support/stuck_socket.hpp"
#include "test_daemon.hpp"

// The address sanitizer's mmap() makes mappings of its own.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NEXAR_MMAP_IS_NOT_ALONE
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define NEXAR_MMAP_IS_NOT_ALONE
#endif

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr uint64_t page = 4096, mib = uint64_t{1} << 20;

struct Memfd {
    explicit Memfd(uint64_t bytes_)
        : fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes(bytes_) {
        REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
        data = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        REQUIRE(data != MAP_FAILED);
    }
    ~Memfd() {
        ::munmap(data, bytes);
        ::close(fd);
    }
    int fd;
    uint64_t bytes;
    std::byte* data;
};

// The most memory that this process has had at once, in KiB.
long most_resident_kib() {
    FILE* file = std::fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (file && std::fgets(line, sizeof line, file))
        if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::atol(line + 6);
    if (file) std::fclose(file);
    return kib;
}

int exit_code(bool good, int otherwise) {
    return good ? 0 : otherwise;
}

}  // namespace

#ifndef NEXAR_MMAP_IS_NOT_ALONE
TEST_CASE("a missing page is survived where the process may have no more mappings", "[local][S18]") {
    constexpr size_t most = 70'000;
    const Memfd memory(4 * mib);
    const auto mapping = *local::Mapping::unchecked(memory.fd, 0, 4 * mib, {*loop::Releaser::open(1)});
    REQUIRE(::ftruncate(memory.fd, 0) == 0);
    auto* const many = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * most * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    REQUIRE(many != MAP_FAILED);
    size_t mappings = 0;
    while (mappings < most && ::mprotect(many + 2 * mappings * page, page, PROT_READ) == 0) ++mappings;

    const std::byte read = *static_cast<volatile std::byte*>(mapping->bytes().data() + 2 * mib);

    ::munmap(many, 2 * most * page);
    if (mappings == most) SKIP("vm.max_map_count is above what this test makes");
    CHECK(read == std::byte{0});
    CHECK(mapping->faulted());
}
#endif

TEST_CASE("memory is charged until it is unmapped, however long that takes", "[local][N2][S16]") {
    Tenants tenants;
    const TenantRef tenant = tenants.of("", 1000);
    const auto unmapper = *loop::Releaser::open(1, true);
    StuckSocket stuck;
    unmapper->release(0, stuck.take());  // what comes behind waits
    const Memfd memory(4 * page);
    auto mapping = *local::Mapping::unchecked(memory.fd, 0, 4 * page, {unmapper});
    mapping->charges()->push_back(*tenant->charge(Resource::region_bytes, 4 * page));
    mapping.reset();
    CHECK(tenant->used(Resource::region_bytes) == 4 * page);
    stuck.let_go();
    REQUIRE(unmapper->idle_within(60));
    CHECK(tenant->used(Resource::region_bytes) == 0);
}

TEST_CASE("only the memfd's own memory, shared and writable, is taken for it", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    const Memfd memory(4 * page), other(4 * page);
    const auto taken = [&](void* at, uint64_t bytes, int fd, uint64_t offset) {
        return nexar_register_memfd(session.get(), at, bytes, fd, offset);
    };
    const auto mapped = [&](int protection, int flags, int fd) {
        void* at = ::mmap(nullptr, 4 * page, protection, flags, fd, 0);
        REQUIRE(at != MAP_FAILED);
        return at;
    };
    constexpr int both = PROT_READ | PROT_WRITE;
    CHECK(taken(mapped(both, MAP_PRIVATE, memory.fd), 4 * page, memory.fd, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(taken(mapped(PROT_READ, MAP_SHARED, memory.fd), 4 * page, memory.fd, 0) ==
          NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(taken(mapped(both, MAP_PRIVATE | MAP_ANONYMOUS, -1), 4 * page, memory.fd, 0) ==
          NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(taken(other.data, 4 * page, memory.fd, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(taken(memory.data, 2 * page, memory.fd, page) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(taken(memory.data, page, -1, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    // Two mappings of it, one after the other, are one piece of memory.
    REQUIRE(::mprotect(memory.data + page, page, PROT_READ) == 0);
    REQUIRE(::mprotect(memory.data + page, page, both) == 0);
    CHECK(taken(memory.data + page, 2 * page, memory.fd, page) == NEXAR_OK);
}

TEST_CASE("two mappings of one memfd are one object, those of two memfds are not", "[local][M4]") {
    const Memfd memory(4 * page), other(4 * page);
    Regions regions;
    const auto row = [&](int fd, uint64_t offset) {
        auto mapping = local::Mapping::unchecked(fd, offset, 2 * page, {*loop::Releaser::open(1)});
        REQUIRE(mapping);
        const auto bytes = (*mapping)->bytes();
        return regions.add(RegionKind::memfd, SessionId(1),
                           {bytes.data(), bytes.size(), (*mapping)->backing(), *mapping});
    };
    const RegionPin low = row(memory.fd, 0), high = row(memory.fd, page), elsewhere = row(other.fd, page);
    const Place a{low.get(), page}, b{high.get(), 0}, c{elsewhere.get(), 0};

    *a.resolve() = std::byte{7};
    CHECK(*b.resolve() == std::byte{7});
    CHECK(a.resolve() != b.resolve());
    CHECK(a.same(b));
    CHECK(overlap(a, 1, b, 1));
    CHECK_FALSE(overlap({low.get(), 0}, page, b, 2 * page));
    CHECK_FALSE(overlap(a, page, c, page));
    CHECK_FALSE(b.same(c));
}

TEST_CASE("a register that overlaps is refused, and everything else goes on", "[local][D10]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    const Memfd memory(16 * page);
    REQUIRE(nexar_register_memfd(session.get(), memory.data + 4 * page, 4 * page, memory.fd, 4 * page) ==
            NEXAR_OK);

    for (const uint64_t begin : {uint64_t{0}, 2 * page, 4 * page, 7 * page})
        CHECK(nexar_register_memfd(session.get(), memory.data + begin, 5 * page, memory.fd, begin) ==
              NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_unregister(session.get(), memory.data) == NEXAR_ERR_NOT_FOUND);

    void* some[3] = {};
    for (void*& each : some) CHECK(nexar_alloc(session.get(), page, nullptr, &each) == NEXAR_OK);
    CHECK(daemon.eventually([&] { return daemon.counters.regions == 4; }));
    CHECK(nexar_register_memfd(session.get(), memory.data + 8 * page, page, memory.fd, 8 * page) == NEXAR_OK);
    CHECK(nexar_unregister(session.get(), memory.data + 4 * page) == NEXAR_OK);
    CHECK(nexar_register_memfd(session.get(), memory.data + 4 * page, page, memory.fd, 4 * page) == NEXAR_OK);
}

// 12 operations and as many openings as there is room for: what ends only when somebody else does something.
TEST_CASE("a full table still gives memory, takes it back, and frees groups", "[local][D13]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path(), {.slots = 16});
    nexar_group* stuck = session.group("stuck");
    nexar_group* other = session.group("alone");
    void* memory = nullptr;
    REQUIRE(nexar_alloc(session.get(), mib, nullptr, &memory) == NEXAR_OK);
    std::vector<nexar_request> requests;
    for (nexar_request request = 0; nexar_barrier_start(stuck, nullptr, &request) == NEXAR_OK;)
        requests.push_back(request);
    CHECK(last_failure().code == NEXAR_ERR_TABLE_FULL);
    CHECK(requests.size() == 12);
    CHECK(std::string(last_failure().text).find("12 requests") != std::string::npos);
    std::atomic<int> full{0}, incomplete{0};
    std::vector<std::thread> openings;
    for (int i = 0; i < 8; ++i)
        openings.emplace_back([&, i] {
            nexar_group* incomplete_group = nullptr;
            const auto status =
                try_open_group(session.get(), "nobody-" + std::to_string(i), 2, &incomplete_group, 2000);
            full += status == NEXAR_ERR_TABLE_FULL;
            incomplete += status == NEXAR_ERR_GROUP_INCOMPLETE;
        });
    REQUIRE(daemon.eventually([&] { return full >= 4; }));

    REQUIRE(daemon.eventually([&] { return daemon.counters.regions == 1; }));
    CHECK(nexar_free(session.get(), memory) == NEXAR_OK);
    CHECK(daemon.eventually([&] { return daemon.counters.regions == 0; }));
    CHECK(nexar_alloc(session.get(), mib, nullptr, &memory) == NEXAR_OK);
    CHECK(nexar_group_free(other) == NEXAR_OK);
    CHECK(nexar_group_free(other) == NEXAR_ERR_CLOSED);

    for (std::thread& opening : openings) opening.join();
    CHECK(full + incomplete == 8);
    for (const nexar_request request : requests) CHECK(nexar_request_cancel(request) == NEXAR_OK);
    for (const nexar_request request : requests)
        CHECK(nexar_request_wait(request, 10000, nullptr) == NEXAR_ERR_CANCELLED);
}

TEST_CASE("a buffer that starts in registered memory and runs past its end is refused", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* group = session.group("alone");
    const Memfd memory(16 * page);  // so that what lies behind the region can be touched
    REQUIRE(nexar_register_memfd(session.get(), memory.data, 4 * page, memory.fd, 0) == NEXAR_OK);
    const auto refused = [&](std::byte* in, std::byte* out, uint64_t count) {
        const auto status = nexar_all_reduce(group, in, out, count, NEXAR_U8, NEXAR_SUM, within(10000));
        if (status != NEXAR_ERR_INVALID_ARGUMENT) return false;
        const std::string text = last_failure().text;
        CAPTURE(text);
        CHECK(text.find("16384 bytes") != std::string::npos);
        CHECK(text.find(std::to_string(count) + " bytes") != std::string::npos);
        return true;
    };
    std::vector<std::byte> ordinary(8 * page);
    CHECK(refused(memory.data, memory.data, 4 * page + 1));
    CHECK(refused(memory.data + 3 * page, ordinary.data(), 2 * page));
    CHECK(refused(ordinary.data(), memory.data + 4 * page - 1, 2));
    // Nobody uses the region on account of a call that was refused.
    CHECK(nexar_all_reduce(group, memory.data, memory.data, page / 2, NEXAR_U64, NEXAR_SUM, within(10000)) ==
          NEXAR_OK);
    CHECK(nexar_unregister(session.get(), memory.data) == NEXAR_OK);
}

TEST_CASE("a message is sent whatever scratch_limit is", "[local][D15]") {
    ThreadDaemon daemon;
    for (const uint64_t limit : {uint64_t{3} << 19, uint64_t{1} << 19, uint64_t{1000}}) {
        const TestSession session(daemon.path(), {.scratch_limit = limit});
        nexar_group* group = session.group("alone");
        std::vector<uint64_t> sent(150'000), received(150'000);
        for (size_t i = 0; i < sent.size(); ++i) sent[i] = i * limit;
        nexar_request large = 0, small = 0;
        REQUIRE(nexar_send_start(group, sent.data(), sent.size(), NEXAR_U64, 0, 1, nullptr, &large) ==
                NEXAR_OK);
        REQUIRE(nexar_send_start(group, sent.data(), 12, NEXAR_U64, 0, 2, nullptr, &small) == NEXAR_OK);
        CHECK(nexar_recv(group, received.data(), 12, NEXAR_U64, 0, 2, nullptr, within(10000)) == NEXAR_OK);
        CHECK(received[11] == sent[11]);
        CHECK(nexar_recv(group, received.data(), received.size(), NEXAR_U64, 0, 1, nullptr, within(10000)) ==
              NEXAR_OK);
        CHECK(received == sent);
        CHECK(nexar_request_wait(large, 10000, nullptr) == NEXAR_OK);
        CHECK(nexar_request_wait(small, 10000, nullptr) == NEXAR_OK);
    }
}

TEST_CASE("a collective of a few bytes runs within a small scratch_limit", "[local][D15]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path(), {.scratch_limit = 512 * 1024});
    nexar_group* group = session.group("alone");
    uint64_t in = 77, out = 0;
    CHECK(nexar_all_reduce(group, &in, &out, 1, NEXAR_U64, NEXAR_SUM, within(10000)) == NEXAR_OK);
    CHECK(out == 77);
}

TEST_CASE("input and output that together fill scratch_limit are copied, however they are rounded",
          "[local][D15]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path(), {.scratch_limit = 1'000'000});
    nexar_group* group = session.group("alone");
    std::vector<uint64_t> in(62'500, 7), out(62'500);
    nexar_request request = 0;
    REQUIRE(nexar_all_reduce_start(group, in.data(), out.data(), in.size(), NEXAR_U64, NEXAR_SUM,
                                   within(10000), &request) == NEXAR_OK);
    CHECK(session.stats().scratch_bytes == 1'000'000);
    CHECK(nexar_request_wait(request, 10000, nullptr) == NEXAR_OK);
    CHECK(out == in);
    CHECK(nexar_request_free(request) == NEXAR_OK);
    in.assign(in.size(), 8);
    CHECK(nexar_all_reduce(group, in.data(), out.data(), in.size(), NEXAR_U64, NEXAR_SUM, within(10000)) ==
          NEXAR_OK);
    CHECK(out == in);
}

// The kernel counts memfds as files, and ends with SIGXFSZ who makes one that is too long.
TEST_CASE("under a limit on the size of files memory is the daemon's to make", "[local][D16]") {
    ProcessDaemon daemon;
    Child client([&] {
        const rlimit limit{4096, RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        nexar_session* session = nullptr;
        if (try_open_session(daemon.path(), &session) != NEXAR_OK) return 1;
        void* memory = nullptr;
        if (nexar_alloc(session, 128 << 10, nullptr, &memory) != NEXAR_OK) return 2;
        std::memset(memory, 7, 128 << 10);
        return 0;
    });
    CHECK(client.wait() == 0);
}

TEST_CASE("a process that has no descriptors left gets an error, whichever one is missing", "[local]") {
    ProcessDaemon daemon;
    Child client([&] {
        const rlimit limit{256, 256};
        ::setrlimit(RLIMIT_NOFILE, &limit);
        std::vector<int> held;
        for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) held.push_back(fd);
        int refusals = 0;
        for (;; ++refusals) {
            nexar_session* session = nullptr;
            if (try_open_session(daemon.path(), &session) == NEXAR_OK) break;
            const nexar_error error = last_failure();
            if (error.code != NEXAR_ERR_IO || error.system_errno != EMFILE) return 10 + refusals;
            if (!std::strstr(error.text, "ulimit -n")) return 30 + refusals;
            if (held.empty()) return 1;
            ::close(held.back());
            held.pop_back();
        }
        return exit_code(refusals > 2, 2);  // for the socket, and for each of the two that come over it
    });
    CHECK(client.wait() == 0);
}

TEST_CASE("memory beyond the daemon's limits is refused before a page of it exists", "[local][D20][S10]") {
    DaemonOptions options;
    options.limits.session_bytes_max = 96 * mib;
    ProcessDaemon daemon(options);
    Child client([&] {
        nexar_session* session = nullptr;
        if (try_open_session(daemon.path(), &session) != NEXAR_OK) return 1;
        void* memory = nullptr;
        if (nexar_alloc(session, 16 * mib, nullptr, &memory) != NEXAR_OK) return 2;
        const long before = most_resident_kib();
        // More than all may have, more than is left of that, and what no machine has.
        for (const uint64_t bytes : {128 * mib, 90 * mib, uint64_t{1} << 45}) {
            if (nexar_alloc(session, bytes, nullptr, &memory) != NEXAR_ERR_NO_MEMORY) return 3;
            if (most_resident_kib() - before > 8 * 1024) return 4;
            if (!std::strstr(last_failure().text, "session_memory_max_bytes")) return 6;
        }
        return exit_code(nexar_alloc(session, 16 * mib, nullptr, &memory) == NEXAR_OK, 5);
    });
    CHECK(client.wait() == 0);
}

TEST_CASE("memory that this host has not got is refused before a page of it exists", "[local][D20]") {
    ProcessDaemon daemon;  // allows 2^40 bytes
    Child client([&] {
        nexar_session* session = nullptr;
        if (try_open_session(daemon.path(), &session) != NEXAR_OK) return 1;
        void* memory = nullptr;
        const long before = most_resident_kib();
        if (nexar_alloc(session, uint64_t{1} << 40, nullptr, &memory) != NEXAR_ERR_NO_MEMORY) return 2;
        if (most_resident_kib() - before > 8 * 1024) return 3;
        return exit_code(nexar_alloc(session, mib, nullptr, &memory) == NEXAR_OK, 4);
    });
    CHECK(client.wait() == 0);
}
