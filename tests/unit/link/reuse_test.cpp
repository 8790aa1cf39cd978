// A transfer's number that is used again: the node that makes a group chooses its id, so peers can provoke
// it.
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"

namespace nexar::link::test {

TEST_CASE("a receive under a number that a finished one had fails alone, and says why", "[H12][W1]") {
    Net net(2, 1);
    Memory from(3000), to(3000), again(3000);
    from.set(pattern(3000, 1));
    net[0].post(batch(1, {recv_spec(key(1, 7), 1, to, 1024)}, {}));
    net[1].post(batch(1, {}, {send_spec(key(1, 7), 0, from, 1024)}));
    REQUIRE(net.run());
    REQUIRE(net.done(0, 1));
    REQUIRE(net[0].stats(peer(1)).tombstones ==
            1);  // its sender has not confirmed the last ack, and never does
    // The mesh remembers a number of groups that are gone; then the id may be used again.
    for (uint64_t group = 1; group <= 5000; ++group) net[0].forget_group(key(group, 0).op.group);

    again.fill(std::byte{9});
    std::string why;
    net[0].post(batch(2, {recv_spec(key(1, 7), 1, again, 1024), recv_spec(key(1, 8), 1, to, 1024)}, {}));
    while (auto event = net[0].poll_event()) {
        REQUIRE(event->kind == MeshEvent::Kind::failed);
        REQUIRE(event->handle == 2);
        why = event->text;
    }

    CHECK(why.contains("used before"));
    net[1].post(batch(2, {}, {send_spec(key(1, 8), 0, from, 1024)}));
    REQUIRE(net.run());
    CHECK(net.done(0, 3));
    CHECK(to.flat() == pattern(3000, 1));
    CHECK(again.all(std::byte{9}));
    CHECK(net.garbage.empty());
}

}  // namespace nexar::link::test
