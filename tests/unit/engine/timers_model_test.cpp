// Random alarms against a model that looks at all of them each time: the same ones fire, in the same order,
// and the same deadline is next (docs/protocol/tenants.md [N16]).
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "core/random.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {
namespace {

using Number = uint64_t;  // of an alarm, as they were made

struct Model {
    struct User {
        std::map<Number, Time> alarms;  // never: not armed
        Time served_at{};
        uint64_t turn = 0;
    };
    struct Next {
        std::tuple<Time, uint64_t, uint64_t> place;  // when it is due, its user's turn, the user
        Number number;
    };
    std::optional<Next> next() const {
        std::optional<Next> out;
        for (const auto& [id, user] : users) {
            const auto first =
                std::ranges::min_element(user.alarms, {}, [](const auto& each) { return each.second; });
            if (first->second == never) continue;
            const Next found{{std::max(first->second, user.served_at), user.turn, id}, first->first};
            if (!out || found.place < out->place) out = found;
        }
        return out;
    }
    Time next_time() const {
        const auto found = next();
        return found ? std::get<Time>(found->place) : never;
    }
    std::map<uint64_t, User> users;  // that have an alarm, armed or not
    uint64_t turns = 0;
};

class Program {
  public:
    explicit Program(uint64_t seed)
        : random_(seed),
          users_(1 + random_.below(6)),
          horizon_(1 + random_.below(40)),
          asks_(1 + random_.below(8)),
          alarms_(1 + random_.below(60)) {}

    void run() {
        for (int i = 0; i < 400; ++i) {
            step();
            if (random_.below(asks_) == 0) REQUIRE(timers_.next() == model_.next_time());
            if (random_.below(8) > 0) continue;
            now_ += Duration(random_.below(10));
            timers_.run(now_, [this] { return now_; });
        }
        alarms_.clear();
        REQUIRE(timers_.next() == never);
    }

  private:
    struct One final : Alarm {
        One(Program& p, size_t where, uint64_t u, Number n)
            : Alarm(p.timers_, u), in(p), at(where), user(u), number(n) {
            in.model_.users[user].alarms[number] = never;
        }
        ~One() {
            auto& alarms = in.model_.users.at(user).alarms;
            alarms.erase(number);
            if (alarms.empty()) in.model_.users.erase(user);
        }
        void on_time() override { in.fired(at); }
        Program& in;
        const size_t at;
        const uint64_t user;
        const Number number;
    };

    void step() {
        std::unique_ptr<One>& one = alarms_[random_.below(alarms_.size())];
        if (!one) {
            const auto at = static_cast<size_t>(&one - alarms_.data());
            one = std::make_unique<One>(*this, at, random_.below(users_), made_++);
        } else if (random_.below(6) == 0) {
            return one.reset();
        }
        const uint64_t kind = random_.below(8);
        const Time at = kind == 0   ? never
                        : kind == 1 ? Time{}
                                    : now_ + Duration(random_.below(horizon_)) - Duration(horizon_ / 4);
        one->wake_at(at);
        model_.users.at(one->user).alarms.at(one->number) = at;
    }

    void fired(size_t at) {
        const auto wanted = model_.next();
        REQUIRE(wanted);
        REQUIRE(std::get<Time>(wanted->place) <= now_);
        REQUIRE(wanted->number == alarms_[at]->number);
        Model::User& user = model_.users.at(alarms_[at]->user);
        user.alarms.at(wanted->number) = never;
        user.served_at = now_;
        user.turn = ++model_.turns;
        if (random_.below(4) == 0) alarms_[at].reset();  // itself
        for (uint64_t more = random_.below(3); more > 0; --more) step();
        if (random_.below(100) == 0)
            for (auto& each : alarms_) each.reset();
    }

    Random random_;
    const uint64_t users_, horizon_, asks_;
    Time now_{Duration(100)};
    Model model_;
    Timers timers_;
    std::vector<std::unique_ptr<One>> alarms_;
    Number made_ = 0;
};

}  // namespace

TEST_CASE("alarms that come, go and move at random fire as in a model that looks at all of them", "[N16]") {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Program(seed).run();
    }
}

}  // namespace nexar::engine
