#include "autodist/search/placement/makespan_search.h"

#include <algorithm>
#include <cmath>

#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr std::uint32_t kLargestCluster = 64;
constexpr double kHot = 0.006;  // temperatures, relative to the step's time
constexpr double kCold = 0.0001;
constexpr std::size_t kStarts = 4;  // of annealing

// The tasks from a source to the last one, each waiting for the one before: what must move if the
// step is to become shorter. Last task first.
std::vector<std::uint32_t> critical_path(const Timeline& timeline) {
  std::vector<std::uint32_t> path;
  for (std::uint32_t task = timeline.last_task;;) {
    path.push_back(task);
    const bool waited = timeline.start[task] > timeline.ready[task];
    const std::uint32_t before = waited ? timeline.before[task] : timeline.last_parent[task];
    if (before == task) return path;
    task = before;
  }
}

class StepAnnealer {
 public:
  StepAnnealer(const MakespanProblem& problem, MakespanJudge& judge, std::mt19937_64& random)
      : graph_(*problem.graph),
        devices_(problem.devices.size()),
        all_devices_(problem.devices.size()),
        judge_(judge),
        random_(random),
        neighbours_(neighbours_of(graph_)),
        groups_(groups_of(graph_)),
        order_(topological_order(neighbours_)),
        mark_(graph_.tasks.size(), 0) {
    place_.resize(order_.size());
    for (std::uint32_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    for (const Task& task : graph_.tasks) {
      for (const ListDevice& device : problem.devices) {
        supported_.push_back(time_on(task, device) != kNotSupported);
      }
    }
  }

  // From `start`; tasks move to the first `devices` alone.
  void run(const Placement& start, std::size_t devices, std::uint64_t simulations, double hot) {
    devices_ = devices;
    placement_ = start;
    time_ = judge_(placement_, "annealing");
    path_ = critical_path(judge_.timeline());
    for (std::uint64_t done = 1; done < simulations && !judge_.over(); ++done) {
      const double progress = static_cast<double>(done) / static_cast<double>(simulations);
      temperature_ = hot * std::pow(kCold / hot, progress);
      if (!propose()) continue;
      const double time = judge_(placement_, "annealing");
      const double change = time / time_ - 1;
      if (change <= 0 || fraction(random_) < std::exp(-change / temperature_)) {
        time_ = time;
        path_ = critical_path(judge_.timeline());
      } else {
        for (std::size_t i = changed_.size(); i-- > 0;) {
          placement_[changed_[i].first] = changed_[i].second;
        }
      }
    }
  }

 private:
  [[nodiscard]] DeviceIndex any_device() {
    return static_cast<DeviceIndex>(below(devices_, random_));
  }
  [[nodiscard]] std::uint32_t any_task() { return below(placement_.size(), random_); }
  // A task that the step's end waits for, more often than not.
  [[nodiscard]] std::uint32_t interesting_task() {
    if (below(4, random_) == 0) return any_task();
    return path_[below(path_.size(), random_)];
  }

  void set(std::uint32_t task, DeviceIndex device) {
    for (const std::uint32_t member : groups_.members[groups_.of[task]]) {
      if (placement_[member] == device || !supported_[member * all_devices_ + device]) continue;
      changed_.emplace_back(member, placement_[member]);
      placement_[member] = device;
    }
  }

  // Changes the placement; false when nothing came of it.
  bool propose() {
    changed_.clear();
    const std::uint32_t kind = below(16, random_);
    if (kind < 4) {
      move_one(interesting_task());
    } else if (kind < 8) {
      move_cluster(interesting_task());
    } else if (kind < 11) {
      follow_parent();
    } else if (kind < 13) {
      make_room();
    } else if (kind < 15) {
      move_stretch();
    } else {
      swap();
    }
    return !changed_.empty();
  }

  void move_one(std::uint32_t task) { set(task, target_of(task)); }

  // The device of a neighbour, or any.
  DeviceIndex target_of(std::uint32_t task) {
    const std::vector<std::uint32_t>& near =
        below(2, random_) == 0 ? neighbours_.parents[task] : neighbours_.children[task];
    if (near.empty() || below(3, random_) == 0) return any_device();
    return placement_[near[below(near.size(), random_)]];
  }

  // Grown along edges within the task's device.
  void move_cluster(std::uint32_t seed) {
    const DeviceIndex from = placement_[seed];
    DeviceIndex to = target_of(seed);
    if (to == from) to = any_device();
    if (to == from) return;
    const std::uint32_t wanted = 2 + below(kLargestCluster >> below(5, random_), random_);
    ++stamp_;
    std::vector<std::uint32_t> cluster{seed};
    mark_[seed] = stamp_;
    const std::uint32_t direction = below(3, random_);  // both, down, up
    for (std::size_t at = 0; at < cluster.size() && cluster.size() < wanted; ++at) {
      const auto grow = [&](const std::vector<std::uint32_t>& near) {
        for (const std::uint32_t each : near) {
          if (placement_[each] != from || mark_[each] == stamp_) continue;
          if (cluster.size() >= wanted) return;
          mark_[each] = stamp_;
          cluster.push_back(each);
        }
      };
      const std::uint32_t task = cluster[at];
      if (direction != 2) grow(neighbours_.children[task]);
      if (direction != 1) grow(neighbours_.parents[task]);
    }
    for (const std::uint32_t task : cluster) set(task, to);
  }

  // A task of the critical path that waited for a transfer goes to where its input was, with some
  // of what follows; or its parent comes to it.
  void follow_parent() {
    const Timeline& timeline = judge_.timeline();
    for (int tries = 0; tries < 8; ++tries) {
      const std::uint32_t task = path_[below(path_.size(), random_)];
      const std::uint32_t parent = timeline.last_parent[task];
      if (parent == task || placement_[parent] == placement_[task]) continue;
      const bool down = below(2, random_) == 0;
      const DeviceIndex to = placement_[down ? parent : task];
      const DeviceIndex from = placement_[down ? task : parent];
      std::uint32_t next = down ? task : parent;
      std::uint32_t length = 1 + below(1u << below(6, random_), random_);
      while (length-- > 0) {
        set(next, to);
        const std::vector<std::uint32_t>& near =
            down ? neighbours_.children[next] : neighbours_.parents[next];
        std::uint32_t follower = next;
        for (const std::uint32_t each : near) {
          if (placement_[each] == from) follower = each;
        }
        if (follower == next) break;
        next = follower;
      }
      return;
    }
  }

  // A task of the critical path that waited for its device: what ran before it goes elsewhere, or
  // it does itself.
  void make_room() {
    const Timeline& timeline = judge_.timeline();
    for (int tries = 0; tries < 8; ++tries) {
      const std::uint32_t task = path_[below(path_.size(), random_)];
      if (timeline.start[task] <= timeline.ready[task]) continue;
      std::uint32_t blocker = timeline.before[task];
      for (std::uint32_t back = below(4, random_); back-- > 0;) blocker = timeline.before[blocker];
      if (below(2, random_) == 0) {
        move_one(below(2, random_) == 0 ? blocker : task);
      } else {
        move_cluster(below(2, random_) == 0 ? blocker : task);
      }
      return;
    }
  }

  // Tasks that stand together in a topological order.
  void move_stretch() {
    const std::uint32_t middle = place_[interesting_task()];
    const std::uint32_t length = 1 + below(1u << (1 + below(7, random_)), random_);
    const std::uint32_t first = middle - std::min(middle, below(length, random_));
    const DeviceIndex from = placement_[order_[middle]];
    const DeviceIndex to = any_device();
    const bool all = below(4, random_) == 0;
    for (std::uint32_t i = first; i < first + length && i < order_.size(); ++i) {
      if (all || placement_[order_[i]] == from) set(order_[i], to);
    }
  }

  void swap() {
    const std::uint32_t one = interesting_task();
    const std::uint32_t other = any_task();
    const DeviceIndex a = placement_[one];
    const DeviceIndex b = placement_[other];
    if (a == b) return;
    set(one, b);
    set(other, a);
  }

  const TaskGraph& graph_;
  std::size_t devices_;  // the first ones, among which tasks move
  std::size_t all_devices_;
  MakespanJudge& judge_;
  std::mt19937_64& random_;
  Neighbours neighbours_;
  Groups groups_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> place_;
  std::vector<bool> supported_;
  std::vector<std::uint32_t> mark_;
  std::uint32_t stamp_ = 0;
  Placement placement_;
  double time_ = 0;
  double temperature_ = 1;
  std::vector<std::uint32_t> path_;
  std::vector<std::pair<std::uint32_t, DeviceIndex>> changed_;
};

// The list rules with their parameters drawn, each simulated once.
struct Candidate {
  double time;
  Placement placement;
};

std::vector<Candidate> listed(const MakespanProblem& problem, std::size_t devices,
                              MakespanJudge& judge, std::uint64_t count, std::mt19937_64& random) {
  const std::vector<ListDevice> first(problem.devices.begin(), problem.devices.begin() + devices);
  std::vector<Candidate> candidates;
  for (std::uint64_t i = 0; i < count && !judge.over(); ++i) {
    ListOptions options;
    constexpr ListRule kRules[] = {ListRule::kHeft, ListRule::kEtf, ListRule::kSct,
                                   ListRule::kTopo};
    options.rule = i < 4 ? kRules[i] : kRules[below(8, random) < 6 ? 0 : 1 + below(2, random)];
    if (i >= 4) {
      options.caution = std::exp2(3 * fraction(random));
      options.noise = i % 2 == 0 ? 0.3 * fraction(random) : 0;
    }
    Placement placement = place_by_list(*problem.graph, first, options, random);
    const double time = judge(placement, "list scheduling");
    candidates.push_back({time, std::move(placement)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time < b.time; });
  return candidates;
}

// The devices from whose answer the search on `devices` begins.
std::size_t fewer(std::size_t devices) { return devices <= 4 ? devices - 1 : (devices + 1) / 2; }

// The portfolio on the first devices, then on more of them.
class Portfolio {
 public:
  Portfolio(const MakespanProblem& problem, MakespanJudge& judge, std::uint64_t seed)
      : problem_(problem), judge_(judge), random_(seed), annealer_(problem, judge, random_) {}

  // What is simulated for the first `devices` does not depend on how many there are beside them.
  void run(std::size_t devices, std::uint64_t simulations) {
    const std::size_t known = fewer(devices);
    if (known > 0) run(known, simulations);
    const std::uint64_t end = judge_.best().simulations + simulations;
    const auto left = [&] { return end - std::min(end, judge_.best().simulations); };
    const bool begun = known > 1 && judge_.best().time != kNotSupported;
    for (auto device = static_cast<DeviceIndex>(known); device < devices && left() > 0; ++device) {
      if (!judge_.over()) judge_(Placement(problem_.graph->tasks.size(), device), "one device");
    }
    if (devices == 1 && problem_.devices.size() > 1) return;
    const std::vector<Candidate> candidates =
        listed(problem_, devices, judge_, left() / 16, random_);
    // These devices lack the memory; there are more.
    if (devices < problem_.devices.size() && judge_.best().time == kNotSupported) return;
    // Half of what is left goes to several starts, half to the best of them.
    const std::uint64_t share = left() / (2 * kStarts);
    for (std::size_t i = 0; i < (begun ? kStarts / 2 : kStarts) && i * i < candidates.size(); ++i) {
      annealer_.run(candidates[i * i].placement, devices, share, kHot);
    }
    while (left() > 0 && !judge_.over()) {
      const Placement best = judge_.best().placement;
      annealer_.run(best, devices, left(), kHot / 3);
    }
  }

 private:
  const MakespanProblem& problem_;
  MakespanJudge& judge_;
  std::mt19937_64 random_;
  StepAnnealer annealer_;
};

}  // namespace

double MakespanJudge::operator()(const Placement& placement, const char* found_by) {
  const double time = simulator_->run(placement);
  ++best_.simulations;
  if (time < best_.time || best_.placement.empty()) {
    best_.time = time;
    best_.placement = placement;
    best_.found_by = found_by;
  }
  return time;
}

bool MakespanJudge::over() {
  if (options_.stop && best_.simulations % 16 == 0 && options_.stop()) best_.stopped = true;
  return best_.stopped || best_.simulations >= options_.simulations;
}

std::size_t portfolio_stages(std::size_t devices) {
  std::size_t count = 1;
  for (; devices > 2; devices = fewer(devices)) ++count;
  return count;
}

MakespanAnswer coordinate_descent(const MakespanProblem& problem, Order order, std::size_t visits,
                                  const MakespanOptions& options) {
  MakespanJudge judge(problem, options);
  std::mt19937_64 random(options.seed);
  const Groups groups = groups_of(*problem.graph);
  const std::vector<std::uint32_t> tasks = traversal(*problem.graph, order, random);
  Placement placement(tasks.size(), 0);
  double best = judge(placement, "coordinate descent");
  bool changed = true;
  for (std::size_t visit = 0; visit < visits && changed; ++visit) {
    changed = false;
    for (const std::uint32_t task : tasks) {
      const std::vector<std::uint32_t>& group = groups.members[groups.of[task]];
      if (group.front() != task) continue;
      const DeviceIndex from = placement[task];
      DeviceIndex chosen = from;
      const auto put = [&](DeviceIndex device) {
        for (const std::uint32_t member : group) placement[member] = device;
      };
      for (DeviceIndex to = 0; to < problem.devices.size(); ++to) {
        if (to == from) continue;
        if (judge.over()) break;
        put(to);
        const double time = judge(placement, "coordinate descent");
        if (time < best) {
          best = time;
          chosen = to;
        }
      }
      put(chosen);
      changed |= chosen != from;
    }
  }
  return judge.best();
}

MakespanAnswer place_on_one(const MakespanProblem& problem) {
  MakespanOptions options;
  options.simulations = problem.devices.size();
  MakespanJudge judge(problem, options);
  for (DeviceIndex device = 0; device < problem.devices.size(); ++device) {
    judge(Placement(problem.graph->tasks.size(), device), "one device");
  }
  return judge.best();
}

MakespanAnswer place_by_rule(const MakespanProblem& problem, ListRule rule) {
  MakespanOptions options;
  MakespanJudge judge(problem, options);
  std::mt19937_64 random(0);
  ListOptions list;
  list.rule = rule;
  judge(place_by_list(*problem.graph, problem.devices, list, random), "list scheduling");
  return judge.best();
}

MakespanAnswer anneal_step(const MakespanProblem& problem, const MakespanOptions& options) {
  MakespanJudge judge(problem, options);
  std::mt19937_64 random(options.seed);
  StepAnnealer annealer(problem, judge, random);
  annealer.run(Placement(problem.graph->tasks.size(), 0), problem.devices.size(),
               options.simulations, kHot);
  return judge.best();
}

MakespanAnswer makespan_portfolio(const MakespanProblem& problem, const MakespanOptions& options) {
  MakespanJudge judge(problem, options);
  const std::size_t devices = problem.devices.size();
  Portfolio(problem, judge, options.seed)
      .run(devices, options.simulations / portfolio_stages(devices));
  return judge.best();
}

}  // namespace autodist::search::placement
