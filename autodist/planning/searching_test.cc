#include "autodist/planning/searching.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "autodist/planning/archive.h"

namespace autodist::planning {
namespace {

// While it lives, this process can open no file.
class NoFiles {
 public:
  NoFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Programs, arithmetic and the space of strategies are of one batch.
TEST(Searching, RewritesForTheBatchThatIsPriced) {
  SearchRequest request;
  request.costs.batch = 512;
  request.costs.micro_batches = 3;
  const passes::Options passes =
      with_links(request, load_graph("digits"), cluster::read_cluster("local:2")).passes;
  EXPECT_EQ(passes.batch, 512);
  EXPECT_EQ(passes.micro_batches, 3);
}

TEST(Searching, OpensNoFileForACandidate) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("digits"));
  const cluster::Cluster cluster = cluster::read_cluster("local:2");
  SearchRequest request;
  request.options.budget = search::parse_budget("8");
  request.calibration = {{"message_seconds", 1e-3}};
  const SearchedPlan usual = search_plan(graph, cluster, request);
  const NoFiles none;
  const SearchedPlan plan = search_plan(graph, cluster, request);
  EXPECT_EQ(plan.found.simulations, usual.found.simulations);
  EXPECT_EQ(plan.simulation.step, usual.simulation.step);
  EXPECT_GT(plan.simulation.step, Seconds{1e-3});  // by the calibration
}

}  // namespace
}  // namespace autodist::planning
