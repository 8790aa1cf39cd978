// What one QUIC connection moves over loopback, one way: two threads, each with its own port and CPU clock.
//
//   quic_bench [GiB per run = 1] [runs = 5]
//
// Prints Gbit/s and CPU seconds per GB of each side, for datagrams of 1452 bytes and for path probing up to
// 65507. Writes of 256 KiB; the receiver copies what it gets once. PIN in the environment: each thread has a
// processor of its own.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bench_thread.hpp"
#include "support/test_certs.hpp"
#include "transport/quic_port.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using quic::Event;
using transport::QuicPort;

namespace {

Time clock_now() {
    return Time(std::chrono::steady_clock::now().time_since_epoch());
}

const test::CertificateAuthority& ca() {
    static const test::CertificateAuthority one("root");
    return one;
}

struct Side final : quic::Receiver {
    std::unique_ptr<QuicPort> port;
    quic::Connection* connection = nullptr;
    bool closed = false;
    uint64_t bytes = 0;
    std::vector<std::byte> copy = std::vector<std::byte>(256 << 10);
    size_t copied = 0;

    explicit Side(size_t payload_max) {
        const test::Leaf leaf = ca().issue("node");
        quic::Identity identity;
        identity.certificate_chain = leaf.certificate_pem;
        identity.private_key = leaf.private_key_pem;
        identity.trust_anchors = ca().certificate_pem();
        QuicPort::Options options;
        options.listen = *quic::Address::parse("127.0.0.1:0");
        options.quic.udp_payload_max = payload_max;
        if (const char* s = std::getenv("SEND_BUFFER"))
            options.quic.send_buffer_max[3] = std::strtoull(s, nullptr, 0);
        if (const char* s = std::getenv("WINDOW"))
            options.quic.receive_window[3] = std::strtoull(s, nullptr, 0);
        if (std::getenv("PACING")) options.quic.pacing = true;
        auto judge = [](const quic::PeerChain& chain, std::string_view) {
            return test::node_id_of(chain.front());
        };
        port = std::move(*QuicPort::open(std::move(options), identity, judge));
    }
    void on_bytes(Class, Bytes b) override {
        bytes += b.size();
        while (!b.empty()) {
            const size_t n = std::min(b.size(), copy.size() - copied);
            std::memcpy(copy.data() + copied, b.data(), n);
            copied = (copied + n) % copy.size();
            b = b.subspan(n);
        }
    }
    template <class Step>
    void run(Step step) {
        while (!closed) {
            const Time now = clock_now();
            bool busy = port->on_readable(now);
            if (port->wake_at() <= now) port->on_time(now);
            while (auto e = port->poll_event()) {
                if (e->kind == Event::Kind::connected) {
                    connection = port->endpoint().find(e->conn);
                    connection->set_receiver(this);
                }
                if (e->kind == Event::Kind::closed) closed = true;
            }
            if (connection && !closed) step();
            busy = port->flush(now) || busy;
            if (busy || closed) continue;
            pollfd p{port->fd(), static_cast<short>(POLLIN | (port->wants_writable() ? POLLOUT : 0)), 0};
            const Duration wait = std::clamp<Duration>(port->wake_at() - clock_now(), 0ns, 1000ms);
            const timespec t{wait / 1s, (wait % 1s).count()};
            ppoll(&p, 1, &t, nullptr);
        }
    }
};

struct Outcome {
    double gbits, send_cpu, receive_cpu;
};

Outcome run_once(size_t payload_max, uint64_t total) {
    Side a(payload_max), b(payload_max);
    Outcome out{};
    quic::ConnectionStats stats;
    std::thread receiver([&] {
        bench::pin(1);
        const double cpu = bench::cpu_seconds();
        b.run([&] {
            if (b.bytes == total) b.connection->close(20, "done");
        });
        out.receive_cpu = (bench::cpu_seconds() - cpu) / (static_cast<double>(total) * 1e-9);
    });
    std::ignore = a.port->connect(clock_now(), b.port->local(), quic::alpn_nexar);
    const std::vector<std::byte> piece(256 << 10, std::byte{42});
    uint64_t written = 0;
    Time begin{};
    const double cpu = bench::cpu_seconds();
    a.run([&] {
        if (written == 0) begin = clock_now();
        while (written < total && a.connection->room(Class::bulk) >= piece.size()) {
            a.connection->write(Class::bulk, piece);
            written += piece.size();
        }
        if (written == total) stats = a.connection->stats();
    });
    out.send_cpu = (bench::cpu_seconds() - cpu) / (static_cast<double>(total) * 1e-9);
    out.gbits =
        static_cast<double>(total) * 8e-9 / std::chrono::duration<double>(clock_now() - begin).count();
    receiver.join();
    std::printf(
        "  %5.1f Gbit/s   CPU s/GB send %.3f receive %.3f   payload %zu lost %llu sends %llu receives %llu\n",
        out.gbits, out.send_cpu, out.receive_cpu, stats.udp_payload,
        static_cast<unsigned long long>(stats.packets_lost),
        static_cast<unsigned long long>(a.port->socket_stats().sends),
        static_cast<unsigned long long>(b.port->socket_stats().receives));
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    bench::pin(0);
    const uint64_t total = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 1) << 30;
    const int runs = argc > 2 ? std::atoi(argv[2]) : 5;
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
