// What is being captured: a step, in training or evaluation, that can be recorded, run plainly and
// put back as it was. Private to capture.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/recorder.h"

namespace autodist::capture {

// What a step leaves behind: its outputs, the gradient of every variable (undefined where there is
// none), buffers.
using Values = std::vector<at::Tensor>;
// What a step leaves behind, by digest, so that none of its memory is kept.
using Outcome = std::vector<Digest>;

Outcome digests_of(const Values& values);

// In words: what stands at `index` of what the graph's step leaves behind.
std::string name_of_value(const ir::Graph& graph, std::size_t index);

class Subject {
 public:
  // Keeps the buffers' contents and the generators' states of now. Throws Error(kUsage) for a step
  // that cannot be captured as it is declared: an empty function, parameters on two devices,
  // something to train that the model has not. Parameters that the step does not train require no
  // gradient meanwhile.
  // `look_around` is capture::Options'; it may be empty.
  Subject(const TrainingStep& step, bool training, bool scaled_loss = false,
          std::function<void()> look_around = {});
  // Puts them back.
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  [[nodiscard]] const TrainingStep& step() const { return step_; }
  [[nodiscard]] at::Device device() const { return device_; }
  // Before every op.
  void look_around() const {
    if (look_around_) look_around_();
  }
  // Samples of the example; 0 where no input is batched.
  [[nodiscard]] std::int64_t example_rows() const;

  // `count` rows of the example from row `start` on, as often round as needed. Rows that come a
  // second time have their elements rolled, so that no two are equal. Fresh memory.
  [[nodiscard]] Batch rows(std::int64_t start, std::int64_t count) const;

  // Calls the step with the whole example, as models set themselves up in their first call. Buffers
  // are kept as this leaves them where a second call from the same buffers would leave them
  // otherwise, as an attribute says that they are set up; and where the first has written
  // parameters. A step that does not run is left to its recording, which names the op.
  void set_up(std::uint64_t seed);

  // What the host reads of Booleans while recording, in the places of the first that it asks for;
  // the rest it reads of the tensors.
  void answer(std::vector<bool> booleans) { answers_ = std::move(booleans); }
  // All that it reads of the example, with these answers.
  [[nodiscard]] std::vector<bool> booleans_of_example(std::uint64_t seed) const;

  // Runs of the step. Each starts from the kept buffers and the generators seeded with `seed`. In
  // run() the host reads what the graph's guards say, and buffers are those of the step.
  Recording record(const Batch& batch, std::uint64_t seed, bool check_writes) const;
  Values run(const ir::Graph& graph, const Batch& batch, std::uint64_t seed) const;

  // The state that every run starts from.
  void restore_buffers() const;
  // Throws Error(kUsage) where the step has given one another shape.
  void check_buffers() const;
  void seed(std::uint64_t seed) const;

  // The step's tensors for the tables of `graph`, with `constants` for the last.
  [[nodiscard]] Bindings bindings(const ir::Graph& graph, std::vector<at::Tensor> constants) const;

 private:
  const TrainingStep& step_;
  bool training_;
  bool scaled_loss_;
  std::function<void()> look_around_;
  std::vector<bool> answers_;
  std::shared_ptr<OpTraitsTable> traits_ = std::make_shared<OpTraitsTable>();
  at::Device device_ = at::kCPU;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> frozen_;  // for the time being: what the step only reads
  at::Tensor host_generator_;
  at::Tensor device_generator_;

  [[nodiscard]] std::vector<at::Tensor> forward(const Batch& batch) const;
  // forward(); false where the step does not run.
  bool call_on_example(std::uint64_t seed) const;
  // Of what forward() has returned on the batch; nothing where the step is not trained.
  void backward(std::vector<at::Tensor> returned, const Batch& batch) const;
};

}  // namespace autodist::capture
