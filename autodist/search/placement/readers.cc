#include "autodist/search/placement/readers.h"

#include <cctype>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "autodist/base/error.h"
#include "autodist/base/text.h"

namespace autodist::search::placement {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1000;

// The part of `line` that follows `key=`, as a number.
double figure(const std::string& line, const std::string& key, const std::string& where,
              std::size_t number) {
  const std::size_t at = line.find(key + "=");
  double value = 0;
  if (at != std::string::npos) {
    const char* begin = line.data() + at + key.size() + 1;
    if (std::from_chars(begin, line.data() + line.size(), value).ec == std::errc()) return value;
  }
  fail(ErrorCode::kUsage, "{}: line {} has no number '{}=…', a PipeDream node states it. Add it.",
       where, number, key);
}

// The forward tasks of a file, and the costs of their backward ones.
class PipedreamText {
 public:
  PipedreamText(const std::string& text, const std::string& where) : where_(where) {
    std::size_t number = 0;
    for (std::string& line : split(text, '\n')) {
      ++number;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (line[0] == '\t') {
        edges_.emplace_back(line.substr(1), number);
      } else {
        read_node(line, number);
      }
    }
    for (const auto& [edge, at] : edges_) read_edge(edge, at);
  }

  std::vector<Task> tasks;
  std::vector<double> backward_costs;

 private:
  void read_node(const std::string& line, std::size_t number) {
    const std::size_t end = line.find(" -- ");
    if (end == std::string::npos) {
      fail(ErrorCode::kUsage,
           "{}: line {} is neither 'NODE -- …' nor an indented edge. Write it as one of them.",
           where_, number);
    }
    const auto stated = [&](const char* key) { return figure(line, key, where_, number); };
    Task task;
    task.name = line.substr(0, end);
    task.cost = stated("forward_compute_time") * kMicrosecondsPerMillisecond;
    const double backward = stated("backward_compute_time") * kMicrosecondsPerMillisecond;
    task.outputs = {{activation(line, number), std::nullopt}};
    task.memory = stated("parameter_size");
    if (!index_.emplace(task.name, tasks.size()).second) {
      fail(ErrorCode::kUsage, "{}: line {} names '{}' a second time. Keep one.", where_, number,
           task.name);
    }
    tasks.push_back(std::move(task));
    backward_costs.push_back(backward);
  }

  // One number, or `[a; b; …]` for a node with several outputs, which travel together.
  double activation(const std::string& line, std::size_t number) {
    const std::string key = "activation_size=[";
    const std::size_t at = line.find(key);
    if (at == std::string::npos) return figure(line, "activation_size", where_, number);
    double sum = 0;
    const char* begin = line.data() + at + key.size();
    const char* const end = line.data() + line.size();
    while (begin < end && *begin != ']') {
      double value = 0;
      const auto [rest, error] = std::from_chars(begin, end, value);
      if (error != std::errc()) {
        fail(ErrorCode::kUsage, "{}: line {} has an activation_size that is no list of numbers",
             where_, number);
      }
      sum += value;
      begin = rest;
      while (begin < end && (*begin == ';' || *begin == ',' || *begin == ' ')) ++begin;
    }
    return sum;
  }

  void read_edge(const std::string& edge, std::size_t number) {
    const std::size_t middle = edge.find(" -- ");
    const auto index = [&](const std::string& name) {
      const auto found = index_.find(name);
      if (found == index_.end()) {
        fail(ErrorCode::kUsage,
             "{}: line {} has an edge at '{}', which is no node. Name one that has a line.", where_,
             number, name);
      }
      return found->second;
    };
    if (middle == std::string::npos) {
      fail(ErrorCode::kUsage, "{}: line {} is no edge, expected 'NODE -- NODE'", where_, number);
    }
    const std::size_t from = index(edge.substr(0, middle));
    const std::size_t to = index(edge.substr(middle + 4));
    tasks[to].inputs.push_back({TaskId(from), 0});
  }

  std::string where_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::pair<std::string, std::size_t>> edges_;  // text, line number
};

}  // namespace

std::string stem_of(const std::string& path) {
  const std::string file = std::filesystem::path(path).filename();
  return file.substr(0, file.find('.'));
}

TaskGraph parse_pipedream(const std::string& text, const std::string& where) {
  PipedreamText file(text, where);
  TaskGraph graph;
  graph.name = stem_of(where);
  graph.tasks = std::move(file.tasks);
  add_backward_tasks(graph, file.backward_costs);
  verify(graph, where);
  return graph;
}

TaskGraph parse_stg(const std::string& text, const std::string& where) {
  std::istringstream in(text);
  const auto number = [&](const char* what) {
    std::int64_t value = -1;
    if (!(in >> value) || value < 0) {
      fail(ErrorCode::kUsage, "{}: {} is missing or no number, a standard task graph expected",
           where, what);
    }
    return static_cast<std::size_t>(value);
  };
  constexpr std::size_t kMostTasks = 1 << 20;
  const std::size_t count = number("the count of tasks") + 2;  // and the dummies
  if (count > kMostTasks) {
    fail(ErrorCode::kUsage, "{}: {} tasks, at most {} expected", where, count, kMostTasks);
  }
  TaskGraph graph;
  graph.name = stem_of(where);
  graph.tasks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t id = number("a task's id");
    if (id != i) fail(ErrorCode::kUsage, "{}: task {} stands where {} is expected", where, id, i);
    Task& task = graph.tasks[i];
    task.name = fmt::format("t{}", i);
    task.cost = static_cast<double>(number("a task's time"));
    task.outputs = {{0, 0.0}};
    const std::size_t parents = number("a count of predecessors");
    for (std::size_t k = 0; k < parents; ++k) {
      task.inputs.push_back({TaskId(number("a predecessor")), 0});
    }
  }
  verify(graph, where);
  return graph;
}

TaskGraph parse_task_graph(const std::string& text, const std::string& name) {
  const std::size_t at = text.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) {
    fail(ErrorCode::kUsage,
         "{}: empty, a task graph expected. `autodist place --help` says what it reads.", name);
  }
  if (text[at] == '{') {
    return text.find("\"graph_def\"") != std::string::npos ? parse_placeto_json(text, name)
                                                           : parse_throughput(text, name);
  }
  if (std::isdigit(static_cast<unsigned char>(text[at])) != 0) return parse_stg(text, name);
  if (text.find(" -- ") != std::string::npos) return parse_pipedream(text, name);
  fail(ErrorCode::kUsage,
       "{}: no task graph; a throughput JSON, PipeDream's text, a standard task graph or a Placeto "
       "JSON expected",
       name);
}

}  // namespace autodist::search::placement
