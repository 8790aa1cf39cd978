// The messages between daemons, as plain structs. codec.hpp turns them into bytes and back (Cap'n Proto,
// proto/wire.capnp). Per-op data headers are not here: they are fixed binary (link/).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"

namespace nexar::wire {

struct NodeRecord {
    NodeId node;
    std::string hostname;
    std::vector<std::string> addresses;  // "10.0.0.1:7654", "[fd00::1]:7654"; best first
    bool operator==(const NodeRecord&) const = default;
};

// First on every control connection, both ways, behind the preamble, which has versions and features. The
// NodeId inside must be that of the connection's certificate.
struct Hello {
    NodeId node;
    Incarnation incarnation;
    std::array<uint8_t, 16> cluster{};
    NodeRecord self;
    uint16_t bulk_port = 0;  // UDP port of the bulk shards' sockets (first shard; the rest follow)
    uint16_t bulk_shards = 1;
    std::vector<NodeRecord> roster;  // all nodes that the sender knows
};
struct RosterUpdate {
    std::vector<NodeRecord> nodes;
};
struct Heartbeat {};
struct Goodbye {  // proof of an orderly end: no suspicion is needed
    std::string reason;
};
// A probe, direct or by a helper: is the receiver the target, or does it reach the target?
struct ProbeRequest {
    uint64_t nonce = 0;
    NodeId target;
    Incarnation incarnation;  // of the target: another one does not count; all zero: any
};
struct ProbeReply {
    uint64_t nonce = 0;
    bool reached = false;
};
// "Sign my key for another while" (docs/protocol/admission.md). For the key of this connection's certificate.
struct RenewalRequest {
    std::string csr;  // PEM
};
struct RenewalReply {
    Error error;  // code ok: renewed; unsupported: no issuer
    std::string certificate;
    std::string issuer_certificate;
};

// ---- Rendezvous (docs/protocol/rendezvous.md) ----
using GroupKey = std::array<uint8_t, 32>;  // hash of tenant, name and job secret: the secret never travels
using Nonce = std::array<uint8_t, 16>;
using Tag = std::array<uint8_t, 32>;  // a node's proof that it knows the job's secret [R19]
struct RequestId {
    NodeId origin;
    uint64_t number = 0;
    auto operator<=>(const RequestId&) const = default;
};
// Of a group's operations, in milliseconds. -1: not set; 0: none.
struct TimeoutsRecord {
    int64_t collective_ms = -1, barrier_ms = -1, rpc_ms = -1;
    bool operator==(const TimeoutsRecord&) const = default;
};
struct GroupOpen {
    RequestId id;
    GroupKey key{};
    std::string name;
    uint32_t size = 0;
    int64_t rank = -1;
    uint32_t pid = 0;
    Incarnation incarnation{};  // of the origin; zero: not known (an older version)
    uint16_t bulk_shards = 1;   // of the origin
    TimeoutsRecord timeouts{};  // as asked
    uint64_t features = 0;      // of the origin, also those that the reader does not know
    Nonce nonce{};              // random, of this open [R19]
    uint64_t opener_mark = 0;   // TenantName::mark() of the opener [R30]; 0: not known (an older version)
};
struct GroupWithdraw {  // the opener has given up, or its process has ended
    RequestId id;
    GroupKey key{};
    bool moved = false;    // still open, but listed at another leader now
    bool expired = false;  // by its deadline: for a moment the open still counts as present
};
struct GroupMemberRecord {
    RequestId request;
    NodeId node;
    uint32_t rank = 0;
    uint32_t pid = 0;
    Incarnation incarnation{};  // of the node: another one is not in the group; zero: any
    uint64_t features = 0;      // of the node, as its GroupOpen named them
    Nonce nonce{};              // of the node: those of all its opens in the group, exclusive or
};
struct PlanTableRecord {
    uint32_t version = 1;  // of the plan function
    uint64_t small_bytes_max = 0;
    uint64_t doubling_bytes_max = 0;
    uint64_t chunk_bytes = 0;
    uint64_t segment_bytes = 0;
    uint32_t lanes = 0;
    uint16_t bulk_shards = 0;  // the fewest of any member's node; 0: the group was made without asking
    // From plan function 3 on; checked by collectives::PlanTable.
    uint32_t small_start_ns = 0, small_ps_per_byte = 0, bulk_start_ns = 0, bulk_ps_per_byte = 0;
    uint32_t memory_ps_per_byte = 0, shared_ps_per_byte = 0;
    uint64_t large_message_bytes = 0;
    uint32_t ring_nodes_max = 0;
    uint8_t family = 0;
    bool operator==(const PlanTableRecord&) const = default;
};
struct GroupPrepare {
    GroupId group;
    uint32_t epoch = 1;  // of a group as it was opened; each recovery will count on
    GroupKey key{};
    std::string name;
    std::vector<GroupMemberRecord> members;  // in rank order
    PlanTableRecord plan;
    TimeoutsRecord timeouts{};  // as agreed: all are set
};
struct GroupPrepared {
    GroupId group;
    Error error;  // code ok, or the reason of a refusal (a missing link, a session that has ended)
    Tag tag{};    // with code ok: the sender's
};
struct GroupCommit {
    GroupId group;
    std::vector<Tag> tags;  // of the member nodes, in ascending order of their NodeIds
};
struct GroupQuery {  // to the other members, when the leader is lost after the preparation
    GroupId group;
};
// To an opener; or, with id.number 0, about a whole attempt (id.origin: the node that will not be in it, if
// that is not the sender). Code `pending`: this attempt is over, the open stays and will be tried again.
struct GroupRefused {
    RequestId id;
    GroupId group;
    Error error;
};
// To the node that an open came through: it was not reachable, and the open is not listed here any more. If
// it still waits for this leader, it is to be listed again.
struct GroupUnlisted {
    RequestId id;
};
// Of itself: the sender leads opens, although it knows a lower node. Of another node: that one leads as well,
// and the receiver is not connected to it. Zero: neither is so any more.
struct GroupLeader {
    NodeId leader;
};
// A call of a create: the rank of the parent, and the number of the call, which its node gives to no other
// one.
struct CreateCall {
    uint32_t rank = 0;
    uint64_t number = 0;
    bool operator==(const CreateCall&) const = default;
};
// To the nodes of the listed ranks of a create that waits: these calls of the sender have this list. It asks
// only, and ends nothing [Y18].
struct CreateQuery {
    GroupId group;  // the parent
    uint32_t epoch = 0;
    uint64_t tag = 0;
    std::vector<uint32_t> ranks;  // of the parent
    std::vector<CreateCall> callers;
    uint32_t ask = 0;  // which question of these calls it is, from 1 [Y23]
};
// To a node that has asked: ranks that it waits for wait in another create. Or, with `ended`: these calls of
// the sender have ended with MISMATCH, because those of the receiver waited at the same time.
struct CreateAnswer {
    GroupId group;  // the parent
    uint32_t epoch = 0;
    uint64_t tag = 0;               // of the calls that this is about:
    std::vector<CreateCall> calls;  // of the receiver
    uint64_t other_tag = 0;
    std::vector<uint32_t> ranks;      // of the parent: the list of
    std::vector<CreateCall> callers;  // calls of the sender
    bool ended = false;
    uint32_t ask = 0;  // the question's, unless `ended` [Y23]
};
// From the leader, on request of an opener at its deadline: the present members, so that the error names the
// missing ranks.
struct GroupStatusRequest {
    RequestId id;
    GroupKey key{};
};
struct GroupStatus {
    RequestId id;
    uint32_t size = 0;
    std::vector<GroupMemberRecord> present;  // rank UINT32_MAX: automatic, not yet given
    uint32_t others = 0;                     // opens of the same name and opener's mark with another key
    uint32_t gave_up = 0;  // of `present` the last ones, whose deadlines have passed; those before them wait
};

// ---- Groups at work (docs/protocol/failure.md) ----
// To all nodes of the group: a rank of the sender has left it, or its process has ended. It needs no
// confirmation [F10].
struct RankGone {
    GroupId group;
    uint32_t epoch = 0;
    uint32_t rank = 0;
    uint64_t collectives_handed_over = 0;  // those below this number; the rank will hand over no other
    bool crashed = false;                  // the group ends, whether the rank is needed or not
    std::string reason;
    bool freed = false;  // it freed the group: what waits for it on other ranks ends with ABORTED [F18]
};
struct SuspicionReport {  // a suspicion, reported to the arbiter of the group
    GroupId group;
    uint32_t epoch = 0;
    NodeId reporter;
    NodeId suspect;
    std::string reason;
    bool proof = false;  // the suspect has proved its end (GOODBYE, or a higher incarnation): no probing
};

// ---- The agreement on a group's end (docs/protocol/group_lifecycle.md). Nodes are numbered in the group.
// ----

struct Ballot {
    uint64_t round = 0;  // 0: none
    uint32_t coordinator = 0;
    bool operator==(const Ballot&) const = default;
    std::strong_ordering operator<=>(const Ballot& other) const {
        if (const auto by_round = round <=> other.round; by_round != 0) return by_round;
        return other.coordinator <=> coordinator;  // the lower node's is the higher ballot
    }
};
struct FailedSet {
    Error error;                     // of the first failure: peer_lost or link_lost
    std::vector<uint32_t> excluded;  // nodes, ascending
};
struct Cut {
    uint64_t seq = 0;  // the first collective that ends with the failure on all nodes
    FailedSet failed;
};
struct AcceptedCut {
    Ballot ballot;
    Cut cut;
};
struct GroupFailed {
    GroupId group;
    uint32_t epoch = 0;
    Ballot seen;  // the highest
    FailedSet failed;
};
struct GroupFreeze {
    GroupId group;
    uint32_t epoch = 0;
    Ballot ballot;
    FailedSet failed;
};
struct GroupReport {
    GroupId group;
    uint32_t epoch = 0;
    Ballot ballot;
    FailedSet failed;
    uint64_t handed_over = 0;  // collectives, by every rank whose count the node knows
    uint64_t ended_below = 0;  // the lowest collective that is not over there
    std::optional<AcceptedCut> accepted;
};
struct GroupCut {
    GroupId group;
    uint32_t epoch = 0;
    Ballot ballot;
    Cut cut;
};
struct GroupAccepted {
    GroupId group;
    uint32_t epoch = 0;
    Ballot ballot;
    uint64_t stuck_at = UINT64_MAX;  // not accepted: this collective below the cut does not end
};
struct GroupEnd {
    GroupId group;
    uint32_t epoch = 0;
    Cut cut;
};
struct GroupDeparted {  // all ranks of the sender had left the group
    GroupId group;
    uint32_t epoch = 0;
};

// To all nodes of the group: ends one collective on all ranks; the next one is not affected.
struct OpAbort {
    GroupId group;
    uint32_t epoch = 0;
    uint64_t seq = 0;
    Error error;
};
// To all nodes of the group: the whole descriptor of a collective that has lasted for `announce_after`, or
// whose data headers differ. A node with another descriptor can name both in its MISMATCH.
struct OpAnnounce {
    GroupId group;
    uint32_t epoch = 0;
    uint64_t seq = 0;
    uint8_t kind = 0, dtype = 0, op = 0;  // any number: the engine compares, and knows which exist
    uint64_t count = 0;
    uint32_t root = 0;
    uint32_t first_rank = 0;  // of the sender, that posted this descriptor first
    uint64_t plan_hash = 0;   // of this node's plan table; 0: not known
    uint64_t match_id = 0;
    uint64_t counts_digest = 0;  // of the list of counts; 0: there is none
    uint8_t partials = 0;        // any number, as those above
};
struct ArrivalQuery {
    GroupId group;
    uint32_t epoch = 0;
    uint64_t seq = 0;
    uint64_t nonce = 0;
};
struct Arrival {
    uint32_t rank = 0;
    uint64_t next_seq = 0;  // how many collectives it has posted so far
    bool stalled = false;   // the one asked about waits for bytes that this rank must move [S13]
};
struct ArrivalReply {
    GroupId group;
    uint64_t nonce = 0;
    std::vector<Arrival> ranks;
};
struct MessageOffer {  // one send of rank src to rank dst; its bytes travel as a transfer with this number
    GroupId group;
    uint32_t epoch = 0;
    uint32_t src = 0, dst = 0;
    uint64_t tag = 0;
    uint64_t bytes = 0;
    uint8_t dtype = 0;
    uint64_t number = 0;    // per (group, sending node), with link::OpKey::message_bit
    bool only_now = false;  // refused unless a receive waits for it
};
// To the receiver's node: a send ends early, by cancel, deadline or failure. A receive that is matched with
// it, and has not completed, waits for another message.
struct MessageWithdraw {
    GroupId group;
    uint64_t number = 0;
};
// To the sender's node: the send ends with this error (for example dst has left, or the message does not fit
// its receive).
struct MessageRefused {
    GroupId group;
    uint64_t number = 0;
    Error error;
};

// To the node of the sending rank src: it may send this node so many messages in all, counted from the
// group's beginning.
struct MessageCredit {
    GroupId group;
    uint32_t epoch = 0;
    uint32_t src = 0;
    uint64_t limit = 0;
};

using Message =
    std::variant<Hello, RosterUpdate, Heartbeat, Goodbye, ProbeRequest, ProbeReply, GroupOpen, GroupWithdraw,
                 GroupPrepare, GroupPrepared, GroupCommit, GroupRefused, GroupStatusRequest, GroupStatus,
                 RankGone, SuspicionReport, OpAbort, OpAnnounce, ArrivalQuery, ArrivalReply, MessageOffer,
                 MessageWithdraw, MessageRefused, GroupQuery, RenewalRequest, RenewalReply, MessageCredit,
                 GroupUnlisted, GroupFailed, GroupFreeze, GroupReport, GroupCut, GroupAccepted, GroupEnd,
                 GroupDeparted, GroupLeader, CreateQuery, CreateAnswer>;

// Part of the control log (docs/protocol/control_log.md). The others are about one connection or one moment:
// an old one that came over the next connection would be wrong.
inline bool is_logged(const Message& message) {
    return std::visit(
        []<class M>(const M&) {
            return !(std::is_same_v<M, Hello> || std::is_same_v<M, RosterUpdate> ||
                     std::is_same_v<M, Heartbeat> || std::is_same_v<M, Goodbye> ||
                     std::is_same_v<M, ProbeRequest> || std::is_same_v<M, ProbeReply> ||
                     std::is_same_v<M, RenewalRequest> || std::is_same_v<M, RenewalReply>);
        },
        message);
}

}  // namespace nexar::wire
