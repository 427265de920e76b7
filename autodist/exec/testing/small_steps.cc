#include "autodist/exec/testing/small_steps.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>

#include "autodist/ir/graph_builder.h"

namespace autodist::exec::testing {
namespace {

using ir::batch;
using ir::contiguous;
using ir::ValueId;

constexpr DType kType = DType::kFloat64;
constexpr torch::ScalarType kTorchType = torch::kFloat64;

ir::TensorType transposed(ir::TensorType type) {
  std::swap(type.sizes[0], type.sizes[1]);
  std::swap(type.strides[0], type.strides[1]);
  return type;
}

ir::Affine constant(std::int64_t value) { return {0, value}; }

// "aten::sum.dim_IntList" names op and overload.
void split_overloads(ir::Graph& graph) {
  for (ir::Op& op : graph.ops) {
    const std::size_t dot = op.name.find('.');
    if (dot == std::string::npos) continue;
    op.overload = op.name.substr(dot + 1);
    op.name.resize(dot);
  }
}

struct Cut {
  std::vector<program::Shard> shards;
};

Cut cut(const ir::Graph& graph, ir::VariableId variable, const Plan& plan) {
  const std::vector<std::int64_t> shape = shape_of(graph, variable);
  const std::uint32_t axis = plan.axis < shape.size() ? plan.axis : 0;
  const auto parts = static_cast<std::uint32_t>(std::min<std::int64_t>(plan.parts, shape[axis]));
  Cut result;
  for (std::uint32_t part = 0; part < parts; ++part) {
    const auto [begin, end] = program::replica_rows(shape[axis], part, parts);
    const std::int64_t elements = element_count(graph, variable) / shape[axis] * (end - begin);
    std::string name = graph.variable(variable).name;
    if (parts > 1) name += "/part_" + std::to_string(part);
    result.shards.push_back({variable, name, axis, begin, end, elements});
  }
  return result;
}

void add_slices(program::Program& program, const Plan& plan,
                const std::vector<program::Rank>& members) {
  const ir::Graph& graph = *program.graph;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId variable(i);
    if (!graph.variables[i].gradient) continue;
    for (const program::Shard& shard : cut(graph, variable, plan).shards) {
      const program::ShardId id(program.shards.size());
      program.shards.push_back(shard);
      for (std::int64_t begin = 0; begin < shard.elements; begin += plan.slice_elements) {
        const std::int64_t end = std::min(shard.elements, begin + plan.slice_elements);
        if (plan.fuse && !program.slices.empty()) {
          program.slices.front().pieces.push_back({id, begin, end});
        } else {
          program::Slice slice;
          slice.pieces = {{id, begin, end}};
          slice.dtype = graph.value(graph.variables[i].value).type.dtype;
          slice.owner =
              program::Rank(plan.owner(static_cast<std::uint32_t>(program.slices.size())));
          slice.needed = Seconds(1e-3 * static_cast<double>(i));
          slice.members = members;
          slice.exchange.order = program::Versions{0, plan.update_at};
          program.slices.push_back(slice);
        }
        auto& slices = program.variables[i].slices;
        const program::SliceId last(program.slices.size() - 1);
        if (slices.empty() || slices.back() != last) slices.push_back(last);
      }
    }
  }
}

program::Stream compute_stream(const ir::Graph& graph, bool alone) {
  program::Stream stream;
  auto& list = stream.instructions;
  const auto each = [&](auto visit) {
    for (std::size_t i = 0; i < graph.variables.size(); ++i) {
      if (graph.variables[i].gradient) visit(ir::VariableId(i), graph.variables[i]);
    }
  };
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::OpId op(i);
    each([&](ir::VariableId id, const ir::Variable& variable) {
      if (variable.first_use == op) list.emplace_back(program::Gate{id});
    });
    list.emplace_back(program::Compute{op});
    each([&](ir::VariableId id, const ir::Variable& variable) {
      if (variable.gradient_complete == op) {
        list.emplace_back(program::Contribute{id, *variable.gradient});
      }
    });
    each([&](ir::VariableId id, const ir::Variable& variable) {
      if (variable.last_read == op) list.emplace_back(program::Release{id});
    });
  }
  if (alone)
    each([&](ir::VariableId id, const ir::Variable&) { list.emplace_back(program::Update{id}); });
  return stream;
}

}  // namespace

std::shared_ptr<ir::Graph> two_layers(const ir::UpdateRule& rule, bool unused) {
  ir::GraphBuilder step("two layers", 4);
  const ValueId x = step.input("x", contiguous({batch(), 5}, kType));
  const ValueId target = step.input("target", contiguous({batch(), 3}, kType));
  const ValueId w1 = step.variable("w1", contiguous({6, 5}, kType), rule);
  const ValueId b1 = step.variable("b1", contiguous({6}, kType), rule);
  if (unused) step.variable("unused", contiguous({4, 4}, kType), rule);
  const ValueId w2 = step.variable("w2", contiguous({3, 6}, kType), rule);
  const ValueId b2 = step.variable("b2", contiguous({3}, kType), rule);
  const auto wide = contiguous({batch(), 6}, kType);
  const auto narrow = contiguous({batch(), 3}, kType);
  const ir::Argument one = constant(1);

  const ValueId w1_t = step.view("aten::t", w1, transposed(contiguous({6, 5}, kType)));
  const ValueId before = step.op("aten::addmm", {b1, x, w1_t, one, one}, wide);
  const ValueId hidden = step.op("aten::relu", {before}, wide);
  const ValueId w2_t = step.view("aten::t", w2, transposed(contiguous({3, 6}, kType)));
  const ValueId y = step.op("aten::addmm", {b2, hidden, w2_t, one, one}, narrow);
  const ValueId loss = step.op("aten::mse_loss", {y, target, one}, contiguous({}, kType));
  step.output(loss);

  step.backward();
  const ir::Argument none = ir::None{};
  const ValueId ones =
      step.op("aten::ones_like", {loss, none, none, none, none, none}, contiguous({}, kType));
  const ValueId dy = step.op("aten::mse_loss_backward", {ones, y, target, one}, narrow);
  const std::vector<ir::Affine> rows{constant(0)};
  const auto sum = [&](ValueId value, std::int64_t size) {
    return step.op("aten::sum.dim_IntList", {value, rows, false, none}, contiguous({size}, kType));
  };
  const ValueId db2 = sum(dy, 3);
  const ValueId dy_t = step.view("aten::t", dy, transposed(narrow));
  const ValueId dw2 = step.op("aten::mm", {dy_t, hidden}, contiguous({3, 6}, kType));
  const ValueId dhidden = step.op("aten::mm", {dy, w2}, wide);
  const ValueId dbefore = step.op("aten::threshold_backward", {dhidden, hidden, constant(0)}, wide);
  const ValueId db1 = sum(dbefore, 6);
  const ValueId dbefore_t = step.view("aten::t", dbefore, transposed(wide));
  const ValueId dw1 = step.op("aten::mm", {dbefore_t, x}, contiguous({6, 5}, kType));
  step.gradient(w1, dw1);
  step.gradient(b1, db1);
  step.gradient(w2, dw2);
  step.gradient(b2, db2);
  auto graph = std::make_shared<ir::Graph>(step.finish());
  split_overloads(*graph);
  return graph;
}

torch::Tensor two_layers_loss(const std::vector<torch::Tensor>& variables, const Batch& batch) {
  const torch::Tensor hidden = torch::relu(torch::linear(batch[0], variables[0], variables[1]));
  const std::size_t second = variables.size() - 2;
  return torch::mse_loss(torch::linear(hidden, variables[second], variables[second + 1]), batch[1]);
}

std::vector<torch::Tensor> initial_values(const ir::Graph& graph, std::uint64_t seed) {
  // Not a clone of the default generator: libtorch 1.13 never frees one.
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<torch::Tensor> values;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    values.push_back(torch::randn(shape_of(graph, ir::VariableId(i)), generator,
                                  torch::TensorOptions(torch::kFloat64)) *
                     0.5);
  }
  return values;
}

Batch random_batch(std::int64_t samples, std::uint64_t seed) {
  // Not a clone of the default generator: libtorch 1.13 never frees one.
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::TensorOptions options(torch::kFloat64);
  return {torch::randn({samples, 5}, generator, options),
          torch::randn({samples, 3}, generator, options)};
}

Batch rows_of(const Batch& batch, std::uint32_t index, std::uint32_t count) {
  const auto [begin, end] = program::replica_rows(batch[0].size(0), index, count);
  Batch rows;
  for (const torch::Tensor& each : batch) rows.push_back(each.slice(0, begin, end));
  return rows;
}

std::shared_ptr<const program::Program> program_of(const std::shared_ptr<ir::Graph>& graph,
                                                   const Plan& plan) {
  auto program = std::make_shared<program::Program>();
  program->graph = graph;
  program->variables.resize(graph->variables.size());
  std::vector<program::Rank> computing;
  for (std::uint32_t rank = 0; rank < plan.ranks; ++rank) {
    program->ranks.push_back({"127.0.0.1", "127.0.0.1:CPU:" + std::to_string(rank), rank});
    computing.emplace_back(rank);
  }
  const bool alone = plan.ranks == 1 && !plan.serves;
  program::Role role{computing, {compute_stream(*graph, alone && !plan.library)}};
  if (plan.library) {
    program::Collective all;
    all.dtype = kType;
    all.members = computing;
    all.spec = "AUTO";
    program::Stream stream{program::StreamKind::kCollective, {}};
    stream.instructions.emplace_back(program::AllReduce{program::CollectiveId(0)});
    for (std::size_t i = 0; i < graph->variables.size(); ++i) {
      if (!graph->variables[i].gradient) continue;
      all.variables.emplace_back(i);
      program->variables[i].collective = program::CollectiveId(0);
      stream.instructions.emplace_back(program::Update{ir::VariableId(i)});
    }
    program->collectives.push_back(all);
    role.streams.push_back(stream);
  } else if (!alone) {
    add_slices(*program, plan, computing);
  }
  program->roles.push_back(role);
  if (plan.serves) {
    program->ranks.push_back({"127.0.0.1", "127.0.0.1:CPU:" + std::to_string(plan.ranks), {}});
    program->roles.push_back({{program::Rank(plan.ranks)}, {}});
  }
  for (std::size_t clip = 0; clip < graph->clips.size(); ++clip) {
    for (const ir::VariableId variable : graph->clips[clip].variables) {
      program->variables[variable.value].clip = program::ClipId(clip);
    }
  }
  return program;
}

std::function<std::uint32_t(std::uint32_t)> spread_over(std::uint32_t ranks) {
  return [ranks](std::uint32_t slice) { return slice % ranks; };
}

std::shared_ptr<const program::Program> owned_in_turns(ir::Rule rule,
                                                       const program::Slices& exchange,
                                                       std::uint32_t ranks) {
  Plan plan;
  plan.ranks = ranks;
  plan.owner = spread_over(ranks);
  auto program =
      std::make_shared<program::Program>(*program_of(two_layers(ir::default_rule(rule)), plan));
  for (program::Slice& slice : program->slices) slice.exchange = exchange;
  return program;
}

JobEngines::JobEngines(std::shared_ptr<const program::Program> program, RunnerOptions options,
                       comm::Collectives* collectives, const RankState& start)
    : program_(std::move(program)),
      options_(std::move(options)),
      hub_(static_cast<comm::RankNumber>(program_->ranks.size())) {
  for (std::uint32_t i = 0; i < program_->ranks.size(); ++i) {
    auto rank = std::make_unique<Rank>();
    rank->bindings.variables = initial_values(*program_->graph, 7);
    rank->transport = hub_.connect(i);
    rank->trace = std::make_unique<TraceRecorder>(clock_, program::Rank(i), false);
    rank->engine =
        std::make_unique<Engine>(*program_, program::Rank(i), rank->bindings,
                                 RunnerConnections{rank->transport.get(), collectives, &clock_},
                                 options_, *rank->trace, start);
    ranks_.push_back(std::move(rank));
  }
}

JobEngines::~JobEngines() = default;

torch::Tensor JobEngines::gradient(ir::VariableId variable, double value) {
  return torch::full(shape_of(*program_->graph, variable), value, kTorchType);
}

void JobEngines::step(std::uint64_t step) {
  const auto for_each = [&](auto visit) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t i = 0; i < program_->variables.size(); ++i) visit(rank, ir::VariableId(i));
    }
  };
  for_each([&](std::uint32_t rank, ir::VariableId variable) {
    at(rank).driver().contribute(variable, gradient(variable, rank + 1.0), step, 1);
    at(rank).driver().release(variable);
  });
  for_each([&](std::uint32_t rank, ir::VariableId variable) {
    at(rank).driver().await_settled(variable, step + 1);
  });
}

}  // namespace autodist::exec::testing
