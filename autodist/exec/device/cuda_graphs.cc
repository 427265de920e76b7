// The one file that records CUDA graphs. It needs nothing of CUDA's runtime but what libtorch has.

#include "autodist/exec/device/cuda_graphs.h"

#include <ATen/cuda/CUDAGraph.h>

#include <memory>
#include <optional>
#include <utility>

#include "autodist/exec/device/queue.h"
#include "autodist/exec/device/recording.h"

namespace autodist::exec {
namespace {

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(std::unique_ptr<at::cuda::CUDAGraph> graph) : graph_(std::move(graph)) {}
  void launch() override { graph_->replay(); }

 private:
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

// CUDA records no default stream, which the caller's may be. Nothing runs while it records, so the
// queue on which it does waits for nothing. Only this thread's calls are looked at: others copy.
class CudaRecorder final : public Recorder {
 public:
  CudaRecorder(torch::Device device, at::Generator generator)
      : generator_(std::move(generator)),
        pool_(at::cuda::graph_pool_handle()),
        queue_(Queue::for_copies(device)) {}

  // A launch draws from where the generator stands then.
  void begin() override {
    graph_ = std::make_unique<at::cuda::CUDAGraph>();
    if (generator_.defined()) graph_->register_generator_state(generator_);
    here_.emplace(queue_);
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  }
  std::unique_ptr<Recording> end() override {
    graph_->capture_end();
    here_.reset();
    return std::make_unique<CudaRecording>(std::move(graph_));
  }
  void abandon() override {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {  // what was recorded is void, which is why it is abandoned
    }
    here_.reset();
    graph_.reset();
  }

 private:
  at::Generator generator_;
  at::cuda::MempoolId_t pool_;
  Queue queue_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  std::optional<Queue::Scope> here_;
};

}  // namespace

void record_cuda_graphs() {
  set_recorder(torch::kCUDA, [](torch::Device device, const at::Generator& generator) {
    return std::unique_ptr<Recorder>(std::make_unique<CudaRecorder>(device, generator));
  });
}

}  // namespace autodist::exec
