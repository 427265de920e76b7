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

// What runs on a machine, by a POSIX shell. All that it says goes to standard output; nothing may
// hold that open, as who reads it waits for its end.
struct Task {
  std::string address;
  std::vector<std::string> shell;
  std::string script;
};

// `$as` before what takes root, and `$addresses` of all `hosts`.
std::string prelude(const std::vector<std::string>& hosts) {
  std::string words;
  for (const std::string& host : hosts) words += " " + job::quoted(host);
  return "exec 2>&1\n"
         "PATH=$PATH:/usr/sbin:/sbin\n"
         "as=\n"
         "[ \"$(id -u)\" = 0 ] || as='sudo -n'\n"
         "addresses=\n"
         "for host in" +
         words +
         "; do\n"
         "  found=$(getent ahosts \"$host\" | cut -d' ' -f1 | sort -u)\n"
         "  [ -n \"$found\" ] || { echo \"no address of $host is known\"; exit 1; }\n"
         "  addresses=\"$addresses $found\"\n"
         "done\n";
}

// Of `ip route`, for all `$addresses`.
std::string routes(const char* change) {
  return fmt::format("for a in $addresses; do ip route {} blackhole $a || bad=1; done", change);
}

// What lives on behind the shell that starts it.
std::string in_background(const std::string& commands) {
  return fmt::format(
      "setsid $as sh -c \"trap '' HUP INT TERM; addresses='$addresses'; \"{} </dev/null >/dev/null "
      "2>&1 &\n",
      job::quoted(commands));
}

Task task_on(const cluster::Node& node, const cluster::Cluster& cluster, std::string script) {
  Task task{node.address, {}, std::move(script)};
  if (!job::is_this_machine(node.address)) {
    task.shell = job::ssh_command(node, job::ssh_of(cluster, node));
  }
  task.shell.insert(task.shell.end(), {"sh", "-s"});
  return task;
}

// At once. Throws Error(kEnvironment) for the first that has not done it.
void run(const std::vector<Task>& tasks) {
  std::vector<std::future<job::Finished>> answers;
  for (const Task& task : tasks) {
    answers.push_back(std::async(std::launch::async, job::run_to_end, task.shell, task.script,
                                 /*with_errors=*/true));
  }
  std::string complaint;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const job::Finished finished = answers[i].get();
    if (!complaint.empty() || finished.output.find(kDone) != std::string::npos) continue;
    complaint = fmt::format(
        "--partition: node {}: its routes cannot be changed: {}. It takes `ip` there, and root or "
        "sudo without a password.",
        tasks[i].address, job::last_words(finished));
  }
  if (!complaint.empty()) fail(ErrorCode::kEnvironment, "{}", complaint);
}

}  // namespace

void check_partitions(const cluster::Cluster& cluster) {
  std::vector<cluster::Node> machines = cluster.nodes;
  machines.insert(machines.end(), cluster.spares.begin(), cluster.spares.end());
  const bool has_others = std::any_of(machines.begin(), machines.end(), [](const auto& node) {
    return !job::is_this_machine(node.address);
  });
  if (!has_others) {
    fail(ErrorCode::kUsage,
         "--partition: all ranks are on this machine, which no network joins. Give a cluster of "
         "several machines, or leave --partition out.");
  }
  std::vector<std::string> addresses;
  for (const cluster::Node& node : machines) addresses.push_back(node.address);
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    // Reserved for documents (RFC 5737): nobody is there. Two nodes may be one machine.
    const std::string nobody = fmt::format("192.0.2.{}", 1 + i % 254);
    tasks.push_back(task_on(
        machines[i], cluster,
        prelude(addresses) + fmt::format("$as ip route replace blackhole {} && $as ip route del "
                                         "blackhole {} && echo '{}'\n",
                                         nobody, nobody, kDone)));
  }
  run(tasks);
}

void cut_off(const std::string& address, Seconds how_long, const cluster::Cluster& cluster) {
  const std::string until_whole = fmt::format("sleep {}; ", how_long.value) + routes("del");
  std::vector<Task> its_own;
  std::vector<Task> of_others;
  std::vector<std::string> others;
  for (const cluster::Node& node : cluster.nodes) {
    if (node.address != address) others.push_back(node.address);
  }
  for (const cluster::Node& node : cluster.nodes) {
    if (node.address == address) {
      const std::string later =
          fmt::format("sleep {}; ", kOwnSideIsLate.value) + routes("add") + "; " + until_whole;
      its_own.push_back(
          task_on(node, cluster,
                  prelude(others) + in_background(later) + fmt::format("echo '{}'\n", kDone)));
    } else {
      // What has been set is taken away again where another is refused.
      of_others.push_back(task_on(
          node, cluster,
          prelude({address}) +
              fmt::format("bad=; for a in $addresses; do $as ip route add blackhole $a || bad=1; "
                          "done\n{}[ -z \"$bad\" ] && echo '{}'\n",
                          in_background(until_whole), kDone)));
    }
  }
  run(its_own);
  run(of_others);
}

}  // namespace autodist::app
