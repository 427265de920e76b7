// The other ways to name a cluster: local:N, MPI and Horovod host files, a JSON list of hosts.

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/cluster/resource_spec.h"

namespace autodist::cluster {
namespace {

constexpr std::uint32_t kMostSlots = 1024;

std::optional<std::uint32_t> slots_of(std::string_view text) {
  const auto value = as_number<std::uint32_t>(text);
  return value && *value > 0 && *value <= kMostSlots ? value : std::nullopt;
}

Node host(const std::string& address, std::uint32_t slots) {
  Node node;
  node.address = address;
  node.cpus = {Device{}};
  node.slots = slots;
  return node;
}

Cluster local(const std::string& specification) {
  const auto ranks = slots_of(std::string_view(specification).substr(6));
  if (!ranks) {
    fail(ErrorCode::kUsage, "cluster: '{}', local:N with N from 1 to {} expected", specification,
         kMostSlots);
  }
  Cluster cluster;
  cluster.nodes.push_back(host("localhost", *ranks));
  cluster.nodes.front().chief = true;
  return cluster;
}

// "host", "host slots=N" (Open MPI), "host:N" (Horovod, MPICH). The colons of an IPv6 literal are
// not taken for a number of slots; "[::1]:4" gives both.
Node host_line(const std::string& line, const std::string& where, int number) {
  std::istringstream words(line);
  std::string name;
  words >> name;
  std::uint32_t slots = 1;
  const auto refuse = [&](const std::string& got) {
    fail(ErrorCode::kUsage, "{}:{}: '{}', 'host', 'host slots=N' or 'host:N' expected (N to {})",
         where, number, got, kMostSlots);
  };
  const std::size_t colon = name.rfind(':');
  const bool bracketed = name.front() == '[';
  const bool plain = name.find(':') == colon;
  if (colon != std::string::npos && (plain || (bracketed && name[colon - 1] == ']'))) {
    const auto count = slots_of(std::string_view(name).substr(colon + 1));
    if (!count) refuse(name);
    slots = *count;
    name = name.substr(0, colon);
  }
  if (bracketed) {
    if (name.size() < 3 || name.back() != ']') refuse(name);
    name = name.substr(1, name.size() - 2);
  }
  if (name.empty()) refuse(line);
  for (std::string word; words >> word;) {
    if (word.rfind("slots=", 0) == 0) {
      const auto count = slots_of(std::string_view(word).substr(6));
      if (!count) refuse(word);
      slots = *count;
    } else if (word.rfind("max_slots=", 0) != 0 && word.rfind("max-slots=", 0) != 0) {
      refuse(word);
    }
  }
  return host(name, slots);
}

// A host file has no place for a chief: its first host is it.
Cluster with_first_as_chief(Cluster cluster, const std::string& where) {
  if (!cluster.nodes.empty()) cluster.nodes.front().chief = true;
  settle(cluster, where);
  return cluster;
}

// A line "nodes:" of YAML. No line of a host file ends in a colon.
bool has_key_nodes(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("nodes:", 0) != 0) continue;
    const std::string rest = line.substr(6);
    if (rest.empty() || rest[0] == ' ' || rest[0] == '\r' || rest[0] == '\t') return true;
  }
  return false;
}

// "[::1]:4" begins with a bracket, too.
bool is_json_list(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '[') return false;
  return text.find_first_of("\"]", first) != std::string::npos &&
         text[text.find_first_of("\"]", first)] == '"';
}

}  // namespace

Cluster parse_host_file(const std::string& text, const std::string& where) {
  Cluster cluster;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    cluster.nodes.push_back(host_line(line, where, number));
  }
  return with_first_as_chief(std::move(cluster), where);
}

Cluster parse_host_list(const std::string& text, const std::string& where) {
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array() || list.empty()) {
    fail(ErrorCode::kUsage, "{}: a JSON list of host names expected, for example [\"a\", \"b\"]",
         where);
  }
  Cluster cluster;
  for (const auto& name : list) {
    if (!name.is_string() || name.get<std::string>().empty()) {
      fail(ErrorCode::kUsage,
           "{}: entry {} is no host name. A list of them expected, as [\"a\", \"b\"]", where,
           cluster.nodes.size());
    }
    cluster.nodes.push_back(host(name.get<std::string>(), 1));
  }
  return with_first_as_chief(std::move(cluster), where);
}

Cluster parse_cluster(const std::string& text, const std::string& name) {
  if (name.ends_with(".yml") || name.ends_with(".yaml") || has_key_nodes(text)) {
    return parse_resource_spec(text, name);
  }
  return name.ends_with(".json") || is_json_list(text) ? parse_host_list(text, name)
                                                       : parse_host_file(text, name);
}

Cluster read_cluster(const std::string& specification) {
  if (specification.rfind("local:", 0) == 0) return local(specification);
  if (!std::filesystem::exists(specification)) {
    fail(ErrorCode::kUsage,
         "cluster: '{}' is no file; a resource specification, a host file or local:N expected",
         specification);
  }
  const std::string text = read_file(specification, kLongestFile);
  if (!is_text(text)) {
    fail(ErrorCode::kUsage,
         "{}: not text. A resource specification, a host file or a JSON list of host names "
         "expected.",
         specification);
  }
  return parse_cluster(text, specification);
}

}  // namespace autodist::cluster
