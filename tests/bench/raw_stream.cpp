// The limits of tools/bench for an all_reduce between two hosts: the same bytes over one TCP connection,
// plain or with TLS 1.3, by one thread at each end. What comes first is added to memory and goes back as it
// is added, what comes then is stored: a ring of two, without framing, checks, memory of others, or a program
// that waits for a daemon.
//
//   raw_stream tcp|tls [options of measured.hpp]
//
// The environment: BENCH_RANK, BENCH_SIZE (2) and BENCH_ADDRESSES.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "measured.hpp"

namespace {

constexpr uint16_t port = 9000;
constexpr size_t piece_max = 64 * 1024, record_max = 16 * 1024, stage_bytes = 64 * 1024;

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr) measured::fail(std::string(name) + " is not set");
    return value;
}

void check(bool done, const char* what) {
    if (!done) measured::fail(std::string("raw_stream: ") + what);
}

int open_connection(bool listens, const std::string& host) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    check(inet_pton(AF_INET, host.c_str(), &at.sin_addr) == 1, "address");
    const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    const auto* address = reinterpret_cast<const sockaddr*>(&at);
    int out = fd;
    if (listens) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        check(bind(fd, address, sizeof at) == 0 && listen(fd, 1) == 0, "listen");
        out = accept(fd, nullptr, nullptr);
    } else {
        for (int i = 0; connect(fd, address, sizeof at) != 0; ++i) {
            check(i < 500, "connect");
            usleep(10'000);  // sleep: until the other end listens
        }
    }
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return out;
}

SSL* secure(int fd, bool listens) {
    SSL_CTX* ctx = SSL_CTX_new(listens ? TLS_server_method() : TLS_client_method());
    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_num_tickets(ctx, 0);
    if (listens) {
        EVP_PKEY* key = EVP_EC_gen("P-256");
        X509* certificate = X509_new();
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
        X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
        X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
        X509_set_pubkey(certificate, key);
        X509_sign(certificate, key, EVP_sha256());
        SSL_CTX_use_certificate(ctx, certificate);
        SSL_CTX_use_PrivateKey(ctx, key);
    }
    SSL* ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    check((listens ? SSL_accept(ssl) : SSL_connect(ssl)) == 1, "TLS");
    return ssl;
}

// Of a socket that does not block; 0: nothing was moved.
struct Stream {
    int fd;
    SSL* ssl;  // null: plain
    size_t send(const std::byte* from, size_t bytes) const {
        const ssize_t n = ssl ? SSL_write(ssl, from, static_cast<int>(std::min(bytes, record_max)))
                              : ::send(fd, from, bytes, MSG_NOSIGNAL);
        return n > 0 ? static_cast<size_t>(n) : 0;
    }
    size_t receive(std::byte* into, size_t bytes) const {
        const ssize_t n = ssl ? SSL_read(ssl, into, static_cast<int>(bytes)) : recv(fd, into, bytes, 0);
        if (ssl ? SSL_get_error(ssl, static_cast<int>(n)) == SSL_ERROR_ZERO_RETURN : n == 0)
            measured::fail("raw_stream: the other end has gone");
        return n > 0 ? static_cast<size_t>(n) : 0;
    }
};

// One all_reduce of two: what is at this end of it.
class Exchange {
  public:
    Exchange(const Stream& stream, std::byte* memory, size_t bytes, uint32_t rank, std::vector<float>& stage)
        : stream_(stream), memory_(memory), bytes_(bytes), stage_(stage) {
        const size_t half = bytes / 2 / sizeof(float) * sizeof(float);
        own_ = rank == 0 ? 0 : half;
        own_bytes_ = rank == 0 ? half : bytes - half;
        other_ = rank == 0 ? half : 0;
    }
    void run() {
        while (sent_ < bytes_ || got_ < bytes_) {
            if (send() + receive() > 0) continue;
            pollfd ready{stream_.fd, static_cast<short>(POLLIN | (sendable() > 0 ? POLLOUT : 0)), 0};
            poll(&ready, 1, -1);
        }
    }

  private:
    // The other's half first; of this end's own what is added already.
    size_t sendable() const { return bytes_ - own_bytes_ + added_ - sent_; }
    size_t send() {
        size_t moved = 0;
        for (int i = 0; i < 4 && sendable() > 0; ++i) {
            const size_t of_other = bytes_ - own_bytes_;
            const std::byte* from = memory_ + (sent_ < of_other ? other_ + sent_ : own_ + sent_ - of_other);
            const size_t most = sent_ < of_other ? of_other - sent_ : sendable();
            const size_t n = stream_.send(from, std::min(most, piece_max));
            if (n == 0) break;
            sent_ += n;
            moved += n;
        }
        return moved;
    }
    size_t receive() {
        size_t moved = 0;
        while (got_ < bytes_) {
            const bool adds = got_ < own_bytes_;
            std::byte* const staged = reinterpret_cast<std::byte*>(stage_.data());
            std::byte* const into = adds ? staged + (got_ - added_) : memory_ + other_ + got_ - own_bytes_;
            const size_t most =
                adds ? std::min(stage_bytes - (got_ - added_), own_bytes_ - got_) : bytes_ - got_;
            const size_t n = stream_.receive(into, std::min(most, piece_max));
            if (n == 0) break;
            got_ += n;
            moved += n;
            if (adds) add();
        }
        return moved;
    }
    void add() {
        const size_t whole = (got_ - added_) / sizeof(float);
        if (whole * sizeof(float) < record_max && got_ < own_bytes_) return;
        auto* to = reinterpret_cast<float*>(memory_ + own_ + added_);
        for (size_t i = 0; i < whole; ++i) to[i] += stage_[i];
        const size_t rest = got_ - added_ - whole * sizeof(float);
        added_ += whole * sizeof(float);
        if (rest > 0) std::memmove(stage_.data(), &stage_[whole], rest);
    }

    const Stream& stream_;
    std::byte* memory_;
    size_t bytes_;
    std::vector<float>& stage_;
    size_t own_ = 0, own_bytes_ = 0, other_ = 0;  // where the halves begin
    size_t sent_ = 0, got_ = 0, added_ = 0;
};

struct Job {
    explicit Job(bool with_tls) : rank(static_cast<uint32_t>(std::stoul(from_environment("BENCH_RANK")))) {
        check(from_environment("BENCH_SIZE") == "2", "it is between two ranks");
        const std::string first = measured::split(from_environment("BENCH_ADDRESSES"), ',').front();
        stream.fd = open_connection(rank == 0, first);
        if (with_tls) stream.ssl = secure(stream.fd, rank == 0);
        fcntl(stream.fd, F_SETFL, fcntl(stream.fd, F_GETFL) | O_NONBLOCK);
    }
    void all_reduce(float* values, size_t count) {
        Exchange(stream, reinterpret_cast<std::byte*>(values), count * sizeof(float), rank, stage).run();
    }
    void barrier() {
        uint64_t token = 0;
        send(&token, sizeof token, 1 - rank, 0);
        recv(&token, sizeof token, 1 - rank, 0);
    }
    void broadcast(uint64_t& value) {
        if (rank == 0)
            send(&value, sizeof value, 1, 0);
        else
            recv(&value, sizeof value, 0, 0);
    }
    void send(const void* data, size_t bytes, uint32_t, uint32_t) {
        move(bytes, POLLOUT,
             [&](size_t at) { return stream.send(static_cast<const std::byte*>(data) + at, bytes - at); });
    }
    void recv(void* data, size_t bytes, uint32_t, uint32_t) {
        move(bytes, POLLIN,
             [&](size_t at) { return stream.receive(static_cast<std::byte*>(data) + at, bytes - at); });
    }
    int send_start(const void* data, size_t bytes, uint32_t to, uint32_t tag) {
        return send(data, bytes, to, tag), 0;
    }
    int recv_start(void* data, size_t bytes, uint32_t from, uint32_t tag) {
        return recv(data, bytes, from, tag), 0;
    }
    static void finish(int) {}
    static void* allocate(size_t) { return nullptr; }
    static void deallocate(void*) {}

    uint32_t rank, size = 2;
    Stream stream{-1, nullptr};
    std::vector<float> stage = std::vector<float>(stage_bytes / sizeof(float));

  private:
    void move(size_t bytes, short event, const auto& some) {
        for (size_t at = 0; at < bytes;) {
            const size_t n = some(at);
            at += n;
            pollfd ready{stream.fd, event, 0};
            if (n == 0) poll(&ready, 1, -1);
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    const std::string kind = argc > 1 ? argv[1] : "";
    if (kind != "tcp" && kind != "tls") measured::fail("want tcp or tls, then options");
    const measured::Options options = measured::parse(argc - 1, argv + 1);
    Job job(kind == "tls");
    measured::run(job, options);
}
