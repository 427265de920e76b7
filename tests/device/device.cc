// What libtorch asks of a kind of device: memory, queues and events.

#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "autodist/exec/device/recording.h"
#include "autodist/exec/device/staging.h"
#include "tests/device/kernels.h"
#include "tests/device/queues.h"
#include "tests/device/test_device.h"

namespace autodist::test_device {
namespace {

constexpr c10::DeviceType kKind = c10::DeviceType::PrivateUse1;

c10::Stream stream(int queue) { return c10::Stream(c10::Stream::UNSAFE, device(), queue); }
int queue_of(const c10::Stream& stream) { return static_cast<int>(stream.id()); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return kKind; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device /*other*/) const override {
    return device();
  }
  [[nodiscard]] c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device /*other*/) const override {}
  void uncheckedSetDevice(c10::Device /*other*/) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device /*of*/) const noexcept override {
    return stream(Queues::instance().current());
  }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device /*of*/) const override {
    return stream(0);
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device /*of*/,
                                                    bool /*priority*/) const override {
    return stream(Queues::instance().next_of_pool());
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(Queues::instance().exchange_current(queue_of(next)));
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*of*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& on, const c10::DeviceIndex /*of*/,
              const c10::EventFlag /*flag*/) const override {
    delete static_cast<Event*>(*event);
    *event = new Event(Queues::instance().record(queue_of(on)));
  }
  void block(void* event, const c10::Stream& queue) const override {
    Queues::instance().block(*static_cast<Event*>(event), queue_of(queue));
  }
  bool queryEvent(void* event) const override {
    return Queues::instance().query(*static_cast<Event*>(event));
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void synchronizeStream(const c10::Stream& queue) const override {
    Queues::instance().drain(queue_of(queue));
  }
};

c10::DataPtr memory_of_queues(std::size_t bytes, bool pinned) {
  if (bytes == 0) return {nullptr, pinned ? c10::Device(c10::kCPU) : device()};
  void* memory = Queues::instance().allocate(bytes, pinned);
  return {memory, memory, [](void* block) { Queues::instance().free(block); },
          pinned ? c10::Device(c10::kCPU) : device()};
}

template <bool kPinned>
class Allocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR < 2
  [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) const override {
    return memory_of_queues(bytes, kPinned);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) override { return memory_of_queues(bytes, kPinned); }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {
    TORCH_CHECK(false, "the test device copies in its queues alone");
  }
#endif
};

Allocator<false> device_memory;
Allocator<true> pinned_memory;

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::ScalarType type_or_default(c10::optional<at::ScalarType> type) {
  return type.value_or(c10::typeMetaToScalarType(at::get_default_dtype()));
}

at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout> /*layout*/, c10::optional<at::Device> /*device*/,
                 c10::optional<bool> /*pin*/, c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &device_memory, kKeys, type_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> type, c10::optional<at::Layout> /*layout*/,
                         c10::optional<at::Device> /*device*/, c10::optional<bool> /*pin*/) {
  return empty_on_device(sizes, strides, type_or_default(type));
}

#if TORCH_VERSION_MAJOR >= 2
// What autograd asks of a kind of device.
class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*of*/) const override { return true; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return 1; }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return 0; }
  // Is seeded with the others; random ops on the device are not supported.
  [[nodiscard]] const at::Generator& getDefaultGenerator(c10::DeviceIndex /*of*/) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
};
#endif

std::atomic<std::int64_t> launches{0};

class KeptOps final : public exec::Recording {
 public:
  explicit KeptOps(std::vector<Queues::Kept> ops) : ops_(std::move(ops)) {}
  void launch() override {
    ++launches;
    Queues::instance().hand_in_again(ops_);
  }

 private:
  std::vector<Queues::Kept> ops_;
};

class OpKeeper final : public exec::Recorder {
 public:
  // By now copies of what earlier recordings made may be over, and their memory let go of.
  void begin() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    Queues::instance().keep(&ops_, pool_);
  }
  std::unique_ptr<exec::Recording> end() override {
    Queues::instance().keep(nullptr, 0);
    return std::make_unique<KeptOps>(std::exchange(ops_, {}));
  }
  void abandon() override {
    Queues::instance().keep(nullptr, 0);
    ops_.clear();
  }

 private:
  int pool_ = Queues::instance().new_pool();
  std::vector<Queues::Kept> ops_;
};

// A kernel that draws would take the generator's state of the launch before.
std::unique_ptr<exec::Recorder> make_keeper(c10::Device /*of*/, const at::Generator& generator) {
  if (generator.defined()) return nullptr;
  return std::make_unique<OpKeeper>();
}

void make_known() {
  static std::once_flag once;
  std::call_once(once, [] {
    static Guard guard;
    static const c10::impl::DeviceGuardImplRegistrar known(kKind, &guard);
    c10::SetAllocator(kKind, &device_memory);
    exec::set_pinned_allocator(kKind, &pinned_memory);
    static torch::Library factories(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                    __FILE__, __LINE__);
#if TORCH_VERSION_MAJOR >= 2
    static Hooks hooks;
    c10::register_privateuse1_backend("test_device");
    at::RegisterPrivateUse1HooksInterface(&hooks);
#endif
    factories.impl("empty.memory_format", TORCH_FN(empty));
    factories.impl("empty_strided", TORCH_FN(empty_strided));
    register_kernels();
    register_sparse_kernels();
  });
}

}  // namespace

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_generic(sizes, strides, &device_memory, kKeys, type);
}

void begin(const Schedule& schedule) {
  make_known();
  exec::set_recorder(kKind, schedule.records ? &make_keeper : nullptr);
  Queues::instance().begin(schedule);
}

torch::Device device() { return {kKind, 0}; }

void move_to_device(TrainingStep& step) {
#if TORCH_VERSION_MAJOR >= 2
  const torch::NoGradGuard no_gradients;
  for (auto* tensors : {&step.parameters, &step.buffers}) {
    for (NamedTensor& each : *tensors) {
      const torch::Tensor there = each.tensor.contiguous().to(device());
      c10::TensorImpl* const moved = each.tensor.unsafeGetTensorImpl();
      moved->set_storage_keep_dtype(there.storage());
      moved->_change_backend_component_keys(device());
    }
  }
  for (torch::Tensor& each : step.example) each = each.to(device());
#else
  TORCH_CHECK(false, "libtorch 1.13 cannot move a model to such a device: ", step.name);
#endif
}

OwnQueue::OwnQueue()
    : before_(stream(Queues::instance().exchange_current(Queues::instance().next_of_pool()))) {}
OwnQueue::~OwnQueue() { Queues::instance().exchange_current(queue_of(before_)); }

std::vector<std::string> reports() { return Queues::instance().reports(); }
Use use() {
  Use use = Queues::instance().use();
  use.launches = launches;
  return use;
}

}  // namespace autodist::test_device
