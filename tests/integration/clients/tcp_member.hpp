// A member's TCP connection for bulk data, made by hand: TLS, the attach, and then what no honest node sends
// (docs/protocol/tcp.md). It blocks: each act takes less than the silence that ends its control connection.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "quic/address.hpp"
#include "tcp/attach.hpp"
#include "tcp/records.hpp"

namespace nexar::hostile {

class TcpMember {
  public:
    struct Self {
        std::string certificates, key;
        NodeId node;
        Incarnation incarnation;
    };
    struct Peer {
        NodeId node;
        Incarnation incarnation;
        tcp::AttachKey key{};
    };

    TcpMember(const Self& self, const std::string& address) : self_(self) {
        const auto to = quic::Address::parse(address);
        if (!to) throw std::runtime_error(to.error().text);
        const quic::SocketAddress remote(*to);
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const timeval patience{0, 700'000};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (::connect(fd_, &remote.base, remote.size) != 0) throw std::runtime_error("tcp: not connected");
        secure();
    }
    ~TcpMember() {
        SSL_free(ssl_);
        SSL_CTX_free(context_);
        ::close(fd_);
    }
    TcpMember(const TcpMember&) = delete;

    // Up to the dialler's proof. `how`: "honest", or what is wrong in it.
    void attach(const Peer& peer, const std::string& how) {
        tcp::AttachTerms terms;
        terms.dialler = self_.node;
        terms.dialler_incarnation = self_.incarnation;
        terms.acceptor = peer.node;
        terms.acceptor_incarnation = peer.incarnation;
        terms.dialler_nonce.fill(std::byte{5});
        terms.shard = how == "shard" ? 7 : 0;
        if (how != "binding")
            SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(terms.binding.data()),
                                       terms.binding.size(), "EXPORTER-nexar-bulk-binding", 27, nullptr, 0,
                                       1);
        tcp::Hello hello;
        hello.shard = terms.shard;
        hello.key = tcp::id_of(peer.key);
        hello.node = self_.node;
        hello.incarnation = self_.incarnation;
        hello.nonce = terms.dialler_nonce;
        if (how == "key") hello.key.fill({});
        if (how == "node") hello.node = peer.node;
        if (how == "incarnation") hello.incarnation.counter += 1;
        if (how == "mode") hello.mode = tcp::Mode::plain;
        record(tcp::RecordKind::hello, std::as_bytes(std::span(&hello, 1)));
        std::vector<std::byte> answer = next_record();
        if (!end_.empty()) return;
        const auto read = tcp::read_answer(answer);
        if (!read) throw std::runtime_error(read.error().text);
        terms.acceptor_nonce = read->nonce;
        tcp::Proof proof = tcp::prove(peer.key, terms, tcp::Side::dialler);
        if (how == "proof") proof[31] ^= std::byte{1};
        if (how == "reflected") proof = read->proof;
        record(tcp::RecordKind::proof, std::as_bytes(std::span(&proof, 1)));
    }
    void record(tcp::RecordKind kind, Bytes payload) {
        write(tcp::RecordHead{static_cast<uint8_t>(kind), 0, 0, static_cast<uint32_t>(payload.size())},
              payload);
    }
    bool write(const tcp::RecordHead& head, Bytes payload) {
        std::vector<std::byte> out;
        Writer w(out);
        w.put(head);
        w.put_bytes(payload);
        return write(out);
    }
    bool write(Bytes bytes) {
        size_t written = 0;
        return bytes.empty() || SSL_write_ex(ssl_, bytes.data(), bytes.size(), &written) == 1;
    }
    // Key changes, each with an answer asked for; false: the peer has ended it.
    bool change_keys() {
        return SSL_key_update(ssl_, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl_) == 1;
    }
    void end_sending() { ::shutdown(fd_, SHUT_WR); }

    // Reads until the peer ends it: "closed CODE TEXT", "ended" without a close, or "open" when it has not
    // within the patience.
    std::string end() {
        while (end_.empty()) next_record();
        return end_;
    }

  private:
    void secure() {
        context_ = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
        use(self_.certificates, self_.key);
        ssl_ = SSL_new(context_);
        constexpr unsigned char alpn[] = "\x0cnexar-bulk/2";
        SSL_set_alpn_protos(ssl_, alpn, sizeof alpn - 1);
        SSL_set_fd(ssl_, fd_);
        if (SSL_connect(ssl_) != 1) throw std::runtime_error("tcp: no TLS");
    }
    void use(const std::string& certificates, const std::string& key) {
        const std::unique_ptr<BIO, decltype(&BIO_free)> chain(
            BIO_new_mem_buf(certificates.data(), static_cast<int>(certificates.size())), BIO_free);
        const std::unique_ptr<BIO, decltype(&BIO_free)> own(
            BIO_new_mem_buf(key.data(), static_cast<int>(key.size())), BIO_free);
        for (bool first = true; X509* x = PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr);
             first = false) {
            if (first)
                SSL_CTX_use_certificate(context_, x);
            else
                SSL_CTX_add1_chain_cert(context_, x);
            X509_free(x);
        }
        EVP_PKEY* k = PEM_read_bio_PrivateKey(own.get(), nullptr, nullptr, nullptr);
        SSL_CTX_use_PrivateKey(context_, k);
        EVP_PKEY_free(k);
        ERR_clear_error();
    }
    bool fill(MutableBytes into) {
        for (size_t got = 0; !into.empty(); into = into.subspan(got))
            if (SSL_read_ex(ssl_, into.data(), into.size(), &got) != 1) {
                const int error = SSL_get_error(ssl_, 0);
                end_ = error == SSL_ERROR_WANT_READ ? "open" : "ended";
                return false;
            }
        return true;
    }
    // The payload of one; a close, or an end, sets end_.
    std::vector<std::byte> next_record() {
        tcp::RecordHead head;
        if (!fill(std::as_writable_bytes(std::span(&head, 1)))) return {};
        std::vector<std::byte> payload(head.bytes);
        if (!fill(payload)) return {};
        if (head.kind != static_cast<uint8_t>(tcp::RecordKind::close)) return payload;
        Reader in(payload);
        const auto code = in.get<uint64_t>();
        const Bytes text = in.take(in.left());
        end_ = "closed " + std::to_string(code) + " " +
               std::string(reinterpret_cast<const char*>(text.data()), text.size());
        return {};
    }

    Self self_;
    int fd_ = -1;
    SSL_CTX* context_ = nullptr;
    SSL* ssl_ = nullptr;
    std::string end_;
};

// One act of a member on a connection of its own; how it ended. The words are those of test_hostile_tcp.py.
inline std::string act(TcpMember& tcp, const TcpMember::Peer& peer, const std::string& what) {
    const std::vector<std::byte> block(60'000, std::byte{0xA5});
    const auto head = [](unsigned kind, unsigned flags, uint32_t bytes) {
        return tcp::RecordHead{static_cast<uint8_t>(kind), static_cast<uint8_t>(flags), 0, bytes};
    };
    if (what == "early") {
        tcp.write(head(3, 1, 100), Bytes(block).first(100));
        return tcp.end();
    }
    const bool is_attach = !std::string_view(what).starts_with("then-");
    tcp.attach(peer, is_attach ? what : "honest");
    if (what == "then-large")
        tcp.write(head(3, 1, 270'337), block);
    else if (what == "then-huge")
        tcp.write(head(3, 1, 0xffffffff), block);
    else if (what == "then-empty")
        tcp.write(head(3, 1, 0), {});
    else if (what == "then-kind")
        tcp.write(head(77, 0, 8), Bytes(block).first(8));
    else if (what == "then-flags")
        tcp.write(head(0, 0xfe, 8), Bytes(block).first(8));
    else if (what == "then-hello")
        tcp.record(tcp::RecordKind::hello, Bytes(block).first(sizeof(tcp::Hello)));
    else if (what == "then-acknowledges")
        tcp.record(tcp::RecordKind::acknowledge, Bytes(block).first(32));
    else if (what == "then-garbage")
        for (int i = 0; i < 40 && tcp.write(block); ++i) {
        }
    else if (what == "then-endless")  // one write that never ends
        for (int i = 0; i < 4000 && tcp.write(head(3, 0, 60'000), block); ++i) {
        }
    else if (what == "then-keys")
        for (int i = 0; i < 20'000 && tcp.change_keys(); ++i) {
        }
    else if (what == "then-half")
        tcp.end_sending();
    return tcp.end();
}

}  // namespace nexar::hostile
