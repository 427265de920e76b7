// How a process becomes a rank of a job. One that was told where the chief listens goes there; one
// that a launcher has started goes where the chief leaves word; and who was told nothing is the
// chief, and starts the others.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/cluster/address.h"
#include "autodist/job/machine.h"
#include "autodist/job/meeting_point.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {
namespace {

// What the chief left is of another job than before: of a chief that was started again.
struct MeetingMoved {};

// A process has one job at a time whose ranks are started by a chief: they run its program from the
// begin, and are ranks of that job alone.
std::atomic<bool> has_such_a_job{false};

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

void JoinedJob::check_started_for_this() const {
  if (place_.started_by != 0) check_is_first_job();
  if (place_.size == size()) return;
  if (place_.started_by != 0) {
    fail(
        ErrorCode::kUsage,
        "AutoDist: rank {} was started for a job of {} ranks, and the first one that its program "
        "makes is '{}' with {}. Ranks that a chief starts run its program from the begin: make one "
        "job in it, or let a launcher start the ranks (autodist run, torchrun, mpirun)",
        place_.rank, place_.size, specification_, size());
  }
  if (specification_.empty()) {
    fail(ErrorCode::kUsage,
         "AutoDist: the program is one of {} ranks (AUTODIST_SIZE) and names no cluster. Give it "
         "that of the ranks, as --cluster of autodist run has it (local:2 by default).",
         place_.size);
  }
  fail(ErrorCode::kUsage,
       "environment: AUTODIST_SIZE={}, but {} has {} ranks. Set AUTODIST_SIZE to that, or name "
       "another cluster.",
       place_.size, specification_, size());
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
    note_unusable({cluster().nodes[places_[other.rank()].node].address});
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
  if (!one_machine && is_chief()) {
    const auto other = std::find_if(cluster().nodes.begin(), cluster().nodes.end(),
                                    [](const cluster::Node& node) { return !node.chief; });
    place_.own_address = address_towards(other->address);
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
      note_unusable(machines.addresses());
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
