// Mail: messages between random ranks of a program's group, sent and received at random moments; each has a
// tag of its own, so what must arrive where is known.
#pragma once

#include <deque>

#include "program.hpp"

namespace nexar::sim {

class Mail {
  public:
    Mail(Cluster& cluster, Program& program, Random& random, size_t letters, Duration within)
        : cluster_(cluster), program_(program) {
        const uint64_t counts[] = {0, 1, random.below(200), random.below(30'000)};
        for (size_t i = 0; i < letters; ++i) {
            Letter& letter = letters_.emplace_back();
            letter.from = static_cast<uint32_t>(random.below(program.group.size()));
            letter.to = static_cast<uint32_t>(random.below(program.group.size()));
            letter.tag = i;
            letter.count = counts[random.below(4)];
            letter.any_source = random.one_in(3);
            for (const bool sends : {true, false}) {
                ++cluster.to_be_submitted;
                cluster.clock.after(Duration(1) + Duration(static_cast<int64_t>(
                                                      random.below(static_cast<uint64_t>(within.count())))),
                                    [this, &letter, sends] { post(letter, sends); });
            }
        }
    }
    Mail(const Mail&) = delete;

    // Of living ranks. Empty: every letter that was received is the right one, and none is missing if there
    // was no fault; with faults, all calls have ended all the same.
    std::string wrong(bool faultless) const {
        for (const Letter& letter : letters_) {
            const std::string name = "message " + std::to_string(letter.tag) + " from " +
                                     std::to_string(letter.from) + " to " + std::to_string(letter.to) + ": ";
            for (const Call* call : {letter.sent, letter.received}) {
                const uint32_t rank = call == letter.sent ? letter.from : letter.to;
                if (call == nullptr || !is_alive(rank)) continue;
                if (!call->ended) return name + "it has not ended";
                if (faultless && !call->ok()) return name + call->outcome.error.text;
            }
            if (letter.received == nullptr || !letter.received->ok()) continue;
            const auto expected = Reference::input(letter.tag + 5, letter.from, letter.count, Dtype::u16);
            const engine::Outcome& got = letter.received->outcome;
            if (got.bytes != expected.size() || got.source != letter.from || got.tag != letter.tag)
                return name + "another one came";
            if (!std::equal(expected.begin(), expected.end(), letter.received->out_at_end.begin()))
                return name + "its bytes are wrong";
        }
        return {};
    }

  private:
    struct Letter {
        uint32_t from = 0, to = 0;
        uint64_t tag = 0, count = 0;
        bool any_source = false;
        Call *sent = nullptr, *received = nullptr;
    };
    bool is_alive(uint32_t rank) const {
        return !program_.stopped.contains(rank) && !cluster_.hosts[program_.group.placement[rank]]->dead;
    }
    void post(Letter& letter, bool sends) {
        --cluster_.to_be_submitted;
        const uint32_t rank = sends ? letter.from : letter.to;
        if (!is_alive(rank)) return;
        engine::OpRequest request =
            request_of({sends ? OpKind::send : OpKind::recv, Dtype::u16, ReduceOp::sum, letter.count, 0});
        request.tag = letter.tag;
        request.peer = sends ? letter.to : letter.any_source ? engine::any_rank : letter.from;
        std::vector<std::byte> bytes;
        if (sends) bytes = Reference::input(letter.tag + 5, letter.from, letter.count, Dtype::u16);
        Call& call =
            cluster_.submit(program_.group, rank, request, std::move(bytes), sends ? 0 : letter.count * 2);
        (sends ? letter.sent : letter.received) = &call;
    }

    Cluster& cluster_;
    Program& program_;
    std::deque<Letter> letters_;
};

}  // namespace nexar::sim
