// See records.hpp.
#include "tcp/records.hpp"

#include <algorithm>

#include "tcp/parts_reader.hpp"

namespace nexar::tcp {

const char* broken_rule(const RecordHead& head, size_t payload_max) {
    const bool control = head.kind >= static_cast<uint8_t>(RecordKind::acknowledge) &&
                         head.kind <= static_cast<uint8_t>(RecordKind::close);
    const bool attach = head.kind >= static_cast<uint8_t>(RecordKind::hello) &&
                        head.kind <= static_cast<uint8_t>(RecordKind::proof);
    if (!is_class(head.kind) && !control && !attach) return "a record of an unknown kind";
    if ((head.flags & ~record_ends_write) != 0 || head.reserved != 0) return "a record with unknown flags";
    if (head.bytes > (is_class(head.kind) ? payload_max : control_payload_max))
        return "a record that is too long";
    if (is_class(head.kind) && head.bytes == 0) return "an empty record";
    return nullptr;
}

// Small writes share a record, so that a queue's memory is at most twice its bytes.
bool RecordQueue::extend(uint8_t kind, std::span<const Bytes> parts, size_t payload_max) {
    if (records_.empty() || !is_class(kind)) return false;
    Record& last = records_.back();
    RecordHead head = last.head();
    PartsReader reader(parts);
    const size_t more = reader.left();
    if (head.kind != kind || more > small_write_max || head.bytes + more > payload_max) return false;
    reader.read(last.bytes.get() + last.used, more);
    head.bytes += static_cast<uint32_t>(more);
    last.used += static_cast<uint32_t>(more);
    std::memcpy(last.bytes.get(), &head, sizeof head);
    bytes_ += more;
    return true;
}

void RecordQueue::append(uint8_t kind, std::span<const Bytes> parts, size_t payload_max, RecordPool& pool) {
    if (extend(kind, parts, payload_max)) return;
    PartsReader reader(parts);
    bytes_ += reader.left();
    while (reader.left() > 0) {
        const size_t payload = std::min(reader.left(), payload_max);
        Record record = pool.take(payload_max);
        record.used = static_cast<uint32_t>(sizeof(RecordHead) + payload);
        const uint8_t flags = payload == reader.left() ? record_ends_write : uint8_t{0};
        const RecordHead head{kind, flags, 0, static_cast<uint32_t>(payload)};
        std::memcpy(record.bytes.get(), &head, sizeof head);
        reader.read(record.bytes.get() + sizeof head, payload);
        records_.push_back(std::move(record));
    }
}

RecordQueue::Record RecordQueue::take() {
    Record front = std::move(records_.front());
    records_.pop_front();
    bytes_ -= front.payload().size();
    return front;
}

void RecordQueue::clear() {
    records_.clear();
    bytes_ = 0;
}

std::unique_ptr<std::byte[]> RecordPool::take_from(Buffers& from, size_t bytes) {
    if (from.empty()) return std::make_unique_for_overwrite<std::byte[]>(bytes);
    auto out = std::move(from.back());
    from.pop_back();
    return out;
}

void RecordPool::give_to(Buffers& to, std::unique_ptr<std::byte[]> buffer) {
    if (buffer && to.size() < kept_max) to.push_back(std::move(buffer));
}

}  // namespace nexar::tcp
