// What the messages between the ranks of a job are about: the kinds of their frames, whose ids mean
// what stands beside each (docs/formats/wire.md).

#pragma once

#include <cstdint>
#include <string>

#include "autodist/base/id.h"
#include "autodist/comm/transport.h"

namespace autodist::exec {

// The rank that plans, gathers and saves.
inline constexpr comm::RankNumber kChief = 0;

enum class Topic : std::uint8_t {
  // The gradients' way.
  kContribution = static_cast<std::uint8_t>(comm::FrameKind::kFirstMessage),  // slice
  kResult,                                                                    // slice
  kSums,           // slice: its sums of squares, for a clip
  kLambSums,       // slice: the two of LAMB
  kWholeSum,       // variable that no slice carries
  kFlag,           // 0: whether the rank's gradients are finite
  kAsk,            // slice: numbers of rows, to the owner
  kRows,           // slice: those rows, from the owner
  kResultAndRows,  // slice: and what kResult says of the step before
  kTransfer,       // transfer between stages of a placed graph

  // Of a step, between all computing ranks.
  kStepSums,  // 0: of a step whose sums no slice carries
  kStep,      // 0: SmallCollectives::tell()
  kChanges,   // 0: which variables have got other values, where all must agree
  kChanged,   // 0: these values are in place

  // What is gathered between steps.
  kStatesWanted,      // 0: by the chief
  kStates,            // which move of program::gathering() between the two: of update rules
  kOwedGradients,     // slice: what compression owes at a contributor
  kOwedAverages,      // slice: and at its owner
  kOwed,              // 0: by library all-reduces, to the chief
  kParametersWanted,  // 0: of asynchronous slices
  kRowsWanted,        // 0: all rows of slices whose rows are fetched
  kStagesWanted,      // 0: of a placed graph, variables of other stages
  kParameters,        // slice: whole, from its owner
  kBuffers,           // 0: of a placed graph, those that a stage writes
  kGathering,         // 0: to the chief alone
  kShared,            // how often before between these two steps
  kStatistics,        // 0: the buffers that the step writes: the chief's, for an evaluation
  kAllStatistics,     // 0: and everyone's

  // Where ranks wait for each other.
  kMet,      // 0
  kParted,   // 0
  kFetched,  // 0
  kDone,     // 0
  kOutcome,  // how often before between these two steps: of a save(), by the chief

  // Of calls (exec/calls.h).
  kCalled,        // how often before between these two steps: a rank begins a call
  kSaveWanted,    // 0: the chief saves, and needs the others
  kSaveAnswered,  // the step modulo kMostSavesOnTheWay: whether the rank saves after it, too
  kEnded,         // 0: by the chief, whether all came to the end in order

  // Of a plan that takes this one's place.
  kPlan,     // how many plan changes were asked for: by the chief, the strategy or why it has none
  kPlanned,  // the same: a rank is settled, and rewrites to this Program
  kMove,     // which move of program::transition() between the two

  kSnapshot,  // how many of them there were: by the chief, whether and when the next one is due
};

// "contribution of slice 17".
std::string name_of(Topic topic, comm::MessageId id);

// A topic and one of the things that it may be about.
struct Subject {
  Subject(Topic of, comm::MessageId which = 0) : topic(of), id(which) {}  // NOLINT: a topic is one
  template <typename Tag>
  Subject(Topic of, Id<Tag> which) : topic(of), id(static_cast<comm::MessageId>(which.value)) {}

  [[nodiscard]] comm::FrameKind kind() const {
    return comm::FrameKind{static_cast<std::uint8_t>(topic)};
  }
  friend bool operator<(const Subject& a, const Subject& b) {
    return a.topic != b.topic ? a.topic < b.topic : a.id < b.id;
  }

  Topic topic;
  comm::MessageId id;
};

inline Topic topic_of(const comm::FrameHeader& header) { return static_cast<Topic>(header.kind); }

}  // namespace autodist::exec
