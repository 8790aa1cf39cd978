// The field lists of the messages that are about nodes, of those that form a group, and of the structs that
// messages share. A part of codec.cpp, which includes it inside its namespace.
#pragma once

// ---- Shared structs ----

NEXAR_FIELDS(Incarnation, NEXAR_FIELD(counter, Counter), NEXAR_FIELD(nonce, Nonce));
NEXAR_FIELDS(GroupId, NEXAR_FIELD(creator, Creator), NEXAR_FIELD(incarnation, Incarnation),
             NEXAR_FIELD(counter, Counter));
NEXAR_FIELDS(Error, NEXAR_FIELD(code, Code, ErrorCode{}),
             NEXAR_FIELD(text, Text, Text{"error text", text_bytes_max}),
             NEXAR_FIELD(rank, Rank, RankOrNone{"error rank"}),
             NEXAR_FIELD(other_rank, OtherRank, RankOrNone{"error other_rank"}),
             NEXAR_FIELD(node, Node, Text{"error node", hostname_bytes_max}), NEXAR_FIELD(pid, Pid),
             NEXAR_NOT_SENT(host), NEXAR_NOT_SENT(system_errno), NEXAR_NOT_SENT(lost_ranks));
NEXAR_FIELDS(RequestId, NEXAR_FIELD(origin, Origin, Node{"request origin"}), NEXAR_FIELD(number, Number));
NEXAR_FIELDS(NodeRecord, NEXAR_FIELD(node, Node, Node{"record node"}),
             NEXAR_FIELD(hostname, Hostname, Text{"hostname", hostname_bytes_max}),
             NEXAR_FIELD(addresses, Addresses,
                         list_of(UncutText{"address", address_bytes_max}, "count of addresses",
                                 addresses_max)));

// ---- Nodes ----

constexpr auto roster = list_of(Part{}, "count of roster records", roster_nodes_max);

NEXAR_FIELDS(Hello, NEXAR_FIELD(node, Node, Node{"node"}), NEXAR_FIELD(incarnation, Incarnation),
             NEXAR_FIELD(cluster, Cluster, FixedBytes{"cluster"}), NEXAR_FIELD(self, Self),
             NEXAR_FIELD(bulk_port, BulkPort),
             NEXAR_FIELD(bulk_shards, BulkShards, bounded("bulk_shards", bulk_shards_max)),
             NEXAR_FIELD(roster, Roster, wire::roster));
NEXAR_FIELDS(RosterUpdate, NEXAR_FIELD(nodes, Nodes, roster));
NEXAR_FIELDS(Heartbeat);
NEXAR_FIELDS(Goodbye, NEXAR_FIELD(reason, Reason, Text{"reason", text_bytes_max}));
NEXAR_FIELDS(ProbeRequest, NEXAR_FIELD(nonce, Nonce), NEXAR_FIELD(target, Target, Node{"target"}),
             NEXAR_FIELD(incarnation, Incarnation));
NEXAR_FIELDS(ProbeReply, NEXAR_FIELD(nonce, Nonce), NEXAR_FIELD(reached, Reached));
NEXAR_FIELDS(RenewalRequest, NEXAR_FIELD(csr, Csr, Pem{"csr", csr_bytes_max}));
NEXAR_FIELDS(RenewalReply, NEXAR_FIELD(error, Error), Rule{[](Decoder& d, const T& reply) {
                 if (reply.error.code > Errc::ok)
                     d.complain("a renewal with code " + std::string(name_of(reply.error.code)));
             }},
             NEXAR_FIELD(certificate, Certificate, Pem{"certificate", certificate_bytes_max}),
             NEXAR_FIELD(issuer_certificate, IssuerCertificate,
                         Pem{"issuer certificate", certificate_bytes_max}));

// ---- Rendezvous ----

constexpr Text group_name{"group name", group_name_bytes_max};

struct MemberTable {  // a kind: codec_members-inl.hpp
    void fill(auto make, const std::vector<GroupMemberRecord>& members) const;
    void read(Decoder& d, s::Members::Reader in, std::vector<GroupMemberRecord>& members) const;
};

void check_timeouts(Decoder& d, const TimeoutsRecord& timeouts, int64_t least) {
    for (const int64_t ms : {timeouts.collective_ms, timeouts.barrier_ms, timeouts.rpc_ms})
        d.milliseconds(ms, least);
}
void check_rank_order(Decoder& d, const std::vector<GroupMemberRecord>& members) {
    if (members.empty()) d.complain("a group without members");
    for (size_t i = 0; i < members.size() && d.ok(); ++i)
        if (members[i].rank != i)
            d.complain("member " + std::to_string(i) + " has rank " + std::to_string(members[i].rank));
}
void check_present(Decoder& d, const std::vector<GroupMemberRecord>& members) {
    for (const GroupMemberRecord& member : members)
        if (member.rank != UINT32_MAX) d.limit("rank", member.rank, ranks_max - 1);
}

NEXAR_FIELDS(TimeoutsRecord, NEXAR_FIELD(collective_ms, Collective), NEXAR_FIELD(barrier_ms, Barrier),
             NEXAR_FIELD(rpc_ms, Rpc));
NEXAR_FIELDS(PlanTableRecord, NEXAR_FIELD(version, Version), NEXAR_FIELD(small_bytes_max, SmallBytesMax),
             NEXAR_FIELD(doubling_bytes_max, DoublingBytesMax), NEXAR_FIELD(chunk_bytes, ChunkBytes),
             NEXAR_FIELD(segment_bytes, SegmentBytes), NEXAR_FIELD(lanes, Lanes),
             NEXAR_FIELD(bulk_shards, BulkShards, bounded("bulk_shards", bulk_shards_max)),
             NEXAR_FIELD(small_start_ns, SmallStartNs), NEXAR_FIELD(small_ps_per_byte, SmallPsPerByte),
             NEXAR_FIELD(bulk_start_ns, BulkStartNs), NEXAR_FIELD(bulk_ps_per_byte, BulkPsPerByte),
             NEXAR_FIELD(memory_ps_per_byte, MemoryPsPerByte),
             NEXAR_FIELD(shared_ps_per_byte, SharedPsPerByte),
             NEXAR_FIELD(large_message_bytes, LargeMessageBytes), NEXAR_FIELD(ring_nodes_max, RingNodesMax),
             NEXAR_FIELD(family, Family));
NEXAR_FIELDS(GroupOpen, NEXAR_FIELD(id, Id), NEXAR_FIELD(key, Key, FixedBytes{"key"}),
             NEXAR_FIELD(name, Name, group_name),
             NEXAR_FIELD(size, Size, bounded("group size", ranks_max, 1)),
             NEXAR_FIELD(rank, Rank, RankOrNone{"rank"}), NEXAR_FIELD(pid, Pid),
             NEXAR_FIELD(incarnation, Incarnation),
             NEXAR_FIELD(bulk_shards, BulkShards, bounded("bulk_shards", bulk_shards_max, 1)),
             NEXAR_FIELD(timeouts, Timeouts),
             Rule{[](Decoder& d, const T& open) { check_timeouts(d, open.timeouts, -1); }},
             NEXAR_FIELD(features, Features), NEXAR_FIELD(nonce, Nonce, FixedBytes{"nonce"}),
             NEXAR_FIELD(opener_mark, OpenerMark));
NEXAR_FIELDS(GroupWithdraw, NEXAR_FIELD(id, Id), NEXAR_FIELD(key, Key, FixedBytes{"key"}),
             NEXAR_FIELD(moved, Moved), NEXAR_FIELD(expired, Expired));
NEXAR_FIELDS(GroupPrepare, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch),
             NEXAR_FIELD(key, Key, FixedBytes{"key"}), NEXAR_FIELD(name, Name, group_name),
             NEXAR_FIELD(members, Members, MemberTable{}),
             Rule{[](Decoder& d, const T& prepare) { check_rank_order(d, prepare.members); }},
             NEXAR_FIELD(plan, Plan), NEXAR_FIELD(timeouts, Timeouts),
             Rule{[](Decoder& d, const T& prepare) { check_timeouts(d, prepare.timeouts, 0); }});
NEXAR_FIELDS(GroupPrepared, NEXAR_FIELD(group, Group), NEXAR_FIELD(error, Error),
             NEXAR_FIELD(tag, Tag, FixedBytes{"tag"}), Rule{[](Decoder& d, const T& prepared) {
                 if (prepared.error.code != Errc::ok && prepared.error.code != Errc::pending)
                     d.failure("an answer to a prepare", prepared.error.code);
             }});
NEXAR_FIELDS(GroupCommit, NEXAR_FIELD(group, Group),
             NEXAR_FIELD(tags, Tags, list_of(FixedBytes{"tag"}, "count of tags", group_nodes_max)));
NEXAR_FIELDS(GroupQuery, NEXAR_FIELD(group, Group));
NEXAR_FIELDS(GroupRefused, NEXAR_FIELD(id, Id), NEXAR_FIELD(group, Group), NEXAR_FIELD(error, Error),
             Rule{[](Decoder& d, const T& refused) {
                 const bool whole_attempt = refused.id.number == 0;  // its opens stay
                 if (!whole_attempt || refused.error.code != Errc::pending)
                     d.failure("a refusal", refused.error.code);
             }});
NEXAR_FIELDS(GroupUnlisted, NEXAR_FIELD(id, Id));
NEXAR_FIELDS(GroupLeader, NEXAR_FIELD(leader, Leader, Node{"leader"}));
NEXAR_FIELDS(CreateCall, NEXAR_FIELD(rank, Rank, real_rank("caller")), NEXAR_FIELD(number, Number));
constexpr auto listed_ranks = list_of(real_rank("listed rank"), "count of listed ranks", ranks_max);
constexpr auto create_calls = list_of(Part{}, "count of callers", ranks_max);
NEXAR_FIELDS(CreateQuery, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(tag, Tag),
             NEXAR_FIELD(ranks, Ranks, listed_ranks), NEXAR_FIELD(callers, Callers, create_calls),
             NEXAR_FIELD(ask, Ask));
NEXAR_FIELDS(CreateAnswer, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(tag, Tag),
             NEXAR_FIELD(calls, Calls, create_calls), NEXAR_FIELD(other_tag, OtherTag),
             NEXAR_FIELD(ranks, Ranks, listed_ranks), NEXAR_FIELD(callers, Callers, create_calls),
             NEXAR_FIELD(ended, Ended), NEXAR_FIELD(ask, Ask));
NEXAR_FIELDS(GroupStatusRequest, NEXAR_FIELD(id, Id), NEXAR_FIELD(key, Key, FixedBytes{"key"}));
NEXAR_FIELDS(GroupStatus, NEXAR_FIELD(id, Id), NEXAR_FIELD(size, Size, bounded("group size", ranks_max)),
             NEXAR_FIELD(present, Present, MemberTable{}), NEXAR_FIELD(others, Others),
             NEXAR_FIELD(gave_up, GaveUp),
             Rule{[](Decoder& d, const T& status) { check_present(d, status.present); }});
