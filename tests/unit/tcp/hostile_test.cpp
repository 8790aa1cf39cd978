// What a member that breaks the rules of TLS, or never reads, or sends only small records costs this end
// (docs/protocol/tcp.md [B4] [B9]).
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <catch2/catch_test_macros.hpp>

#include "pair.hpp"
#include "tcp/crc32c.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

// A TLS client with a node's certificate that does whatever the TLS library can.
class Client {
  public:
    explicit Client(TcpPair& pair) : pair_(pair), ctx_(SSL_CTX_new(TLS_client_method())) {
        const Leaf& leaf = pair.a.leaf;
        BIO* certificate = BIO_new_mem_buf(leaf.certificate_pem.data(), -1);
        const std::string_view secret = leaf.private_key_pem.text();
        BIO* key = BIO_new_mem_buf(secret.data(), static_cast<int>(secret.size()));
        X509* x509 = PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr);
        EVP_PKEY* pkey = PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr);
        REQUIRE(SSL_CTX_use_certificate(ctx_, x509) == 1);
        REQUIRE(SSL_CTX_use_PrivateKey(ctx_, pkey) == 1);
        X509_free(x509);
        EVP_PKEY_free(pkey);
        BIO_free(certificate);
        BIO_free(key);
        ssl_ = SSL_new(ctx_);
        in_ = BIO_new(BIO_s_mem());
        out_ = BIO_new(BIO_s_mem());
        SSL_set_bio(ssl_, in_, out_);
        const std::string alpn = static_cast<char>(tcp::alpn_bulk.size()) + std::string(tcp::alpn_bulk);
        SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(alpn.data()),
                            static_cast<unsigned>(alpn.size()));
        SSL_set_connect_state(ssl_);
    }
    ~Client() {
        SSL_free(ssl_);
        SSL_CTX_free(ctx_);
    }
    Client(const Client&) = delete;

    bool handshake() {
        for (int i = 0; i < 10; ++i) {
            SSL_do_handshake(ssl_);
            exchange();
        }
        return SSL_is_init_finished(ssl_) == 1;
    }
    void exchange() {
        send();
        pair_.b.turn(pair_.now);
        BIO_write(in_, pair_.back.bytes.data(), static_cast<int>(pair_.back.bytes.size()));
        pair_.back.bytes.clear();
    }
    void send() {
        std::array<std::byte, 4096> piece;
        for (int n = 0; (n = BIO_read(out_, piece.data(), piece.size())) > 0;)
            pair_.forth.bytes.insert(pair_.forth.bytes.end(), piece.begin(), piece.begin() + n);
    }
    void change_keys(int kind) {
        REQUIRE(SSL_key_update(ssl_, kind) == 1);
        SSL_do_handshake(ssl_);
    }

  private:
    TcpPair& pair_;
    SSL_CTX* ctx_;
    SSL* ssl_ = nullptr;
    BIO *in_ = nullptr, *out_ = nullptr;
};

}  // namespace

TEST_CASE("a peer that changes its keys without end is ended at once, and gets no answers", "[tcp][B4]") {
    for (const int kind : {SSL_KEY_UPDATE_REQUESTED, SSL_KEY_UPDATE_NOT_REQUESTED}) {
        TcpPair p;
        p.b.start(tcp::Mode::tls, std::nullopt);
        Client client(p);
        REQUIRE(client.handshake());
        REQUIRE_FALSE(p.b.machine->ended());
        const uint64_t answered = p.back.passed;
        for (int i = 0; i < 20'000; ++i) client.change_keys(kind);
        client.send();
        const size_t sent = p.forth.bytes.size();

        p.b.turn(p.now);

        REQUIRE(p.b.machine->ended());
        CHECK(p.b.machine->ended()->reason == "TLS: the peer changes its keys too often");
        CHECK(p.back.passed - answered < 200);
        CHECK(p.forth.bytes.size() + 2 * 64 * 1024 >= sent);  // the rest was not read
    }
}

TEST_CASE("a peer that sends and never reads gets one acknowledgement, not a queue of them", "[tcp][B9]") {
    for (const tcp::Mode mode : {tcp::Mode::tls, tcp::Mode::plain}) {
        TcpPair p;
        p.start(mode);
        p.run();
        REQUIRE(p.open());
        p.back.room = 0;
        const std::byte one{1};
        const Bytes byte(&one, 1);
        for (int i = 0; i < 2000; ++i) {
            p.a.machine->write(Class::control, std::span(&byte, 1));
            p.run(6);
        }
        const uint64_t before = p.back.passed;
        p.back.room = 1u << 20;
        p.run(20);
        CHECK(p.back.passed - before < 400);
        CHECK(p.a.machine->acknowledged(Class::control) == 2000);
        CHECK_FALSE(p.ended());
    }
}

TEST_CASE("a turn reads few records of a peer whose records are small", "[tcp][B9]") {
    TcpPair p;
    p.start();
    p.run();
    const std::byte one{1};
    const Bytes byte(&one, 1);
    for (int i = 0; i < 4000; ++i) {  // a record each: writes of one turn share one
        p.a.machine->write(Class::control, std::span(&byte, 1));
        p.a.turn(p.now);
    }
    constexpr size_t quantum = 64 * 1024;
    REQUIRE(p.b.machine->on_readable(p.now, quantum));
    CHECK(p.b.deliveries <= quantum / 256 + 1);
    p.run();
    CHECK(p.b.deliveries == 4000);
}

TEST_CASE("without TLS a record is no longer than what is kept of it until its checksum is known",
          "[tcp][B4][B7]") {
    TcpPair p;
    p.start(tcp::Mode::plain);
    p.run();
    REQUIRE(p.open());
    const tcp::RecordHead head{3, tcp::record_ends_write, 0, tcp::plain_payload_max + 1};
    const auto bytes = std::as_bytes(std::span(&head, 1));
    p.forth.bytes.insert(p.forth.bytes.end(), bytes.begin(), bytes.end());
    p.forth.bytes.resize(p.forth.bytes.size() + head.bytes);
    p.b.turn(p.now);
    REQUIRE(p.b.machine->ended());
    CHECK(p.b.machine->ended()->reason == "a record that is too long");
    CHECK(p.b.got.empty());
}

TEST_CASE("what waits in a queue cannot have come", "[tcp][B4]") {
    for (const bool is_queued : {false, true}) {
        TcpPair p;
        p.start(tcp::Mode::plain);
        p.run();
        REQUIRE(p.open());
        if (is_queued) p.forth.room = 0;
        const std::vector<std::byte> chunk(100'000);
        const Bytes part(chunk);
        for (int i = 0; i < 3; ++i) {  // the first record of them waits in the stream
            p.a.machine->write(Class::bulk, std::span(&part, 1));
            p.a.turn(p.now);
        }
        std::vector<std::byte> record(sizeof(tcp::RecordHead) + 4 * sizeof(uint64_t));
        const tcp::RecordHead head{static_cast<uint8_t>(tcp::RecordKind::acknowledge), 0, 0,
                                   4 * sizeof(uint64_t)};
        const std::array<uint64_t, 4> come{0, 0, 0, 3 * chunk.size()};
        std::memcpy(record.data(), &head, sizeof head);
        std::memcpy(record.data() + sizeof head, come.data(), sizeof come);
        const uint32_t checksum = tcp::crc32c(record);
        const auto end = std::as_bytes(std::span(&checksum, 1));
        record.insert(record.end(), end.begin(), end.end());
        p.back.bytes.insert(p.back.bytes.end(), record.begin(), record.end());
        p.a.turn(p.now);
        REQUIRE(p.a.machine->ended().has_value() == is_queued);
        if (is_queued) CHECK(p.a.machine->ended()->reason == "an acknowledgement of what was not sent");
    }
}

namespace {

// Encrypts each byte by itself.
struct OneByteStream final : tcp::Stream {
    tcp::TlsStream tls;
    explicit OneByteStream(TcpPair& p) : Stream(p.a.wire), tls(p.a.wire, p.a.context, true, p.b.leaf.id) {}
    Step open() override { return tls.open(); }
    std::optional<NodeId> peer() const override { return tls.peer(); }
    std::vector<std::byte> binding() const override { return tls.binding(); }
    Step read(MutableBytes into, size_t& filled) override { return tls.read(into, filled); }
    Step write(Bytes record) override {
        for (size_t i = 0; i < record.size(); ++i) tls.write(record.subspan(i, 1));
        return tls.flush();
    }
};

}  // namespace

TEST_CASE("a turn reads few TLS records of a peer that encrypts each byte by itself", "[tcp][B9]") {
    for (const bool places : {false, true}) {
        TcpPair p;
        p.start();
        p.a.machine =
            std::make_unique<tcp::Connection>(p.a.shared, std::make_unique<OneByteStream>(p), tcp::Mode::tls,
                                              tcp::Connection::Dial{p.b.leaf.id, tcp::Mode::tls});
        p.run();
        REQUIRE(p.open());
        p.b.places = places;
        p.forth.room = 8u << 20;
        const std::vector<std::byte> bytes(64 * 1024, std::byte{7});
        const Bytes part(bytes);
        p.a.machine->write(Class::bulk, std::span(&part, 1));
        p.a.machine->flush(p.now, 1u << 20);
        constexpr size_t quantum = 512 * 1024;
        uint64_t before = p.b.machine->received_bytes();
        for (bool more = true; more; before = p.b.machine->received_bytes()) {
            more = p.b.machine->on_readable(p.now, quantum);
            CHECK(p.b.machine->received_bytes() - before < quantum / 128);
        }
        CHECK((p.b.got[Class::bulk] == bytes));
    }
}

TEST_CASE("a turn reads little of a handshake, and all of them not much more than certificates take",
          "[tcp][B5][B9]") {
    TcpPair p;
    p.b.start(tcp::Mode::tls, std::nullopt);
    // The longest ClientHello that the TLS library takes, with a record for each of its bytes (RFC 8446
    // 4, 5.1).
    std::vector<std::byte> message(131'000);
    message[0] = message[1] = std::byte{1};
    message[2] = std::byte{(131'000 - 4) >> 8 & 0xff};
    message[3] = std::byte{(131'000 - 4) & 0xff};
    for (const std::byte b : message)
        for (const std::byte x : {std::byte{0x16}, std::byte{3}, std::byte{3}, std::byte{0}, std::byte{1}, b})
            p.forth.bytes.push_back(x);
    const size_t sent = p.forth.bytes.size();
    for (size_t left = sent; !p.b.machine->ended(); left = p.forth.bytes.size()) {
        p.b.turn(p.now);
        REQUIRE(left - p.forth.bytes.size() <= 8 * 1024);
        REQUIRE((p.forth.bytes.size() < left || p.b.machine->ended()));
    }
    CHECK(p.b.machine->ended()->reason == "TLS: the peer's handshake is too long");
    CHECK(sent - p.forth.bytes.size() == 16 * 1024);
}

// RFC 8446 §5.4: a record of one byte may be as long on the wire as one of 2^14.
TEST_CASE("a turn takes its bytes of the wire, whatever padding TLS records have", "[tcp][B9]") {
    static size_t record_bytes = 0;
    constexpr size_t quantum = 32 * 1024, ahead = 34 * 1024;
    TcpPair pair;
    SSL_CTX_set_record_padding_callback(pair.a.context->client(), [](SSL*, int, size_t bytes, void*) {
        return record_bytes > bytes ? record_bytes - bytes : 0;
    });
    pair.start();
    pair.run();
    REQUIRE(pair.open());
    pair.forth.room = SIZE_MAX;
    record_bytes = 16 * 1024;
    const std::byte one{1};
    const Bytes part(&one, 1);
    for (int i = 0; i < 300; ++i) {
        pair.a.machine->write(Class::bulk, std::span(&part, 1));
        pair.a.machine->flush(pair.now, SIZE_MAX);
    }
    record_bytes = 0;
    REQUIRE(pair.forth.bytes.size() > 300 * 16 * 1024);
    bool more = true;
    for (size_t turns = 1; more; ++turns) {
        const size_t before = pair.forth.bytes.size();
        const uint64_t work = pair.b.machine->read_work();
        more = pair.b.machine->on_readable(pair.now, quantum);
        const size_t taken = before - pair.forth.bytes.size();
        CHECK(taken <= quantum + ahead);
        CHECK(pair.b.machine->read_work() - work >= taken);
        REQUIRE(turns < 1000);
    }
    CHECK(pair.b.got[Class::bulk].size() == 300);
    CHECK(pair.forth.bytes.empty());
}
