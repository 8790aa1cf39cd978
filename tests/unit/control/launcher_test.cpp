// The pure parts of `run`; real jobs are started by tests/integration/test_nexarctl.py.
#include "nexarctl/launcher.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "nexarctl/rank_process.hpp"

using namespace nexarctl;

TEST_CASE("a rank finds its number, its world and the secret in its environment", "[U9]") {
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
                              "NEXAR_LOCAL_WORLD_SIZE=4", "NEXAR_INSTANCE=0", "NEXAR_JOB_SECRET=s3cret",
                              "RANK=9", "WORLD_SIZE=12", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"})
        REQUIRE(contains(without, entry));
    REQUIRE(without.size() == 10);

    job.master_address = "10.0.0.1";
    job.master_port = 29500;
    REQUIRE(contains(environment_of(job, 1), "MASTER_ADDR=10.0.0.1"));
    REQUIRE(contains(environment_of(job, 1), "MASTER_PORT=29500"));

    job.group = "digits";
    job.sockets = {"/tmp/s"};
    REQUIRE(contains(environment_of(job, 0), "NEXAR_GROUP=digits"));
    REQUIRE(contains(environment_of(job, 0), "NEXAR_SOCKET=/tmp/s"));
}

TEST_CASE("run's variables come before --env, the last --env before others, all before the caller's",
          "[U9]") {
    const auto value_of = [](const Job& job, const std::string& name) {
        std::vector<std::string> found;
        for (const auto& entry : full_environment(job, 0))
            if (entry.starts_with(name + "=")) found.push_back(entry.substr(name.size() + 1));
        REQUIRE(found.size() == 1);
        return found[0];
    };
    Job job;
    job.environment = {"A=1", "A=2", "AB=3", "NEXAR_RANK=7"};
    ::setenv("A", "0", 1);
    ::setenv("B", "9", 1);
    ::unsetenv("PYTHONUNBUFFERED");
    REQUIRE(value_of(job, "A") == "2");
    REQUIRE(value_of(job, "AB") == "3");
    REQUIRE(value_of(job, "B") == "9");
    REQUIRE(value_of(job, "NEXAR_RANK") == "0");
    REQUIRE(value_of(job, "PYTHONUNBUFFERED") == "1");
    job.environment = {"PYTHONUNBUFFERED="};
    REQUIRE(value_of(job, "PYTHONUNBUFFERED").empty());
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
