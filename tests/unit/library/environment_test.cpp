// Where a group's options come from: the environment, the options, and never from nowhere.
#include "environment.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <vector>

#include "group.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

std::map<std::string, std::string> variables;

const char* get(const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
}

// `options` in any case, as nexar_group_options_from_env gives them.
Result<void> read(std::span<char> name, nexar_group_options& options) {
    std::vector<std::string> entries;
    for (const auto& [variable, value] : variables) entries.push_back(variable + "=" + value);
    std::vector<const char*> all;
    for (const std::string& entry : entries) all.push_back(entry.c_str());
    all.push_back(nullptr);
    return from_environment({get, all.data()}, name, options);
}

Result<GroupRequest> request() {
    char name[environment_name_bytes];
    nexar_group_options options;
    if (const auto read_well = read(name, options); !read_well) return fail(read_well.error());
    return from_options(options);
}

std::string name_in(std::map<std::string, std::string> given) {
    variables = std::move(given);
    const auto out = request();
    return out ? out->name : std::string(name_of(out.error().code));
}

}  // namespace

TEST_CASE("a rank and a size alone do not say which group", "[D18]") {
    for (const char* launcher : {"torchrun", "Slurm", "Open MPI", "nexarctl"}) {
        variables.clear();
        const bool torch = std::string(launcher) == "torchrun", slurm = std::string(launcher) == "Slurm",
                   mpi = std::string(launcher) == "Open MPI";
        variables[torch   ? "RANK"
                  : slurm ? "SLURM_PROCID"
                  : mpi   ? "OMPI_COMM_WORLD_RANK"
                          : "NEXAR_RANK"] = "1";
        variables[torch   ? "WORLD_SIZE"
                  : slurm ? "SLURM_NTASKS"
                  : mpi   ? "OMPI_COMM_WORLD_SIZE"
                          : "NEXAR_WORLD_SIZE"] = "2";
        CAPTURE(launcher);
        const auto refused = request();
        REQUIRE(!refused);
        CHECK(refused.error().code == Errc::invalid_argument);
        CHECK(refused.error().text.find("NEXAR_GROUP") != std::string::npos);
        variables["NEXAR_GROUP"] = "mine";
        const auto named = request();
        REQUIRE(named);
        CHECK(named->name == "mine");
        CHECK(named->rank == 1);
        CHECK(named->size == 2);
    }
}

TEST_CASE("each launcher's job id is a name", "[D18]") {
    CHECK(name_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "run7"}}) == "run7");
    CHECK(
        name_in(
            {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}) ==
        "12.3");
    CHECK(
        name_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "ns1"}}) ==
        "ns1");
    // What torchrun says when nobody gave an id is no id: every job would have it.
    CHECK(name_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}) ==
          "INVALID_ARGUMENT");
    CHECK(name_in({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"TORCHELASTIC_RUN_ID", "none"},
                   {"MASTER_ADDR", "gpu1"},
                   {"MASTER_PORT", "29500"}}) == "gpu1:29500");
    CHECK(name_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NEXAR_JOB_SECRET", "sixteen letters!"}}) ==
          "default");
    CHECK(name_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NEXAR_JOB_SECRET", ""}}) == "INVALID_ARGUMENT");
    // The first complete pair counts.
    CHECK(name_in(
              {{"SLURM_NTASKS", "3"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "run7"}}) ==
          "run7");
}

TEST_CASE("a rank that mpirun started inside a Slurm job is mpirun's, not the job's") {
    variables = {{"SLURM_PROCID", "0"},         {"SLURM_NTASKS", "1"},         {"SLURM_JOB_ID", "12"},
                 {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "ns1"}};
    const auto r = request();
    REQUIRE(r);
    CHECK(r->rank == 1);
    CHECK(r->size == 2);
    CHECK(r->name == "ns1");
}

TEST_CASE("a variable that stands alone is refused by its name") {
    const auto refusal = [](std::map<std::string, std::string> given) {
        given["NEXAR_GROUP"] = "g";
        variables = std::move(given);
        const auto refused = request();
        REQUIRE(!refused);
        return refused.error();
    };
    for (const auto& [rank, size] :
         {std::pair("RANK", "WORLD_SIZE"), std::pair("SLURM_PROCID", "SLURM_NTASKS"),
          std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}) {
        const Error no_size = refusal({{rank, "0"}}), no_rank = refusal({{size, "2"}});
        CHECK(no_size.code == Errc::not_found);
        CHECK(no_size.text.find(std::string(rank) + " is set, " + size + " is not") != std::string::npos);
        CHECK(no_rank.text.find(std::string(size) + " is set, " + rank + " is not") != std::string::npos);
    }
    // Nobody but nexarctl and people set these.
    for (const char* name : {"NEXAR_RANK", "NEXAR_WORLD_SIZE"}) {
        const Error error = refusal({{name, "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
        CHECK(error.code == Errc::invalid_argument);
        CHECK(error.text.starts_with(std::string(name) + " is set, NEXAR_"));
    }
    const Error misspelt = refusal({{"NEXAR_RANK", "1"}, {"NEXAR_WORLDSIZE", "2"}, {"NEXAR_SOCKET", "/x"}});
    CHECK(misspelt.text.ends_with("; no rank looks at NEXAR_WORLDSIZE"));
    const Error many = refusal({{"NEXAR_A", ""}, {"NEXAR_B", ""}, {"NEXAR_C", ""}, {"NEXAR_D", ""}});
    CHECK(many.text.ends_with("; no rank looks at NEXAR_A, NEXAR_B, NEXAR_C"));
}

TEST_CASE("without a rank the environment's other words count, with a wrong one nothing does") {
    variables = {{"NEXAR_GROUP", "g"},
                 {"NEXAR_JOB_SECRET", "sixteen letters!"},
                 {"NEXAR_BARRIER_TIMEOUT_SECS", "2"},
                 {"SLURM_NTASKS", "4"}};
    char name[environment_name_bytes];
    nexar_group_options o;
    CHECK(read(name, o).error().code == Errc::not_found);
    CHECK(std::string(o.name) == "g");
    CHECK(std::string(o.job_secret) == "sixteen letters!");
    CHECK(o.barrier_timeout_ms == 2000);
    CHECK(o.size == 0);
    CHECK(o.rank == NEXAR_RANK_AUTO);
    variables["NEXAR_RANK"] = "0";
    CHECK(read(name, o).error().code == Errc::invalid_argument);
    CHECK(o.name == nullptr);
    CHECK(o.barrier_timeout_ms == NEXAR_TIMEOUT_DEFAULT);
}

TEST_CASE("an environment that makes no sense is refused by name") {
    const auto refusal = [](std::map<std::string, std::string> given) {
        given["NEXAR_GROUP"] = "g";
        variables = std::move(given);
        return request().error().text;
    };
    CHECK(refusal({}).find("NEXAR_RANK") != std::string::npos);
    CHECK(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}) ==
          "RANK is \"x\"; it must be a number from 0 to 1 (WORLD_SIZE is 2), or auto");
    CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", ""}}).starts_with("WORLD_SIZE is"));
    CHECK(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).starts_with("RANK is 2; it must be"));
    CHECK(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).starts_with("RANK is"));
    CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "99999"}}) ==
          "WORLD_SIZE is 99999; it must be a number from 1 to 4096");
    CHECK(refusal({{"NEXAR_RANK", "auto"}, {"NEXAR_WORLD_SIZE", "0"}}).starts_with("NEXAR_WORLD_SIZE is 0"));
    // An incomplete pair is passed over where another is whole.
    variables = {{"SLURM_NTASKS", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NEXAR_GROUP", "g"}};
    CHECK(request()->size == 2);
}

TEST_CASE("the variable that has a rank is found") {
    const auto variable = [](std::map<std::string, std::string> given, uint32_t rank) {
        variables = std::move(given);
        const char* name = rank_variable({get, nullptr}, rank);
        return std::string(name ? name : "none");
    };
    CHECK(variable({{"NEXAR_RANK", "1"}, {"NEXAR_WORLD_SIZE", "2"}}, 1) == "NEXAR_RANK");
    CHECK(variable({{"NEXAR_RANK", "1"}, {"NEXAR_WORLD_SIZE", "2"}}, 0) == "none");
    CHECK(variable({{"NEXAR_RANK", "1"}}, 1) == "none");
    CHECK(variable({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}, 3) ==
          "RANK");
    CHECK(variable({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}, 1) ==
          "none");
    CHECK(variable({}, 0) == "none");
}

TEST_CASE("a secret that is too short to resist guessing is refused, with the least length", "[H2]") {
    nexar_group_options o = NEXAR_GROUP_OPTIONS_INIT;
    o.size = 2;
    o.name = "n";
    o.job_secret = "fifteen letters";
    const auto refused = from_options(o);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::invalid_argument);
    CHECK(refused.error().text.contains("15 bytes; allowed: 16 to 128"));
    o.job_secret = "sixteen letters!";
    CHECK(from_options(o));
}

TEST_CASE("options without a name and a secret are refused", "[D18][U4]") {
    nexar_group_options o = NEXAR_GROUP_OPTIONS_INIT;
    o.size = 2;
    CHECK(from_options(o).error().code == Errc::invalid_argument);
    o.job_secret = "sixteen letters!";
    CHECK(from_options(o)->name == "default");
    o.job_secret = nullptr;
    o.name = "n";
    CHECK(from_options(o)->name == "n");
    o.name = "";
    CHECK(from_options(o).error().code == Errc::invalid_argument);
    o.name = "n";
    o.flags = 4;
    CHECK(from_options(o).error().code == Errc::invalid_argument);
    o.flags = NEXAR_FLAG_DETERMINISTIC;
    CHECK(from_options(o)->flags == NEXAR_FLAG_DETERMINISTIC);
    o.on_failure = 77;
    CHECK(from_options(o).error().code == Errc::unsupported);
    CHECK(from_options(o).error().text.starts_with("on_failure is 77; allowed: NEXAR_ON_FAILURE_ABORT (0)"));
}

TEST_CASE("time-outs are seconds in the environment, and 0 is none") {
    variables = {{"NEXAR_RANK", "auto"},
                 {"NEXAR_WORLD_SIZE", "3"},
                 {"NEXAR_GROUP", "g"},
                 {"NEXAR_OPEN_TIMEOUT_SECS", "0"},
                 {"NEXAR_COLLECTIVE_TIMEOUT_SECS", "7"},
                 {"NEXAR_BARRIER_TIMEOUT_SECS", "0.25"}};
    const auto r = request();
    REQUIRE(r);
    CHECK(r->rank == NEXAR_RANK_AUTO);
    CHECK(r->timeout_ms == NEXAR_TIMEOUT_NONE);
    CHECK(r->collective_timeout_ms == 7000);
    CHECK(r->barrier_timeout_ms == 250);
    CHECK(r->rpc_timeout_ms == NEXAR_TIMEOUT_DEFAULT);
    const nexar_shm_group_open payload = payload_of(*r);
    CHECK(payload.timeout_ns == 0);
    CHECK(payload.collective_timeout_ns == 7'000'000'000);
    CHECK(payload.barrier_timeout_ns == 250'000'000);
    CHECK(payload.rpc_timeout_ns == -1);
    for (const char* wrong : {"-1", "soon", "", "1e99", "nan", "7s"}) {
        CAPTURE(wrong);
        variables["NEXAR_COLLECTIVE_TIMEOUT_SECS"] = wrong;
        const auto refused = request();
        REQUIRE(!refused);
        CHECK(refused.error().text.find("NEXAR_COLLECTIVE_TIMEOUT_SECS") == 0);
    }
}

TEST_CASE("a group's time-outs may be default, none, or positive") {
    nexar_group_options o = NEXAR_GROUP_OPTIONS_INIT;
    o.size = 2;
    o.name = "g";
    CHECK(payload_of(*from_options(o)).timeout_ns == 30'000'000'000);
    o.timeout_ms = 0;  // do not wait
    CHECK(payload_of(*from_options(o)).timeout_ns == 1);
    for (int64_t nexar_group_options::* field :
         {&nexar_group_options::collective_timeout_ms, &nexar_group_options::barrier_timeout_ms,
          &nexar_group_options::rpc_timeout_ms}) {
        for (const int64_t wrong : {int64_t{0}, int64_t{-3}, INT64_MIN}) {
            o.*field = wrong;
            CHECK(from_options(o).error().code == Errc::invalid_argument);
        }
        o.*field = INT64_MAX;
        CHECK(from_options(o));
        o.*field = NEXAR_TIMEOUT_DEFAULT;
    }
}
