// The codec over Cap'n Proto: the only file that includes its headers and catches kj::Exception. Each message
// is described by one field list, from which both directions are made.
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
#include <array>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <type_traits>

#include "core/check.hpp"
#include "wire.capnp.h"
#include "wire/limits.hpp"
#include "wire/text.hpp"

namespace nexar::wire {
namespace {

namespace s = schema;

#include "wire/codec_decoder-inl.hpp"
#include "wire/codec_fields-inl.hpp"
#include "wire/codec_lists-inl.hpp"
#include "wire/codec_lists_groups-inl.hpp"
#include "wire/codec_members-inl.hpp"

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
    X(SuspicionReport, SUSPICION_REPORT) \
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
    X(GroupDeparted, GROUP_DEPARTED) \
    X(GroupLeader, GROUP_LEADER) \
    X(CreateQuery, CREATE_QUERY) \
    X(CreateAnswer, CREATE_ANSWER)
// clang-format on

struct Filler {
    s::Message::Builder out;
#define X(Kind, TAG) \
    void operator()(const Kind& m) const { fill_struct(s::Message::Builder(out).init##Kind(), m); }
    NEXAR_WIRE_KINDS(X)
#undef X
};

Message read_union(Decoder& d, s::Message::Reader in) {
    switch (in.which()) {
#define X(Kind, TAG)                       \
    case s::Message::TAG: {                \
        Kind m;                            \
        read_struct(d, in.get##Kind(), m); \
        return m;                          \
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
    // The builder wants zeroes and leaves zeroes. A segment of its own for each message, 8 KiB from the heap,
    // took more time than all the rest of a small message's way to its stream.
    thread_local std::array<capnp::word, capnp::SUGGESTED_FIRST_SEGMENT_WORDS> first_segment{};
    capnp::MallocMessageBuilder builder(kj::arrayPtr(first_segment.data(), first_segment.size()));
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
