#include "autodist/ir/testing/random_graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "autodist/ir/graph_builder.h"

namespace autodist::ir {
namespace {

class RandomWriter {
 public:
  explicit RandomWriter(std::mt19937& random) : random_(random), step_("random", 1 + below(8)) {}

  Graph write(int max_ops) {
    add_tensors();
    const int ops = 1 + below(max_ops);
    for (int i = 0; i < ops; ++i) {
      if (i == ops / 2) step_.backward();
      step_.scope(below(3) == 0 ? "" : "layer." + std::to_string(below(4)));
      add_op();
    }
    if (!made_.empty()) {
      step_.output(step_.current(pick(made_)));
      for (ValueId variable : variables_) {
        if (below(4) != 0) step_.gradient(variable, step_.current(pick(made_)), below(5) == 0);
      }
    }
    Graph graph = step_.finish();
    graph.libtorch_version = "1.13.1";
    if (below(4) == 0) graph.batch_fixed_reason = "aten::view in layer.1 is not affine";
    if (below(2) == 0) graph.reduction = Reduction::kSum;
    if (below(2) == 0) graph.clips.push_back({0.5, {VariableId(0)}});
    graph.schedule = {Schedule::Kind::kCosine, below(10), 1 + below(100), 0.1};
    if (below(2) == 0) graph.variables[0].aliases.push_back("tied.weight");
    return graph;
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  ValueId pick(const std::vector<ValueId>& values) { return values[random_() % values.size()]; }

  TensorType type() {
    TensorType type = below(2) == 0 ? contiguous({batch(), 1 + below(9)})
                                    : contiguous({1 + below(9), 1 + below(9)});
    if (below(5) == 0) type.dtype = DType::kInt64;
    if (below(7) == 0) type.offset = {below(3), below(3)};
    return type;
  }

  void add_tensors() {
    for (int i = 0; i <= below(3); ++i) {
      readable_.push_back(step_.input("x" + std::to_string(i), type(), below(3) != 0));
    }
    for (int i = 0; i <= below(5); ++i) {
      UpdateRule update{Rule::kAdam, {{"lr", 0.001 * (1 + below(9))}, {"beta1", 0.9}}, ""};
      variables_.push_back(step_.variable("w" + std::to_string(i), contiguous({1 + below(5), 3}),
                                          std::move(update)));
      readable_.push_back(variables_.back());
    }
    for (int i = 0; i < below(3); ++i) {
      writable_.push_back(step_.buffer("b" + std::to_string(i), contiguous({4})));
      readable_.push_back(writable_.back());
    }
    readable_.push_back(
        step_.constant("", contiguous({3}, DType::kUInt8), std::string("\0\1\2", 3)));
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> arguments{pick(readable_)};
    const std::vector<Argument> others{None{},
                                       Affine{1, -2},
                                       Affine{0, 7},
                                       0.5,
                                       true,
                                       std::string("reflect"),
                                       std::vector<Affine>{{0, 2}, {3, 0}},
                                       std::vector<Affine>{{0, 2}, {0, -1}},
                                       std::vector<Affine>{},
                                       std::vector<double>{0.25, -1e300},
                                       std::vector<bool>{true, false},
                                       RankDevice{},
                                       HostDevice{},
                                       RankGenerator{},
                                       pick(readable_),
                                       Values{pick(readable_), std::nullopt, pick(readable_)}};
    for (int i = 0; i < below(4); ++i) {
      arguments.push_back(others[random_() % others.size()]);
    }
    return arguments;
  }

  Effects effects() {
    Effects effects;
    effects.random = below(6) == 0;
    effects.cost = {Seconds(below(1000) * 1e-6), Seconds(below(1000) * 1e-7)};
    effects.flops = {below(1 << 20), below(3)};
    effects.bytes_moved = {below(1 << 10), 0};
    return effects;
  }

  void add_op() {
    const int kind = below(5);
    if (kind == 0 && !writable_.empty()) {
      std::vector<Argument> given = arguments();
      given.front() = pick(writable_);
      const bool was_made = is_made(std::get<ValueId>(given.front()));
      remember(step_.in_place("aten::add_", given, effects()), was_made);
    } else if (kind == 1) {
      TensorType viewed = type();
      const ValueId base = pick(made_.empty() ? readable_ : made_);
      remember(step_.view("aten::view", base, std::move(viewed)), is_made(base));
    } else if (kind == 2 && !writable_.empty()) {
      std::vector<Argument> given{pick(readable_), pick(writable_)};
      Effects writing = effects();
      writing.writes = {1};
      remember(step_.op("aten::native_batch_norm", given, type(), writing), true);
    } else {
      for (ValueId value : step_.op("aten::op" + std::to_string(kind), arguments(),
                                    std::vector<TensorType>(1 + below(2), type()), effects())) {
        remember(value, true);
        writable_.push_back(value);
      }
    }
  }

  [[nodiscard]] bool is_made(ValueId value) const {
    return std::find(made_.begin(), made_.end(), value) != made_.end();
  }
  // `by_op`: an op of the step made its storage.
  void remember(ValueId value, bool by_op) {
    readable_.push_back(value);
    if (by_op) made_.push_back(value);
  }

  std::mt19937& random_;
  GraphBuilder step_;
  std::vector<ValueId> variables_;
  std::vector<ValueId> readable_;
  std::vector<ValueId> writable_;
  std::vector<ValueId> made_;  // by ops of the step: what a gradient can be
};

}  // namespace

Graph random_graph(std::mt19937& random, int max_ops) {
  return RandomWriter(random).write(max_ops);
}

}  // namespace autodist::ir
