#include "autodist/job/torch/job_steps.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/bindings.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/exec/start.h"
#include "autodist/job/torch/model_values.h"
#include "autodist/program/loads.h"

namespace autodist::job {
namespace {

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl() ||
         (a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes());
}

// Adds what is not there yet; a name means one tensor in all steps.
void unite(const std::vector<NamedTensor>& more, const std::string& step,
           std::vector<NamedTensor>& all) {
  for (const NamedTensor& each : more) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const NamedTensor& other) { return other.name == each.name; });
    if (found == all.end()) {
      all.push_back(each);
    } else if (!is_same(found->tensor, each.tensor)) {
      fail(
          ErrorCode::kUsage,
          "distribute: step '{}' has another '{}' than a step before it. Give the steps one model, "
          "or tensors names that say whose they are.",
          step, each.name);
    }
  }
}

// A step that trains a variable of several takes its values from this rank's tensors, which must
// hold all of them before any rank contributes.
void check_shareable(const std::string& step, const program::Program& program, ir::VariableId id) {
  const std::string& variable = program.graph->variable(id).name;
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::kInfeasible, "step '{}': '{}' is trained by other steps, too, and {}", step,
         variable, why);
  };
  const program::Exchange exchange = program.exchange(id);
  if (updates_on_arrival(exchange)) refuse("is asynchronous here; use sync=true");
  if (!keeps_whole_copies(exchange)) {
    refuse("is asked for before each step here; use local_proxy_variable=true or results=pushed");
  }
  for (const program::SliceId slice : program.plan(id).slices) {
    if (!program.computes(program.slice(slice).owner)) {
      refuse("lies at a node that only serves; use one that computes");
    }
  }
}

}  // namespace

void JobSteps::prepare(std::vector<NamedStep> steps) {
  for (NamedStep& step : steps) {
    const auto index = static_cast<std::uint32_t>(all_.size());
    all_.push_back(std::make_unique<JobStep>(job_, std::move(step), index));
  }
  unite_models();
  find_shared();
  if (job_.is_chief() && !job_.options().initial_weights.empty()) {
    put_weights(job_.options().initial_weights, model_,
                [this](const std::string& line) { job_.say(line); });
  }
  exec::broadcast_initial(job_.transport(), initial_tensors(), job_.options().join_limit);
  note_values();
  connect_library();
}

void JobSteps::connect_library() {
  const bool is_used = std::any_of(all_.begin(), all_.end(), [](const auto& step) {
    return !step->program().collectives.empty();
  });
  if (!is_used || collectives_) return;
  const std::string device = capture::device_of(front().declared()).str();
  collectives_ = comm::make_collectives(job_.transport(), job_.own_address(), device,
                                        job_.options().join_limit);
  const std::string why = comm::why_through_host(device);
  if (job_.is_chief() && !why.empty()) job_.say("all-reduces by a library: " + why);
}

void JobSteps::unite_models() {
  for (const auto& step : all_) {
    unite(step->declared().parameters, step->name(), model_.parameters);
    unite(step->declared().buffers, step->name(), model_.buffers);
  }
}

void JobSteps::find_shared() {
  const auto trains = [](const JobStep& step, const torch::Tensor& tensor) {
    for (std::size_t i = 0; i < step.graph().variables.size(); ++i) {
      const bool is_trained = step.graph().variables[i].gradient.has_value();
      if (is_trained && is_same(step.bindings().variables[i], tensor)) return true;
    }
    return false;
  };
  for (const auto& step : all_) {
    std::vector<ir::VariableId>& shared = shared_.emplace_back();
    for (std::size_t i = 0; i < step->graph().variables.size(); ++i) {
      if (!step->graph().variables[i].gradient) continue;
      const torch::Tensor& own = step->bindings().variables[i];
      const bool too = std::any_of(all_.begin(), all_.end(), [&](const auto& other) {
        return other != step && trains(*other, own);
      });
      if (!too) continue;
      check_shareable(step->name(), step->program(), ir::VariableId(i));
      shared.emplace_back(i);
    }
  }
}

void JobSteps::check_shared(std::size_t index, const program::Program& program) const {
  for (const ir::VariableId each : shared_[index]) {
    check_shareable(all_[index]->name(), program, each);
  }
}

std::vector<NamedTensor> JobSteps::initial_tensors() const {
  std::vector<NamedTensor> all;
  for (const auto& step : all_) {
    for (const NamedTensor& each : exec::initial_tensors(step->graph(), step->bindings())) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const NamedTensor& other) {
        return is_same(other.tensor, each.tensor);
      });
      if (!known) all.push_back(each);
    }
  }
  return all;
}

bool JobSteps::only_serve() const {
  return std::none_of(all_.begin(), all_.end(), [this](const auto& step) {
    return step->program().computes(program::Rank(job_.rank()));
  });
}

void JobSteps::start() {
  started_ = true;
  const auto count = static_cast<std::uint16_t>(all_.size());
  if (count > 1) channels_ = std::make_unique<comm::Channels>(job_.transport(), count);
  for (std::uint16_t i = 0; i < count; ++i) all_[i]->start(connections_of(i));
}

exec::RunnerConnections JobSteps::connections_of(std::size_t index) {
  comm::Transport& own =
      channels_ ? channels_->at(static_cast<std::uint16_t>(index)) : job_.transport();
  return {&own, collectives_.get(), &job_.clock()};
}

JobStep& JobSteps::take_turn(std::size_t index) {
  // What another step trains too is as that one has left it, and reload() takes what was written
  // since: a value that this step has noted is older.
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool in_turn = i == index && (!turn_ || turn_ == index);
    if (!in_turn) all_[i]->runner().forget_changes(shared_[i]);
  }
  if (turn_ == index) return *all_[index];
  if (turn_) {
    all_[*turn_]->runner().synchronize();
    if (!shared_[index].empty()) all_[index]->runner().reload(shared_[index]);
    all_[*turn_]->runner().calls().set_away(true);
    all_[index]->runner().calls().set_away(false);
  }
  turn_ = index;
  return *all_[index];
}

// The chief may have done others that this rank had no part in.
std::string JobSteps::outcome(const char* of, const std::string& failure) {
  const std::string head = std::string(of) + ":";
  while (true) {
    const std::string said = runner().outcome(head + failure);
    if (said.rfind(head, 0) == 0) return said.substr(head.size());
  }
}

void JobSteps::note_values() {
  for (const auto& step : all_) step->note_values();
}

std::int64_t JobSteps::done() const {
  std::int64_t done = 0;
  for (const auto& step : all_) done += step->step();
  return done;
}

}  // namespace autodist::job
