#include "autodist/job/torch/step_notes.h"

#include <cstring>

#include "autodist/base/check.h"

namespace autodist::job {
namespace {

// Plain numbers, which every rank of a job lays out alike.
struct Note {
  double loss_times_samples = 0;
  double samples = 0;
  double stop = 0;
  double save = 0;
  double overflow = 0;
};

Note unpack(const std::string& bytes) {
  Note note;
  AD_CHECK(bytes.size() == sizeof note) << "a note of " << bytes.size() << " bytes";
  std::memcpy(&note, bytes.data(), sizeof note);
  return note;
}

}  // namespace

std::string note_of(const StepReport& report, ir::Reduction reduction, bool stop, bool save) {
  Note note;
  if (report.samples > 0) {
    note.samples = static_cast<double>(report.samples);
    note.loss_times_samples = report.loss * (reduction == ir::Reduction::kMean ? note.samples : 1);
  }
  note.stop = stop ? 1 : 0;
  note.save = save ? 1 : 0;
  note.overflow = report.overflow ? 1 : 0;
  return {reinterpret_cast<const char*>(&note), sizeof note};
}

StepSummary summary_of(std::int64_t step, const std::vector<std::string>& notes,
                       ir::Reduction reduction) {
  StepSummary summary;
  summary.step = step;
  double loss = 0;
  double samples = 0;
  for (const std::string& bytes : notes) {
    const Note note = unpack(bytes);
    loss += note.loss_times_samples;
    samples += note.samples;
    summary.stop = summary.stop || note.stop > 0;
    summary.save = summary.save || note.save > 0;
    summary.skipped = summary.skipped || note.overflow > 0;
  }
  summary.samples = static_cast<std::int64_t>(samples);
  const bool mean = reduction == ir::Reduction::kMean;
  summary.loss = mean && samples > 0 ? loss / samples : loss;
  return summary;
}

}  // namespace autodist::job
