// The UDP socket over loopback: batches, sizes, ECN, addresses, refusals.
#include "transport/udp_socket.hpp"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using quic::Address;
using transport::UdpSocket;

namespace {

std::unique_ptr<UdpSocket> open(const char* where, UdpSocket::Options options = {}) {
    auto made = UdpSocket::open(*Address::parse(where), options);
    if (!made) FAIL(made.error().text);
    return std::move(*made);
}

std::vector<std::byte> numbered(size_t n) {
    std::vector<std::byte> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 7 >> 4);
    return out;
}

struct Got {
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
    uint8_t ecn = 0;
    Address local, remote;
    size_t messages = 0;
};

// Waits for `bytes` in all, at most 20 s for the next.
Got receive(UdpSocket& socket, size_t bytes) {
    Got got;
    std::array<UdpSocket::Received, UdpSocket::messages_per_receive> in;
    while (got.bytes.size() < bytes) {
        pollfd p{socket.fd(), POLLIN, 0};
        if (poll(&p, 1, 20'000) <= 0) break;
        const size_t n = socket.receive(in);
        for (size_t i = 0; i < n; ++i) {
            ++got.messages;
            got.bytes.insert(got.bytes.end(), in[i].bytes.begin(), in[i].bytes.end());
            const size_t step = in[i].segment ? in[i].segment : in[i].bytes.size();
            for (size_t at = 0; at < in[i].bytes.size(); at += step)
                got.sizes.push_back(std::min(step, in[i].bytes.size() - at));
            got.ecn = in[i].ecn;
            got.local = in[i].local;
            got.remote = in[i].remote;
        }
    }
    return got;
}

void check_batch(const char* where, UdpSocket::Options options) {
    auto a = open(where, options), b = open(where, options);
    const auto bytes = numbered(1452 * 20 + 100);
    const quic::SendBatch batch{a->local(), b->local(), bytes.size(), 1452, 2};
    REQUIRE(a->send(batch, bytes) == bytes.size());
    const Got got = receive(*b, bytes.size());
    CHECK(got.bytes == bytes);
    REQUIRE(got.sizes.size() == 21);
    CHECK(got.sizes[0] == 1452);
    CHECK(got.sizes[20] == 100);
    CHECK(got.ecn == 2);
    CHECK(got.remote == a->local());
    CHECK(got.local == b->local());
    CHECK(a->stats().datagrams_sent == 21);
    CHECK(b->stats().datagrams_received == 21);
    CHECK(a->stats().sends == (options.segmentation ? 1 : 21));
    if (!options.coalescing) CHECK(got.messages == 21);
}

}  // namespace

TEST_CASE("a batch arrives datagram by datagram, with its ECN mark and addresses", "[transport]") {
    check_batch("127.0.0.1:0", {});
    check_batch("127.0.0.1:0", {.segmentation = false});
    check_batch("127.0.0.1:0", {.coalescing = false});
}

TEST_CASE("the same over IPv6", "[transport]") {
    if (!UdpSocket::open(*Address::parse("[::1]:0"), {})) SKIP("no IPv6 here");
    check_batch("[::1]:0", {});
    check_batch("[::1]:0", {.segmentation = false, .coalescing = false});
}

TEST_CASE("a wildcard socket reports the address that was sent to, and answers from it", "[transport]") {
    auto a = open("127.0.0.1:0"), b = open("0.0.0.0:0");
    Address to = *Address::parse("127.0.0.77:0");
    to.port = b->local().port;
    const auto bytes = numbered(10);
    a->send({a->local(), to, 10, 10, 0}, bytes);
    const Got got = receive(*b, 10);
    CHECK(got.local == to);
    b->send({got.local, got.remote, 10, 10, 0}, bytes);
    CHECK(receive(*a, 10).remote == to);
}

TEST_CASE("datagrams up to 65507 pass over loopback; a larger one is dropped like a lost one",
          "[transport]") {
    auto a = open("127.0.0.1:0"), b = open("127.0.0.1:0");
    const auto bytes = numbered(65507);
    CHECK(a->send({a->local(), b->local(), 65507, 65507, 0}, bytes) == 65507);
    CHECK(receive(*b, 65507).bytes == bytes);
    const auto larger = numbered(65508);
    CHECK(a->send({a->local(), b->local(), 65508, 65508, 0}, larger) == 65508);
    CHECK(a->stats().too_big == 1);
}

TEST_CASE("a batch that the kernel will not segment goes out datagram by datagram", "[transport]") {
    auto a = open("127.0.0.1:0"), b = open("127.0.0.1:0");
    // 200 segments are over the kernel's limit (64 or 128): EINVAL.
    const auto bytes = numbered(200 * 20);
    CHECK(a->send({a->local(), b->local(), bytes.size(), 20, 0}, bytes) == bytes.size());
    CHECK(a->stats().segmentation_refused == 1);
    const Got got = receive(*b, bytes.size());
    CHECK(got.bytes == bytes);
    CHECK(got.sizes.size() == 200);
    CHECK(a->stats().segmentation);
    for (int i = 0; i < 8; ++i) a->send({a->local(), b->local(), bytes.size(), 20, 0}, bytes);
    CHECK_FALSE(a->stats().segmentation);  // and after several refusals it is not tried any more
}

TEST_CASE("a full socket takes part of a batch and the rest later", "[transport]") {
    UdpSocket::Options small;
    small.buffer_bytes = 4096;
    small.segmentation = false;
    auto a = open("127.0.0.1:0", small), b = open("127.0.0.1:0");
    const auto bytes = numbered(60'000);
    size_t done = 0;
    for (int i = 0; i < 1000 && done < bytes.size(); ++i) {
        const Bytes rest = Bytes(bytes).subspan(done);
        done += a->send({a->local(), b->local(), rest.size(), 1000, 0}, rest);
        pollfd p{a->fd(), POLLOUT, 0};
        poll(&p, 1, 100);
    }
    CHECK(done == bytes.size());
}

TEST_CASE("a closed port is reported as unreachable, and does not stop other sends", "[transport]") {
    auto a = open("127.0.0.1:0"), b = open("127.0.0.1:0"), c = open("127.0.0.1:0");
    const Address closed = c->local();
    c.reset();
    const auto bytes = numbered(100);
    a->send({a->local(), closed, 100, 100, 0}, bytes);
    CHECK(a->send({a->local(), b->local(), 100, 100, 0}, bytes) == 100);
    CHECK(receive(*b, 100).bytes == bytes);
    std::array<UdpSocket::Received, UdpSocket::messages_per_receive> in;
    CHECK(a->receive(in) == 0);
    const auto who = a->poll_unreachable();
    REQUIRE(who);
    CHECK(*who == closed);
    CHECK_FALSE(a->poll_unreachable());
    pollfd p{a->fd(), POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 0);  // nothing is left that would wake the loop again
}

TEST_CASE("a socket that cannot be opened is an error with its reason", "[transport]") {
    auto a = open("127.0.0.1:0");
    const auto again = UdpSocket::open(a->local(), {});
    REQUIRE_FALSE(again);
    CHECK(again.error().text.find(a->local().text()) != std::string::npos);
    CHECK_FALSE(UdpSocket::open({}, {}));
}
