// The field lists of the messages of groups at work, and of the agreement on a group's end. A part of
// codec.cpp, which includes it inside its namespace.
#pragma once

// ---- Groups at work ----

NEXAR_FIELDS(RankGone, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch),
             NEXAR_FIELD(rank, Rank, real_rank("rank")),
             NEXAR_FIELD(collectives_handed_over, CollectivesHandedOver), NEXAR_FIELD(crashed, Crashed),
             NEXAR_FIELD(reason, Reason, Text{"reason", text_bytes_max}), NEXAR_FIELD(freed, Freed));
NEXAR_FIELDS(SuspicionReport, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch),
             NEXAR_FIELD(reporter, Reporter, Node{"reporter"}),
             NEXAR_FIELD(suspect, Suspect, Node{"suspect"}),
             NEXAR_FIELD(reason, Reason, Text{"reason", text_bytes_max}), NEXAR_FIELD(proof, Proof));
NEXAR_FIELDS(OpAbort, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(seq, Seq),
             NEXAR_FIELD(error, Error),
             Rule{[](Decoder& d, const T& abort) { d.failure("an abort", abort.error.code); }});
NEXAR_FIELDS(OpAnnounce, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(seq, Seq),
             NEXAR_FIELD(kind, Kind), NEXAR_FIELD(dtype, Dtype), NEXAR_FIELD(op, Op),
             NEXAR_FIELD(count, Count), NEXAR_FIELD(root, Root),
             NEXAR_FIELD(first_rank, FirstRank, real_rank("first_rank")), NEXAR_FIELD(plan_hash, PlanHash),
             NEXAR_FIELD(match_id, MatchId), NEXAR_FIELD(counts_digest, CountsDigest),
             NEXAR_FIELD(partials, Partials));
NEXAR_FIELDS(ArrivalQuery, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(seq, Seq),
             NEXAR_FIELD(nonce, Nonce));
NEXAR_FIELDS(Arrival, NEXAR_FIELD(rank, Rank, real_rank("rank")), NEXAR_FIELD(next_seq, NextSeq),
             NEXAR_FIELD(stalled, Stalled));
NEXAR_FIELDS(ArrivalReply, NEXAR_FIELD(group, Group), NEXAR_FIELD(nonce, Nonce),
             NEXAR_FIELD(ranks, Ranks, list_of(Part{}, "count of arrivals", ranks_max)));
NEXAR_FIELDS(MessageOffer, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch),
             NEXAR_FIELD(src, Src, real_rank("src")), NEXAR_FIELD(dst, Dst, real_rank("dst")),
             NEXAR_FIELD(tag, Tag), NEXAR_FIELD(bytes, Bytes), NEXAR_FIELD(dtype, Dtype),
             NEXAR_FIELD(number, Number), NEXAR_FIELD(only_now, OnlyNow));
NEXAR_FIELDS(MessageWithdraw, NEXAR_FIELD(group, Group), NEXAR_FIELD(number, Number));
NEXAR_FIELDS(MessageRefused, NEXAR_FIELD(group, Group), NEXAR_FIELD(number, Number),
             NEXAR_FIELD(error, Error),
             Rule{[](Decoder& d, const T& refused) { d.failure("a refusal", refused.error.code); }});
NEXAR_FIELDS(MessageCredit, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch),
             NEXAR_FIELD(src, Src, real_rank("src")), NEXAR_FIELD(limit, Limit));

// ---- The agreement on a group's end ----

NEXAR_FIELDS(Ballot, NEXAR_FIELD(round, Round), NEXAR_FIELD(coordinator, Coordinator));
NEXAR_FIELDS(FailedSet, NEXAR_FIELD(error, Error), Rule{[](Decoder& d, const T& failed) {
                 if (failed.error.code > Errc::group || failed.error.code <= Errc::session)
                     d.complain("a group's end by " + std::string(name_of(failed.error.code)) +
                                ", allowed are failures of a group");
             }},
             NEXAR_FIELD(excluded, Excluded, list_of(Number{}, "excluded", group_nodes_max)));
NEXAR_FIELDS(Cut, NEXAR_FIELD(seq, Seq), NEXAR_FIELD(failed, Failed));

// What may be missing: a flag, and the two fields of what was accepted, which are read behind the flag only.
struct AcceptedField {
    const char* name = "accepted";
    void fill(s::GroupReport::Builder out, const GroupReport& report) const {
        out.setHasAccepted(report.accepted.has_value());
        if (!report.accepted) return;
        const auto& [ballot, cut] = *report.accepted;
        fill_struct(out.initAcceptedBallot(), ballot);
        fill_struct(out.initAcceptedCut(), cut);
    }
    void read(Decoder& d, s::GroupReport::Reader in, GroupReport& report) const {
        if (!in.getHasAccepted()) return;
        auto& [ballot, cut] = report.accepted.emplace();
        read_struct(d, in.getAcceptedBallot(), ballot);
        read_struct(d, in.getAcceptedCut(), cut);
    }
};

NEXAR_FIELDS(GroupFailed, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(seen, Seen),
             NEXAR_FIELD(failed, Failed));
NEXAR_FIELDS(GroupFreeze, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(ballot, Ballot),
             NEXAR_FIELD(failed, Failed));
NEXAR_FIELDS(GroupReport, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(ballot, Ballot),
             NEXAR_FIELD(failed, Failed), NEXAR_FIELD(handed_over, HandedOver),
             NEXAR_FIELD(ended_below, EndedBelow), AcceptedField{});
NEXAR_FIELDS(GroupCut, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(ballot, Ballot),
             NEXAR_FIELD(cut, Cut));
NEXAR_FIELDS(GroupAccepted, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(ballot, Ballot),
             NEXAR_FIELD(stuck_at, StuckAt));
NEXAR_FIELDS(GroupEnd, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch), NEXAR_FIELD(cut, Cut));
NEXAR_FIELDS(GroupDeparted, NEXAR_FIELD(group, Group), NEXAR_FIELD(epoch, Epoch));
