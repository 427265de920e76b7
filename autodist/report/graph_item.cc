#include "autodist/report/graph_item.h"

#include <nlohmann/json.hpp>

namespace autodist::report {
namespace {

nlohmann::ordered_json row_of(const ir::ItemVariable& variable, const ir::ItemGradient* gradient) {
  nlohmann::ordered_json row{{"name", variable.name}, {"shape", nullptr}, {"dtype", nullptr}};
  if (variable.shape) row["shape"] = *variable.shape;
  if (variable.dtype) row["dtype"] = name_of(*variable.dtype);
  row["bytes"] = nullptr;
  if (variable.shape && variable.dtype) row["bytes"] = ir::bytes_of(variable).value;
  row["trainable"] = variable.trainable;
  row["sparse"] = gradient != nullptr && gradient->sparse();
  row["gradient"] = nullptr;
  if (gradient != nullptr) row["gradient"] = gradient->tensors;
  return row;
}

}  // namespace

std::string graph_item_json(const ir::GraphItem& item) {
  nlohmann::ordered_json json{{"kind", "graph_item"}, {"ops", item.nodes.size()}};
  json["ops_by_kind"] = nlohmann::ordered_json::object();
  for (const auto& [kind, count] : ir::ops_by_kind(item)) json["ops_by_kind"][kind] = count;
  json["variables"] = nlohmann::ordered_json::array();
  const auto gradients = ir::gradients_by_variable(item);
  for (const ir::ItemVariable& variable : item.variables) {
    const auto found = gradients.find(variable.name);
    json["variables"].push_back(
        row_of(variable, found == gradients.end() ? nullptr : found->second));
  }
  json["table_initializers"] = item.table_initializers.size();
  return json.dump();
}

}  // namespace autodist::report
