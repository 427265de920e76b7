// The one file that records CUDA graphs. It needs nothing of CUDA's runtime but what libtorch has.

#include "autodist/exec/device/cuda_graphs.h"

#include <ATen/cuda/CUDAGraph.h>

#include <optional>

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
  explicit CudaRecorder(torch::Device device)
      : pool_(at::cuda::graph_pool_handle()), queue_(Queue::for_copies(device)) {}

  void begin() override {
    graph_ = std::make_unique<at::cuda::CUDAGraph>();
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
  at::cuda::MempoolId_t pool_;
  Queue queue_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  std::optional<Queue::Scope> here_;
};

}  // namespace

void record_cuda_graphs() {
  // A launch would draw from where the generator stood when it was recorded: how it is told
  // otherwise differs between versions of libtorch.
  set_recorder(torch::kCUDA, [](torch::Device device, const at::Generator& generator) {
    std::unique_ptr<Recorder> recorder;
    if (!generator.defined()) recorder = std::make_unique<CudaRecorder>(device);
    return recorder;
  });
}

}  // namespace autodist::exec
