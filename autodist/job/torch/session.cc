// The story, in code: capture, choose, rewrite and agree (job_step.h), start and take turns
// (job_steps.h), run.

#include "autodist/job/torch/session.h"

#include <fmt/ranges.h>

#include <limits>
#include <typeinfo>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/job/torch/run_report.h"
#include "autodist/job/torch/training_job.h"

namespace autodist {

namespace {

// What may wait for other ranks. Its message about a lost one says how that ended, where that is
// known, and where to go on from.
template <typename Call>
auto together(const job::TrainingJob* job, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const bool interrupted = typeid(error) != typeid(Error);  // by a signal: a class of its own
    if (error.code() != ErrorCode::kPeersLost || interrupted || job == nullptr) throw;
    std::string what = error.what();
    what += job->joined().end_of_lost(what);
    const std::string where = job->where_to_go_on();
    if (!where.empty()) what += (what.back() == '.' ? " " : ". ") + where;
    throw Error(error.code(), what);
  }
}

}  // namespace

double JobLoss::value() const {
  if (!sums_->known()) {
    const auto job = job_.lock();  // goes after the runner
    const std::shared_ptr<exec::Runner> runner = runner_.lock();
    if (!runner) {
      fail(ErrorCode::kUsage,
           "loss: the job ended before the loss of step {} was known. Read it before finish().",
           step());
    }
    together(job.get(), [&] { runner->await(*sums_); });
  }
  if (sums_->sums().empty()) return std::numeric_limits<double>::quiet_NaN();
  const double sum = sums_->sums().at(number_);
  return mean_ ? sum / static_cast<double>(sums_->samples()) : sum;
}

bool JobLoss::known() const { return sums_->known(); }
std::int64_t JobLoss::samples() const { return sums_->samples(); }
std::int64_t JobLoss::step() const { return static_cast<std::int64_t>(sums_->step()); }

Session job::distribute(std::unique_ptr<JoinedJob> job, TrainingStep step,
                        const ir::Optimizer& optimizer) {
  std::vector<NamedStep> steps;
  steps.push_back({"", std::move(step), optimizer, ""});
  auto training = std::make_shared<TrainingJob>(std::move(job), std::move(steps));
  return {std::move(training), 0};
}

Steps job::distribute(std::unique_ptr<JoinedJob> job, std::vector<NamedStep> steps) {
  std::vector<std::string> names;
  for (const NamedStep& step : steps) names.push_back(step.name);
  // An unnamed one would be taken for a job of one step.
  if (names.size() == 1 && names.front().empty()) {
    fail(ErrorCode::kUsage, "distribute: a step without a name. Name it.");
  }
  const auto training = std::make_shared<TrainingJob>(std::move(job), std::move(steps));
  std::vector<std::pair<std::string, Session>> sessions;
  for (std::size_t i = 0; i < names.size(); ++i) {
    sessions.emplace_back(names[i], Session(training, i));
  }
  return Steps(std::move(sessions));
}

Session::Session(std::shared_ptr<job::TrainingJob> job, std::size_t index)
    : job_(std::move(job)), index_(index) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

job::JobStep& Session::own_step() const { return job_->step(index_); }
job::StepRun& Session::turn() { return job_->turn(index_).run(); }
job::StepRun& Session::turn_to_step() { return job_->turn_to_step(index_).run(); }

double Session::run(const Batch& batch) {
  return together(job_.get(), [&] { return turn_to_step().run(batch); });
}
double Session::run_local(const Batch& rows) {
  return together(job_.get(), [&] { return turn_to_step().run_local(rows); });
}
const StepReport& Session::last() const { return own_step().last(); }
const std::vector<torch::Tensor>& Session::outputs() const { return own_step().outputs(); }
StepSummary Session::summarise(bool stop, bool save) {
  return together(job_.get(), [&] { return turn().summarise(stop, save); });
}
StepSummary Session::last_summary() {
  return together(job_.get(), [&] { return turn().last_summary(); });
}
std::map<std::string, torch::Tensor> Session::run_and_fetch(const Batch& batch,
                                                            const std::vector<std::string>& names) {
  return together(job_.get(), [&] { return turn_to_step().run_and_fetch(batch, names); });
}
std::vector<double> Session::sum_over_ranks(const std::vector<double>& values) {
  return together(job_.get(), [&] { return turn().sum_over_ranks(values); });
}
ir::LossScale Session::loss_scale() {
  return together(job_.get(), [&] { return turn().loss_scale(); });
}
std::int64_t Session::skipped_steps() {
  return together(job_.get(), [&] { return own_step().runner().loss_scale().skipped; });
}
std::vector<StepSummary> Session::remaining_summaries() {
  return together(job_.get(), [&] { return turn().remaining_summaries(); });
}
std::uint32_t Session::replica() const { return own_step().replica(); }
std::uint32_t Session::replicas() const { return own_step().program().batch_parts(); }
std::pair<std::int64_t, std::int64_t> Session::rows_of(std::int64_t batch) const {
  return own_step().rows_of(batch);
}
void Session::synchronize() {
  together(job_.get(), [&] { job_->synchronize(); });
}
void Session::settle(const torch::Tensor& parameter) {
  together(job_.get(), [&] { job_->settle(parameter); });
}
JobLoss Session::job_loss() const { return job_number(0); }
JobLoss Session::job_number(std::size_t number) const {
  JobLoss loss = own_step().job_number(number);
  loss.job_ = job_;
  return loss;
}
void Session::set_options(const std::map<std::string, std::map<std::string, double>>& options) {
  turn().set_options(options);
}
std::vector<torch::Tensor> Session::evaluate(const Batch& batch, Statistics statistics) {
  return together(job_.get(), [&] { return job_->evaluate(index_, batch, statistics); });
}
void Session::prepare_evaluation(Statistics statistics) {
  together(job_.get(), [&] { job_->prepare_evaluation(statistics); });
}
void Session::begin_evaluation(Statistics statistics) {
  together(job_.get(), [&] { job_->begin_evaluation(statistics); });
}
void Session::end_evaluation() { job_->end_evaluation(); }
PlanChange Session::change_plan(const std::string& builder) {
  planning::StrategyRequest request;
  request.builder = builder;
  return together(job_.get(), [&] { return job_->change_plan(index_, std::move(request), {}); });
}
PlanChange Session::change_plan(const strategy::Strategy& strategy) {
  return together(job_.get(), [&] { return job_->change_plan(index_, {}, strategy); });
}
void Session::save(const std::string& directory, SaveUntil until) {
  together(job_.get(), [&] { job_->save(directory, until); });
}
void Session::snapshot() {
  together(job_.get(), [&] { job_->snapshot(); });
}
void Session::keep(const std::string& name, Kept what) { job_->keep(name, std::move(what)); }
void Session::export_torchscript(const std::string& path) {
  together(job_.get(), [&] { job_->export_torchscript(index_, path); });
}
std::int64_t Session::load(const std::string& directory) {
  together(job_.get(), [&] { job_->load(directory); });
  return step();
}

std::int64_t Session::resume(const std::string& directory) {
  together(job_.get(), [&] { job_->resume(directory); });
  return step();
}
std::int64_t Session::step() const { return own_step().step(); }
std::uint32_t Session::rank() const { return job_->joined().rank(); }
std::uint32_t Session::size() const { return job_->joined().size(); }
const ir::Graph& Session::graph() const { return own_step().graph(); }
const program::Program& Session::program() const { return own_step().program(); }
const strategy::Strategy& Session::strategy() const { return own_step().plan().strategy; }
std::uint64_t Session::bytes_sent() const { return own_step().bytes_sent(); }
program::Trace Session::gather_trace() {
  return together(job_.get(), [&] {
    exec::Runner& runner = turn().runner();
    const auto call = job::begin_call(runner, exec::Call::kGatherTrace);
    job_->synchronize();
    return runner.gather_trace();
  });
}
program::Trace Session::take_trace() { return turn().runner().take_trace(); }
const program::Trace& Session::final_trace() const { return own_step().final_trace(); }
void Session::write_report(const std::string& path, const std::string& title,
                           const report::RunLog& run, const program::Trace& trace) const {
  job::write_report(job_->joined(), own_step(), path, title, run, trace);
}
void Session::leave(const std::string& reason) { job_->leave(reason); }
void Session::verify_next() { own_step().run().verify_next(); }
void Session::wish_for_the_end() { job_->wish_for_the_end(); }
std::optional<std::uint32_t> Session::who_wishes_for_the_end() const {
  return job_->who_wishes_for_the_end();
}
void Session::finish() {
  together(job_.get(), [&] { job_->finish(); });
}

Session& Steps::at(const std::string& name) {
  std::vector<std::string> names;
  for (auto& [known, session] : sessions_) {
    if (known == name) return session;
    names.push_back(known);
  }
  fail(ErrorCode::kUsage, "steps: the job has no '{}'; it has {}.{}", name, fmt::join(names, ", "),
       did_you_mean(name, names));
}

void Steps::synchronize() { sessions_.front().second.synchronize(); }
void Steps::save(const std::string& directory, SaveUntil until) {
  sessions_.front().second.save(directory, until);
}
void Steps::snapshot() { sessions_.front().second.snapshot(); }
void Steps::keep(const std::string& name, Kept what) {
  sessions_.front().second.keep(name, std::move(what));
}
std::int64_t Steps::load(const std::string& directory) {
  sessions_.front().second.load(directory);
  return step();
}

std::int64_t Steps::resume(const std::string& directory) {
  sessions_.front().second.resume(directory);
  return step();
}
void Steps::finish() { sessions_.front().second.finish(); }
std::int64_t Steps::step() const {
  std::int64_t sum = 0;
  for (const auto& [name, session] : sessions_) sum += session.step();
  return sum;
}
std::uint32_t Steps::rank() const { return sessions_.front().second.rank(); }
std::uint32_t Steps::size() const { return sessions_.front().second.size(); }

}  // namespace autodist
