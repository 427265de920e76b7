#include "autodist/app/doctor.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/units.h"
#include "autodist/job/control_group.h"
#include "autodist/job/cores.h"
#include "autodist/job/gpus.h"
#include "autodist/job/machine.h"
#include "autodist/job/open_files.h"
#include "autodist/job/subprocess.h"
#include "autodist/program/host_memory.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string beside(const char* name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path program = self.parent_path() / name;
  return !error && fs::exists(program, error) ? program.string() : "";
}

std::string blas_library() {
  std::error_code error;
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    const fs::path library = fs::path(folder) / "libblas.so.3";
    if (fs::exists(library, error)) return fs::canonical(library, error).string();
  }
  return "";
}

rlimit limits_of(int resource) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limits);
  return limits;
}

bool can_bind() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&  // NOLINT
      ::listen(socket, 1) == 0;
  ::close(socket);
  return bound;
}

Finding good(const std::string& subject, const std::string& found) {
  return {subject, Health::kGood, found, ""};
}

// pip upgrades and removes in place, and a virtual environment may be deleted.
Finding libtorch_finding(const MachineFacts& machine) {
  const LibtorchOfBuild& built = machine.libtorch;
  const std::string what =
      fmt::format("{}, of {}, built for {}", built.version,
                  built.folder.empty() ? "the system" : built.folder, built.built_for);
  if (built.folder.empty() || machine.torch_there == built.version) return good("libtorch", what);
  return {"libtorch", Health::kBad,
          machine.torch_there.empty()
              ? what + ", which is gone"
              : fmt::format("{}, where {} is now", what, machine.torch_there),
          fmt::format("build again with the torch that is there, or pip install torch=={}",
                      built.version.substr(0, built.version.find('+')))};
}

std::string size(std::uint64_t bytes) { return to_string(Bytes(static_cast<std::int64_t>(bytes))); }

Finding threads_finding(const MachineFacts& machine, std::size_t ranks) {
  const double cores =
      machine.core_limit > 0 ? std::min<double>(machine.core_limit, machine.cores) : machine.cores;
  std::string found = fmt::format("{} cores", machine.cores);
  if (machine.core_limit > 0) found += fmt::format(", limited to {:g}", machine.core_limit);
  found += machine.omp_threads.empty() ? "" : ", OMP_NUM_THREADS=" + machine.omp_threads;
  if (static_cast<double>(ranks) > cores) {
    return {"threads", Health::kPoor, fmt::format("{} for {} ranks", found, ranks),
            "start fewer ranks on this machine: they take turns on its cores"};
  }
  if (machine.core_limit > 0 && machine.omp_threads.empty()) {
    return {"threads", Health::kPoor, found,
            fmt::format("export OMP_NUM_THREADS={}: libraries see all cores, not the limit",
                        std::max(1, static_cast<int>(cores / static_cast<double>(ranks))))};
  }
  return good("threads", found);
}

bool is_for_gpus(const MachineFacts& machine) {
  return machine.libtorch.built_for.rfind("CUDA", 0) == 0;
}

// Sets `gpus` and `nccl`; leaves them where it cannot measure, and says on standard error why.
void ask_libtorch(MachineFacts& facts) {
  const job::Finished measured = job::run_to_end({facts.torch_program, "bench", "gpus", "--json"});
  if (measured.exit_code != 0) return;
  const nlohmann::json answer = nlohmann::json::parse(measured.output);
  facts.nccl = answer.at("nccl").get<bool>();
  facts.gpus.emplace();
  for (const auto& gpu : answer.at("gpus")) {
    facts.gpus->push_back({gpu.at("bytes_per_second_to_it"), gpu.at("bytes_per_second_from_it"),
                           gpu.at("bytes_per_second_both")});
  }
}

// The driver pins what CUDA asks for, whatever `ulimit -l` says; the limit is that of network cards
// which read memory by themselves.
Finding pinned_finding(const MachineFacts& machine, std::size_t ranks) {
  const std::uint64_t most = static_cast<std::uint64_t>(program::kMostPinnedMemory.value) * ranks;
  const std::string locked =
      machine.locked_memory == RLIM_INFINITY ? "unlimited" : size(machine.locked_memory);
  Finding finding =
      good("pinned memory", fmt::format("{} at most of {} free; ulimit -l {}, for NCCL over "
                                        "InfiniBand",
                                        size(most), size(machine.free_memory), locked));
  if (most > machine.free_memory) {
    finding.health = Health::kPoor;
    finding.remedy =
        "start fewer ranks on this machine, or stop what else runs here: what copies "
        "use cannot be swapped out";
  }
  return finding;
}

Finding nccl_finding(const MachineFacts& machine) {
  if (machine.nccl) return good("NCCL", "in this build");
  const std::string& built_for = machine.libtorch.built_for;  // "CUDA 13.0"
  const std::string version = built_for.substr(built_for.find(' ') + 1);
  return {
      "NCCL", Health::kPoor, "not in this build: programs and autodist train sum through the host",
      fmt::format("pip install \"nvidia-cuda-crt=={0}.*\" \"nvidia-cuda-cccl=={0}.*\", and build "
                  "again; Python brings its own",
                  version)};
}

void add_gpus(const MachineFacts& machine, std::size_t ranks, std::vector<Finding>& all) {
  constexpr double kSlow = 5e9;  // four lanes of the third generation of PCI Express carry less
  if (!machine.gpus) {
    all.push_back({"GPUs", Health::kPoor, "libtorch could not measure them",
                   "see what autodist-torch bench gpus says"});
    return;
  }
  if (machine.gpus->empty()) {
    all.push_back(
        {"GPUs", Health::kPoor, fmt::format("libtorch finds none of {}", machine.gpu_models.size()),
         "look at CUDA_VISIBLE_DEVICES and nvidia-smi; an old driver needs an older torch"});
    return;
  }
  all.push_back(good("GPUs", fmt::format("{}", fmt::join(machine.gpu_models, ", "))));
  for (std::size_t i = 0; i < machine.gpus->size(); ++i) {
    const GpuFacts& gpu = machine.gpus->at(i);
    Finding finding = good(
        "GPU copies", fmt::format("GPU {}: {:.1f} GB/s to it, {:.1f} from it, "
                                  "{:.1f} both at once",
                                  i, 1e-9 * gpu.to_device, 1e-9 * gpu.to_host, 1e-9 * gpu.both));
    if (std::min(gpu.to_device, gpu.to_host) < kSlow) {
      finding.health = Health::kPoor;
      finding.remedy = "look at its slot (lspci -vv, LnkSta): gradients cross it in every step";
    }
    all.push_back(finding);
  }
  all.push_back(pinned_finding(machine, ranks));
  all.push_back(nccl_finding(machine));
}

// Bytes per second of `work` over `bytes`, the best of several passes.
template <typename Work>
double rate_of(std::size_t bytes, Work work) {
  const SteadyClock clock;
  double best = 1e9;
  for (int i = 0; i < 15; ++i) {
    const Seconds start = clock.now();
    work();
    best = std::min(best, (clock.now() - start).value);
  }
  return static_cast<double>(bytes) / best;
}

}  // namespace

std::string name_of(Health health) {
  static constexpr const char* kNames[] = {"ok", "poor", "bad"};
  return kNames[static_cast<int>(health)];
}

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.torch_program = beside("autodist-torch");
  facts.ssh = is_on_path("ssh", process_environment());
  facts.curve = zmq_has("curve") != 0;
  facts.libtorch = libtorch_of_build();
  facts.torch_there = torch_version_in(facts.libtorch.folder);
  facts.gpu_driver = job::gpu_driver();
  facts.gpu_models = job::gpu_models();
  if (is_for_gpus(facts) && !facts.torch_program.empty()) ask_libtorch(facts);
  facts.blas = facts.libtorch.brings_blas() ? "in libtorch" : blas_library();
  facts.blas_kernels = blas_kernels(process_environment());
  facts.better_kernels = better_kernels(facts.blas_kernels, vector_units_of_this_cpu());
  facts.cores = std::thread::hardware_concurrency();
  facts.core_limit = job::own_cores().quota;
  facts.omp_threads = process_environment()("OMP_NUM_THREADS").value_or("");
  facts.open_files = limits_of(RLIMIT_NOFILE).rlim_max;
  facts.processes = limits_of(RLIMIT_NPROC).rlim_cur;
  facts.locked_memory = limits_of(RLIMIT_MEMLOCK).rlim_cur;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) facts.shared_memory = shm.f_bavail * shm.f_frsize;
  facts.free_memory = static_cast<std::uint64_t>(job::free_memory().value);
  facts.port = can_bind();
  std::istringstream range(first_line_of("/proc/sys/net/ipv4/ip_local_port_range"));
  range >> facts.first_port >> facts.last_port;
  facts.clock_source =
      first_line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  timex clock{};
  facts.synchronised = ::adjtimex(&clock) != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  return facts;
}

std::vector<NodeFacts> node_facts(const cluster::Cluster& cluster) {
  std::vector<NodeFacts> nodes;
  std::vector<cluster::Node> all = cluster.nodes;
  all.insert(all.end(), cluster.spares.begin(), cluster.spares.end());
  for (const cluster::Node& node : all) {
    NodeFacts facts{node.address, "", false, 0};
    for (const cluster::Device& gpu : node.gpus) {
      facts.gpus = std::max<std::size_t>(facts.gpus, gpu.index + 1);
    }
    try {
      facts.resolved = job::resolved(node.address);
      facts.is_here = job::is_this_machine(node.address);
    } catch (const Error&) {
      // A name that nobody knows is a finding.
    }
    nodes.push_back(facts);
  }
  return nodes;
}

std::vector<Finding> findings(const MachineFacts& machine, std::size_t ranks) {
  std::vector<Finding> all;
  const auto check = [&](bool fine, Finding otherwise, const std::string& found) {
    all.push_back(fine ? good(otherwise.subject, found) : std::move(otherwise));
  };
  check(!machine.torch_program.empty(),
        {"training", Health::kBad, "no autodist-torch beside this program",
         "build with libtorch (tools/install-packages installs it); planning works without"},
        machine.torch_program);
  if (!machine.torch_program.empty()) all.push_back(libtorch_finding(machine));
  if (is_for_gpus(machine)) {
    check(!machine.gpu_driver.empty(),
          {"GPU driver", Health::kPoor,
           fmt::format("none, and libtorch is built for {}", machine.libtorch.built_for),
           "nothing, to train on CPUs; a build of torch for CPUs is gigabytes smaller"},
          machine.gpu_driver);
  }
  if (is_for_gpus(machine) && !machine.gpu_driver.empty()) add_gpus(machine, ranks, all);
  check(machine.ssh,
        {"ssh", Health::kPoor, "no ssh client",
         "apt-get install openssh-client, to start ranks on other machines"},
        "a client is there");
  check(machine.curve,
        {"encryption", Health::kPoor, "libzmq without CURVE",
         "install a libzmq built with libsodium; until then other machines are reached in clear"},
        "libzmq has CURVE");
  const bool fast_blas = machine.libtorch.brings_blas() ||
                         machine.blas.find("openblas") != std::string::npos ||
                         machine.blas.find("mkl") != std::string::npos ||
                         machine.blas.find("blis") != std::string::npos;
  check(fast_blas,
        {"BLAS", Health::kPoor, machine.blas.empty() ? "none found" : machine.blas,
         "apt-get install libopenblas0-pthread: the reference BLAS is many times slower"},
        machine.blas);
  if (!machine.better_kernels.empty()) {
    all.push_back({"BLAS kernels", Health::kPoor,
                   fmt::format("OpenBLAS does not know this CPU and computes as on a {}",
                               machine.blas_kernels),
                   fmt::format("export {}={} for programs of your own; autodist sets it for itself",
                               kBlasKernels, machine.better_kernels)});
  }
  all.push_back(threads_finding(machine, ranks));
  const std::uint64_t files = job::open_files_for(static_cast<std::uint32_t>(ranks));
  check(machine.open_files >= files,
        {"open files", Health::kBad, fmt::format("limit {}", machine.open_files),
         fmt::format("ulimit -Hn {}", std::max<std::uint64_t>(files, 4096))},
        fmt::format("limit {}", machine.open_files));
  check(
      machine.processes >= 512 * ranks,
      {"processes", Health::kPoor, fmt::format("limit {}", machine.processes),
       fmt::format("ulimit -u {}: threads count, too", 4096 * ranks)},
      machine.processes == RLIM_INFINITY ? "no limit" : fmt::format("limit {}", machine.processes));
  check(machine.shared_memory >= (std::uint64_t{16} << 20),
        {"shared memory", Health::kPoor, size(machine.shared_memory) + " free in /dev/shm",
         "docker run --shm-size=1g; ranks do without, PyTorch's data loaders do not"},
        size(machine.shared_memory) + " free in /dev/shm");
  check(machine.free_memory >= (std::uint64_t{1} << 30),
        {"memory", Health::kPoor, size(machine.free_memory) + " free",
         "stop what else runs here, or plan with fewer ranks: autodist plan says what one needs"},
        size(machine.free_memory) + " free");
  check(
      machine.port,
      {"ports", Health::kBad, "no port can be opened", "look at the container's or host's policy"},
      fmt::format("{} to {}", machine.first_port, machine.last_port));
  check(machine.clock_source != "hpet" && machine.clock_source != "acpi_pm",
        {"clock", Health::kPoor, machine.clock_source + ": reading it takes microseconds",
         "boot with clocksource=tsc where the processor has it; traces cost more until then"},
        machine.clock_source);
  check(machine.synchronised,
        {"time", Health::kPoor, "not synchronised",
         "apt-get install chrony; traces of several machines are aligned only roughly without"},
        "synchronised");
  return all;
}

std::vector<Finding> findings(const std::vector<NodeFacts>& nodes) {
  std::vector<Finding> all;
  std::size_t here = 0;
  for (const NodeFacts& node : nodes) {
    here += node.is_here ? 1 : 0;
    if (node.resolved.empty()) {
      all.push_back({"address", Health::kBad, fmt::format("'{}' cannot be resolved", node.address),
                     "add it to /etc/hosts or to the name server, or give its address as digits"});
    } else if (nodes.size() > 1 && node.resolved.rfind("127.", 0) == 0) {
      all.push_back(
          {"address", Health::kBad,
           fmt::format("'{}' is {} here: others cannot reach that", node.address, node.resolved),
           "take the name out of the 127.0.1.1 line of /etc/hosts, or give the address "
           "of its network card"});
    } else {
      all.push_back(good("address", node.address == node.resolved
                                        ? node.address
                                        : node.address + " is " + node.resolved));
    }
  }
  if (!nodes.empty() && here == 0) {
    all.push_back({"cluster", Health::kPoor, "this machine is none of its nodes",
                   "start the job on the chief; planning works anywhere"});
  }
  return all;
}

std::vector<Finding> gpu_findings(const MachineFacts& machine,
                                  const std::vector<NodeFacts>& nodes) {
  std::vector<Finding> all;
  if (is_for_gpus(machine) && !machine.gpus) return all;
  const std::size_t found = machine.gpus ? machine.gpus->size() : 0;
  std::size_t here = 0;
  std::size_t listed = 0;
  for (const NodeFacts& node : nodes) {
    here += node.is_here ? 1 : 0;
    listed += node.is_here ? node.gpus : 0;
  }
  if (here > 0 && listed == 0 && found > 0) {
    all.push_back({"gpus", Health::kPoor,
                   fmt::format("the cluster lists none of the {} that are here: its ranks train on "
                               "CPUs",
                               found),
                   "list them with gpus: in a cluster file (docs/gpus.md)"});
  }
  for (const NodeFacts& node : nodes) {
    if (!node.is_here || node.gpus <= found) continue;
    const std::string lists =
        fmt::format("the file lists GPU {} of {}", node.gpus - 1, node.address);
    if (is_for_gpus(machine)) {
      all.push_back({"gpus", Health::kBad, fmt::format("{}, and libtorch finds {}", lists, found),
                     "correct its list of gpus, or train with --devices cpu"});
    } else {
      all.push_back({"gpus", Health::kBad, lists + ", and libtorch is built for CPUs",
                     "build on a torch for CUDA (pip install torch), or train with --devices cpu"});
    }
  }
  return all;
}

Finding calibration_finding(const std::string& path, bool exists, bool is_beside_a_cluster) {
  if (exists) {
    Finding found = good("calibration", path);
    if (!is_beside_a_cluster) {
      found.remedy = "read for local:N in this folder; for a cluster file: --calibration " + path;
    }
    return found;
  }
  return {"calibration", Health::kPoor, "none: predictions use rules of thumb",
          "autodist doctor --measure writes " + path};
}

// Working sets beyond the caches, as gradients are.
sim::Calibration measure_machine() {
  constexpr std::size_t kCount = 4 << 20;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  std::vector<float> gradient(kCount, 0.5F);
  std::vector<float> other(kCount, 0.25F);
  std::vector<float> parameters(kCount, 1.0F);
  sim::Calibration measured;
  measured["sum_gb_per_s"] = 1e-9 * rate_of(2 * kBytes, [&] {
                               for (std::size_t i = 0; i < kCount; ++i)
                                 parameters[i] = 0.5F * gradient[i] + 0.5F * other[i];
                             });
  measured["update_gb_per_s"] = 1e-9 * rate_of(kBytes, [&] {
                                  for (std::size_t i = 0; i < kCount; ++i)
                                    parameters[i] -= 0.125F * gradient[i];
                                });
  measured["install_gb_per_s"] =
      1e-9 * rate_of(kBytes, [&] { std::memcpy(parameters.data(), other.data(), kBytes); });
  const job::Cores own = job::own_cores();
  measured["cores"] = job::threads_for(own, {own});
  return measured;
}

}  // namespace autodist::app
