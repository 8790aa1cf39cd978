// Populated: pages are there before the daemon can touch them.
#include "populated.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

namespace nexar::c {
namespace {

constexpr uint64_t part = Populated::part_bytes;

class Sparse {
  public:
    explicit Sparse(uint64_t bytes) : fd_(::memfd_create("sparse", MFD_CLOEXEC)) {
        REQUIRE(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        REQUIRE(at != MAP_FAILED);
        memory = {static_cast<std::byte*>(at), bytes};
    }
    ~Sparse() {
        ::munmap(memory.data(), memory.size());
        ::close(fd_);
    }
    uint64_t bytes() const {
        struct stat status{};
        REQUIRE(::fstat(fd_, &status) == 0);
        return static_cast<uint64_t>(status.st_blocks) * 512;
    }
    void punch(uint64_t offset, uint64_t bytes) {
        REQUIRE(::madvise(memory.data() + offset, bytes, MADV_REMOVE) == 0);
    }
    MutableBytes memory;

  private:
    int fd_;
};

}  // namespace

TEST_CASE("what an operation uses is populated, once, and the rest of the region is not",
          "[library][D21][H9]") {
    Sparse sparse(64 * part + 4096);
    Populated populated(sparse.memory.size());
    REQUIRE(populated.ensure(sparse.memory, 0, 0));
    CHECK(sparse.bytes() == 0);
    REQUIRE(populated.ensure(sparse.memory, part + 100, 1));
    CHECK(sparse.bytes() == part);
    REQUIRE(populated.ensure(sparse.memory, part - 1, 2 * part + 2));
    CHECK(sparse.bytes() == 4 * part);
    REQUIRE(populated.ensure(sparse.memory, 64 * part - 1, 4097));  // the last part is shorter
    CHECK(sparse.bytes() == 5 * part + 4096);
    REQUIRE(populated.ensure(sparse.memory, 0, sparse.memory.size()));
    CHECK(sparse.bytes() == sparse.memory.size());
    // It remembers: no system call for what is there.
    sparse.punch(0, part);
    REQUIRE(populated.ensure(sparse.memory, 0, sparse.memory.size()));
    CHECK(sparse.bytes() == sparse.memory.size() - part);
}

TEST_CASE("populating changes nothing that is there, also while another thread writes it", "[library]") {
    Sparse sparse(200 * part);
    Populated populated(sparse.memory.size());
    for (size_t i = 0; i < sparse.memory.size(); i += 3 * part) sparse.memory[i] = std::byte{7};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
            for (uint64_t at = 0; at < sparse.memory.size(); at += 5 * part / 2)
                if (!populated.ensure(sparse.memory, at,
                                      std::min<uint64_t>(3 * part, sparse.memory.size() - at)))
                    std::abort();
        });
    for (auto& thread : threads) thread.join();
    CHECK(sparse.bytes() == sparse.memory.size());
    size_t wrong = 0;
    for (size_t i = 0; i < sparse.memory.size(); ++i)
        wrong += sparse.memory[i] != std::byte(i % (3 * part) == 0 ? 7 : 0);
    CHECK(wrong == 0);
}

}  // namespace nexar::c
