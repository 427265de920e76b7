// Checkpoints as folders <directory>/step-N, whatever a checkpoint is: how one is told to be whole
// or to be a snapshot, and how it is written so that after a stop at any moment a sound one remains
// (docs/formats/checkpoint.md).
//
// While a step is written again, its folder from before is step-N.old. A stop between two renames
// leaves that alone, and it counts as the step.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/base/file_system.h"

namespace autodist {

// The file of a step that its writer writes last: a folder that has it is whole.
inline constexpr char kStepManifest[] = "manifest.json";

std::string step_folder(const std::string& directory, std::int64_t step);

// Of `folder`, and of step-N.old where `folder` is a step-N, those that are whole, in this order.
std::vector<std::string> whole_folders(FileSystem& files, const std::string& folder);
// The first of them; `folder` where neither is whole.
std::string whole_or_own(FileSystem& files, const std::string& folder);

// The steps of the folders below `directory`, ascending; also of a step-N.old without its step-N.
std::vector<std::int64_t> list_checkpoints(FileSystem& files, const std::string& directory);
bool has_step(FileSystem& files, const std::string& directory, std::int64_t step);
// Whether the step is there and is a snapshot: a checkpoint that nobody asked for, which a job goes
// on from after a loss. It is marked as one.
bool is_snapshot(FileSystem& files, const std::string& directory, std::int64_t step);

// Writes <directory>/step-N: `write`, called with step-N.tmp, puts its files there, which are
// synced and renamed; `written` (may be empty) is called when the step is in its place. Afterwards
// the snapshots of earlier steps are removed. Where anything before that throws, step-N.tmp is
// removed and a step-N from before is back. A snapshot REQUIRES that the step is not there, or is a
// snapshot. Throws what `files` and `write` throw.
void put_in_place(FileSystem& files, const std::string& directory, std::int64_t step,
                  bool as_snapshot, const std::function<void(const std::string& folder)>& write,
                  const std::function<void()>& written = {});

void remove_step(FileSystem& files, const std::string& directory, std::int64_t step);
// Removes the snapshots up to this step.
void remove_snapshots(FileSystem& files, const std::string& directory, std::int64_t last);

}  // namespace autodist
