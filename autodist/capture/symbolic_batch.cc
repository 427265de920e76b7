#include "autodist/capture/symbolic_batch.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "autodist/ir/text.h"

namespace autodist::capture {
namespace {

constexpr double kLargestInteger = 1e15;  // doubles up to here count integers exactly

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::optional<std::int64_t> as_integer(double x) {
  if (!(std::abs(x) < kLargestInteger) || std::nearbyint(x) != x) return std::nullopt;
  return static_cast<std::int64_t>(x);
}

// k / n == x to the bit.
std::optional<std::int64_t> denominator_of(double x, double k) {
  const double n = std::nearbyint(k / x);
  if (!(std::abs(n) < kLargestInteger) || n == 0 || !same_bits(k / n, x)) return std::nullopt;
  return static_cast<std::int64_t>(n);
}

// The argument with its batch put in.
ir::Argument at(const ir::Argument& argument, std::int64_t batch) {
  if (const auto* number = std::get_if<ir::Affine>(&argument)) {
    return ir::Affine{0, number->at(batch)};
  }
  if (const auto* number = std::get_if<ir::Quotient>(&argument)) return number->at(batch);
  if (const auto* numbers = std::get_if<std::vector<ir::Affine>>(&argument)) {
    std::vector<ir::Affine> result;
    for (const ir::Affine& each : *numbers) result.push_back({0, each.at(batch)});
    return result;
  }
  return argument;
}

std::string describe(const ir::Graph& graph, const ir::Op& op) {
  return fmt::format("{}{}", op.name, ir::in_scope(graph, op));
}

// Thrown inside of this file alone: the first difference, in words.
struct Different {
  std::string what;
};

class Unifier {
 public:
  Unifier(const ir::Graph& first, const ir::Graph& second)
      : first_(first),
        second_(second),
        batch_a_(first.example_batch),
        batch_b_(second.example_batch),
        graph_(first) {}

  ir::Graph run() {
    compare_ops();
    compare_tables();
    return std::move(graph_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void differ(fmt::format_string<Args...> format, Args&&... args) const {
    throw Different{fmt::format(format, std::forward<Args>(args)...)};
  }

  // `where()` says what is merged. It is called for a message alone, as a step has many numbers.
  template <typename Where>
  ir::Affine merge(const ir::Affine& a, const ir::Affine& b, const Where& where) const {
    const auto fitted = fit(batch_a_, a.constant, batch_b_, b.constant);
    if (!fitted) {
      differ("{} has {} with {} samples and {} with {}", where(), a.constant, batch_a_, b.constant,
             batch_b_);
    }
    return *fitted;
  }

  template <typename Where>
  void merge(std::vector<ir::Affine>& a, const std::vector<ir::Affine>& b,
             const Where& where) const {
    if (a.size() != b.size()) {
      differ("{} has {} numbers with {} samples and {} with {}", where(), a.size(), batch_a_,
             b.size(), batch_b_);
    }
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = merge(a[i], b[i], where);
  }

  // Of two that differ.
  template <typename Where>
  ir::Argument merge(const ir::Argument& a, const ir::Argument& b, const Where& where) const {
    if (a.index() == b.index()) {
      if (const auto* number = std::get_if<ir::Affine>(&a)) {
        return merge(*number, std::get<ir::Affine>(b), where);
      }
      if (const auto* numbers = std::get_if<std::vector<ir::Affine>>(&a)) {
        std::vector<ir::Affine> merged = *numbers;
        merge(merged, std::get<std::vector<ir::Affine>>(b), where);
        return merged;
      }
      if (const auto* number = std::get_if<double>(&a)) {
        return merge_real(*number, std::get<double>(b), where);
      }
    }
    differ("{} takes another argument with {} samples than with {}", where(), batch_a_, batch_b_);
  }

  template <typename Where>
  ir::Argument merge_real(double a, double b, const Where& where) const {
    if (same_bits(a, b)) return a;  // not a number, say
    const auto fitted = fit(batch_a_, a, batch_b_, b);
    if (!fitted) {
      differ("{} has the number {} in one run ({} samples) and {} in another ({})", where(), a,
             batch_a_, b, batch_b_);
    }
    return *fitted;
  }

  template <typename Where>
  void merge_type(ir::ValueId id, const Where& where) {
    ir::TensorType& a = graph_.values[id.value].type;
    const ir::TensorType& b = second_.value(id).type;
    if (a.dtype != b.dtype || a.layout != b.layout) {
      differ("{} makes tensors of two types", where());
    }
    merge(a.sizes, b.sizes, [&] { return fmt::format("{}: a result", where()); });
    for (const ir::Affine& size : a.sizes) {
      if (size.per_sample < 0 || size.constant < 0) {
        differ("{}: a size of {} * B {} does not exist for every batch", where(), size.per_sample,
               size.constant);
      }
    }
    merge(a.strides, b.strides, [&] { return fmt::format("{}: strides of a result", where()); });
    a.offset = merge(a.offset, b.offset,
                     [&] { return fmt::format("{}: the offset of a result", where()); });
  }

  void merge_storage(ir::StorageId id) {
    ir::Storage& a = graph_.storages[id.value];
    const ir::Storage& b = second_.storages[id.value];
    if (a.kind != b.kind) differ("a tensor uses different tensors in two runs");
    a.bytes = merge(a.bytes, b.bytes, [] { return "a tensor: memory"; });
  }

  void compare_ops() {
    const std::size_t count = std::min(first_.ops.size(), second_.ops.size());
    for (std::size_t i = 0; i < count; ++i) {
      const ir::Op& a = first_.ops[i];
      const ir::Op& b = second_.ops[i];
      const auto where = [&] { return describe(first_, a); };
      const bool same = a.name == b.name && a.overload == b.overload && a.results == b.results &&
                        a.writes == b.writes && a.phase == b.phase &&
                        a.arguments.size() == b.arguments.size();
      if (!same) {
        differ("the step does {} in one run ({} samples) where it does {} in another ({})", where(),
               batch_a_, describe(second_, b), batch_b_);
      }
      for (std::size_t j = 0; j < a.arguments.size(); ++j) {
        if (a.arguments[j] == b.arguments[j]) continue;
        graph_.ops[i].arguments[j] = merge(a.arguments[j], b.arguments[j], where);
      }
      ir::for_each_result(a, [&](ir::ValueId result) { check_value(result, where); });
    }
    if (first_.ops.size() != second_.ops.size()) {
      differ("the step does {} ops in one run ({} samples) and {} in another ({})",
             first_.ops.size(), batch_a_, second_.ops.size(), batch_b_);
    }
  }

  template <typename Where>
  void check_value(ir::ValueId id, const Where& where) {
    if (id.value >= second_.values.size()) differ("{} makes other tensors in two runs", where());
    const ir::Value& a = first_.value(id);
    const ir::Value& b = second_.value(id);
    if (a.storage != b.storage || a.version != b.version || a.slot != b.slot) {
      differ("{} shares memory with other tensors in two runs", where());
    }
    merge_type(id, where);
  }

  // The op that reads it first, in words.
  std::string reader_of(ir::ValueId id) const {
    for (const ir::Op& op : first_.ops) {
      bool reads = false;
      ir::for_each_read(op, [&](ir::ValueId read) { reads |= read == id; });
      if (reads) return describe(first_, op);
    }
    return "the step";
  }

  void compare_constants() {
    if (first_.constants.size() != second_.constants.size()) {
      differ(
          "the step reads {} tensors made outside of libtorch's ops in one run and {} in another",
          first_.constants.size(), second_.constants.size());
    }
    for (std::size_t i = 0; i < first_.constants.size(); ++i) {
      const ir::Constant& a = first_.constants[i];
      const ir::Constant& b = second_.constants[i];
      if (a.name != b.name || a.value != b.value || a.digest != b.digest) {
        differ("{} reads a tensor that was made on the host and differs between two runs",
               reader_of(a.value));
      }
    }
  }

  void compare_tables() {
    compare_constants();
    const bool same = first_.inputs.size() == second_.inputs.size() &&
                      first_.variables == second_.variables && first_.buffers == second_.buffers &&
                      first_.outputs == second_.outputs &&
                      first_.values.size() == second_.values.size() &&
                      first_.storages.size() == second_.storages.size();
    if (!same) differ("the step uses other parameters, buffers or outputs in two runs");
    for (const ir::Input& input : first_.inputs) {
      check_value(input.value, [&] { return input.name; });
    }
    for (std::size_t i = 0; i < first_.values.size(); ++i) {
      if (first_.values[i].type == graph_.values[i].type) {
        merge_type(ir::ValueId(i), [] { return "a view"; });
      }
    }
    for (std::size_t i = 0; i < first_.storages.size(); ++i) {
      merge_storage(ir::StorageId(i));
    }
  }

  const ir::Graph& first_;
  const ir::Graph& second_;
  std::int64_t batch_a_;
  std::int64_t batch_b_;
  ir::Graph graph_;
};

}  // namespace

std::optional<ir::Affine> fit(std::int64_t batch_a, std::int64_t a, std::int64_t batch_b,
                              std::int64_t b) {
  if (a == b) return ir::Affine{0, a};
  if (batch_a == batch_b || (b - a) % (batch_b - batch_a) != 0) return std::nullopt;
  const std::int64_t slope = (b - a) / (batch_b - batch_a);
  return ir::Affine{slope, a - slope * batch_a};
}

std::optional<ir::Quotient> fit(std::int64_t batch_a, double a, std::int64_t batch_b, double b) {
  const auto whole_a = as_integer(a);
  const auto whole_b = as_integer(b);
  if (whole_a && whole_b) {
    const auto numerator = fit(batch_a, *whole_a, batch_b, *whole_b);
    if (numerator) return ir::Quotient{*numerator, {0, 1}};
  }
  for (std::int64_t k = 1; k <= 8; ++k) {
    const auto below_a = denominator_of(a, static_cast<double>(k));
    const auto below_b = denominator_of(b, static_cast<double>(k));
    if (!below_a || !below_b) continue;
    const auto denominator = fit(batch_a, *below_a, batch_b, *below_b);
    if (denominator) return ir::Quotient{{0, k}, *denominator};
  }
  return std::nullopt;
}

std::string contradiction(const ir::Graph& symbolic, const ir::Graph& recording) {
  const std::int64_t batch = recording.example_batch;
  for (std::size_t i = 0; i < symbolic.ops.size() && i < recording.ops.size(); ++i) {
    const ir::Op& op = symbolic.ops[i];
    const ir::Op& seen = recording.ops[i];
    bool same = op.name == seen.name && op.arguments.size() == seen.arguments.size();
    for (std::size_t j = 0; same && j < op.arguments.size(); ++j) {
      same = at(op.arguments[j], batch) == seen.arguments[j];
    }
    if (same) continue;
    return fmt::format("{} takes a number that is not affine in the batch", describe(symbolic, op));
  }
  return "";
}

Unified unify(const ir::Graph& first, const ir::Graph& second) {
  try {
    return {Unifier(first, second).run(), ""};
  } catch (const Different& different) {
    return {{}, different.what};
  }
}

}  // namespace autodist::capture
