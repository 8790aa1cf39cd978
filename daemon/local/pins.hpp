// Pins: keep the kernel from making huge pages of a client's memory. While it does, which a client may ask
// for (MADV_COLLAPSE), a touch waits for as long as the client has mapped the memory often. It makes one of 2
// MiB of a memfd only if nobody else refers to any page there; so the daemon refers to one page of each
// [S19].
//
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "loop/fd.hpp"

namespace nexar::local {

struct Pins {
    std::vector<loop::Fd> holders;  // pipes, which refer to the pages until they are closed
    std::string missing;            // why not all pages have been pinned; empty: they have
};

// Pins the first page of each 2 MiB of `memfd` (by its offsets) of `mapped`, which is mapped from `offset`
// on. Refuses memory without such a page: nothing could be pinned. Requires: nobody can take pages out of the
// memfd any more. Waits while the kernel makes a huge page there.
Result<Pins> pin(int memfd, uint64_t offset, Bytes mapped);

constexpr uint64_t pinned_span = uint64_t{2} << 20;
constexpr uint64_t pins_of_pipe_max = 256;  // what a process without privileges may have in a pipe
// Descriptors that it takes to pin so much.
constexpr uint64_t pipes_for(uint64_t bytes) {
    return bytes / (pinned_span * pins_of_pipe_max) + 1;
}

}  // namespace nexar::local
