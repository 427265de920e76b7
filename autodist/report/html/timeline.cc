#include "autodist/report/html/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "autodist/base/error.h"
#include "autodist/base/json_complaint.h"
#include "autodist/program/trace.h"

namespace autodist::report {
namespace {

constexpr double kNanosecondsPerMicrosecond = 1e3;
constexpr std::int64_t kRounding = 1;  // rows that touch may overlap by a nanosecond
constexpr std::int64_t kMostJoined = 8;
constexpr std::size_t kLongestName = 160;
constexpr double kLongestMicroseconds = 1e12;  // eleven days: beyond it a time is no time of a step

class Numbers {
 public:
  explicit Numbers(std::vector<std::string>& names) : names_(names) {}
  std::uint32_t of(const std::string& name) {
    const auto [found, is_new] =
        numbers_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return found->second;
  }

 private:
  std::vector<std::string>& names_;
  std::map<std::string, std::uint32_t> numbers_;
};

std::int64_t nanoseconds(const nlohmann::json& microseconds) {
  const auto value = microseconds.get<double>();
  if (!(std::abs(value) < kLongestMicroseconds)) throw std::invalid_argument("a time out of range");
  return std::llround(value * kNanosecondsPerMicrosecond);
}

// "wire (2)" is a further track of "wire".
std::string without_number(const std::string& name) {
  const std::size_t at = name.rfind(" (");
  return at == std::string::npos || name.back() != ')' ? name : name.substr(0, at);
}

// Takes the events one by one, in any order.
class Reader {
 public:
  Reader() : activities_(timeline_.activities), names_(timeline_.names) {}

  void take(const nlohmann::json& event) {
    const auto phase = event.value("ph", std::string());
    if (phase == "M" && event.value("name", std::string()) == "thread_name") {
      names_of_tracks_[key_of(event)] = without_number(event.at("args").at("name"));
    }
    if (phase != "X" && phase != "b") return;
    const auto activity = event.value("cat", std::string());
    if (!program::activity_named(activity)) return;
    const nlohmann::json& arguments = event.at("args");
    const nlohmann::json& duration = event.contains("dur") ? event.at("dur") : arguments.at("dur");
    TimelineRow row;
    row.activity = activities_.of(activity);
    row.name = names_.of(event.at("name").get<std::string>().substr(0, kLongestName));
    row.step = arguments.at("step").get<std::uint64_t>();
    row.bytes = arguments.value("bytes", std::int64_t{0});
    row.start_ns = nanoseconds(event.at("ts"));
    row.end_ns = row.start_ns + std::max<std::int64_t>(0, nanoseconds(duration));
    rows_.emplace_back(key_of(event), row);
  }

  Timeline finish() {
    std::stable_sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) {
      return a.second.start_ns < b.second.start_ns;
    });
    number_tracks();
    std::map<std::uint32_t, std::vector<std::int64_t>> ends;
    for (auto& [key, own] : rows_) {
      TimelineRow& row = own;  // clang 14 captures no structured binding
      row.track = tracks_.at({key.first, name_of(key, row)});
      std::vector<std::int64_t>& lanes = ends[row.track];
      const auto free = std::find_if(lanes.begin(), lanes.end(), [&](std::int64_t end) {
        return end <= row.start_ns + kRounding;
      });
      row.lane = static_cast<std::uint32_t>(free - lanes.begin());
      if (free == lanes.end()) lanes.push_back(0);
      lanes[row.lane] = row.end_ns;
      timeline_.rows.push_back(row);
    }
    for (const auto& [track, lanes] : ends) {
      timeline_.tracks[track].lanes = static_cast<std::uint32_t>(lanes.size());
    }
    return std::move(timeline_);
  }

 private:
  using Key = std::pair<std::uint32_t, std::int64_t>;  // pid, tid

  static Key key_of(const nlohmann::json& event) {
    return {event.at("pid").get<std::uint32_t>(), event.at("tid").get<std::int64_t>()};
  }

  std::string name_of(const Key& key, const TimelineRow& row) const {
    const auto found = names_of_tracks_.find(key);
    return found == names_of_tracks_.end() ? timeline_.activity(row) : found->second;
  }

  void number_tracks() {
    // By rank and number; a number that no event names is a track for each of its activities.
    std::set<std::pair<Key, std::string>> seen;
    for (const auto& [key, row] : rows_) seen.emplace(key, name_of(key, row));
    for (const auto& [key, name] : seen) {
      const auto number = static_cast<std::uint32_t>(timeline_.tracks.size());
      if (tracks_.try_emplace({key.first, name}, number).second) {
        timeline_.tracks.push_back({program::Rank(key.first), name, 1});
      }
    }
  }

  Timeline timeline_;
  Numbers activities_;
  Numbers names_;
  std::map<Key, std::string> names_of_tracks_;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> tracks_;
  std::vector<std::pair<Key, TimelineRow>> rows_;
};

// Neighbours on a lane with one activity, none of which nor a gap between them is longer than
// `longest`, become one row, up to some times that. REQUIRES: rows by start.
std::vector<TimelineRow> joined(const std::vector<TimelineRow>& rows, std::int64_t longest) {
  std::vector<TimelineRow> result;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> last;  // by track and lane
  for (const TimelineRow& row : rows) {
    const auto place = std::make_pair(row.track, row.lane);
    const auto before = last.find(place);
    if (before != last.end() && row.end_ns - row.start_ns <= longest) {
      TimelineRow& other = result[before->second];
      const bool short_too = row.end_ns - other.start_ns <= kMostJoined * longest;
      if (short_too && other.activity == row.activity && other.step == row.step &&
          row.start_ns - other.end_ns <= longest) {
        other.end_ns = std::max(other.end_ns, row.end_ns);
        other.bytes += row.bytes;
        other.stands_for += row.stands_for;
        continue;
      }
    }
    last[place] = result.size();
    result.push_back(row);
  }
  return result;
}

// In their order. REQUIRES: most < rows.size().
std::vector<TimelineRow> longest_of(const std::vector<TimelineRow>& rows, std::size_t most) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows[a].end_ns - rows[a].start_ns > rows[b].end_ns - rows[b].start_ns;
  });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<TimelineRow> result;
  for (const std::size_t i : order) result.push_back(rows[i]);
  return result;
}

}  // namespace

Timeline read_timeline(const std::string& chrome_json, const std::string& where) {
  Reader reader;
  try {
    const nlohmann::json json = nlohmann::json::parse(chrome_json);
    for (const nlohmann::json& event : json.at("traceEvents")) reader.take(event);
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage,
         "{}: not a trace of `train --trace` or `simulate --trace`: {}. Write it again.", where,
         json_complaint(error));
  }
  Timeline timeline = reader.finish();
  if (timeline.rows.empty()) {
    fail(ErrorCode::kUsage,
         "{}: a trace of `train --trace` or `simulate --trace` expected, but no row of a step is "
         "in it. Write it again, of at least one step.",
         where);
  }
  return timeline;
}

std::vector<std::uint64_t> steps_of(const Timeline& timeline) {
  std::set<std::uint64_t> steps;
  for (const TimelineRow& row : timeline.rows) steps.insert(row.step);
  return {steps.begin(), steps.end()};
}

Timeline thinned(const Timeline& timeline, const std::vector<std::uint64_t>& wanted,
                 std::size_t most) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const TimelineRow& row : timeline.rows) ++counts[row.step];
  std::set<std::uint64_t> kept;
  std::size_t total = 0;
  for (const std::uint64_t step : wanted) {
    const auto found = counts.find(step);
    if (found == counts.end() || kept.count(step) != 0) continue;
    if (!kept.empty() && total + found->second > most) continue;
    kept.insert(step);
    total += found->second;
  }
  Timeline result = timeline;
  std::erase_if(result.rows, [&](const TimelineRow& row) { return kept.count(row.step) == 0; });
  std::int64_t end = 0;
  for (const TimelineRow& row : result.rows) end = std::max(end, row.end_ns);
  const std::int64_t span = result.rows.empty() ? 0 : end - result.rows.front().start_ns;
  std::int64_t longest = 1000;  // a microsecond, doubled until all fits
  while (result.rows.size() > most && longest <= span) {
    result.rows = joined(result.rows, longest);
    longest *= 2;
  }
  if (result.rows.size() > most) {
    result.left_out = result.rows.size() - most;
    result.rows = longest_of(result.rows, most);
  }
  return result;
}

}  // namespace autodist::report
