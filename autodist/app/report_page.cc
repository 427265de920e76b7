#include "autodist/app/report_page.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "autodist/app/comparison.h"
#include "autodist/app/file_kind.h"
#include "autodist/app/trace_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/encryption.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/plan_page.h"
#include "autodist/planning/planning.h"

namespace autodist::app {
namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

class Gatherer {
 public:
  Gatherer(const ReportRequest& request, std::vector<std::string>& warnings)
      : request_(request), warnings_(warnings) {}

  report::PageInputs gather() {
    for (const std::string& input : request_.inputs) take(input);
    for (const std::string& path : request_.predicted) {
      std::string json = read_file(path, kLargestTrace);
      expect_origin(program::origin_of(json), path, program::TraceOrigin::kSimulation);
      add_trace(std::move(json), path, true);
    }
    if (!request_.cluster.empty()) {
      take_cluster(cluster::read_cluster(request_.cluster), request_.cluster);
    }
    if (page_.sources.empty()) {
      fail(ErrorCode::kUsage,
           "report: nothing to show. Name a trace, a log, a strategy or a graph.");
    }
    if (can_plan()) plan();
    page_.title = request_.title.empty() ? title() : request_.title;
    return std::move(page_);
  }

 private:
  void once(bool there, const std::string& what, const char* kind) const {
    if (there) fail(ErrorCode::kUsage, "report: {} is a second {}; one expected", what, kind);
  }
  void take_once(bool there, const std::string& what, const char* kind) {
    once(there, what, kind);
    page_.sources.push_back(file_name(what));
  }

  void add_trace(std::string json, const std::string& path, bool predicted) {
    page_.sources.push_back(file_name(path));
    const std::string graph = program::graph_of(json);
    if (first_graph_.empty()) {
      first_trace_ = file_name(path);
      first_graph_ = graph;
    }
    const std::string models = of_other_models(first_trace_, first_graph_, file_name(path), graph);
    if (!models.empty()) warnings_.push_back("report: " + models);
    page_.traces.push_back({file_name(path), std::move(json), predicted});
  }

  void take(const std::string& what) {
    if (what.rfind("local:", 0) == 0) return take_cluster(cluster::read_cluster(what), what);
    if (!std::filesystem::exists(what)) return take_graph(planning::load_graph(what), what);
    std::string bytes = read_file(what, kLargestTrace);
    switch (kind_of(bytes, what)) {
      case FileKind::kTrace: {
        const bool predicted = program::origin_of(bytes) == program::TraceOrigin::kSimulation;
        return add_trace(std::move(bytes), what, predicted);
      }
      case FileKind::kLog:
        take_once(page_.run.has_value(), what, "log");
        page_.run = report::parse_run_log(bytes, what);
        return;
      case FileKind::kPrediction:
        take_once(!page_.prediction.is_null(), what, "prediction");
        page_.prediction = report::parse_prediction(bytes, what);
        return;
      case FileKind::kSweep:
        take_once(page_.sweep.has_value(), what, "what-if");
        page_.sweep = report::parse_sweep(bytes, what);
        return;
      case FileKind::kGraph:
      case FileKind::kGraphItem:
        return take_graph(planning::parse_graph(bytes, what), what);
      case FileKind::kStrategy:
        take_once(page_.strategy.has_value(), what, "strategy");
        page_.strategy = strategy::parse_strategy(bytes, what, &warnings_);
        page_.chosen_by = file_name(what);
        return;
      case FileKind::kCluster:
        return take_cluster(cluster::parse_cluster(bytes, what), what);
      case FileKind::kRuntimes:
        fail(ErrorCode::kUsage,
             "report: {} holds step times of AutoSync's data set, which have no "
             "page; `autodist inspect` shows them",
             what);
    }
  }

  void take_cluster(cluster::Cluster cluster, const std::string& what) {
    once(cluster_.has_value(), what, "cluster");
    cluster_ = std::move(cluster);
    cluster_name_ = what;
  }

  void take_graph(ir::Graph graph, const std::string& what) {
    take_once(page_.graph != nullptr, what, "graph");
    page_.graph = std::make_shared<const ir::Graph>(std::move(graph));
  }

  // Whether there is what a plan is made of; warns of what is there for nothing.
  bool can_plan() {
    const std::string& builder = request_.builder;
    if (page_.strategy && !builder.empty()) {
      fail(ErrorCode::kUsage, "report: --builder {} beside {}, a strategy. Leave one of them out.",
           builder, page_.chosen_by);
    }
    const bool has_plan = page_.strategy || !builder.empty();
    if (page_.graph != nullptr && page_.strategy) {
      strategy::check_is_of(*page_.strategy, *page_.graph, page_.chosen_by);
    }
    if (page_.graph != nullptr && cluster_ && has_plan) return true;
    if (cluster_ || !builder.empty()) {
      warnings_.push_back(fmt::format(
          "report: {} adds nothing to the page without {}",
          cluster_ ? "the cluster " + cluster_name_ : "--builder " + builder,
          page_.graph == nullptr ? "a graph"
                                 : (cluster_ ? "a strategy, or --builder" : "a cluster")));
    }
    return false;
  }

  void plan() {
    const sim::Calibration calibration = sim::read_calibration(cluster_name_);
    if (!page_.strategy) {
      planning::StrategyRequest request{request_.builder, "", {}};
      request.calibration = calibration;
      request.cpu_only = request_.cpu_only;
      page_.strategy = planning::choose_strategy(request, *page_.graph, *cluster_, warnings_);
      page_.chosen_by = planning::source_of(request);
    } else {
      strategy::check(*page_.strategy, *page_.graph, *cluster_, page_.chosen_by);
    }
    const passes::Options options =
        planning::declared_options(*cluster_, *page_.graph, request_.cpu_only);
    const program::Program program =
        passes::rewrite(page_.graph, *page_.strategy, *cluster_, options, page_.chosen_by);
    planning::PlanPageRequest how = planning::page_request(
        page_.chosen_by, options, AUTODIST_GLOO, calibration, sim::calibration_file(cluster_name_));
    // What a library reduces is in the clear: a job whose plan has that is not encrypted.
    how.how.passes.encrypted =
        program.collectives.empty() && planning::encrypts(Encryption::kAuto, *cluster_);
    how.timeline = request_.predicted.empty();
    const nlohmann::ordered_json given = std::move(page_.prediction);
    planning::add_plan(page_, page_.graph, *cluster_, strategy::Strategy(*page_.strategy), program,
                       how);
    if (!given.is_null()) page_.prediction = given;
  }

  std::string title() const {
    if (page_.sweep && !page_.sweep->job.empty()) return page_.sweep->job;
    if (page_.graph == nullptr) return page_.sources.front();
    if (!page_.program) return page_.graph->name;
    return fmt::format("{} on {} ranks", page_.graph->name, page_.program->ranks.size());
  }

  const ReportRequest& request_;
  std::vector<std::string>& warnings_;
  std::string first_trace_;  // that says its graph, and that
  std::string first_graph_;
  std::optional<cluster::Cluster> cluster_;
  std::string cluster_name_;
  report::PageInputs page_;
};

}  // namespace

report::PageInputs page_inputs(const ReportRequest& request, std::vector<std::string>& warnings) {
  return Gatherer(request, warnings).gather();
}

}  // namespace autodist::app
