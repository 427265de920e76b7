#include "autodist/studies/nccl_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/base/statistics.h"
#include "autodist/base/text.h"

namespace autodist::studies {
namespace {

using Knot = FittedCollective::Knot;

double line(const Knot& a, const Knot& b, double bytes) {
  return a.seconds + (b.seconds - a.seconds) * (bytes - a.bytes) / (b.bytes - a.bytes);
}

// The largest relative error of the samples strictly between two when a line joins these.
double worst_between(const std::vector<Knot>& samples, std::size_t first, std::size_t last) {
  double worst = 0;
  for (std::size_t i = first + 1; i < last; ++i) {
    const double predicted = line(samples[first], samples[last], samples[i].bytes);
    worst = std::max(worst, std::abs(predicted / samples[i].seconds - 1));
  }
  return worst;
}

}  // namespace

FittedCollective FittedCollective::fit(const std::vector<Knot>& samples, double tolerance) {
  AD_CHECK(!samples.empty()) << "nothing to fit";
  std::vector<Knot> knots{samples.front()};
  std::size_t at = 0;
  while (at + 1 < samples.size()) {
    std::size_t next = at + 1;
    for (std::size_t i = at + 2; i < samples.size() && i < at + 64; ++i) {
      if (worst_between(samples, at, i) <= tolerance) next = i;
    }
    knots.push_back(samples[next]);
    at = next;
  }
  return FittedCollective(std::move(knots));
}

Seconds FittedCollective::seconds(double bytes) const {
  if (knots_.size() == 1) return Seconds(knots_.front().seconds);
  auto above = std::lower_bound(knots_.begin(), knots_.end(), bytes,
                                [](const Knot& knot, double value) { return knot.bytes < value; });
  if (above == knots_.begin()) ++above;
  if (above == knots_.end()) --above;
  return Seconds(std::max(0.0, line(*(above - 1), *above, bytes)));
}

std::vector<FittedCollective::Knot> parse_nccl_table(const std::string& text,
                                                     const std::string& where) {
  std::vector<Knot> table;
  const std::vector<std::string> lines = split(text, '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {  // behind the header
    const std::vector<std::string> cells = split(lines[i], ',');
    const auto number_in = [&](std::size_t column) {
      const std::string cell = column < cells.size() ? cells[column] : "";
      const auto value = as_number<double>(cell);
      if (!value || *value <= 0) {
        fail(ErrorCode::kUsage, "{}:{}: column {} is '{}', a number above 0 expected", where, i + 1,
             column + 1, cell);
      }
      return *value;
    };
    const double bytes = number_in(0);
    const double nanoseconds = number_in(3);
    if (!table.empty() && bytes <= table.back().bytes) {
      fail(ErrorCode::kUsage, "{}:{}: sizes do not ascend. Sort the rows by size, each size once.",
           where, i + 1);
    }
    table.push_back({bytes, nanoseconds * 1e-9});
  }
  if (table.size() < 2) fail(ErrorCode::kUsage, "{}: two rows at least expected", where);
  return table;
}

FitErrors judge_fit(const std::vector<FittedCollective::Knot>& table) {
  std::vector<FittedCollective::Knot> even;
  for (std::size_t i = 1; i < table.size(); i += 2) even.push_back(table[i]);
  const FittedCollective fitted = FittedCollective::fit(even);
  std::vector<double> errors;
  for (std::size_t i = 0; i < table.size(); i += 2) {
    errors.push_back(std::abs(fitted.seconds(table[i].bytes).value / table[i].seconds - 1));
  }
  FitErrors result;
  result.mean =
      std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  result.p95 = quantile(errors, 0.95);
  result.most = quantile(errors, 1);
  result.knots = fitted.knots().size();
  return result;
}

}  // namespace autodist::studies
