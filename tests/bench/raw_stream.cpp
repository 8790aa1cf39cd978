// The limits that an all_reduce between two hosts is compared with: duplex streams of the same bytes over one
// TCP connection, plain and with TLS 1.3, the first half of what comes added to memory, the second half
// stored. One thread at each end, no framing, nothing checked and nothing shared with a program.
//
//   raw_stream LISTEN|DIAL ADDRESS [BYTES,BYTES] [REPETITIONS]
//
// The dialler prints a JSON object for each measurement: all times, in microseconds.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "raw_stream: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

int open_connection(bool listens, const char* host) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(9000);
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1) fail("address");
    const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    const auto* address = reinterpret_cast<const sockaddr*>(&at);
    int out = fd;
    if (listens) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, address, sizeof at) != 0 || listen(fd, 1) != 0) fail("listen");
        out = accept(fd, nullptr, nullptr);
    } else {
        for (int i = 0; connect(fd, address, sizeof at) != 0; ++i) {
            if (i == 200) fail("connect");
            usleep(20'000);  // sleep: until the other end listens
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
    if ((listens ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) fail("TLS");
    return ssl;
}

struct Stream {
    int fd;
    SSL* ssl;  // null: plain
    size_t send(const char* from, size_t bytes) {
        const ssize_t n = ssl ? SSL_write(ssl, from, static_cast<int>(std::min<size_t>(bytes, 16384)))
                              : ::send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        return n > 0 ? static_cast<size_t>(n) : 0;
    }
    size_t receive(char* into, size_t bytes) {
        const ssize_t n =
            ssl ? SSL_read(ssl, into, static_cast<int>(bytes)) : recv(fd, into, bytes, MSG_DONTWAIT);
        if (n == 0 && !ssl) fail("the other end has gone");
        return n > 0 ? static_cast<size_t>(n) : 0;
    }
};

// Both directions at once, this side's processor only waiting when neither goes on.
void exchange(Stream& stream, std::vector<float>& memory, std::vector<float>& stage) {
    const size_t bytes = memory.size() * sizeof(float), half = bytes / 2;
    auto* at = reinterpret_cast<char*>(memory.data());
    auto* staged = reinterpret_cast<char*>(stage.data());
    const size_t stage_bytes = stage.size() * sizeof(float);
    size_t sent = 0, got = 0, in_stage = 0;
    while (sent < bytes || got < bytes) {
        size_t moved = 0;
        for (int i = 0; i < 4 && sent < bytes; ++i) {
            const size_t n = stream.send(at + sent, std::min<size_t>(bytes - sent, 64 * 1024));
            moved += n;
            sent += n;
            if (n == 0) break;
        }
        while (got < bytes) {
            const size_t room = got < half ? std::min(stage_bytes - in_stage, half - got) : bytes - got;
            const size_t n =
                stream.receive(got < half ? staged + in_stage : at + got, std::min<size_t>(room, 64 * 1024));
            if (n == 0) break;
            moved += n;
            const bool adds = got < half;
            got += n;
            if (!adds) continue;
            in_stage += n;
            if (in_stage < stage_bytes && got < half) continue;
            float* to = memory.data() + (got - in_stage) / sizeof(float);
            for (size_t i = 0; i < in_stage / sizeof(float); ++i) to[i] += stage[i];
            in_stage = 0;
        }
        if (moved != 0) continue;
        pollfd ready{stream.fd, static_cast<short>(POLLIN | (sent < bytes ? POLLOUT : 0)), 0};
        poll(&ready, 1, -1);
    }
}

void measure(Stream& stream, size_t bytes, int repetitions, bool prints) {
    std::vector<float> memory(bytes / sizeof(float), 1.0f),
        stage(std::min<size_t>(bytes / 2, 16 * 1024) / sizeof(float));
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        exchange(stream, memory, stage);
        times.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
        std::ranges::fill(memory, 1.0f);
    }
    if (!prints) return;
    std::printf("{\"operation\": \"raw_%s\", \"bytes\": %zu, \"microseconds\": [", stream.ssl ? "tls" : "tcp",
                bytes);
    for (size_t i = 0; i < times.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ", ", times[i]);
    std::printf("]}\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "raw_stream LISTEN|DIAL ADDRESS [BYTES,BYTES] [REPETITIONS]\n");
        return 2;
    }
    const bool listens = std::string(argv[1]) == "LISTEN";
    const std::string sizes = argc > 3 ? argv[3] : "65536,1048576,16777216,67108864";
    const int repetitions = argc > 4 ? std::atoi(argv[4]) : 20;
    const int fd = open_connection(listens, argv[2]);
    Stream plain{fd, nullptr};
    const auto all = [&](Stream& stream) {
        for (size_t from = 0; from < sizes.size();) {
            const size_t end = std::min(sizes.find(',', from), sizes.size());
            measure(stream, std::stoul(sizes.substr(from, end - from)), repetitions, !listens);
            from = end + 1;
        }
    };
    all(plain);
    Stream tls{fd, secure(fd, listens)};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    all(tls);
}
