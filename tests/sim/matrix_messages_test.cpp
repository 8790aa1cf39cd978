// Messages whose send or receive is cancelled, or late, at every event of them (matrix.hpp), on one
// node and on two, short and long: what arrives is whole, in order and comes once; only the side that was
// struck has its own end.
#include <map>

#include "matrix.hpp"
#include "post.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t tag = 7;
constexpr uint32_t sender = 0, receiver = 1;

struct Scene {
    std::string name;
    std::vector<uint32_t> placement;
    uint64_t count;
    bool set_apart;  // the receiver matches first (mprobe), and takes it by an mrecv
};

const std::vector<Scene> scenes = {{"short, one node", {0, 0}, 8, false},
                                   {"long, one node", {0, 0}, 60'000, false},
                                   {"short, two nodes", {0, 1}, 8, false},
                                   {"long, two nodes", {0, 1}, 60'000, false},
                                   {"long, set apart, two nodes", {0, 1}, 60'000, true}};

// Two sends, and what takes them. The blow meets the first of the side.
class Trial {
  public:
    Trial(uint64_t seed, const Scene& scene, uint32_t late, Duration timeout)
        : cluster(seed, shape()), post(cluster, cluster.make_group(scene.placement)), scene_(scene) {
        later(sender, [this, late, timeout] { send(late == sender ? timeout : Duration{-1}); });
        later(sender, [this] { send(); });
        later(receiver, [this, late, timeout] {
            const Duration own = late == receiver ? timeout : Duration{-1};
            if (!scene_.set_apart) return take(own);
            probe = &post.look(OpKind::mprobe, receiver, sender, tag);
            take_when_apart(own);
        });
        if (!scene.set_apart) later(receiver, [this] { take(); });
    }
    static ClusterShape shape() {
        ClusterShape out = shape_of(2);
        out.plan.small_bytes_max = 1024;
        out.collective_timeout = Duration{0};
        return out;
    }
    const Call* first_of(uint32_t rank) const {
        const auto& calls = rank == sender ? sent : received;
        return calls.empty() ? nullptr : calls.front();
    }
    void send(Duration timeout = Duration{-1}) {
        const uint64_t n = sent.size();
        sent.push_back(&post.send(sender, receiver, tag, 90 + n, scene_.count + n, timeout));
    }
    void take(Duration timeout = Duration{-1}) {
        received.push_back(&post.recv(receiver, sender, tag, scene_.count + 9, timeout));
    }
    bool is_over() const { return cluster.to_be_submitted == 0 && cluster.all_ended(); }
    // Receives for all messages that are left, one after the other.
    void take_rest() {
        for (int i = 0; i < 4 && !std::ranges::all_of(sent, &Call::ended); ++i) {
            take();
            cluster.run_for(20ms);
        }
        for (const Call* call : received)
            if (!call->ended) cluster.cancel(post.group, receiver, *call);
    }

    Cluster cluster;
    Post post;
    std::vector<const Call*> sent, received;
    const Call* probe = nullptr;

  private:
    void later(uint32_t rank, std::function<void()> act) {
        ++cluster.to_be_submitted;
        last_[rank] += 1us + cluster.clock.some(30us);
        cluster.clock.after(last_[rank], [this, act = std::move(act)] {
            --cluster.to_be_submitted;
            act();
        });
    }
    void take_when_apart(Duration timeout) {
        if (!probe->ended) return later(receiver, [this, timeout] { take_when_apart(timeout); });
        if (probe->ok())
            received.push_back(&post.mrecv(receiver, probe->outcome.message, scene_.count + 9, timeout));
        take();
    }
    Scene scene_;
    Duration last_[2]{};
};

// Which message a receive got, by its length.
uint64_t number_of(const Call& call, const Scene& scene) {
    return call.outcome.bytes / 4 - scene.count;
}

struct Ends {
    size_t ok = 0, struck = 0, aborted = 0, delivered_all_the_same = 0;

    void look(const Trial& trial, const Scene& scene, const Hit& hit) {
        const Errc own = hit.blow == Blow::deadline ? Errc::timed_out : Errc::cancelled;
        const Call* victim = trial.first_of(hit.rank);
        std::map<uint64_t, size_t> came;
        uint64_t next = 0;
        for (const Call* call : trial.received) {
            CAPTURE(call->outcome.error.text);
            REQUIRE(call->ended);
            if (call->ok()) {
                const uint64_t number = number_of(*call, scene);
                // In the order of the sends; a message that was set apart has left it.
                if (!scene.set_apart) REQUIRE(number >= next);
                next = number + 1;
                expect_message(*call, 90 + number, scene.count + number, sender, tag);
                REQUIRE(++came[number] == 1);
            } else if (call->outcome.error.code == Errc::aborted) {
                REQUIRE(hit.rank == sender);  // it took back what this receive was taking
                REQUIRE(call->outcome.error.rank == sender);
                ++aborted;
            } else {
                REQUIRE((call == victim ? call->outcome.error.code == own
                                        : call->outcome.error.code == Errc::cancelled));
            }
        }
        for (size_t i = 0; i < trial.sent.size(); ++i) {
            const Call& call = *trial.sent[i];
            look_at_send(call, came[i], &call == victim, own, hit);
        }
        ok += victim->ok(), struck += !victim->ok();
    }
    void look_at_send(const Call& call, size_t came, bool is_victim, Errc own, const Hit& hit) {
        CAPTURE(call.outcome.error.text, came);
        REQUIRE(call.ended);
        if (call.ok()) {
            REQUIRE(came == 1);
        } else if (call.outcome.error.code == Errc::aborted) {
            REQUIRE((hit.rank == receiver && came == 0));  // a later receive has got a newer one already
            ++aborted;
        } else {
            REQUIRE((is_victim && call.outcome.error.code == own));
            delivered_all_the_same += came;
        }
    }
};

void one_trial(uint64_t seed, const Scene& scene, const Hit& hit, Time began, Ends& ends) {
    const bool by_deadline = hit.blow == Blow::deadline;
    const Duration timeout = hit.at - began;
    if (timeout <= Duration{1}) return;  // 1: OpRequest::only_now
    Trial trial(seed, scene, by_deadline ? hit.rank : 2, timeout);
    run_to_event(trial.cluster, hit.event + 1);
    if (!by_deadline) trial.cluster.cancel(trial.post.group, hit.rank, *trial.first_of(hit.rank));
    trial.cluster.run_for(30ms);
    REQUIRE(trial.first_of(hit.rank)->ended);
    trial.send();
    trial.take_rest();
    expect_end(trial.cluster);
    ends.look(trial, scene, hit);
    // The pair goes on as if nothing had been.
    const Call& sent = trial.post.send(sender, receiver, tag, 5, 30);
    const Call& received = trial.post.recv(receiver, sender, tag, 30);
    expect_end(trial.cluster);
    REQUIRE(sent.ok());
    expect_message(received, 5, 30, sender, tag);
}

}  // namespace

TEST_CASE("matrix: a send or receive cancelled or late at any event: messages whole, in order, once",
          "[D8]") {
    for (const Scene& scene : scenes) {
        Ends ends;
        for (const uint64_t seed : seeds(2)) {
            Trial calm(seed, scene, 2, {});
            const std::vector<Time> events = events_of(calm.cluster, [&] { return calm.is_over(); });
            for (const uint64_t event : Rounds(2).events(seed, events.size()))
                for (const uint32_t rank : {sender, receiver})
                    for (const Blow blow : {Blow::cancel, Blow::deadline}) {
                        CAPTURE(scene.name, seed, event, rank, int(blow));
                        one_trial(seed, scene, {blow, rank, event, events[event]},
                                  calm.first_of(rank)->submitted, ends);
                    }
        }
        CAPTURE(scene.name);
        REQUIRE(met(ends.ok));
        REQUIRE(met(ends.struck));
    }
}

}  // namespace nexar::sim
