// All-reduces between the threads of one process: the library that a device without one has here.

#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "autodist/comm/collectives.h"

namespace autodist::test_device {

// Where the ranks of one job meet.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(std::uint32_t ranks) : places_(ranks) {}

  struct Place {
    void* data = nullptr;
    std::shared_ptr<c10::Event> ready;
  };

  // What each rank brings, once all have come. Throws where one stays away.
  std::vector<Place> meet(std::uint32_t rank, Place place) {
    std::unique_lock<std::mutex> lock(mutex_);
    places_[rank] = std::move(place);
    const std::uint64_t meeting = meetings_;
    if (++here_ == places_.size()) {
      met_ = places_;
      here_ = 0;
      ++meetings_;
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(60),
                                   [&] { return meetings_ != meeting; })) {
      throw std::runtime_error("a rank did not come to an all-reduce");
    }
    return met_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<Place> places_;
  std::vector<Place> met_;
  std::size_t here_ = 0;
  std::uint64_t meetings_ = 0;
};

// Adds up in the order of the ranks, on the queue of the caller; on a CPU before it returns.
class ThreadCollectives final : public comm::Collectives {
 public:
  ThreadCollectives(std::shared_ptr<ThreadMeeting> meeting, std::uint32_t rank,
                    torch::Device device)
      : meeting_(std::move(meeting)), rank_(rank), device_(device) {}

  void all_reduce(void* data, std::size_t count, DType dtype) override {
    const auto type = dtype == DType::kFloat64 ? torch::kDouble : torch::kFloat;
    const auto values = [&](void* at) {
      return at::for_blob(at, {static_cast<std::int64_t>(count)})
          .options(torch::TensorOptions(type).device(device_))
          .target_device(device_)
          .make_tensor();
    };
    torch::Tensor sum;
    for (const ThreadMeeting::Place& each : meet(data)) {
      sum = sum.defined() ? sum.add(values(each.data)) : values(each.data).clone();
    }
    meet(data);  // all have read
    values(data).copy_(sum);
  }
  [[nodiscard]] bool is_on_device() const override { return !device_.is_cpu(); }
  [[nodiscard]] std::string describe() const override { return "threads"; }

 private:
  // This queue goes on after what each rank's had been handed.
  std::vector<ThreadMeeting::Place> meet(void* data) {
    ThreadMeeting::Place own{data, nullptr};
    std::optional<c10::Stream> here;
    if (!device_.is_cpu()) {
      here = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
      own.ready = std::make_shared<c10::Event>(device_.type());
      own.ready->record(*here);
    }
    std::vector<ThreadMeeting::Place> all = meeting_->meet(rank_, own);
    for (const ThreadMeeting::Place& each : all) {
      if (each.ready != nullptr) each.ready->block(*here);
    }
    return all;
  }

  std::shared_ptr<ThreadMeeting> meeting_;
  std::uint32_t rank_;
  torch::Device device_;
};

}  // namespace autodist::test_device
