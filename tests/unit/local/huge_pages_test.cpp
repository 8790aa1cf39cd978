// Regions in huge pages (MFD_HUGETLB): whole pages of their own size are mapped, replaced and unmapped.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "local/memory.hpp"
#include "loop/fd.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;
using local::Fd;

namespace {

constexpr uint64_t huge = 2 << 20;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

// Free huge pages for one test: asks the kernel for two more, and gives them back. The machine has one pool
// of them, which another process of these tests might take meanwhile: it waits.
class HugePages {
  public:
    HugePages() : turn_(::open(path, O_RDONLY | O_CLOEXEC)) {
        ::flock(turn_.get(), LOCK_EX);
        before_ = read();
        write(before_ + 2);
    }
    ~HugePages() { write(before_); }
    HugePages(const HugePages&) = delete;
    bool any() const {
        void* at = map_one();
        if (at == MAP_FAILED) return false;
        ::munmap(at, huge);
        return true;
    }
    // Takes all that are free, so that no fault finds one.
    std::vector<void*> take_all() const {
        std::vector<void*> out;
        for (void* at = map_one(); at != MAP_FAILED && out.size() < 4096; at = map_one()) {
            *static_cast<volatile char*>(at) = 1;
            out.push_back(at);
        }
        return out;
    }

  private:
    static constexpr const char* path = "/proc/sys/vm/nr_hugepages";
    static long read() {
        long n = 0;
        std::ifstream(path) >> n;
        return n;
    }
    static void write(long n) { std::ofstream(path) << n; }
    static void* map_one() {
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
        return ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    const Fd turn_;
    long before_ = 0;
};

Fd memfd(uint64_t bytes, unsigned flags = 0) {
    Fd fd(::memfd_create("huge-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
    return ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0 ? std::move(fd) : Fd{};
}
Fd huge_memfd(uint64_t bytes) {
    return memfd(bytes, MFD_HUGETLB | 21u << MAP_HUGE_SHIFT);
}

size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.contains("memfd:huge-test");
    return count;
}

}  // namespace

TEST_CASE("a region is mapped in whole pages of its memfd, and begins with one", "[local][D5][H3]") {
    CHECK(local::bytes_to_map(0, 1, 4096) == uint64_t{4096});
    CHECK(local::bytes_to_map(8192, 4096, 4096) == uint64_t{4096});
    CHECK(local::bytes_to_map(0, 4096, huge) == huge);
    CHECK(local::bytes_to_map(huge, huge + 1, huge) == 2 * huge);
    const auto inside = local::bytes_to_map(4096, 4096, huge);
    REQUIRE_FALSE(inside);
    CHECK(inside.error().code == Errc::invalid_argument);
    CHECK(inside.error().text.contains("2097152"));
    CHECK_FALSE(local::bytes_to_map(0, UINT64_MAX, huge));
    CHECK(local::page_bytes_of(memfd(4096).get()) == uint64_t{4096});
    // Needs no free page: none is touched.
    if (const Fd fd = huge_memfd(huge); fd) CHECK(local::page_bytes_of(fd.get()) == huge);
}

TEST_CASE("a region in huge pages of any length is unmapped when it ends", "[local][hostile][D5][H3]") {
    const HugePages pool;
    if (!pool.any()) SKIP("this machine has no huge pages to give");
    const Fd fd = huge_memfd(huge);
    REQUIRE(fd);
    const auto unmapper = *loop::Releaser::open(1);
    for (const uint64_t bytes : {uint64_t{4096}, huge - 4096, huge}) {
        CAPTURE(bytes);
        {
            const auto mapping = local::Mapping::of_client(fd.get(), 0, bytes, UINT64_MAX, {unmapper});
            REQUIRE(mapping);
            CHECK((*mapping)->bytes().size() == bytes);
            CHECK(mappings() == 1);
        }
        REQUIRE(unmapper->idle_within(60));
        CHECK(mappings() == 0);
    }
    const auto inside = local::Mapping::of_client(fd.get(), 4096, 4096, UINT64_MAX, {unmapper});
    REQUIRE_FALSE(inside);
    CHECK(inside.error().code == Errc::invalid_argument);
}

TEST_CASE("a hole in a huge page that cannot be filled reads as zeros, and is noticed",
          "[local][hostile][D5][H3]") {
    const HugePages pool;
    if (!pool.any()) SKIP("this machine has no huge pages to give");
    Child child([&pool] {
        const Fd fd = huge_memfd(huge);
        const auto mapping =
            local::Mapping::of_client(fd.get(), 0, huge, UINT64_MAX, {*loop::Releaser::open(1)});
        if (!mapping) return 2;
        const auto bytes = (*mapping)->bytes();
        std::ranges::fill(bytes, std::byte{7});
        if (::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, huge) != 0) return 3;
        pool.take_all();
        // Not from its first 4096 bytes: a replacement must begin where the huge page does.
        if (*static_cast<volatile std::byte*>(&bytes[huge / 2 + 5000]) != std::byte{0}) return 4;
        *static_cast<volatile std::byte*>(&bytes[0]) = std::byte{1};
        return (*mapping)->faulted() ? 0 : 5;
    });
    CHECK(child.wait() == 0);
}
