#include "tests/device/queues.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace autodist::test_device {
namespace {

thread_local int current_queue = 0;
// What this thread of the host knows to be done, because it waited for it. What threads of the host
// tell each other (through a mutex) is not seen, so the check is stricter than the truth.
thread_local Clock host_clock{};
// Of a thread that records.
thread_local std::vector<Queues::Kept>* kept = nullptr;
thread_local int kept_pool = 0;

void check_runs(const char* what) {
  TORCH_CHECK(kept == nullptr, "the test device cannot record ", what);
}

}  // namespace

// Never destroyed: its threads run until the process ends.
Queues& Queues::instance() {
  static auto* const queues = new Queues();
  return *queues;
}

Queues::Queues() : queues_(kQueues) {
  for (int i = 0; i < kQueues; ++i) {
    queues_[i].thread = std::thread([this, i] { run(i); });
    queues_[i].thread.detach();
  }
}

void Queues::begin(const Schedule& schedule) {
  for (int i = 0; i < kQueues; ++i) drain(i);
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_ = schedule;
  for (int i = 0; i < kQueues; ++i) queues_[i].random.seed(schedule.seed * kQueues + i);
  reports_.clear();
  ops_ = 0;
}

int Queues::current() const { return current_queue; }

int Queues::exchange_current(int queue) { return std::exchange(current_queue, queue); }

// Number 0 is everybody's default.
int Queues::next_of_pool() {
  const std::lock_guard<std::mutex> lock(mutex_);
  pool_ = pool_ % (kQueues - 1) + 1;
  return pool_;
}

void Queues::pause(Queue& queue, std::unique_lock<std::mutex>& lock) {
  const bool pauses = std::uniform_real_distribution<>(0, 1)(queue.random) < schedule_.pauses;
  if (!pauses) return;
  const std::chrono::microseconds length(
      std::uniform_int_distribution<std::int64_t>(0, schedule_.longest.count())(queue.random));
  lock.unlock();
  std::this_thread::sleep_for(length);
  lock.lock();
}

void Queues::run(int number) {
  const at::NoGradGuard no_gradients;
  const at::AutoDispatchBelowADInplaceOrView kernels_only;
  Queue& queue = queues_[number];
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    queue.work.wait(lock, [&] { return !queue.waiting.empty(); });
    pause(queue, lock);
    const std::function<void()> op = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    lock.unlock();
    try {
      op();
    } catch (const std::exception& error) {
      report(std::string("a kernel threw: ") + error.what());
    }
    lock.lock();
    ++queue.done;
    done_.notify_all();
  }
}

Block* Queues::block_of(const void* address) {
  if (memory_.holds(address)) return &memory_.block_of(address);
  if (pinned_.holds(address)) return &pinned_.block_of(address);
  return nullptr;
}

void Queues::note(const Touched& touched, const Access& access, const Clock& clock) {
  const auto complain = [&](const std::optional<Access>& other, const char* does) {
    if (!other) return;
    reports_.insert(access.op + " of queue " + std::to_string(access.queue) + " " + does +
                    " what " + other->op + " of queue " + std::to_string(other->queue) +
                    " touches, and nothing orders them");
  };
  // Pinned memory goes from one thread of the host to another one through a pool: what any of them
  // waited for counts.
  Clock of_hosts = clock;
  join(of_hosts, all_hosts_);
  const auto before = [&](const void* address) -> const Clock& {
    return pinned_.holds(address) ? of_hosts : clock;
  };
  for (const void* address : touched.reads) {
    Block* const block = block_of(address);
    if (block != nullptr) complain(block->accesses.read(access, before(address)), "reads");
  }
  for (const void* address : touched.writes) {
    Block* const block = block_of(address);
    if (block != nullptr)
      complain(block->accesses.write(access, before(address), of_hosts), "writes");
  }
  const auto close = [&](const void* address, bool writes) {
    if (!pinned_.holds(address)) return;
    closed_.push_back({address, access, writes});
    pinned_.protect(address, writes ? PROT_NONE : PROT_READ);
  };
  for (const void* address : touched.reads) close(address, false);
  for (const void* address : touched.writes) close(address, true);
}

int Queues::new_pool() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_pools_++;
}

void Queues::keep(std::vector<Kept>* list, int pool) {
  kept = list;
  kept_pool = pool;
}

void Queues::hand_in_again(const std::vector<Kept>& list) {
  for (const Kept& each : list) hand_in(current_queue, each.op, each.touched, each.run, {});
}

void Queues::hand_in(int number, std::string op, const Touched& touched,
                     std::function<void()> run) {
  if (kept != nullptr) {
    kept->push_back({std::move(op), touched, std::move(run)});
  } else {
    hand_in(number, std::move(op), touched, std::move(run), {});
  }
}

void Queues::hand_in(int number, std::string op, const Touched& touched, std::function<void()> run,
                     const Clock& known) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Queue& queue = queues_[number];
  join(queue.clock, host_clock);
  queue.clock[number] = ++queue.handed_in;
  Clock before = queue.clock;
  join(before, known);
  const auto is_pinned = [&](const void* address) { return pinned_.holds(address); };
  const bool to_host = std::any_of(touched.writes.begin(), touched.writes.end(), is_pinned);
  note(touched, {number, queue.handed_in, std::move(op), to_host}, before);
  queue.waiting.push_back(std::move(run));
  ++ops_;
  queue.work.notify_one();
}

// What is known to be done is open to the host again.
void Queues::open(const Clock& clock) {
  std::vector<Closed> still;
  std::vector<const void*> opened;
  for (const Closed& closed : closed_) {
    if (closed.by.before(clock)) {
      opened.push_back(closed.address);
    } else {
      still.push_back(closed);
    }
  }
  closed_ = std::move(still);
  for (const void* address : opened) {
    const Block* block = block_of(address);
    int protection = PROT_READ | PROT_WRITE;
    for (const Closed& other : closed_) {
      if (block_of(other.address) != block) continue;
      protection = other.writes ? PROT_NONE : std::min(protection, PROT_READ);
      if (other.writes) break;
    }
    pinned_.protect(address, protection);
  }
}

void Queues::learn(const Clock& clock) {
  join(host_clock, clock);
  join(all_hosts_, clock);
  open(host_clock);
}

void Queues::drain(int number) {
  check_runs("what waits for a queue");
  std::unique_lock<std::mutex> lock(mutex_);
  Queue& queue = queues_[number];
  const std::uint64_t all = queue.handed_in;
  const Clock clock = queue.clock;
  done_.wait(lock, [&] { return queue.done >= all; });
  learn(clock);
}

Event Queues::record(int number) {
  check_runs("a mark");
  const std::lock_guard<std::mutex> lock(mutex_);
  const Queue& queue = queues_[number];
  return {number, queue.handed_in, queue.clock};
}

void Queues::block(const Event& event, int number) {
  check_runs("a wait");
  hand_in(number, "a wait", {}, [this, event] {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return queues_[event.queue].done >= event.time; });
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  join(queues_[number].clock, event.clock);
}

bool Queues::query(const Event& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queues_[event.queue].done < event.time) return false;
  learn(event.clock);
  return true;
}

void* Queues::allocate(std::size_t bytes, bool pinned) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pinned) return pinned_.allocate(bytes, 0);
  TORCH_CHECK_WITH(OutOfMemoryError,
                   memory_.in_use() + static_cast<std::int64_t>(bytes) <= schedule_.device_bytes,
                   "the test device has no ", bytes, " bytes more.");
  return memory_.allocate(bytes, kept == nullptr ? current_queue : kept_pool);
}

// In the order of the queue that allocated it, as a caching allocator hands it out again. Whoever
// lets go of the last handle comes after the other threads that had one, and what they knew.
void Queues::free(void* address) {
  int queue = 0;
  std::size_t bytes = 0;
  std::string what = "freeing";
  Clock known{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pinned_.holds(address)) {
      for (const Closed& closed : closed_) {
        if (block_of(closed.address) == block_of(address)) {
          reports_.insert("pinned memory is freed while " + closed.by.op + " uses it");
        }
      }
      return pinned_.free(address);
    }
    const Block& block = memory_.block_of(address);
    if (block.queue >= kQueues) {  // a pool's, in the order of what is recorded
      if (kept != nullptr) {
        kept->push_back({"freeing what a recording wrote",
                         {{}, {address}},
                         [memory = memory_.for_kernels(address), bytes = block.bytes] {
                           std::memset(memory, 0xFF, bytes);
                         }});
      }
      return memory_.free(address);
    }
    queue = block.queue;
    bytes = block.bytes;
    known = all_hosts_;
    what += " what " + block.accesses.written_by() + " wrote";
  }
  hand_in(
      queue, what, {{}, {address}},
      [memory = for_kernels(address), bytes] { std::memset(memory, 0xFF, bytes); }, known);
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.free(address);
}

bool Queues::is_pinned(const void* address) { return pinned_.holds(address); }

std::byte* Queues::for_kernels(void* address) {
  if (memory_.holds(address)) return memory_.for_kernels(address);
  if (pinned_.holds(address)) return pinned_.for_kernels(address);
  return static_cast<std::byte*>(address);
}

void Queues::report(std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.insert(std::move(text));
}

std::vector<std::string> Queues::reports() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {reports_.begin(), reports_.end()};
}

Use Queues::use() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {ops_, memory_.in_use(), pinned_.in_use(), 0};
}

}  // namespace autodist::test_device
