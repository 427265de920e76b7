// Random-key genetic search of makespan_search.h.

#include <algorithm>
#include <utility>

#include "autodist/search/placement/makespan_search.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr std::size_t kPopulation = 60;
constexpr std::size_t kElite = 12;   // pass on unchanged
constexpr std::size_t kMutants = 8;  // drawn anew in every generation
constexpr double kFromElite = 0.7;   // chance that a key is the elite parent's

// A priority per task, and a caution for the decoder.
struct Genome {
  std::vector<double> keys;
  double caution = 1;
  double time = kNotSupported;
};

}  // namespace

MakespanAnswer evolve_keys(const MakespanProblem& problem, const MakespanOptions& options) {
  std::mt19937_64 random(options.seed);
  MakespanJudge judge(problem, options);
  const std::vector<double> ranks = upward_ranks(*problem.graph, problem.devices, 1);
  const double largest = *std::max_element(ranks.begin(), ranks.end());
  const auto judged = [&](Genome genome) {
    ListOptions list;
    list.caution = genome.caution;
    genome.time =
        judge(place_by_keys(*problem.graph, problem.devices, list, genome.keys), "random keys");
    return genome;
  };
  // Ranks with noise from none to much.
  const auto drawn = [&] {
    Genome genome;
    const double noise = fraction(random);
    for (const double rank : ranks) {
      genome.keys.push_back(rank / std::max(largest, 1e-300) + noise * (fraction(random) - 0.5));
    }
    genome.caution = 1 + 7 * fraction(random);
    return genome;
  };
  std::vector<Genome> population;
  for (std::size_t i = 0; i < kPopulation && !judge.over(); ++i) {
    population.push_back(judged(drawn()));
  }
  while (!judge.over() && population.size() == kPopulation) {
    std::stable_sort(population.begin(), population.end(),
                     [](const Genome& a, const Genome& b) { return a.time < b.time; });
    for (std::size_t i = kElite; i < kPopulation && !judge.over(); ++i) {
      if (i >= kPopulation - kMutants) {
        population[i] = judged(drawn());
        continue;
      }
      const Genome& elite = population[below(kElite, random)];
      const Genome& other = population[kElite + below(kPopulation - kElite, random)];
      Genome child;
      for (std::size_t t = 0; t < ranks.size(); ++t) {
        child.keys.push_back((fraction(random) < kFromElite ? elite : other).keys[t]);
      }
      child.caution = (fraction(random) < kFromElite ? elite : other).caution;
      population[i] = judged(std::move(child));
    }
  }
  return judge.best();
}

}  // namespace autodist::search::placement
