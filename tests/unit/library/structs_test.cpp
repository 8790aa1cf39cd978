// Structs of programs and libraries of different age; and how an error reads.
#include "structs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <vector>

#include "errors.hpp"
#include "operation.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

constexpr Operation all_reduce{.kind = NEXAR_OP_ALL_REDUCE};
constexpr Operation receive{.kind = NEXAR_OP_RECV};

// A later library's struct: this one, and 24 bytes more.
struct LaterOptions {
    nexar_op_options known = NEXAR_OP_OPTIONS_INIT;
    uint64_t later[3] = {};
    LaterOptions() { known.struct_size = sizeof *this; }
};

Errc code_of(const Operation& operation, const nexar_op_options& options) {
    const auto out = read_op_options(operation, &options);
    return out ? Errc::ok : out.error().code;
}

}  // namespace

TEST_CASE("a longer struct is taken while what is not known is zero", "[U4]") {
    LaterOptions later;
    later.known.match_id = 9;
    CHECK(read_op_options(all_reduce, &later.known)->match_id == 9);
    for (size_t byte = 0; byte < sizeof later.later; ++byte) {
        LaterOptions set;
        reinterpret_cast<char*>(set.later)[byte] = 1;
        const auto refused = read_op_options(all_reduce, &set.known);
        REQUIRE(!refused);
        CHECK(refused.error().code == Errc::invalid_argument);
        CHECK(refused.error().text.find("byte " + std::to_string(sizeof(nexar_op_options) + byte)) !=
              std::string::npos);
    }
}

TEST_CASE("a size that would end within a field is refused, so no half of a pointer is read") {
    nexar_group_options o = NEXAR_GROUP_OPTIONS_INIT;
    o.name = "a name";
    for (uint32_t size = 0; size <= sizeof o; ++size) {
        INFO("struct_size " << size);
        o.struct_size = size;
        const auto out =
            read_options(&o, nexar_group_options NEXAR_GROUP_OPTIONS_INIT, "nexar_group_options");
        REQUIRE(out.has_value() == (size >= struct_bytes_min && size % 8 == 0));
        if (!out) CHECK(out.error().code == Errc::invalid_argument);
        const bool whole = size >= offsetof(nexar_group_options, name) + sizeof o.name;
        if (out) CHECK(out->name == (whole ? o.name : nullptr));
    }
}

TEST_CASE("a shorter struct has defaults for the rest") {
    nexar_op_options o = NEXAR_OP_OPTIONS_INIT;
    o.match_id = 9;
    o.user_data = 5;
    o.struct_size = offsetof(nexar_op_options, match_id);  // garbage lies beyond
    const auto out = read_op_options(all_reduce, &o);
    REQUIRE(out);
    CHECK(out->match_id == 0);
    CHECK(out->user_data == 0);
    for (const uint32_t wrong : {0u, 1u, 7u, 4097u, 0xccccccccu}) {
        o.struct_size = wrong;
        CHECK(code_of(all_reduce, o) == Errc::invalid_argument);
    }
}

TEST_CASE("options of zeros are noticed", "[U4]") {
    nexar_op_options o{};
    CHECK(code_of(all_reduce, o) == Errc::invalid_argument);
    o.struct_size = sizeof o;
    CHECK(code_of(all_reduce, o) == Errc::invalid_argument);  // timeout 0
    o.timeout_ms = 5;
    CHECK(code_of(all_reduce, o) == Errc::ok);  // priority 0: critical
    o.priority = 3;
    CHECK(code_of(all_reduce, o) == Errc::invalid_argument);
    o.priority = NEXAR_PRIORITY_DEFAULT;
    CHECK(code_of(all_reduce, o) == Errc::ok);
    o.flags = NEXAR_FLAG_DETERMINISTIC | NEXAR_FLAG_F32_PARTIALS;
    CHECK(code_of(all_reduce, o) == Errc::ok);
    o.flags = 4;
    CHECK(code_of(all_reduce, o) == Errc::invalid_argument);
}

TEST_CASE("an operation's priority: its own, critical, realtime, bulk, and nothing else", "[K21]") {
    for (const Operation& operation : {all_reduce, receive}) {
        nexar_op_options o = NEXAR_OP_OPTIONS_INIT;
        CHECK(read_op_options(operation, nullptr)->priority == NEXAR_SHM_PRIORITY_DEFAULT);
        CHECK(read_op_options(operation, &o)->priority == NEXAR_SHM_PRIORITY_DEFAULT);
        for (int32_t priority = NEXAR_PRIORITY_CRITICAL; priority <= NEXAR_PRIORITY_BULK; ++priority) {
            o.priority = priority;
            CHECK(read_op_options(operation, &o)->priority == priority);
        }
        for (const int32_t wrong : {-2, 3, 255, INT32_MIN, INT32_MAX}) {
            o.priority = wrong;
            const auto out = read_op_options(operation, &o);
            REQUIRE_FALSE(out);
            CHECK(out.error().code == Errc::invalid_argument);
            CHECK(out.error().text.find("priority is " + std::to_string(wrong) + "; allowed: ") == 0);
            CHECK(out.error().text.find("NEXAR_PRIORITY_BULK (2)") != std::string::npos);
        }
    }
}

TEST_CASE("an operation's time-out: default, none, at once, so long") {
    nexar_op_options o = NEXAR_OP_OPTIONS_INIT;
    CHECK(read_op_options(all_reduce, nullptr)->timeout_ns == -1);
    CHECK(read_op_options(all_reduce, &o)->timeout_ns == -1);
    o.timeout_ms = NEXAR_TIMEOUT_NONE;
    CHECK(read_op_options(all_reduce, &o)->timeout_ns == 0);
    o.timeout_ms = 3;
    CHECK(read_op_options(all_reduce, &o)->timeout_ns == 3'000'000);
    o.timeout_ms = INT64_MAX;
    CHECK(read_op_options(all_reduce, &o)->timeout_ns > INT64_MAX / 2);
    o.timeout_ms = 0;
    CHECK(code_of(all_reduce, o) == Errc::invalid_argument);
    CHECK(read_op_options(receive, &o)->timeout_ns == 1);
    o.timeout_ms = -3;
    CHECK(code_of(receive, o) == Errc::invalid_argument);
    o.timeout_ms = NEXAR_TIMEOUT_DEFAULT;
    o.match_id = 1;
    CHECK(code_of(receive, o) == Errc::invalid_argument);
}

TEST_CASE("results are written as far as there is room, and zero beyond") {
    struct {
        nexar_completion known = NEXAR_COMPLETION_INIT;
        uint64_t later[2] = {7, 7};
    } room;
    nexar_completion value = NEXAR_COMPLETION_INIT;
    value.bytes = 11;
    value.epoch = 3;
    write_result(&room.known, value, sizeof room);
    CHECK(room.known.struct_size == sizeof room);
    CHECK(room.known.bytes == 11);
    CHECK(room.later[0] == 0);
    CHECK(room.later[1] == 0);
    nexar_completion shorter = NEXAR_COMPLETION_INIT;
    shorter.epoch = 99;
    write_result(&shorter, value, offsetof(nexar_completion, epoch));
    CHECK(shorter.bytes == 11);
    CHECK(shorter.epoch == 99);
}

TEST_CASE("an error in one line names the operation, the group and who") {
    const std::string group = "train";
    ErrorContext context("all_reduce");
    context.group = &group;
    context.epoch = 1;
    context.sequence = 17;
    Error error{Errc::peer_lost, "it was killed", 3, -1, std::string(64, 'a')};
    error.host = "gpu7";
    error.pid = 77;
    for (uint32_t rank = 0; rank < 100; ++rank) error.lost_ranks.push_back(rank * 2);
    CHECK(failed(context, error) == NEXAR_ERR_PEER_LOST);
    const nexar_error& last = last_error();
    CHECK(error_line(last) ==
          "all_reduce 17 of group \"train\" (epoch 1): PEER_LOST: rank 3 on gpu7 (pid 77): it was "
          "killed");
    CHECK(last.error_class == NEXAR_CLASS_GROUP);
    CHECK(last.lost_count == 100);
    CHECK(last.lost_ranks[NEXAR_ERROR_RANKS - 1] == 2 * (NEXAR_ERROR_RANKS - 1));
    error.code = Errc::link_lost;
    error.other_rank = 8;
    failed(context, error);
    CHECK(
        error_line(last) ==
        "all_reduce 17 of group \"train\" (epoch 1): LINK_LOST: rank 3 on gpu7 (pid 77), and rank 8: it was "
        "killed");
    failed("session_open", Errc::not_found, std::string(2000, 'x'));
    CHECK(std::strlen(last.text) == NEXAR_ERROR_TEXT - 1);
    CHECK(last.lost_count == 0);
    CHECK(last.rank == -1);
    CHECK(std::strlen(last.group) == 0);
}

TEST_CASE("a failure is one line, whatever stands in its names and texts") {
    const std::string group = "tra\nin\x1b[31m";
    ErrorContext context("barrier");
    context.group = &group;
    Error error{Errc::peer_lost, "gone\r\n\x7fnow", 1, -1, {}};
    error.host = "gpu\n7";
    failed(context, error);
    CHECK(error_line(last_error()) ==
          "barrier of group \"tra?in?[31m\": PEER_LOST: rank 1 on gpu?7: gone???now");
}

TEST_CASE("the class of a code is its hundreds, also of a code that is not known yet") {
    CHECK(status_class(NEXAR_OK) == NEXAR_CLASS_NONE);
    CHECK(status_class(NEXAR_PENDING) == NEXAR_CLASS_NONE);
    CHECK(status_class(NEXAR_ERR_INVALID_ARGUMENT) == NEXAR_CLASS_CALL);
    CHECK(status_class(NEXAR_ERR_TIMED_OUT) == NEXAR_CLASS_OPERATION);
    CHECK(status_class(NEXAR_ERR_ABORTED) == NEXAR_CLASS_OPERATION);
    CHECK(status_class(NEXAR_ERR_GROUP_INCOMPLETE) == NEXAR_CLASS_OPEN);
    CHECK(status_class(-599) == NEXAR_CLASS_RECOVERABLE);
    CHECK(status_class(-600) == NEXAR_CLASS_GROUP);
    CHECK(status_class(NEXAR_ERR_IO) == NEXAR_CLASS_SYSTEM);
    // What a later library may have, and what none has.
    for (int32_t status = -100'000; status < 1000; ++status)
        if (status_class(status) != (status < 0 ? -status / 100 : 0)) FAIL("the class of " << status);
    CHECK(status_class(INT32_MIN) == INT32_MAX / 100);
    CHECK(status_class(INT32_MAX) == NEXAR_CLASS_NONE);
    CHECK(std::string(status_name(-666)) == "UNKNOWN");
    CHECK(std::string(status_name(static_cast<int>(Errc::bad_token))) == "UNKNOWN");
}
