// Memory that is shared with clients: their memfds, checked and mapped, and the daemon's own read-only pages.
#pragma once

#include <cstdint>
#include <memory>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "local/fd.hpp"

namespace nexar::local {

// A mapping of a client's memfd. Unmapped when the last operation that uses it is over [S10]. A fault in it
// is caught (bus_guard.hpp).
class Mapping {
  public:
    // Refuses what is not a memfd sealed with SHRINK, GROW and SEAL, and what does not have the bytes.
    static Result<std::shared_ptr<Mapping>> of_client(int fd, uint64_t offset, uint64_t bytes,
                                                      uint64_t bytes_max);
    // Maps without asking for seals: tests of the guard.
    static Result<std::shared_ptr<Mapping>> unchecked(int fd, uint64_t offset, uint64_t bytes);

    Mapping(MutableBytes mapped, size_t bytes, int guard) : mapped_(mapped), bytes_(bytes), guard_(guard) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    MutableBytes bytes() const { return mapped_.first(bytes_); }
    // The client took memory away under us (SIGBUS): zeros were mapped instead.
    bool faulted() const;

  private:
    MutableBytes mapped_;  // whole pages of the memfd: huge pages are unmapped as such or not at all
    size_t bytes_;         // of them, the region's
    int guard_;
};

// One page that only this process can write and that others may map for reading.
struct PublishedPage {
    Fd fd;
    std::byte* page = nullptr;
};
// Maps it at `where` if that is not null (a reserved page, MAP_FIXED). The caller unmaps.
Result<PublishedPage> publish_page(const char* name, std::byte* where = nullptr);

constexpr size_t page_bytes = 4096;

// Bytes of one page of a memfd; MFD_HUGETLB has pages of its own size (2 MiB, 1 GiB).
Result<uint64_t> page_bytes_of(int fd);
// Bytes to map for a region: whole pages. Refuses a region that does not begin with a page.
Result<uint64_t> bytes_to_map(uint64_t offset, uint64_t bytes, uint64_t page);

}  // namespace nexar::local
