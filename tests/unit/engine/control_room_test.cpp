// The room that operations reserve in the control logs is enough for the longest of their messages.
#include "engine/control_room.hpp"

#include <catch2/catch_test_macros.hpp>

#include "engine/open_room.hpp"
#include "wire/codec.hpp"
#include "wire/limits.hpp"

namespace nexar::engine {
namespace {

size_t bytes_of(const wire::Message& message) {
    return wire::encode(message).size();
}

TEST_CASE("the longest control message of each kind fits what is reserved for it", "[L8]") {
    Error error{Errc::aborted, std::string(2 * wire::text_bytes_max, 'x'), 1, 2,
                std::string(2 * wire::hostname_bytes_max, 'n')};
    error.pid = 7;
    const GroupId group{1, 2, 3};
    CHECK(bytes_of(wire::OpAnnounce{group, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) <= announce_bytes_max);
    CHECK(bytes_of(wire::ArrivalQuery{group, 1, 2, 3}) <= query_bytes_max);
    CHECK(bytes_of(wire::OpAbort{group, 1, 2, error}) <= abort_bytes_max);
    CHECK(bytes_of(wire::MessageOffer{group, 1, 2, 3, 4, 5, 6, 7}) <= offer_bytes_max);
    CHECK(bytes_of(wire::MessageWithdraw{group, 1}) <= withdraw_bytes_max);
    const wire::RequestId id{NodeId{}, UINT64_MAX};
    const wire::GroupOpen open{id,         {}, std::string(wire::group_name_bytes_max, 'g'),
                               2,          1,  3,
                               {4, 5},     6,  {7, 8, 9},
                               UINT64_MAX, {}, UINT64_MAX};
    CHECK(bytes_of(open) <= open_bytes_max);
    CHECK(bytes_of(wire::GroupWithdraw{id, {}, true, true}) <= open_withdraw_bytes_max);
    CHECK(bytes_of(wire::GroupStatusRequest{id, {}}) <= status_request_bytes_max);
}

}  // namespace
}  // namespace nexar::engine
