#include "autodist/app/faults.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "autodist/app/partition.h"
#include "autodist/app/this_process.h"
#include "autodist/base/environment.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/base/statistics.h"
#include "autodist/base/text.h"
#include "autodist/job/control_group.h"
#include "autodist/job/machine.h"
#include "autodist/job/place.h"
#include "autodist/job/remote.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

// Of this machine's processes, by their parent. One that ends meanwhile is left out.
std::map<int, std::vector<int>> children_by_parent() {
  std::map<int, std::vector<int>> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    const auto pid = as_number<int>(name);
    if (!pid) continue;
    const std::string stat = job::read_if_there(entry.path() / "stat").value_or("");
    const std::size_t after = stat.rfind(") ");  // the program's name may hold anything
    if (after == std::string::npos) continue;
    int parent = 0;
    std::from_chars(stat.data() + after + 4, stat.data() + stat.size(), parent);
    children[parent].push_back(*pid);
  }
  return children;
}

Environment environment_of_process(int pid) {
  const auto text = job::read_if_there(fmt::format("/proc/{}/environ", pid));
  return environment_of(split(text.value_or(""), '\0'));
}

// Of a process that is one; `train`'s chief has no number from anybody.
std::optional<std::uint32_t> rank_of(const Environment& environment) {
  if (const auto number = environment("AUTODIST_RANK")) return as_number<std::uint32_t>(*number);
  return environment(job::JobMemory::kVariable) ? std::optional(0U) : std::nullopt;
}

// Tells this job's processes on other machines: by where their chief listens, or by its process and
// the address from which it reaches the first of the others.
std::string mark_of(const RankAt& chief, const std::string& node) {
  const int pid = std::abs(chief.pid);
  const auto address = environment_of_process(pid)("AUTODIST_CHIEF");
  if (address) return fmt::format("has 'AUTODIST_CHIEF={}'", *address);
  return fmt::format("has 'AUTODIST_STARTED_BY={}' && has 'AUTODIST_CHIEF=[[]*{}[]]*:[0-9]*'", pid,
                     job::address_towards(node));
}

// Whether the processes of a rank on another machine were there for the signal.
bool signal_over_ssh(const RankAt& rank, const std::string& signal,
                     const cluster::Cluster& cluster) {
  const auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                 [&](const auto& each) { return each.address == rank.node; });
  std::vector<std::string> command = job::ssh_command(*node, job::ssh_of(cluster, *node));
  command.push_back("sh -s");
  const std::string script = fmt::format(
      "has() {{ tr '\\0' '\\n' 2>/dev/null <$process/environ | grep -qx \"$1\"; }}\n"
      "for process in /proc/[0-9]*; do\n"
      "  has AUTODIST_RANK={} && {} && kill -s {} ${{process#/proc/}} && echo found\n"
      "done\n",
      rank.rank, rank.mark, signal);
  return job::run_to_end(command, script).output.find("found") != std::string::npos;
}

}  // namespace

bool operator==(const FaultPlan& a, const FaultPlan& b) {
  return std::tie(a.every, a.most, a.seed, a.stops, a.cut, a.log) ==
         std::tie(b.every, b.most, b.seed, b.stops, b.cut, b.log);
}

std::string to_text(const FaultPlan& plan) {
  return fmt::format("{},{},{},{},{},{}", plan.every, plan.most, plan.seed, plan.stops ? 1 : 0,
                     plan.cut, plan.log);
}

FaultPlan parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  const char* at = text.data();
  const char* const last = at + text.size();
  const auto take = [&](auto& value) {
    const auto [end, error] = std::from_chars(at, last, value);
    if (error != std::errc() || end == last || *end != ',') {
      fail(ErrorCode::kUsage, "--faults {}: autodist chaos writes it. Use that.", text);
    }
    at = end + 1;
  };
  int stops = 0;
  take(plan.every);
  take(plan.most);
  take(plan.seed);
  take(stops);
  plan.stops = stops != 0;
  take(plan.cut);
  plan.log.assign(at, last);
  return plan;
}

std::vector<RankAt> running_ranks(const cluster::Cluster& cluster, bool cpu_only,
                                  std::uint32_t standby) {
  const auto children = children_by_parent();
  std::map<std::uint32_t, RankAt> found;
  std::vector<int> next{::getpid()};
  while (!next.empty()) {  // a rank comes before what it has started, which has its variables
    std::vector<int> below;
    for (const int parent : next) {
      const auto of_parent = children.find(parent);
      if (of_parent == children.end()) continue;
      for (const int pid : of_parent->second) {
        below.push_back(pid);
        const Environment environment = environment_of_process(pid);
        const auto rank = rank_of(environment);
        if (rank && job::standby_number(environment) == standby)
          found.try_emplace(*rank, RankAt{*rank, "", ::getpgid(pid) == pid ? -pid : pid, ""});
      }
    }
    next = std::move(below);
  }
  const auto chief = found.find(0);
  if (chief == found.end()) return {};
  std::string mark;
  const std::vector<cluster::Place> places = cluster::ranks_of(cluster, cpu_only);
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    const std::string& address = cluster.nodes[places[rank].node].address;
    if (cluster.nodes.size() == 1 || job::is_this_machine(address)) continue;
    if (mark.empty()) mark = mark_of(chief->second, job::remote_nodes(cluster).front().address);
    found.insert_or_assign(rank, RankAt{rank, address, 0, mark});
  }
  std::vector<RankAt> ranks;
  for (auto& [number, rank] : found) ranks.push_back(std::move(rank));
  return ranks;
}

Faults::Faults(FaultPlan plan, std::function<cluster::Cluster()> machines, bool cpu_only)
    : plan_(std::move(plan)),
      machines_(std::move(machines)),
      cpu_only_(cpu_only),
      random_(plan_.seed) {
  if (plan_.cut > 0) check_partitions(machines_());
  if (!plan_.log.empty()) log_.emplace(plan_.log, "--log " + plan_.log, AppendedFile::Begin::kAnew);
}

void Faults::look(const job::JobMemory::Progress& progress, bool lost, std::uint32_t standby) {
  const bool training = progress.trained && !lost;
  trained_ |= training;
  look_at_cut(progress, training);
  if (!training || harmed_ || whole_again_ || (plan_.most > 0 && faults_ == plan_.most)) return;
  const Seconds now = clock_.now();
  if (!due_) {
    const double part = std::uniform_real_distribution<double>(0.5, 1.5)(random_);
    due_ = now + Seconds{plan_.every * part};
  }
  if (now < *due_) return;
  due_.reset();
  try {
    harm_one(standby);
  } catch (const Error& error) {  // the job is not to end because a machine cannot be reached
    say_line(fmt::format("chaos: {}", error.what()));
  }
}

// A job that was lost meanwhile trains again when it is started again. One that was not, as its
// limit of silence is longer, trains on.
void Faults::look_at_cut(const job::JobMemory::Progress& progress, bool training) {
  if (!whole_again_ || clock_.now() < *whole_again_) return;
  if (!done_when_whole_) done_when_whole_ = progress.done;
  if (harmed_ && (!training || progress.done <= *done_when_whole_)) return;
  note_training_again(0);
  whole_again_.reset();
  done_when_whole_.reset();
}

Faults::Kind Faults::next_kind() const {
  std::vector<Kind> kinds{Kind::kKill};
  if (plan_.stops) kinds.push_back(Kind::kHalt);
  if (plan_.cut > 0) kinds.push_back(Kind::kCut);
  return kinds[faults_ % kinds.size()];
}

// Where a machine does not do its part it counts all the same, as others have done theirs.
void Faults::cut(const std::string& address, const cluster::Cluster& cluster) {
  const Seconds how_long{plan_.cut};
  harmed_ = clock_.now();
  ++faults_;
  what_ = fmt::format("{} is cut off for {}", address, to_string(how_long));
  try {
    cut_off(address, how_long, cluster);
  } catch (const Error& error) {
    what_ += fmt::format(", in part ({})", error.what());
  }
  whole_again_ = clock_.now() + kOwnSideIsLate + how_long;
  say_line("chaos: " + what_);
}

void Faults::harm_one(std::uint32_t standby) {
  const cluster::Cluster cluster = machines_();
  const std::vector<RankAt> ranks = running_ranks(cluster, cpu_only_, standby);
  Kind kind = next_kind();
  if (kind == Kind::kCut) {
    std::vector<RankAt> elsewhere;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(elsewhere),
                 [](const RankAt& rank) { return !rank.node.empty(); });
    if (!elsewhere.empty()) return cut(drawn(elsewhere).node, cluster);
    kind = Kind::kKill;  // the job goes on without the other machines
  }
  if (ranks.empty()) return;
  const RankAt& rank = drawn(ranks);
  const bool halts = kind == Kind::kHalt;
  const std::string whom = rank.node.empty()
                               ? fmt::format("rank {} (pid {})", rank.rank, std::abs(rank.pid))
                               : fmt::format("rank {} (on {})", rank.rank, rank.node);
  const bool hit = rank.node.empty() ? ::kill(rank.pid, halts ? SIGSTOP : SIGKILL) == 0
                                     : signal_over_ssh(rank, halts ? "STOP" : "KILL", cluster);
  if (!hit) return say_line(fmt::format("chaos: {} is not there", whom));
  harmed_ = clock_.now();
  ++faults_;
  what_ = fmt::format("{} is {}", whom, halts ? "halted" : "killed");
  say_line("chaos: " + what_);
}

const RankAt& Faults::drawn(const std::vector<RankAt>& ranks) {
  return ranks[std::uniform_int_distribution<std::size_t>(0, ranks.size() - 1)(random_)];
}

void Faults::note_training_again(std::int64_t steps_again) {
  if (!harmed_) return;
  const Seconds time = clock_.now() - *harmed_;
  harmed_.reset();
  times_.push_back(time);
  steps_again_ += steps_again;
  const nlohmann::ordered_json record{
      {"fault", what_}, {"training_again_seconds", time.value}, {"steps_again", steps_again}};
  if (!log_ || log_->append(record.dump() + "\n")) return;
  say_line(log_->failure() + "; the chaos goes on");
  log_.reset();
}

void Faults::summarise() const {
  if (!trained_) {
    say_line(
        "chaos: no rank was harmed: the job has not trained. Its lines say why, or it was over too "
        "soon: "
        "give it more steps.");
    return;
  }
  std::string text = fmt::format("chaos: {} fault{}, training again after {} of them", faults_,
                                 faults_ == 1 ? "" : "s", times_.size());
  if (!times_.empty()) {
    const auto [least, most] = std::minmax_element(times_.begin(), times_.end());
    text += fmt::format(": after {} in the median ({} to {}); {} steps were done once more",
                        to_string(median_of(times_)), to_string(*least), to_string(*most),
                        steps_again_);
  }
  say_line(text);
}

}  // namespace autodist::app
