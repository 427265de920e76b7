#include "autodist/job/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "autodist/base/error.h"
#include "tests/outcome_of.h"

namespace autodist::job {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string refusal(const Variables& variables) {
  return testing_jobs::refusal([&] { launched_by(of(variables)); });
}

struct Case {
  Variables variables;
  Launched expected;
};

// The variables are those that the launchers set, as their manuals list them.
const Case kCases[] = {
    {{{"OMPI_COMM_WORLD_RANK", "3"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_NAMESPACE", "3212345345"},
      {"PMI_RANK", "9"},
      {"SLURM_PROCID", "0"}},
     {"Open MPI", 3, 4, 1, 2, "", 0, "3212345345", ""}},
    {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}},
     {"MPICH", 1, 2, 0, 1, "", 0, "", ""}},
    {{{"TORCHELASTIC_RUN_ID", "none"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"RANK", "2"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "29500"}},
     {"torchrun", 2, 4, 0, 2, "", 0, "10.0.0.1:29500 none 2", ""}},
    {{{"RANK", "1"},
      {"WORLD_SIZE", "3"},
      {"MASTER_ADDR", "job-master-0"},
      {"MASTER_PORT", "23456"}},
     {"Kubeflow", 1, 3, {}, {}, "job-master-0", 23456, "", ""}},
    {{{"TF_CONFIG",
       R"({"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]},
           "task": {"type": "worker", "index": 1}})"}},
     {"Kubeflow", 2, 3, {}, {}, "a", 2222, "", "a\nb\nc\n"}},
    {{{"SLURM_PROCID", "2"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NTASKS", "9"},
      {"SLURM_JOB_ID", "77"},
      {"SLURM_STEP_ID", "1"},
      {"SLURM_STEP_NUM_TASKS", "3"},
      {"SLURM_STEP_NODELIST", "gpu[01-02]"},
      {"SLURM_STEP_TASKS_PER_NODE", "2,1"}},
     {"Slurm", 2, 3, 0, {}, "", 0, "77.1", "gpu01 slots=2\ngpu02 slots=1\n"}},
};

TEST(Launcher, EachIsKnownByItsVariables) {
  for (const Case& each : kCases) {
    const auto launched = launched_by(of(each.variables));
    ASSERT_TRUE(launched) << each.expected.by;
    EXPECT_EQ(launched->by, each.expected.by);
    EXPECT_EQ(launched->rank, each.expected.rank) << each.expected.by;
    EXPECT_EQ(launched->size, each.expected.size) << each.expected.by;
    EXPECT_EQ(launched->local_rank, each.expected.local_rank) << each.expected.by;
    EXPECT_EQ(launched->local_size, each.expected.local_size) << each.expected.by;
    EXPECT_EQ(launched->chief_address, each.expected.chief_address) << each.expected.by;
    EXPECT_EQ(launched->chief_port, each.expected.chief_port) << each.expected.by;
    EXPECT_EQ(launched->job_id, each.expected.job_id) << each.expected.by;
    EXPECT_EQ(launched->host_file, each.expected.host_file) << each.expected.by;
  }
}

TEST(Launcher, NobodyStartedAProcessOfItsOwn) {
  EXPECT_FALSE(launched_by(of({{"PATH", "/bin"}, {"RANK", "3"}})));
  // A batch script of Slurm's.
  EXPECT_FALSE(launched_by(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})));
}

TEST(Launcher, NamesTheVariableThatIsWrong) {
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}),
            "environment: started by Open MPI, but OMPI_COMM_WORLD_SIZE is not set. Start "
            "the ranks by it, or unset what it has left in this shell.");
  EXPECT_EQ(
      refusal({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}),
      "environment: PMI_RANK=2 of PMI_SIZE=2: ranks count from 0. Start the ranks by MPICH, or "
      "unset what it has left in this shell.");
  EXPECT_EQ(refusal({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}),
            "environment: PMI_RANK='x', a whole number of at most 65535 expected");
  EXPECT_EQ(
      refusal({{"TF_CONFIG", "{"}}),
      "environment: TF_CONFIG: a JSON object expected. Start the ranks as a TFJob, or unset it.");
  EXPECT_EQ(refusal({{"TF_CONFIG", "{}"}}),
            "environment: TF_CONFIG: cluster and task, with type and index, expected. Start the "
            "ranks as a TFJob, or unset it.");
  EXPECT_EQ(refusal({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]},
                                       "task": {"type": "ps", "index": 0}})"}}),
            "environment: TF_CONFIG: this task is neither chief nor a listed worker. Start the "
            "ranks as a TFJob, or unset it.");
}

TEST(Launcher, SlurmsNodeListsAreExpanded) {
  const std::map<std::string, std::vector<std::string>> lists{
      {"head", {"head"}},
      {"a,b", {"a", "b"}},
      {"gpu[01-03,7],head", {"gpu01", "gpu02", "gpu03", "gpu7", "head"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"rack[1-2]-ib,x", {"rack1-ib", "rack2-ib", "x"}},
      {"n[098-101]", {"n098", "n099", "n100", "n101"}}};
  for (const auto& [list, nodes] : lists) EXPECT_EQ(expand_node_list(list), nodes) << list;
  for (const char* bad : {"", "a,", "a[", "a[1", "a[1-", "a[x]", "a[3-1]", "a]", "a[1][2]",
                          "a[0-4294967295]", "a[]"}) {
    EXPECT_THROW(expand_node_list(bad), Error) << bad;
  }
}

TEST(Launcher, SlurmsCountsAreExpanded) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<std::uint32_t>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("4"), (std::vector<std::uint32_t>{4}));
  for (const char* bad : {"", "2(", "2(x)", "2(x3", "x", "2,,1", "1(x4294967295)"}) {
    EXPECT_THROW(expand_counts(bad), Error) << bad;
  }
}

TEST(Launcher, ARankThatAnotherProgramHasStartedKnowsIt) {
  EXPECT_FALSE(is_launched(of({})));
  EXPECT_TRUE(is_launched(of({{"AUTODIST_RANK", "0"}})));
  EXPECT_TRUE(is_launched(of({{"TORCHELASTIC_RUN_ID", "a"}})));  // the rest is missing
}

TEST(Launcher, WhoBecomesTheChiefIsKnownBeforeTheRanksMeet) {
  EXPECT_TRUE(becomes_chief("local:2", false, of({})));
  EXPECT_TRUE(becomes_chief("local:2", false, of({{"AUTODIST_RANK", "0"}})));
  EXPECT_FALSE(becomes_chief("local:2", false, of({{"AUTODIST_RANK", "1"}})));
  for (const char* rank : {"0", "1"}) {
    const auto environment = of({{"TORCHELASTIC_RUN_ID", "a"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "4711"},
                                 {"RANK", rank},
                                 {"WORLD_SIZE", "2"},
                                 {"LOCAL_RANK", rank},
                                 {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_EQ(becomes_chief("", false, environment), std::string(rank) == "0");
  }
}

}  // namespace
}  // namespace autodist::job
