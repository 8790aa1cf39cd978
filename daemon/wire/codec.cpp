// The codec over Cap'n Proto: the only file that includes its headers and catches kj::Exception. Each message
// has a fill() and a read() beside each other. A Decoder keeps the first complaint; reads after it go on
// harmlessly and the message is thrown away at the end.
#include "wire/codec.hpp"

#include <capnp/common.h>
#include <kj/string.h>

#if CAPNP_VERSION < 1000000
// Version 0.9 compares a C string with a StringPtr, in that order, without declaring it; C++20's reversed
// candidates do not help where operator!= is declared too (P2468).
namespace kj {
inline bool operator==(const char* a, const StringPtr& b) {
    return b == StringPtr(a);
}
inline bool operator!=(const char* a, const StringPtr& b) {
    return !(b == StringPtr(a));
}
}  // namespace kj
#endif

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/check.hpp"
#include "wire.capnp.h"
#include "wire/limits.hpp"
#include "wire/text.hpp"

namespace nexar::wire {
namespace {

namespace s = schema;

#include "wire/codec_words-inl.hpp"

// ---- Nodes ----

void fill(s::Hello::Builder b, const Hello& m) {
    b.setNode(data_of(m.node));
    fill(b.initIncarnation(), m.incarnation);
    b.setCluster(data_of(m.cluster));
    fill(b.initSelf(), m.self);
    b.setBulkPort(m.bulk_port);
    b.setBulkShards(m.bulk_shards);
    fill_records([&](uint32_t n) { return b.initRoster(n); }, m.roster);
}
void read(Decoder& d, s::Hello::Reader r, Hello& m) {
    m.node = d.node("node", r.getNode());
    read(d, r.getIncarnation(), m.incarnation);
    m.cluster = d.fixed<16>("cluster", r.getCluster());
    read(d, r.getSelf(), m.self);
    m.bulk_port = r.getBulkPort();
    m.bulk_shards = r.getBulkShards();
    d.limit("bulk_shards", m.bulk_shards, bulk_shards_max);
    read_records(d, r.getRoster(), m.roster);
}

void fill(s::RosterUpdate::Builder b, const RosterUpdate& m) {
    fill_records([&](uint32_t n) { return b.initNodes(n); }, m.nodes);
}
void read(Decoder& d, s::RosterUpdate::Reader r, RosterUpdate& m) {
    read_records(d, r.getNodes(), m.nodes);
}

void fill(s::Heartbeat::Builder b, const Heartbeat& m) {
    b.setNumber(m.number);
}
void read(Decoder&, s::Heartbeat::Reader r, Heartbeat& m) {
    m.number = r.getNumber();
}

void fill(s::Goodbye::Builder b, const Goodbye& m) {
    b.setReason(CleanText(m.reason, text_bytes_max).reader());
}
void read(Decoder& d, s::Goodbye::Reader r, Goodbye& m) {
    m.reason = d.text("reason", r.getReason(), text_bytes_max);
}

void fill(s::ProbeRequest::Builder b, const ProbeRequest& m) {
    b.setNonce(m.nonce);
    b.setTarget(data_of(m.target));
    fill(b.initIncarnation(), m.incarnation);
}
void read(Decoder& d, s::ProbeRequest::Reader r, ProbeRequest& m) {
    m.nonce = r.getNonce();
    m.target = d.node("target", r.getTarget());
    read(d, r.getIncarnation(), m.incarnation);
}

void fill(s::ProbeReply::Builder b, const ProbeReply& m) {
    b.setNonce(m.nonce);
    b.setHeard(m.heard);
    b.setSilentMs(m.silent_ms);
}
void read(Decoder&, s::ProbeReply::Reader r, ProbeReply& m) {
    m = {r.getNonce(), r.getHeard(), r.getSilentMs()};
}

// PEM has line ends, which Text does not carry.
capnp::Data::Reader pem_of(const std::string& pem, size_t bytes_max) {
    NEXAR_CHECK(pem.size() <= bytes_max);
    return {reinterpret_cast<const kj::byte*>(pem.data()), pem.size()};
}
std::string pem(Decoder& d, const char* name, capnp::Data::Reader data, size_t bytes_max) {
    d.limit(name, data.size(), bytes_max);
    return {reinterpret_cast<const char*>(data.begin()), std::min(data.size(), bytes_max)};
}

void fill(s::RenewalRequest::Builder b, const RenewalRequest& m) {
    b.setCsr(pem_of(m.csr, csr_bytes_max));
}
void read(Decoder& d, s::RenewalRequest::Reader r, RenewalRequest& m) {
    m.csr = pem(d, "csr", r.getCsr(), csr_bytes_max);
}

void fill(s::RenewalReply::Builder b, const RenewalReply& m) {
    fill(b.initError(), m.error);
    b.setCertificate(pem_of(m.certificate, certificate_bytes_max));
    b.setIssuerCertificate(pem_of(m.issuer_certificate, certificate_bytes_max));
}
void read(Decoder& d, s::RenewalReply::Reader r, RenewalReply& m) {
    read(d, r.getError(), m.error);
    if (m.error.code > Errc::ok) d.complain("a renewal with code " + std::string(name_of(m.error.code)));
    m.certificate = pem(d, "certificate", r.getCertificate(), certificate_bytes_max);
    m.issuer_certificate = pem(d, "issuer certificate", r.getIssuerCertificate(), certificate_bytes_max);
}

// ---- Rendezvous ----

void fill(s::GroupOpen::Builder b, const GroupOpen& m) {
    fill(b.initId(), m.id);
    b.setKey(data_of(m.key));
    b.setName(CleanText(m.name, group_name_bytes_max).reader());
    b.setSize(m.size);
    b.setRank(m.rank);
    b.setPid(m.pid);
    fill(b.initLife(), m.life);
    b.setBulkShards(m.bulk_shards);
    fill(b.initTimeouts(), m.timeouts);
    b.setFeatures(m.features);
}
void read(Decoder& d, s::GroupOpen::Reader r, GroupOpen& m) {
    read(d, r.getId(), m.id);
    m.key = d.fixed<32>("key", r.getKey());
    m.name = d.text("group name", r.getName(), group_name_bytes_max);
    m.size = r.getSize();
    d.limit("group size", m.size, ranks_max);
    if (m.size == 0) d.complain("group size is 0, allowed is 1 to " + std::to_string(ranks_max));
    m.rank = d.rank("rank", r.getRank());
    m.pid = r.getPid();
    read(d, r.getLife(), m.life);
    m.bulk_shards = r.getBulkShards();
    d.limit("bulk_shards", m.bulk_shards, bulk_shards_max);
    if (m.bulk_shards == 0)
        d.complain("bulk_shards is 0, allowed is 1 to " + std::to_string(bulk_shards_max));
    read(d, r.getTimeouts(), m.timeouts, -1);
    m.features = r.getFeatures();
}

void fill(s::GroupWithdraw::Builder b, const GroupWithdraw& m) {
    fill(b.initId(), m.id);
    b.setKey(data_of(m.key));
    b.setMoved(m.moved);
    b.setExpired(m.expired);
}
void read(Decoder& d, s::GroupWithdraw::Reader r, GroupWithdraw& m) {
    read(d, r.getId(), m.id);
    m.key = d.fixed<32>("key", r.getKey());
    m.moved = r.getMoved();
    m.expired = r.getExpired();
}

void fill(s::GroupPrepare::Builder b, const GroupPrepare& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setKey(data_of(m.key));
    b.setName(CleanText(m.name, group_name_bytes_max).reader());
    fill(b.initMembers(), m.members);
    fill(b.initPlan(), m.plan);
    fill(b.initTimeouts(), m.timeouts);
}
void read(Decoder& d, s::GroupPrepare::Reader r, GroupPrepare& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.key = d.fixed<32>("key", r.getKey());
    m.name = d.text("group name", r.getName(), group_name_bytes_max);
    read(d, r.getMembers(), m.members);
    if (m.members.empty()) d.complain("a group without members");
    for (size_t i = 0; i < m.members.size() && d.ok(); ++i)
        if (m.members[i].rank != i)
            d.complain("member " + std::to_string(i) + " has rank " + std::to_string(m.members[i].rank));
    read(d, r.getPlan(), m.plan);
    read(d, r.getTimeouts(), m.timeouts, 0);
}

void fill(s::GroupPrepared::Builder b, const GroupPrepared& m) {
    fill(b.initGroup(), m.group);
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::GroupPrepared::Reader r, GroupPrepared& m) {
    read(d, r.getGroup(), m.group);
    read(d, r.getError(), m.error);
    if (m.error.code != Errc::ok && m.error.code != Errc::pending)
        d.failure("an answer to a prepare", m.error.code);
}

void fill(s::GroupCommit::Builder b, const GroupCommit& m) {
    fill(b.initGroup(), m.group);
}
void read(Decoder& d, s::GroupCommit::Reader r, GroupCommit& m) {
    read(d, r.getGroup(), m.group);
}

void fill(s::GroupQuery::Builder b, const GroupQuery& m) {
    fill(b.initGroup(), m.group);
}
void read(Decoder& d, s::GroupQuery::Reader r, GroupQuery& m) {
    read(d, r.getGroup(), m.group);
}

void fill(s::GroupRefused::Builder b, const GroupRefused& m) {
    fill(b.initId(), m.id);
    fill(b.initGroup(), m.group);
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::GroupRefused::Reader r, GroupRefused& m) {
    read(d, r.getId(), m.id);
    read(d, r.getGroup(), m.group);
    read(d, r.getError(), m.error);
    const bool whole_attempt = m.id.number == 0;  // its opens stay
    if (!whole_attempt || m.error.code != Errc::pending) d.failure("a refusal", m.error.code);
}

void fill(s::GroupUnlisted::Builder b, const GroupUnlisted& m) {
    fill(b.initId(), m.id);
}
void read(Decoder& d, s::GroupUnlisted::Reader r, GroupUnlisted& m) {
    read(d, r.getId(), m.id);
}

void fill(s::GroupStatusRequest::Builder b, const GroupStatusRequest& m) {
    fill(b.initId(), m.id);
    b.setKey(data_of(m.key));
}
void read(Decoder& d, s::GroupStatusRequest::Reader r, GroupStatusRequest& m) {
    read(d, r.getId(), m.id);
    m.key = d.fixed<32>("key", r.getKey());
}

void fill(s::GroupStatus::Builder b, const GroupStatus& m) {
    fill(b.initId(), m.id);
    b.setSize(m.size);
    fill(b.initPresent(), m.present);
}
void read(Decoder& d, s::GroupStatus::Reader r, GroupStatus& m) {
    read(d, r.getId(), m.id);
    m.size = r.getSize();
    d.limit("group size", m.size, ranks_max);
    read(d, r.getPresent(), m.present);
    for (const GroupMemberRecord& member : m.present)
        if (member.rank != UINT32_MAX) d.real_rank("rank", member.rank);
}

// ---- Groups at work ----

void fill(s::RankGone::Builder b, const RankGone& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setRank(m.rank);
    b.setCollectivesHandedOver(m.collectives_handed_over);
    b.setCrashed(m.crashed);
    b.setReason(CleanText(m.reason, text_bytes_max).reader());
    b.setFreed(m.freed);
}
void read(Decoder& d, s::RankGone::Reader r, RankGone& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.rank = d.real_rank("rank", r.getRank());
    m.collectives_handed_over = r.getCollectivesHandedOver();
    m.crashed = r.getCrashed();
    m.reason = d.text("reason", r.getReason(), text_bytes_max);
    m.freed = r.getFreed();
}

void fill(s::Accusation::Builder b, const Accusation& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setAccuser(data_of(m.accuser));
    b.setAccused(data_of(m.accused));
    b.setReason(CleanText(m.reason, text_bytes_max).reader());
    b.setProof(m.proof);
}
void read(Decoder& d, s::Accusation::Reader r, Accusation& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.accuser = d.node("accuser", r.getAccuser());
    m.accused = d.node("accused", r.getAccused());
    m.reason = d.text("reason", r.getReason(), text_bytes_max);
    m.proof = r.getProof();
}

void fill(s::OpAbort::Builder b, const OpAbort& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setSeq(m.seq);
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::OpAbort::Reader r, OpAbort& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.seq = r.getSeq();
    read(d, r.getError(), m.error);
    d.failure("an abort", m.error.code);
}

void fill(s::OpAnnounce::Builder b, const OpAnnounce& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setSeq(m.seq);
    b.setKind(m.kind);
    b.setDtype(m.dtype);
    b.setOp(m.op);
    b.setCount(m.count);
    b.setRoot(m.root);
    b.setFirstRank(m.first_rank);
    b.setPlanHash(m.plan_hash);
    b.setMatchId(m.match_id);
}
void read(Decoder& d, s::OpAnnounce::Reader r, OpAnnounce& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.seq = r.getSeq();
    m.kind = r.getKind();
    m.dtype = r.getDtype();
    m.op = r.getOp();
    m.count = r.getCount();
    m.root = r.getRoot();
    m.first_rank = d.real_rank("first_rank", r.getFirstRank());
    m.plan_hash = r.getPlanHash();
    m.match_id = r.getMatchId();
}

void fill(s::ArrivalQuery::Builder b, const ArrivalQuery& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setSeq(m.seq);
    b.setNonce(m.nonce);
}
void read(Decoder& d, s::ArrivalQuery::Reader r, ArrivalQuery& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.seq = r.getSeq();
    m.nonce = r.getNonce();
}

void fill(s::ArrivalReply::Builder b, const ArrivalReply& m) {
    NEXAR_CHECK(m.ranks.size() <= ranks_max);
    fill(b.initGroup(), m.group);
    b.setNonce(m.nonce);
    auto list = b.initRanks(static_cast<uint32_t>(m.ranks.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        list[i].setRank(m.ranks[i].rank);
        list[i].setPid(m.ranks[i].pid);
        list[i].setNextSeq(m.ranks[i].next_seq);
        list[i].setStalled(m.ranks[i].stalled);
    }
}
void read(Decoder& d, s::ArrivalReply::Reader r, ArrivalReply& m) {
    read(d, r.getGroup(), m.group);
    m.nonce = r.getNonce();
    const auto list = r.getRanks();
    d.limit("count of arrivals", list.size(), ranks_max);
    if (!d.ok()) return;
    for (const auto a : list)
        m.ranks.push_back({d.real_rank("rank", a.getRank()), a.getPid(), a.getNextSeq(), a.getStalled()});
}

void fill(s::MessageOffer::Builder b, const MessageOffer& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setSrc(m.src);
    b.setDst(m.dst);
    b.setTag(m.tag);
    b.setBytes(m.bytes);
    b.setDtype(m.dtype);
    b.setNumber(m.number);
    b.setOnlyNow(m.only_now);
}
void read(Decoder& d, s::MessageOffer::Reader r, MessageOffer& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.src = d.real_rank("src", r.getSrc());
    m.dst = d.real_rank("dst", r.getDst());
    m.tag = r.getTag();
    m.bytes = r.getBytes();
    m.dtype = r.getDtype();
    m.number = r.getNumber();
    m.only_now = r.getOnlyNow();
}

void fill(s::MessageWithdraw::Builder b, const MessageWithdraw& m) {
    fill(b.initGroup(), m.group);
    b.setNumber(m.number);
}
void read(Decoder& d, s::MessageWithdraw::Reader r, MessageWithdraw& m) {
    read(d, r.getGroup(), m.group);
    m.number = r.getNumber();
}

void fill(s::MessageRefused::Builder b, const MessageRefused& m) {
    fill(b.initGroup(), m.group);
    b.setNumber(m.number);
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::MessageRefused::Reader r, MessageRefused& m) {
    read(d, r.getGroup(), m.group);
    m.number = r.getNumber();
    read(d, r.getError(), m.error);
    d.failure("a refusal", m.error.code);
}

void fill(s::MessageCredit::Builder b, const MessageCredit& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setSrc(m.src);
    b.setLimit(m.limit);
}
void read(Decoder& d, s::MessageCredit::Reader r, MessageCredit& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.src = d.real_rank("src", r.getSrc());
    m.limit = r.getLimit();
}

#include "wire/codec_agreement-inl.hpp"

// ---- The union ----

// One line per kind: the struct, and the schema's name in its two spellings.
// clang-format off
#define NEXAR_WIRE_KINDS(X) \
    X(Hello, HELLO) \
    X(RosterUpdate, ROSTER_UPDATE) \
    X(Heartbeat, HEARTBEAT) \
    X(Goodbye, GOODBYE) \
    X(ProbeRequest, PROBE_REQUEST) \
    X(ProbeReply, PROBE_REPLY) \
    X(GroupOpen, GROUP_OPEN) \
    X(GroupWithdraw, GROUP_WITHDRAW) \
    X(GroupPrepare, GROUP_PREPARE) \
    X(GroupPrepared, GROUP_PREPARED) \
    X(GroupCommit, GROUP_COMMIT) \
    X(GroupRefused, GROUP_REFUSED) \
    X(GroupStatusRequest, GROUP_STATUS_REQUEST) \
    X(GroupStatus, GROUP_STATUS) \
    X(RankGone, RANK_GONE) \
    X(Accusation, ACCUSATION) \
    X(OpAbort, OP_ABORT) \
    X(OpAnnounce, OP_ANNOUNCE) \
    X(ArrivalQuery, ARRIVAL_QUERY) \
    X(ArrivalReply, ARRIVAL_REPLY) \
    X(MessageOffer, MESSAGE_OFFER) \
    X(MessageWithdraw, MESSAGE_WITHDRAW) \
    X(MessageRefused, MESSAGE_REFUSED) \
    X(GroupQuery, GROUP_QUERY) \
    X(RenewalRequest, RENEWAL_REQUEST) \
    X(RenewalReply, RENEWAL_REPLY) \
    X(MessageCredit, MESSAGE_CREDIT) \
    X(GroupUnlisted, GROUP_UNLISTED) \
    X(GroupFailed, GROUP_FAILED) \
    X(GroupFreeze, GROUP_FREEZE) \
    X(GroupReport, GROUP_REPORT) \
    X(GroupCut, GROUP_CUT) \
    X(GroupAccepted, GROUP_ACCEPTED) \
    X(GroupEnd, GROUP_END) \
    X(GroupDeparted, GROUP_DEPARTED)
// clang-format on

struct Filler {
    s::Message::Builder out;
#define X(Kind, TAG) \
    void operator()(const Kind& m) const { fill(s::Message::Builder(out).init##Kind(), m); }
    NEXAR_WIRE_KINDS(X)
#undef X
};

Message read_union(Decoder& d, s::Message::Reader in) {
    switch (in.which()) {
#define X(Kind, TAG)                \
    case s::Message::TAG: {         \
        Kind m;                     \
        read(d, in.get##Kind(), m); \
        return m;                   \
    }
        NEXAR_WIRE_KINDS(X)
#undef X
    }
    d.complain("message kind " + std::to_string(static_cast<unsigned>(in.which())) + " is unknown");
    return {};
}

Result<Message> decode_words(kj::ArrayPtr<const capnp::word> words) {
    capnp::ReaderOptions options;
    // Every field is read about once (getX() twice for some); pointers that share a target cost more and stop
    // here.
    options.traversalLimitInWords = 4 * words.size() + 64;
    options.nestingLimit = 8;
    capnp::FlatArrayMessageReader reader(words, options);
    if (reader.getEnd() != words.end())
        return fail(Errc::protocol_error, "control message: bytes left over after its end");
    Decoder decoder;
    Message message = read_union(decoder, reader.getRoot<s::Message>());
    if (!decoder.ok()) return fail(Errc::protocol_error, "control message: " + decoder.complaint());
    return message;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
    capnp::MallocMessageBuilder builder;
    std::visit(Filler{builder.initRoot<s::Message>()}, message);
    const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
    const auto bytes = words.asBytes();
    NEXAR_CHECK(bytes.size() <= message_bytes_max);
    std::vector<std::byte> out(bytes.size());
    std::memcpy(out.data(), bytes.begin(), bytes.size());
    return out;
}

Result<Message> decode(Bytes bytes) {
    if (bytes.size() > message_bytes_max)
        return fail(Errc::protocol_error, "control message: " + std::to_string(bytes.size()) +
                                              " bytes, allowed is at most " +
                                              std::to_string(message_bytes_max));
    if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0)
        return fail(Errc::protocol_error, "control message: " + std::to_string(bytes.size()) +
                                              " bytes, not a positive multiple of 8");
    // Copied: what arrives is not aligned, and the reader needs words.
    std::vector<capnp::word> words(bytes.size() / sizeof(capnp::word));
    std::memcpy(static_cast<void*>(words.data()), bytes.data(), bytes.size());
    try {
        return decode_words(kj::arrayPtr(words.data(), words.size()));
    } catch (const kj::Exception& e) {
        return fail(Errc::protocol_error,
                    "control message: " + clean_text(e.getDescription().cStr(), text_bytes_max / 2));
    }
}

}  // namespace nexar::wire
