#include "autodist/job/torch/joined_job.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>
#include <typeinfo>
#include <utility>

#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/cluster/address.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/exchange.h"
#include "autodist/exec/device/cuda_graphs.h"
#include "autodist/exec/large_tensors.h"
#include "autodist/job/machine.h"
#include "autodist/job/meeting_point.h"
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

// What the chief left is of another job than before: of a chief that was started again.
struct MeetingMoved {};

// That this process has made so far: a program that is started again makes the same ones.
std::atomic<std::size_t> jobs_made{0};

// A process has one job at a time whose ranks are started by a chief: they run its program from the
// begin, and are ranks of that job alone.
std::atomic<bool> has_such_a_job{false};

// A standby's process waits once: it is the job from then on, as are its later jobs.
std::atomic<bool> had_its_turn{false};

void check_is_first_job() {
  if (!has_such_a_job) return;
  fail(ErrorCode::kUsage,
       "AutoDist: this program has a job already, whose ranks the chief started for it alone. Give "
       "several steps to one job (distribute_steps), run a program for each job, or let a launcher "
       "start the ranks (autodist run, torchrun, mpirun)");
}

void claim_the_one_job() {
  check_is_first_job();
  has_such_a_job = true;
}

}  // namespace

JoinedJob::JoinedJob(const std::string& specification, JobOptions options, ProcessContext process)
    : options_(std::move(options)),
      process_(std::move(process)),
      environment_(environment_of(process_.variables)),
      specification_(specified(specification, environment_)),
      number_(jobs_made++) {
  check_options();
  if (options_.builder.empty()) {
    // A search predicts, by times that were measured.
    options_.builder = options_.measure ? planning::kSearch : planning::kDefaultBuilder;
    options_.search.library = false;  // whose sums are not alike in every run
  }
  const std::optional<Launched> launched = launcher_of(environment_);
  members_ = members_of(specification_, launched, environment_);
  size_ = static_cast<std::uint32_t>(cluster::ranks_of(cluster(), options_.cpu_only).size());
  if (launched) {
    launcher_ = launched->by;
    place_.rank = rank_in(cluster(), options_.cpu_only, *launched);
    place_.size = size_;
  } else if (const auto place = job_from_environment(environment_)) {
    if (place->started_by != 0) check_is_first_job();
    place_ = *place;
    check_size();
  } else {
    place_.size = size_;
  }
  place_.lost = lost_machines(environment_);
  place_.standby = standby_number(environment_);
  stands_by_ = place_.standby > 0 && !had_its_turn;
  if (is_chief()) {
    memory_ = JobMemory::inherited(environment_);
    check_initial_weights();
    if (stands_by_ && !memory_) {
      fail(ErrorCode::kUsage,
           "environment: {} without {}; only what supervises a job sets them. Unset both.",
           kStandby, JobMemory::kVariable);
    }
  }
  if (!stands_by_) show_life();
  device_ = rank_device(cluster(), place_.rank, options_.cpu_only, environment_);
  check_open_files(size_, raise_open_files());
  keep_freed_memory();
  record_graphs();
  if (size_ == 1) {
    if (!launched && place_.chief_port == 0) remote_nodes(cluster());  // refuses another machine
    alone_ = std::make_unique<comm::InProcessHub>(1);
    transport_ = alone_->connect(0);
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

void JoinedJob::note_lacking_machines() {
  if (memory_ && !stands_by_) memory_->note_unusable(children_->lacking());
}

void JoinedJob::look_around() {
  if (options_.while_waiting) options_.while_waiting();
  const auto ended = children_ ? children_->ended() : std::nullopt;
  if (!ended) return;
  note_lacking_machines();
  throw Error(ErrorCode::kPeersLost, *ended);
}

std::string JoinedJob::end_of_lost(const std::string& message) const {
  constexpr Seconds kItsLastWords{5};  // after its connections, a process may take its time to end
  for (std::uint32_t rank = 1; children_ && rank < size_; ++rank) {
    const std::string gone = transport_->describe(rank) + " is lost: its connection ended";
    if (message.find(gone) == std::string::npos) continue;
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
  if (memory_) memory_->forget_step_losses();
  constexpr Seconds kLookAround{0.2};
  constexpr int kBeforeItIsSaid = 15;
  if (live_ != nullptr) live_->rest();
  if (!children_) return;
  for (int looks = 1; !children_->wait(kLookAround); ++looks) {
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
  options.user_rules = &options_.user_rules;
  options.device_time = options_.device_time;
  options.trace = options_.trace;
  options.trace_steps = options_.trace_steps;
  options.on_nonfinite = options_.on_nonfinite.value_or(exec::OnNonFinite::kStop);
  return options;
}

void JoinedJob::check_options() const {
  const comm::ExchangeOptions pulse;
  const Seconds least = pulse.heartbeat * (pulse.missed_heartbeats + 1);
  if (!(options_.silence_limit >= least)) {
    fail(ErrorCode::kUsage,
         "silence_limit (--silence-timeout): {}, {} or more expected; ranks say every {} that they "
         "are there",
         to_string(options_.silence_limit), to_string(least), to_string(pulse.heartbeat));
  }
  // Also what is no number, which is above nothing.
  for (const auto& [name, limit] : {std::pair{"join_limit (--join-timeout)", options_.join_limit},
                                    std::pair{"stall_limit", options_.stall_limit}}) {
    if (limit > Seconds{0}) continue;
    fail(ErrorCode::kUsage, "{}: {}, a number of seconds above 0 expected", name, limit.value);
  }
  if (options_.trace_steps < 0) {
    fail(ErrorCode::kUsage, "trace_steps (--trace-steps): {}, 0 or more expected",
         options_.trace_steps);
  }
  if (!options_.loss_scaling.empty()) ir::parse_loss_scaling(options_.loss_scaling);
  if (options_.on_nonfinite && !options_.loss_scaling.empty()) {
    fail(ErrorCode::kUsage,
         "on_nonfinite (--on-nonfinite) beside loss_scaling (--loss-scale): steps whose gradients "
         "are not finite are skipped then. Leave one of them out.");
  }
}

// Which other machines may lack; before a search, not after it.
void JoinedJob::check_initial_weights() const {
  const std::string& file = options_.initial_weights;
  if (file.empty() || std::filesystem::exists(file)) return;
  fail(ErrorCode::kUsage,
       "initial_weights (--init) {}: there is no such file. `autodist ckpt extract` makes one.",
       file);
}

// A step allocates and frees the same memory again and again: gradients, activations, slices off
// the wire. What glibc gives back to the kernel in between is cleared page by page when it comes
// again, a quarter of the time of a step of few samples. What is too large for glibc's heaps keeps
// its pages in exec/kept_pages.h. Whoever sets glibc's own variables knows better.
void JoinedJob::keep_freed_memory() const {
  constexpr int kLargestInHeap = 32 << 20;  // glibc's own limit for M_MMAP_THRESHOLD
  constexpr int kGrowBy = 64 << 20;
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}) {
    if (environment_(name)) return;
  }
  ::mallopt(M_MMAP_THRESHOLD, kLargestInHeap);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, kGrowBy);
  exec::keep_large_tensors(kLargestInHeap);
}

void JoinedJob::record_graphs() const {
  const auto graphs = environment_("AUTODIST_CUDA_GRAPHS");
  if (!graphs) return;
  if (*graphs != "on") {
    fail(ErrorCode::kUsage, "environment: AUTODIST_CUDA_GRAPHS='{}', on or nothing expected",
         *graphs);
  }
  exec::record_cuda_graphs();
}

void JoinedJob::check_size() const {
  if (place_.size == size_) return;
  if (place_.started_by != 0) {
    fail(
        ErrorCode::kUsage,
        "AutoDist: rank {} was started for a job of {} ranks, and the first one that its program "
        "makes is '{}' with {}. Ranks that a chief starts run its program from the begin: make one "
        "job in it, or let a launcher start the ranks (autodist run, torchrun, mpirun)",
        place_.rank, place_.size, specification_, size_);
  }
  fail(ErrorCode::kUsage,
       "environment: AUTODIST_SIZE={}, but {} has {} ranks. Set AUTODIST_SIZE to that, or name "
       "another cluster.",
       place_.size, specification_, size_);
}

comm::ChiefListener JoinedJob::listener(std::uint16_t port) const {
  if (!encrypts() && cluster().nodes.size() > 1) {
    say("NOT ENCRYPTED: whoever is on the network reads and alters what the machines say to each "
        "other (--encrypt off)");
  }
  return {place_.chief_address, port,
          encrypts() ? std::optional(place_.key) : std::optional<std::string>()};
}

comm::RendezvousOptions JoinedJob::rendezvous() {
  comm::RendezvousOptions options;
  options.rank = place_.rank;
  options.size = place_.size;
  options.chief_address = place_.chief_address;
  options.chief_port = place_.chief_port;
  options.own_address = place_.own_address;
  options.job_key = place_.key;
  options.encrypt = encrypts();
  options.build = AUTODIST_VERSION;
  options.limit = options_.join_limit;
  if (const auto shared = environment_("AUTODIST_SHARED_MEMORY")) {
    if (*shared != "off") {
      fail(ErrorCode::kUsage, "environment: AUTODIST_SHARED_MEMORY='{}', off or nothing expected",
           *shared);
    }
    options.shared_memory = Bytes{0};
  }
  if (children_) {
    options.runs = [this](comm::RankNumber rank) { return children_->runs(rank); };
  }
  options.while_waiting = [this](const std::string& whom, Seconds since) {
    if (!is_chief()) return look_around();
    wait("meeting", whom, since);
  };
  return options;
}

void JoinedJob::join_started() {
  if (place_.started_by != 0) claim_the_one_job();  // for good
  listen_where_others_reach_us(environment_("AUTODIST_ADDRESS").has_value());
  if (!is_chief()) return connect(comm::join(rendezvous(), nullptr));
  comm::ChiefListener listener = this->listener(place_.chief_port);
  receive(listener);
}

// A spare on which another version lies cannot take a place.
void JoinedJob::receive(comm::ChiefListener& listener) {
  try {
    connect(comm::join(rendezvous(), &listener));
  } catch (const comm::OtherBuild& other) {
    const cluster::Place place = cluster::ranks_of(cluster(), options_.cpu_only)[other.rank()];
    if (memory_ && !stands_by_) memory_->note_unusable({cluster().nodes[place.node].address});
    throw;
  }
}

// A machine's own name often stands for its loopback (127.0.1.1 in Debian's /etc/hosts), where no
// other machine reaches it.
void JoinedJob::listen_where_others_reach_us(bool own_is_given) {
  if (!cluster::is_loopback(place_.chief_address)) return;
  for (const cluster::Node& node : cluster().nodes) {
    if (is_this_machine(node.address)) continue;
    const std::string own = address_towards(node.address);
    place_.chief_address = own;
    if (!own_is_given) place_.own_address = own;
    return;
  }
}

// The launcher gave out ranks; where the chief listens and the job's key come from the user's
// variables, or through a file that the chief leaves.
void JoinedJob::join_launched(const Launched& launched) {
  const bool one_machine = cluster().nodes.size() == 1;
  const auto others = [&] {  // the first node that is not the chief's
    const auto other = std::find_if(cluster().nodes.begin(), cluster().nodes.end(),
                                    [](const cluster::Node& node) { return !node.chief; });
    return other->address;
  };
  if (!one_machine && is_chief()) {
    place_.own_address = address_towards(others());
    place_.chief_address = place_.own_address;
  }
  if (environment_("AUTODIST_KEY_FILE")) {
    if (launched.chief_port == 0 && !environment_("AUTODIST_CHIEF")) {
      fail(ErrorCode::kUsage,
           "environment: AUTODIST_KEY_FILE is set but AUTODIST_CHIEF is not, and {} names no port: "
           "set it to ADDRESS:PORT of rank 0",
           launched.by);
    }
    place_ = *job_from_environment([&](const std::string& name) -> std::optional<std::string> {
      if (name == "AUTODIST_RANK") return std::to_string(place_.rank);
      if (name == "AUTODIST_SIZE") return std::to_string(place_.size);
      const bool told = launched.chief_port != 0 && !environment_(name);
      if (name == "AUTODIST_CHIEF" && told) {
        return with_port(launched.chief_address, launched.chief_port);
      }
      return environment_(name);
    });
    return join_started();
  }
  const std::string job_id = environment_("AUTODIST_JOB_ID").value_or(launched.job_id);
  if (job_id.empty()) {
    fail(ErrorCode::kUsage,
         "started by {}, which has no name for the job. Set AUTODIST_JOB_ID for all ranks to "
         "something that no other job has, or AUTODIST_CHIEF=ADDRESS:PORT and AUTODIST_KEY_FILE.",
         launched.by);
  }
  const std::string folder = meeting_folder(environment_, one_machine);
  if (!is_chief()) return join_at_meeting(folder, job_id);
  place_.key = make_job_key();
  comm::ChiefListener listener = this->listener(0);
  place_.chief_port = listener.port();
  const MeetingPoint until_all_are_there(folder, job_id,
                                         {place_.chief_port, place_.key, place_.chief_address});
  receive(listener);
}

// Where the chief's word says; where that changes meanwhile, it was of a chief that is no more.
void JoinedJob::join_at_meeting(const std::string& folder, const std::string& job_id) {
  std::optional<Meeting> stale;
  while (true) {
    const Meeting meeting =
        wait_for_meeting(folder, job_id, options_.join_limit, stale, [this] { look_around(); });
    place_.chief_port = meeting.port;
    place_.key = meeting.key;
    place_.chief_address = meeting.address;
    place_.own_address =
        is_this_machine(meeting.address) ? meeting.address : address_towards(meeting.address);
    comm::RendezvousOptions options = rendezvous();
    bool in_vain = true;
    options.while_waiting = [&](const std::string&, Seconds) {
      in_vain = false;
      look_around();
      in_vain = true;
      const auto now = meeting_at(folder, job_id);
      if (now && !(*now == meeting)) throw MeetingMoved{};
    };
    try {
      return connect(comm::join(options, nullptr));
    } catch (const MeetingMoved&) {
      stale.reset();
    } catch (const Error& error) {
      const bool strange = error.code() == ErrorCode::kAuthentication;  // another job has the port
      if (in_vain && strange && meeting_at(folder, job_id) == meeting && !(stale == meeting)) {
        stale = meeting;
        continue;
      }
      const bool refused =
          error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kEnvironment;
      if (!in_vain || refused) throw;
      throw Error(error.code(), fmt::format("{} (where the chief listens stands in {}; without a "
                                            "chief that runs it is stale, and may be removed)",
                                            error.what(), meeting_file(folder, job_id)));
    }
  }
}

RemoteProgram JoinedJob::program() const {
  RemoteProgram program = this_program(process_.variables);
  if (!options_.command.empty()) program.command = {options_.command.front(), options_.command};
  return program;
}

void JoinedJob::start_and_join() {
  claim_the_one_job();
  one_job_ = std::shared_ptr<const void>(nullptr, [](const void*) { has_such_a_job = false; });
  place_.started_by = static_cast<std::uint32_t>(::getpid());
  const std::vector<cluster::Node> remote = remote_nodes(cluster());
  if (!remote.empty()) {
    try {
      check_nodes(cluster(), remote, program());
    } catch (const UnusableMachines& machines) {
      if (memory_ && !stands_by_) memory_->note_unusable(machines.addresses());
      throw;
    }
    place_.chief_address = address_towards(remote.front().address);
    place_.own_address = place_.chief_address;
  }
  place_.key = make_job_key();
  comm::ChiefListener listener = this->listener(0);
  place_.chief_port = listener.port();
  std::vector<RankProcess> others = rank_processes(cluster(), options_.cpu_only, program(), place_);
  others.erase(others.begin());  // this process
  children_ =
      std::make_unique<StartedRanks>(others, options_.output ? options_.output : process_.output);
  receive(listener);
}

}  // namespace autodist::job
