#include "autodist/job/torch/gathered_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/exec/state_bytes.h"

namespace autodist::job {

void GatheredState::keep(const std::string& name, Kept what) {
  const bool is_name = !name.empty() && name != "__metadata__";  // safetensors' own
  if (!is_name || kept_.count(name) > 0) {
    fail(ErrorCode::kUsage, "keep: '{}' {}, another name expected", name,
         is_name ? "is kept already" : "is no name");
  }
  const auto loaded = unclaimed_.find(name);
  if (loaded != unclaimed_.end()) {
    what.restore(loaded->second);
    unclaimed_.erase(loaded);
  }
  kept_.emplace(name, std::move(what));
}

void GatheredState::restore_kept(const std::string& safetensors, const std::string& where) {
  unclaimed_.clear();
  for (const exec::TensorData& each : exec::read_safetensors(safetensors, where).tensors) {
    const auto keeper = kept_.find(each.name);
    if (keeper != kept_.end()) {
      keeper->second.restore(std::string(each.bytes));
    } else {
      unclaimed_[each.name] = std::string(each.bytes);
    }
  }
}

std::vector<exec::TensorData> GatheredState::kept_state() const {
  std::map<std::string, std::string> all = unclaimed_;
  for (const auto& [name, each] : kept_) {
    try {
      all[name] = each.state();
    } catch (const Error& error) {
      fail(error.code(), "keep: '{}': {}", name, error.what());
    }
  }
  std::vector<exec::TensorData> state;
  for (auto& [name, bytes] : all) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    state.push_back({name, DType::kUInt8, {size}, std::move(bytes)});
  }
  return state;
}

// The optimizers' state lies with the owners, whose threads give it to the chief; what differs
// between replicas only their own code can give.
bool GatheredState::owners_hold_everything() const {
  return std::all_of(steps_.all().begin(), steps_.all().end(), [](const auto& step) {
    const program::Program& program = step->program();
    const bool apart = program.replica_count() > 1 && replicas_differ(program);
    return program.lag() && !program.is_placed() && !apart;
  });
}

Bytes GatheredState::bytes() const {
  Bytes bytes;
  for (const auto& step : steps_.all()) {
    bytes += exec::bytes_of_state(step->program(), &job_.options().user_rules);
  }
  for (const NamedTensor& each : steps_.model().buffers) {
    bytes += Bytes(static_cast<std::int64_t>(each.tensor.nbytes()));
  }
  return bytes;
}

bool GatheredState::gather(bool with_the_others) {
  if (is_gathered()) return false;
  gathered_at_ = steps_.done();
  gathered_ = std::make_shared<StateCopy>(gather_all(with_the_others));
  return true;
}

StateCopy GatheredState::gather_all(bool with_the_others) {
  if (with_the_others) steps_.runner().synchronize();
  StateCopy state;
  for (const auto& step : steps_.all()) {
    step->runner().synchronize();
    if (with_the_others) job::gather(*step, state.checkpoint);
  }
  if (!job_.is_chief()) return state;
  state.checkpoint.step = steps_.done();
  std::vector<std::string> digests;
  std::vector<std::string> optimizers;
  for (const auto& step : steps_.all()) {
    if (!step->name().empty()) state.checkpoint.steps[step->name()] = step->step();
    digests.push_back(to_string(program::digest_of(step->program())));
    optimizers.push_back(step->prefix() + step->optimizer());
    state.optimizers.emplace_back(step->prefix(), step->run().state());
  }
  state.checkpoint.program_digest = fmt::format("{}", fmt::join(digests, " "));
  state.checkpoint.optimizer = fmt::format("{}", fmt::join(optimizers, "; "));
  return state;
}

std::shared_ptr<StateCopy> GatheredState::copy() {
  if (!gathered_) {
    fail(ErrorCode::kUsage, "save: the step after {} has begun; run one to its end first",
         steps_.done());
  }
  gathered_->checkpoint.model = copy_model(steps_.model());
  gathered_->checkpoint.kept = kept_state();
  return gathered_;
}

void GatheredState::forget() {
  gathered_at_.reset();
  gathered_.reset();
}

}  // namespace autodist::job
