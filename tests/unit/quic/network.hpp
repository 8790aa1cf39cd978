// Two or more endpoints joined by a seeded network that loses, doubles, delays, reorders, corrupts and
// refuses datagrams over a size. Virtual time: nothing here waits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "quic/endpoint.hpp"
#include "support/test_certs.hpp"

namespace nexar::test {

using namespace std::chrono_literals;
using quic::Address;
using quic::CloseInfo;
using quic::ConnId;
using quic::Event;

inline Bytes bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

struct Weather {
    unsigned lose_one_in = 0, double_one_in = 0, corrupt_one_in = 0;
    Duration delay = 100us, jitter = 0us;
    size_t payload_max = 65507;
};

// One endpoint and what happened to it.
struct Host {
    Address address;
    std::unique_ptr<quic::Endpoint> endpoint;
    std::vector<Event> events;
    // Every accepted or dialled connection gets a receiver that collects.
    struct Inbox : quic::Receiver {
        std::array<std::vector<std::byte>, class_count> bytes;
        std::function<void(Class, Bytes)> also;
        std::vector<Class> order;  // of deliveries, equal neighbours merged
        void on_bytes(Class cls, Bytes b) override {
            auto& to = bytes[static_cast<size_t>(cls)];
            to.insert(to.end(), b.begin(), b.end());
            if (order.empty() || order.back() != cls) order.push_back(cls);
            if (also) also(cls, b);
        }
    };
    std::map<uint64_t, Inbox> inboxes;
    bool attach_receivers = true;
    std::function<void(const Event&)> on_event;  // for an owner that must act before the endpoint goes on

    const Event* last(Event::Kind kind) const {
        for (auto e = events.rbegin(); e != events.rend(); ++e)
            if (e->kind == kind) return &*e;
        return nullptr;
    }
    size_t count(Event::Kind kind) const {
        size_t n = 0;
        for (const Event& e : events) n += e.kind == kind;
        return n;
    }
    quic::Connection* connection() const {
        const Event* e = last(Event::Kind::connected);
        return e ? endpoint->find(e->conn) : nullptr;
    }
    Inbox& inbox() { return inboxes[last(Event::Kind::connected)->conn.value]; }
};

struct Packet {
    Time at;
    uint64_t order;
    Address from, to;
    std::vector<std::byte> bytes;
    bool operator<(const Packet& o) const { return std::tie(o.at, o.order) < std::tie(at, order); }
};

class Network {
  public:
    explicit Network(uint64_t seed) : random_(seed) {}

    Host& add(uint8_t number, quic::Config config, const quic::Identity& identity, quic::Verifier verifier) {
        auto host = std::make_unique<Host>();
        host->address = *Address::parse("10.0.0." + std::to_string(number) + ":4433");
        auto source = std::make_shared<Random>(random_.next());
        auto made = quic::Endpoint::make(std::move(config), identity, std::move(verifier),
                                         [source](MutableBytes out) {
                                             for (std::byte& b : out)
                                                 b = static_cast<std::byte>(source->next());
                                         });
        if (!made) throw std::runtime_error(made.error().text);
        host->endpoint = std::move(*made);
        hosts_.push_back(std::move(host));
        return *hosts_.back();
    }

    Weather weather;
    Time now{};
    std::function<void(const Packet&)> tap;  // sees what is sent
    uint64_t datagrams = 0;

    void send(const Address& from, const Address& to, Bytes bytes) {
        Packet p{now + weather.delay, next_++, from, to, {bytes.begin(), bytes.end()}};
        ++datagrams;
        if (tap) tap(p);
        if (bytes.size() > weather.payload_max || hit(weather.lose_one_in)) return;
        if (weather.jitter.count() > 0)
            p.at +=
                Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(weather.jitter.count()))));
        if (hit(weather.double_one_in)) {
            Packet again = p;
            again.at += weather.delay;
            again.order = next_++;
            air_.push(std::move(again));
        }
        if (hit(weather.corrupt_one_in))
            p.bytes[random_.below(p.bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
        air_.push(std::move(p));
    }
    // Lets everything happen until `done`, or for `limit` of virtual time. True: done.
    bool run(std::function<bool()> done, Duration limit = 20s) {
        const Time end = now + limit;
        while (true) {
            settle();
            if (done()) return true;
            Time next = air_.empty() ? never : air_.top().at;
            for (auto& h : hosts_) next = std::min(next, h->endpoint->wake_at());
            if (next > end) {
                now = end;
                return done();
            }
            now = std::max(now, next);
            while (!air_.empty() && air_.top().at <= now) {
                const Packet p = air_.top();
                air_.pop();
                for (auto& h : hosts_)
                    if (h->address == p.to) h->endpoint->on_datagram(now, p.to, p.from, p.bytes);
            }
            for (auto& h : hosts_)
                if (h->endpoint->wake_at() <= now) h->endpoint->on_time(now);
        }
    }
    void pass(Duration time) {
        run([] { return false; }, time);
    }
    std::vector<std::unique_ptr<Host>>& hosts() { return hosts_; }
    Random& random() { return random_; }

  private:
    bool hit(unsigned one_in) { return one_in > 0 && random_.one_in(one_in); }
    void settle() {
        for (auto& h : hosts_) {
            collect(*h);
            while (auto batch = h->endpoint->poll_send(now, buffer_)) {
                for (size_t at = 0; at < batch->bytes; at += batch->segment)
                    send(h->address, batch->remote,
                         Bytes(buffer_).subspan(at, std::min(batch->segment, batch->bytes - at)));
            }
            collect(*h);
        }
    }
    void collect(Host& h) {
        while (auto e = h.endpoint->poll_event()) {
            if (e->kind == Event::Kind::connected && h.attach_receivers)
                h.endpoint->find(e->conn)->set_receiver(&h.inboxes[e->conn.value]);
            if (h.on_event) h.on_event(*e);
            h.events.push_back(std::move(*e));
        }
    }

    Random random_;
    uint64_t next_ = 0;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::priority_queue<Packet> air_;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(quic::Endpoint::send_buffer_bytes);
};

// A certificate authority that all tests of a binary share: keys cost time.
inline const CertificateAuthority& test_ca() {
    static const CertificateAuthority ca("test root");
    return ca;
}
inline const Leaf& leaf(size_t number) {
    static std::map<size_t, Leaf> leaves;
    auto found = leaves.find(number);
    if (found == leaves.end())
        found = leaves.emplace(number, test_ca().issue("node " + std::to_string(number))).first;
    return found->second;
}
inline quic::Identity identity(size_t number) {
    return {leaf(number).certificate_pem, leaf(number).private_key_pem, test_ca().certificate_pem()};
}
inline Result<NodeId> accept_all(const quic::PeerChain& chain, std::string_view) {
    return node_id_of(chain.front());
}

// Two hosts with certificates of one authority; hosts()[0] dials.
struct Pair {
    Network net;
    Host& a;
    Host& b;
    ConnId dialled;
    explicit Pair(uint64_t seed, quic::Config config = {}, quic::Verifier va = accept_all,
                  quic::Verifier vb = accept_all)
        : net(seed),
          a(net.add(1, config, identity(1), std::move(va))),
          b(net.add(2, config, identity(2), std::move(vb))) {}
    void dial(std::string_view alpn = quic::alpn_nexar, std::optional<NodeId> expected = {}) {
        dialled = *a.endpoint->connect(net.now, a.address, b.address, alpn, expected);
    }
    bool connect() {
        dial();
        return net.run([&] { return a.connection() && b.connection(); });
    }
};

}  // namespace nexar::test
