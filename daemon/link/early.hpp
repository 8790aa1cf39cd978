// Early: what one peer sent before this node posted the matching transfer: chunks (in the unexpected-message
// buffer), refusals that the post must follow by a grant, and grants. All of it is bounded, belongs to a
// group, and is dropped with the group [W8].
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "link/rows.hpp"
#include "link/table_config.hpp"

namespace nexar::link {

struct EarlyChunk {
    ChunkHeader header;
    std::vector<std::byte> bytes;
};
struct EarlyGrant {
    Terms terms;
    RemoteMemory memory;
};
using EarlyChunks = std::map<uint32_t, EarlyChunk>;  // by their numbers, which a peer may choose at will
struct EarlyRecv {
    EarlyChunks chunks;
    bool wanted = false;  // a chunk was refused, or the peer asked: the post must grant
};

class Early {
  public:
    static constexpr size_t chunk_overhead_bytes = 128;  // cost of a buffered chunk beyond its payload
    static constexpr size_t want_bytes = 192;            // cost of a wanted grant

    explicit Early(const TableConfig& config) : config_(&config) {}

    bool has_room(const TransferKey& key, size_t payload) const;
    bool holds(const TransferKey& key, uint32_t chunk) const;
    void keep(EarlyChunk chunk);  // Requires: has_room(), and not holds()
    void want(const TransferKey& key);
    void keep_grant(const TransferKey& key, const EarlyGrant& grant);

    std::optional<EarlyRecv> take_recv(const TransferKey& key);
    std::optional<EarlyGrant> take_grant(const TransferKey& key);

    // A limit was reached, and a want (a grant) was dropped: the node then grants every receive (asks for
    // every send).
    bool wants_forgotten() const { return wants_forgotten_; }
    bool grants_forgotten() const { return grants_forgotten_; }

    size_t unexpected_bytes() const;
    size_t grants() const { return grants_; }
    size_t bytes() const { return bytes_; }  // bounded by early_bytes_max

    void drop_op(const OpKey& op);
    void drop_group(const GroupId& group) { drop_group_at(groups_.find(group)); }
    void drop_grants();  // for a new generation, in which the peer sends its valid grants again
    void clear();

    void check_invariants() const;  // for tests; walks everything

  private:
    struct Group {
        std::map<TransferKey, EarlyRecv> recvs;
        std::map<TransferKey, EarlyGrant> grants;
        size_t unexpected_bytes = 0;
    };
    using Groups = std::unordered_map<GroupId, Group>;

    Group* group_of(const TransferKey& key);  // nullptr: too many groups
    void drop_group_at(Groups::iterator at);
    void drop_if_empty(Groups::iterator at);

    const TableConfig* config_;
    Groups groups_;                  // groups with an early chunk, want or grant
    size_t grants_ = 0;              // of all groups
    size_t bytes_ = 0;               // cost of all recvs of all groups
    bool wants_forgotten_ = false;   // since clear()
    bool grants_forgotten_ = false;  // since drop_grants()
};

}  // namespace nexar::link
