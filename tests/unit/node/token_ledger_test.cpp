// The tokens of an issuer whose disk is slow, full or both: what is answered is on disk, and what is listed
// is what a restart would list.
#include "node/token_ledger.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using namespace nexar::node;
using namespace nexar::admission;

namespace {

constexpr WallSeconds now = 1'800'000'000;

struct SlowDisk final : storage::Port {
    std::vector<std::pair<storage::Batch, storage::Saving>> handed_over;
    storage::Saving save(storage::Batch batch) override {
        return handed_over.emplace_back(std::move(batch), storage::Saving()).second;
    }
    void end(storage::Outcome outcome) { handed_over.back().second.settle(std::move(outcome)); }
    std::string text() const { return std::string(handed_over.back().first.at(0).content->text()); }
};

struct World {
    SlowDisk disk;
    TokenBook book;
    TokenLedger ledger{book, disk};

    storage::Saving create() {
        return ledger.change([](TokenBook& tokens) -> Result<void> {
            NEXAR_TRY_VOID(tokens.create(Digest{}, {"10.0.0.1:1"}, now, 60, 2));
            return {};
        });
    }
    storage::Saving revoke(size_t nth) {
        return ledger.change([nth](TokenBook& tokens) {
            if (nth >= tokens.entries().size()) return Result<void>(fail(Errc::not_found, "no such token"));
            return tokens.revoke(hex(tokens.entries()[nth].id));
        });
    }
};

bool succeeded(const storage::Saving& saving) {
    return saving.outcome() && saving.outcome()->result;
}
bool failed(const storage::Saving& saving) {
    return saving.outcome() && !saving.outcome()->result;
}

}  // namespace

TEST_CASE("a change is answered and listed when it is saved, not before [K6]", "[node][H15]") {
    World w;
    const auto created = w.create();
    CHECK(w.disk.handed_over.size() == 1);
    CHECK_FALSE(w.ledger.step());
    CHECK_FALSE(created.outcome());
    CHECK(w.book.entries().empty());
    w.disk.end({{}, 1});
    CHECK(w.ledger.step());
    CHECK(succeeded(created));
    CHECK(w.book.entries().size() == 1);
    CHECK(w.book.text().text() == w.disk.text());
}

TEST_CASE("changes that come while the file is written are saved together, in order [K6]", "[node]") {
    World w;
    const auto first = w.create(), second = w.create(), gone = w.revoke(0), third = w.create(),
               none = w.revoke(7);
    CHECK(w.disk.handed_over.size() == 1);
    w.disk.end({{}, 1});
    w.ledger.step();
    CHECK(succeeded(first));
    CHECK(failed(none));  // it changes nothing, and need not wait
    CHECK_FALSE(third.outcome());
    CHECK(w.disk.handed_over.size() == 2);
    CHECK(w.book.entries().size() == 1);
    w.disk.end({{}, 1});
    w.ledger.step();
    for (const auto& saving : {second, gone, third}) CHECK(succeeded(saving));
    CHECK(w.book.entries().size() == 2);
    CHECK(w.book.text().text() == w.disk.text());
}

TEST_CASE("what a failed write was to save is gone, and what waited for it is applied to the old list [K6]",
          "[node][H15]") {
    World w;
    w.create();
    w.disk.end({{}, 1});
    w.ledger.step();
    const Secret before = w.book.text();
    const auto revoked = w.revoke(0), created = w.create();
    w.disk.end({fail(Errc::io, "no room"), 0});
    w.ledger.step();
    CHECK(failed(revoked));
    CHECK(w.book.text() == before);
    CHECK_FALSE(created.outcome());
    w.disk.end({{}, 1});
    w.ledger.step();
    CHECK(succeeded(created));
    CHECK(w.book.entries().size() == 2);  // the first one is there still
}

TEST_CASE("a file that was replaced although its write failed is what memory follows [K4] [K6]",
          "[node][H15]") {
    World w;
    w.create();
    w.disk.end({{}, 1});
    w.ledger.step();
    const auto revoked = w.revoke(0);
    w.disk.end({fail(Errc::io, "the directory's sync failed"), 1});
    w.ledger.step();
    CHECK(failed(revoked));
    CHECK(w.book.entries().empty());
    CHECK(w.disk.text().empty());
}

TEST_CASE("a change that is refused half-way changes nothing and writes nothing [K6]", "[node][H15]") {
    World w;
    const auto refused = w.ledger.change([](TokenBook& tokens) -> Result<void> {
        NEXAR_TRY_VOID(tokens.create(Digest{}, {"10.0.0.1:1"}, now, 60, 2));
        return fail(Errc::bad_state, "changed my mind");
    });
    CHECK(failed(refused));
    CHECK(w.book.entries().empty());
    CHECK(w.disk.handed_over.empty());
}

TEST_CASE("what waits for a slow disk is bounded [K5]", "[node]") {
    World w;
    w.create();
    for (size_t i = 0; i < TokenLedger::waiting_max; ++i) CHECK_FALSE(w.create().outcome());
    const auto refused = w.create();
    REQUIRE(failed(refused));
    CHECK(refused.outcome()->result.error().code == Errc::table_full);
    for (size_t writes = 1;
         !w.disk.handed_over.empty() && w.book.entries().size() <= TokenLedger::waiting_max; ++writes) {
        REQUIRE(writes <=
                1 + (TokenLedger::waiting_max + TokenLedger::together_max - 1) / TokenLedger::together_max);
        w.disk.end({{}, 1});
        w.ledger.step();
    }
    CHECK(w.book.entries().size() == TokenLedger::waiting_max + 1);
}
