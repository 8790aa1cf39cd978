// What one peer sent before we posted the matching transfer: stashed chunks, refusals to make good, grants.
// All of it is bounded, belongs to a group and goes with the group [W8].
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "link/frame.hpp"
#include "link/mesh.hpp"

namespace nexar::link {

struct Stashed {
    DataFrame frame;
    std::vector<std::byte> bytes;
};
struct EarlyRecv {
    std::vector<Stashed> chunks;
    bool wanted = false;  // something was refused, or asked about: the post must grant
};

class Early {
  public:
    static constexpr size_t stash_overhead_bytes = 128;  // what a stashed chunk costs beyond its payload
    static constexpr size_t want_bytes = 192;            // what a wanted grant costs

    explicit Early(const MeshConfig& config) : config_(&config) {}

    bool has_room(const TransferKey& key, size_t payload) const;
    bool holds(const TransferKey& key, uint32_t chunk) const;
    void stash(const TransferKey& key, Stashed chunk);  // only after has_room()
    void want(const TransferKey& key);
    void keep_grant(const TransferKey& key, const GrantEntry& entry);

    std::optional<EarlyRecv> take_recv(const TransferKey& key);
    std::optional<GrantEntry> take_grant(const TransferKey& key);

    // A limit was met and something could not be remembered: grant every receive, ask for every send.
    bool wants_forgotten() const { return wants_forgotten_; }
    bool grants_forgotten() const { return grants_forgotten_; }

    size_t stash_bytes() const;
    size_t grants() const { return grants_; }
    size_t bytes() const { return bytes_; }  // what early_bytes_max bounds

    void drop_op(const OpKey& op);
    void drop_group(const GroupId& group) { drop_group_at(groups_.find(group)); }
    void drop_grants();  // a new generation: the peer sends those that still hold again
    void clear();

  private:
    struct Group {
        std::map<TransferKey, EarlyRecv> recvs;
        std::map<TransferKey, GrantEntry> grants;
        size_t stash_bytes = 0;
    };
    using Groups = std::unordered_map<GroupId, Group>;

    Group* group_of(const TransferKey& key);  // nullptr: too many groups
    void drop_group_at(Groups::iterator at);
    void drop_if_empty(Groups::iterator at);

    const MeshConfig* config_;
    Groups groups_;
    size_t grants_ = 0;
    size_t bytes_ = 0;  // costs of all recvs of all groups
    bool wants_forgotten_ = false;
    bool grants_forgotten_ = false;
};

}  // namespace nexar::link
