// Session, group and memory of the training, over the C ABI.
#include "nexar_peers.hpp"

#include <nexar.h>

#include <string>

namespace digits {
namespace {

// The library's line: the operation, its group, the rank at fault, and the reason.
std::unexpected<std::string> failure(nexar_status status) {
    nexar_error error = NEXAR_ERROR_INIT;
    char line[1024] = "";
    if (nexar_last_error(&error) != NEXAR_OK || error.code != status ||
        nexar_error_line(&error, line, sizeof line, nullptr) != NEXAR_OK)
        return std::unexpected(std::string(nexar_status_name(status)));
    return std::unexpected(std::string(line));
}

Outcome<> outcome(nexar_status status) {
    if (status != NEXAR_OK) return failure(status);
    return {};
}

class NexarPeers final : public Peers {
  public:
    NexarPeers() = default;
    NexarPeers(const NexarPeers&) = delete;
    NexarPeers& operator=(const NexarPeers&) = delete;

    ~NexarPeers() override {
        if (group_) nexar_group_free(group_);
        if (session_) nexar_session_close(session_);  // also gives the memory back
    }

    Outcome<> open() {
        if (auto s = nexar_session_open(nullptr, &session_); s != NEXAR_OK) return failure(s);
        if (auto s = nexar_group_open(session_, nullptr, &group_); s != NEXAR_OK) return failure(s);
        if (auto s = nexar_group_rank(group_, &rank_); s != NEXAR_OK) return failure(s);
        return outcome(nexar_group_size(group_, &ranks_));
    }

    uint32_t rank() const override { return rank_; }
    uint32_t ranks() const override { return ranks_; }

    Outcome<std::span<float>> allocate(size_t count) override {
        void* memory = nullptr;
        if (auto s = nexar_alloc(session_, count * sizeof(float), nullptr, &memory); s != NEXAR_OK)
            return failure(s);
        return std::span(static_cast<float*>(memory), count);
    }

    Outcome<> all_reduce_sum(std::span<float> values) override {
        return outcome(nexar_all_reduce(group_, values.data(), values.data(), values.size(), NEXAR_F32,
                                        NEXAR_SUM, nullptr));
    }

    Outcome<> broadcast_from_first(std::span<float> values) override {
        return outcome(nexar_broadcast(group_, values.data(), values.size(), NEXAR_F32, 0, nullptr));
    }

    Outcome<std::vector<uint64_t>> all_gather(uint64_t mine) override {
        std::vector<uint64_t> all(ranks_);  // ordinary memory: the library copies it
        if (auto s = nexar_all_gather(group_, &mine, all.data(), 1, NEXAR_U64, nullptr); s != NEXAR_OK)
            return failure(s);
        return all;
    }

  private:
    nexar_session* session_ = nullptr;
    nexar_group* group_ = nullptr;
    uint32_t rank_ = 0, ranks_ = 0;
};

}  // namespace

Outcome<std::unique_ptr<Peers>> open_nexar_peers() {
    auto peers = std::make_unique<NexarPeers>();
    if (auto opened = peers->open(); !opened) return std::unexpected(opened.error());
    return peers;
}

}  // namespace digits
