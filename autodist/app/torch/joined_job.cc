#include "autodist/app/torch/joined_job.h"

#include <dlfcn.h>

#include <algorithm>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/cluster/address.h"

namespace autodist::app {
namespace {

// Every rank's lines, whole, on standard error.
LocalRanks::Output prefixed_lines() {
  auto mutex = std::make_shared<std::mutex>();
  return [mutex](std::uint32_t rank, const std::string& line) {
    const std::lock_guard<std::mutex> lock(*mutex);
    std::cerr << "[rank " << rank << "] " << line << "\n";
  };
}

}  // namespace

JoinedJob::JoinedJob(const std::string& specification, JobOptions options)
    : options_(std::move(options)),
      cluster_(cluster::read_cluster(specification)),
      size_(static_cast<std::uint32_t>(cluster::ranks_of(cluster_, options_.cpu_only).size())) {
  share_cores();
  if (const auto place = job_from_environment(process_environment())) {
    check_size(*place, specification);
    place_ = *place;
    if (size_ > 1) join_started();
  } else {
    place_.size = size_;
    if (size_ > 1) start_and_join(specification);
  }
  if (!transport_) {
    alone_ = std::make_unique<comm::InProcessHub>(1);
    transport_ = alone_->connect(0);
  }
}

void JoinedJob::check_children() const {
  if (!children_) return;
  if (const auto failure = children_->failure()) throw Error(ErrorCode::kPeersLost, *failure);
}

void JoinedJob::wait_for_children() {
  if (children_) children_->wait(options_.join_limit);
}

// Ranks of one machine share its cores; more threads than cores only wait for each other.
void JoinedJob::share_cores() const {
  if (process_environment()("OMP_NUM_THREADS")) return;
  const std::uint32_t here = cluster_.nodes.size() == 1 ? size_ : 1;
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / here));
  torch::set_num_threads(threads);
  // Debian's OpenBLAS has threads of its own, which libtorch's setting does not reach.
  using SetThreads = void (*)(int);
  const auto set_blas_threads =
      reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

void JoinedJob::check_size(const JobPlace& place, const std::string& specification) const {
  if (place.size != size_) {
    fail(ErrorCode::kUsage, "environment: AUTODIST_SIZE={}, but {} has {} ranks", place.size,
         specification, size_);
  }
}

comm::RendezvousOptions JoinedJob::rendezvous() const {
  comm::RendezvousOptions options;
  options.rank = place_.rank;
  options.size = place_.size;
  options.chief_address = place_.chief_address;
  options.chief_port = place_.chief_port;
  options.own_address = place_.own_address;
  options.job_key = place_.key;
  options.build = AUTODIST_VERSION;
  options.limit = options_.join_limit;
  return options;
}

void JoinedJob::join_started() {
  if (!is_chief()) {
    transport_ = comm::join(rendezvous(), nullptr);
    return;
  }
  comm::ChiefListener listener(place_.chief_address, place_.chief_port);
  transport_ = comm::join(rendezvous(), &listener);
}

void JoinedJob::start_and_join(const std::string& specification) {
  for (const cluster::Node& node : cluster_.nodes) {
    if (cluster_.nodes.size() == 1 || cluster::is_loopback(node.address)) continue;
    fail(ErrorCode::kUsage,
         "{}: node {} is another machine. Start the program on every node yourself, with "
         "AUTODIST_RANK, AUTODIST_SIZE, AUTODIST_CHIEF and AUTODIST_KEY_FILE set.",
         specification, node.address);
  }
  comm::ChiefListener listener(place_.chief_address, 0);
  place_.chief_port = listener.port();
  place_.key = make_job_key();
  children_ = std::make_unique<LocalRanks>(own_command_line(), 1, size_ - 1, place_,
                                           options_.output ? options_.output : prefixed_lines());
  transport_ = comm::join(rendezvous(), &listener);
}

}  // namespace autodist::app
