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

    Mapping(std::byte* data, size_t bytes, int guard) : data_(data), bytes_(bytes), guard_(guard) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    MutableBytes bytes() const { return {data_, bytes_}; }
    // The client took memory away under us (SIGBUS): zeros were mapped instead.
    bool faulted() const;

  private:
    std::byte* data_;
    size_t bytes_;
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

}  // namespace nexar::local
