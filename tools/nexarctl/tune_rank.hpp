// One rank of the groups that `nexarctl tune` measures with: operations through the real daemons.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.hpp"
#include "nexar.h"

namespace nexarctl {

// clang-format off
#define NEXARCTL_CALLS(X)                                                                    \
    X(nexar_session_options_init) X(nexar_session_open) X(nexar_session_close)               \
    X(nexar_group_options_init) X(nexar_group_open) X(nexar_group_free)                      \
    X(nexar_alloc) X(nexar_free) X(nexar_all_reduce) X(nexar_all_to_allv)                    \
    X(nexar_reduce_scatter) X(nexar_op_options_init)                                         \
    X(nexar_last_error) X(nexar_status_name)
// clang-format on

// libnexar_c, loaded when it is needed: no other command needs it. Owner: the process; a library that has
// been used stays.
struct Library {
#define NEXARCTL_CALL(name) decltype(&::name) name = nullptr;
    NEXARCTL_CALLS(NEXARCTL_CALL)
#undef NEXARCTL_CALL

    static nexar::Result<Library> load();
    nexar::Result<void> must(nexar_status status, const char* what) const;
};

constexpr uint64_t probe_bytes_max = 16 << 20;

enum class Probe : uint8_t {
    reduce,       // all_reduce of so many bytes
    fixed_order,  // the same along the deterministic tree
    scatter,      // its first half: a reduce_scatter
    to_all,       // all_to_allv, so many bytes to each
    pair,         // so many bytes between ranks 0 and 1, both ways, by all_to_allv
    shift,        // so many bytes from each rank to the next, by all_to_allv
};

// In which group, and through which daemon.
struct RankPlace {
    std::string session_socket, group, secret;
    uint32_t nodes = 1, index = 0;  // one node: a group of its own, without the secret
};

// A session with one group, and memory for the longest operation.
class Rank {
  public:
    static nexar::Result<std::unique_ptr<Rank>> open(const Library& library, const RankPlace& place);
    ~Rank();
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    // The greatest value of all ranks, by place.
    nexar::Result<void> greatest(std::span<uint64_t> values) const;
    nexar::Result<void> once(Probe probe, uint64_t bytes) const;
    // The median; all ranks take as many turns, `least` or more, of about `seconds` in all.
    nexar::Result<uint64_t> median_ns(Probe probe, uint64_t bytes, double seconds, size_t least = 5) const;

  private:
    explicit Rank(const Library& library) : library_(library) {}
    nexar::Result<void> exchange(Probe probe, uint64_t bytes) const;

    Library library_;
    nexar_session* session_ = nullptr;
    nexar_group* group_ = nullptr;
    void* memory_ = nullptr;
    uint32_t size_ = 0, rank_ = 0;
};

uint64_t ns_of(const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
            .count());
}

}  // namespace nexarctl
