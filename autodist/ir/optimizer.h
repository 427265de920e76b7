// How variables are updated: a declared rule per variable, not traced ops, so that a rule runs on
// any shard, at the slice's owner or at every rank.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/base/id.h"

namespace autodist::ir {

// Graph files hold the numbers: new rules come at the end.
enum class Rule : std::uint8_t {
  kSgd,       // lr, momentum, dampening, weight_decay, nesterov
  kAdam,      // lr, beta1, beta2, eps, weight_decay, amsgrad
  kAdamW,     // the same, decay decoupled
  kAdagrad,   // lr, lr_decay, weight_decay, initial_accumulator_value, eps
  kAdadelta,  // lr, rho, eps, weight_decay
  kAdamax,    // lr, beta1, beta2, eps, weight_decay
  kNAdam,     // adamax's, momentum_decay, as_published, double_product, decoupled_weight_decay
  kRmsProp,   // lr, alpha, eps, weight_decay, momentum, centered
  kFtrl,      // lr, lr_power, initial_accumulator_value, l1, l2, beta
  kLamb,      // lr, beta1, beta2, eps, weight_decay; needs per-variable norms: a declared barrier
  kUser,      // a user's own elementwise rule, bound by name at the session
  kRAdam,     // adamax's, decoupled_weight_decay
};
constexpr Rule kLastRule = Rule::kRAdam;

// Every option has a value: defaults are those of PyTorch (FTRL: TensorFlow's; LAMB: the paper's).
struct UpdateRule {
  Rule rule = Rule::kSgd;
  std::map<std::string, double> options;
  std::string user_rule;  // name of a kUser rule

  // The value of an option; 0 where the rule has none of that name.
  [[nodiscard]] double option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? 0 : found->second;
  }

  friend bool operator==(const UpdateRule&, const UpdateRule&);
};

// Learning rate = the rule's lr times factor(step). A function of the step alone.
struct Schedule {
  enum class Kind : std::uint8_t {
    kConstant,
    kStep,
    kExponential,
    kCosine,
    kLinear
  } kind = Kind::kConstant;
  std::int64_t warmup_steps = 0;  // linear from 0 before everything else
  std::int64_t period_steps = 1;  // kStep: every; kCosine, kLinear: until
  double factor = 1.0;  // kStep, kExponential: multiplied per period; kCosine, kLinear: at the end

  friend bool operator==(const Schedule&, const Schedule&);
};
double factor_at(const Schedule& schedule, std::int64_t step);
std::string name_of(Schedule::Kind kind);  // "cosine"

// Gradients of `variables` are scaled by min(1, max_norm / their joint 2-norm). A declared barrier.
struct Clip {
  double max_norm = 1.0;
  std::vector<Id<struct VariableTag>> variables;

  friend bool operator==(const Clip&, const Clip&);
};

// What a user types: "adamw:lr=1e-3,decay=0.01,no_decay=bias|norm,warmup=100,clip=1.0".
struct Optimizer {
  UpdateRule rule;
  std::vector<std::string> no_decay;  // substrings of variable names whose weight decay is 0
  // Parameter groups: options that differ for variables whose name contains the pattern; later
  // wins.
  std::vector<std::pair<std::string, std::map<std::string, double>>> groups;
  Schedule schedule;
  double clip_norm = 0;                // 0: none
  std::vector<std::string> clip_only;  // substrings; empty: all variables

  friend bool operator==(const Optimizer&, const Optimizer&);
};

// Throws Error(kUsage) for an unknown rule or option (with the nearest known one) or a bad number.
Optimizer parse_optimizer(const std::string& text);
std::string to_string(const Optimizer& optimizer);  // parses back to the same
std::string name_of(Rule rule);                     // "adamw"
UpdateRule default_rule(Rule rule);

struct Graph;
struct Variable;
// Throws Error(kUsage) where the rule cannot train the variable: momentum or weight decay on one
// with sparse gradients.
void check_trains(const Variable& variable, const UpdateRule& rule);
// Sets graph.variables[i].update, graph.clips and graph.schedule. Throws Error(kUsage) as
// check_trains() does, and where a pattern matches nothing.
void declare_updates(Graph& graph, const Optimizer& optimizer);

}  // namespace autodist::ir
