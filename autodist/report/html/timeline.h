// A trace as the page draws it: rows on the tracks of ranks, read from Chrome's trace events
// (program/trace.h writes them). What stands there besides our own rows is left out of the page.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::report {

// Rows that overlap on a track lie on lanes of their own.
struct TimelineTrack {
  program::Rank rank;
  std::string name;  // "compute", "owner", "wire"
  std::uint32_t lanes = 1;
};

struct TimelineRow {
  std::uint32_t track = 0;     // index into Timeline::tracks
  std::uint32_t lane = 0;      // of the track
  std::uint32_t activity = 0;  // index into Timeline::activities
  std::uint32_t name = 0;      // index into Timeline::names
  std::uint64_t step = 0;
  std::int64_t start_ns = 0;  // since the start of the trace
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;
  std::uint32_t stands_for = 1;  // neighbours that were too short to be drawn one by one
};

struct Timeline {
  std::vector<TimelineTrack> tracks;    // by rank, then as the trace numbers them
  std::vector<std::string> activities;  // "compute", "gate"
  std::vector<std::string> names;       // of ops, variables, slices
  std::vector<TimelineRow> rows;        // by start
  std::size_t left_out = 0;             // the shortest rows of a step that is too large as it is

  [[nodiscard]] const std::string& activity(const TimelineRow& row) const {
    return activities[row.activity];
  }
};

// `where` names the source in messages. Throws Error(kUsage) for text that holds no row of ours.
Timeline read_timeline(const std::string& chrome_json, const std::string& where);

// At most about `most` rows: whole steps, those of `wanted` first, in that order. Where the first
// of them alone has more, short neighbours of one activity on a lane become one row that says how
// many it stands for; where that is not enough, the shortest rows are left out.
Timeline thinned(const Timeline& timeline, const std::vector<std::uint64_t>& wanted,
                 std::size_t most);

// The steps that have a row, ascending.
std::vector<std::uint64_t> steps_of(const Timeline& timeline);

}  // namespace autodist::report
