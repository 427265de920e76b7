#include "autodist/job/torch/joined_job.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <typeinfo>
#include <utility>

#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/alone_transport.h"
#include "autodist/comm/exchange.h"
#include "autodist/exec/device/cuda_graphs.h"
#include "autodist/exec/tensor_memory.h"
#include "autodist/job/open_files.h"
#include "autodist/job/torch/rank_device.h"
#include "autodist/planning/defaults.h"

namespace autodist::job {
namespace {

// A rank that is busy says that it is alive so often.
constexpr Seconds kSignOfLife{1};
// Who waits says so so often.
constexpr Seconds kSayEvery{30};

constexpr std::chrono::milliseconds kLookForTurn{5};

// That this process has made so far: a program that is started again makes the same ones.
std::atomic<std::size_t> jobs_made{0};

// A standby's process waits once: it is the job from then on, as are its later jobs.
std::atomic<bool> had_its_turn{false};

void check_options(const JobOptions& options) {
  const comm::ExchangeOptions pulse;
  const Seconds least = pulse.heartbeat * (pulse.missed_heartbeats + 1);
  if (!(options.silence_limit >= least)) {
    fail(ErrorCode::kUsage,
         "silence_limit (--silence-timeout): {}, {} or more expected; ranks say every {} that they "
         "are there",
         to_string(options.silence_limit), to_string(least), to_string(pulse.heartbeat));
  }
  // Also what is no number, which is above nothing.
  for (const auto& [name, limit] : {std::pair{"join_limit (--join-timeout)", options.join_limit},
                                    std::pair{"stall_limit", options.stall_limit}}) {
    if (limit > Seconds{0}) continue;
    fail(ErrorCode::kUsage, "{}: {}, a number of seconds above 0 expected", name, limit.value);
  }
  if (options.trace_steps < 0) {
    fail(ErrorCode::kUsage, "trace_steps (--trace-steps): {}, 0 or more expected",
         options.trace_steps);
  }
  if (!options.loss_scaling.empty()) ir::parse_loss_scaling(options.loss_scaling);
  if (options.on_nonfinite && !options.loss_scaling.empty()) {
    fail(ErrorCode::kUsage,
         "on_nonfinite (--on-nonfinite) beside loss_scaling (--loss-scale): steps whose gradients "
         "are not finite are skipped then. Leave one of them out.");
  }
}

// Which other machines may lack; before a search, not after it.
void check_initial_weights(const std::string& file) {
  if (file.empty() || std::filesystem::exists(file)) return;
  fail(ErrorCode::kUsage,
       "initial_weights (--init) {}: there is no such file. `autodist ckpt extract` makes one.",
       file);
}

// Memory that a step frees is there for the next one. Not where somebody has set the variables of
// glibc's allocator or libtorch's.
void keep_freed_memory(const Environment& environment) {
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_",
                           "THP_MEM_ALLOC_ENABLE"}) {
    if (environment(name)) return;
  }
  exec::keep_freed_memory();
}

void record_graphs(const Environment& environment) {
  const auto graphs = environment("AUTODIST_CUDA_GRAPHS");
  if (!graphs) return;
  if (*graphs != "on") {
    fail(ErrorCode::kUsage, "environment: AUTODIST_CUDA_GRAPHS='{}', on or nothing expected",
         *graphs);
  }
  exec::record_cuda_graphs();
}

}  // namespace

JoinedJob::JoinedJob(const std::string& specification, JobOptions options, ProcessContext process)
    : options_(std::move(options)),
      process_(std::move(process)),
      environment_(environment_of(process_.variables)),
      specification_(specified(specification, environment_)),
      number_(jobs_made++) {
  check_options(options_);
  if (options_.builder.empty()) {
    // A search predicts, by times that were measured.
    options_.builder = options_.measure ? planning::kSearch : planning::kDefaultBuilder;
    options_.search.library = false;  // whose sums are not alike in every run
  }
  const std::optional<Launched> launched = launcher_of(environment_);
  members_ = members_of(specification_, launched, environment_);
  places_ = cluster::ranks_of(cluster(), options_.cpu_only);
  place_.size = size();
  if (launched) {
    launcher_ = launched->by;
    place_.rank = rank_in(cluster(), options_.cpu_only, *launched);
  } else if (const auto place = job_from_environment(environment_)) {
    place_ = *place;
    check_started_for_this();
  }
  place_.lost = lost_machines(environment_);
  place_.standby = standby_number(environment_);
  stands_by_ = place_.standby > 0 && !had_its_turn;
  if (is_chief()) {
    memory_ = JobMemory::inherited(environment_);
    check_initial_weights(options_.initial_weights);
    if (stands_by_ && !memory_) {
      fail(ErrorCode::kUsage,
           "environment: {} without {}; only what supervises a job sets them. Unset both.",
           kStandby, JobMemory::kVariable);
    }
  }
  if (!stands_by_) show_life();
  device_ = rank_device(cluster(), place_.rank, options_.cpu_only, environment_);
  check_open_files(size(), raise_open_files());
  keep_freed_memory(environment_);
  record_graphs(environment_);
  if (size() == 1) {
    if (!launched && place_.chief_port == 0) remote_nodes(cluster());  // refuses another machine
    transport_ = std::make_unique<comm::AloneTransport>();
  } else if (launched) {
    join_launched(*launched);
  } else if (place_.chief_port != 0) {
    join_started();
  } else {
    start_and_join();
  }
  share_cores();
  share_gpus();
  if (!stands_by_) compare_computing();
  // Random numbers and the order of samples follow from it.
  comm::agree(*transport_, "seed", digest_of(std::to_string(options_.seed)),
              std::to_string(options_.seed), options_.join_limit);
}

void JoinedJob::show_life() {
  if (memory_) heart_ = std::make_unique<Heart>(*memory_, kSignOfLife, options_.silence_limit);
}

// The chief alone sees the job's memory. It tells the others again and again that they wait, so
// that their limits do not run out.
bool JoinedJob::await_turn() {
  if (!stands_by_) return false;
  constexpr char kWait[] = "wait";
  constexpr char kNow[] = "now";
  try {
    comm::all_gather(*transport_, "", "standby", options_.join_limit);
    for (std::string news = kWait; news == kWait;) {
      if (is_chief() && turn_comes(kSignOfLife)) news = kNow;
      news = comm::broadcast(*transport_, 0, news, "standby's turn", options_.silence_limit,
                             comm::kSilenceLimit);
    }
  } catch (const Error& error) {
    if (is_chief()) memory_->note_standing_by(0);
    if (typeid(error) != typeid(Error)) throw;  // somebody has stopped it
    throw Error(error.code(), std::string("of the standby: ") + error.what());
  }
  stands_by_ = false;
  had_its_turn = true;
  show_life();
  compare_computing();
  if (options_.takes_over) options_.takes_over();
  return true;
}

// At the chief; false after `limit`.
bool JoinedJob::turn_comes(Seconds limit) {
  const Seconds end = clock_.now() + limit;
  while (clock_.now() < end) {
    memory_->note_standing_by(place_.standby);
    if (const auto checkpoint = memory_->turn_of(place_.standby)) {
      checkpoint_ = *checkpoint;
      return true;
    }
    look_around();
    std::this_thread::sleep_for(kLookForTurn);
  }
  return false;
}

void JoinedJob::check_children() const {
  if (!children_) return;
  if (const auto failure = children_->failure()) throw Error(ErrorCode::kPeersLost, *failure);
}

void JoinedJob::note_unusable(const std::vector<std::string>& machines) {
  if (memory_ && !stands_by_) memory_->note_unusable(machines);
}

void JoinedJob::look_around() {
  if (options_.while_waiting) options_.while_waiting();
  const auto ended = children_ ? children_->ended() : std::nullopt;
  if (!ended) return;
  note_unusable(children_->lacking());
  throw Error(ErrorCode::kPeersLost, *ended);
}

std::string JoinedJob::end_of_lost(const std::string& message) const {
  constexpr Seconds kItsLastWords{5};  // after its connections, a process may take its time to end
  for (std::uint32_t rank = 1; children_ && rank < size(); ++rank) {
    const std::string peer = transport_->describe(rank);
    const auto says = [&](const char* what) {
      return message.find(fmt::format("{} {}", peer, what)) != std::string::npos ||
             message.find(fmt::format("{} left: {}", peer, what)) != std::string::npos;
    };
    if (!says(comm::kIsGone) && !says(comm::kIsKilled) && !says(comm::kThrew)) continue;
    const auto end = children_->end_of(rank, kItsLastWords);
    return end ? "; " + *end : "";
  }
  return "";
}

void JoinedJob::wait(const std::string& what, const std::string& whom, Seconds since) {
  look_around();
  if (since < told_) told_ = Seconds{0};  // another wait
  if (since - told_ < kSayEvery) return;
  told_ = since;
  say(fmt::format("{}: waiting for {} since {}", what, whom, to_string(since)));
}

void JoinedJob::connect(std::unique_ptr<comm::Transport> transport) {
  auto live = std::make_unique<comm::LiveTransport>(
      std::move(transport), kSignOfLife, [this](const comm::Wait& waiting) {
        // One line for all: the chief's, and where all wait for the chief the next rank's.
        const bool speaks = is_chief() || place_.rank == 1;
        if (!speaks || waiting.whom.empty()) return look_around();
        const std::string others =
            waiting.whom.size() > 1 ? fmt::format(" and {} more", waiting.whom.size() - 1) : "";
        wait(std::string(waiting.what), transport_->describe(waiting.whom.front()) + others,
             waiting.since);
      });
  live_ = live.get();
  transport_ = std::move(live);
}

// A rank may do what it wants after the job: it is waited for as long as it lives, and who
// supervises the job need not hear of this one any more.
void JoinedJob::end() {
  heart_.reset();
  if (memory_) memory_->forget_compared_losses();
  constexpr int kBeforeItIsSaid = 15;
  if (live_ != nullptr) live_->rest();
  if (!children_) return;
  for (int looks = 1; !children_->wait(comm::kLookAround); ++looks) {
    if (looks == kBeforeItIsSaid) {
      say(fmt::format("the job is over, {} still works; waiting for it", children_->running()));
    }
    if (options_.while_waiting) options_.while_waiting();
  }
  one_job_.reset();
}

std::string JoinedJob::of_chief(const std::string& what, const std::string& text) {
  return comm::broadcast(*transport_, 0, text, what, options_.join_limit);
}

bool JoinedJob::chief_says(const std::string& what, bool is_so) {
  return of_chief(what, is_so ? "yes" : "") == "yes";
}

exec::RunnerOptions JoinedJob::runner_options(std::uint64_t seed, std::uint32_t generation) const {
  exec::RunnerOptions options;
  options.job_seed = seed;
  options.wait_limit = options_.stall_limit;
  options.exchange.generation = generation;
  options.exchange.silence_limit = options_.silence_limit;
  options.exchange.first_contact = options_.join_limit;
  options.exchange.say = process_.say;
  if (children_) {
    options.exchange.killed = [this,
                               looked = Seconds{0}]() mutable -> std::optional<std::uint32_t> {
      constexpr Seconds kBetweenLooks{0.1};
      const Seconds now = clock_.now();
      if (now - looked < kBetweenLooks) return std::nullopt;
      looked = now;
      return children_->killed();
    };
  }
  options.user_rules = &options_.user_rules;
  options.device_time = options_.device_time;
  options.trace = options_.trace;
  options.trace_steps = options_.trace_steps;
  options.on_nonfinite = options_.on_nonfinite.value_or(exec::OnNonFinite::kStop);
  return options;
}

}  // namespace autodist::job
