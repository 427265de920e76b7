// A declared optimizer: its table of rules, its text form, and how it lands on a graph's variables.
// The grammar is docs/formats/optimizer.md.

#include "autodist/ir/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {
namespace {

using Options = std::map<std::string, double>;

struct RuleEntry {
  Rule rule;
  const char* name;
  Options defaults;
};

// Defaults of a rule that keeps moments of gradients; `more`: of its further options.
Options moments(double lr, double eps, double weight_decay, Options more = {}) {
  more.insert(
      {{"lr", lr}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", eps}, {"weight_decay", weight_decay}});
  return more;
}

const std::vector<RuleEntry>& rule_table() {
  static const std::vector<RuleEntry> table = {
      {Rule::kSgd,
       "sgd",
       {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}},
      {Rule::kAdam, "adam", moments(1e-3, 1e-8, 0, {{"amsgrad", 0}})},
      {Rule::kAdamW, "adamw", moments(1e-3, 1e-8, 1e-2, {{"amsgrad", 0}})},
      {Rule::kAdagrad,
       "adagrad",
       {{"lr", 1e-2},
        {"lr_decay", 0},
        {"weight_decay", 0},
        {"initial_accumulator_value", 0},
        {"eps", 1e-10}}},
      {Rule::kAdadelta,
       "adadelta",
       {{"lr", 1.0}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}}},
      {Rule::kAdamax, "adamax", moments(2e-3, 1e-8, 0)},
      {Rule::kNAdam, "nadam",
       moments(2e-3, 1e-8, 0,
               {{"momentum_decay", 4e-3},
                {"as_published", 0},
                {"double_product", 0},
                {"decoupled_weight_decay", 0}})},
      {Rule::kRAdam, "radam", moments(1e-3, 1e-8, 0, {{"decoupled_weight_decay", 0}})},
      {Rule::kRmsProp,
       "rmsprop",
       {{"lr", 1e-2},
        {"alpha", 0.99},
        {"eps", 1e-8},
        {"weight_decay", 0},
        {"momentum", 0},
        {"centered", 0}}},
      {Rule::kFtrl,
       "ftrl",
       {{"lr", 1e-3},
        {"lr_power", -0.5},
        {"initial_accumulator_value", 0.1},
        {"l1", 0},
        {"l2", 0},
        {"beta", 0}}},
      {Rule::kLamb, "lamb", moments(1e-3, 1e-6, 1e-2)},
      {Rule::kUser, "user", {{"lr", 1e-3}}},
  };
  return table;
}

const RuleEntry& entry_of(Rule rule) {
  for (const RuleEntry& entry : rule_table()) {
    if (entry.rule == rule) return entry;
  }
  AD_CHECK(false) << "rule " << static_cast<int>(rule) << " is not in the table";
  return rule_table().front();
}

// Options of the optimizer as a whole, beside those of its rule.
const std::vector<std::string>& whole_options() {
  static const std::vector<std::string> words = {"no_decay", "warmup", "schedule",  "period",
                                                 "factor",   "clip",   "clip_only", "group"};
  return words;
}

// By Schedule::Kind.
constexpr const char* kSchedules[] = {"constant", "step", "exponential", "cosine", "linear"};

std::string hint_for(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? fmt::format("Known: {}.", fmt::join(known, ", "))
                      : fmt::format("Did you mean '{}'?", near);
}

double parse_number(std::string_view key, const std::string& text) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  const auto value = as_number<double>(text);
  if (!value || !std::isfinite(*value)) {
    const bool counts = key == "warmup" || key == "period";
    fail(ErrorCode::kUsage, "optimizer: {}='{}' is not a number. Write {}={}, say.", key, text, key,
         counts ? "100" : "0.1");
  }
  return *value;
}

// What PyTorch's constructors require of each option.
void check_range(std::string_view key, double value) {
  const auto require = [&](bool holds, const char* expected) {
    if (!holds) {
      fail(ErrorCode::kUsage, "optimizer: {}={} is out of range, expected {}", key, value,
           expected);
    }
  };
  if (key == "beta1" || key == "beta2") {
    require(value >= 0 && value < 1, "at least 0 and below 1");
  } else if (key == "rho") {
    require(value >= 0 && value <= 1, "0 to 1");
  } else if (key == "nesterov" || key == "amsgrad" || key == "centered" || key == "as_published" ||
             key == "double_product" || key == "decoupled_weight_decay") {
    require(value == 0 || value == 1, "0 or 1");
  } else if (key == "lr_power") {
    require(value <= 0, "at most 0");
  } else if (key == "clip") {
    require(value > 0, "more than 0");
  } else if (key == "warmup" || key == "period") {
    require(value >= (key == "period" ? 1 : 0) && value == std::floor(value) && value < 1e15,
            "a whole number of steps");
  } else if (key != "dampening" && key != "beta") {
    require(value >= 0, "at least 0");
  }
}

std::vector<std::string> parse_patterns(std::string_view key, const std::string& text) {
  std::vector<std::string> patterns = split_all(text, '|');
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) {
      fail(ErrorCode::kUsage, "optimizer: {}='{}' has an empty pattern. Write {}=bias|norm, say.",
           key, text, key);
    }
  }
  return patterns;
}

// Reads "key=value" items one by one into an Optimizer.
class Parser {
 public:
  explicit Parser(const RuleEntry& entry) : entry_(entry) {
    optimizer_.rule = default_rule(entry.rule);
  }

  void item(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(ErrorCode::kUsage,
           "optimizer: '{}' is not of the form option=value in '{}:…'. Write {}:lr=1e-3, say.",
           text, entry_.name, entry_.name);
    }
    std::string key = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    if (key == "decay") key = "weight_decay";
    if (key.rfind("group.", 0) != 0 && !seen_.insert(key).second) {
      fail(ErrorCode::kUsage, "optimizer: option '{}' is given twice. Keep one.", key);
    }
    if (!of_the_whole(key, value)) rule_option(key, value, optimizer_.rule.options);
  }

  Optimizer finish() {
    Schedule& schedule = optimizer_.schedule;
    const bool constant = schedule.kind == Schedule::Kind::kConstant;
    if (constant && (seen_.count("period") != 0 || seen_.count("factor") != 0)) {
      fail(ErrorCode::kUsage,
           "optimizer: period and factor need a schedule. Add schedule=cosine, say.");
    }
    if (!constant && seen_.count("period") == 0) {
      fail(ErrorCode::kUsage,
           "optimizer: the schedule has no period. Add period=1000 (steps after the warm-up).");
    }
    if (!constant && seen_.count("factor") == 0) {
      const bool decays_to_the_end =
          schedule.kind == Schedule::Kind::kCosine || schedule.kind == Schedule::Kind::kLinear;
      schedule.factor = decays_to_the_end ? 0.0 : 0.1;
    }
    if (!optimizer_.clip_only.empty() && optimizer_.clip_norm == 0) {
      fail(ErrorCode::kUsage, "optimizer: clip_only without clip. Add clip=1.0, say.");
    }
    if (entry_.rule == Rule::kUser && optimizer_.rule.user_rule.empty()) {
      fail(ErrorCode::kUsage, "optimizer: a user rule needs its name. Write user:rule=NAME,lr=…");
    }
    return std::move(optimizer_);
  }

 private:
  bool of_the_whole(const std::string& key, const std::string& value) {
    if (key.rfind("group.", 0) == 0) {
      group_option(key, value);
    } else if (key == "no_decay") {
      optimizer_.no_decay = parse_patterns(key, value);
    } else if (key == "clip_only") {
      optimizer_.clip_only = parse_patterns(key, value);
    } else if (key == "schedule") {
      optimizer_.schedule.kind = schedule_kind(value);
    } else if (key == "rule" && entry_.rule == Rule::kUser) {
      optimizer_.rule.user_rule = value;
    } else if (key == "clip") {
      optimizer_.clip_norm = number(key, value);
    } else if (key == "warmup") {
      optimizer_.schedule.warmup_steps = static_cast<std::int64_t>(number(key, value));
    } else if (key == "period") {
      optimizer_.schedule.period_steps = static_cast<std::int64_t>(number(key, value));
    } else if (key == "factor") {
      optimizer_.schedule.factor = number(key, value);
    } else {
      return false;
    }
    return true;
  }

  static double number(const std::string& key, const std::string& text) {
    const double value = parse_number(key, text);
    check_range(key, value);
    return value;
  }

  static Schedule::Kind schedule_kind(const std::string& value) {
    const std::vector<std::string> known(std::begin(kSchedules), std::end(kSchedules));
    const auto found = std::find(known.begin(), known.end(), value);
    if (found != known.end()) return static_cast<Schedule::Kind>(found - known.begin());
    fail(ErrorCode::kUsage, "optimizer: unknown schedule '{}'. {}", value, hint_for(value, known));
  }

  // "group.<pattern>.<option>": the pattern may hold dots, the option does not.
  void group_option(const std::string& key, const std::string& value) {
    const std::size_t dot = key.rfind('.');
    const std::size_t prefix = std::string_view("group.").size();
    if (dot <= prefix) {
      fail(ErrorCode::kUsage,
           "optimizer: '{}' names no pattern and option. Write group.head.lr=1e-4, say.", key);
    }
    const std::string pattern = key.substr(prefix, dot - prefix);
    std::string option = key.substr(dot + 1);
    if (option == "decay") option = "weight_decay";
    auto& groups = optimizer_.groups;
    if (groups.empty() || groups.back().first != pattern) groups.push_back({pattern, {}});
    if (groups.back().second.count(option) != 0) {
      fail(ErrorCode::kUsage, "optimizer: '{}' is given twice. Keep one.", key);
    }
    rule_option(option, value, groups.back().second);
  }

  void rule_option(const std::string& key, const std::string& value, Options& into) {
    if (entry_.rule != Rule::kUser && entry_.defaults.count(key) == 0) {
      std::vector<std::string> known;
      for (const auto& [name, unused] : entry_.defaults) known.push_back(name);
      known.insert(known.end(), whole_options().begin(), whole_options().end());
      fail(ErrorCode::kUsage, "optimizer: {} has no option '{}'. {}", entry_.name, key,
           hint_for(key, known));
    }
    const double number = parse_number(key, value);
    // A user's rule gives its own meaning to every option but the learning rate.
    if (entry_.rule != Rule::kUser || key == "lr") check_range(key, number);
    into[key] = number;
  }

  const RuleEntry& entry_;
  Optimizer optimizer_;
  std::set<std::string> seen_;
};

// PyTorch's SGD refuses the same, and takes a momentum of 0 in one of its groups, or for a while.
void check_nesterov(const UpdateRule& rule) {
  if (rule.rule != Rule::kSgd || rule.option("nesterov") == 0) return;
  if (rule.option("momentum") <= 0 || rule.option("dampening") != 0) {
    fail(ErrorCode::kUsage,
         "optimizer: nesterov=1 needs momentum above 0 and dampening 0. Add momentum=0.9.");
  }
}

bool matches(const Variable& variable, const std::string& pattern) {
  const auto contains = [&](const std::string& name) {
    return name.find(pattern) != std::string::npos;
  };
  return contains(variable.name) ||
         std::any_of(variable.aliases.begin(), variable.aliases.end(), contains);
}

bool matches_any(const Variable& variable, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(variable, pattern); });
}

void check_pattern_used(const Graph& graph, const std::string& pattern, const char* option) {
  for (const Variable& variable : graph.variables) {
    if (matches(variable, pattern)) return;
  }
  std::vector<std::string> names;
  for (const Variable& variable : graph.variables) names.push_back(variable.name);
  fail(ErrorCode::kUsage, "optimizer: {} '{}' matches none of the {} variables of '{}'.{}", option,
       pattern, graph.variables.size(), graph.name, hint_for(pattern, names));
}

UpdateRule rule_for(const Variable& variable, const Optimizer& optimizer) {
  UpdateRule rule = optimizer.rule;
  if (matches_any(variable, optimizer.no_decay) && rule.options.count("weight_decay") != 0) {
    rule.options["weight_decay"] = 0;
  }
  for (const auto& [pattern, options] : optimizer.groups) {
    if (!matches(variable, pattern)) continue;
    for (const auto& [name, value] : options) rule.options[name] = value;
  }
  return rule;
}

// One item of the text form, refused where it would not parse back.
std::string pattern_text(const std::string& pattern) {
  if (pattern.empty() || pattern.find_first_of(",|=") != std::string::npos) {
    fail(ErrorCode::kUsage,
         "optimizer: pattern '{}' may not be empty or hold ',', '|' or '='. Name a part of the "
         "variables' names.",
         pattern);
  }
  return pattern;
}

std::string patterns_text(const std::vector<std::string>& patterns) {
  std::vector<std::string> parts;
  for (const std::string& pattern : patterns) parts.push_back(pattern_text(pattern));
  return fmt::format("{}", fmt::join(parts, "|"));
}

}  // namespace

double factor_at(const Schedule& schedule, std::int64_t step) {
  if (step < schedule.warmup_steps) {
    return static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  const std::int64_t since = step - schedule.warmup_steps;
  const double periods = static_cast<double>(since) / static_cast<double>(schedule.period_steps);
  const double done = std::min(periods, 1.0);
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      return 1.0;
    case Schedule::Kind::kStep:
      return std::pow(schedule.factor, std::floor(periods));
    case Schedule::Kind::kExponential:
      return std::pow(schedule.factor, periods);
    case Schedule::Kind::kCosine:
      return schedule.factor + (1.0 - schedule.factor) * (1.0 + std::cos(M_PI * done)) / 2.0;
    case Schedule::Kind::kLinear:
      return 1.0 + (schedule.factor - 1.0) * done;
  }
  AD_CHECK(false) << "schedule " << static_cast<int>(schedule.kind);
  return 1.0;
}

bool operator==(const UpdateRule&, const UpdateRule&) = default;
bool operator==(const Schedule&, const Schedule&) = default;
bool operator==(const Clip&, const Clip&) = default;
bool operator==(const Optimizer&, const Optimizer&) = default;

std::string name_of(Schedule::Kind kind) { return kSchedules[static_cast<std::size_t>(kind)]; }

std::string name_of(Rule rule) { return entry_of(rule).name; }

UpdateRule default_rule(Rule rule) { return {rule, entry_of(rule).defaults, ""}; }

Optimizer parse_optimizer(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto& table = rule_table();
  const auto entry = std::find_if(table.begin(), table.end(),
                                  [&](const RuleEntry& each) { return each.name == name; });
  if (entry == table.end()) {
    std::vector<std::string> known;
    for (const RuleEntry& each : table) known.emplace_back(each.name);
    const std::size_t comma = name.find(',');
    const bool lacks_colon = comma != std::string::npos && colon == std::string::npos;
    fail(ErrorCode::kUsage, "optimizer: unknown rule '{}'. {}", name,
         lacks_colon
             ? fmt::format("Did you mean '{}:{}'?", name.substr(0, comma), name.substr(comma + 1))
             : hint_for(name, known));
  }
  Parser parser(*entry);
  if (colon != std::string::npos) {
    for (const std::string& item : split_all(text.substr(colon + 1), ',')) parser.item(item);
  }
  Optimizer optimizer = parser.finish();
  check_nesterov(optimizer.rule);
  return optimizer;
}

std::string to_string(const Optimizer& optimizer) {
  const RuleEntry& entry = entry_of(optimizer.rule.rule);
  std::vector<std::string> items;
  const auto add = [&](const std::string& key, const auto& value) {
    items.push_back(fmt::format("{}={}", key, value));
  };
  if (entry.rule == Rule::kUser) add("rule", pattern_text(optimizer.rule.user_rule));
  for (const auto& [name, value] : optimizer.rule.options) {
    const auto usual = entry.defaults.find(name);
    if (name == "lr" || usual == entry.defaults.end() || usual->second != value) add(name, value);
  }
  if (!optimizer.no_decay.empty()) add("no_decay", patterns_text(optimizer.no_decay));
  for (const auto& [pattern, options] : optimizer.groups) {
    for (const auto& [name, value] : options) {
      add(fmt::format("group.{}.{}", pattern_text(pattern), name), value);
    }
  }
  const Schedule& schedule = optimizer.schedule;
  if (schedule.warmup_steps != 0) add("warmup", schedule.warmup_steps);
  if (schedule.kind != Schedule::Kind::kConstant) {
    add("schedule", name_of(schedule.kind));
    add("period", schedule.period_steps);
    add("factor", schedule.factor);
  }
  if (optimizer.clip_norm != 0) add("clip", optimizer.clip_norm);
  if (!optimizer.clip_only.empty()) add("clip_only", patterns_text(optimizer.clip_only));
  return fmt::format("{}:{}", entry.name, fmt::join(items, ","));
}

// Momentum and weight decay change rows that a sparse gradient does not name.
void check_trains(const Variable& variable, const UpdateRule& rule) {
  if (!variable.sparse_gradient) return;
  for (const char* option : {"momentum", "weight_decay"}) {
    const double value = rule.option(option);
    if (value == 0) continue;
    fail(ErrorCode::kUsage,
         "optimizer: {}={} cannot train '{}', whose gradient is sparse. Add group.{}.{}=0.", option,
         value, variable.name, variable.name, option);
  }
}

void declare_updates(Graph& graph, const Optimizer& optimizer) {
  for (const auto& pattern : optimizer.no_decay) check_pattern_used(graph, pattern, "no_decay");
  for (const auto& pattern : optimizer.clip_only) check_pattern_used(graph, pattern, "clip_only");
  for (const auto& group : optimizer.groups) check_pattern_used(graph, group.first, "group");

  std::vector<UpdateRule> rules;
  for (const Variable& variable : graph.variables) {
    rules.push_back(rule_for(variable, optimizer));
    check_trains(variable, rules.back());
  }
  // Nothing is changed before everything is known to fit.
  Clip clip{optimizer.clip_norm, {}};
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    Variable& variable = graph.variables[i];
    variable.update = rules[i];
    const bool chosen = optimizer.clip_only.empty() || matches_any(variable, optimizer.clip_only);
    if (variable.gradient && chosen) clip.variables.emplace_back(i);
  }
  graph.clips.clear();
  if (optimizer.clip_norm > 0) graph.clips.push_back(clip);
  graph.schedule = optimizer.schedule;
}

}  // namespace autodist::ir
