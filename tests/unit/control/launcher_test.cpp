// The pure parts of `run`; real jobs are started by tests/integration/test_nexarctl.py.
#include "nexarctl/launcher.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>

using namespace nexarctl;

TEST_CASE("a rank finds its number, its world and the secret in its environment") {
    Job job;
    job.ranks = 4;
    job.first_rank = 8;
    job.world = 12;
    job.secret = "s3cret";
    const auto without = environment_of(job, 1);
    const auto contains = [](const std::vector<std::string>& list, const char* entry) {
        return std::find(list.begin(), list.end(), entry) != list.end();
    };
    for (const char* entry : {"NEXAR_RANK=9", "NEXAR_WORLD_SIZE=12", "NEXAR_LOCAL_RANK=1",
                              "NEXAR_LOCAL_WORLD_SIZE=4", "NEXAR_JOB_SECRET=s3cret"})
        REQUIRE(contains(without, entry));
    REQUIRE(without.size() == 5);

    job.group = "digits";
    job.socket = "/tmp/s";
    REQUIRE(contains(environment_of(job, 0), "NEXAR_GROUP=digits"));
    REQUIRE(contains(environment_of(job, 0), "NEXAR_SOCKET=/tmp/s"));
}

TEST_CASE("exit codes are those of shells") {
    REQUIRE(exit_code_of(0) == 0);
    REQUIRE(exit_code_of(7 << 8) == 7);
    REQUIRE(exit_code_of(SIGKILL) == 137);
}

TEST_CASE("secrets are long and differ") {
    REQUIRE(random_secret().size() == 64);
    REQUIRE(random_secret() != random_secret());
}
