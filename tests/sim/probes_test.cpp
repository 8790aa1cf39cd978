// Probes, messages that are set apart, and messages in pieces (docs/protocol/messages.md).
#include "post.hpp"
#include "seeds.hpp"
#include "support/regions.hpp"

namespace nexar::sim {
namespace {

const std::vector<std::vector<uint32_t>> near_and_far{{0, 0, 0}, {0, 1, 2}};

ClusterShape endless(uint32_t nodes) {
    ClusterShape shape = shape_of(nodes);
    shape.collective_timeout = Duration{0};
    return shape;
}

uint64_t number_of(const Call& mprobe) {
    REQUIRE(mprobe.ok());
    REQUIRE(mprobe.outcome.message != 0);
    return mprobe.outcome.message;
}

void expect_found(const Call& call, uint64_t count, uint32_t source, uint64_t tag) {
    REQUIRE(call.ok());
    REQUIRE(call.outcome.bytes == 4 * count);
    REQUIRE(call.outcome.source == source);
    REQUIRE(call.outcome.tag == tag);
}

void expect_error(const Call& call, Errc code, int64_t rank) {
    REQUIRE(call.ended);
    CAPTURE(call.outcome.error.text);
    REQUIRE(call.outcome.error.code == code);
    REQUIRE(call.outcome.error.rank == rank);
}

}  // namespace

TEST_CASE("a probe finds the oldest message that a receive would take, and leaves it", "[X1][X2]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        Cluster cluster(1, endless(3));
        Post post(cluster, cluster.make_group(placement));
        Call& early = post.look(OpKind::probe, 1, engine::any_rank, 8);
        Call& none = post.look(OpKind::probe, 1, 2, -1, engine::OpRequest::only_now);
        cluster.run_for(1ms);
        REQUIRE_FALSE(early.ended);
        expect_error(none, Errc::timed_out, 2);
        post.send(0, 1, 7, 1, 10);
        cluster.run_for(1ms);
        post.send(2, 1, 8, 2, 20'000);
        cluster.run_for(1ms);
        post.send(0, 1, 8, 3, 0);
        cluster.run_for(1ms);

        expect_found(early, 20'000, 2, 8);
        expect_found(post.look(OpKind::probe, 1, engine::any_rank, -1), 10, 0, 7);
        expect_found(post.look(OpKind::probe, 1, engine::any_rank, 8, engine::OpRequest::only_now), 20'000, 2,
                     8);
        expect_found(post.look(OpKind::probe, 1, 0, 8), 0, 0, 8);
        Call& second = post.recv(1, engine::any_rank, 8, 20'000);
        Call& first = post.recv(1, engine::any_rank, -1, 20'000);
        Call& third = post.recv(1, engine::any_rank, -1, 20'000);
        expect_end(cluster);
        expect_message(second, 2, 20'000, 2, 8);
        expect_message(first, 1, 10, 0, 7);
        expect_message(third, 3, 0, 0, 8);
    }
}

TEST_CASE("a message for which a receive waits is never found, also if the probe was there first", "[X2]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        Cluster cluster(2, endless(3));
        Post post(cluster, cluster.make_group(placement));
        Call& probe = post.look(OpKind::probe, 1, 0, 5);
        Call& mprobe = post.look(OpKind::mprobe, 1, 0, 6);
        Call& recv = post.recv(1, 0, -1, 10);
        Call& second = post.recv(1, 0, -1, 10);
        post.send(0, 1, 5, 1, 10);
        post.send(0, 1, 6, 2, 10);
        post.send(0, 1, 7, 3, 10);
        cluster.run_for(10ms);
        expect_message(recv, 1, 10, 0, 5);
        expect_found(mprobe, 10, 0, 6);  // posted before the second receive
        expect_message(second, 3, 10, 0, 7);
        REQUIRE_FALSE(probe.ended);
        post.send(0, 1, 5, 4, 3);
        cluster.run_for(10ms);
        expect_found(probe, 3, 0, 5);
        Call& rest = post.recv(1, 0, 5, 10);
        Call& apart = post.mrecv(1, number_of(mprobe), 10);
        expect_end(cluster);
        expect_message(rest, 4, 3, 0, 5);
        expect_message(apart, 2, 10, 0, 6);
    }
}

TEST_CASE("a message that is set apart is its owner's; put back it is at its place again", "[X3]") {
    for (const std::vector<uint32_t>& placement : near_and_far)
        for (const uint64_t count : {0u, 10u, 50'000u}) {
            CAPTURE(placement, count);
            Cluster cluster(3, endless(3));
            Post post(cluster, cluster.make_group(placement));
            for (uint64_t i = 0; i < 4; ++i) post.send(0, 1, 5, i, count + i);
            cluster.run_for(1ms);
            Call& a = post.look(OpKind::mprobe, 1, 0, 5);
            Call& b = post.look(OpKind::mprobe, 1, engine::any_rank, -1);
            expect_found(a, count, 0, 5);
            expect_found(b, count + 1, 0, 5);
            expect_found(post.look(OpKind::probe, 1, 0, 5), count + 2, 0, 5);
            REQUIRE(post.put_back(1, number_of(a)).ok());
            expect_found(post.look(OpKind::probe, 1, 0, 5), count, 0, 5);
            Call& first = post.recv(1, 0, 5, count + 9);
            Call& third = post.recv(1, 0, 5, count + 9);
            Call& second = post.mrecv(1, number_of(b), count + 9);
            cluster.run_for(50ms);
            Call& c = post.look(OpKind::mprobe, 1, 0, 5);
            expect_found(c, count + 3, 0, 5);
            Call& waits = post.recv(1, 0, 5, count + 9);
            cluster.run_for(1ms);
            REQUIRE_FALSE(waits.ended);
            REQUIRE(post.put_back(1, number_of(c)).ok());
            expect_end(cluster);
            expect_message(first, 0, count, 0, 5);
            expect_message(second, 1, count + 1, 0, 5);
            expect_message(third, 2, count + 2, 0, 5);
            expect_message(waits, 3, count + 3, 0, 5);
        }
}

TEST_CASE("numbers of others, used ones and such that never were are refused", "[X4]") {
    Cluster cluster(4, endless(1));
    Post post(cluster, cluster.make_group({0, 0, 0}));
    post.send(0, 1, 5, 1, 10);
    post.send(2, 2, 6, 2, 10);  // to itself
    Call& its = post.look(OpKind::mprobe, 1, 0, 5);
    Call& own = post.look(OpKind::mprobe, 2, 2, 6);
    const uint64_t number = number_of(its);
    for (const uint64_t wrong : {uint64_t{0}, number_of(own), number + 2, UINT64_MAX}) {
        expect_error(post.mrecv(1, wrong, 10), Errc::bad_handle, -1);
        expect_error(post.put_back(1, wrong), Errc::bad_handle, -1);
    }
    expect_error(post.mrecv(2, number, 10), Errc::bad_handle, -1);
    REQUIRE(post.put_back(1, number).ok());
    expect_error(post.put_back(1, number), Errc::bad_handle, -1);
    expect_error(post.mrecv(1, number, 10), Errc::bad_handle, -1);
    const uint64_t again = number_of(post.look(OpKind::mprobe, 1, 0, 5));
    REQUIRE(again > number);
    Call& received = post.mrecv(1, again, 10);
    Call& to_itself = post.mrecv(2, number_of(own), 10);
    expect_end(cluster);
    expect_message(received, 1, 10, 0, 5);
    expect_message(to_itself, 2, 10, 2, 6);
    expect_error(post.mrecv(1, again, 10), Errc::bad_handle, -1);
}

TEST_CASE("a message that is too long for its mrecv is an error on both sides, and gone", "[X3]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        Cluster cluster(5, endless(3));
        Post post(cluster, cluster.make_group(placement));
        Call& send = post.send(0, 1, 5, 1, 10);
        cluster.run_for(1ms);
        const uint64_t number = number_of(post.look(OpKind::mprobe, 1, 0, 5));
        Call& recv = post.mrecv(1, number, 9);
        expect_end(cluster);
        expect_error(recv, Errc::mismatch, 1);
        expect_error(send, Errc::mismatch, 1);
        expect_error(post.put_back(1, number), Errc::bad_handle, -1);
    }
}

TEST_CASE("a sender that takes back what is set apart: its owner's mrecv names it", "[X3]") {
    size_t before = 0, amid = 0;
    for (const std::vector<uint32_t>& placement : near_and_far)
        for (const uint64_t seed : seeds(40)) {
            CAPTURE(placement, seed);
            const bool by_deadline = seed % 2;
            Cluster cluster(seed, endless(3));
            Post post(cluster, cluster.make_group(placement));
            Call& send = post.send(0, 1, 5, 1, 1'000'000, by_deadline ? 2ms : Duration{-1});
            cluster.run_for(1ms);
            const uint64_t number = number_of(post.look(OpKind::mprobe, 1, 0, 5));
            Call& next = post.recv(1, 0, 5, 1'000'000);
            cluster.run_for(cluster.clock.some(1500us));
            Call* recv = seed % 3 ? nullptr : &post.mrecv(1, number, 1'000'000);
            if (!by_deadline) {
                cluster.run_for(cluster.clock.some(400us));
                cluster.cancel(post.group, 0, send);
            }
            cluster.run_for(20ms);
            if (recv == nullptr) recv = &post.mrecv(1, number, 1'000'000);
            cluster.run_for(20ms);
            REQUIRE((recv->ended && send.ended));
            if (!recv->ok()) {
                ++(recv->submitted < send.finished ? amid : before);
                expect_error(*recv, Errc::aborted, 0);
                REQUIRE(send.outcome.error.code == (by_deadline ? Errc::timed_out : Errc::cancelled));
            }
            post.send(0, 1, 5, 2, 3);  // nothing is lost, and the group can be used
            expect_end(cluster);
            expect_message(next, 2, 3, 0, 5);
        }
    REQUIRE(met(before));
    REQUIRE(met(amid));
}

TEST_CASE("an mrecv that ends early leaves the message at its place", "[X3]") {
    size_t early = 0;
    for (const uint64_t seed : seeds(60)) {
        const bool by_deadline = seed % 2;
        CAPTURE(seed, by_deadline);
        Cluster cluster(seed, endless(2));
        Post post(cluster, cluster.make_group({0, 1}));
        post.send(0, 1, 5, 1, 50'000);
        post.send(0, 1, 5, 2, 50'000);
        cluster.run_for(1ms);
        const uint64_t number = number_of(post.look(OpKind::mprobe, 1, 0, 5));
        const Duration at = 1us + cluster.clock.some(400us);
        if (seed % 3 == 0)
            cluster.clock.after(cluster.clock.some(600us),
                                [&] { cluster.break_channel(0, 1, cluster.clock.some(200us)); });
        Call& first = post.mrecv(1, number, 50'000, by_deadline ? at : Duration{-1});
        if (!by_deadline) {
            cluster.run_for(at);
            cluster.cancel(post.group, 1, first);
        }
        while (!first.ended) cluster.run_for(10us);
        std::vector<Call*> received;
        if (!first.ok()) {
            ++early;
            REQUIRE(first.outcome.error.code == (by_deadline ? Errc::timed_out : Errc::cancelled));
            expect_error(post.put_back(1, number), Errc::bad_handle, -1);
            received.push_back(&post.recv(1, 0, 5, 50'000));
        }
        received.push_back(&post.recv(1, 0, 5, 50'000));
        expect_end(cluster);
        if (first.ok()) expect_message(first, 1, 50'000, 0, 5);
        for (size_t i = 0; i < received.size(); ++i)
            expect_message(*received[i], i + (first.ok() ? 2 : 1), 50'000, 0, 5);
    }
    REQUIRE(met(early));
}

TEST_CASE("a rank has at most 256 messages apart, and none holds up its sender", "[X5]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        Cluster cluster(6, endless(3));
        Post post(cluster, cluster.make_group(placement));
        constexpr uint64_t most = 256;
        std::vector<uint64_t> numbers;
        for (uint64_t i = 0; i < most; ++i) {
            post.send(0, 1, 5, i, 3);
            cluster.run_for(1ms);
            numbers.push_back(number_of(post.look(OpKind::mprobe, 1, 0, 5)));
        }
        Call& beyond = post.look(OpKind::mprobe, 1, 0, 5);
        REQUIRE_FALSE(beyond.accepted);
        REQUIRE(beyond.outcome.error.code == Errc::table_full);
        REQUIRE(beyond.outcome.error.text.contains("256"));
        post.send(0, 1, 5, most, 3);
        Call& other = post.recv(1, 0, 5, 3);
        cluster.run_for(1ms);
        expect_message(other, most, 3, 0, 5);
        std::vector<Call*> received;
        for (const uint64_t number : numbers) received.push_back(&post.mrecv(1, number, 3));
        expect_end(cluster);
        for (uint64_t i = 0; i < most; ++i) expect_message(*received[i], i, 3, 0, 5);
    }
}

TEST_CASE("a send that does not wait needs a receive: no probe takes or reports its message", "[X6]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        Cluster cluster(7, endless(3));
        Post post(cluster, cluster.make_group(placement));
        Call& probe = post.look(OpKind::probe, 1, 0, 5);
        Call& mprobe = post.look(OpKind::mprobe, 1, 0, 5);
        Call& refused = post.send(0, 1, 5, 1, 3, engine::OpRequest::only_now);
        cluster.run_for(1ms);
        expect_error(refused, Errc::timed_out, 1);
        REQUIRE_FALSE((probe.ended || mprobe.ended));
        Call& recv = post.recv(1, 0, 5, 3);
        Call& sent = post.send(0, 1, 5, 2, 3, engine::OpRequest::only_now);
        cluster.run_for(1ms);
        REQUIRE(sent.ok());
        expect_message(recv, 2, 3, 0, 5);
        cluster.cancel(post.group, 1, probe);
        cluster.cancel(post.group, 1, mprobe);
        expect_end(cluster);
        expect_error(probe, Errc::cancelled, -1);
    }
}

TEST_CASE("what is set apart by a rank that leaves, or fails, ends at its sender as what nobody received",
          "[X3]") {
    for (const std::vector<uint32_t>& placement : near_and_far)
        for (const bool crashes : {false, true}) {
            CAPTURE(placement, crashes);
            Cluster cluster(8, endless(3));
            Post post(cluster, cluster.make_group(placement));
            Call& apart = post.send(0, 1, 5, 1, 3);
            Call& unexpected = post.send(0, 1, 6, 1, 3);
            cluster.run_for(1ms);
            number_of(post.look(OpKind::mprobe, 1, 0, 5));
            cluster.end_session(post.group, 1, crashes);
            expect_end(cluster);
            REQUIRE(unexpected.outcome.error.code != Errc::ok);
            expect_error(apart, unexpected.outcome.error.code, 1);
        }
}

TEST_CASE("who waits for any rank while one fails gets the group's failure, naming that rank", "[X7]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        CAPTURE(placement);
        Cluster cluster(9, endless(3));
        Post post(cluster, cluster.make_group(placement));
        post.send(0, 1, 9, 1, 3);
        cluster.run_for(1ms);
        const uint64_t number = number_of(post.look(OpKind::mprobe, 1, 0, 9));
        const Call* calls[] = {&post.recv(1, engine::any_rank, -1, 3),
                               &post.look(OpKind::probe, 1, engine::any_rank, -1),
                               &post.look(OpKind::mprobe, 1, engine::any_rank, 7), &post.recv(1, 0, 8, 3),
                               &post.look(OpKind::probe, 1, 0, -1)};
        cluster.end_session(post.group, 2);
        expect_end(cluster);
        for (const Call* call : calls) expect_error(*call, Errc::peer_lost, 2);
        expect_error(post.mrecv(1, number, 3), Errc::peer_lost, 2);
    }
}

TEST_CASE("a rank that leaves in order ends probes that only it could answer", "[X7]") {
    for (const std::vector<uint32_t>& placement : near_and_far) {
        CAPTURE(placement);
        Cluster cluster(10, endless(3));
        Post post(cluster, cluster.make_group(placement));
        Call& recv = post.recv(1, 2, 5, 3);
        Call& probe = post.look(OpKind::probe, 1, 2, 5);
        Call& mprobe = post.look(OpKind::mprobe, 1, 2, -1);
        Call& any = post.look(OpKind::probe, 1, engine::any_rank, -1);
        cluster.end_session(post.group, 2, false);
        cluster.run_for(10ms);
        REQUIRE(recv.ended);
        expect_error(probe, recv.outcome.error.code, 2);
        expect_error(mprobe, recv.outcome.error.code, 2);
        REQUIRE_FALSE(any.ended);
        post.send(0, 1, 5, 1, 3);
        cluster.run_for(10ms);
        expect_found(any, 3, 0, 5);
        Call& last = post.recv(1, 0, 5, 3);
        expect_end(cluster);
        expect_message(last, 1, 3, 0, 5);
    }
}

namespace {

// Memory of `bytes` bytes in pieces of random length, each in a region of its own.
struct Scattered {
    std::vector<std::shared_ptr<std::vector<std::byte>>> parts;
    engine::PiecesRef pieces;

    Scattered(Cluster& cluster, uint32_t host, uint64_t count, Random& random) {
        engine::Pieces refs;
        while (count > 0 && refs.size() < 20) {
            const uint64_t part = refs.size() == 19 ? count : std::min(count, 1 + random.below(count));
            parts.push_back(std::make_shared<std::vector<std::byte>>(part * 4, std::byte{0xdd}));
            refs.push_back(nexar::test::ref_of(cluster.hosts[host]->engine->regions(), parts.back()));
            count -= part;
        }
        pieces = std::make_shared<const engine::Pieces>(std::move(refs));
    }
    void fill(const std::vector<std::byte>& all) {
        size_t at = 0;
        for (auto& part : parts) {
            std::copy_n(all.begin() + static_cast<ptrdiff_t>(at), part->size(), part->begin());
            at += part->size();
        }
    }
    std::vector<std::byte> all() const {
        std::vector<std::byte> out;
        for (const auto& part : parts) out.insert(out.end(), part->begin(), part->end());
        return out;
    }
};

}  // namespace

TEST_CASE("a message is the same in whatever pieces it is sent and received, and fills the first ones",
          "[X8]") {
    for (const std::vector<uint32_t>& placement : near_and_far)
        for (const uint64_t seed : seeds(40)) {
            CAPTURE(placement, seed);
            Cluster cluster(seed, endless(3));
            Post post(cluster, cluster.make_group(placement));
            Random random(seed);
            const uint64_t count = random.one_in(4) ? 1 + random.below(9) : 1 + random.below(60'000);
            const uint64_t room = count + random.below(100);
            Scattered from(cluster, placement[0], count, random), to(cluster, placement[1], room, random);
            const auto data = Reference::input(seed, 0, count, Dtype::i32);
            from.fill(data);
            if (seed % 3 == 0)
                cluster.clock.after(cluster.clock.some(300us),
                                    [&] { cluster.break_channel(0, 1, cluster.clock.some(200us)); });
            engine::OpRequest send = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, count, 0});
            send.peer = 1, send.tag = 5, send.pieces = from.pieces;
            engine::OpRequest recv = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, room, 0});
            recv.peer = 0, recv.tag = 5, recv.pieces = to.pieces;
            cluster.submit(post.group, 0, send, {}, 0);
            Call& received = cluster.submit(post.group, 1, recv, {}, 0);
            cluster.submit(post.group, 0, send, {}, 0);
            Call& whole = post.recv(1, 0, 5, room);
            expect_end(cluster);
            expect_found(received, count, 0, 5);
            std::vector<std::byte> want = data;
            want.resize(room * 4, std::byte{0xdd});
            REQUIRE(to.all() == want);
            expect_message(whole, seed, count, 0, 5);
        }
}

TEST_CASE("pieces that are together of another length are refused, and those of what has none", "[X8]") {
    Cluster cluster(1, endless(1));
    Post post(cluster, cluster.make_group({0, 0, 0}));
    Random random(1);
    Scattered memory(cluster, 0, 10, random);
    for (const OpKind kind : {OpKind::send, OpKind::recv, OpKind::probe}) {
        engine::OpRequest r =
            request_of({kind, Dtype::i32, ReduceOp::sum, kind == OpKind::probe ? 0u : 11u, 0});
        r.peer = 1, r.tag = 5, r.pieces = memory.pieces;
        Call& call = cluster.submit(post.group, 0, r, {}, 0);
        REQUIRE_FALSE(call.accepted);
        REQUIRE(call.outcome.error.code == Errc::invalid_argument);
    }
    expect_end(cluster);
}

}  // namespace nexar::sim
