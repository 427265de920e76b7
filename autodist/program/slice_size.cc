#include "autodist/program/slice_size.h"

#include <algorithm>

#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"

namespace autodist::program {
namespace {

// Of a block of whole rows, of size.elements.
void add_rows(const ir::Graph& graph, ir::VariableId variable, std::int64_t batch,
              SliceSize& size) {
  const std::int64_t table = std::max<std::int64_t>(1, ir::shape_of(graph, variable)[0]);
  size.row_elements = std::max<std::int64_t>(1, element_count(graph, variable) / table);
  const std::int64_t rows = size.elements / size.row_elements;
  size.touched_rows = rows;
  const auto read = ir::rows_read(graph, variable);
  if (!read) return;
  std::int64_t lookups = 0;
  for (ir::ValueId numbers : *read) {
    lookups += element_count(graph.value(numbers).type, batch);
  }
  size.touched_rows = std::min(rows, (lookups * rows + table - 1) / table);
}

void add_factors(const ir::Graph& graph, ir::VariableId variable, std::int64_t batch,
                 SliceSize& size) {
  const auto factors = ir::factors_of(graph, variable);
  if (factors) size.factor_elements = element_count(graph, *factors, batch);
}

}  // namespace

SliceSize size_of(const Program& program, const Slice& slice, std::int64_t batch) {
  SliceSize size;
  size.elements = element_count(slice);
  size.dtype = slice.dtype;
  size.members = static_cast<std::int64_t>(slice.members.size());
  const ir::VariableId variable = program.shard(slice.pieces.front().shard).variable;
  if (!sums_all_elements(slice.exchange)) add_rows(*program.graph, variable, batch, size);
  if (sums_products(slice.exchange)) add_factors(*program.graph, variable, batch, size);
  return size;
}

SliceSize size_of(const ir::Graph& graph, ir::VariableId variable, std::int64_t members,
                  std::int64_t batch) {
  SliceSize size;
  size.elements = element_count(graph, variable);
  size.dtype = graph.value(graph.variable(variable).value).type.dtype;
  size.members = members;
  if (ir::trained_by_rows(graph.variable(variable))) add_rows(graph, variable, batch, size);
  add_factors(graph, variable, batch, size);
  return size;
}

VariableLoads loads_of(const Program& program, ir::VariableId variable, std::int64_t batch) {
  return loads_of(program, variable,
                  [&](SliceId slice) { return loads_of(program, program.slice(slice), batch); });
}

VariableLoads loads_of(const Program& program, ir::VariableId variable,
                       const std::function<Loads(SliceId)>& of_slice) {
  const Bytes all = bytes_of(*program.graph, variable);
  VariableLoads loads{all, all, all, {}};
  const Exchange exchange = program.exchange(variable);
  const DType dtype = program.graph->value(program.graph->variable(variable).value).type.dtype;
  if (is_cast(exchange, dtype)) {
    loads.staged = Bytes(contribution_bytes(contribution_form(exchange).codec, dtype,
                                            element_count(*program.graph, variable)));
  }
  const bool sums_all = sums_all_elements(exchange);
  const bool installs_all = sums_all && keeps_whole_copies(exchange);
  if (installs_all && !sums_products(exchange)) return loads;
  Loads parts;  // of its slices, which no other variable shares
  for (const SliceId slice : program.plan(variable).slices) {
    const Loads part = of_slice(slice);
    parts.contribution += part.contribution;
    parts.result += part.result;
    parts.fetched += part.fetched;
  }
  if (!sums_all) loads.gradient = parts.contribution;
  if (!sums_all || sums_products(exchange)) loads.staged = parts.contribution;
  if (!installs_all) {
    loads.installed = parts.result;
    loads.fetched = parts.fetched;
  }
  return loads;
}

LibraryLoads loads_of(const ir::Graph& graph, const Collective& collective) {
  LibraryLoads all;
  for (const ir::VariableId variable : collective.variables) {
    const LibraryLoads each = loads_of(collective.exchange, ir::shape_of(graph, variable));
    all.first += each.first;
    all.second += each.second;
    all.factored += each.factored;
    all.kept += each.kept;
  }
  return all;
}

}  // namespace autodist::program
