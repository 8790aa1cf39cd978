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

// ---- Words, outwards ----

capnp::Data::Reader data_of(const void* bytes, size_t n) {
    return {static_cast<const kj::byte*>(bytes), n};
}
capnp::Data::Reader data_of(const NodeId& id) {
    return data_of(id.bytes.data(), id.bytes.size());
}
template <size_t N>
capnp::Data::Reader data_of(const std::array<uint8_t, N>& bytes) {
    return data_of(bytes.data(), N);
}

// Free text is cut and cleaned, so that what we say never makes a peer refuse the whole message.
struct CleanText {
    CleanText(const std::string& text, size_t bytes_max) : clean(clean_text(text, bytes_max)) {}
    capnp::Text::Reader reader() const { return {clean.c_str(), clean.size()}; }
    std::string clean;
};

template <class Builder>
void fill(Builder b, const Incarnation& v) {
    b.setCounter(v.counter);
    b.setNonce(v.nonce);
}
void fill(s::GroupId::Builder b, const GroupId& v) {
    b.setCreator(v.creator);
    b.setIncarnation(v.incarnation);
    b.setCounter(v.counter);
}
void fill(s::Error::Builder b, const Error& v) {
    b.setCode(static_cast<int32_t>(v.code));
    b.setText(CleanText(v.text, text_bytes_max).reader());
    b.setRank(v.rank);
    b.setOtherRank(v.other_rank);
    b.setNode(CleanText(v.node, hostname_bytes_max).reader());
}
void fill(s::RequestId::Builder b, const RequestId& v) {
    b.setOrigin(data_of(v.origin));
    b.setNumber(v.number);
}
void fill(s::NodeRecord::Builder b, const NodeRecord& v) {
    NEXAR_CHECK(v.addresses.size() <= addresses_max);
    b.setNode(data_of(v.node));
    b.setHostname(CleanText(v.hostname, hostname_bytes_max).reader());
    auto list = b.initAddresses(static_cast<uint32_t>(v.addresses.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        NEXAR_CHECK(v.addresses[i].size() <= address_bytes_max);
        list.set(i, CleanText(v.addresses[i], address_bytes_max).reader());
    }
}
template <class Init>
void fill_records(Init init, const std::vector<NodeRecord>& records) {
    NEXAR_CHECK(records.size() <= roster_nodes_max);
    auto list = init(static_cast<uint32_t>(records.size()));
    for (uint32_t i = 0; i < list.size(); ++i) fill(list[i], records[i]);
}
void fill(s::PlanTable::Builder b, const PlanTableRecord& v) {
    b.setVersion(v.version);
    b.setSmallBytesMax(v.small_bytes_max);
    b.setDoublingBytesMax(v.doubling_bytes_max);
    b.setChunkBytes(v.chunk_bytes);
    b.setSegmentBytes(v.segment_bytes);
    b.setLanes(v.lanes);
}
void fill(s::Members::Builder b, const std::vector<GroupMemberRecord>& members) {
    NEXAR_CHECK(members.size() <= ranks_max);
    std::map<NodeId, uint16_t> index;
    std::vector<NodeId> nodes;
    auto index_of = [&](const NodeId& node) {
        auto [at, added] = index.try_emplace(node, static_cast<uint16_t>(nodes.size()));
        if (added) nodes.push_back(node);
        NEXAR_CHECK(nodes.size() <= group_nodes_max);
        return at->second;
    };
    auto list = b.initList(static_cast<uint32_t>(members.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        list[i].setNumber(members[i].request.number);
        list[i].setRank(members[i].rank);
        list[i].setPid(members[i].pid);
        list[i].setNode(index_of(members[i].node));
        list[i].setOrigin(index_of(members[i].request.origin));
    }
    auto table = b.initNodes(static_cast<uint32_t>(nodes.size()));
    for (uint32_t i = 0; i < table.size(); ++i) table.set(i, data_of(nodes[i]));
}

// ---- Words, inwards ----

class Decoder {
  public:
    bool ok() const { return !complaint_; }
    const std::string& complaint() const { return *complaint_; }
    void complain(std::string text) {
        if (!complaint_) complaint_ = std::move(text);
    }

    void limit(const char* field, uint64_t value, uint64_t max) {
        if (value > max)
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is at most " +
                     std::to_string(max));
    }
    template <size_t N>
    std::array<uint8_t, N> fixed(const char* field, capnp::Data::Reader data) {
        std::array<uint8_t, N> out{};
        if (data.size() == N)
            std::copy(data.begin(), data.end(), out.begin());
        else
            complain(std::string(field) + " has " + std::to_string(data.size()) + " bytes, not " +
                     std::to_string(N));
        return out;
    }
    NodeId node(const char* field, capnp::Data::Reader data) { return NodeId{fixed<32>(field, data)}; }
    std::string text(const char* field, capnp::Text::Reader text, size_t bytes_max) {
        limit(field, text.size(), bytes_max);
        if (!ok()) return {};
        std::string out(text.begin(), text.size());
        if (!is_clean_text(out)) complain(std::string(field) + " is not UTF-8 without control characters");
        return out;
    }
    int64_t rank(const char* field, int64_t value) {
        if (value < -1 || value >= static_cast<int64_t>(ranks_max))
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is -1 to " +
                     std::to_string(ranks_max - 1));
        return value;
    }
    uint32_t real_rank(const char* field, uint32_t value) {
        limit(field, value, ranks_max - 1);
        return value;
    }

  private:
    std::optional<std::string> complaint_;
};

void read(Decoder&, s::Incarnation::Reader r, Incarnation& v) {
    v = {r.getCounter(), r.getNonce()};
}
void read(Decoder&, s::GroupId::Reader r, GroupId& v) {
    v = {r.getCreator(), r.getIncarnation(), r.getCounter()};
}
void read(Decoder& d, s::Error::Reader r, Error& v) {
    v.code = static_cast<Errc>(r.getCode());
    if (name_of(v.code) == "UNKNOWN") d.complain("error code " + std::to_string(r.getCode()) + " is unknown");
    v.text = d.text("error text", r.getText(), text_bytes_max);
    v.rank = d.rank("error rank", r.getRank());
    v.other_rank = d.rank("error other_rank", r.getOtherRank());
    v.node = d.text("error node", r.getNode(), hostname_bytes_max);
}
void read(Decoder& d, s::RequestId::Reader r, RequestId& v) {
    v.origin = d.node("request origin", r.getOrigin());
    v.number = r.getNumber();
}
void read(Decoder& d, s::NodeRecord::Reader r, NodeRecord& v) {
    v.node = d.node("record node", r.getNode());
    v.hostname = d.text("hostname", r.getHostname(), hostname_bytes_max);
    const auto list = r.getAddresses();
    d.limit("count of addresses", list.size(), addresses_max);
    if (!d.ok()) return;
    for (const auto address : list) v.addresses.push_back(d.text("address", address, address_bytes_max));
}
void read_records(Decoder& d, capnp::List<s::NodeRecord>::Reader list, std::vector<NodeRecord>& v) {
    d.limit("count of roster records", list.size(), roster_nodes_max);
    for (const auto r : list) {
        if (!d.ok()) return;
        read(d, r, v.emplace_back());
    }
}
void read(Decoder&, s::PlanTable::Reader r, PlanTableRecord& v) {
    v = {r.getVersion(),    r.getSmallBytesMax(), r.getDoublingBytesMax(),
         r.getChunkBytes(), r.getSegmentBytes(),  r.getLanes()};
}
void read(Decoder& d, s::Members::Reader r, std::vector<GroupMemberRecord>& v) {
    const auto table = r.getNodes();
    const auto list = r.getList();
    d.limit("count of group nodes", table.size(), group_nodes_max);
    d.limit("count of members", list.size(), ranks_max);
    if (!d.ok()) return;
    std::vector<NodeId> nodes;
    for (const auto node : table) nodes.push_back(d.node("group node", node));
    v.reserve(list.size());
    for (const auto m : list) {
        if (m.getNode() >= nodes.size() || m.getOrigin() >= nodes.size())
            return d.complain("a member names node " + std::to_string(std::max(m.getNode(), m.getOrigin())) +
                              " of a table of " + std::to_string(nodes.size()));
        v.push_back({{nodes[m.getOrigin()], m.getNumber()}, nodes[m.getNode()], m.getRank(), m.getPid()});
    }
}

// ---- Nodes ----

void fill(s::Hello::Builder b, const Hello& m) {
    b.setProtocol(m.protocol);
    b.setNode(data_of(m.node));
    fill(b.initIncarnation(), m.incarnation);
    b.setCluster(data_of(m.cluster));
    fill(b.initSelf(), m.self);
    b.setBulkPort(m.bulk_port);
    b.setBulkShards(m.bulk_shards);
    fill_records([&](uint32_t n) { return b.initRoster(n); }, m.roster);
}
void read(Decoder& d, s::Hello::Reader r, Hello& m) {
    m.protocol = r.getProtocol();
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

// ---- Rendezvous ----

void fill(s::GroupOpen::Builder b, const GroupOpen& m) {
    fill(b.initId(), m.id);
    b.setKey(data_of(m.key));
    b.setName(CleanText(m.name, group_name_bytes_max).reader());
    b.setSize(m.size);
    b.setRank(m.rank);
    b.setPid(m.pid);
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
    b.setCollectiveTimeoutMs(m.collective_timeout_ms);
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
    m.collective_timeout_ms = r.getCollectiveTimeoutMs();
}

void fill(s::GroupPrepared::Builder b, const GroupPrepared& m) {
    fill(b.initGroup(), m.group);
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::GroupPrepared::Reader r, GroupPrepared& m) {
    read(d, r.getGroup(), m.group);
    read(d, r.getError(), m.error);
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
    if (m.error.code == Errc::ok) d.complain("a refusal with code OK");
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
}
void read(Decoder& d, s::RankGone::Reader r, RankGone& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.rank = d.real_rank("rank", r.getRank());
    m.collectives_handed_over = r.getCollectivesHandedOver();
    m.crashed = r.getCrashed();
    m.reason = d.text("reason", r.getReason(), text_bytes_max);
}

void fill(s::Accusation::Builder b, const Accusation& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setAccuser(data_of(m.accuser));
    b.setAccused(data_of(m.accused));
    b.setReason(CleanText(m.reason, text_bytes_max).reader());
    b.setRank(m.rank);
    b.setProof(m.proof);
}
void read(Decoder& d, s::Accusation::Reader r, Accusation& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.accuser = d.node("accuser", r.getAccuser());
    m.accused = d.node("accused", r.getAccused());
    m.reason = d.text("reason", r.getReason(), text_bytes_max);
    m.rank = d.rank("rank", r.getRank());
    m.proof = r.getProof();
}

void fill(s::Verdict::Builder b, const Verdict& m) {
    fill(b.initGroup(), m.group);
    b.setEpoch(m.epoch);
    b.setArbiter(data_of(m.arbiter));
    fill(b.initError(), m.error);
}
void read(Decoder& d, s::Verdict::Reader r, Verdict& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.arbiter = d.node("arbiter", r.getArbiter());
    read(d, r.getError(), m.error);
    if (m.error.code != Errc::peer_lost && m.error.code != Errc::link_lost && m.error.code != Errc::not_found)
        d.complain("a verdict of " + std::string(name_of(m.error.code)) +
                   ", allowed are PEER_LOST, LINK_LOST, NOT_FOUND");
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
    if (m.error.code == Errc::ok) d.complain("an abort with code OK");
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
}
void read(Decoder& d, s::OpAnnounce::Reader r, OpAnnounce& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.seq = r.getSeq();
    m.kind = r.getKind();
    m.dtype = r.getDtype();
    m.op = r.getOp();
    d.limit("op kind", m.kind, op_code_max);
    d.limit("dtype", m.dtype, op_code_max);
    d.limit("reduce op", m.op, op_code_max);
    m.count = r.getCount();
    m.root = r.getRoot();
    m.first_rank = d.real_rank("first_rank", r.getFirstRank());
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
    }
}
void read(Decoder& d, s::ArrivalReply::Reader r, ArrivalReply& m) {
    read(d, r.getGroup(), m.group);
    m.nonce = r.getNonce();
    const auto list = r.getRanks();
    d.limit("count of arrivals", list.size(), ranks_max);
    if (!d.ok()) return;
    for (const auto a : list)
        m.ranks.push_back({d.real_rank("rank", a.getRank()), a.getPid(), a.getNextSeq()});
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
}
void read(Decoder& d, s::MessageOffer::Reader r, MessageOffer& m) {
    read(d, r.getGroup(), m.group);
    m.epoch = r.getEpoch();
    m.src = d.real_rank("src", r.getSrc());
    m.dst = d.real_rank("dst", r.getDst());
    m.tag = r.getTag();
    m.bytes = r.getBytes();
    m.dtype = r.getDtype();
    d.limit("dtype", m.dtype, op_code_max);
    m.number = r.getNumber();
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
    if (m.error.code == Errc::ok) d.complain("a refusal with code OK");
}

// ---- The union ----

// One line per kind: the struct, and the schema's name in its two spellings.
#define NEXAR_WIRE_KINDS(X)                                                                                  \
    X(Hello, HELLO)                                                                                          \
    X(RosterUpdate, ROSTER_UPDATE) X(Heartbeat, HEARTBEAT) X(Goodbye, GOODBYE)                               \
        X(ProbeRequest, PROBE_REQUEST) X(ProbeReply, PROBE_REPLY) X(GroupOpen, GROUP_OPEN)                   \
            X(GroupWithdraw, GROUP_WITHDRAW) X(GroupPrepare, GROUP_PREPARE) X(GroupPrepared, GROUP_PREPARED) \
                X(GroupCommit, GROUP_COMMIT) X(GroupRefused, GROUP_REFUSED)                                  \
                    X(GroupStatusRequest, GROUP_STATUS_REQUEST) X(GroupStatus, GROUP_STATUS)                 \
                        X(RankGone, RANK_GONE) X(Accusation, ACCUSATION) X(Verdict, VERDICT)                 \
                            X(OpAbort, OP_ABORT) X(OpAnnounce, OP_ANNOUNCE) X(ArrivalQuery, ARRIVAL_QUERY)   \
                                X(ArrivalReply, ARRIVAL_REPLY) X(MessageOffer, MESSAGE_OFFER)                \
                                    X(MessageWithdraw, MESSAGE_WITHDRAW) X(MessageRefused, MESSAGE_REFUSED)  \
                                        X(GroupQuery, GROUP_QUERY)

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
