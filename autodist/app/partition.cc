#include "autodist/app/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/job/machine.h"
#include "autodist/job/remote.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

constexpr char kDone[] = "routes: done";
// Reserved for documents (RFC 5737): nobody is there.
constexpr char kNobody[] = "192.0.2.1";

// Defines `routes add` and `routes del`, which go on to the next one where one fails.
std::string routes_to(const std::vector<std::string>& hosts) {
  std::string words;
  for (const std::string& host : hosts) words += " " + job::quoted(host);
  return "PATH=$PATH:/usr/sbin:/sbin\n"
         "as=\n"
         "[ \"$(id -u)\" = 0 ] || as='sudo -n'\n"
         "routes() {\n"
         "  status=0\n"
         "  for host in" +
         words +
         "; do\n"
         "    for address in $(getent ahosts \"$host\" | cut -d' ' -f1 | sort -u); do\n"
         "      $as ip route \"$1\" blackhole \"$address\" || status=1\n"
         "    done\n"
         "  done\n"
         "  return $status\n"
         "}\n";
}

struct Task {
  cluster::Node node;
  std::string script;
};

// On all machines at once. Throws Error(kEnvironment).
void run_everywhere(const std::vector<Task>& tasks, const cluster::Cluster& cluster) {
  std::vector<std::future<job::Finished>> answers;
  for (const Task& task : tasks) {
    std::vector<std::string> shell;
    if (!job::is_this_machine(task.node.address)) {
      shell = job::ssh_command(task.node, job::ssh_of(cluster, task.node));
    }
    shell.insert(shell.end(), {"sh", "-s"});
    answers.push_back(std::async(std::launch::async, job::run_to_end, std::move(shell),
                                 "{\n" + task.script + "} 2>&1\n", /*with_errors=*/true));
  }
  std::string complaint;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::string said = answers[i].get().output;
    if (!complaint.empty() || said.find(kDone) != std::string::npos) continue;
    while (!said.empty() && said.back() == '\n') said.pop_back();
    complaint = fmt::format(
        "--partition: node {}: its routes cannot be changed: {}. It takes `ip` there, and root or "
        "sudo without a password.",
        tasks[i].node.address, said.empty() ? "no answer" : said.substr(said.rfind('\n') + 1));
  }
  if (!complaint.empty()) fail(ErrorCode::kEnvironment, "{}", complaint);
}

}  // namespace

void check_partitions(const cluster::Cluster& cluster) {
  const bool has_others =
      std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                  [](const auto& node) { return !job::is_this_machine(node.address); });
  if (!has_others) {
    fail(ErrorCode::kUsage,
         "--partition: all ranks are on this machine, which no network joins. Give a cluster of "
         "several machines, or leave --partition out.");
  }
  std::vector<Task> tasks;
  for (const cluster::Node& node : cluster.nodes) {
    tasks.push_back({node, routes_to({kNobody}) +
                               fmt::format("routes add && routes del && echo '{}'\n", kDone)});
  }
  run_everywhere(tasks, cluster);
}

void cut_off(const std::string& address, Seconds how_long, const cluster::Cluster& cluster) {
  const std::string cut = fmt::format(
      "(\n"
      "  trap '' HUP\n"
      "  sleep {}\n"
      "  routes add\n"
      "  sleep {}\n"
      "  routes del\n"
      ") </dev/null >/dev/null 2>&1 &\n"
      "echo '{}'\n",
      kCutBegins.value, how_long.value, kDone);
  std::vector<Task> tasks;
  std::vector<std::string> others;
  for (const cluster::Node& node : cluster.nodes) {
    if (node.address == address) continue;
    others.push_back(node.address);
    tasks.push_back({node, routes_to({address}) + cut});
  }
  for (const cluster::Node& node : cluster.nodes) {
    if (node.address == address) tasks.push_back({node, routes_to(others) + cut});
  }
  run_everywhere(tasks, cluster);
}

}  // namespace autodist::app
