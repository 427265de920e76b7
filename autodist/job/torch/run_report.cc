#include "autodist/job/torch/run_report.h"

#include <filesystem>

#include "autodist/planning/link_tuning.h"
#include "autodist/planning/plan_page.h"
#include "autodist/report/html/page.h"

namespace autodist::job {

void write_report(const JoinedJob& job, const JobStep& step, const std::string& path,
                  const std::string& title, const report::RunLog& run,
                  const program::Trace& trace) {
  report::PageInputs page;
  page.title = title;
  if (!run.steps.empty()) page.run = run;
  if (page.run && job.memory() != nullptr) {
    for (const JobMemory::Recovery& each : job.memory()->recoveries()) {
      page.run->losses.push_back({each.step, each.steps_again, Seconds{each.seconds}});
    }
  }
  if (!trace.rows.empty()) {
    page.traces.push_back({"this run", program::to_chrome_json(trace), false});
  }
  const std::string& by = step.plan().chosen_by;
  const bool is_file = by == job.options().strategy_file || by == job.options().plans_file;
  const SearchSettings& search = job.options().search;
  const auto& given = search.calibration;  // of a file whose name is not known
  planning::PlanPageRequest request =
      planning::page_request(is_file ? std::filesystem::path(by).filename().string() : by,
                             step.plan().passes, search.library && step.plan().has_library(),
                             given ? *given : sim::read_calibration(job.specification()),
                             given ? "" : sim::calibration_file(job.specification()));
  request.how.costs.micro_batches = step.plan().passes.micro_batches;
  planning::add_cores(job.too_few_cores(), request.how.calibration);
  const program::Program& program = step.program();
  planning::add_plan(page, program.graph, job.cluster(), step.plan().strategy, program, request);
  report::write_page(page, path);
}

}  // namespace autodist::job
