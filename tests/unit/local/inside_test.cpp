// What libnexar_c decides without a daemon: where rank and size come from.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "group.hpp"

using namespace nexar;

namespace {

std::map<std::string, std::string> variables;
Result<c::GroupRequest> with(std::map<std::string, std::string> values) {
    variables = std::move(values);
    return c::from_environment([](const char* name) -> const char* {
        auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

}  // namespace

TEST_CASE("rank, size and name come from nexarctl, torchrun, Slurm or Open MPI, in this order", "[local]") {
    auto r = with({{"NEXAR_RANK", "1"}, {"NEXAR_WORLD_SIZE", "4"}, {"RANK", "0"}, {"WORLD_SIZE", "9"}});
    REQUIRE(r);
    CHECK((r->rank == 1 && r->size == 4 && r->name == "default" && r->secret.empty()));
    r = with(
        {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"TORCHELASTIC_RUN_ID", "job7"}, {"NEXAR_JOB_SECRET", "s"}});
    CHECK((r->rank == 2 && r->name == "job7" && r->secret == "s"));
    r = with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "55"}, {"SLURM_STEP_ID", "1"}});
    CHECK(r->name == "55.1");
    r = with({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"NEXAR_GROUP", "mine"}});
    CHECK((r->rank == 5 && r->name == "mine"));
    r = with({{"NEXAR_RANK", "auto"}, {"NEXAR_WORLD_SIZE", "2"}});
    CHECK(r->rank == NEXAR_RANK_AUTO);
    r = with({{"NEXAR_RANK", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});  // an incomplete pair is passed over
    CHECK(r->rank == 0);
}

TEST_CASE("an environment that makes no sense is refused by name", "[local]") {
    CHECK(with({}).error().text.find("NEXAR_RANK") != std::string::npos);
    CHECK(with({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).error().text ==
          "RANK is \"x\"; it must be a number or auto");
    CHECK(with({{"RANK", "0"}, {"WORLD_SIZE", ""}}).error().code == Errc::invalid_argument);
    CHECK(with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().text.substr(0, 9) == "rank is 2");
    CHECK(with({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).error().code == Errc::invalid_argument);
    CHECK(with({{"RANK", "0"}, {"WORLD_SIZE", "99999"}}).error().text.substr(0, 13) == "size is 99999");
}
