#include "autodist/ir/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "autodist/base/text.h"

namespace autodist::ir {

std::string to_string(const Affine& affine) {
  if (affine.per_sample == 0) return std::to_string(affine.constant);
  std::string text = affine.per_sample == 1    ? "B"
                     : affine.per_sample == -1 ? "-B"
                                               : fmt::format("{}B", affine.per_sample);
  if (affine.constant != 0) text += fmt::format("{:+}", affine.constant);
  return text;
}

namespace {

template <typename Item, typename TextOf>
std::string list(const std::vector<Item>& items, const TextOf& text_of) {
  std::vector<std::string> parts;
  for (const auto& item : items) parts.push_back(text_of(item));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string list(const std::vector<Affine>& affines) {
  return list(affines, [](const Affine& affine) { return to_string(affine); });
}

// A size of 1 (or an empty tensor) leaves its stride free, so only strides that are walked count.
bool is_row_major(const TensorType& type) {
  Affine expected{0, 1};
  for (std::size_t i = type.sizes.size(); i-- > 0;) {
    const Affine size = type.sizes[i];
    if (!(type.strides[i] == expected) && !(size == Affine{0, 1})) return false;
    if (size.per_sample != 0 && i > 0 && expected.per_sample != 0) return false;
    expected = {size.per_sample * expected.constant + size.constant * expected.per_sample,
                size.constant * expected.constant};
  }
  return true;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

struct ArgumentText {
  const Names& names;

  std::string operator()(None) const { return "none"; }
  std::string operator()(ValueId value) const { return names.of(value); }
  std::string operator()(const Values& values) const {
    return list(values, [&](const auto& value) { return value ? names.of(*value) : "none"; });
  }
  std::string operator()(const Affine& affine) const { return to_string(affine); }
  std::string operator()(const Quotient& quotient) const {
    return fmt::format("({})/({})", to_string(quotient.numerator), to_string(quotient.denominator));
  }
  std::string operator()(double number) const { return fmt::format("{:#}", number); }
  std::string operator()(std::complex<double> number) const {
    return fmt::format("{:#}{:+#}j", number.real(), number.imag());
  }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(const std::string& text) const { return quoted(text); }
  std::string operator()(const std::vector<Affine>& affines) const { return list(affines); }
  std::string operator()(const std::vector<double>& numbers) const { return list(numbers, *this); }
  std::string operator()(const std::vector<bool>& flags) const { return list(flags, *this); }
  std::string operator()(RankDevice) const { return "rank_device"; }
  std::string operator()(HostDevice) const { return "host"; }
  std::string operator()(RankGenerator) const { return "generator"; }
};

}  // namespace

std::string to_string(const TensorType& type) {
  std::string text(name_of(type.dtype));
  text += list(type.sizes);
  if (type.layout == Layout::kSparseCoo) return text + " sparse";
  if (!is_row_major(type)) text += " strides" + list(type.strides);
  if (!(type.offset == Affine{})) text += " offset=" + to_string(type.offset);
  return text;
}

std::string name_of(Phase phase) { return phase == Phase::kForward ? "fwd" : "bwd"; }

std::string full_name(const Op& op) {
  return op.overload.empty() ? op.name : fmt::format("{}.{}", op.name, op.overload);
}

std::string in_scope(const Graph& graph, const Op& op) {
  const std::string& scope = graph.scopes[op.scope.value];
  return scope.empty() ? "" : fmt::format(" in {}", scope);
}

Names::Names(const Graph& graph) : graph_(graph), slots_(graph.slot_count) {
  const auto name = [&](const auto& named) {
    for (const auto& each : named) slots_[graph.value(each.value).slot.value] = each.name;
  };
  name(graph.variables);
  name(graph.buffers);
  name(graph.constants);
  for (const Input& input : graph.inputs) {
    const bool like_a_number = input.name.empty() || (input.name[0] >= '0' && input.name[0] <= '9');
    slots_[graph.value(input.value).slot.value] = (like_a_number ? "%input." : "%") + input.name;
  }
}

std::string Names::of(ValueId id) const {
  const Value& value = graph_.value(id);
  const std::string& name = slots_[value.slot.value];
  if (name.empty()) return fmt::format("%{}", id);
  return value.version == 0 ? name : fmt::format("{}@{}", name, value.version);
}

std::string to_string(const Names& names, const Op& op, ShowTypes types) {
  const ArgumentText print{names};
  std::vector<std::string> results;
  for (const Result& result : op.results) {
    results.push_back(std::visit(print, result));
    const auto* value = std::get_if<ValueId>(&result);
    if (value && types == ShowTypes::kYes) {
      results.back() += ": " + to_string(names.graph().value(*value).type);
    }
  }
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    const bool written = std::find(op.writes.begin(), op.writes.end(), i) != op.writes.end();
    arguments.push_back((written ? "!" : "") + std::visit(print, op.arguments[i]));
  }
  return fmt::format("{}{}{}({})", fmt::join(results, ", "), results.empty() ? "" : " = ",
                     full_name(op), fmt::join(arguments, ", "));
}

std::string to_string(const UpdateRule& update) {
  std::string text = name_of(update.rule);
  if (!update.user_rule.empty()) text += " " + update.user_rule;
  for (const auto& [option, value] : update.options) text += fmt::format(" {}={}", option, value);
  return text;
}

std::string flops_text(std::int64_t flops) {
  static constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  double scaled = static_cast<double>(flops);
  std::size_t unit = 0;
  for (; scaled >= 1000 && unit + 1 < std::size(kUnits); ++unit) scaled /= 1000;
  return unit == 0 ? fmt::format("{} FLOP", flops) : fmt::format("{:.2f} {}", scaled, kUnits[unit]);
}

std::string precision_of(const Graph& graph) {
  if (graph.variables.empty()) return "no variables";
  const DType first = graph.value(graph.variables.front().value).type.dtype;
  const bool is_one = std::all_of(
      graph.variables.begin(), graph.variables.end(),
      [&](const Variable& each) { return graph.value(each.value).type.dtype == first; });
  std::string name(name_of(first));
  if (is_floating(first)) name.replace(name.find('f'), 1, "float");  // as users write it
  return name + (is_one ? "" : ", …");
}

std::int64_t sequence_length(const Graph& graph) {
  std::int64_t longest = 0;
  for (const Input& input : graph.inputs) {
    const TensorType& type = graph.value(input.value).type;
    const bool whole_numbers = type.dtype == DType::kInt32 || type.dtype == DType::kInt64;
    if (!input.batched || !whole_numbers || type.sizes.size() != 2) continue;
    if (type.sizes[1].per_sample != 0) continue;
    longest = std::max(longest, type.sizes[1].constant);
  }
  return longest > 1 ? longest : 0;
}

std::string batch_text(const Graph& graph, std::int64_t samples, const std::string& precision) {
  const std::int64_t length = sequence_length(graph);
  return length > 0 ? fmt::format("{} sequences of {}, {}", samples, length, precision)
                    : fmt::format("{}, {}", samples, precision);
}

std::string align(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                  const std::vector<std::size_t>& right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns_of(row[i]), ' ');
      const bool to_the_right = std::find(right.begin(), right.end(), i) != right.end();
      line += to_the_right ? padding + row[i] : row[i] + padding;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace autodist::ir
