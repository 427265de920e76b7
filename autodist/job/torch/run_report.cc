#include "autodist/job/torch/run_report.h"

#include <filesystem>

#include "autodist/planning/link_tuning.h"
#include "autodist/planning/plan_page.h"
#include "autodist/report/html/page.h"

namespace autodist::job {

void write_report(const JoinedJob& job, const JobStep& step, const RunReport& what) {
  report::PageInputs page;
  page.title = what.title;
  if (!what.run.steps.empty()) page.run = what.run;
  if (page.run && job.memory() != nullptr) {
    for (const JobMemory::Recovery& each : job.memory()->recoveries()) {
      page.run->losses.push_back({each.step, each.steps_again, Seconds{each.seconds}});
    }
  }
  if (!what.trace.rows.empty()) {
    page.traces.push_back({"this run", program::to_chrome_json(what.trace), false});
  }
  planning::PlanPageRequest request;
  const std::string& by = step.plan().chosen_by;
  const bool is_file = by == job.options().strategy_file || by == job.options().plans_file;
  request.chosen_by = is_file ? std::filesystem::path(by).filename().string() : by;
  request.how.passes = step.plan().passes;
  request.how.costs.micro_batches = step.plan().passes.micro_batches;
  request.calibration_file = sim::calibration_file(job.specification());
  request.how.calibration = sim::read_calibration(job.specification());
  planning::add_cores(job.too_few_cores(), request.how.calibration);
  request.how.options.budget = {planning::kReportBudget, 0};
  const program::Program& program = step.program();
  planning::add_plan(page, program.graph, job.cluster(), step.plan().strategy, program, request);
  report::write_page(page, what.path);
}

}  // namespace autodist::job
