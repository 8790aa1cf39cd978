// The limits of tools/bench for an all_reduce between hosts, a rank on each: the same bytes over one TCP
// connection between neighbours, plain or with TLS 1.3, by one thread at each end. What comes first is added
// to memory and goes on as it is added, what comes then is stored and goes on as it comes: a ring, without
// framing, checks, memory of others, or a program that waits for a daemon.
//
//   raw_stream tcp|tls [options of measured.hpp]
//
// The environment: BENCH_RANK, BENCH_SIZE (2 or more) and BENCH_ADDRESSES.
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

constexpr uint32_t first_port = 9000;  // a port for each pair
constexpr size_t piece_max = 64 * 1024, record_max = 16 * 1024, stage_bytes = 64 * 1024;

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr) measured::fail(std::string(name) + " is not set");
    return value;
}

void check(bool done, const char* what) {
    if (!done) measured::fail(std::string("raw_stream: ") + what);
}

int open_connection(bool listens, const std::string& host, uint32_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    check(inet_pton(AF_INET, host.c_str(), &at.sin_addr) == 1, "address");
    const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    const auto* address = reinterpret_cast<const sockaddr*>(&at);
    int out = fd;
    if (listens) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        check(bind(fd, address, sizeof at) == 0 && listen(fd, 1) == 0, "listen");
        out = accept(fd, nullptr, nullptr);
        close(fd);
    } else {
        for (int i = 0; connect(fd, address, sizeof at) != 0; ++i) {
            check(i < 500, "connect");
            usleep(10'000);  // sleep: until the other end listens
        }
    }
    check(out >= 0, "accept");
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

// One rank of an all_reduce. A vector has a part for each rank; a rank sends its own part to the next one,
// then each part that has come from the previous one, but the last. The first size - 1 that come are added.
class Exchange {
  public:
    Exchange(const std::vector<Stream>& streams, uint32_t rank, std::byte* memory, size_t bytes,
             std::vector<float>& stage)
        : next_(streams[(rank + 1) % streams.size()]),
          previous_(streams[(rank + streams.size() - 1) % streams.size()]),
          size_(streams.size()),
          rank_(rank),
          memory_(memory),
          elements_(bytes / sizeof(float)),
          stage_(stage) {
        for (size_t turn = 0; turn < turns(); ++turn)
            to_send_ += length(sent_part(turn)), to_get_ += length(sent_part(turn + 1));
    }
    void run() {
        while (sent_ < to_send_ || got_ < to_get_)
            if (send() + receive() == 0) wait();
    }

  private:
    size_t turns() const { return 2 * (size_ - 1); }
    size_t sent_part(size_t turn) const { return (rank_ + 2 * size_ - turn) % size_; }
    // Of a part; in bytes.
    size_t begin(size_t part) const { return elements_ * part / size_ * sizeof(float); }
    size_t length(size_t part) const { return begin(part + 1) - begin(part); }

    void wait() const {
        const auto room = static_cast<short>(sendable() > 0 ? POLLOUT : 0);
        const auto awaits = static_cast<short>(got_ < to_get_ ? POLLIN : 0);  // or the next operation's bytes
        pollfd ready[2]{{previous_.fd, awaits, 0}, {next_.fd, room, 0}};
        if (size_ == 2) ready[0].events = static_cast<short>(awaits | room);
        poll(ready, size_ == 2 ? 1 : 2, -1);
    }
    size_t sendable() const { return std::min(to_send_, length(rank_) + done_) - sent_; }
    size_t send() {
        size_t moved = 0;
        for (int i = 0; i < 4; ++i) {
            for (; sending_ < turns() && sent_of_part_ == length(sent_part(sending_)); ++sending_)
                sent_of_part_ = 0;
            if (sendable() == 0) break;
            const size_t part = sent_part(sending_);
            const size_t most = std::min({length(part) - sent_of_part_, sendable(), piece_max});
            const size_t n = next_.send(memory_ + begin(part) + sent_of_part_, most);
            if (n == 0) break;
            sent_ += n, sent_of_part_ += n, moved += n;
        }
        return moved;
    }
    size_t receive() {
        size_t moved = 0;
        while (got_ < to_get_) {
            const size_t part = sent_part(getting_ + 1), rest = length(part) - got_of_part_;
            const bool adds = getting_ < size_ - 1;
            std::byte* const staged = reinterpret_cast<std::byte*>(stage_.data());
            const size_t waiting = got_of_part_ - added_;
            std::byte* const into = adds ? staged + waiting : memory_ + begin(part) + got_of_part_;
            const size_t most = std::min({adds ? stage_bytes - waiting : rest, rest, piece_max});
            const size_t n = most > 0 ? previous_.receive(into, most) : 0;
            if (n == 0 && rest > 0) break;
            got_ += n, got_of_part_ += n, moved += n;
            adds ? add(part) : static_cast<void>(done_ += n);
            if (got_of_part_ == length(part)) ++getting_, got_of_part_ = added_ = 0;
        }
        return moved;
    }
    void add(size_t part) {
        const size_t whole = (got_of_part_ - added_) / sizeof(float);
        if (whole * sizeof(float) < record_max && got_of_part_ < length(part)) return;
        auto* to = reinterpret_cast<float*>(memory_ + begin(part) + added_);
        for (size_t i = 0; i < whole; ++i) to[i] += stage_[i];
        const size_t rest = got_of_part_ - added_ - whole * sizeof(float);
        added_ += whole * sizeof(float), done_ += whole * sizeof(float);
        if (rest > 0) std::memmove(stage_.data(), &stage_[whole], rest);
    }

    const Stream &next_, &previous_;
    size_t size_, rank_;
    std::byte* memory_;
    size_t elements_;
    std::vector<float>& stage_;
    size_t to_send_ = 0, to_get_ = 0, sent_ = 0, got_ = 0, done_ = 0;  // in all; done: added or stored
    size_t sending_ = 0, getting_ = 0;                                 // turns
    size_t sent_of_part_ = 0, got_of_part_ = 0, added_ = 0;
};

// A connection to each other rank; the lower one listens. All go through the pairs in the same order.
std::vector<Stream> connect_all(bool with_tls, uint32_t rank, uint32_t size) {
    const std::vector<std::string> addresses = measured::split(from_environment("BENCH_ADDRESSES"), ',');
    check(size >= 2 && rank < size && addresses.size() == size, "it is among two ranks or more");
    std::vector<Stream> out(size, Stream{-1, nullptr});
    for (uint32_t other = 0; other < size; ++other) {
        if (other == rank) continue;
        const uint32_t low = std::min(rank, other), high = std::max(rank, other);
        Stream& stream = out[other];
        stream.fd = open_connection(rank == low, addresses[low], first_port + low * size + high);
        if (with_tls) stream.ssl = secure(stream.fd, rank == low);
        fcntl(stream.fd, F_SETFL, fcntl(stream.fd, F_GETFL) | O_NONBLOCK);
    }
    return out;
}

struct Job {
    explicit Job(bool with_tls)
        : rank(static_cast<uint32_t>(std::stoul(from_environment("BENCH_RANK")))),
          size(static_cast<uint32_t>(std::stoul(from_environment("BENCH_SIZE")))),
          streams(connect_all(with_tls, rank, size)) {}
    void all_reduce(float* values, size_t count) {
        Exchange(streams, rank, reinterpret_cast<std::byte*>(values), count * sizeof(float), stage).run();
    }
    void barrier() {
        uint64_t token = 0;
        for (uint32_t other = 1; other < size && rank == 0; ++other) recv(&token, sizeof token, other, 0);
        if (rank != 0) send(&token, sizeof token, 0, 0);
        broadcast(token);
    }
    void broadcast(uint64_t& value) {
        for (uint32_t other = 1; other < size && rank == 0; ++other) send(&value, sizeof value, other, 0);
        if (rank != 0) recv(&value, sizeof value, 0, 0);
    }
    void send(const void* data, size_t bytes, uint32_t to, uint32_t) {
        const Stream& stream = streams[to];
        move(stream, bytes, POLLOUT,
             [&](size_t at) { return stream.send(static_cast<const std::byte*>(data) + at, bytes - at); });
    }
    void recv(void* data, size_t bytes, uint32_t from, uint32_t) {
        const Stream& stream = streams[from];
        move(stream, bytes, POLLIN,
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

    uint32_t rank, size;
    std::vector<Stream> streams;  // by rank
    std::vector<float> stage = std::vector<float>(stage_bytes / sizeof(float));

  private:
    static void move(const Stream& stream, size_t bytes, short event, const auto& some) {
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
