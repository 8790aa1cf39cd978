// One TCP connection to a peer's shard: the attach, then four ordered byte streams in each direction, one per
// class (docs/protocol/tcp.md). Dry: it reads and writes a ByteWire when its owner says that this may help,
// and has no clock.
//
//     securing ──stream open──▶ attaching ──both proofs──▶ open ──close, end of the peer, rule broken──▶
//     ended
//
// Nothing here calls back but the Receiver, from inside of on_readable() and set_receiver().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "core/time.hpp"
#include "tcp/attach.hpp"
#include "tcp/records.hpp"
#include "tcp/stream.hpp"

namespace nexar::tcp {

// Codes below 16 are this module's; from 16 on its users' (docs/protocol/tcp.md, "Ends").
enum class CloseCode : uint64_t {
    none = 0,
    bad_record = 1,
    send_overflow = 2,
    shutting_down = 3,
    certificate_ended = 4,
    not_attached = 6,  // a proof is wrong, or names what is not known here
    too_late = 7,      // not attached in time
};

class ByteReceiver {
  public:
    virtual void on_bytes(Class cls, Bytes bytes) = 0;
    // Where the next bytes of the class belong; empty: on_bytes() takes them. Used at once, or not.
    virtual MutableBytes place(Class) { return {}; }
    virtual void placed(Class, size_t) {}

  protected:
    ~ByteReceiver() = default;
};

struct Ended {
    uint64_t code = 0;
    std::string cause;   // "closed by the peer"
    std::string reason;  // as it was given to close(), by the peer or here
    bool by_peer = false;
    bool is_ours = false;  // ended here: the peer is notified
};

// What all connections of one thread share.
struct Shared {
    RecordPool pool;
    // Of one call each. Two, since the receiver may write while it takes what was read.
    std::array<std::byte, tls_record_max> read_scratch, write_scratch;
    std::array<std::byte, plain_record_max> plain_scratch;  // of what is written without TLS
    NodeId self;
    Incarnation incarnation;
    uint16_t shard = 0;
    bool reads_far = false;  // what comes is short messages: Stream::read_further()
    const KeyRing* keys = nullptr;
    std::function<void(MutableBytes)> random;
    // Per class: what write() may have that is not sent.
    std::array<size_t, class_count> send_buffer_max = {4u << 20, 1u << 20, 1u << 20, 768u << 10};
};

class Connection {
  public:
    static constexpr unsigned starving_records = 64;
    static constexpr size_t held_bytes_max = 1u << 20;
    // A write of so many bytes is encrypted where it is, if nothing waits: it is not copied into records.
    static constexpr size_t direct_bytes_min = 4096;
    static constexpr size_t direct_bytes_per_turn = 512 * 1024;
    static constexpr size_t close_reason_bytes_max = 256;

    struct Dial {
        NodeId node;
        Mode mode = Mode::tls;
    };
    // `dial` none: the accepting side.
    Connection(Shared& shared, std::unique_ptr<Stream> stream, Mode mode, std::optional<Dial> dial);
    ~Connection();
    Connection(const Connection&) = delete;

    bool is_open() const { return state_ == State::open; }
    bool waits_for_key() const { return pending_hello_.has_value(); }
    bool waits_for_answer() const { return dial_ && state_ == State::attaching; }  // to its hello
    const std::optional<Ended>& ended() const { return ended_; }
    const NodeId& peer() const { return peer_; }  // when open
    Mode mode() const { return mode_; }
    std::optional<WallSeconds> peer_valid_until() const { return stream_->peer_valid_until(); }

    // Input. Reads until nothing is there, or `quantum` bytes. True: there may be more, and the wire does not
    // report it again.
    bool on_readable(Time now, size_t quantum);
    void on_broken() { lost("the connection broke"); }  // the wire reports nothing else any more
    void on_keys(Time now);  // the ring has others; only a connection that waits_for_key() asks again
    // Encrypts and sends, the most urgent class first, about `quantum` bytes. True: there is more to send and
    // the wire accepts it.
    bool flush(Time now, size_t quantum);
    bool wants_writable() const { return stream_->wants_writable(); }
    size_t stream_buffer_bytes() const { return stream_->buffer_bytes(); }
    bool wants_readable() const { return !ended_ && !reading_waits(); }
    bool has_unsent() const;
    // Something was written past the queues since flush(): there may be room now.
    bool wrote_directly() const { return direct_bytes_ > 0; }
    // What one write() has is encrypted at once, and what is more urgent waits behind it: for links where
    // that takes no time. Otherwise it waits in records, and only what the wire takes is encrypted.
    void allow_direct(bool allowed) { allows_direct_ = allowed; }
    Time ack_at() const { return ack_at_; }  // flush() is to be called by then

    size_t room(Class cls) const;
    void write(Class cls, std::span<const Bytes> parts);
    uint64_t written(Class cls) const { return written_[index_of(cls)]; }
    uint64_t acknowledged(Class cls) const { return acknowledged_[index_of(cls)]; }
    void set_receiver(ByteReceiver* receiver) { receiver_ = receiver; }
    void hold_credit(bool held);
    void close(uint64_t code, const std::string& reason);
    // Ended, and the peer was notified as far as the wire took it.
    bool is_done() const { return ended_ && !has_unsent(); }
    uint64_t received_bytes() const { return received_bytes_; }
    // What reading has cost so far, and writing, in bytes that came, or left.
    uint64_t read_work() const {
        return stream_->wire_bytes() + record_cost * (records_ + stream_->short_reads());
    }
    uint64_t write_work() const { return write_work_; }

  private:
    // What a record costs beyond its bytes, as bytes: a turn reads so many fewer of small ones [B9].
    static constexpr uint64_t record_cost = 256;

    enum class State : uint8_t { securing, attaching, open };
    struct Incoming {                        // without TLS: what is not checked yet waits here
        std::unique_ptr<std::byte[]> stage;  // only while a write is incomplete
        size_t bytes = 0;
    };

    bool reading_waits() const;
    void secure();
    bool read_record(Time now);
    bool read_head();
    bool read_payload();
    bool read_class_payload(Time now);
    MutableBytes payload_place();
    void on_payload(Time now);
    void on_class_payload(Time now);
    void on_record(Bytes payload);
    void on_acknowledge(Bytes payload);
    void on_close(Bytes payload);
    void on_hello(const Hello& hello);
    void on_answer(const Answer& answer);
    void on_proof(const Proof& proof);
    void answer_hello();
    void opened();
    bool checksum_agrees();
    void deliver(Class cls);
    void note_received(Class cls, size_t bytes, Time now);

    void say_hello();
    void queue_record(RecordKind kind, Bytes payload);
    void queue_acknowledge();
    RecordQueue* pick();
    bool write_record(RecordQueue& queue);
    bool may_write_directly(size_t bytes);
    void write_directly(Class cls, std::span<const Bytes> parts, size_t bytes);
    Stream::Step encrypt_whole(Class cls, std::span<const Bytes> parts, size_t bytes);
    Stream::Step send_checked(Class cls, std::span<const Bytes> parts);
    enum class Sent : uint8_t { all, blocked, more };
    Sent send_queued(size_t quantum);
    void fail(CloseCode code, std::string reason, const char* cause);
    void lost(std::string why);
    void end(Ended ended);

    Shared* shared_;
    std::unique_ptr<Stream> stream_;
    Mode mode_;
    std::optional<Dial> dial_;
    State state_ = State::securing;
    std::optional<Ended> ended_;
    NodeId peer_;

    AttachTerms terms_;
    std::optional<Hello> pending_hello_;  // its key is not known yet
    std::optional<AttachKey> key_;
    bool answered_ = false;

    RecordHead head_{};
    size_t head_bytes_ = 0;     // of head_, read so far
    size_t payload_bytes_ = 0;  // of the record's payload
    std::array<std::byte, control_payload_max> control_{};
    std::array<std::byte, checksum_bytes> checksum_{};
    size_t checksum_bytes_ = 0;
    std::array<Incoming, class_count> in_;
    ByteReceiver* receiver_ = nullptr;
    bool credit_held_ = false;
    uint64_t held_from_ = 0;  // received_bytes_ when the hold began
    uint64_t received_bytes_ = 0;
    std::array<uint64_t, class_count> received_{}, reported_{};
    Time ack_at_ = never;
    bool ack_due_ = false;  // to be queued when the wire takes more
    uint64_t records_ = 0;  // of this framing, that were begun to be read
    uint64_t write_work_ = 0;
    uint64_t until_ = 0;  // read_work() when the turn ends

    RecordQueue control_out_;  // what is no class: before all others
    std::array<RecordQueue, class_count> out_;
    std::array<unsigned, class_count> passed_over_{};
    std::array<uint64_t, class_count> written_{}, acknowledged_{};
    bool allows_direct_ = false;
    size_t direct_bytes_ = 0;  // since flush()
};

}  // namespace nexar::tcp
