// The places where the engine waits between the queues of a device and the host. Every call that
// waits has a name of its own, so that a test can leave out one of them and see that it is missed.

#pragma once

#include <optional>

namespace autodist::exec {

enum class WaitSite {
  // A queue waits for another one.
  kGate,              // the computing queue, for the version that an op is about to read
  kOwnUpdates,        // the computing queue, for versions that the step's own updates made
  kSettledVariable,   // the caller's queue, for a variable's newest version
  kSettledAll,        // the caller's queue, for what was copied into variables between two steps
  kBroughtMade,       // the copying queue, for the op that makes what it brings to the host
  kReducedMade,       // the queue of a library's sums, for the op that completes a gradient
  kReadBeforeUpdate,  // an updating queue, for the last op that reads the version before
  kReadBeforeCopy,    // the copying queue, for the last op that reads the version before
  kReadBeforeRows,    // the copying queue, for the last op that reads rows of a version before
  kReadBeforePiece,   // the copying queue, for the last op that reads a part of a version before
  // The host waits for a queue.
  kBrought,          // the thread that copies, for what it brings to be in the host's memory
  kBroughtDropped,   // the destructor of HostCopies, for copies still on their way
  kHostRead,         // for values that decide what the host does next
  kStateRead,        // for the state that the device's updates made
  kDenseRead,        // for the version that the device's updates made
  kShadowRead,       // for the host's copy of a variable to be read before it is written again
  kShadowReload,     // for the host's copy of a variable, before it is read from the device anew
  kRowsRead,         // for staged rows to be read before their memory is lent again
  kPieceRead,        // for a staged part to be read before its memory is lent again
  kStageValueRead,   // for a staged value of another stage to be read before its memory is lent
  kStageLinkEnds,    // for all staged values of other stages
  kVariablesSettle,  // for all versions to be on the device
  kRateBegin,        // where rates are measured: for the memory that is copied
  kRateUp,           // where rates are measured: for the copy to the device
  kRateDown,         // where rates are measured: for the copy to the host
};
constexpr int kWaitSites = 25;

// For tests, before anything runs: this one does not wait. Nothing: all of them do.
void leave_out(std::optional<WaitSite> site);
// For tests: whether any work of a device was waited for there, in this process.
[[nodiscard]] bool was_reached(WaitSite site);

}  // namespace autodist::exec
