// See pins.hpp.
#include "local/pins.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace nexar::local {

namespace {

constexpr int page = 4096;

// A pipe refers to the pages that were spliced into it, copies nothing, and needs no mapping of them.
struct Pipe {
    loop::Fd to, from;
};

std::string reason(const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
}

std::expected<Pipe, std::string> pipe_of(int pages) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return std::unexpected(reason("no pipe"));
    Pipe out{loop::Fd(ends[1]), loop::Fd(ends[0])};
    if (::fcntl(out.to.get(), F_SETPIPE_SZ, pages * page) < pages * page)
        return std::unexpected(reason("a pipe is too short; sysctl fs.pipe-user-pages-soft is the limit"));
    return out;
}

// True: the page is there, and stays: it is marked as written, and nobody can punch it. Where holes are
// guarded [S18] none is made.
bool is_there(std::byte* at) {
    return ::madvise(at, page, MADV_POPULATE_WRITE) == 0;
}

}  // namespace

Result<Pins> pin(int memfd, uint64_t offset, Bytes mapped) {
    Pins out;
    Pipe pipe;
    uint64_t free = 0;  // pages that the pipe has room for
    const uint64_t end = offset + mapped.size();
    for (uint64_t at = offset; at < end; at = (at / pinned_span + 1) * pinned_span) {
        if (free == 0) {
            const uint64_t left = (end - at) / pinned_span + 2;  // the first and the last may be cut
            free = std::min(left, pins_of_pipe_max);
            auto made = pipe_of(static_cast<int>(free));
            if (!made) {
                out.missing = std::move(made.error());
                return out;
            }
            pipe = std::move(*made);
            out.holders.push_back(std::move(pipe.from));
        }
        if (!is_there(const_cast<std::byte*>(&mapped[at - offset])))
            return fail(Errc::invalid_argument,
                        "the memory has no page at byte " + std::to_string(at - offset) +
                            " of the region; the first page of each 2 MiB of its memfd is to be written "
                            "before it is registered");
        auto from = static_cast<off_t>(at);
        // A byte: the pipe has the page. (Of a hole it would have the page of zeros, which is nobody's.)
        if (::splice(memfd, &from, pipe.to.get(), nullptr, 1, SPLICE_F_NONBLOCK) != 1) {
            out.missing = reason("a page could not be spliced");
            return out;
        }
        --free;
    }
    return out;
}

}  // namespace nexar::local
