// Collectives of a c10d group: libtorch's own classes of Gloo's and NCCL's, or a backend that
// somebody else made.
//
// Private to comm/c10d.

#pragma once

#include <pthread.h>
#include <signal.h>
#include <torch/types.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/mutex.h"
#include "autodist/comm/c10d/connections.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/shared_keys.h"

namespace autodist::comm {

// Gloo writes to sockets whose peer may have gone, which by default ends the process with SIGPIPE.
// While this lives, the signal is blocked for the calling thread and for the threads it starts;
// other threads, and what the program does about SIGPIPE, stay as they are.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    AD_CHECK(pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_) == 0);
  }
  ~WithoutSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    // One that came meanwhile would be delivered as soon as it is let through.
    const timespec at_once{0, 0};
    while (sigtimedwait(&sigpipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t sigpipe_{};
  sigset_t before_{};
};

// What c10d asks of a store while its ranks connect; afterwards it stands by itself, for a
// library's own threads that look for signs of trouble. Any thread.
class KeyStore final : public c10d::Store {
 public:
  KeyStore(Transport& transport, Seconds limit)
      : c10d::Store(to_milliseconds(limit)), keys_(transport, limit) {}

  void finish() {
    const MutexLock lock(mutex_);
    keys_.finish();
    finished_ = true;
  }

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const MutexLock lock(mutex_);
    if (!finished_) keys_.set(key, {value.begin(), value.end()});
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const MutexLock lock(mutex_);
    TORCH_CHECK(!finished_ || keys_.has(key), "the ranks are connected, and nobody sets ", key);
    const std::string& value = keys_.get(key);
    return {value.begin(), value.end()};
  }
  bool check(const std::vector<std::string>& keys) override {
    const MutexLock lock(mutex_);
    return std::all_of(keys.begin(), keys.end(),
                       [this](auto& key) AD_REQUIRES(mutex_) { return keys_.has(key); });
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

  std::int64_t add(const std::string&, std::int64_t) override { return refuse("add"); }
  bool deleteKey(const std::string&) override { return refuse("deleteKey") != 0; }
  std::int64_t getNumKeys() override { return refuse("getNumKeys"); }
#if TORCH_VERSION_MAJOR >= 2
  c10::intrusive_ptr<c10d::Store> clone() override {
    refuse("clone");
    return {};
  }
#endif

 private:
  static std::int64_t refuse(const char* what) {
    AD_CHECK(false) << "the library asks its store for " << what;
    return 0;
  }

  Mutex mutex_;
  SharedKeys keys_ AD_GUARDED_BY(mutex_);
  bool finished_ AD_GUARDED_BY(mutex_) = false;
};

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    default:
      fail(ErrorCode::kUsage, "all-reduce: the library cannot sum {}", name_of(dtype));
  }
}

inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

template <typename Group>
class GroupCollectives final : public Collectives {
 public:
  using Maker = std::function<c10::intrusive_ptr<Group>(const c10::intrusive_ptr<c10d::Store>&,
                                                        int rank, int size)>;

  // `make` connects a rank with the others over the store. `where`: "gloo over 127.0.0.1".
  GroupCollectives(Transport& transport, std::string where, torch::Device device, Seconds limit,
                   const Maker& make)
      : where_(std::move(where)), device_(device), limit_(limit), size_(transport.size()) {
    const WithoutSigpipe guard;  // the library's threads start here
    const auto store = c10::make_intrusive<KeyStore>(transport, limit);
    const Connections before = Connections::now();
    group_ = make(store, static_cast<int>(transport.self()), static_cast<int>(size_));
    if (!is_on_device()) connections_ = Connections::now().since(before);
    store->finish();
  }

  ~GroupCollectives() override {
    const WithoutSigpipe guard;
    group_.reset();
  }

  void all_reduce(void* data, std::size_t count, DType dtype) override {
    const auto type = scalar_type(dtype);
    if (count == 0) return;
    std::vector<at::Tensor> tensors{at::for_blob(data, {static_cast<std::int64_t>(count)})
                                        .options(at::TensorOptions(type).device(device_))
                                        .target_device(device_)
                                        .make_tensor()};
    c10d::AllreduceOptions options;
    options.timeout = to_milliseconds(limit_);
    try {
      group_->allreduce(tensors, options)->wait();
    } catch (const std::exception& error) {
      fail(ErrorCode::kPeersLost, "all-reduce of {} {} over {}: {}", count, name_of(dtype),
           describe(), first_line(error));
    }
  }

  // Gloo has no call for it; NCCL has one, and its waits are on the device.
  void abort() override { connections_.shut_down(); }

  [[nodiscard]] bool is_on_device() const override { return !device_.is_cpu(); }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("{}, {} ranks", where_, size_);
  }

 private:
  std::string where_;
  torch::Device device_;
  Seconds limit_;
  RankNumber size_;
  Connections connections_;
  c10::intrusive_ptr<Group> group_;
};

// NCCL connects with its first sum, and asks the store for addresses then.
template <typename Group>
void sum_once(Group& group, torch::Device gpu, int size) {
  std::vector<at::Tensor> number{torch::ones({1}, gpu)};
  group.allreduce(number, c10d::AllreduceOptions())->wait();
  AD_CHECK(number.front().item<float>() == static_cast<float>(size));
}

// Throws as make_gloo does.
template <typename Group>
std::unique_ptr<Collectives> connect_group(Transport& transport, const std::string& library,
                                           const std::string& where, torch::Device device,
                                           Seconds limit,
                                           const typename GroupCollectives<Group>::Maker& make) {
  try {
    return std::make_unique<GroupCollectives<Group>>(
        transport, fmt::format("{} over {}", library, where), device, limit, make);
  } catch (const Error&) {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorCode::kPeersLost, "collectives: rank {} of {} cannot connect over {}: {}",
         transport.self(), transport.size(), where, first_line(error));
  }
}

}  // namespace autodist::comm
