// The limit of quic_bench: the same bytes over one connection of plain ngtcp2, over the same loopback, with
// the same cipher, limits, timers and congestion control as daemon/quic/config.hpp. Two threads, each with
// its own socket and CPU clock; one unidirectional stream, nothing of nexar.
//
//   raw_ngtcp2 [GiB per run = 1] [runs = 5]
//
// Prints the lines of quic_bench. Writes of 256 KiB are copied into the send buffer, which holds them until
// they are acknowledged (UNCOPIED in the environment: the buffer sends what it began with); the receiver
// copies what it gets once. PIN: as in quic_bench.
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_ossl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bench_thread.hpp"
#include "raw_udp.hpp"

using namespace raw;

namespace {

constexpr size_t piece_bytes = 256u << 10, send_buffer_bytes = 2u << 20;
constexpr uint64_t stream_window = 4u << 20, connection_window = 8u << 20;
constexpr size_t batch_bytes_max = 65507, batch_packets_max = 64, batches_per_turn = 4;
constexpr uint16_t path_probes[] = {1452, 4000, 8952, 16000, 32700, 65507};
constexpr uint8_t alpn[] = {3, 'r', 'a', 'w'};
constexpr uint64_t code_done = 20;

void check_ngtcp2(ngtcp2_ssize result, const char* what) {
    check(result >= 0, what, ngtcp2_strerror(static_cast<int>(result)));
}

void random_bytes(uint8_t* into, size_t bytes) {
    check(RAND_bytes(into, static_cast<int>(bytes)) == 1, "random bytes");
}
ngtcp2_cid random_id(size_t bytes) {
    ngtcp2_cid id{};
    id.datalen = bytes;
    random_bytes(id.data, bytes);
    return id;
}

// ---- TLS 1.3 with AES-128-GCM; only the server has a certificate, and the client does not look at it.

void make_certificate(SSL_CTX* ctx) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    check(X509_sign(certificate, key, EVP_sha256()) > 0, "certificate");
    check(SSL_CTX_use_certificate(ctx, certificate) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1,
          "identity");
    X509_free(certificate);
    EVP_PKEY_free(key);
}

class Tls {
  public:
    Tls(bool server, ngtcp2_conn*& conn)
        : ctx_(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method())), conn_(conn) {
        SSL_CTX_set_min_proto_version(ctx_, TLS1_3_VERSION);
        check(SSL_CTX_set_ciphersuites(ctx_, "TLS_AES_128_GCM_SHA256") == 1, "cipher suite");
        SSL_CTX_set_num_tickets(ctx_, 0);
        if (server) make_certificate(ctx_);
        SSL_CTX_set_alpn_select_cb(ctx_, select, nullptr);
        ssl_ = SSL_new(ctx_);
        SSL_set_app_data(ssl_, &ref_);
        if (server)
            SSL_set_accept_state(ssl_);
        else
            SSL_set_connect_state(ssl_);
        check(server || SSL_set_alpn_protos(ssl_, alpn, sizeof alpn) == 0, "ALPN");
        const int failed = server ? ngtcp2_crypto_ossl_configure_server_session(ssl_)
                                  : ngtcp2_crypto_ossl_configure_client_session(ssl_);
        check(failed == 0 && ngtcp2_crypto_ossl_ctx_new(&glue, ssl_) == 0, "TLS session");
    }
    ~Tls() {
        if (conn_) ngtcp2_conn_del(conn_);
        SSL_set_app_data(ssl_, nullptr);
        SSL_free(ssl_);
        ngtcp2_crypto_ossl_ctx_del(glue);
        SSL_CTX_free(ctx_);
    }
    Tls(const Tls&) = delete;

    ngtcp2_crypto_ossl_ctx* glue = nullptr;

  private:
    static int select(SSL*, const uint8_t** out, uint8_t* size, const uint8_t*, unsigned, void*) {
        *out = alpn + 1;
        *size = alpn[0];
        return SSL_TLSEXT_ERR_OK;
    }

    SSL_CTX* ctx_;
    SSL* ssl_ = nullptr;
    ngtcp2_conn*& conn_;
    ngtcp2_crypto_conn_ref ref_{
        [](ngtcp2_crypto_conn_ref* r) { return static_cast<Tls*>(r->user_data)->conn_; }, this};
};

// What is written and not acknowledged.
struct SendBuffer {
    std::vector<uint8_t> memory = std::vector<uint8_t>(send_buffer_bytes, 42);
    uint64_t acked = 0, sent = 0, end = 0;  // offsets in the stream
    const bool copies = std::getenv("UNCOPIED") == nullptr;

    size_t room() const { return memory.size() - (end - acked); }
    void write(const std::vector<uint8_t>& piece) {  // pieces fill the memory evenly
        if (copies) std::memcpy(memory.data() + end % memory.size(), piece.data(), piece.size());
        end += piece.size();
    }
    size_t next(ngtcp2_vec (&parts)[2]) {
        const size_t at = sent % memory.size(), most = memory.size() - at, bytes = end - sent;
        parts[0] = {memory.data() + at, std::min(bytes, most)};
        parts[1] = {memory.data(), bytes - parts[0].len};
        return (parts[0].len > 0) + (parts[1].len > 0);
    }
};

// ---- One end of the connection.

class End {
  public:
    // A server's connection begins with the client's first datagram.
    End(bool server, size_t payload_max) : payload_max_(payload_max), tls_(server, conn_) {}
    void connect(const sockaddr_in& to) {
        udp.remote = to;
        const ngtcp2_cid theirs = random_id(18), own = random_id(id_bytes);
        const ngtcp2_settings s = settings(clock_now());
        const ngtcp2_transport_params p = params();
        const ngtcp2_path at = path();
        const ngtcp2_callbacks c = callbacks();
        check_ngtcp2(ngtcp2_conn_client_new(&conn_, &theirs, &own, &at, NGTCP2_PROTO_VER_V1, &c, &s, &p,
                                            nullptr, this),
                     "client");
        ngtcp2_conn_set_tls_native_handle(conn_, tls_.glue);
    }
    void open_stream() {
        if (stream_ < 0) check_ngtcp2(ngtcp2_conn_open_uni_stream(conn_, &stream_, nullptr), "stream");
    }
    void close() {
        ngtcp2_ccerr error;
        ngtcp2_ccerr_default(&error);
        ngtcp2_ccerr_set_application_error(&error, code_done, nullptr, 0);
        ngtcp2_pkt_info info{};
        const ngtcp2_ssize n = ngtcp2_conn_write_connection_close(conn_, nullptr, &info, batch_.data(),
                                                                  batch_.size(), &error, clock_now());
        check_ngtcp2(n, "close");
        const auto bytes = static_cast<size_t>(n);
        check(udp.send(batch_.data(), bytes, bytes, info.ecn), "close: the socket is full");
        closed_ = true;
    }
    // Calls step() in each turn from the handshake to the close.
    void run(const auto& step) {
        while (!closed_) {
            const uint64_t now = clock_now();
            bool busy = udp.receive([&](const uint8_t* data, size_t bytes, uint8_t ecn) {
                if (!closed_) read(data, bytes, ecn, now);
            });
            if (!conn_ || closed_) {
                if (!closed_) udp.wait(false, now + 1000 * milliseconds);
                continue;
            }
            if (ngtcp2_conn_get_expiry2(conn_) <= now)
                check_ngtcp2(ngtcp2_conn_handle_expiry(conn_, now), "timer");
            if (ngtcp2_conn_get_handshake_completed2(conn_)) step();
            if (closed_) break;
            busy = write(now) || busy;
            if (!busy) udp.wait(full_, full_ ? UINT64_MAX : ngtcp2_conn_get_expiry2(conn_));
        }
    }
    uint64_t lost() const {
        ngtcp2_conn_info info;
        ngtcp2_conn_get_conn_info2(conn_, &info);
        return info.pkt_lost;
    }
    size_t payload() const { return ngtcp2_conn_get_path_max_tx_udp_payload_size2(conn_); }

    Udp udp;
    SendBuffer buffer;
    uint64_t received = 0;

  private:
    static constexpr size_t id_bytes = 12;
    static End& self(void* user) { return *static_cast<End*>(user); }

    ngtcp2_path path() {
        return {{reinterpret_cast<sockaddr*>(&udp.local), sizeof udp.local},
                {reinterpret_cast<sockaddr*>(&udp.remote), sizeof udp.remote},
                nullptr};
    }
    ngtcp2_settings settings(uint64_t now) const {
        ngtcp2_settings s;
        ngtcp2_settings_default(&s);
        s.initial_ts = now;
        s.initial_rtt = 10 * milliseconds;
        s.handshake_timeout = 5000 * milliseconds;
        s.cc_algo = NGTCP2_CC_ALGO_CUBIC;
        s.max_tx_udp_payload_size = payload_max_;
        s.pmtud_probes = path_probes;
        s.pmtud_probeslen = std::size(path_probes);
        return s;
    }
    static ngtcp2_transport_params params() {
        ngtcp2_transport_params p;
        ngtcp2_transport_params_default(&p);
        p.initial_max_streams_uni = 1;
        p.initial_max_stream_data_uni = stream_window;
        p.initial_max_data = connection_window;
        p.max_idle_timeout = 30'000 * milliseconds;
        p.max_ack_delay = 5 * milliseconds;
        return p;
    }
    static ngtcp2_callbacks callbacks() {
        ngtcp2_callbacks c{};
        c.client_initial = ngtcp2_crypto_client_initial_cb;
        c.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
        c.recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb;
        c.encrypt = ngtcp2_crypto_encrypt_cb;
        c.decrypt = ngtcp2_crypto_decrypt_cb;
        c.hp_mask = ngtcp2_crypto_hp_mask_cb;
        c.recv_retry = ngtcp2_crypto_recv_retry_cb;
        c.update_key = ngtcp2_crypto_update_key_cb;
        c.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
        c.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
        c.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
        c.get_path_challenge_data2 = ngtcp2_crypto_get_path_challenge_data2_cb;
        c.rand = [](uint8_t* into, size_t bytes, const ngtcp2_rand_ctx*) { random_bytes(into, bytes); };
        c.get_new_connection_id2 = [](ngtcp2_conn*, ngtcp2_cid* id, ngtcp2_stateless_reset_token* token,
                                      size_t bytes, void*) {
            *id = random_id(bytes);
            random_bytes(token->data, sizeof token->data);
            return 0;
        };
        c.recv_stream_data = [](ngtcp2_conn*, uint32_t, int64_t stream, uint64_t, const uint8_t* data,
                                size_t bytes, void* user, void*) {
            self(user).on_bytes(stream, data, bytes);
            return 0;
        };
        c.acked_stream_data_offset = [](ngtcp2_conn*, int64_t, uint64_t offset, uint64_t bytes, void* user,
                                        void*) {
            self(user).buffer.acked = offset + bytes;
            return 0;
        };
        return c;
    }
    void accept(const uint8_t* data, size_t bytes, uint64_t now) {
        ngtcp2_pkt_hd header;
        check_ngtcp2(ngtcp2_accept(&header, data, bytes), "first datagram");
        const ngtcp2_cid own = random_id(id_bytes);
        const ngtcp2_settings s = settings(now);
        ngtcp2_transport_params p = params();
        p.original_dcid = header.dcid;
        p.original_dcid_present = 1;
        const ngtcp2_path at = path();
        const ngtcp2_callbacks c = callbacks();
        check_ngtcp2(ngtcp2_conn_server_new(&conn_, &header.scid, &own, &at, header.version, &c, &s, &p,
                                            nullptr, this),
                     "server");
        ngtcp2_conn_set_tls_native_handle(conn_, tls_.glue);
    }
    void read(const uint8_t* data, size_t bytes, uint8_t ecn, uint64_t now) {
        if (!conn_) accept(data, bytes, now);
        const ngtcp2_path at = path();
        ngtcp2_pkt_info info{};
        info.ecn = ecn;
        const int result = ngtcp2_conn_read_pkt(conn_, &at, &info, data, bytes, now);
        closed_ = result == NGTCP2_ERR_DRAINING;
        if (!closed_) check_ngtcp2(result, "packet");
    }
    void on_bytes(int64_t stream, const uint8_t* data, size_t bytes) {
        received += bytes;
        for (size_t left = bytes; left > 0;) {
            const size_t n = std::min(left, copy_.size() - copied_);
            std::memcpy(copy_.data() + copied_, data, n);
            copied_ = (copied_ + n) % copy_.size();
            data += n;
            left -= n;
        }
        ngtcp2_conn_extend_max_stream_offset(conn_, stream, bytes);
        ngtcp2_conn_extend_max_offset(conn_, bytes);
    }
    // True: there is more to send, and the socket takes it.
    bool write(uint64_t now) {
        for (size_t i = 0; i < batches_per_turn; ++i) {
            if (!full_) fill(now);
            if (bytes_ == 0) return false;
            full_ = !udp.send(batch_.data(), bytes_, segment_, ecn_);
            if (full_) return false;
        }
        return true;
    }
    void fill(uint64_t now) {
        auto one = [](ngtcp2_conn*, ngtcp2_path*, ngtcp2_pkt_info* info, uint8_t* into, size_t size,
                      ngtcp2_tstamp ts, void* user) { return self(user).write_packet(info, into, size, ts); };
        const size_t packets = std::clamp<size_t>(batch_bytes_max / payload(), 1, batch_packets_max);
        ngtcp2_pkt_info info{};
        const ngtcp2_ssize n = ngtcp2_conn_write_aggregate_pkt2(conn_, nullptr, &info, batch_.data(),
                                                                batch_.size(), &segment_, one, packets, now);
        check_ngtcp2(n, "packets");
        bytes_ = static_cast<size_t>(n);
        ecn_ = info.ecn;
    }
    ngtcp2_ssize write_packet(ngtcp2_pkt_info* info, uint8_t* into, size_t size, uint64_t now) {
        ngtcp2_vec parts[2];
        const size_t count = buffer.next(parts);
        ngtcp2_ssize taken = -1;
        ngtcp2_ssize n = ngtcp2_conn_writev_stream(conn_, nullptr, info, into, size, &taken, 0,
                                                   count > 0 ? stream_ : -1, parts, count, now);
        if (taken > 0) buffer.sent += static_cast<size_t>(taken);
        if (n == NGTCP2_ERR_STREAM_DATA_BLOCKED)
            n = ngtcp2_conn_writev_stream(conn_, nullptr, info, into, size, &taken, 0, -1, nullptr, 0, now);
        return n;
    }

    size_t payload_max_;
    ngtcp2_conn* conn_ = nullptr;
    Tls tls_;
    int64_t stream_ = -1;
    bool closed_ = false, full_ = false;  // full: the socket did not take the batch
    std::vector<uint8_t> batch_ = std::vector<uint8_t>(message_bytes_max);
    size_t bytes_ = 0, segment_ = 0;  // of the batch
    uint8_t ecn_ = 0;
    std::vector<uint8_t> copy_ = std::vector<uint8_t>(piece_bytes);
    size_t copied_ = 0;
};

struct Outcome {
    double gbits, send_cpu, receive_cpu;
};

Outcome run_once(size_t payload_max, uint64_t total) {
    End a(false, payload_max), b(true, payload_max);
    Outcome out{};
    const double gigabytes = static_cast<double>(total) * 1e-9;
    std::thread receiver([&] {
        bench::pin(1);
        const double cpu = bench::cpu_seconds();
        b.run([&] {
            if (b.received == total) b.close();
        });
        out.receive_cpu = (bench::cpu_seconds() - cpu) / gigabytes;
    });
    a.connect(b.udp.local);
    const std::vector<uint8_t> piece(piece_bytes, 42);
    uint64_t begin = 0;
    const double cpu = bench::cpu_seconds();
    a.run([&] {
        if (begin == 0) begin = clock_now();
        a.open_stream();
        while (a.buffer.end < total && a.buffer.room() >= piece.size()) a.buffer.write(piece);
    });
    out.send_cpu = (bench::cpu_seconds() - cpu) / gigabytes;
    out.gbits = gigabytes * 8 / (static_cast<double>(clock_now() - begin) * 1e-9);
    receiver.join();
    std::printf(
        "  %5.1f Gbit/s   CPU s/GB send %.3f receive %.3f   payload %zu lost %llu sends %llu receives %llu\n",
        out.gbits, out.send_cpu, out.receive_cpu, a.payload(), static_cast<unsigned long long>(a.lost()),
        static_cast<unsigned long long>(a.udp.sends), static_cast<unsigned long long>(b.udp.receives));
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    bench::pin(0);
    check(ngtcp2_crypto_ossl_init() == 0, "ngtcp2's OpenSSL helper");
    const uint64_t total = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 1) << 30;
    const int runs = argc > 2 ? std::atoi(argv[2]) : 5;
    check(total > 0 && runs > 0, "want GiB per run and runs");
    for (const size_t payload_max : {size_t{1452}, size_t{65507}}) {
        std::printf("payload up to %zu\n", payload_max);
        std::vector<double> gbits, send, receive;
        for (int i = 0; i < runs; ++i) {
            const Outcome o = run_once(payload_max, total);
            gbits.push_back(o.gbits), send.push_back(o.send_cpu), receive.push_back(o.receive_cpu);
        }
        for (auto* v : {&gbits, &send, &receive}) std::sort(v->begin(), v->end());
        std::printf("median %.1f best %.1f Gbit/s   best CPU s/GB send %.3f receive %.3f\n",
                    gbits[gbits.size() / 2], gbits.back(), send.front(), receive.front());
    }
}
