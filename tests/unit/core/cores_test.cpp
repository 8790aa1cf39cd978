// CPU quotas of control groups, as files of version 1 and 2 have them.
#include "core/cores.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

using namespace nexar;

namespace {

std::optional<unsigned> quota(std::map<std::string, std::string> files) {
    return quota_cores([&](const std::string& path) -> std::optional<std::string> {
        const auto found = files.find(path);
        if (found == files.end()) return std::nullopt;
        return found->second;
    });
}

const std::string own = "/proc/self/cgroup", root = "/sys/fs/cgroup";

}  // namespace

TEST_CASE("without control groups, or without quotas, there is no limit", "[library]") {
    CHECK_FALSE(quota({}));
    CHECK_FALSE(quota({{own, ""}}));
    CHECK_FALSE(quota({{own, "0::/a/b\n"}}));
    CHECK_FALSE(quota({{own, "0::/a/b\n"}, {root + "/a/b/cpu.max", "max 100000\n"}}));
    CHECK_FALSE(quota({{own, "4:cpu,cpuacct:/a\n"},
                       {root + "/cpu/a/cpu.cfs_quota_us", "-1\n"},
                       {root + "/cpu/a/cpu.cfs_period_us", "100000\n"}}));
}

TEST_CASE("a quota is rounded up to whole cores, and is at least one", "[library]") {
    const auto v2 = [](const char* max) { return quota({{own, "0::/a\n"}, {root + "/a/cpu.max", max}}); };
    CHECK(v2("200000 100000\n") == 2);
    CHECK(v2("200001 100000\n") == 3);
    CHECK(v2("1000 100000\n") == 1);
    CHECK(v2("150000 50000\n") == 3);
}

TEST_CASE("the smallest quota from the own group up to the root counts", "[library]") {
    CHECK(quota({{own, "0::/a/b/c\n"},
                 {root + "/a/b/c/cpu.max", "max 100000\n"},
                 {root + "/a/b/cpu.max", "300000 100000\n"},
                 {root + "/a/cpu.max", "800000 100000\n"}}) == 3);
    CHECK(quota({{own, "0::/a/b\n"},
                 {root + "/a/b/cpu.max", "300000 100000\n"},
                 {root + "/a/cpu.max", "200000 100000\n"}}) == 2);
    // A container sees its own group as the root, and may see the host's path of it.
    CHECK(quota({{own, "0::/\n"}, {root + "/cpu.max", "400000 100000\n"}}) == 4);
    CHECK(quota({{own, "0::/docker/0123\n"}, {root + "/cpu.max", "400000 100000\n"}}) == 4);
    CHECK(quota({{own, "0::/../x\n"}, {root + "/cpu.max", "100000 100000\n"}}) == 1);
}

TEST_CASE("version 1: the hierarchy that has the controller cpu counts, and no other", "[library]") {
    std::map<std::string, std::string> files = {
        {own, "7:memory:/m\n5:cpuset:/s\n4:cpuacct,cpu:/a/b\n0::/u\n"},
        {root + "/cpu/s/cpu.cfs_quota_us", "100000\n"},
        {root + "/cpu/s/cpu.cfs_period_us", "100000\n"},
        {root + "/cpu/a/cpu.cfs_quota_us", "250000\n"},
        {root + "/cpu/a/cpu.cfs_period_us", "50000\n"},
    };
    CHECK(quota(files) == 5);
    files[root + "/cpu/a/b/cpu.cfs_quota_us"] = "120000\n";
    CHECK(quota(files) == 5);  // half of the pair says nothing
    files[root + "/cpu/a/b/cpu.cfs_period_us"] = "100000\n";
    CHECK(quota(files) == 2);
}

TEST_CASE("senseless files are no quota", "[library]") {
    for (const char* text : {"", "x", "-5 100000", "100000", "100000 0", "100000 -1", "::::"}) {
        CAPTURE(text);
        CHECK_FALSE(quota({{own, "0::/a\n"}, {root + "/a/cpu.max", text}}));
    }
    CHECK_FALSE(quota({{own, "nothing\n:\n"}}));
}

TEST_CASE("this process may use at least one core", "[library]") {
    CHECK(usable_cores() >= 1);
}
