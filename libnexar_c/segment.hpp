// Shared memory of this process: a memfd that the daemon maps too. Pages are touched when the daemon has
// granted it. Missing memory is an error before it is a signal or the end of the process.
#pragma once

#include "core/bytes.hpp"
#include "core/result.hpp"

namespace nexar::c {

constexpr size_t page_bytes = 4096;
constexpr uint64_t whole_pages(uint64_t bytes) {
    return (bytes + page_bytes - 1) & ~(uint64_t{page_bytes} - 1);
}

// All of a memfd, mapped; no page exists yet, if the daemon made it just now. The caller unmaps it.
Result<MutableBytes> map_segment(int memfd, uint64_t bytes);
Result<void> check_available(uint64_t bytes);  // whether this host has got so much
// First touch of every page by this process, so that the memory is charged to it and its cgroup, not to the
// daemon. Refuses at once what this host has not got.
Result<void> populate(MutableBytes memory);
// Of the page that the daemon pins of each 2 MiB of the memfd, whose bytes from `offset` on are mapped as
// `memory` [S19].
Result<void> populate_pinned(MutableBytes memory, uint64_t offset);

// Whether all of `memory` is a shared mapping, readable and writable, of the file from `offset` on.
Result<bool> is_mapping_of(MutableBytes memory, int fd, uint64_t offset);

Error io_error(const std::string& what);

}  // namespace nexar::c
