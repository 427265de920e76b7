#include "autodist/search/autosync/batch_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "autodist/base/check.h"
#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

constexpr double kLeastGain = 0.01;  // of the slowest device's time: a gain not worth unequal parts
constexpr std::int64_t kFinest = 1'000'000;  // shares are ratios: no more are told apart
constexpr int kRounds = 4;  // times are not linear in samples, so once is not enough

struct Part {
  program::Rank rank;
  std::int64_t samples = 0;
};

// By batch part, as the program has them now.
std::vector<Part> parts_of(const program::Program& program, std::int64_t samples) {
  std::vector<Part> parts(program.batch_parts());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (!program.computes(program::Rank(r))) continue;
    const std::uint32_t part = program.batch_part(program::Rank(r));
    const auto [begin, end] = program::part_rows(program, samples, part);
    parts[part] = {program::Rank(r), end - begin};
  }
  return parts;
}

Seconds slowest_of(const std::vector<Part>& parts, const sim::CostModel& costs) {
  Seconds slowest;
  for (const Part& part : parts) {
    slowest = std::max(slowest, sim::compute_seconds(costs, part.rank));
  }
  return slowest;
}

// What each would have if all computed for as long, by the times at what they have now.
std::vector<double> levelled(const std::vector<Part>& parts, const sim::CostModel& costs) {
  double low = 0;
  double high = slowest_of(parts, costs).value;
  const auto added = [&](double seconds) {
    double sum = 0;
    for (const Part& part : parts) sum += sim::samples_to_add(costs, part.rank, seconds);
    return sum;
  };
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (added(middle) >= 0 ? high : low) = middle;
  }
  std::vector<double> samples;
  for (const Part& part : parts) {
    samples.push_back(static_cast<double>(part.samples) +
                      sim::samples_to_add(costs, part.rank, high));
  }
  return samples;
}

// Whole numbers of at least 1 that sum to `all`: what is left over goes to the largest fractions.
std::vector<std::int64_t> rounded(const std::vector<double>& samples, std::int64_t all) {
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  std::vector<std::int64_t> whole;
  std::vector<std::pair<double, std::size_t>> fractions;
  std::int64_t left = all;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double exact = samples[i] / sum * static_cast<double>(all);
    whole.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(exact))));
    fractions.emplace_back(static_cast<double>(whole.back()) - exact, i);
    left -= whole.back();
  }
  std::sort(fractions.begin(), fractions.end());
  for (std::size_t i = 0; left > 0; i = (i + 1) % fractions.size(), --left) {
    ++whole[fractions[i].second];
  }
  while (left < 0) {  // where the smallest were raised to 1
    --*std::max_element(whole.begin(), whole.end());
    ++left;
  }
  return whole;
}

}  // namespace

std::vector<std::int64_t> balanced_parts(
    program::Program program,
    const std::function<sim::CostModel(const program::Program&)>& costs_of) {
  if (program.is_placed() || program.batch_parts() < 2) return {};
  if (!program.graph->batch_fixed_reason.empty()) return {};
  program.batch_shares.clear();
  sim::CostModel costs = costs_of(program);
  const std::int64_t all =
      costs.batch * costs.micro_batches * static_cast<std::int64_t>(program.batch_parts());
  std::vector<std::int64_t> best;
  Seconds least = slowest_of(parts_of(program, all), costs) * (1 - kLeastGain);
  for (int round = 0; round < kRounds; ++round) {
    program.batch_shares = rounded(levelled(parts_of(program, all), costs), std::min(all, kFinest));
    costs = costs_of(program);
    const Seconds now = slowest_of(parts_of(program, all), costs);
    if (now >= least) continue;
    least = now;
    best = program.batch_shares;
  }
  return best;
}

std::vector<std::int64_t> by_replica(const std::vector<std::int64_t>& parts,
                                     const program::Program& program,
                                     const cluster::Cluster& cluster) {
  if (parts.empty()) return {};
  std::map<std::string, std::int64_t> by_name;
  const std::vector<cluster::Place> places = cluster::ranks_of(cluster);
  AD_CHECK(places.size() == program.ranks.size()) << places.size() << " places";
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (!program.computes(program::Rank(r))) continue;
    by_name.emplace(cluster::device_name(cluster, places[r]),
                    parts[program.batch_part(program::Rank(r))]);
  }
  std::vector<std::int64_t> shares;
  for (const std::string& replica : with_replicas(cluster).replicas) {
    shares.push_back(by_name.at(replica));
  }
  return shares;
}

}  // namespace autodist::search
