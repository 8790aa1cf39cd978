// No touch of memory that was mapped waits for its client, and nobody waits until it is mapped [S19].
#include "local/mapper.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

#include "by_hand.hpp"
#include "local/pins.hpp"
#include "nexar.h"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;
using local::Mapper;

namespace {

constexpr uint64_t page = 4096, mib = 1 << 20;
constexpr int length_seals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int collapse = 25;  // MADV_COLLAPSE, which older headers lack

bool may_punch(const Fd& fd) {
    constexpr int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return ::fallocate(fd.get(), punch, page, page) == 0;
}

Fd another(const Fd& fd) {
    return Fd(::dup(fd.get()));
}

struct Mappers {
    std::unique_ptr<Mapper> mapper = std::move(*Mapper::open(16));
    std::shared_ptr<loop::Releaser> unmapper = *loop::Releaser::open(1);
    std::shared_ptr<const local::Holes> holes;  // null: refused here, and then holes are filled

    Mappers() {
        if (auto opened = local::Holes::open())
            holes = std::make_shared<const local::Holes>(std::move(*opened));
    }
    void ask(const Fd& fd, uint64_t bytes, uint64_t lane = 1, uint64_t offset = 0) {
        mapper->map({.session = SessionId(lane),
                     .region = ++asked,
                     .memfd = another(fd),
                     .offset = offset,
                     .bytes = bytes,
                     .bytes_max = bytes,
                     .host = {.unmapper = unmapper, .holes = holes, .lane = lane}});
    }
    Mapper::Mapped next() {
        while (ready.empty()) {
            pollfd wait{mapper->ready_fd(), POLLIN, 0};
            REQUIRE(::poll(&wait, 1, 60'000) == 1);
            ready = mapper->take();
        }
        Mapper::Mapped out = std::move(ready.front());
        ready.erase(ready.begin());
        if (!out.mapping) UNSCOPED_INFO(out.mapping.error().text);
        return out;
    }
    Mapper::Mapped map(const Fd& fd, uint64_t bytes, uint64_t lane = 1, uint64_t offset = 0) {
        ask(fd, bytes, lane, offset);
        return next();
    }

    uint32_t asked = 0;
    std::vector<Mapper::Mapped> ready;
};

// A client's mapping, at an address where it could be of huge pages.
struct View {
    View(const Fd& fd, uint64_t length) : bytes(length) {
        constexpr uint64_t huge = 2 * mib;
        void* room = ::mmap(nullptr, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(room != MAP_FAILED);
        const auto first = (reinterpret_cast<uintptr_t>(room) + huge - 1) / huge * huge;
        at = ::mmap(reinterpret_cast<void*>(first), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    fd.get(), 0);
        REQUIRE(at != MAP_FAILED);
    }
    View(const View&) = delete;
    ~View() { ::munmap(at, bytes); }
    std::byte* data() const { return static_cast<std::byte*>(at); }

    void* at;
    const uint64_t bytes;
};

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

TEST_CASE("[S19] memory that is mapped cannot be punched, and stays writable where it was mapped before",
          "[local][hostile]") {
    const Fd fd = memfd(2 * mib, length_seals);
    const View client(fd, 2 * mib);
    REQUIRE(may_punch(fd));
    Mappers mappers;

    const auto mapped = mappers.map(fd, 2 * mib);

    REQUIRE(mapped.mapping);
    CHECK(mapped.unpinned.empty());
    CHECK_FALSE(may_punch(fd));
    CHECK(::madvise(client.at, 2 * mib, MADV_REMOVE) != 0);
    std::memset(client.at, 7, 2 * mib);
    CHECK((*mapped.mapping)->bytes()[mib] == std::byte{7});
}

TEST_CASE("[S19] no huge page is made of memory that is mapped", "[local][hostile]") {
    const Fd plain = memfd(4 * mib, length_seals), fd = memfd(4 * mib, length_seals);
    const View usual(plain, 4 * mib), client(fd, 4 * mib);
    std::memset(usual.at, 1, usual.bytes);
    std::memset(client.at, 1, client.bytes);
    if (::madvise(usual.at, 4 * mib, collapse) != 0) SKIP("this kernel makes no huge pages of a memfd");
    Mappers mappers;
    const auto mapped = mappers.map(fd, 4 * mib);
    REQUIRE(mapped.mapping);
    CHECK(::madvise(client.at, 4 * mib, collapse) != 0);
}

TEST_CASE("[S19] pins are pages of each 2 MiB of the memfd, wherever the region begins", "[local]") {
    const Fd fd = memfd(9 * mib, length_seals);
    const View memory(fd, 9 * mib);
    std::memset(memory.at, 1, memory.bytes);
    const auto pinned = local::pin(fd.get(), mib, Bytes(memory.data() + mib, 8 * mib));
    REQUIRE(pinned);
    REQUIRE(pinned->holders.size() == 1);
    std::byte bytes[16];
    CHECK(::read(pinned->holders[0].get(), bytes, sizeof bytes) == 5);  // one of each page
    CHECK(local::pipes_for(512 * mib - 1) == 1);
    CHECK(local::pipes_for(512 * mib) == 2);
}

TEST_CASE("[S19] memory without the pages to pin is refused", "[local][hostile]") {
    const Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), 4 * mib) == 0);
    REQUIRE(::pwrite(fd.get(), "", 1, 0) == 1);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, length_seals) == 0);
    Mappers mappers;
    if (!mappers.holes) SKIP("this machine refuses userfaultfd");
    const auto mapped = mappers.map(fd, 4 * mib);
    REQUIRE_FALSE(mapped.mapping);
    CHECK(mapped.mapping.error().code == Errc::invalid_argument);
    CHECK(mapped.mapping.error().text.contains("no page at byte 2097152"));
}

TEST_CASE("[S19] memory that may not be sealed is refused", "[local][hostile]") {
    const Fd fd = memfd(2 * mib, length_seals | F_SEAL_SEAL);
    Mappers mappers;
    const auto mapped = mappers.map(fd, 2 * mib);
    REQUIRE_FALSE(mapped.mapping);
    CHECK(mapped.mapping.error().code == Errc::unsupported);
    CHECK(mapped.mapping.error().text.contains("F_SEAL_SEAL"));
    CHECK(may_punch(fd));
}

TEST_CASE("[S19] more of a memfd may be registered while a part of it is, and only then", "[local]") {
    const Fd fd = memfd(8 * mib, length_seals);
    Mappers mappers;
    auto first = mappers.map(fd, 4 * mib);
    REQUIRE(first.mapping);
    auto second = mappers.map(fd, 4 * mib, 1, 2 * mib);
    REQUIRE(second.mapping);
    const auto others = mappers.map(fd, 4 * mib, 2);

    (*first.mapping)->bytes()[3 * mib] = std::byte{9};
    CHECK((*second.mapping)->bytes()[mib] == std::byte{9});
    CHECK((*second.mapping)->bytes().size() == 4 * mib);
    CHECK((*second.mapping)->backing().same_object((*first.mapping)->backing()));
    CHECK((*second.mapping)->backing().offset == 2 * mib);
    REQUIRE_FALSE(others.mapping);
    CHECK(others.mapping.error().code == Errc::unsupported);
    CHECK(others.mapping.error().text.contains("sealed against new writable mappings"));

    first.mapping = fail(Errc::closed, "freed");
    auto third = mappers.map(fd, mib);
    REQUIRE(third.mapping);
    (*second.mapping)->bytes()[0] = std::byte{8};
    second.mapping = fail(Errc::closed, "freed");
    CHECK(mappers.map(fd, 8 * mib).mapping);
    third.mapping = fail(Errc::closed, "freed");
    CHECK_FALSE(mappers.map(fd, mib).mapping);
}

TEST_CASE("[S19] of a memfd above 1 GiB only what is registered can be registered once more", "[local]") {
    constexpr uint64_t bytes = 1024 * mib + page;
    const Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), bytes) == 0);
    for (const uint64_t at : {uint64_t{0}, 2 * mib}) REQUIRE(::pwrite(fd.get(), "", 1, off_t(at)) == 1);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, length_seals) == 0);
    Mappers mappers;
    const auto first = mappers.map(fd, 3 * mib);
    REQUIRE(first.mapping);
    CHECK(mappers.map(fd, mib, 1, 2 * mib).mapping);
    CHECK_FALSE(mappers.map(fd, 2 * mib, 1, 2 * mib).mapping);
}

TEST_CASE("[S19] nobody waits for a client that holds its memfd's lock", "[local][hostile]") {
    const Fd stuck = memfd(2 * mib, length_seals), other = memfd(2 * mib, length_seals);
    const View before(stuck, 2 * mib);
    Mappers mappers;
    {
        Withheld source;
        source.write_to(stuck);
        for (size_t i = 0; i < Mapper::waiting_max; ++i) mappers.ask(stuck, 2 * mib);
        mappers.ask(stuck, 2 * mib);
        const auto refused = mappers.next();
        CHECK(refused.region == Mapper::waiting_max + 1);
        REQUIRE_FALSE(refused.mapping);
        CHECK(refused.mapping.error().code == Errc::no_memory);

        const auto of_another = mappers.map(other, 2 * mib, 2);
        CHECK(of_another.session == SessionId(2));
        CHECK(of_another.mapping);
    }
    CHECK(mappers.next().region == 1);  // its turn came when the lock was free
}

TEST_CASE("[S19] memory of nexar_alloc and control segments cannot be punched", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    void* at = nullptr;
    REQUIRE(nexar_alloc(session.get(), 2 * mib, nullptr, &at) == NEXAR_OK);
    CHECK(::madvise(at, page, MADV_REMOVE) != 0);
    std::memset(at, 7, 2 * mib);
    CHECK(nexar_free(session.get(), at) == NEXAR_OK);

    const Fd control = memfd(attach(16).control_bytes);
    const Fd fd = dial(daemon.path());
    REQUIRE(say(fd, hello()));
    REQUIRE(receive_type(fd) == NEXAR_MSG_WELCOME);
    REQUIRE(say(fd, attach(16), {control.get()}));
    REQUIRE(receive_type(fd) == NEXAR_MSG_READY);
    CHECK_FALSE(may_punch(control));
}
