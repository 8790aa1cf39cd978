// Memory that its client lets the daemon seal cannot be punched, so no touch of it waits [S19]; and nobody
// waits for the seals.
#include "local/sealer.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <thread>

#include "by_hand.hpp"
#include "nexar.h"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;
using local::Sealer;

namespace {

constexpr uint64_t page = 4096, mib = 1 << 20;
constexpr int length_seals = F_SEAL_SHRINK | F_SEAL_GROW;

bool may_punch(const Fd& fd) {
    constexpr int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return ::fallocate(fd.get(), punch, 0, page) == 0;
}

Fd another(const Fd& fd) {
    return Fd(::dup(fd.get()));
}

bool becomes_false(const local::MayWait& word) {
    for (int i = 0; i < 5000 && word->load(); ++i) ::usleep(1000);  // sleep: between two looks
    return !word->load();
}

// What a write(2) reads from it waits until the end of the object, and holds the lock of its file.
class Withheld {
  public:
    Withheld() : fd_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
        at_ = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uffdio_api api{};
        api.api = UFFD_API;
        uffdio_register memory{};
        memory.range = {reinterpret_cast<uintptr_t>(at_), page};
        memory.mode = UFFDIO_REGISTER_MODE_MISSING;
        if (!fd_ || ::ioctl(fd_.get(), UFFDIO_API, &api) != 0 ||
            ::ioctl(fd_.get(), UFFDIO_REGISTER, &memory) != 0)
            SKIP("this machine refuses userfaultfd");
    }
    Withheld(const Withheld&) = delete;
    ~Withheld() {
        fd_.reset();
        if (writer_.joinable()) writer_.join();
        ::munmap(at_, page);
    }
    // Returns when the write waits.
    void write_to(const Fd& memfd) {
        writer_ = std::thread([&memfd, this] { static_cast<void>(::pwrite(memfd.get(), at_, page, 0)); });
        uffd_msg message{};
        REQUIRE(::read(fd_.get(), &message, sizeof message) == sizeof message);
    }

  private:
    Fd fd_;
    void* at_;
    std::thread writer_;
};

}  // namespace

TEST_CASE("[S19] a sealed memfd cannot be punched, and stays writable where it is mapped",
          "[local][hostile]") {
    const Fd fd = memfd(2 * mib, length_seals);
    void* at = ::mmap(nullptr, 2 * mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(at != MAP_FAILED);
    REQUIRE(may_punch(fd));
    Sealer sealer;
    const auto may_wait = sealer.seal(1, another(fd));
    REQUIRE(may_wait);
    REQUIRE(becomes_false(may_wait));
    CHECK_FALSE(may_punch(fd));
    CHECK(::madvise(at, 2 * mib, MADV_REMOVE) != 0);
    std::memset(at, 7, 2 * mib);
    ::munmap(at, 2 * mib);
}

TEST_CASE("[S19] a memfd without its client's leave stays as it is, and may wait", "[local][hostile]") {
    const Fd fd = memfd(2 * mib);
    Sealer sealer;
    const auto may_wait = sealer.seal(1, another(fd));
    REQUIRE(may_wait);
    CHECK(may_wait->load());
    CHECK(may_punch(fd));
}

TEST_CASE("[S19] a short memfd is punched too quickly to matter", "[local]") {
    Sealer sealer;
    CHECK_FALSE(sealer.seal(1, memfd(Sealer::quick_bytes_max, length_seals)));
    CHECK(sealer.seal(1, memfd(Sealer::quick_bytes_max + page, length_seals)));
}

TEST_CASE("[S19] nobody waits for a client that keeps its memfd from being sealed", "[local][hostile]") {
    const Fd stuck = memfd(2 * mib, length_seals);
    Sealer sealer;
    Withheld source;
    source.write_to(stuck);
    const auto first = sealer.seal(1, another(stuck));
    for (size_t i = 1; i < Sealer::waiting_max; ++i) static_cast<void>(sealer.seal(1, another(stuck)));
    const Fd left = memfd(2 * mib, length_seals), others = memfd(2 * mib, length_seals);

    const auto too_many = sealer.seal(1, another(left));
    const auto of_another = sealer.seal(2, another(others));

    CHECK(becomes_false(of_another));
    CHECK(first->load());
    CHECK(too_many->load());
}

TEST_CASE("[S19] memory of nexar_alloc cannot be punched once it is registered", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    void* at = nullptr;
    REQUIRE(nexar_alloc(session.get(), 2 * mib, nullptr, &at) == NEXAR_OK);
    CHECK(daemon.eventually([&] { return ::madvise(at, page, MADV_REMOVE) != 0 && errno == EPERM; }));
    std::memset(at, 7, 2 * mib);
    CHECK(nexar_free(session.get(), at) == NEXAR_OK);
}

TEST_CASE("[S19] a control segment's memfd is not longer than the segment", "[local][hostile]") {
    ThreadDaemon daemon;
    const Fd fd = dial(daemon.path()), control = memfd(attach(16).control_bytes + page);
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    CHECK(receive_type(fd) == NEXAR_MSG_REFUSED);
}
