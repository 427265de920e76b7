#include "autodist/ir/graph_item.h"

#include <algorithm>
#include <map>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/text.h"

namespace autodist::ir {

bool operator==(const ItemNode&, const ItemNode&) = default;
bool operator==(const ItemVariable&, const ItemVariable&) = default;
bool operator==(const ItemGradient&, const ItemGradient&) = default;
bool operator==(const GraphItem&, const GraphItem&) = default;

void add_variable(GraphItem& item, ItemVariable variable) {
  item.nodes.push_back({variable.name, "VarHandleOp", {}, ""});
  item.variables.push_back(std::move(variable));
}

std::map<std::string, const ItemGradient*> gradients_by_variable(const GraphItem& item) {
  std::map<std::string, const ItemGradient*> found;
  for (const ItemGradient& each : item.gradients) found.emplace(each.target, &each);
  return found;
}

Bytes bytes_of(const ItemVariable& variable) {
  if (!variable.dtype || !variable.shape) return {};
  auto bytes = static_cast<std::int64_t>(size_of(*variable.dtype));
  for (const std::int64_t size : *variable.shape) bytes *= size;
  return Bytes(bytes);
}

std::vector<std::pair<std::string, std::size_t>> ops_by_kind(const GraphItem& item) {
  std::map<std::string, std::size_t> counts;
  for (const ItemNode& node : item.nodes) ++counts[node.op];
  std::vector<std::pair<std::string, std::size_t>> kinds(counts.begin(), counts.end());
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return kinds;
}

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;  // a few times that can be added

std::string totals(const GraphItem& item, std::size_t kinds) {
  const auto gradients = gradients_by_variable(item);
  std::size_t trainable = 0;
  std::size_t sparse = 0;
  double bytes = 0;  // the sum may be more than 2^63
  for (const ItemVariable& variable : item.variables) {
    if (!variable.trainable) continue;
    ++trainable;
    bytes += static_cast<double>(bytes_of(variable).value);
    const auto gradient = gradients.find(variable.name);
    sparse += gradient != gradients.end() && gradient->second->sparse() ? 1 : 0;
  }
  const Bytes shown(static_cast<std::int64_t>(std::min(bytes, 9e18)));
  return fmt::format("{:<16}{} ops of {} kinds\n{:<16}{}, {} trainable with {}, {} sparse\n",
                     "graph_item", item.nodes.size(), kinds, "variables", item.variables.size(),
                     trainable, to_string(shown), sparse);
}

std::vector<std::string> row_of(const ItemVariable& variable, const ItemGradient* gradient) {
  std::string use = gradient == nullptr ? "none" : gradient->sparse() ? "sparse" : "dense";
  if (!variable.trainable) use = "not trainable";
  const bool sized = variable.dtype && variable.shape;
  return {one_line(variable.name),
          variable.shape ? fmt::format("[{}]", fmt::join(*variable.shape, ",")) : "?",
          variable.dtype ? std::string(name_of(*variable.dtype)) : "?",
          sized ? to_string(bytes_of(variable)) : "?", use};
}

}  // namespace

std::string to_text(const GraphItem& item, std::size_t most_kinds) {
  const auto kinds = ops_by_kind(item);
  std::vector<std::vector<std::string>> rows{{"ops", "kind"}};
  const std::size_t shown = most_kinds == 0 ? kinds.size() : std::min(kinds.size(), most_kinds);
  for (std::size_t i = 0; i < shown; ++i) {
    rows.push_back({std::to_string(kinds[i].second), one_line(kinds[i].first)});
  }
  std::string text = totals(item, kinds.size()) + "\n" + align(rows, "", {0});
  if (kinds.size() > shown) {
    text += fmt::format("… and {} rarer kinds\n", kinds.size() - shown);
  }
  const auto gradients = gradients_by_variable(item);
  rows = {{"variable", "shape", "dtype", "size", "gradient"}};
  for (const ItemVariable& variable : item.variables) {
    const auto gradient = gradients.find(variable.name);
    rows.push_back(row_of(variable, gradient == gradients.end() ? nullptr : gradient->second));
  }
  return text + "\n" + align(rows, "", {2, 3});
}

Graph variables_of(const GraphItem& item, const std::string& where) {
  const auto gradients = gradients_by_variable(item);
  GraphBuilder step(where);
  struct Trained {
    ValueId value;
    TensorType type;
    bool used;
    bool sparse;
  };
  std::vector<Trained> trained;
  Bytes total;
  for (const ItemVariable& variable : item.variables) {
    if (!variable.dtype || !variable.shape) {
      if (!variable.trainable) continue;
      fail(ErrorCode::kUsage,
           "{}: the variable '{}' has no {}: no VarHandleOp or VariableV2 of that name says it. "
           "Write the graph_item again, with its graph_def.",
           where, variable.name, variable.shape ? "dtype" : "shape");
    }
    total += bytes_of(variable);
    if (total.value > kMostBytes) {
      fail(ErrorCode::kUsage,
           "{}: its variables have more than 2^60 bytes. Write it of a smaller model.", where);
    }
    std::vector<Affine> sizes;
    for (const std::int64_t size : *variable.shape) sizes.push_back({0, size});
    const TensorType type = contiguous(sizes, *variable.dtype);
    if (!variable.trainable) {
      step.buffer(variable.name, type);
      continue;
    }
    const auto found = gradients.find(variable.name);
    const bool paired = found != gradients.end();
    trained.push_back({step.variable(variable.name, type), type, paired || item.gradients.empty(),
                       paired && found->second->sparse() && !sizes.empty()});
  }
  if (trained.empty()) {
    fail(ErrorCode::kUsage, "{}: no variable is trainable. Write it of a model that trains some.",
         where);
  }
  std::vector<ValueId> uses;
  for (const Trained& each : trained) {
    uses.push_back(step.op("graph_item::use", {each.value}, each.type));
  }
  step.backward();
  for (std::size_t i = trained.size(); i-- > 0;) {
    if (!trained[i].used) continue;
    step.gradient(trained[i].value, step.op("graph_item::gradient", {uses[i]}, trained[i].type),
                  trained[i].sparse);
  }
  Graph graph = step.finish();
  graph.batch_fixed_reason = "a graph_item does not say what depends on the batch";
  return graph;
}

}  // namespace autodist::ir
