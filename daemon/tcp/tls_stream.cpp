// See tls_stream.hpp. RFC 8446.
#include "tcp/tls_stream.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>

#include "core/check.hpp"

namespace nexar::tcp {
namespace {

// One system call brings two records of 16,384 bytes and a short one. Of more the library would move what it
// has read ahead at each record, to align it.
constexpr size_t read_ahead_bytes = 33'000;
// AES-GCM may protect 2^24.5 records with one key (RFC 8446 §5.5).
constexpr uint64_t records_per_key = uint64_t{1} << 22;
constexpr size_t binding_bytes = 32;
// The peer's keys change at most once for so many bytes of records: many more than 2^22 of them need.
constexpr uint64_t bytes_per_key_update = 1u << 20;

// Each byte of a handshake may come in a record of its own. Most take less than 4 KiB in all, and a
// few calls.
constexpr size_t handshake_bytes_max = 16 * 1024, handshake_bytes_per_call = 2 * 1024;

// One system call takes three records of 16,384 bytes: the kernel makes one packet of what it is given at
// once, of up to 64 KiB with its headers, and its cost is the packet's. Of four it would make two.
constexpr size_t packet_bytes = 3 * 16 * 1024;

// SSL_get_error() asks for an empty queue. To see that it is empty costs less than to empty it.
void forget_errors() {
    if (ERR_peek_error() != 0) ERR_clear_error();
}

}  // namespace

struct TlsStream::Bio {
    static int write(BIO* bio, const char* data, size_t size, size_t* written) {
        auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
        *written = 0;
        if (!stream.broken_rule_.empty()) return 0;  // no answer to what must not be asked
        const Bytes bytes = std::as_bytes(std::span(data, size));
        *written = size;
        stream.append(bytes);
        if (stream.binding_.empty() || stream.wants_writable() || stream.unsent() < packet_bytes) return 1;
        if (stream.flush() != Step::failed) return 1;
        stream.wire_broken_ = true;
        return 0;
    }
    static int read(BIO* bio, char* into, size_t size, size_t* got) {
        auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
        BIO_clear_retry_flags(bio);
        *got = 0;
        const size_t most = stream.allowance(size);
        if (!stream.broken_rule_.empty()) return 0;
        if (most == 0) {  // the wire reports again what it still has
            BIO_set_retry_read(bio);
            return 0;
        }
        const auto moved = stream.wire().receive(std::as_writable_bytes(std::span(into, most)));
        *got = moved.bytes;
        stream.wire_bytes_ += moved.bytes;
        if (stream.binding_.empty()) stream.took_of_handshake(moved.bytes);
        if (moved.state == ByteWire::State::moved) return 1;
        if (moved.state == ByteWire::State::blocked) BIO_set_retry_read(bio);
        stream.wire_ended_ |= moved.state == ByteWire::State::ended;
        stream.wire_broken_ |= moved.state == ByteWire::State::broken;
        return 0;
    }
    static void message(int is_written, int, int content, const void* bytes, size_t size, SSL*,
                        void* stream) {
        if (is_written != 0 || content != SSL3_RT_HANDSHAKE || size == 0) return;
        auto& self = *static_cast<TlsStream*>(stream);
        self.on_message(MutableBytes(static_cast<std::byte*>(const_cast<void*>(bytes)), size));
        self.on_handshake_message(*static_cast<const uint8_t*>(bytes));
    }
    static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
    static int create(BIO* bio) {
        BIO_set_init(bio, 1);
        return 1;
    }
    static const BIO_METHOD* method() {
        static const BIO_METHOD* const made = [] {
            BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nexar wire");
            NEXAR_CHECK(m != nullptr && BIO_meth_set_write_ex(m, write) == 1 &&
                        BIO_meth_set_read_ex(m, read) == 1 && BIO_meth_set_ctrl(m, control) == 1 &&
                        BIO_meth_set_create(m, create) == 1);
            return m;
        }();
        return made;
    }
};

TlsStream::TlsStream(ByteWire& wire, std::shared_ptr<quic::TlsContext> context, bool dials,
                     std::optional<NodeId> expected)
    : Stream(wire), quic::TlsPeer(std::move(context), dials ? std::string(alpn_bulk) : "", expected) {
    if (!ssl()) return;
    BIO* bio = BIO_new(Bio::method());
    NEXAR_CHECK(bio != nullptr);
    BIO_set_data(bio, this);
    SSL_set_bio(ssl(), bio, bio);
    SSL_set_read_ahead(ssl(), 1);
    SSL_set_default_read_buffer_len(ssl(), read_ahead_bytes);
    SSL_set_msg_callback(ssl(), Bio::message);  // in place of the context's, whose work it does as well
    SSL_set_msg_callback_arg(ssl(), this);
    SSL_set_options(ssl(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
}

size_t TlsStream::allowance(size_t bytes) {
    if (!binding_.empty()) return allowed(bytes);
    if (handshake_bytes_ >= handshake_bytes_max) broken_rule_ = "TLS: the peer's handshake is too long";
    return std::min(bytes, handshake_bytes_left_);
}

void TlsStream::took_of_handshake(size_t bytes) {
    handshake_bytes_ += bytes;
    handshake_bytes_left_ -= bytes;
}

void TlsStream::on_handshake_message(uint8_t type) {
    if (type == SSL3_MT_NEWSESSION_TICKET) broken_rule_ = "TLS: the peer sends session tickets";
    if (type == SSL3_MT_KEY_UPDATE && ++key_updates_ > received_ / bytes_per_key_update)
        broken_rule_ = "TLS: the peer changes its keys too often";
}

Stream::Step TlsStream::failed() {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    if (!broken_rule_.empty()) return fail(broken_rule_);
    if (!refusal().empty()) return fail(refusal());
    if (wire_broken_) return fail(wire().why());
    if (wire_ended_) return fail("the peer ended the connection without a close");
    const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
    return fail(std::string("TLS: ") + (reason ? reason : "unknown error"));
}

Stream::Step TlsStream::open() {
    if (!ssl()) return fail("the TLS library has no memory");
    handshake_bytes_left_ = handshake_bytes_per_call;
    forget_errors();
    const int done = SSL_do_handshake(ssl());
    const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl(), done);
    if (flush() == Step::failed) return Step::failed;
    if (error == SSL_ERROR_WANT_READ) return Step::blocked;
    if (error != SSL_ERROR_NONE) return failed();
    if (const auto why = objection()) return fail(*why);
    auto bytes = export_keying_material("EXPORTER-nexar-bulk-binding", {}, binding_bytes);
    if (!bytes) return fail("TLS: the library exports no key");
    binding_ = std::move(*bytes);
    return Step::done;
}

Stream::Step TlsStream::read(MutableBytes into, size_t& filled) {
    for (unsigned reads = 0; filled < into.size() && reads < short_reads_max; ++reads) {
        size_t got = 0;
        forget_errors();
        if (SSL_read_ex(ssl(), into.data() + filled, into.size() - filled, &got) == 1) {
            filled += got;
            received_ += got;
            if (!broken_rule_.empty()) return failed();
            if (filled < into.size()) ++short_reads_;
            continue;
        }
        const int error = SSL_get_error(ssl(), 0);
        if (error == SSL_ERROR_WANT_READ) return Step::blocked;
        if (error == SSL_ERROR_ZERO_RETURN) return fail("the peer ended the connection without a close");
        return failed();
    }
    return Step::done;
}

Stream::Step TlsStream::write(Bytes record) {
    size_t written = 0;
    forget_errors();
    if (++records_ % records_per_key == 0) SSL_key_update(ssl(), SSL_KEY_UPDATE_NOT_REQUESTED);
    // The wire's side is memory, so all of it is taken.
    if (SSL_write_ex(ssl(), record.data(), record.size(), &written) != 1 || written != record.size())
        return failed();
    if (wants_writable()) return Step::blocked;
    return takes_more() ? Step::done : flush();
}

}  // namespace nexar::tcp
