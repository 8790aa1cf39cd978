// Calls on clients' connections, on threads: no packet and no end is lost, whenever it comes [S16].
#include "local/courier.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <span>

#include "core/random.hpp"

using namespace nexar;
using local::Connection;
using local::Courier;
using local::Fd;
using local::Packet;

namespace {

constexpr nexar_msg_head doorbell{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL};

struct Scene {
    std::shared_ptr<loop::Releaser> closer = *loop::Releaser::open(4);
    std::unique_ptr<Courier> courier = std::move(*Courier::open(closer, 1000));

    struct Pair {
        Fd client;
        local::ConnectionRef connection;
    };
    static Pair connect(uint64_t session) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        Pair out{Fd(ends[0]), std::make_shared<Connection>(Fd(ends[1]), 1)};
        out.connection->session = SessionId(session);
        out.connection->takes_doorbells = true;
        return out;
    }
    // What was delivered by now, looks as well.
    std::vector<Courier::Delivered> now() {
        REQUIRE(courier->idle_within(60));
        return courier->take(SIZE_MAX);
    }
    // The next packet that is one; for doorbells there is a look. Empty: none came in a minute.
    std::vector<Courier::Delivered> next() {
        for (;;) {
            pollfd ready{courier->ready_fd(), POLLIN, 0};
            if (::poll(&ready, 1, 60'000) != 1) return {};
            auto got = courier->take(SIZE_MAX);
            std::erase_if(got, [](const auto& one) { return one.packet.kind == Packet::Kind::nothing_yet; });
            if (!got.empty()) return got;
        }
    }
};

bool send(const Fd& to, Bytes bytes) {
    return local::send_packet(to.get(), bytes);
}

bool ring(const Fd& client) {
    return send(client, std::as_bytes(std::span(&doorbell, 1)));
}

// The daemon has not read all that this client has sent.
bool has_unread(const Fd& client) {
    int bytes = 0;
    REQUIRE(::ioctl(client.get(), SIOCOUTQ, &bytes) == 0);
    return bytes > 0;
}

}  // namespace

// The client's end stays open, as in a child that it forked: nothing else shows its end.
TEST_CASE("[S16] the end of a process is delivered, at whatever moment of a read it comes", "[local]") {
    Scene scene;
    Random random(7);
    for (uint64_t round = 1; round <= 3000; ++round) {
        const auto [client, connection] = Scene::connect(round);
        for (uint64_t i = random.below(12); i > 0; --i) REQUIRE(ring(client));
        scene.courier->read(connection);
        for (uint64_t spin = random.below(40'000); spin > 0; --spin)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        scene.courier->read_to_end(connection);
        const auto got = scene.next();
        CAPTURE(round);
        REQUIRE(got.size() == 1);
        REQUIRE(got[0].session == SessionId(round));
        REQUIRE(got[0].packet.kind == Packet::Kind::closed);
    }
}

TEST_CASE("[S16] packets are delivered one at a time, in order, whatever doorbells are between them",
          "[local]") {
    Scene scene;
    Random random(11);
    const auto [client, connection] = Scene::connect(1);
    uint64_t sent = 0, received = 0;
    while (received < 2000) {
        for (uint64_t i = random.below(6); i > 0 && sent < 2000; --i) {
            for (uint64_t rings = random.below(40); rings > 0; --rings) ring(client);
            if (send(client, std::as_bytes(std::span(&sent, 1)))) ++sent;
            scene.courier->read(connection);
        }
        if (sent == received) continue;
        const auto got = scene.next();
        REQUIRE(got.size() == 1);  // the next one waits until this one is handled
        uint64_t number = 0;
        REQUIRE(got[0].packet.size == sizeof number);
        std::memcpy(&number, got[0].packet.bytes, sizeof number);
        REQUIRE(number == received++);
        scene.courier->resume(connection);
    }
}

// epoll reports no arrival that was read before it looked: the loop, which is about to wake, sleeps on. So a
// doorbell of which the courier says nothing is one that was there when the loop asked.
TEST_CASE("[S7] no doorbell is read that the loop has not seen, without a report", "[local]") {
    Scene scene;
    const auto seen = [&](const Fd& client) { return !scene.now().empty() || has_unread(client); };
    size_t lost = 0;
    SECTION("after the loop has asked for what was read already") {
        for (uint64_t round = 1; round <= 200; ++round) {
            const auto [client, connection] = Scene::connect(round);
            scene.courier->read(connection);
            REQUIRE(ring(client));
            lost += !seen(client);
        }
    }
    SECTION("after it has handled a packet") {
        for (uint64_t round = 1; round <= 200; ++round) {
            const auto [client, connection] = Scene::connect(round);
            REQUIRE(send(client, std::as_bytes(std::span(&round, 1))));
            scene.courier->read(connection);
            REQUIRE(scene.next().size() == 1);
            scene.courier->resume(connection);
            REQUIRE(ring(client));
            lost += !seen(client);
        }
    }
    SECTION("when others had their turn in between") {
        for (uint64_t round = 1; round <= 50; ++round) {
            const auto [client, connection] = Scene::connect(round);
            for (int i = 0; i < 16; ++i) REQUIRE(ring(client));
            scene.courier->read(connection);
            pollfd look{scene.courier->ready_fd(), POLLIN, 0};
            REQUIRE(::poll(&look, 1, 60'000) == 1);
            REQUIRE(scene.courier->take(SIZE_MAX).size() == 1);
            connection->to_look = false;
            REQUIRE(ring(client));
            lost += !seen(client);
        }
    }
    CHECK(lost == 0);
}

TEST_CASE("[S7] a doorbell that was there is read, and nobody is woken for it", "[local]") {
    Scene scene;
    for (uint64_t round = 1; round <= 100; ++round) {
        const auto [client, connection] = Scene::connect(round);
        REQUIRE(ring(client));
        scene.courier->read(connection);
        REQUIRE(scene.now().empty());
        REQUIRE_FALSE(has_unread(client));
        REQUIRE(connection->asked == 0);
    }
}
