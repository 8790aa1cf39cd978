// See connection.hpp.
#include "tcp/connection.hpp"

#include <algorithm>
#include <numeric>

#include "core/check.hpp"
#include "core/secret.hpp"
#include "tcp/crc32c.hpp"

namespace nexar::tcp {
namespace {

// The peer's writer learns how much has come: at once for so many bytes, else after so long.
constexpr uint64_t ack_bytes = 256 * 1024;
constexpr Duration ack_delay{5'000'000};

// The first bytes of a class's record are read by themselves: a frame's header is no longer. Of a record that
// is hardly longer, all.
constexpr size_t first_bytes = 128;
constexpr size_t whole_bytes_max = 2048;

constexpr const char* by_peer = "closed by the peer";
constexpr const char* here = "closed here";

}  // namespace

Connection::Connection(Shared& shared, std::unique_ptr<Stream> stream, Mode mode, std::optional<Dial> dial)
    : shared_(&shared), stream_(std::move(stream)), mode_(mode), dial_(dial) {}

Connection::~Connection() {
    if (key_) wipe(MutableBytes(*key_));
}

// ---- Reading

// Before it is accepted a peer fills no more than this; without a receiver its bytes wait in the kernel.
bool Connection::reading_waits() const {
    if (state_ != State::open) return waits_for_key();
    return !receiver_ || (credit_held_ && received_bytes_ - held_from_ >= held_bytes_max);
}

bool Connection::on_readable(Time now, size_t quantum) {
    if (state_ == State::securing) secure();
    until_ = read_work() + quantum;
    stream_->allow(quantum + whole_payload_max);
    while (wants_readable() && state_ != State::securing) {
        if (read_work() >= until_) return true;
        if (!read_record(now)) break;
    }
    return wants_readable() && state_ != State::securing && stream_->is_held();
}

void Connection::secure() {
    const Stream::Step step = stream_->open();
    if (step == Stream::Step::failed) return lost(stream_->why());
    if (step == Stream::Step::blocked) return;
    state_ = State::attaching;
    if (dial_) say_hello();
}

// True: a record, or a part of one, was read.
bool Connection::read_record(Time now) {
    if (head_bytes_ < sizeof head_ && !read_head()) return false;
    while (payload_bytes_ < head_.bytes) {
        if (read_work() >= until_ + whole_payload_max) return true;  // it costs much more than its bytes
        const size_t before = payload_bytes_;
        const bool goes_on =
            mode_ == Mode::tls && is_class(head_.kind) ? read_class_payload(now) : read_payload();
        received_bytes_ += payload_bytes_ - before;
        if (!goes_on) return false;
    }
    if (mode_ == Mode::plain && !checksum_agrees()) return false;
    on_payload(now);
    return true;
}

// False: no more is there, or the connection has ended.
bool Connection::read_payload() {
    size_t filled = 0;
    const Stream::Step step = stream_->read(payload_place(), filled);
    payload_bytes_ += filled;
    if (is_class(head_.kind)) in_[head_.kind].bytes += filled;
    if (step == Stream::Step::failed) return lost(stream_->why()), false;
    return step == Stream::Step::done;
}

// Every byte is authentic: it goes where it belongs, or to the receiver, as it comes.
bool Connection::read_class_payload(Time now) {
    const auto cls = static_cast<Class>(head_.kind);
    const size_t left = head_.bytes - payload_bytes_;
    MutableBytes into = receiver_->place(cls);
    const bool is_placed = !into.empty();
    // First what the receiver needs to name the place of the rest, unless that is little.
    const size_t most =
        payload_bytes_ == 0 && left > whole_bytes_max ? first_bytes : shared_->read_scratch.size();
    if (!is_placed)
        into = MutableBytes(shared_->read_scratch).first(std::min(most, shared_->read_scratch.size()));
    size_t filled = 0;
    const Stream::Step step = stream_->read(into.first(std::min(into.size(), left)), filled);
    payload_bytes_ += filled;
    if (filled > 0) note_received(cls, filled, now);
    if (is_placed && filled > 0)
        receiver_->placed(cls, filled);
    else if (filled > 0)
        receiver_->on_bytes(cls, into.first(filled));
    if (ended_) return false;  // by the receiver
    if (step == Stream::Step::failed) return lost(stream_->why()), false;
    return step == Stream::Step::done && wants_readable();
}

bool Connection::read_head() {
    const Stream::Step step = stream_->read(std::as_writable_bytes(std::span(&head_, 1)), head_bytes_);
    if (step == Stream::Step::failed) return lost(stream_->why()), false;
    if (step == Stream::Step::blocked) return false;
    payload_bytes_ = 0;
    checksum_bytes_ = 0;
    ++records_;
    const char* rule = broken_rule(head_, mode_ == Mode::tls ? whole_payload_max : plain_payload_max);
    if (!rule && is_class(head_.kind) && state_ != State::open) rule = "data before the attach";
    if (rule) return fail(CloseCode::bad_record, rule, here), false;
    if (!is_class(head_.kind) || mode_ == Mode::tls) return true;
    Incoming& in = in_[head_.kind];
    if (in.stage && in.bytes + head_.bytes > RecordPool::stage_bytes) deliver(static_cast<Class>(head_.kind));
    if (!in.stage) in.stage = shared_->pool.take_stage();
    return !ended_;
}

MutableBytes Connection::payload_place() {
    const size_t left = head_.bytes - payload_bytes_;
    if (!is_class(head_.kind)) return MutableBytes(control_).subspan(payload_bytes_, left);
    Incoming& in = in_[head_.kind];
    return {in.stage.get() + in.bytes, left};
}

// What a path has broken must not be combined.
bool Connection::checksum_agrees() {
    const Stream::Step step = stream_->read(MutableBytes(checksum_), checksum_bytes_);
    if (step == Stream::Step::failed) return lost(stream_->why()), false;
    if (step == Stream::Step::blocked) return false;
    const Bytes payload =
        is_class(head_.kind)
            ? Bytes(in_[head_.kind].stage.get() + in_[head_.kind].bytes - head_.bytes, head_.bytes)
            : Bytes(control_).first(head_.bytes);
    const uint32_t right = crc32c(payload, crc32c(std::as_bytes(std::span(&head_, 1))));
    if (std::memcmp(&right, checksum_.data(), sizeof right) == 0) return true;
    return fail(CloseCode::bad_record, "a record whose checksum is wrong", here), false;
}

void Connection::on_payload(Time now) {
    head_bytes_ = 0;
    if (is_class(head_.kind)) return on_class_payload(now);
    on_record(Bytes(control_).first(head_.bytes));
}

void Connection::on_class_payload(Time now) {
    if (mode_ == Mode::tls) return;  // its bytes went on as they came
    const auto cls = static_cast<Class>(head_.kind);
    note_received(cls, head_.bytes, now);
    if ((head_.flags & record_ends_write) != 0) deliver(cls);
}

void Connection::deliver(Class cls) {
    Incoming& in = in_[index_of(cls)];
    auto stage = std::move(in.stage);
    const size_t bytes = std::exchange(in.bytes, 0);
    if (receiver_) receiver_->on_bytes(cls, {stage.get(), bytes});
    shared_->pool.give_stage(std::move(stage));
}

void Connection::note_received(Class cls, size_t bytes, Time now) {
    received_[index_of(cls)] += bytes;
    const uint64_t unreported =
        std::reduce(received_.begin(), received_.end()) - std::reduce(reported_.begin(), reported_.end());
    ack_at_ = unreported >= ack_bytes ? now : std::min(ack_at_, now + ack_delay);
}

void Connection::hold_credit(bool held) {
    if (held && !credit_held_) held_from_ = received_bytes_;
    credit_held_ = held;
}

// ---- Records that are no class's

void Connection::on_record(Bytes payload) {
    const auto kind = static_cast<RecordKind>(head_.kind);
    if (kind == RecordKind::close) return on_close(payload);
    if (kind == RecordKind::acknowledge && state_ == State::open) return on_acknowledge(payload);
    if (state_ == State::attaching && !dial_ && kind == RecordKind::hello && !answered_) {
        if (auto hello = read_hello(payload); hello)
            return on_hello(*hello);
        else
            return fail(CloseCode::not_attached, hello.error().text, here);
    }
    if (state_ == State::attaching && dial_ && kind == RecordKind::answer) {
        if (auto answer = read_answer(payload); answer) return on_answer(*answer);
    } else if (state_ == State::attaching && !dial_ && kind == RecordKind::proof && answered_) {
        if (auto proof = read_proof(payload); proof) return on_proof(*proof);
    }
    fail(CloseCode::bad_record, "a record that has no place here", here);
}

void Connection::on_acknowledge(Bytes payload) {
    std::array<uint64_t, class_count> come{};
    if (payload.size() != sizeof come)
        return fail(CloseCode::bad_record, "an acknowledgement of a wrong size", here);
    std::memcpy(come.data(), payload.data(), sizeof come);
    for (size_t c = 0; c < class_count; ++c) {
        const uint64_t left = written_[c] - out_[c].bytes();  // what is queued has not left
        if (come[c] > left || come[c] < acknowledged_[c])
            return fail(CloseCode::bad_record, "an acknowledgement of what was not sent", here);
        acknowledged_[c] = come[c];
    }
}

void Connection::on_close(Bytes payload) {
    Reader r(payload);
    const auto code = r.get<uint64_t>();
    if (r.failed() || r.left() > close_reason_bytes_max)
        return fail(CloseCode::bad_record, "a close of a wrong size", here);
    const Bytes text = r.take(r.left());
    end({code, by_peer, std::string(reinterpret_cast<const char*>(text.data()), text.size()),
         code >= 16 && state_ == State::open});
}

void Connection::queue_record(RecordKind kind, Bytes payload) {
    control_out_.append(static_cast<uint8_t>(kind), std::span(&payload, 1), control_payload_max,
                        shared_->pool);
}

void Connection::queue_acknowledge() {
    reported_ = received_;
    ack_due_ = false;
    queue_record(RecordKind::acknowledge, std::as_bytes(std::span(reported_)));
}

// ---- Ends

void Connection::end(Ended ended) {
    if (ended_) return;
    ended_ = std::move(ended);
    for (RecordQueue& queue : out_) queue.clear();
    ack_at_ = never;
    ack_due_ = false;
}

void Connection::lost(std::string why) {
    end({0, state_ == State::open ? "connection lost" : "not connected", std::move(why), false});
}

void Connection::fail(CloseCode code, std::string reason, const char* cause) {
    if (ended_) return;
    close(static_cast<uint64_t>(code), reason);
    ended_->cause = cause;
}

void Connection::close(uint64_t code, const std::string& reason) {
    if (ended_) return;
    const std::string text = reason.substr(0, close_reason_bytes_max);
    end({code, here, text, false, true});
    if (state_ == State::securing) return;  // nothing can be sent yet
    std::vector<std::byte> payload;
    Writer w(payload);
    w.put(code);
    w.put_bytes(std::as_bytes(std::span(text)));
    queue_record(RecordKind::close, payload);
}

// ---- Writing

size_t Connection::room(Class cls) const {
    if (ended_ || state_ != State::open) return 0;
    // What need not be copied into a queue waits where it is.
    if (allows_direct_ && cls != Class::control &&
        (direct_bytes_ >= direct_bytes_per_turn || stream_->wants_writable()))
        return 0;
    const size_t max = shared_->send_buffer_max[index_of(cls)], used = out_[index_of(cls)].bytes();
    return max - std::min(max, used);
}

void Connection::write(Class cls, std::span<const Bytes> parts) {
    if (ended_ || state_ != State::open) return;
    size_t bytes = 0;
    for (const Bytes part : parts) bytes += part.size();
    if (may_write_directly(bytes)) return write_directly(cls, parts, bytes);
    if (ended_) return;  // by what was to leave before it
    RecordQueue& queue = out_[index_of(cls)];
    const size_t before = queue.bytes();
    queue.append(static_cast<uint8_t>(cls), parts, mode_ == Mode::tls ? tls_payload_max : plain_payload_sent,
                 shared_->pool);
    written_[index_of(cls)] += queue.bytes() - before;
    if (queue.bytes() > shared_->send_buffer_max[index_of(cls)])
        fail(CloseCode::send_overflow, "the peer does not read what it is sent", here);
}

bool Connection::has_unsent() const {
    return stream_->wants_writable() || !control_out_.empty() ||
           std::ranges::any_of(out_, [](const RecordQueue& q) { return !q.empty(); });
}

// The most urgent class, unless a lower one was passed over for too long.
RecordQueue* Connection::pick() {
    if (!control_out_.empty()) return &control_out_;
    RecordQueue* first = nullptr;
    for (size_t c = 0; c < class_count; ++c) {
        if (out_[c].empty()) continue;
        if (!first) {
            first = &out_[c];
            passed_over_[c] = 0;
        } else if (++passed_over_[c] > starving_records) {
            passed_over_[c] = 0;
            return &out_[c];
        }
    }
    return first;
}

bool Connection::write_record(RecordQueue& queue) {
    RecordQueue::Record record = queue.take();
    write_work_ += record.used;
    if (mode_ == Mode::plain) {
        const uint32_t checksum = crc32c({record.bytes.get(), record.used});
        std::memcpy(record.bytes.get() + record.used, &checksum, sizeof checksum);
        record.used += sizeof checksum;
    }
    const Stream::Step step = stream_->write({record.bytes.get(), record.used});
    shared_->pool.give(std::move(record));
    if (step == Stream::Step::failed) lost(stream_->why());
    return step == Stream::Step::done;
}

// The most urgent class first.
Connection::Sent Connection::send_queued(size_t quantum) {
    size_t sent = 0;
    while (RecordQueue* queue = pick()) {
        if (sent >= quantum) return Sent::more;
        sent += queue->front().used;
        if (write_record(*queue)) continue;
        if (!stream_->wants_writable()) control_out_.clear();
        return Sent::blocked;
    }
    return Sent::all;
}

bool Connection::flush(Time now, size_t quantum) {
    direct_bytes_ = 0;
    if (state_ == State::securing) {
        if (!ended_ && stream_->flush() == Stream::Step::failed) lost(stream_->why());
        return false;
    }
    if (ack_at_ <= now) {
        ack_at_ = never;
        ack_due_ = true;
    }
    if (stream_->wants_writable() && stream_->flush() != Stream::Step::done) {
        if (!stream_->wants_writable()) lost(stream_->why());
        return false;
    }
    do {
        // One at a time, of what has come until it leaves: a peer that does not read gets no queue of them.
        if (ack_due_ && !ended_ && control_out_.empty()) queue_acknowledge();
        const Sent sent = send_queued(quantum);
        if (sent != Sent::all) return sent == Sent::more;
    } while (ack_due_ && !ended_);
    if (stream_->flush() == Stream::Step::failed) {
        lost(stream_->why());
        control_out_.clear();
    }
    return false;
}

}  // namespace nexar::tcp
