#include "autodist/report/late.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "autodist/ir/text.h"

namespace autodist::report {
namespace {

using program::Activity;
using program::TraceRow;

// The rows of one slice in one step.
struct SliceRows {
  std::map<program::Rank, const TraceRow*> contribution_queue;  // by sender
  std::map<program::Rank, const TraceRow*> contribution_wire;
  std::map<program::Rank, const TraceRow*> result_queue;  // by receiver
  std::map<program::Rank, const TraceRow*> result_wire;
  const TraceRow* merge = nullptr;
};

using StepSlice = std::pair<std::uint64_t, program::SliceId>;

class Index {
 public:
  explicit Index(const program::Trace& trace) {
    for (const TraceRow& row : trace.rows) {
      if (row.activity == Activity::kInstall) installs_[{row.step, row.rank, row.name}] = &row;
      if (row.hop) add(row);
    }
  }

  // When a rank had what the slice brought it.
  [[nodiscard]] static Seconds arrival(const SliceRows& rows, program::Rank rank) {
    const auto wire = rows.result_wire.find(rank);
    if (wire != rows.result_wire.end()) return wire->second->end;
    return rows.merge == nullptr ? Seconds{} : rows.merge->end;  // its own
  }

  // The slice of this variable that was the last to arrive at a rank; nullptr without any.
  [[nodiscard]] const std::pair<const StepSlice, SliceRows>* last(
      std::uint64_t step, program::Rank rank, const std::string& variable) const {
    const std::pair<const StepSlice, SliceRows>* last = nullptr;
    for (auto each = slices_.lower_bound({step, program::SliceId(0)});
         each != slices_.end() && each->first.first == step; ++each) {
      const SliceRows& rows = each->second;
      if (rows.merge == nullptr || variable_of(rows.merge->name) != variable) continue;
      if (last == nullptr || arrival(rows, rank) > arrival(last->second, rank)) last = &*each;
    }
    return last;
  }

  [[nodiscard]] const TraceRow* install(std::uint64_t step, program::Rank rank,
                                        const std::string& variable) const {
    const auto found = installs_.find({step, rank, variable});
    return found == installs_.end() ? nullptr : found->second;
  }

 private:
  // A shard is named "<variable>/part_<n>".
  static std::string variable_of(const std::string& shard) {
    return shard.substr(0, shard.rfind("/part_"));
  }

  void add(const TraceRow& row) {
    SliceRows& rows = slices_[{row.step, row.hop->slice}];
    const bool queue = row.activity == Activity::kQueue;
    if (row.activity == Activity::kMerge) {
      rows.merge = &row;
    } else if (row.hop->is_result) {
      (queue ? rows.result_queue : rows.result_wire)[row.hop->peer] = &row;
    } else {
      (queue ? rows.contribution_queue : rows.contribution_wire)[row.rank] = &row;
    }
  }

  std::map<StepSlice, SliceRows> slices_;
  std::map<std::tuple<std::uint64_t, program::Rank, std::string>, const TraceRow*> installs_;
};

Seconds length(const TraceRow* row) { return row == nullptr ? Seconds{} : row->end - row->start; }

const TraceRow* at(const std::map<program::Rank, const TraceRow*>& rows, program::Rank rank) {
  const auto found = rows.find(rank);
  return found == rows.end() ? nullptr : found->second;
}

void add_wait(LateSlice& late, const SliceRows& rows, program::Rank rank, const TraceRow* install) {
  const TraceRow* slowest = nullptr;  // of the contributions that crossed a wire
  for (const auto& [sender, row] : rows.contribution_wire) {
    if (slowest == nullptr || row->end > slowest->end) slowest = row;
  }
  if (slowest != nullptr) {
    late.contribution_queue += length(at(rows.contribution_queue, slowest->rank));
    late.contribution_wire += length(slowest);
    late.owner += std::max(Seconds{}, rows.merge->end - slowest->end);
  } else {
    late.owner += length(rows.merge);
  }
  late.result_queue += length(at(rows.result_queue, rank));
  late.result_wire += length(at(rows.result_wire, rank));
  if (install != nullptr) {
    late.install += std::max(Seconds{}, install->end - Index::arrival(rows, rank));
  }
}

void take_means(LateSlice& late) {
  const double share = 1.0 / static_cast<double>(late.waits);
  for (Seconds* part : {&late.contribution_queue, &late.contribution_wire, &late.owner,
                        &late.result_queue, &late.result_wire, &late.install}) {
    *part = *part * share;
  }
}

}  // namespace

Seconds waiting(const program::Trace& trace) {
  Seconds sum;
  for (const TraceRow& row : trace.rows) {
    if (row.activity == Activity::kGate) sum += length(&row);
  }
  return sum;
}

// A gate of step k waits for what step k - 1 contributed.
std::vector<LateSlice> late_slices(const program::Trace& trace) {
  const Index index(trace);
  std::map<program::SliceId, LateSlice> found;
  for (const TraceRow& gate : trace.rows) {
    if (gate.activity != Activity::kGate || gate.step == 0) continue;
    const auto* last = index.last(gate.step - 1, gate.rank, gate.name);
    if (last == nullptr) continue;
    const program::SliceId slice = last->first.second;
    LateSlice& late = found[slice];
    late.slice = slice;
    late.name = last->second.merge->name;
    ++late.waits;
    late.waited += length(&gate);
    add_wait(late, last->second, gate.rank, index.install(gate.step - 1, gate.rank, gate.name));
  }
  std::vector<LateSlice> all;
  for (auto& [slice, late] : found) {
    take_means(late);
    all.push_back(std::move(late));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LateSlice& a, const LateSlice& b) { return a.waited > b.waited; });
  return all;
}

std::string late_table(const program::Trace& trace, std::size_t most) {
  std::vector<LateSlice> all = late_slices(trace);
  const std::size_t count = all.size();
  if (most > 0 && all.size() > most) all.resize(most);
  std::vector<std::vector<std::string>> rows{{"slice", "of", "waited", "waits", "queue", "wire",
                                              "owner", "queue back", "wire back", "install"}};
  for (const LateSlice& each : all) {
    rows.push_back({fmt::format("{}", each.slice), each.name, to_string(each.waited),
                    std::to_string(each.waits), to_string(each.contribution_queue),
                    to_string(each.contribution_wire), to_string(each.owner),
                    to_string(each.result_queue), to_string(each.result_wire),
                    to_string(each.install)});
  }
  std::string text = ir::align(rows, "", {0, 2, 3, 4, 5, 6, 7, 8, 9});
  text += fmt::format("\n{} of {} slices that a gate waited for; all gates waited {} together.\n",
                      all.size(), count, to_string(waiting(trace)));
  return text;
}

std::string late_json(const program::Trace& trace, std::size_t most) {
  nlohmann::ordered_json json{{"waiting_seconds", waiting(trace).value}};
  json["slices"] = nlohmann::ordered_json::array();
  for (const LateSlice& each : late_slices(trace)) {
    if (most > 0 && json["slices"].size() == most) break;
    json["slices"].push_back({{"slice", each.slice.value},
                              {"name", each.name},
                              {"waits", each.waits},
                              {"waited_seconds", each.waited.value},
                              {"contribution_queue_seconds", each.contribution_queue.value},
                              {"contribution_wire_seconds", each.contribution_wire.value},
                              {"owner_seconds", each.owner.value},
                              {"result_queue_seconds", each.result_queue.value},
                              {"result_wire_seconds", each.result_wire.value},
                              {"install_seconds", each.install.value}});
  }
  return json.dump();
}

}  // namespace autodist::report
