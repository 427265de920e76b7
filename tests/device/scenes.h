// Parts of the engine by themselves on the test device, in moments that jobs go through without
// anything to see: there some other wait of the step orders the same work, in most runs.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "autodist/exec/device/copy_rates.h"
#include "autodist/exec/device/host_copies.h"
#include "autodist/exec/local_variables.h"
#include "autodist/exec/stage_link.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/protocol/job.h"
#include "tests/device/test_device.h"

namespace autodist::test_device {

// The variables of a rank of two, which are on the device.
class Variables {
 public:
  explicit Variables(program::UpdateAt update_at,
                     program::Delivery delivery = program::Delivery::kPushed)
      : program_(program_of(update_at, delivery)),
        bindings_(bindings_of(program_)),
        job_(program_),
        norms_(job_.norms.parts, signal_),
        all_(program_, norms_, scaler_, nullptr, bindings_, staging_, signal_) {}

  static constexpr ir::VariableId kWide{0};  // 30 elements, in five slices

  exec::LocalVariables& all() { return all_; }

  // What comes back for a step is taken and installed.
  void update(std::uint64_t step) {
    for (const program::SliceId slice : program_.plan(kWide).slices) {
      all_.take(slice, step, 4, ones(slice), "", false);
    }
    all_.install(kWide, step);
  }
  // An op reads the version that is installed.
  void read() {
    read_ = all_.tensor(kWide) * 2;
    all_.read_until(kWide, exec::Queue::current(device()).record());
  }
  void overwrite_first_slice() {
    const program::SliceId first = program_.plan(kWide).slices.front();
    all_.overwrite(first, ones(first));
  }
  void overwrite_rows() {
    exec::Rows rows;
    rows.numbers = {0, 2};
    const auto values = std::make_shared<std::vector<double>>(10, 1.0);
    rows.values = reinterpret_cast<const std::byte*>(values->data());
    rows.keep = values;
    all_.overwrite_rows(kWide, {rows});
  }

 private:
  static program::Program program_of(program::UpdateAt update_at, program::Delivery delivery) {
    ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
    rule.options["lr"] = 1;
    rule.options["momentum"] = 0.5;
    exec::testing::Plan plan;
    plan.ranks = 2;
    plan.update_at = update_at;
    program::Program program = *exec::testing::program_of(exec::testing::two_layers(rule), plan);
    program::Dense dense;
    dense.delivery = delivery;
    for (program::Slice& slice : program.slices) slice.exchange.payload = dense;
    return program;
  }
  static capture::Bindings bindings_of(const program::Program& program) {
    capture::Bindings bindings;
    for (const torch::Tensor& each : exec::testing::initial_values(*program.graph, 7)) {
      bindings.variables.push_back(each.to(device()));
    }
    return bindings;
  }
  comm::Payload ones(program::SliceId slice) const {
    const std::int64_t count = element_count(program_.slice(slice));
    const auto values = std::make_shared<std::vector<double>>(count, 1.0);
    return {reinterpret_cast<const std::byte*>(values->data()),
            static_cast<std::size_t>(count) * sizeof(double), values};
  }

  const program::Program program_;
  const capture::Bindings bindings_;
  exec::Staging staging_{device(), Bytes(1 << 20)};
  exec::Signal signal_;
  const protocol::Job job_;
  const exec::Norms norms_;
  const exec::LossScaler scaler_{std::nullopt, 0, signal_};
  torch::Tensor read_;
  exec::LocalVariables all_;
};

inline void versions_follow_each_other(program::UpdateAt update_at) {
  Variables variables(update_at);
  variables.read();
  variables.update(0);
  variables.update(1);
}
inline void owners_versions() { versions_follow_each_other(program::UpdateAt::kOwner); }
inline void own_versions() { versions_follow_each_other(program::UpdateAt::kEveryRank); }

inline void states_and_values_are_read() {
  Variables variables(program::UpdateAt::kEveryRank);
  variables.update(0);
  static_cast<void>(variables.all().states(Variables::kWide));
  variables.all().put_states(Variables::kWide);
  variables.update(1);
  static_cast<void>(variables.all().dense(Variables::kWide));
}

inline void values_are_reloaded() {
  Variables variables(program::UpdateAt::kOwner);
  variables.update(0);
  variables.all().reload(Variables::kWide);
}

inline void rows_are_overwritten() {
  Variables variables(program::UpdateAt::kOwner);
  variables.read();
  for (int i = 0; i < 3; ++i) variables.overwrite_rows();
}

inline void parts_are_overwritten() {
  Variables variables(program::UpdateAt::kOwner, program::Delivery::kAsked);
  variables.read();
  for (int i = 0; i < 3; ++i) variables.overwrite_first_slice();
}

// A copy is on its way when the thread that copies is ended.
inline void copies_are_dropped() {
  exec::Staging staging(device(), Bytes(1 << 20));
  const torch::Tensor there = torch::ones({8}).to(device());
  const std::int64_t before = use().ops;
  exec::HostCopies copies(device(), staging, [](const std::exception_ptr&) {});
  copies.bring(exec::HostCopies::kAfterAll, {there}, [](const exec::HostCopies::Tensors&) {});
  // A wait of its queue, and the copy; without the wait it goes on after a while.
  for (int i = 0; i < 100 && use().ops < before + 2; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

inline void values_come_from_another_stage() {
  constexpr std::int64_t kSamples = 4;
  program::Program program =
      *exec::testing::program_of(exec::testing::two_layers(ir::default_rule(ir::Rule::kSgd)), {});
  program.transfers.push_back({program.graph->inputs.front().value, 0, 0, {1}});
  exec::Staging staging(device(), Bytes(1 << 20));
  exec::Signal signal;
  std::vector<torch::Tensor> received;
  exec::StageLink link(
      program, program::Rank(0), staging, Seconds{10}, signal,
      [](program::Rank, program::StageTransferId, std::uint64_t, const comm::Payload&) {});
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto values = std::make_shared<std::vector<double>>(kSamples * 5, 1.0);
    link.take(program::StageTransferId(0), step,
              {reinterpret_cast<const std::byte*>(values->data()), values->size() * sizeof(double),
               values});
    received.push_back(link.receive(program::StageTransferId(0), step, kSamples));
  }
}

inline void rates_are_measured() { exec::measure_copies(device().str(), Bytes(1 << 16)); }

struct Scene {
  const char* name;
  void (*play)();
};
constexpr Scene kScenes[] = {
    {"an owner's versions follow each other", owners_versions},
    {"own versions follow each other", own_versions},
    {"states and values are read", states_and_values_are_read},
    {"values are reloaded", values_are_reloaded},
    {"rows are overwritten", rows_are_overwritten},
    {"parts are overwritten", parts_are_overwritten},
    {"copies are dropped", copies_are_dropped},
    {"values come from another stage", values_come_from_another_stage},
    {"rates are measured", rates_are_measured},
};

}  // namespace autodist::test_device
