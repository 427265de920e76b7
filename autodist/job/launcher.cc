#include "autodist/job/launcher.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/job/machine.h"

namespace autodist::job {
namespace {

constexpr std::size_t kMostNodes = 65'535;

// The variables of one launcher.
class Reader {
 public:
  Reader(const Environment& environment, const char* by) : environment_(environment), by_(by) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    const auto value = environment_(name);
    if (!value) {
      fail(ErrorCode::kUsage,
           "environment: started by {}, but {} is not set. Start the ranks by it, or unset what it "
           "has left in this shell.",
           by_, name);
    }
    return *value;
  }
  [[nodiscard]] std::uint32_t number(const std::string& name) const {
    return number_of(name, text(name), kMostRanks);
  }
  [[nodiscard]] std::optional<std::uint32_t> maybe(const std::string& name) const {
    if (!environment_(name)) return std::nullopt;
    return number(name);
  }
  [[nodiscard]] std::string or_empty(const std::string& name) const {
    return environment_(name).value_or("");
  }
  [[nodiscard]] Launched place(const std::string& rank, const std::string& size) const {
    Launched launched;
    launched.by = by_;
    launched.rank = number(rank);
    launched.size = number(size);
    if (launched.rank >= launched.size) {
      fail(ErrorCode::kUsage,
           "environment: {}={} of {}={}: ranks count from 0. Start the ranks by {}, or unset what "
           "it has left in this shell.",
           rank, launched.rank, size, launched.size, by_);
    }
    return launched;
  }

 private:
  const Environment& environment_;
  const char* by_;
};

Launched open_mpi(const Environment& environment) {
  const Reader reader(environment, "Open MPI");
  Launched launched = reader.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  launched.local_rank = reader.maybe("OMPI_COMM_WORLD_LOCAL_RANK");
  launched.local_size = reader.maybe("OMPI_COMM_WORLD_LOCAL_SIZE");
  // mpirun's own address and port (before 5.0), its name space (from 4.0 on).
  launched.job_id = reader.or_empty("OMPI_MCA_orte_hnp_uri") + reader.or_empty("PMIX_NAMESPACE");
  return launched;
}

Launched mpich(const Environment& environment) {
  const Reader reader(environment, "MPICH");
  Launched launched = reader.place("PMI_RANK", "PMI_SIZE");
  launched.local_rank = reader.maybe("MPI_LOCALRANKID");
  launched.local_size = reader.maybe("MPI_LOCALNRANKS");
  return launched;
}

Launched slurm(const Environment& environment) {
  const Reader reader(environment, "Slurm");
  Launched launched = reader.place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  launched.local_rank = reader.maybe("SLURM_LOCALID");
  launched.job_id = reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID");
  const std::vector<std::string> nodes = expand_node_list(reader.text("SLURM_STEP_NODELIST"));
  const std::vector<std::uint32_t> tasks = expand_counts(reader.text("SLURM_STEP_TASKS_PER_NODE"));
  if (tasks.size() != nodes.size()) {
    fail(ErrorCode::kUsage,
         "environment: Slurm names {} nodes and the tasks of {}. SLURM_STEP_NODELIST and "
         "SLURM_STEP_TASKS_PER_NODE of one srun expected.",
         nodes.size(), tasks.size());
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    launched.host_file += fmt::format("{} slots={}\n", nodes[i], tasks[i]);
  }
  if (nodes.size() == 1) launched.local_size = launched.size;
  return launched;
}

// Of the elastic agent, which keeps MASTER_PORT for itself.
Launched torchrun(const Environment& environment) {
  const Reader reader(environment, "torchrun");
  Launched launched = reader.place("RANK", "WORLD_SIZE");
  launched.local_rank = reader.maybe("LOCAL_RANK");
  launched.local_size = reader.maybe("LOCAL_WORLD_SIZE");
  launched.job_id = fmt::format("{}:{} {} {}", reader.text("MASTER_ADDR"),
                                reader.text("MASTER_PORT"), reader.or_empty("TORCHELASTIC_RUN_ID"),
                                reader.or_empty("TORCHELASTIC_RESTART_COUNT"));
  return launched;
}

// A PyTorchJob: PyTorch's variables without its agent, so that the port is the program's.
Launched pytorch_job(const Environment& environment) {
  const Reader reader(environment, "Kubeflow");
  Launched launched = reader.place("RANK", "WORLD_SIZE");
  launched.local_rank = reader.maybe("LOCAL_RANK");
  launched.chief_address = reader.text("MASTER_ADDR");
  launched.chief_port =
      static_cast<std::uint16_t>(number_of("MASTER_PORT", reader.text("MASTER_PORT"), 65'535));
  return launched;
}

// A TFJob: {"cluster": {"chief": ["h:p"], "worker": [...]}, "task": {"type": "worker", "index":
// 0}}. The chief, or the first worker where there is none, is rank 0.
Launched tf_job(const std::string& text) {
  const auto wrong = [&](const std::string& what) {
    fail(ErrorCode::kUsage, "environment: TF_CONFIG: {}. Start the ranks as a TFJob, or unset it.",
         what);
  };
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) wrong("a JSON object expected");
  Launched launched;
  launched.by = "Kubeflow";
  std::vector<std::string> ranks;
  std::optional<std::size_t> own;
  try {
    const nlohmann::json& task = config.at("task");
    const std::string type = task.at("type").get<std::string>();
    const auto index = task.at("index").get<std::size_t>();
    for (const char* kind : {"chief", "master", "worker"}) {
      const nlohmann::json hosts = config.at("cluster").value(kind, nlohmann::json::array());
      if (type == kind) own = ranks.size() + index;
      for (const nlohmann::json& host : hosts) ranks.push_back(host.get<std::string>());
    }
  } catch (const nlohmann::json::exception&) {
    wrong("cluster and task, with type and index, expected");
  }
  if (!own || *own >= ranks.size()) wrong("this task is neither chief nor a listed worker");
  launched.rank = static_cast<std::uint32_t>(*own);
  launched.size = static_cast<std::uint32_t>(ranks.size());
  const auto chief = host_and_port(ranks.front());
  if (!chief) wrong("'" + ranks.front() + "', HOST:PORT expected");
  launched.chief_address = chief->host;
  launched.chief_port = static_cast<std::uint16_t>(number_of("TF_CONFIG", chief->port, 65'535));
  for (const std::string& each : ranks) {
    const auto host = host_and_port(each);
    launched.host_file += (host ? host->host : each) + "\n";
  }
  return launched;
}

[[noreturn]] void bad_list(const std::string& list) {
  fail(ErrorCode::kUsage,
       "environment: '{}' is no list of nodes such as gpu[01-03,7],head. Start the ranks by srun, "
       "or unset what it has left in this shell.",
       list);
}

// "01-03" or "7", between `before` and `after`.
void add_range(const std::string& list, const std::string& range, const std::string& before,
               const std::string& after, std::vector<std::string>& nodes) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto value_of = [&](const std::string& digits) {
    const auto value = as_number<std::uint32_t>(digits);
    if (!value) bad_list(list);
    return *value;
  };
  const std::uint32_t end = value_of(last);
  const std::uint32_t begin = value_of(first);
  if (begin > end || nodes.size() + (end - begin) >= kMostNodes) bad_list(list);
  for (std::uint32_t i = begin; i <= end; ++i) {
    nodes.push_back(fmt::format("{}{:0{}}{}", before, i, first.size(), after));
  }
}

// One host, with at most one bracket.
void add_hosts(const std::string& list, const std::string& item, std::vector<std::string>& nodes) {
  const std::size_t open = item.find('[');
  if (open == std::string::npos) {
    if (item.empty() || item.find(']') != std::string::npos) bad_list(list);
    nodes.push_back(item);
    return;
  }
  const std::size_t close = item.find(']', open);
  if (close == std::string::npos || item.find('[', close) != std::string::npos) bad_list(list);
  for (std::size_t begin = open + 1; begin <= close;) {
    const std::size_t end = std::min(item.find(',', begin), close);
    add_range(list, item.substr(begin, end - begin), item.substr(0, open), item.substr(close + 1),
              nodes);
    begin = end + 1;
  }
}

// Of all machines, also those that the job has lost.
cluster::Cluster cluster_of(const std::string& specification,
                            const std::optional<Launched>& launched) {
  if (!specification.empty()) return cluster::read_cluster(specification);
  if (!launched) return cluster::read_cluster("local:1");
  if (launched->local_size == launched->size) {
    return cluster::read_cluster(fmt::format("local:{}", launched->size));
  }
  if (launched->host_file.empty()) {
    fail(ErrorCode::kUsage,
         "started by {}, which does not tell on which machines its {} ranks are. Name them with "
         "--cluster.",
         launched->by, launched->size);
  }
  return cluster::parse_host_file(launched->host_file, "the hosts that " + launched->by + " names");
}

}  // namespace

std::optional<Launched> launched_by(const Environment& environment) {
  const auto has = [&](const char* name) { return environment(name).has_value(); };
  // Inside a Slurm job mpirun and torchrun start the ranks; SLURM_PROCID is theirs, not the ranks'.
  if (has("OMPI_COMM_WORLD_RANK")) return open_mpi(environment);
  if (has("TORCHELASTIC_RUN_ID")) return torchrun(environment);
  if (has("PMI_RANK") && !has("SLURM_STEP_NUM_TASKS")) return mpich(environment);
  if (has("RANK") && has("WORLD_SIZE") && has("MASTER_ADDR")) return pytorch_job(environment);
  if (const auto config = environment("TF_CONFIG")) return tf_job(*config);
  // A batch script has SLURM_PROCID, too, but was not started by srun as one rank of a step.
  if (has("SLURM_STEP_NUM_TASKS")) return slurm(environment);
  return std::nullopt;
}

std::optional<Launched> launcher_of(const Environment& environment) {
  if (environment("AUTODIST_RANK")) return std::nullopt;
  return launched_by(environment);
}

std::string specified(const std::string& specification, const Environment& environment) {
  return specification.empty() ? environment("AUTODIST_CLUSTER").value_or("") : specification;
}

cluster::Members members_of(const std::string& specification,
                            const std::optional<Launched>& launched,
                            const Environment& environment) {
  return cluster::without(cluster_of(specification, launched), lost_machines(environment));
}

std::uint32_t rank_in(const cluster::Cluster& cluster, bool cpu_only, const Launched& launched) {
  const std::vector<cluster::Place> places = cluster::ranks_of(cluster, cpu_only);
  if (places.size() != launched.size) {
    fail(ErrorCode::kUsage,
         "{} started {} ranks, the cluster has {}. Start that many, or correct the cluster file.",
         launched.by, launched.size, places.size());
  }
  if (cluster.nodes.size() == 1) return launched.rank;
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    const std::string& address = cluster.nodes[places[rank].node].address;
    const bool first_of_node = places[rank].local_rank == 0;
    if (!first_of_node || !is_this_machine(address)) continue;
    const std::uint32_t wanted = rank + launched.local_rank.value_or(0);
    const bool more = rank + 1 < places.size() && places[rank + 1].node == places[rank].node;
    if ((more && !launched.local_rank) || wanted >= places.size() ||
        places[wanted].node != places[rank].node) {
      fail(ErrorCode::kUsage,
           "{} started local rank {} on {}, which the cluster does not have there. Start as many "
           "ranks on it as the cluster file says.",
           launched.by,
           launched.local_rank ? std::to_string(*launched.local_rank) : std::string("(unknown)"),
           address);
    }
    return wanted;
  }
  std::vector<std::string> addresses;
  for (const cluster::Node& node : cluster.nodes) addresses.push_back(node.address);
  fail(ErrorCode::kUsage,
       "this machine is none of the cluster's {}. Add it to the cluster file, or start the job on "
       "one of them.",
       fmt::join(addresses, ", "));
}

bool is_launched(const Environment& environment) {
  if (environment("AUTODIST_RANK")) return true;
  try {
    return launched_by(environment).has_value();
  } catch (const Error&) {
    return true;
  }
}

bool becomes_chief(const std::string& specification, bool cpu_only,
                   const Environment& environment) {
  const auto launched = launcher_of(environment);
  if (!launched) return is_rank_0(environment);
  const std::string named = specified(specification, environment);
  return rank_in(cluster_of(named, launched), cpu_only, *launched) == 0;
}

std::vector<std::string> expand_node_list(const std::string& list) {
  std::vector<std::string> nodes;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') inside = true;
    if (i < list.size() && list[i] == ']') inside = false;
    if (i < list.size() && (list[i] != ',' || inside)) continue;
    add_hosts(list, list.substr(begin, i - begin), nodes);
    begin = i + 1;
  }
  return nodes;
}

std::vector<std::uint32_t> expand_counts(const std::string& counts) {
  const auto bad = [&] {
    fail(ErrorCode::kUsage,
         "environment: '{}' are no counts per node such as 2(x3),1. Start the ranks by srun, or "
         "unset what it has left in this shell.",
         counts);
  };
  std::vector<std::uint32_t> result;
  for (std::size_t begin = 0; begin <= counts.size();) {
    const std::size_t end = std::min(counts.find(',', begin), counts.size());
    const std::string item = counts.substr(begin, end - begin);
    begin = end + 1;
    std::uint32_t count = 0;
    std::uint32_t times = 1;
    const char* last = item.data() + item.size();
    auto [next, error] = std::from_chars(item.data(), last, count);
    if (error != std::errc()) bad();
    if (next != last) {
      if (last - next < 4 || next[0] != '(' || next[1] != 'x' || last[-1] != ')') bad();
      const auto [stop, wrong] = std::from_chars(next + 2, last - 1, times);
      if (wrong != std::errc() || stop != last - 1) bad();
    }
    if (result.size() + times > kMostNodes) bad();
    result.insert(result.end(), times, count);
  }
  return result;
}

}  // namespace autodist::job
