// Which event the log has for a peer's bulk connection.
#include "node/bulk_log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace nexar;
using namespace nexar::node;

namespace {

struct Logged {
    std::vector<std::string> lines;
    Log log{[this](Level, const std::string& line) { lines.push_back(line); }, Level::debug};

    std::string of(bool was_up, const connections::BulkState& state) {
        log_bulk(log, was_up, state);
        return lines.back();
    }
};

connections::BulkState state_of(bool up, const std::string& why, const std::string& carrier_why) {
    connections::BulkState out{PeerIndex{3}, up, why, {}};
    out.carrier_why = carrier_why;
    return out;
}

}  // namespace

TEST_CASE("a bulk connection that was never up is not logged as down, but as awaited, with the reason") {
    Logged logged;
    const auto refused = state_of(false, "", "tcp refused at b:7655");
    CHECK(logged.of(false, refused) == R"(bulk_awaited peer=3 why="tcp refused at b:7655")");
    CHECK(logged.of(true, state_of(false, "closed by the peer", "tcp broke at b:7655"))
              .starts_with(R"(bulk_down peer=3 why="closed by the peer")"));
    auto made = state_of(true, "", "");
    made.is_new = true;
    CHECK(logged.of(false, made).starts_with("bulk_up peer=3 carrier=quic"));
    CHECK(logged.of(true, made).starts_with("bulk_up peer=3 carrier=quic"));
}

TEST_CASE("what becomes known of a bulk connection in use is not logged as a new one") {
    Logged logged;
    CHECK(logged.of(true, state_of(true, "", "tcp refused at b:7655")) ==
          R"(bulk_carrier peer=3 carrier=quic carrier_why="tcp refused at b:7655")");
}
