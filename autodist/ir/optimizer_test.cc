#include "autodist/ir/optimizer.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_optimizer(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "accepted";
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE(message_of(text).find(part), std::string::npos) << message_of(text)

TEST(Optimizer, ReadsWhatAUserTypes) {
  const Optimizer optimizer = parse_optimizer(
      "adamw:lr=1e-3,decay=0.02,no_decay=bias|norm,warmup=100,schedule=cosine,period=1000,"
      "factor=0.1,clip=1.0,clip_only=head,group.layer.0.weight.lr=1e-4,group.head.beta1=0.8");
  EXPECT_EQ(optimizer.rule.rule, Rule::kAdamW);
  EXPECT_EQ(optimizer.rule.options.at("lr"), 1e-3);
  EXPECT_EQ(optimizer.rule.options.at("weight_decay"), 0.02);
  EXPECT_EQ(optimizer.rule.options.at("beta2"), 0.999);
  EXPECT_EQ(optimizer.no_decay, (std::vector<std::string>{"bias", "norm"}));
  EXPECT_EQ(optimizer.schedule, (Schedule{Schedule::Kind::kCosine, 100, 1000, 0.1}));
  EXPECT_EQ(optimizer.clip_norm, 1.0);
  EXPECT_EQ(optimizer.clip_only, std::vector<std::string>{"head"});
  ASSERT_EQ(optimizer.groups.size(), 2u);
  EXPECT_EQ(optimizer.groups[0].first, "layer.0.weight");
  EXPECT_EQ(optimizer.groups[0].second.at("lr"), 1e-4);
  EXPECT_EQ(optimizer.groups[1].second.at("beta1"), 0.8);
}

TEST(Optimizer, EveryRuleAloneHasItsDefaultsAndParsesBack) {
  for (Rule rule :
       {Rule::kSgd, Rule::kAdam, Rule::kAdamW, Rule::kAdagrad, Rule::kAdadelta, Rule::kAdamax,
        Rule::kNAdam, Rule::kRAdam, Rule::kRmsProp, Rule::kFtrl, Rule::kLamb}) {
    const Optimizer optimizer = parse_optimizer(name_of(rule));
    EXPECT_EQ(optimizer.rule, default_rule(rule));
    EXPECT_EQ(parse_optimizer(to_string(optimizer)), optimizer) << to_string(optimizer);
  }
}

TEST(Optimizer, TextParsesBackToTheSame) {
  for (const char* text :
       {"sgd:lr=0.1,momentum=0.9,nesterov=1", "sgd:lr=0.1,momentum=0.9,nesterov=true",
        "radam:decay=0.1,decoupled_weight_decay=1", "adam:lr=0.0003,amsgrad=1,warmup=5",
        "lamb:lr=0.01,decay=0,schedule=linear,period=7",
        "rmsprop:alpha=0.9,momentum=0.1,centered=1,schedule=step,period=30,factor=0.5",
        "ftrl:l1=0.01,l2=0.1,beta=1,schedule=exponential,period=10",
        "user:rule=lion,lr=1e-4,beta=0.9,clip=0.5,clip_only=a|b",
        "adam:group.a.lr=0.1,group.a.decay=0.3,group.b.c.lr=0.2,group.a.lr=0.30000000000000004"}) {
    const Optimizer optimizer = parse_optimizer(text);
    EXPECT_EQ(parse_optimizer(to_string(optimizer)), optimizer) << to_string(optimizer);
  }
}

TEST(Optimizer, TextNamesOnlyWhatDiffersFromTheDefaults) {
  EXPECT_EQ(to_string(parse_optimizer("adamw:decay=0.05,lr=0.5,beta1=0.9")),
            "adamw:lr=0.5,weight_decay=0.05");
}

TEST(Optimizer, AMistakeIsAnsweredWithTheNearestWord) {
  EXPECT_SAYS("adamm:lr=1", "unknown rule 'adamm'. Did you mean 'adam'?");
  EXPECT_SAYS("sgd:momentun=0.9", "sgd has no option 'momentun'. Did you mean 'momentum'?");
  EXPECT_SAYS("sgd:beta1=0.9", "sgd has no option 'beta1'");
  EXPECT_SAYS("sgd:schedule=cosinus,period=3", "Did you mean 'cosine'?");
  EXPECT_SAYS("adam:clop=1", "Did you mean 'clip'?");
  EXPECT_SAYS("adam:group.head.lt=1", "adam has no option 'lt'. Did you mean 'lr'?");
}

TEST(Optimizer, RefusesBadNumbersAndHalfDeclarations) {
  EXPECT_SAYS("sgd:lr=fast", "lr='fast' is not a number");
  EXPECT_SAYS("sgd:lr=", "is not a number");
  EXPECT_SAYS("sgd:lr=0.1x", "is not a number");
  EXPECT_SAYS("sgd:lr=nan", "is not a number");
  EXPECT_SAYS("sgd:lr=-1", "out of range");
  EXPECT_SAYS("adam:beta1=1", "at least 0 and below 1");
  EXPECT_SAYS("sgd:momentum=0.9,nesterov=2", "0 or 1");
  EXPECT_SAYS("sgd:warmup=1.5", "a whole number of steps");
  EXPECT_SAYS("sgd:lr=1,lr=2", "given twice");
  EXPECT_SAYS("sgd:decay=1,weight_decay=2", "given twice");
  EXPECT_SAYS("sgd:lr", "not of the form");
  EXPECT_SAYS("sgd:", "not of the form");
  EXPECT_SAYS("", "unknown rule ''");
  EXPECT_SAYS("sgd:nesterov=1", "needs momentum");
  EXPECT_SAYS("sgd:schedule=cosine", "no period");
  EXPECT_SAYS("sgd:period=10", "need a schedule");
  EXPECT_SAYS("sgd:clip_only=a", "without clip");
  EXPECT_SAYS("sgd:no_decay=a||b", "empty pattern");
  EXPECT_SAYS("sgd:group.lr=1", "names no pattern");
  EXPECT_SAYS("user:lr=1", "needs its name");
}

TEST(Schedule, FollowsItsClosedForms) {
  using Kind = Schedule::Kind;
  EXPECT_EQ(factor_at({}, 1000), 1.0);
  EXPECT_EQ(factor_at({Kind::kConstant, 10, 1, 1}, 0), 0.0);
  EXPECT_EQ(factor_at({Kind::kConstant, 10, 1, 1}, 5), 0.5);
  EXPECT_EQ(factor_at({Kind::kConstant, 10, 1, 1}, 10), 1.0);
  const Schedule step{Kind::kStep, 2, 10, 0.5};
  EXPECT_EQ(factor_at(step, 11), 1.0);
  EXPECT_EQ(factor_at(step, 12), 0.5);
  EXPECT_EQ(factor_at(step, 22), 0.25);
  EXPECT_DOUBLE_EQ(factor_at({Kind::kExponential, 0, 10, 0.25}, 5), 0.5);
  const Schedule cosine{Kind::kCosine, 0, 100, 0.1};
  EXPECT_DOUBLE_EQ(factor_at(cosine, 0), 1.0);
  EXPECT_DOUBLE_EQ(factor_at(cosine, 50), 0.55);
  EXPECT_DOUBLE_EQ(factor_at(cosine, 100), 0.1);
  EXPECT_DOUBLE_EQ(factor_at(cosine, 100000), 0.1);
  const Schedule linear{Kind::kLinear, 10, 100, 0.0};
  EXPECT_DOUBLE_EQ(factor_at(linear, 35), 0.75);
  EXPECT_DOUBLE_EQ(factor_at(linear, 110), 0.0);
}

Graph small_graph() {
  Graph graph;
  graph.name = "small";
  for (const char* name : {"embed.weight", "layer.weight", "layer.bias", "head.weight"}) {
    Variable variable;
    variable.name = name;
    variable.gradient = ValueId{graph.variables.size()};
    graph.variables.push_back(variable);
  }
  return graph;
}

std::string declare(Graph& graph, const std::string& text) {
  try {
    declare_updates(graph, parse_optimizer(text));
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
}

TEST(DeclareUpdates, GivesEachVariableItsOptions) {
  Graph graph = small_graph();
  ASSERT_EQ(declare(graph,
                    "adamw:lr=1,decay=0.5,no_decay=bias,group.layer.lr=2,group.layer.bias.lr=3,"
                    "clip=2,clip_only=head|embed,warmup=4"),
            "accepted");
  EXPECT_EQ(graph.variables[0].update.options.at("lr"), 1);
  EXPECT_EQ(graph.variables[1].update.options.at("lr"), 2);
  EXPECT_EQ(graph.variables[2].update.options.at("lr"), 3) << "the later group wins";
  EXPECT_EQ(graph.variables[1].update.options.at("weight_decay"), 0.5);
  EXPECT_EQ(graph.variables[2].update.options.at("weight_decay"), 0);
  ASSERT_EQ(graph.clips.size(), 1u);
  EXPECT_EQ(graph.clips[0].max_norm, 2);
  EXPECT_EQ(graph.clips[0].variables, (std::vector<VariableId>{VariableId{0}, VariableId{3}}));
  EXPECT_EQ(graph.schedule.warmup_steps, 4);
}

TEST(DeclareUpdates, AgainReplacesWhatWasDeclared) {
  Graph graph = small_graph();
  declare(graph, "sgd:lr=1,clip=2");
  ASSERT_EQ(graph.clips.size(), 1u);
  EXPECT_EQ(graph.clips[0].variables.size(), 4u);
  declare(graph, "adam");
  EXPECT_TRUE(graph.clips.empty());
  EXPECT_EQ(graph.variables[3].update, default_rule(Rule::kAdam));
}

TEST(DeclareUpdates, APatternMatchesTheOtherNamesOfATiedVariable) {
  Graph graph = small_graph();
  graph.variables[0].aliases = {"decoder.weight"};
  ASSERT_EQ(declare(graph, "sgd:lr=1,group.decoder.lr=7"), "accepted");
  EXPECT_EQ(graph.variables[0].update.options.at("lr"), 7);
}

TEST(DeclareUpdates, AnUnusedVariableIsNotClipped) {
  Graph graph = small_graph();
  graph.variables[1].gradient.reset();
  declare(graph, "sgd:clip=1");
  EXPECT_EQ(graph.clips[0].variables.size(), 3u);
}

TEST(DeclareUpdates, APatternThatMatchesNothingIsRefusedAndChangesNothing) {
  Graph graph = small_graph();
  const Graph before = graph;
  EXPECT_NE(declare(graph, "adamw:group.heat.weight.lr=1").find("Did you mean 'head.weight'?"),
            std::string::npos);
  EXPECT_NE(declare(graph, "adamw:no_decay=norm").find("matches none"), std::string::npos);
  EXPECT_NE(declare(graph, "adamw:clip=1,clip_only=norm").find("matches none"), std::string::npos);
  EXPECT_EQ(graph, before);
}

TEST(DeclareUpdates, MomentumAndWeightDecayCannotTrainASparseVariable) {
  Graph graph = small_graph();
  graph.variables[0].sparse_gradient = true;
  const Graph before = graph;
  EXPECT_NE(declare(graph, "sgd:momentum=0.9").find("momentum=0.9 cannot train 'embed.weight'"),
            std::string::npos);
  EXPECT_NE(declare(graph, "adamw").find("Add group.embed.weight.weight_decay=0"),
            std::string::npos);
  EXPECT_EQ(graph, before);
  EXPECT_EQ(declare(graph, "adamw:group.embed.weight.weight_decay=0"), "accepted");
  EXPECT_EQ(declare(graph, "adagrad"), "accepted");
}

}  // namespace
}  // namespace autodist::ir
