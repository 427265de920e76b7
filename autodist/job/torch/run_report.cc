#include "autodist/job/torch/run_report.h"

#include <filesystem>

#include "autodist/comm/c10d/gloo.h"
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
  const std::string& by = step.plan().chosen_by;
  const bool is_file = by == job.options().strategy_file || by == job.options().plans_file;
  const SearchSettings& search = job.options().search;
  planning::PlanPageRequest request = planning::page_request(
      is_file ? std::filesystem::path(by).filename().string() : by, step.plan().passes,
      search.library && comm::has_gloo(), job.specification());
  request.how.costs.micro_batches = step.plan().passes.micro_batches;
  if (search.calibration) {
    request.how.calibration = *search.calibration;
    request.calibration_file.clear();  // the name of its file is not known
  }
  planning::add_cores(job.too_few_cores(), request.how.calibration);
  const program::Program& program = step.program();
  planning::add_plan(page, program.graph, job.cluster(), step.plan().strategy, program, request);
  report::write_page(page, what.path);
}

}  // namespace autodist::job
