// Memory that has no pages where the daemon touches it [S18]: nothing is allocated, the session that named it
// ends, and the daemon goes on. And the same where userfaultfd is refused.
#include "local/holes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <fstream>
#include <string>

#include "by_hand.hpp"
#include "integration/clients/raw_session.hpp"
#include "local/memory.hpp"
#include "nexar.h"
#include "support/forbidden_calls.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;
using local::Holes;

namespace {

constexpr uint64_t page = 4096, mib = 1 << 20;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

Fd sparse(uint64_t bytes, const char* name = "holes-test") {
    Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
}

uint64_t bytes_there(const Fd& fd) {
    struct stat status{};
    REQUIRE(::fstat(fd.get(), &status) == 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
}

// Lines of this process's table of mappings that contain `word`.
size_t mappings(const std::string& word) {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.contains(word);
    return count;
}

std::byte read_at(MutableBytes memory, uint64_t at) {
    return *static_cast<volatile std::byte*>(&memory[at]);
}
void write_at(MutableBytes memory, uint64_t at, std::byte value) {
    *static_cast<volatile std::byte*>(&memory[at]) = value;
}

struct Guarded {
    Guarded(const Fd& fd, uint64_t bytes, std::shared_ptr<local::Faults> faults = {}, uint64_t owner = 0) {
        auto opened = Holes::open();
        if (!opened) SKIP("this machine refuses userfaultfd: " + opened.error().text);
        holes = std::make_shared<const Holes>(std::move(*opened));
        auto made =
            local::Mapping::of_client(fd.get(), 0, bytes, bytes, {unmapper, holes, std::move(faults), owner});
        REQUIRE(made);
        mapping = *made;
        memory = mapping->bytes();
    }
    std::shared_ptr<loop::Releaser> unmapper = *loop::Releaser::open(1);
    std::shared_ptr<const Holes> holes;
    std::shared_ptr<local::Mapping> mapping;
    MutableBytes memory;
};

int32_t status_of_all_reduce(hostile::RawSession& client) {
    const bool done = client.await(1, client.submit(1, client.all_reduce(1000)));
    return done ? client.slot(1).result.status : NEXAR_ERR_TIMED_OUT;
}

}  // namespace

TEST_CASE("[S18] a touch of a hole allocates nothing, and is noticed", "[local][hostile][M6]") {
    const Fd fd = sparse(1024 * mib);
    const Guarded guarded(fd, 1024 * mib);
    CHECK(bytes_there(fd) == 0);

    SECTION("reading") {
        CHECK(read_at(guarded.memory, 500 * mib) == std::byte{0});
    }
    SECTION("writing") {
        write_at(guarded.memory, 500 * mib, std::byte{1});
    }
    SECTION("one that was punched") {
        REQUIRE(::fallocate(fd.get(), 0, 0, mib) == 0);
        write_at(guarded.memory, 0, std::byte{1});
        REQUIRE_FALSE(guarded.mapping->faulted());
        constexpr int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        REQUIRE(::fallocate(fd.get(), punch, 0, mib) == 0);
        CHECK(read_at(guarded.memory, 0) == std::byte{0});
    }

    CHECK(guarded.mapping->faulted());
    CHECK(bytes_there(fd) == 0);
}

TEST_CASE("[S20] a fault is its owner's, and nobody else's memory is looked at", "[local][hostile]") {
    const auto faults = std::make_shared<local::Faults>();
    const Fd first = sparse(mib), second = sparse(mib);
    const Guarded one(first, mib, faults, 7), other(second, mib, faults, 8);
    CHECK(faults->take().empty());
    static_cast<void>(read_at(one.memory, 0));
    CHECK(faults->take() == std::vector<uint64_t>{7});
    CHECK(faults->take().empty());
    static_cast<void>(read_at(other.memory, 0));
    CHECK(faults->take() == std::vector<uint64_t>{8});
}

TEST_CASE("[S18] a page that its memfd has is used as always", "[local]") {
    const Fd fd = sparse(mib);
    const Guarded guarded(fd, mib);
    for (const uint64_t at : {uint64_t{0}, mib - page}) {
        const uint64_t value = at + 7;
        REQUIRE(::pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(at)) == sizeof value);
        CHECK(read_at(guarded.memory, at) == std::byte{7});
        write_at(guarded.memory, at, std::byte{8});
        uint64_t now = 0;
        REQUIRE(::pread(fd.get(), &now, sizeof now, static_cast<off_t>(at)) == sizeof now);
        CHECK(now == at + 8);
    }
    CHECK_FALSE(guarded.mapping->faulted());
    CHECK(bytes_there(fd) == 2 * page);
}

TEST_CASE("[S18] holes cost few mappings, wherever the client puts them", "[local][hostile]") {
    const Fd fd = sparse(64 * mib);
    const Guarded guarded(fd, 64 * mib);
    for (uint64_t at = 0; at < 64 * mib; at += 2 * page)
        REQUIRE(::fallocate(fd.get(), 0, static_cast<off_t>(at), page) == 0);
    const size_t before = mappings("");
    for (uint64_t at = 0; at < 64 * mib; at += page) static_cast<void>(read_at(guarded.memory, at));
    CHECK(guarded.mapping->faulted());
    CHECK(mappings("") < before + 70);
    CHECK(bytes_there(fd) == 32 * mib);
}

TEST_CASE("[S16] [S18] memory that is replaced is freed where it is unmapped", "[local][hostile]") {
    Fd fd = sparse(mib, "replaced-test");
    const Guarded guarded(fd, page);
    fd.reset();  // the mapping is the last reference
    write_at(guarded.memory, 0, std::byte{1});
    REQUIRE(guarded.mapping->faulted());
    CHECK(mappings("memfd:replaced-test") == 1);
}

TEST_CASE("[S18] an operation on memory without pages fails, and so does its session", "[local][hostile]") {
    if (auto holes = Holes::open(); !holes) SKIP("this machine refuses userfaultfd: " + holes.error().text);
    ThreadDaemon daemon;
    hostile::RawSession neighbour, client(uint64_t{1} << 20, true);
    REQUIRE(neighbour.open(daemon.path()));
    REQUIRE(client.open(daemon.path()));

    CHECK(status_of_all_reduce(client) == NEXAR_ERR_PROTOCOL_ERROR);

    CHECK(std::string(client.detail(1).text).contains("has no page"));
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 1; }));
    CHECK(status_of_all_reduce(neighbour) == NEXAR_OK);
}

TEST_CASE("[S18] so does a session whose control segment was not touched before", "[local][hostile]") {
    if (auto holes = Holes::open(); !holes) SKIP("this machine refuses userfaultfd: " + holes.error().text);
    ThreadDaemon daemon;
    const Fd control = sparse(nexar_shm_control_bytes(16));
    REQUIRE(::pwrite(control.get(), "", 1, 0) == 1);  // [S19]
    const uint64_t before = bytes_there(control);
    const Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    CHECK(daemon.eventually([&] { return daemon.counters.ended == 1; }));
    CHECK(bytes_there(control) == before);
    CHECK(hostile::RawSession().open(daemon.path()));
}

TEST_CASE("[S18] where userfaultfd is refused, holes read as zeros, and all else works", "[local]") {
    Child child([] {
        if (!forbid_calls({SYS_userfaultfd}, EPERM)) return 2;
        const auto holes = Holes::open();
        if (holes || holes.error().code != Errc::unsupported) return 3;
        if (!holes.error().text.contains("userfaultfd")) return 4;
        ThreadDaemon daemon;
        hostile::RawSession client(uint64_t{1} << 20, true);
        if (!client.open(daemon.path())) return 5;
        if (status_of_all_reduce(client) != NEXAR_OK) return 6;
        return client.region()[client.region_bytes / 2] == 1 ? 0 : 7;  // as the input, whose page is pinned
    });
    CHECK(child.wait() == 0);
}
