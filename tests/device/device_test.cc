// Jobs on the test device: the bits of the CPU's run, and no access that nothing orders, on many
// schedules.

#include <gtest/gtest.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/capture/op_call.h"
#include "autodist/exec/replay.h"
#include "tests/device/jobs.h"
#include "tests/library_collectives.h"

namespace autodist::test_device {
namespace {

using testing_jobs::Parameters;

constexpr std::uint64_t kSchedules = 5;           // of every job
constexpr std::uint64_t kSlowSchedules = 10'000;  // of all jobs together

bool is_slow() {
  const std::string suite = testing::UnitTest::GetInstance()->current_test_suite()->name();
  return suite.rfind("Slow", 0) == 0;
}

// After the job's run on a schedule: what the device has reported. Its counts are for
// tools/bench-device.
void note_reports(std::uint64_t schedule, int& races) {
  for (const std::string& report : reports()) {
    ADD_FAILURE() << "schedule " << schedule << ": " << report;
    ++races;
  }
  testing::Test::RecordProperty("schedules", static_cast<int>(schedule));
  testing::Test::RecordProperty("races", races);
}

std::vector<DeviceJob> jobs() {
  std::vector<DeviceJob> all;
  for (const char* builder : {"PS", "AllReduce", "AllReduce:update_at=owner",
                              "AllReduce:algorithm=library", "PartitionedPS"}) {
    for (const std::uint32_t ranks : {1U, 2U, 4U}) all.push_back({"digits", builder, ranks});
  }
  for (const char* model : {"gpt-small", "resnet-small", "ncf-small"}) {
    for (const char* builder : {"PSLoadBalancing", "AllReduce"}) all.push_back({model, builder, 2});
  }
  all.push_back({"digits", "AllReduce:compressor=HorovodCompressorEF", 2});
  // Casts that the device makes; of sparse gradients the host does.
  all.push_back({"ncf-small-sparse", "AllReduce:compressor=fp16", 2, 1, "ftrl:lr=0.05"});
  all.push_back({"gpt-small", "AllReduce:compressor=HorovodCompressor", 4});
  all.push_back({"digits", "AllReduce:compressor=HorovodCompressor", 2, 2, "", true});
  all.push_back({"digits", "P3:slice_parameters=300", 2});
  all.push_back({"digits", "PS", 2, 2});
  all.push_back({"digits", "AllReduce", 2, 2});
  // Updates on the device, with a norm that needs all gradients; and rules that stay on the host.
  for (const char* optimizer : {"adamw:lr=1e-3,decay=0.1,clip=0.5", "lamb:lr=1e-3"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      all.push_back({"digits", "AllReduce", ranks, 1, optimizer});
    }
  }
  for (const char* builder : {"PS", "AllReduce"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      all.push_back({"digits", builder, ranks, 1, "adam:lr=1e-3", true});
    }
  }
  all.push_back({"digits", "PartitionedAR", 2, 1, "adam:lr=1e-3"});
  // A library that sums on the device; with a norm; factors of PowerSGD, which come to the host.
  const std::string library = "AllReduce:algorithm=library";
  for (const char* optimizer : {"", "adamw:lr=1e-3,clip=0.5", "lamb:lr=1e-3"}) {
    all.push_back({"digits", library, 2, 1, optimizer, false, false, true});
  }
  all.push_back({"gpt-small", library, 4, 1, "", false, false, true});
  all.push_back({"resnet-small", library, 2, 1, "", false, false, true});
  all.push_back({"digits", library, 2, 2, "", false, false, true});
  all.push_back({"digits", "AllReduce:compressor=powersgd", 2, 1, "", false, false, true});
  // Rows of embeddings: fetched before each step, pushed to copies, and in gradients of a library.
  for (const char* builder :
       {"PS", "PS:local_proxy_variable=true", "AllReduce", "AllReduce:algorithm=library"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      all.push_back({"ncf-small-sparse", builder, ranks, 1, "sgd:lr=0.02"});
    }
  }
  all.push_back({"ncf-small-sparse", "PartitionedPS", 4, 1, "adam:lr=1e-3"});
  all.push_back({"ncf-small-sparse", "PS", 2, 2, "adagrad:lr=0.05"});
  // Dense results that are asked for.
  all.push_back({"digits", "PS:results=asked", 2});
  all.push_back({"digits", "PartitionedPS:results=asked", 4});
  // Stages of placed graphs, some with a pipeline of micro-batches, one in two replicas.
  for (const std::uint32_t micro_batches : {1U, 3U}) {
    all.push_back({"digits", "PS", 2, micro_batches, "", false, false, false, 2});
  }
  all.push_back({"gpt-small", "PS", 4, 2, "", false, false, false, 2});
  all.push_back({"resnet-small", "PS", 2, 2, "", false, false, false, 2});
  all.push_back({"ncf-small-sparse", "PS", 2, 2, "sgd:lr=0.02", false, false, false, 2});
  DeviceJob autocast{"gpt-small", "AllReduce", 2};
  autocast.casts_to_bf16 = true;
  all.push_back(autocast);
  // The first rank on the device, the others on the CPU.
  for (DeviceJob mixed : {DeviceJob{"digits", "PS", 2}, DeviceJob{"digits", "AllReduce", 2},
                          DeviceJob{"digits", "AllReduce:compressor=fp16", 2},
                          DeviceJob{"digits", library, 2, 1, "", false, false, true},
                          DeviceJob{"ncf-small-sparse", "PS", 2, 1, "sgd:lr=0.02"}}) {
    mixed.is_mixed = true;
    all.push_back(mixed);
  }
#if TORCH_VERSION_MAJOR >= 2
  all.push_back({"bert-small", "AllReduce", 2});  // with random ops
  for (const char* model : {"digits", "gpt-small", "resnet-small"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      all.push_back({model, "AllReduce", ranks, 1, "", false, true});
    }
  }
#endif
  return all;
}

// A norm of gradients that stay there is added up in another order than the host's, and MKL's
// square roots (pip's libtorch) are not always the nearest numbers.
bool rounds_otherwise(const DeviceJob& job) {
  const bool is_there = job.library_on_device || job.ranks == 1;
  const bool norm = is_there && job.optimizer.find("clip") != std::string::npos;
  return norm || (at::hasMKL() && job.optimizer.find("adam") != std::string::npos);
}

// What rounds otherwise has the bits of its first schedule, which take the place of the CPU's.
void expect_expected(const DeviceJob& job, const Parameters& there, std::uint64_t schedule,
                     Parameters& expected) {
  if (schedule == 1 && rounds_otherwise(job)) {
    testing_jobs::expect_close(there, expected, job.builder);
    expected = there;
  }
  EXPECT_TRUE(equal(there, expected)) << "schedule " << schedule;
}

class OnTheDevice : public testing::TestWithParam<DeviceJob> {};
class Recorded : public OnTheDevice {};

TEST_P(OnTheDevice, JobsHaveTheBitsOfTheCpu) {
  const DeviceJob& job = GetParam();
  if (!job.library_on_device && testing_jobs::is_left_out(job.builder))
    GTEST_SKIP() << "this build has no Gloo";
  begin({0});  // known before autograd starts its threads
  Parameters expected = train(job, false);
  const std::uint64_t schedules = is_slow() ? kSlowSchedules / jobs().size() + 1 : kSchedules;
  int races = 0;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    begin({seed});
    const Use before = use();
    const Parameters there = train(job, true);
    EXPECT_EQ(use().device_bytes, before.device_bytes) << "schedule " << seed;
    EXPECT_EQ(use().pinned_bytes, before.pinned_bytes) << "schedule " << seed;
    expect_expected(job, there, seed, expected);
    note_reports(seed, races);
    EXPECT_GT(use().ops, 0);
    if (HasFailure()) return;
  }
}

// The second step is recorded, and the later ones are launches of that: memory lies where it lay,
// and is overwritten where nobody reads it any more.
TEST_P(Recorded, JobsHaveTheBitsOfTheCpu) {
  const DeviceJob& job = GetParam();
  begin({0});
  Parameters expected = train(job, false);
  int races = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    Schedule schedule{seed};
    schedule.records = true;
    begin(schedule);
    const Use before = use();
    const Parameters there = train(job, true);
    expect_expected(job, there, seed, expected);
    EXPECT_EQ(use().device_bytes, before.device_bytes) << "schedule " << seed;
    EXPECT_GE(use().launches - before.launches, std::int64_t{job.ranks} * (kDeviceSteps - 1));
    note_reports(seed, races);
    if (HasFailure()) return;
  }
  begin({0});
}

std::vector<DeviceJob> recorded_jobs() {
  return {{"digits", "AllReduce", 1},
          {"digits", "AllReduce", 1, 2, "adamw:lr=1e-3,clip=0.5"},
          {"digits", "PS", 2},
          {"digits", "AllReduce", 2, 1, "adam:lr=1e-3", true},
          {"digits", "AllReduce:algorithm=library", 2, 1, "", false, false, true},
          {"digits", "PS", 2, 2},
          {"digits", "AllReduce:compressor=bf16", 2},
          {"gpt-small", "AllReduce", 1},
          {"gpt-small", "PSLoadBalancing", 2},
          {"resnet-small", "AllReduce", 2},
          {"ncf-small-sparse", "PS", 2, 1, "sgd:lr=0.02"}};
}

// The host gets the loss some time after the ops; nothing is updated and nobody waits for long.
TEST(NonFiniteLoss, EndsTheStep) {
  for (const DeviceJob& job :
       {DeviceJob{"digits", "AllReduce", 1},
        {"digits", "AllReduce", 2},
        {"digits", "PS", 2},
        {"digits", "AllReduce:algorithm=library", 2, 1, "", false, false, true}}) {
    begin({1});
    try {
      train(job, true, 1, {}, std::numeric_limits<double>::quiet_NaN());
      ADD_FAILURE() << name_of(job) << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is nan"), std::string::npos) << error.what();
    }
  }
}

// A step whose loss is 0 and whose gradient is infinite, of which a cast makes a finite one.
Parameters train_at_a_root(const std::string& builder, std::uint32_t ranks, bool scales_loss) {
  std::vector<TrainingStep> steps(ranks);
  for (TrainingStep& step : steps) {
    const torch::Tensor w = torch::zeros({4}).set_requires_grad(true);
    step.name = "root";
    step.parameters = {{"w", w}};
    step.example = {torch::ones({2, 4})};
    step.loss = [w](const Batch& batch) { return (w * batch[0]).sqrt().sum(); };
  }
  testing_jobs::JobPlace place;
  place.cluster = cluster::read_cluster("local:" + std::to_string(ranks));
  place.devices.assign(ranks, device());
  place.on_thread = [] { return std::make_shared<OwnQueue>(); };
  if (scales_loss) place.loss_scaling = ir::LossScaling();
  begin({1});
  return testing_jobs::run_job(
      steps, builder, "sgd:lr=0.1", 2, [&](int, std::uint32_t) { return steps.front().example; },
      nullptr, 1, nullptr, &place);
}

TEST(NonFiniteGradient, EndsTheStepOrIsSkippedHoweverItTravels) {
  for (const char* builder : {"PS", "AllReduce", "AllReduce:compressor=fp16"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      try {
        train_at_a_root(builder, ranks, /*scales_loss=*/false);
        ADD_FAILURE() << builder << " on " << ranks << ": nothing was thrown";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("the gradient of 'w' at rank"), std::string::npos)
            << error.what();
      }
      const Parameters skipped = train_at_a_root(builder, ranks, /*scales_loss=*/true);
      EXPECT_TRUE(skipped.front().equal(torch::zeros({4}))) << builder << " on " << ranks;
    }
  }
}

// Also where the norm of a clip tells of it.
TEST(NonFiniteLoss, IsPassedOverWhereThatIsAskedFor) {
  DeviceJob job{"digits", "AllReduce", 1, 1, "sgd:lr=0.1,clip=0.5"};
  job.on_nonfinite = exec::OnNonFinite::kIgnore;
  begin({1});
  const Parameters there = train(job, true, 2, {}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(there.front().isnan().any().item<bool>());
}

// State moves from the device, and to it, wherever a rule runs under the next plan.
TEST(PlanChanges, LeaveTheBitsOfTheCpu) {
  const std::vector<std::string> later{"AllReduce", "PartitionedPS", "PS:results=asked"};
  for (const DeviceJob& one : {DeviceJob{"digits", "PS", 2}, DeviceJob{"ncf-small-sparse", "PS", 2},
                               DeviceJob{"digits", "PS", 2, 1, "", /*scales_loss=*/true}}) {
    DeviceJob job = one;
    const Parameters alone = train(job, false);
    job.later_builders = later;
    EXPECT_TRUE(equal(train(job, false), alone)) << name_of(job);
    for (const std::uint64_t seed : {1, 2}) {
      begin({seed});
      EXPECT_TRUE(equal(train(job, true), alone)) << name_of(job) << ", seed " << seed;
      EXPECT_TRUE(reports().empty()) << reports().front();
    }
  }
}

std::string refusal_of(const TrainingStep& step) {
  testing_jobs::JobPlace place;
  place.cluster = cluster::read_cluster("local:1");
  place.devices = {device()};
  place.on_thread = [] { return std::make_shared<OwnQueue>(); };
  try {
    testing_jobs::run_job(
        {step}, "PS", "adam:lr=1e-3", 2, [&](int, std::uint32_t) { return step.example; }, nullptr,
        1, nullptr, &place);
  } catch (const capture::DeviceRefusal& error) {
    return error.what();
  }
  return "";
}

TEST(Refusals, NameWhatHoldsMemoryThatIsMissing) {
  const TrainingStep step = testing_jobs::make_step("gpt-small", 16);
  std::int64_t parameters = 0;
  for (const NamedTensor& each : step.parameters) {
    parameters += static_cast<std::int64_t>(each.tensor.nbytes());
  }
  begin({1, 0});
  const std::int64_t before = use().device_bytes;
  begin({1, 0, {}, before + 5 * parameters});  // of which the optimizer's states are two
  const std::string refusal = refusal_of(step);
  EXPECT_NE(refusal.find("step 0: "), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("has no memory left at op "), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("states of the optimizer " + to_string(Bytes(2 * parameters))),
            std::string::npos)
      << refusal;
  begin({1, 0, {}, before + 2 * parameters});
  EXPECT_NE(refusal_of(step).find("no memory for the states"), std::string::npos);
}

TEST(Refusals, NameAnOpThatTheDeviceHasNoKernelFor) {
  begin({1, 0});
  const torch::Tensor w = torch::full({4}, 0.25).set_requires_grad(true);
  TrainingStep step;
  step.name = "erf";
  step.parameters = {{"w", w}};
  step.example = {torch::ones({2, 4})};
  step.loss = [w](const Batch& batch) { return (w * batch[0]).erfinv().mean(); };
  const std::string refusal = refusal_of(step);
  EXPECT_NE(refusal.find("has no kernel for what the step asks for at op "), std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("aten::erfinv"), std::string::npos) << refusal;
}

#if TORCH_VERSION_MAJOR >= 2
// As a kernel that adds in any order: no two calls round alike.
torch::Tensor shaky(const torch::Tensor& x) {
  static std::atomic<int> calls{0};
  return x * (1 + 1e-6 * (++calls % 5));
}
TORCH_LIBRARY(device_test, library) {
  library.def("shaky(Tensor x) -> Tensor");
  library.impl("shaky", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &shaky));
}

// `loss` of a parameter of four elements and a batch of rows of four, all on the device.
TrainingStep small_step(
    const std::function<torch::Tensor(const torch::Tensor& w, const torch::Tensor& x)>& loss) {
  TrainingStep step;
  step.name = "small";
  step.parameters = {{"w", torch::full({4}, 0.25).set_requires_grad(true)}};
  step.example = {torch::arange(32.F).view({8, 4})};
  move_to_device(step);
  step.loss = [loss, w = step.parameters.front().tensor](const Batch& batch) {
    return loss(w, batch[0]);
  };
  return step;
}

TEST(CaptureOnTheDevice, TakesAStepThatNoTwoRunsOfRoundAlike) {
  begin({1, 0});
  double factor = 1;
  const TrainingStep step = small_step([&](const torch::Tensor& w, const torch::Tensor& x) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("device_test::shaky", "")
                               .typed<torch::Tensor(const torch::Tensor&)>();
    return (w * x).sum() * op.call(torch::ones({}, x.options())) * factor;
  });
  const capture::CapturedStep captured = capture::capture(step, {});
  capture::verify_replay(step, captured.graph, captured.tensors, step.example, 5);
  factor = 1.01;  // is more than rounding
  try {
    capture::verify_replay(step, captured.graph, captured.tensors, step.example, 5);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("by more than between two runs"), std::string::npos)
        << error.what();
  }
}

void begin_recorded() {
  Schedule schedule{1, 0};
  schedule.records = true;
  begin(schedule);
}

std::vector<ir::OpId> ops_of(const ir::Graph& graph) {
  std::vector<ir::OpId> ops;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) ops.emplace_back(i);
  return ops;
}

// Launches would read the old one.
TEST(RecordedSteps, AreRecordedAnewForNewStorage) {
  begin({1, 0});
  torch::Tensor outside = torch::full({4}, 2.F).to(device());
  const TrainingStep step = small_step([outside](const torch::Tensor& w, const torch::Tensor& x) {
    return (w * outside).sum() + 0 * x.sum();
  });
  const capture::CapturedStep captured = capture::capture(step, {});
  const auto graph = std::make_shared<const ir::Graph>(captured.graph);
  begin_recorded();
  {
    exec::Replay replay(graph, captured.tensors, device());
    const capture::BelowAutograd below_autograd;
    for (int number = 0; number < 6; ++number) {
      if (number == 4) outside.set_data(torch::full({4}, 3.F).to(device()));
      capture::take_new_storage(*graph, captured.tensors);
      replay.begin(step.example, 0, /*op_by_op=*/false);
      replay.run(ops_of(*graph));
      EXPECT_EQ(replay.writes_again(), number != 0 && number != 4);
      EXPECT_EQ(replay.output(0).cpu().item<float>(), number < 4 ? 2 : 3) << number;
      replay.end();
    }
  }
  begin({0});
}

TEST(RecordedSteps, SayWhichOpIsNotRecorded) {
  begin({1, 0});
  const TrainingStep step = small_step([](const torch::Tensor& w, const torch::Tensor& x) {
    return (w * x).sum() * x.sum().cpu().to(x.device());
  });
  const capture::CapturedStep captured = capture::capture(step, {});
  const auto graph = std::make_shared<const ir::Graph>(captured.graph);
  begin_recorded();
  const std::vector<ir::OpId> ops = ops_of(*graph);
  {
    exec::Replay replay(graph, captured.tensors, device());
    const capture::BelowAutograd below_autograd;
    for (const bool is_recorded : {false, true, false}) {
      replay.begin(step.example, 0, /*op_by_op=*/false);
      replay.run(ops);
      const std::string why = replay.take_unrecorded();
      EXPECT_EQ(why.find("_to_copy") != std::string::npos, is_recorded) << why;
      replay.end();
    }
  }
  begin({0});
}

TEST(CaptureOnTheDevice, MeasuresWhatOpsTake) {
  begin({1, 1, std::chrono::milliseconds(1)});
  TrainingStep step = testing_jobs::make_step("digits", 4);
  move_to_device(step);
  capture::Options options;
  options.cost_repetitions = 3;
  const capture::CapturedStep captured = capture::capture(step, options);
  Seconds all;
  for (const ir::Op& op : captured.graph.ops) all += op.cost.at(4);
  EXPECT_GT(all, Seconds(1e-3)) << "ops that pause for up to a millisecond each";
  capture::verify_replay(step, captured.graph, captured.tensors,
                         {step.example.begin(), step.example.end()}, 5);
  EXPECT_TRUE(reports().empty());
}
#endif

// Which version a step reads is a matter of time.
TEST(StaleJobs, AreOrderedOnTheDevice) {
  int races = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    begin({seed});
    train({"digits", "PS:staleness=1", 2}, true);
    note_reports(seed, races);
  }
}

// What is in use between two steps varies with what is on its way, and with the rows that a batch
// touches; if it grew, in the end even the least would be more than the most in the beginning. What
// is pinned is the most that was lent at once, which a late step of a busy machine may raise by a
// block or two; one of the smallest, lost in every 200 steps, is more than a tenth.
TEST(SlowSteps, NothingGrowsOverTenThousand) {
  constexpr int kSteps = 10'000;
  constexpr int kWindow = 1'000;
  for (const DeviceJob& job : {DeviceJob{"digits", "PS", 2}, DeviceJob{"digits", "AllReduce", 2},
                               DeviceJob{"ncf-small-sparse", "PS", 2, 1, "sgd:lr=0.02"}}) {
    begin({1, 0});
    Use most;
    std::optional<Use> least;
    train(job, true, kSteps, [&](int step) {
      const Use now = use();
      if (step < kWindow) {
        most.device_bytes = std::max(most.device_bytes, now.device_bytes);
        most.pinned_bytes = std::max(most.pinned_bytes, now.pinned_bytes);
      } else if (step >= kSteps - kWindow) {
        if (!least) least = now;
        least->device_bytes = std::min(least->device_bytes, now.device_bytes);
        least->pinned_bytes = std::min(least->pinned_bytes, now.pinned_bytes);
      }
    });
    EXPECT_GT(most.pinned_bytes, 0);
    EXPECT_LE(least->device_bytes, most.device_bytes) << name_of(job);
    EXPECT_LE(least->pinned_bytes, most.pinned_bytes + most.pinned_bytes / 10) << name_of(job);
    EXPECT_TRUE(reports().empty());
  }
}

std::string test_name(const testing::TestParamInfo<DeviceJob>& test) {
  std::string name = name_of(test.param);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Schedules, OnTheDevice, testing::ValuesIn(jobs()), test_name);
INSTANTIATE_TEST_SUITE_P(Schedules, Recorded, testing::ValuesIn(recorded_jobs()), test_name);
INSTANTIATE_TEST_SUITE_P(SlowSchedules, OnTheDevice, testing::ValuesIn(jobs()), test_name);

}  // namespace
}  // namespace autodist::test_device
