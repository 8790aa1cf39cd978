// The link's frames (daemon/link/frame.hpp) with every field under its name, so that a liar can set it.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "link/frame.hpp"

namespace nexar::hostile {

struct Field {
    const char* name;
    size_t offset, bytes;
};

// clang-format off
#define NEXAR_FIELD(Struct, field) {#field, offsetof(Struct, field), sizeof(Struct::field)}
inline const std::vector<Field> start_fields{
    NEXAR_FIELD(link::FrameStart, length), NEXAR_FIELD(link::FrameStart, kind),
    NEXAR_FIELD(link::FrameStart, header_words), NEXAR_FIELD(link::FrameStart, flags),
    NEXAR_FIELD(link::FrameStart, generation), NEXAR_FIELD(link::FrameStart, incarnation),
    NEXAR_FIELD(link::FrameStart, acks_seen)};
inline const std::vector<Field> key_fields{
    NEXAR_FIELD(link::WireKey, creator), {"key_incarnation", offsetof(link::WireKey, incarnation), 8},
    NEXAR_FIELD(link::WireKey, counter), NEXAR_FIELD(link::WireKey, op),
    NEXAR_FIELD(link::WireKey, epoch), NEXAR_FIELD(link::WireKey, phase)};
inline const std::vector<Field> data_fields{
    NEXAR_FIELD(link::DataFrame, plan_hash), NEXAR_FIELD(link::DataFrame, descriptor_hash),
    NEXAR_FIELD(link::DataFrame, bytes), NEXAR_FIELD(link::DataFrame, offset),
    NEXAR_FIELD(link::DataFrame, chunk), NEXAR_FIELD(link::DataFrame, chunk_bytes),
    NEXAR_FIELD(link::DataFrame, payload_bytes), NEXAR_FIELD(link::DataFrame, zero)};
inline const std::vector<Field> list_fields{
    NEXAR_FIELD(link::ListFrame, count), {"list_flags", offsetof(link::ListFrame, flags), 2},
    NEXAR_FIELD(link::ListFrame, entry_bytes)};
inline const std::vector<Field> range_fields{
    {"range_first", offsetof(link::RangeEntry, first), 4}, {"range_count", offsetof(link::RangeEntry, count), 4}};
inline const std::vector<Field> grant_fields{
    NEXAR_FIELD(link::GrantEntry, plan_hash), NEXAR_FIELD(link::GrantEntry, descriptor_hash),
    NEXAR_FIELD(link::GrantEntry, bytes), NEXAR_FIELD(link::GrantEntry, chunk_bytes),
    {"grant_flags", offsetof(link::GrantEntry, flags), 4},
    NEXAR_FIELD(link::GrantEntry, first_word), NEXAR_FIELD(link::GrantEntry, words)};
inline const std::vector<Field> entry_fields{
    NEXAR_FIELD(link::EntryFrame, number), {"entry_applied", offsetof(link::EntryFrame, applied), 8}};
inline const std::vector<Field> applied_fields{NEXAR_FIELD(link::AppliedFrame, applied)};
inline const std::vector<Field> resume_fields{
    NEXAR_FIELD(link::ResumeFrame, log_generation), {"resume_applied", offsetof(link::ResumeFrame, applied), 8}};
#undef NEXAR_FIELD
// clang-format on

inline size_t bytes_of(const std::vector<Field>& fields) {
    size_t n = 0;
    for (const Field& f : fields) n += f.bytes;
    return n;
}

// Which kinds there are: those that the rules do not call unknown, on some stream.
inline std::vector<link::FrameKind> frame_kinds() {
    std::vector<link::FrameKind> out;
    for (unsigned kind = 0; kind < 256; ++kind) {
        link::FrameStart start{};
        start.length = 1 << 16;
        start.kind = static_cast<uint8_t>(kind);
        const char* rule = link::broken_rule(start, Class::control, 1 << 20);
        if (rule == nullptr || std::string(rule) != "unknown frame kind")
            out.push_back(static_cast<link::FrameKind>(kind));
    }
    return out;
}

// One frame. Fields that are not named have the value that an honest sender would give; `length` and `count`
// follow from the rest. "entries" and "payload": how much lies behind the header.
class Frame {
  public:
    using Values = std::map<std::string, uint64_t>;

    // `honest`: generation, incarnation, and what is known of a transfer that the receiver waits for.
    Frame(link::FrameKind kind, const Values& honest, const Values& lies) : lies_(lies), values_(honest) {
        for (const auto& [name, value] : lies) values_[name] = value;
        using enum link::FrameKind;
        if (kind == message)
            bytes_.resize(sizeof(link::FrameStart) + size("payload", 0));
        else if (kind == data)
            data_frame();
        else if (kind == entry || kind == applied || kind == resume)
            log_frame(kind);
        else
            list_frame(kind);
        put_default("length", bytes_.size() - link::length_bytes);
        put_default("kind", static_cast<uint64_t>(kind));
        put_default("header_words", link::header_bytes_of(kind) / sizeof(uint64_t));
        put(start_fields, 0);
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    size_t size(const char* name, size_t otherwise) const {
        const auto at = values_.find(name);
        return at == values_.end() ? otherwise : std::min<size_t>(at->second, 1 << 20);
    }
    void put_default(const std::string& name, uint64_t value) {
        if (!lies_.contains(name)) values_[name] = value;
    }
    void put(const std::vector<Field>& fields, size_t at) {
        for (const Field& f : fields)
            if (const auto value = values_.find(f.name); value != values_.end())
                std::memcpy(bytes_.data() + at + f.offset, &value->second, f.bytes);
    }
    void data_frame() {
        const size_t payload = size("payload", 64);
        bytes_.assign(sizeof(link::DataFrame) + payload, std::byte{0x5a});
        std::memset(bytes_.data(), 0, sizeof(link::DataFrame));
        for (const char* name : {"bytes", "payload_bytes"})
            if (!values_.contains(name)) values_[name] = payload;
        if (!values_.contains("chunk_bytes")) values_["chunk_bytes"] = 4096;
        put(key_fields, offsetof(link::DataFrame, key));
        put(data_fields, 0);
    }
    void log_frame(link::FrameKind kind) {
        const bool is_entry = kind == link::FrameKind::entry;
        const bool is_resume = kind == link::FrameKind::resume;
        const size_t head = is_entry    ? sizeof(link::EntryFrame)
                            : is_resume ? sizeof(link::ResumeFrame)
                                        : sizeof(link::AppliedFrame);
        bytes_.assign(head + (is_entry ? size("payload", 64) : 0), std::byte{0});
        put(is_entry ? entry_fields : is_resume ? resume_fields : applied_fields, 0);
    }
    void list_frame(link::FrameKind kind) {
        const bool grant = kind == link::FrameKind::grant;
        const size_t entry = grant ? sizeof(link::GrantEntry) : sizeof(link::RangeEntry);
        const size_t entries = size("entries", 1);
        bytes_.resize(sizeof(link::ListFrame) + entry * std::min<size_t>(entries, 2000));
        put_default("count", entries);
        put_default("entry_bytes", entry);
        if (grant && !values_.contains("bytes")) values_["bytes"] = 4096;
        if (grant && !values_.contains("chunk_bytes")) values_["chunk_bytes"] = 4096;
        put(list_fields, 0);
        for (size_t at = sizeof(link::ListFrame); at < bytes_.size(); at += entry) {
            put(key_fields, at);
            put(grant ? grant_fields : range_fields, at);
        }
    }

    Values lies_, values_;
    std::vector<std::byte> bytes_;
};
// A field that is added there is to be lied about here.
inline bool tables_are_whole() {
    const size_t head = bytes_of(start_fields), key = bytes_of(key_fields), list = bytes_of(list_fields);
    return head == sizeof(link::FrameStart) && key == sizeof(link::WireKey) &&
           head + key + bytes_of(data_fields) == sizeof(link::DataFrame) &&
           head + list == sizeof(link::ListFrame) &&
           head + bytes_of(entry_fields) == sizeof(link::EntryFrame) &&
           head + bytes_of(applied_fields) == sizeof(link::AppliedFrame) &&
           head + bytes_of(resume_fields) == sizeof(link::ResumeFrame) &&
           key + bytes_of(range_fields) == sizeof(link::RangeEntry) &&
           key + bytes_of(grant_fields) == sizeof(link::GrantEntry);
}

inline uint64_t extreme(Random& random) {
    static constexpr uint64_t edges[] = {
        0,         1,     2,        7,        63,         64,         255,        4096,       4097,
        65535,     65536, 1u << 20, 1u << 31, UINT32_MAX, 1ull << 32, 1ull << 62, 1ull << 63, UINT64_MAX - 1,
        UINT64_MAX};
    return random.one_in(6) ? random.next() : edges[random.below(std::size(edges))];
}

struct FrameLie {
    Frame frame;
    std::string what;
};
inline FrameLie lie(link::FrameKind kind, const Frame::Values& honest, Random& random) {
    static const std::vector<const std::vector<Field>*> tables{
        &start_fields, &key_fields,   &data_fields,    &list_fields,  &range_fields,
        &grant_fields, &entry_fields, &applied_fields, &resume_fields};
    Frame::Values lies;
    std::string what = "frame of kind " + std::to_string(static_cast<unsigned>(kind));
    for (uint64_t n = random.below(3); n > 0; --n) {
        const std::vector<Field>& fields = *tables[random.below(tables.size())];
        const std::string name = fields[random.below(fields.size())].name;
        what += " " + name + "=" + std::to_string(lies[name] = extreme(random));
    }
    if (random.one_in(4)) lies["entries"] = random.below(700);
    if (random.one_in(4)) lies["payload"] = random.below(5000);
    return {Frame(kind, honest, lies), what};
}

}  // namespace nexar::hostile
