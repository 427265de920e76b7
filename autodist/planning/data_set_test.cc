#include "autodist/planning/data_set.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/history.h"
#include "autodist/planning/measured.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::planning {
namespace {

namespace fs = std::filesystem;

class DataSet : public testing::Test {
 protected:
  DataSet() { fs::remove_all(folder_); }
  ~DataSet() override { fs::remove_all(folder_); }

  DataCell cell() const {
    DataCell cell;
    cell.model = "layers";
    cell.cluster = "two";
    cell.graph = graph_;
    cell.machines = cluster_;
    return cell;
  }

  strategy::Strategy plan(const std::string& builder, const std::string& id) const {
    strategy::Strategy strategy = search::build_strategy(builder, *graph_, cluster_);
    strategy.id = id;
    return strategy;
  }

  std::string folder_ = testing::TempDir() + "data_set_test";
  std::shared_ptr<const ir::Graph> graph_ = search::layers({300, 200}, 1e-3);
  cluster::Cluster cluster_ = search::machines({1, 1});
  std::vector<std::string> warnings_;
};

TEST_F(DataSet, IsReadAsItWasWritten) {
  write_cell(folder_, cell());
  write_point(folder_, cell(), plan("PS", "a"), {Seconds(2), {Seconds(1), Seconds(3)}});
  write_point(folder_, cell(), plan("AllReduce", "b"), {Seconds(1), {}});
  const auto cells = read_data_set(folder_, warnings_);
  EXPECT_TRUE(warnings_.empty());
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_EQ(cells[0].model, "layers");
  EXPECT_EQ(cells[0].cluster, "two");
  EXPECT_EQ(*cells[0].graph, *graph_);
  EXPECT_EQ(cells[0].machines, cluster_);
  ASSERT_EQ(cells[0].points.size(), 2U);
  EXPECT_EQ(cells[0].points[0].strategy, plan("PS", "a"));
  EXPECT_EQ(cells[0].points[0].runtimes.steps.size(), 2U);
  EXPECT_EQ(cells[0].points[1].step(), Seconds(1));
}

// Another system's files: no graph of ours, other names of folders, a specification per point.
TEST_F(DataSet, OfAutoSyncsOtherShapesIsRead) {
  write_cell(folder_, cell());
  write_point(folder_, cell(), plan("PS", "a"), {Seconds(2), {}});
  write_point(folder_, cell(), plan("PSLoadBalancing", "b"), {Seconds(3), {}});
  const fs::path path = fs::path(folder_) / "layers/two";
  fs::remove(path / "graph.adg");
  fs::rename(path / "strategies", path / "strategy");
  fs::rename(path / "strategy/a", path / "strategy/a.yml");
  fs::rename(path / "runtime", path / "runtimes");
  fs::remove(path / "runtimes/b.yml");
  std::ofstream(path / "runtimes/b") << R"({"average": 3, "runtime": [3.0]})";
  fs::create_directory(path / "resource_spec");
  fs::rename(path / "resource_spec.yml", path / "resource_spec/a.yml");
  std::ofstream(path / "resource_spec/b") << cluster::to_yaml(search::machines({1, 10}));
  const auto cells = read_data_set(folder_, warnings_);
  for (const std::string& warning : warnings_) ADD_FAILURE() << warning;
  ASSERT_EQ(cells.size(), 2U) << "two clusters";
  EXPECT_EQ(cells[0].points[0].id, "a");
  EXPECT_EQ(cells[1].points[0].step(), Seconds(3));
  EXPECT_EQ(cells[1].cluster, "two#2");
  const MeasuredPlans plans = measured_plans(cells, warnings_);
  EXPECT_EQ(plans.samples.size(), 2U);
  EXPECT_GT(plans.samples[0].analytic, 0);
  EXPECT_EQ(plans.samples[0].simulated, 0) << "a graph_item has no times";
  EXPECT_EQ(warnings_.size(), 2U);
}

TEST_F(DataSet, PassesOverWhatIsIncomplete) {
  write_cell(folder_, cell());
  write_point(folder_, cell(), plan("PS", "a"), {Seconds(2), {}});
  const fs::path path = fs::path(folder_) / "layers/two";
  std::ofstream(path / "strategies/b") << "no strategy";
  std::ofstream(path / "runtime/b.yml") << "average: 1\n";
  std::ofstream(path / "strategies/c") << strategy::serialize(plan("PS", "c"));
  const auto cells = read_data_set(folder_, warnings_);
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_EQ(cells[0].points.size(), 1U);
  EXPECT_EQ(warnings_.size(), 2U);
  EXPECT_THROW(read_data_set(folder_ + "/no", warnings_), Error);
  EXPECT_THROW(read_data_set((path / "strategies").string(), warnings_), Error);
}

// A graph of a version that nobody reads any more, say; the others are learned from.
TEST_F(DataSet, ADamagedGraphHidesNoOtherCell) {
  DataCell other = cell();
  other.model = "another";
  for (const DataCell& each : {cell(), other}) {
    write_cell(folder_, each);
    write_point(folder_, each, plan("PS", "a"), {Seconds(2), {}});
  }
  std::ofstream(fs::path(folder_) / "another/two/graph.adg") << "no graph";
  const auto cells = read_data_set(folder_, warnings_);
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_EQ(cells[0].model, "layers");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("another/two: passed over: "), std::string::npos) << warnings_[0];
}

TEST_F(DataSet, HistoryIsOfOneClusterAndKeepsTheNewestOfAPlan) {
  add_to_history(folder_, *graph_, cluster_, plan("PS", "a"), {Seconds(2), {}});
  add_to_history(folder_, *graph_, cluster_, plan("PS", "a"), {Seconds(1), {}});
  add_to_history(folder_, *graph_, search::machines({1, 40}), plan("PS", "b"), {Seconds(3), {}});
  const auto cells = history_on(folder_, cluster_);
  ASSERT_EQ(cells.size(), 1U);
  ASSERT_EQ(cells[0].points.size(), 1U);
  EXPECT_EQ(cells[0].points[0].step(), Seconds(1));
  EXPECT_TRUE(history_on(folder_ + "/no", cluster_).empty());
  EXPECT_TRUE(history_on("", cluster_).empty());
}

TEST(History, LiesWhereTheEnvironmentSays) {
  const auto with = [](std::map<std::string, std::string> variables) {
    return [variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return {};
      return found->second;
    };
  };
  EXPECT_EQ(history_folder(with({{"HOME", "/h"}})), "/h/.local/state/autodist/history");
  EXPECT_EQ(history_folder(with({{"HOME", "/h"}, {"XDG_STATE_HOME", "/s"}})),
            "/s/autodist/history");
  EXPECT_EQ(history_folder(with({{"HOME", "/h"}, {"AUTODIST_HISTORY", "/a"}})), "/a");
  EXPECT_EQ(history_folder(with({{"HOME", "/h"}, {"AUTODIST_HISTORY", "off"}})), "");
  EXPECT_EQ(history_folder(with({})), "");
}

}  // namespace
}  // namespace autodist::planning
