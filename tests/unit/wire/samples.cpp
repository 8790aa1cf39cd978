// See samples.hpp. A counter gives every field another value, so that two swapped fields are detected.
#include "samples.hpp"

namespace nexar::wire {
namespace {

struct Distinct {
    uint64_t last = 0;
    uint8_t u8() { return static_cast<uint8_t>(1 + last++ % 60); }
    uint16_t u16() { return static_cast<uint16_t>(1000 + last++); }
    uint32_t rank() { return static_cast<uint32_t>(20000 + last++); }
    uint32_t u32() { return static_cast<uint32_t>(0xA0000000u + last++); }
    uint64_t u64() { return 0xB000000000000000u + last++; }
    std::string text(const std::string& what) { return what + " \u00e4 " + std::to_string(last++); }
    template <size_t N>
    std::array<uint8_t, N> bytes() {
        std::array<uint8_t, N> out;
        for (size_t i = 0; i < N; ++i) out[i] = static_cast<uint8_t>(last * 7 + i);
        ++last;
        return out;
    }
    NodeId node() { return {bytes<32>()}; }
    Incarnation incarnation() { return {u64(), u64()}; }
    GroupId group() { return {u64(), u64(), u64()}; }
    RequestId request() { return {node(), u64()}; }
    Error error(Errc code) {
        Error out{code, text("what"), rank(), rank(), text("node")};
        out.pid = u32();
        return out;
    }
    NodeRecord record() {
        return {node(),
                text("host"),
                {"10.0.0.1:" + std::to_string(u16()), "[fd00::1]:" + std::to_string(u16())}};
    }
    std::vector<GroupMemberRecord> members(bool automatic) {
        std::vector<GroupMemberRecord> out;
        const NodeId a = node(), b = node();
        const Incarnation of_a = incarnation(), of_b = incarnation();
        const uint64_t features_of_a = u64(), features_of_b = u64();
        const auto nonce_of_a = bytes<16>(), nonce_of_b = bytes<16>();
        for (uint32_t i = 0; i < 5; ++i)
            out.push_back({{i % 2 ? a : b, u64()},
                           i % 3 ? a : b,
                           automatic && i == 4 ? UINT32_MAX : i,
                           u32(),
                           i % 3 ? of_a : of_b,
                           i % 3 ? features_of_a : features_of_b,
                           i % 3 ? nonce_of_a : nonce_of_b});
        return out;
    }
};

void add_agreement(Distinct& d, std::vector<Message>& out) {
    const auto failed = [&] { return FailedSet{d.error(Errc::peer_lost), {d.u32(), d.u32()}}; };
    const auto ballot = [&] { return Ballot{d.u64(), d.u32()}; };
    out.push_back(GroupFailed{d.group(), d.u32(), ballot(), failed()});
    out.push_back(GroupFreeze{d.group(), d.u32(), ballot(), failed()});
    out.push_back(GroupReport{d.group(), d.u32(), ballot(), failed(), d.u64(), d.u64(), {}});
    const AcceptedCut accepted{ballot(), {d.u64(), failed()}};
    out.push_back(GroupReport{d.group(), d.u32(), ballot(), failed(), d.u64(), d.u64(), accepted});
    out.push_back(GroupCut{d.group(), d.u32(), ballot(), {d.u64(), failed()}});
    out.push_back(GroupAccepted{d.group(), d.u32(), ballot(), d.u64()});
    out.push_back(GroupEnd{d.group(), d.u32(), {d.u64(), failed()}});
    out.push_back(GroupDeparted{d.group(), d.u32()});
}

void add_node_messages(Distinct& d, std::vector<Message>& out) {
    out.push_back(Hello{d.node(),
                        d.incarnation(),
                        d.bytes<16>(),
                        d.record(),
                        d.u16(),
                        17,
                        {d.record(), d.record(), d.record()}});
    out.push_back(RosterUpdate{{d.record(), d.record()}});
    out.push_back(Heartbeat{});
    out.push_back(Goodbye{d.text("stopping")});
    out.push_back(ProbeRequest{d.u64(), d.node(), d.incarnation()});
    out.push_back(ProbeReply{d.u64(), true});
    out.push_back(RenewalRequest{"-----BEGIN\n" + d.text("csr") + "\n"});
    out.push_back(RenewalReply{d.error(Errc::unsupported), d.text("leaf") + "\n", d.text("issuer") + "\n"});
}

void add_rendezvous_messages(Distinct& d, std::vector<Message>& out) {
    out.push_back(GroupOpen{d.request(),
                            d.bytes<32>(),
                            d.text("train"),
                            60000,
                            d.rank(),
                            d.u32(),
                            d.incarnation(),
                            13,
                            {-1, 0, 30'000},
                            d.u64(),
                            d.bytes<16>(),
                            d.u64()});
    out.push_back(GroupWithdraw{d.request(), d.bytes<32>(), false, true});
    out.push_back(GroupWithdraw{d.request(), d.bytes<32>(), true, false});
    const PlanTableRecord plan{d.u32(), d.u64(), d.u64(), d.u64(), d.u64(), d.u32(), 11,      d.u32(),
                               d.u32(), d.u32(), d.u32(), d.u32(), d.u32(), d.u64(), d.u32(), 12};
    out.push_back(GroupPrepare{
        d.group(), d.u32(), d.bytes<32>(), d.text("train"), d.members(false), plan, {5000, 0, 7000}});
    out.push_back(GroupPrepared{d.group(), d.error(Errc::link_lost), d.bytes<32>()});
    out.push_back(GroupCommit{d.group(), {d.bytes<32>(), d.bytes<32>()}});
    out.push_back(GroupRefused{d.request(), d.group(), d.error(Errc::rank_clash)});
    out.push_back(GroupStatusRequest{d.request(), d.bytes<32>()});
    out.push_back(GroupStatus{d.request(), d.rank(), d.members(true), d.rank(), d.rank()});
    out.push_back(GroupQuery{d.group()});
    out.push_back(GroupUnlisted{d.request()});
    out.push_back(GroupLeader{d.node()});
    out.push_back(
        CreateQuery{d.group(), d.u32(), d.u64(), {d.rank(), d.rank()}, {{d.rank(), d.u64()}}, d.u32()});
    out.push_back(CreateAnswer{d.group(),
                               d.u32(),
                               d.u64(),
                               {{d.rank(), d.u64()}, {d.rank(), d.u64()}},
                               d.u64(),
                               {d.rank(), d.rank()},
                               {{d.rank(), d.u64()}},
                               true,
                               d.u32()});
}

void add_group_messages(Distinct& d, std::vector<Message>& out) {
    out.push_back(RankGone{d.group(), d.u32(), d.rank(), d.u64(), true, d.text("signal")});
    out.push_back(RankGone{d.group(), d.u32(), d.rank(), d.u64(), false, d.text("it freed"), true});
    out.push_back(SuspicionReport{d.group(), d.u32(), d.node(), d.node(), d.text("silent"), true});
    add_agreement(d, out);
    out.push_back(OpAbort{d.group(), d.u32(), d.u64(), d.error(Errc::aborted)});
    out.push_back(OpAnnounce{d.group(), d.u32(), d.u64(), d.u8(), d.u8(), d.u8(), d.u64(), d.u32(), d.rank(),
                             d.u64(), d.u64(), d.u64(), d.u8()});
    out.push_back(ArrivalQuery{d.group(), d.u32(), d.u64(), d.u64()});
    out.push_back(ArrivalReply{d.group(), d.u64(), {{d.rank(), d.u64(), true}, {d.rank(), d.u64()}}});
    out.push_back(
        MessageOffer{d.group(), d.u32(), d.rank(), d.rank(), d.u64(), d.u64(), d.u8(), d.u64(), true});
    out.push_back(MessageWithdraw{d.group(), d.u64()});
    out.push_back(MessageRefused{d.group(), d.u64(), d.error(Errc::closed)});
    out.push_back(MessageCredit{d.group(), d.u32(), d.rank(), d.u64()});
}

}  // namespace

std::vector<Message> sample_messages() {
    Distinct d;
    std::vector<Message> out;
    add_node_messages(d, out);
    add_rendezvous_messages(d, out);
    add_group_messages(d, out);
    return out;
}

}  // namespace nexar::wire
