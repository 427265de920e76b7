#include "autodist/report/html/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "autodist/base/check.h"
#include "autodist/base/statistics.h"

namespace autodist::report {
namespace {

constexpr double kStraggles = 1.15;        // times the median rank's computing
constexpr double kMatters = 0.05;          // of a step
constexpr double kWorthMentioning = 0.02;  // of a step
constexpr double kMostOf = 0.5;            // of what is to be explained

Seconds seconds(std::int64_t nanoseconds) {
  return Seconds(static_cast<double>(nanoseconds) / 1e9);
}

// What the compute stream of a rank does.
bool on_compute_stream(const std::string& activity) {
  return activity == "compute" || activity == "gate" || activity == "contribute";
}
bool is_owners(const std::string& activity) {
  return activity == "merge" || activity == "update" || activity == "install";
}
bool is_on_the_way(const std::string& activity) {
  return activity == "queue" || activity == "wire" || activity == "send" || activity == "recv" ||
         activity == "collective";
}

using Interval = std::pair<std::int64_t, std::int64_t>;

std::int64_t covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0;
  std::int64_t end = INT64_MIN;
  for (const auto& [from, to] : intervals) {
    if (to <= end) continue;
    sum += to - std::max(from, end);
    end = to;
  }
  return sum;
}

// Of one rank in one step.
struct Part {
  std::int64_t first = INT64_MAX;
  std::int64_t last = INT64_MIN;
  std::int64_t last_op = INT64_MIN;
  std::int64_t computing = 0;
  std::int64_t waiting = 0;
  std::int64_t handing_over = 0;
  std::vector<Interval> owning;
  std::vector<Interval> sending;

  void add(const std::string& activity, const TimelineRow& row) {
    if (is_owners(activity)) owning.emplace_back(row.start_ns, row.end_ns);
    if (is_on_the_way(activity)) sending.emplace_back(row.start_ns, row.end_ns);
    if (!on_compute_stream(activity)) return;
    const std::int64_t length = row.end_ns - row.start_ns;
    first = std::min(first, row.start_ns);
    last = std::max(last, row.end_ns);
    if (activity == "gate") waiting += length;
    if (activity == "contribute") handing_over += length;
    if (activity != "compute") return;
    computing += length;
    last_op = std::max(last_op, row.end_ns);
  }
};

using Parts = std::map<std::uint64_t, std::map<std::uint32_t, Part>>;  // by step and rank

Parts parts_of(const Timeline& timeline) {
  Parts parts;
  for (const TimelineRow& row : timeline.rows) {
    parts[row.step][timeline.tracks[row.track].rank.value].add(timeline.activity(row), row);
  }
  return parts;
}

// Without steps in which nobody computes (what an owner does after the end).
std::vector<StepTime> lengths_of(const Parts& parts) {
  std::vector<StepTime> steps;
  std::int64_t end = 0;
  for (const auto& [step, by_rank] : parts) {
    std::int64_t start = INT64_MAX;
    std::int64_t last = INT64_MIN;
    for (const auto& [rank, part] : by_rank) {
      start = std::min(start, part.first);
      last = std::max(last, part.last);
    }
    if (start == INT64_MAX) continue;
    if (!steps.empty()) {
      StepTime& before = steps.back();
      before.whole = before.step + 1 == step;
      before.length = seconds((before.whole ? start : end) - before.start_ns);
    }
    steps.push_back({step, start, seconds(last - start), false});
    end = last;
  }
  return steps;
}

std::vector<StepTime> counted_of(const std::vector<StepTime>& steps) {
  std::vector<StepTime> counted = steps;
  if (counted.size() > 1) counted.pop_back();
  if (counted.size() > 1) counted.erase(counted.begin());
  return counted;
}

// A rank's own step ends where its next one begins.
std::int64_t period_of(const Parts& parts, std::uint64_t step, std::uint32_t rank) {
  const Part& part = parts.at(step).at(rank);
  const auto next = parts.find(step + 1);
  if (next != parts.end()) {
    const auto there = next->second.find(rank);
    if (there != next->second.end() && there->second.first != INT64_MAX) {
      return there->second.first - part.first;
    }
  }
  return part.last - part.first;
}

struct Sums {
  std::int64_t steps = 0;
  std::int64_t period = 0;
  std::int64_t behind = 0;
  std::int64_t last = 0;
  Part part;
};

void add_lag(const std::map<std::uint32_t, Part>& by_rank, std::map<std::uint32_t, Sums>& sums) {
  std::vector<std::int64_t> ends;
  for (const auto& [rank, part] : by_rank) {
    if (part.last_op != INT64_MIN) ends.push_back(part.last_op);
  }
  if (ends.size() < 2) return;
  std::sort(ends.begin(), ends.end());
  const std::int64_t middle = ends[(ends.size() - 1) / 2];
  for (const auto& [rank, part] : by_rank) {
    if (part.last_op == INT64_MIN) continue;
    sums[rank].behind += part.last_op - middle;
    sums[rank].last += part.last_op == ends.back() ? 1 : 0;
  }
}

std::vector<RankTimes> ranks_of(const Parts& parts, const std::vector<StepTime>& counted) {
  std::map<std::uint32_t, Sums> sums;
  for (const StepTime& step : counted) {
    const auto& by_rank = parts.at(step.step);
    for (const auto& [rank, part] : by_rank) {
      if (part.first == INT64_MAX) continue;
      Sums& sum = sums[rank];
      ++sum.steps;
      sum.period += period_of(parts, step.step, rank);
      sum.part.computing += part.computing;
      sum.part.waiting += part.waiting;
      sum.part.handing_over += part.handing_over;
      for (const Interval& each : part.owning) sum.part.owning.push_back(each);
      for (const Interval& each : part.sending) sum.part.sending.push_back(each);
    }
    add_lag(by_rank, sums);
  }
  std::vector<RankTimes> ranks;
  for (auto& [rank, sum] : sums) {
    const auto mean = [&, steps = sum.steps](std::int64_t total) { return seconds(total / steps); };
    const Part& part = sum.part;
    const std::int64_t between =
        std::max<std::int64_t>(0, sum.period - part.computing - part.waiting - part.handing_over);
    ranks.push_back({program::Rank(rank), mean(part.computing), mean(part.waiting),
                     mean(part.handing_over), mean(between), mean(covered(part.owning)),
                     mean(covered(part.sending)), mean(sum.behind), sum.last});
  }
  return ranks;
}

std::vector<WaitedFor> waits_of(const Timeline& timeline, const std::vector<StepTime>& counted,
                                std::size_t ranks) {
  std::set<std::uint64_t> steps;
  for (const StepTime& step : counted) steps.insert(step.step);
  std::map<std::uint32_t, WaitedFor> by_name;
  for (const TimelineRow& row : timeline.rows) {
    if (timeline.activity(row) != "gate" || row.end_ns == row.start_ns) continue;
    if (steps.count(row.step) == 0) continue;
    WaitedFor& waited = by_name[row.name];
    waited.name = timeline.names[row.name];
    const Seconds length = seconds(row.end_ns - row.start_ns);
    ++waited.waits;
    waited.per_step += length;
    if (length < waited.longest) continue;
    waited.longest = length;
    waited.rank = timeline.tracks[row.track].rank;
  }
  std::vector<WaitedFor> waits;
  const double share = 1.0 / static_cast<double>(steps.size() * std::max<std::size_t>(1, ranks));
  for (auto& [name, waited] : by_name) {
    waited.per_step = waited.per_step * share;
    waits.push_back(waited);
  }
  std::stable_sort(waits.begin(), waits.end(),
                   [](const WaitedFor& a, const WaitedFor& b) { return a.per_step > b.per_step; });
  return waits;
}

RankTimes mean_of(const std::vector<RankTimes>& ranks) {
  RankTimes mean;
  const double share = 1.0 / static_cast<double>(ranks.size());
  for (const RankTimes& each : ranks) {
    mean.computing += each.computing * share;
    mean.waiting += each.waiting * share;
    mean.handing_over += each.handing_over * share;
    mean.between += each.between * share;
    mean.owning += each.owning * share;
  }
  return mean;
}

// A time as the page writes it everywhere; a terminal's "us" is what every font has.
std::string shown(Seconds time) {
  std::string text = to_string(time);
  if (text.ends_with(" us")) text.replace(text.size() - 2, 2, "µs");
  return text;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// The rank that computes longest, and how many times the median of all.
std::pair<const RankTimes*, double> slowest_of(const std::vector<RankTimes>& ranks) {
  std::vector<double> computing;
  const RankTimes* slowest = &ranks.front();
  for (const RankTimes& each : ranks) {
    computing.push_back(each.computing.value);
    if (each.computing > slowest->computing) slowest = &each;
  }
  std::sort(computing.begin(), computing.end());
  const double median = computing[(computing.size() - 1) / 2];
  return {slowest, median > 0 ? slowest->computing.value / median : 1};
}

Seconds waiting_beside(const RankTimes& rank, const std::vector<RankTimes>& ranks) {
  Seconds sum;
  for (const RankTimes& each : ranks) {
    if (each.rank != rank.rank) sum += each.waiting;
  }
  return sum * (1 / static_cast<double>(ranks.size() - 1));
}

// Whether the others wait for this rank, which computes `factor` times the median one's time: what
// it computes beyond that is a part of the step that matters and most of what they wait, and it is
// the last one more often than not.
bool is_held_up_by(const RankTimes& slowest, double factor, const StepTimes& times, Seconds step) {
  if (times.ranks.size() < 2 || factor < kStraggles) return false;
  const Seconds beyond = slowest.computing * (1 - 1 / factor);
  const Seconds others_wait = waiting_beside(slowest, times.ranks);
  return beyond / step >= kMatters && others_wait / step > kWorthMentioning &&
         beyond >= others_wait * kMostOf && 2 * slowest.last >= times.counted;
}

}  // namespace

StepTimes times_of(const Timeline& timeline) {
  const Parts parts = parts_of(timeline);
  StepTimes times;
  times.steps = lengths_of(parts);
  if (times.steps.empty()) return times;
  const std::vector<StepTime> counted = counted_of(times.steps);
  times.counted = static_cast<std::int64_t>(counted.size());
  times.ranks = ranks_of(parts, counted);
  times.waits = waits_of(timeline, counted, times.ranks.size());
  std::vector<std::pair<double, std::uint64_t>> lengths;
  for (const StepTime& step : counted) lengths.emplace_back(step.length.value, step.step);
  times.slowest_step = std::max_element(lengths.begin(), lengths.end())->second;
  const auto [median, median_step] = median_of(lengths);
  times.median = Seconds(median);
  times.median_step = median_step;
  return times;
}

Verdict verdict_of(const StepTimes& times) {
  AD_CHECK(!times.ranks.empty()) << "no rank computes";
  const RankTimes mean = mean_of(times.ranks);
  const Seconds step = mean.computing + mean.waiting + mean.handing_over + mean.between;
  if (step <= Seconds{}) {
    return {"Nothing takes time",
            {"All rows of the trace are empty."},
            "Trace steps that compute: autodist train … --trace FILE."};
  }
  const auto share = [&](Seconds part) { return part / step; };
  const auto [slowest, factor] = slowest_of(times.ranks);

  Verdict verdict;
  verdict.reasons.push_back(fmt::format(
      "Of a step, ranks compute {} on average ({}), wait for variables {} ({}), hand gradients "
      "over {} and spend {} between ops.",
      percent(share(mean.computing)), shown(mean.computing), percent(share(mean.waiting)),
      shown(mean.waiting), percent(share(mean.handing_over)), percent(share(mean.between))));
  if (is_held_up_by(*slowest, factor, times, step)) {
    verdict.headline = fmt::format("Bounded by rank {}, which computes longest", slowest->rank);
    verdict.reasons.push_back(fmt::format(
        "Rank {} computes {} per step, {:.2f} times the median rank; its last op was the last of "
        "all ranks' in {} of {} steps, and the others wait for what it contributes.",
        slowest->rank, shown(slowest->computing), factor, slowest->last, times.counted));
    verdict.what_to_do = fmt::format(
        "Look for what else runs on the machine of rank {} (autodist doctor there). Where its "
        "device is slower by nature, say so in the cluster file and plan again: a searched plan "
        "gives faster devices more of the batch.",
        slowest->rank);
  } else if (mean.computing >= mean.waiting && mean.computing >= mean.between) {
    verdict.headline = "Bounded by computing";
    verdict.what_to_do = fmt::format(
        "More ranks or faster devices. What another plan can change is the waiting, {} of a step",
        percent(share(mean.waiting)));
    verdict.what_to_do +=
        share(mean.owning) < kMatters
            ? "."
            : fmt::format(
                  ", and who owns what: sums, updates and installations take {} beside the ops, "
                  "which they slow where cores are few.",
                  percent(share(mean.owning)));
  } else if (mean.waiting >= mean.between) {
    verdict.headline = "Bounded by communication: ranks wait for variables";
    verdict.what_to_do =
        "A plan that was searched for this cluster (autodist plan) with its measured links "
        "(autodist doctor --measure), where this one was not. More samples per rank, or "
        "compression, make waiting a smaller part of a step. "
        "autodist report --late says which slices come last, and why.";
  } else {
    verdict.headline = "Bounded by what lies between the ops";
    verdict.reasons.push_back(
        "The compute stream is neither in an op nor at a gate: reading the batch, starting ops, "
        "and whatever else takes the cores away.");
    verdict.what_to_do =
        "Read batches beside the steps, set OMP_NUM_THREADS to the cores of a rank, and look at "
        "what else runs there (autodist doctor).";
  }
  if (!times.waits.empty() && share(times.waits.front().per_step) > kWorthMentioning) {
    const WaitedFor& most = times.waits.front();
    verdict.reasons.push_back(fmt::format(
        "The longest waiting is for '{}': {} per step and rank, {} of the step; at most {}, at "
        "rank {}.",
        most.name, shown(most.per_step), percent(share(most.per_step)), shown(most.longest),
        most.rank));
  }
  return verdict;
}

std::vector<std::uint64_t> worth_showing(const StepTimes& times) {
  if (times.steps.empty()) return {};
  std::vector<std::uint64_t> wanted{times.median_step, times.median_step + 1, times.slowest_step,
                                    times.steps.front().step};
  std::vector<std::uint64_t> rest;
  for (const StepTime& step : times.steps) rest.push_back(step.step);
  const auto distance = [&](std::uint64_t step) {
    return step < times.median_step ? times.median_step - step : step - times.median_step;
  };
  std::stable_sort(rest.begin(), rest.end(),
                   [&](std::uint64_t a, std::uint64_t b) { return distance(a) < distance(b); });
  wanted.insert(wanted.end(), rest.begin(), rest.end());
  return wanted;
}

}  // namespace autodist::report
