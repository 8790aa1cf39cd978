// The engine's interfaces: requests of sessions, and the ports through which it acts. Dry; the node and the
// simulator implement the virtual classes. Thread: the control loop's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/counts.hpp"
#include "core/ids.hpp"
#include "core/operations.hpp"
#include "core/partials.hpp"
#include "core/priority.hpp"
#include "core/region.hpp"
#include "core/result.hpp"
#include "core/secret.hpp"
#include "core/shared_list.hpp"
#include "core/time.hpp"
#include "link/mesh.hpp"
#include "reduce/dtype.hpp"
#include "reduce/partials.hpp"

namespace nexar::engine {

using nexar::OpKind;  // a row of proto/operations.def

// The agreed part of an operation: equal on all ranks of a group in their n-th collective. A field that the
// row has no use for is 0. What is the rank's own (memory, windows, deadline) is in OpRequest.
struct OpDescriptor {
    OpKind kind{};
    Dtype dtype = Dtype::f32;
    ReduceOp op = ReduceOp::sum;
    uint64_t count = 0;
    uint32_t root = 0;
    uint64_t match_id = 0;                 // the application's: compared, never a key
    uint64_t counts = 0;                   // the digest of the list of counts; 0: there is none
    Partials partials = Partials::native;  // as partials_of() has it
    bool operator==(const OpDescriptor&) const = default;
    uint64_t hash() const;
    std::string text() const;  // "all_reduce f32 sum count 1024"
    // What an element is cut into segments as [S12].
    uint64_t cut_bytes() const { return partial_bytes(reduce::size_of(dtype), partials); }
};

// A staged collective lends windows of its memory instead of all of it (docs/protocol/shm.md [S12]): window w
// of a side begins at its buffer's start + w * stride, and carries the segments i with i % windows == w. A
// side with a block per rank has the segment's blocks there, packed, in rank order.
struct Stage {
    uint32_t windows = 0;  // of each staged side; 0: not staged
    bool in = false, out = false;
    uint64_t in_stride = 0, out_stride = 0;
};

constexpr uint32_t any_rank = UINT32_MAX;

// The memory of a message, part by part [X8].
using Pieces = std::vector<MemoryRef>;
using PiecesRef = std::shared_ptr<const Pieces>;

// The timeouts of a group's operations that have none of their own. 0: none.
struct Timeouts {
    Duration collective{0}, barrier{0}, rpc{0};
    bool operator==(const Timeouts&) const = default;
};

constexpr uint32_t no_colour = UINT32_MAX;

// Why a rank cannot have another group; the numbers travel between nodes.
enum class ChildRefusal : uint32_t { none = 0, session = 1, tenant = 2, daemon = 3, kept = 4 };

// What a rank states in a collective that makes groups (docs/protocol/children.md).
struct ChildRequest {
    uint32_t colour = 0;  // no_colour: it gets no child
    int64_t key = 0;
    Timeouts asked{Duration{-1}, Duration{-1}, Duration{-1}};  // -1: not set
    ChildRefusal refusal = ChildRefusal::none;
    uint64_t limit = 0;  // of a refusal: the number of groups that was reached
    ChargeRef charge{};  // for the child; the engine's to make
};

struct KnownOperation;  // known_operation.hpp

// One operation of one rank, validated: sizes, alignment, enums. Whether the group exists and the peer or
// root is in it, the engine checks.
struct OpRequest {
    // The timeout of messages that do not wait: a receive takes what is here, a send is taken or refused.
    static constexpr Duration only_now{1};

    SessionId session;
    uint64_t ticket = 0;  // slot and generation: comes back in the completion
    GroupId group;
    uint32_t rank = 0;  // that calls: a session may have several ranks of a group
    OpDescriptor descriptor;
    MemoryRef in, out;     // pinned until the last transfer and job of the operation has ended [M3]
    Duration timeout{-1};  // < 0: what the group agreed on for its kind; 0: none
    std::optional<Priority> priority{};           // null: the operation's own [K21]
    Stage stage;                                  // collectives only; in and out are then rows of windows
    uint64_t scalar = 0;                          // premul_sum: what this rank's values are multiplied by
    CountsRef counts;                             // their sum is the descriptor's count
    OwnCountsRef own_counts;                      // all_to_allv; the descriptor's count is 0
    std::shared_ptr<const ChildRequest> child{};  // of what makes groups
    // Messages only.
    uint32_t peer = any_rank;
    uint64_t tag = 0;  // or the number of a message that was set apart
    bool any_tag = false;
    PiecesRef pieces;                         // instead of `in` or `out`; null: there are none
    std::shared_ptr<KnownOperation> known{};  // null: it is submitted once
};

constexpr uint64_t no_sequence = UINT64_MAX;

struct GroupMember {
    Rank rank;
    NodeId node;
    uint32_t pid = 0;
    std::string host{};                       // its name; "": not known
    uint32_t local_rank = 0, local_size = 0;  // among the group's ranks on its node, in rank order
};

// A group's plan table, for those who ask (collectives/plan.hpp has what the fields mean).
struct GroupPlan {
    uint32_t version = 0, lanes = 0, chunk_bytes = 0, bulk_shards = 0;
    uint64_t segment_bytes = 0, small_bytes_max = 0, doubling_bytes_max = 0;
};

struct GroupInfo {
    GroupId id;
    GroupEpoch epoch;
    Rank rank;
    uint32_t size = 0;
    SharedList<GroupMember> members;  // in rank order
    uint64_t segment_bytes = 0;       // that its staged operations are cut by
    GroupPlan plan;
    std::string name;
    Timeouts timeouts;  // as agreed
    // Of a child (docs/protocol/children.md).
    std::optional<GroupId> parent, root;  // root: the group that was opened
    std::string parent_name;
    SharedList<uint32_t> root_ranks;  // of each rank
};

// The completion of one operation of one rank.
struct Outcome {
    Error error;          // code ok on success
    uint64_t bytes = 0;   // recv: how many arrived; of a probe: its message has
    uint32_t source = 0;  // the rank that sent it
    uint64_t tag = 0;
    uint64_t message = 0;                      // mprobe: the number of the message that was set apart
    uint64_t sequence = no_sequence;           // a collective's number in its group
    uint32_t epoch = 0;                        // of the group
    std::shared_ptr<const GroupInfo> child{};  // what makes groups: this rank's; null: it has none
};

// A group of some ranks of a group (docs/protocol/children.md [Y9]).
struct CreateRequest {
    GroupId parent;
    uint32_t rank = 0;           // of the parent: that calls
    SharedList<uint32_t> ranks;  // of the parent, in the new group's order
    uint64_t tag = 0;
};

struct OpenRequest {
    SessionId session;
    uint64_t ticket = 0;
    std::string name;
    uint32_t size = 0;
    int64_t rank = -1;                 // -1: automatic
    Secret job_secret;                 // empty: only sessions of one tenant on this node find each other
    TenantRef tenant;                  // of the session
    uint32_t pid = 0;                  // attested by the kernel
    uint64_t instance = 0;             // how often the launcher started this job again: another job each time
    Duration timeout{30'000'000'000};  // 0: none
    Timeouts asked{Duration{-1}, Duration{-1}, Duration{-1}};  // -1: not set
    // Null: by name. Otherwise name, size, rank and secret are the engine's to fill in, and a time-out below
    // 0 is the parent's.
    std::shared_ptr<const CreateRequest> create{};
};

// To the sessions. A call may arrive at any moment inside the engine's input functions.
class Clients {
  public:
    virtual void complete(SessionId session, uint64_t ticket, const Outcome& outcome) = 0;
    virtual void group_opened(SessionId session, uint64_t ticket, const Result<GroupInfo>& info) = 0;
    // A staged operation: the first `done` segments have ended, and nothing touches their windows any more.
    virtual void stage_done(SessionId session, uint64_t ticket, uint32_t done) = 0;

  protected:
    ~Clients() = default;
};

// One mesh: the loop's own (index 0: messages, small data) or a bulk shard's (index 1..). Its events come
// back through Engine::on_mesh_event(event), never from inside these calls.
class MeshPort {
  public:
    virtual void post(link::Batch batch) = 0;
    virtual void withdraw(const link::OpKey& op) = 0;
    virtual void retract(const link::OpKey& op) = 0;
    virtual void forget_group(const GroupId& group) = 0;

  protected:
    ~MeshPort() = default;
};

// Whose job it is: workers are shared in turns between tenants, then by priority [K22], then in turns between
// sessions and groups [N5].
struct WorkOrigin {
    uint64_t tenant = 0;   // link::Account of the rank
    uint64_t session = 0;  // SessionId
    uint64_t group = 0;    // a hash: two groups may share their turns
    Priority priority = Priority::bulk;
};

// Local reductions, copies and fan-out, on worker threads. Every srcs/dsts extent list covers `bytes`,
// or of partials as many elements.
// Requires: the job's operation pins the regions until the job has ended [M3].
struct WorkerJob {
    uint64_t handle = 0;
    enum class Kind : uint8_t {
        reduce,      // dsts = srcs[0] op srcs[1] op ...   (a dst may be one of the srcs)
        premul_sum,  // the same, a sum of srcs[i] * scalars[i]
        copy,        // dsts = srcs[0]
        finish_avg,  // dsts /= divisor
        identity,    // dsts = the identity of op
        partials,    // reduce::combine_partials
    } kind = Kind::copy;
    Dtype dtype = Dtype::u8;
    ReduceOp op = ReduceOp::sum;
    uint64_t divisor = 1;
    Vector<link::Extents> dsts;
    Vector<link::Extents> srcs;
    Vector<uint64_t> scalars;  // premul_sum: one for each of srcs
    struct Source {
        reduce::RankRange ranks;
        bool is_partial = false;
    };
    Vector<Source> sources;   // partials: what each of srcs is; the lists have as many elements
    uint32_t tree_ranks = 0;  // partials, as the next
    bool to_partial = false;
    WorkOrigin origin;
    // True: the operation was aborted. The job's remaining pieces are skipped, and it ends as soon as no
    // worker runs one. Null: never.
    std::shared_ptr<const std::atomic<bool>> unwanted;
    bool wanted() const { return !unwanted || !unwanted->load(std::memory_order_relaxed); }
};

class Workers {
  public:
    // Ends with Engine::on_worker_done(handle), never from inside this call.
    virtual void submit(WorkerJob job) = 0;

  protected:
    ~Workers() = default;
};

// Messages to other daemons over the control link (Cap'n Proto bytes made by wire/).
class PeerPort {
  public:
    // Outside the control log: lost without a connection.
    virtual void send(link::PeerIndex peer, Bytes message) = 0;
    // In the control log (link::Mesh): applied once and in order while both incarnations run.
    virtual void append(link::PeerIndex peer, Bytes message, std::optional<link::Account> account) = 0;
    virtual bool reserve(link::PeerIndex peer, link::Account account, size_t bytes) = 0;
    virtual bool reserve_open(link::PeerIndex peer, link::Account account, size_t bytes) = 0;
    virtual void release(link::PeerIndex peer, link::Account account, size_t bytes) = 0;
    virtual link::LogRoom log_room(link::PeerIndex peer) const = 0;
    virtual void discard_log(link::PeerIndex peer, const std::string& why) = 0;

  protected:
    ~PeerPort() = default;
};

}  // namespace nexar::engine
