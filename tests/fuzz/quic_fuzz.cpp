// Datagrams from anybody to a listening QUIC endpoint. The input is a sequence of datagrams: two bytes for
// the length, the bytes. One endpoint takes them all, so its limits are met too.
#include <cstdlib>

#include "core/bytes.hpp"
#include "core/random.hpp"
#include "quic/endpoint.hpp"
#include "support/test_certs.hpp"

namespace {

using namespace nexar;

struct World {
    test::CertificateAuthority ca{"root"};
    test::Leaf leaf = ca.issue("node");
    quic::Address local = *quic::Address::parse("10.0.0.1:4433");
    Random random{1};
    Time now{};
    std::vector<std::byte> buffer = std::vector<std::byte>(quic::Endpoint::send_buffer_bytes);
    std::unique_ptr<quic::Endpoint> endpoint;

    World() {
        quic::Config config;
        config.accept_join = true;
        auto judge = [](const quic::PeerChain& chain, std::string_view) {
            return test::node_id_of(chain.front());
        };
        auto made =
            quic::Endpoint::make(config, {leaf.certificate_pem, leaf.private_key_pem, ca.certificate_pem()},
                                 judge, [this](MutableBytes out) {
                                     for (std::byte& b : out) b = static_cast<std::byte>(random.next());
                                 });
        if (!made) std::abort();
        endpoint = std::move(*made);
    }
    void take(Bytes datagram) {
        quic::Address remote = *quic::Address::parse("10.0.1.1:9");
        remote.host[3] = static_cast<uint8_t>(random.next());
        now += std::chrono::milliseconds(2);
        endpoint->on_datagram(now, local, remote, datagram, 0, datagram.size() % 7 == 0 ? 600 : 0);
        if (endpoint->wake_at() <= now) endpoint->on_time(now);
        while (endpoint->poll_send(now, buffer)) {
        }
        while (endpoint->poll_event()) {
        }
        if (endpoint->stats().half_open > 256) std::abort();  // Config::half_open_max
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static World& world = *new World;  // one for all inputs: making keys for each would be all that happens
    Reader in(std::as_bytes(std::span(data, size)));
    while (in.left() > 2) {
        const size_t length = in.get<uint16_t>();
        world.take(in.take(std::min(length, in.left())));
    }
    return 0;
}
