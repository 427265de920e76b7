#include "autodist/job/remote.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>

#include "autodist/base/error.h"
#include "autodist/job/machine.h"
#include "autodist/job/subprocess.h"
#include "autodist/job/wait_policy.h"

namespace autodist::job {
namespace {

// Inside double quotes: $VAR stays, everything else is what it is.
std::string expanded_later(const std::string& value) {
  std::string text = "\"";
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool command = value[i] == '$' && i + 1 < value.size() && value[i + 1] == '(';
    if (command || value[i] == '"' || value[i] == '\\' || value[i] == '`') text += '\\';
    text += value[i];
  }
  return text + "\"";
}

bool is_carried(const std::string& variable) {
  static const std::vector<std::string> kCarried{
      "AUTODIST_",        "OMP_",       "MKL_", "OPENBLAS_", "NCCL_", "GLOO_", "TORCH_",
      "LD_LIBRARY_PATH=", "PYTHONPATH="};
  if (names_a_place(variable)) return false;
  // Of this machine's CPU; another one's need not have its instructions.
  if (variable.rfind("OPENBLAS_CORETYPE=", 0) == 0) return false;
  return std::any_of(kCarried.begin(), kCarried.end(),
                     [&](const std::string& prefix) { return variable.rfind(prefix, 0) == 0; });
}

// A name that nobody knows any more is that of a machine which is gone, and not this one.
bool is_elsewhere(const cluster::Node& node) {
  try {
    return !is_this_machine(node.address);
  } catch (const Error&) {
    return true;
  }
}

// Settings of the ssh group, then the folder.
std::string prelude(const RemoteProgram& program, const cluster::SshConfig& ssh) {
  std::string text;
  const auto or_stop = [](const std::string& what) {
    return " || { echo " + quoted(what) + " >&2; exit 3; }\n";
  };
  if (!ssh.python_venv.empty()) {
    text += ssh.python_venv + or_stop("python_venv: " + ssh.python_venv + ": failed");
  }
  for (const auto& [name, value] : ssh.shared_envs) {
    text += "export " + name + "=" + expanded_later(value) + "\n";
  }
  return text + "cd " + quoted(program.folder) +
         or_stop("the folder " + program.folder + " is not there");
}

std::vector<std::string> shell_over_ssh(const cluster::Node& node, const cluster::SshConfig& ssh) {
  std::vector<std::string> command = ssh_command(node, ssh);
  // AutoDist's settings say "source", which only bash knows.
  command.push_back(ssh.python_venv.empty() ? "sh -s" : "bash -s");
  return command;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string quoted(const CommandLine& command) {
  std::string words = quoted(command.program);
  for (std::size_t i = 1; i < command.arguments.size(); ++i) {
    words += " " + quoted(command.arguments[i]);
  }
  return words;
}

std::vector<std::string> ssh_command(const cluster::Node& node, const cluster::SshConfig& ssh) {
  std::vector<std::string> command{
      "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"};
  if (ssh.port != 22) {
    command.insert(command.end(), {"-p", std::to_string(ssh.port)});
  }
  if (!ssh.key_file.empty()) command.insert(command.end(), {"-i", ssh.key_file});
  if (!ssh.username.empty()) command.insert(command.end(), {"-l", ssh.username});
  command.push_back(node.address);
  return command;
}

RemoteProgram this_program(const std::vector<std::string>& variables) {
  RemoteProgram program{
      own_command_line(), std::filesystem::current_path().string(), {}, variables};
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(program.environment),
               is_carried);
  return program;
}

std::string script_of(const RemoteProgram& program, const cluster::SshConfig& ssh,
                      const JobPlace& place) {
  std::vector<std::string> variables = program.environment;
  for (const std::string& each : place_variables(place, kKeyDescriptor)) variables.push_back(each);
  std::string exports;
  for (const std::string& each : variables) {
    const std::size_t equals = each.find('=');
    exports += "export " + each.substr(0, equals) + "=" + quoted(each.substr(equals + 1)) + "\n";
  }
  // Unless the settings of the ssh group, or the machine's own, say it otherwise.
  exports += fmt::format("[ -n \"$GOMP_SPINCOUNT\" ] || export {0}=\"${{{0}:-{1}}}\"\n",
                         kWaitPolicy, kPassive);
  // A group of its own, where the machine has setsid: what the rank starts ends with it.
  exports +=
      "group=; command -v setsid >/dev/null 2>&1 && group=setsid\n"
      "end() { kill -s KILL -- ${group:+-}$rank; }\n";
  // In braces, so that the shell has read all of it before the watcher reads what follows: nothing,
  // until we are gone.
  return "{\nexec 4<&0\n" + prelude(program, ssh) + exports + "$group " + quoted(program.command) +
         fmt::format(" </dev/null {}<<'KEY' 4<&- &\n{}\nKEY\n", kKeyDescriptor, place.key) +
         "rank=$!\n"
         "{ env -u AUTODIST_RANK cat <&4; kill -TERM $rank; sleep 5; end; } >/dev/null 2>&1 &\n"
         "watcher=$!\n"
         "wait $rank\n"
         "code=$?\n"
         "kill $watcher\n"
         "end >/dev/null 2>&1\n"
         "exit $code\n}\n";
}

const cluster::SshConfig& ssh_of(const cluster::Cluster& cluster, const cluster::Node& node) {
  const auto found = cluster.ssh.find(node.ssh_config);
  if (found == cluster.ssh.end()) {
    fail(ErrorCode::kUsage,
         "node {} is another machine and {}. Add {} to ssh, or start the ranks by other means "
         "(docs/several-machines.md).",
         node.address,
         node.ssh_config.empty() ? "names no ssh group"
                                 : fmt::format("its ssh group {} is not there", node.ssh_config),
         node.ssh_config.empty() ? "ssh_config to it and the group" : "it");
  }
  return found->second;
}

std::vector<cluster::Node> remote_nodes(const cluster::Cluster& cluster) {
  std::vector<cluster::Node> remote;
  const std::string& chief = cluster::chief_of(cluster).address;
  if (!is_this_machine(chief)) {
    fail(ErrorCode::kUsage,
         "this machine is not the cluster's chief, {}: its addresses are {}. Start the job there, "
         "or mend the cluster file.",
         chief, fmt::join(addresses_of_this_machine(), ", "));
  }
  std::copy_if(cluster.nodes.begin(), cluster.nodes.end(), std::back_inserter(remote),
               is_elsewhere);
  // Else the mistake would end the job on the day when the spare is needed.
  for (const cluster::Node& spare : cluster.spares) ssh_of(cluster, spare);
  return remote;
}

std::vector<RankProcess> rank_processes(const cluster::Cluster& cluster, bool cpu_only,
                                        const RemoteProgram& program, const JobPlace& chief) {
  std::vector<RankProcess> processes;
  for (const cluster::Place& at : cluster::ranks_of(cluster, cpu_only)) {
    const cluster::Node& node = cluster.nodes[at.node];
    JobPlace place = chief;
    place.rank = static_cast<std::uint32_t>(processes.size());
    if (cluster.nodes.size() == 1 || !is_elsewhere(node)) {
      processes.push_back(here(program.command, place, program.inherited));
      continue;
    }
    place.own_address.clear();  // it knows better from where it reaches the chief
    const cluster::SshConfig& ssh = ssh_of(cluster, node);
    RankProcess process;
    process.rank = place.rank;
    process.node = node.address;
    process.command = {"ssh", shell_over_ssh(node, ssh)};
    process.input = script_of(program, ssh, place);
    processes.push_back(process);
  }
  return processes;
}

void check_nodes(const cluster::Cluster& cluster, const std::vector<cluster::Node>& nodes,
                 const RemoteProgram& program) {
  std::vector<std::future<Finished>> answers;
  for (const cluster::Node& node : nodes) {
    const cluster::SshConfig& ssh = ssh_of(cluster, node);
    const std::string& name = program.command.program;
    const std::string script =
        "{\n" + prelude(program, ssh) + "command -v " + quoted(name) + " >/dev/null || { echo " +
        quoted("the program " + name + " is not there") + "; exit 3; }\necho ready\n} 2>&1\n";
    answers.push_back(std::async(std::launch::async, run_to_end, shell_over_ssh(node, ssh), script,
                                 /*with_errors=*/true));
  }
  std::vector<Finished> finished;
  for (auto& answer : answers) finished.push_back(answer.get());
  std::vector<std::string> unusable;
  std::string complaint;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    // A login may greet before it does anything.
    if (finished[i].exit_code == 0 && finished[i].output.find("ready\n") != std::string::npos) {
      continue;
    }
    unusable.push_back(nodes[i].address);
    if (!complaint.empty()) continue;
    complaint = fmt::format("node {}: {} (ssh ended with exit code {})", nodes[i].address,
                            last_words(finished[i]), finished[i].exit_code);
    if (finished[i].exit_code == kSshFailed) {
      complaint += fmt::format(". This must work without a question: {} true",
                               fmt::join(ssh_command(nodes[i], ssh_of(cluster, nodes[i])), " "));
    }
  }
  if (!unusable.empty()) throw UnusableMachines(unusable, complaint);
}

}  // namespace autodist::job
