// Limits of one module that others rely on.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string_view>

#include "config/config.hpp"
#include "local/bus_guard.hpp"

using namespace nexar;

namespace {

bool allows(std::string_view name, uint64_t value) {
    config::Config config;
    const auto key = std::ranges::find(config::keys(), name, &config::Key::name);
    return key->set(config, std::to_string(value));
}

}  // namespace

TEST_CASE("[S20] whatever users map of what they may have, BusGuard watches it", "[node][N1]") {
    constexpr uint64_t regions = 57344, sessions = 2000;
    CHECK(allows("regions_max", regions));
    CHECK_FALSE(allows("regions_max", regions + 1));
    CHECK(allows("sessions_max", sessions));
    CHECK_FALSE(allows("sessions_max", sessions + 1));
    CHECK(regions + sessions < local::BusGuard::ranges_max);
}
