#include "autodist/ir/graph_item.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "tests/outcome_of.h"

namespace autodist::ir {
namespace {

using testing_jobs::refusal;

// A message written by hand, field by field: what the reader is tested on does not come from our
// own writer.
class Message {
 public:
  Message& text(int field, const std::string& contents) {
    bytes_ += static_cast<char>(field << 3 | 2);
    varint(contents.size());
    bytes_ += contents;
    return *this;
  }
  Message& sub(int field, const Message& message) { return text(field, message.bytes_); }
  Message& number(int field, std::uint64_t value) {
    bytes_ += static_cast<char>(field << 3);
    varint(value);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value > 0x7F; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

Message any(const std::string& url, const Message& message) {
  return Message().text(1, url).sub(2, message);
}

Message attribute(const std::string& name, const Message& value) {
  return Message().text(1, name).sub(2, value);
}

Message node(const std::string& name, const std::string& op,
             const std::vector<std::string>& inputs = {}) {
  Message message;
  message.text(1, name).text(2, op);
  for (const std::string& input : inputs) message.text(3, input);
  return message;
}

Message holder(const std::string& name, const std::string& op, std::uint64_t dtype,
               const std::vector<std::int64_t>& shape) {
  Message sizes;
  for (const std::int64_t size : shape) {
    sizes.sub(2, Message().number(1, static_cast<std::uint64_t>(size)));
  }
  return node(name, op)
      .sub(5, attribute("container", Message().text(2, "")))  // one that is passed over
      .sub(5, attribute("dtype", Message().number(6, dtype)))
      .sub(5, attribute("shape", Message().sub(7, sizes)));
}

Message variable_def(const std::string& name, bool trainable) {
  return Message()
      .text(1, name)
      .text(2, "init")
      .text(3, "snapshot")
      .number(5, 1)
      .text(6, "initial")
      .number(7, trainable ? 1 : 0);
}

const std::string kGraph = "type.googleapis.com/tensorflow.GraphDef";
const std::string kVariable = "type.googleapis.com/tensorflow.VariableDef";

Message pair(const std::string& gradient, const std::string& target) {
  return Message().text(1, gradient).text(2, target);
}

// A resource embedding, an old-style matrix, a counter that is not trained.
Message graph_def() {
  return Message()
      .sub(1, holder("emb", "VarHandleOp", 1, {100, 8}))
      .sub(1, holder("W", "VariableV2", 101, {8, 3}))
      .sub(1, node("W/read", "Identity", {"W"}))
      .sub(1, holder("global_step", "VarHandleOp", 9, {}))
      .sub(1, node("y", "MatMul", {"x:0", "W/read:0", "^init"}))
      .sub(4, Message().number(1, 175));  // versions
}

Message info() {
  return Message()
      .sub(1, any(kVariable, variable_def("emb:0", true)))
      .sub(1, any(kVariable, variable_def("W:0", true)))
      .sub(1, any(kVariable, variable_def("global_step:0", false)))
      .text(2, "table_init")
      .sub(3, any("type.googleapis.com/tensorflow.SaverDef", Message().text(1, "save/Const:0")));
}

std::string whole() {
  return Message()
      .sub(1, any(kGraph, graph_def()))
      .sub(2, pair("g/indices:0;g/values:0;g/shape:0", "emb:0"))
      .sub(2, pair("gradients/MatMul_grad:0", "W/read:0"))
      .sub(3, info())
      .bytes();
}

// The same bytes as a file, for other tests, for fuzzing and for people.
TEST(GraphItem, LiesBesideItsTestAsAFile) {
  const std::string path = AUTODIST_SOURCE_DIR "/autodist/ir/testdata/small.graph_item";
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, whole());
  EXPECT_EQ(whole(), read_file(path));
  EXPECT_EQ(read_graph_item(path), deserialize_graph_item(whole(), "item"));
}

TEST(GraphItem, ReadsWhatPlanningNeeds) {
  const GraphItem item = deserialize_graph_item(whole(), "item");
  ASSERT_EQ(item.nodes.size(), 5U);
  EXPECT_EQ(item.nodes[4], (ItemNode{"y", "MatMul", {"x:0", "W/read:0", "^init"}, ""}));
  const std::vector<ItemVariable> variables{
      {"emb", DType::kFloat32, {{100, 8}}, true},
      {"W", DType::kFloat32, {{8, 3}}, true},
      {"global_step", DType::kInt64, std::vector<std::int64_t>{}, false}};
  EXPECT_EQ(item.variables, variables);
  const auto gradients = gradients_by_variable(item);
  ASSERT_EQ(gradients.size(), 2U);
  EXPECT_TRUE(gradients.at("emb")->sparse());
  EXPECT_FALSE(gradients.at("W")->sparse()) << "its pair names what reads the variable";
  EXPECT_EQ(item.table_initializers, std::vector<std::string>{"table_init"});
  EXPECT_EQ(bytes_of(item.variables[0]), Bytes(3200));
}

TEST(GraphItem, ComesBackAsItWasWritten) {
  GraphItem item = deserialize_graph_item(whole(), "item");
  EXPECT_EQ(deserialize_graph_item(serialize(item), "again"), item);
  item.nodes[4].device = "/device:CPU:0";
  add_variable(item, {"added", DType::kBFloat16, {{5}}, true});
  item.gradients.push_back({{"h:0"}, "added"});
  item.variables.push_back({"nowhere", {}, {}, false});
  EXPECT_EQ(deserialize_graph_item(serialize(item), "again"), item);
  EXPECT_EQ(serialize(item), serialize(deserialize_graph_item(serialize(item), "again")));
}

TEST(GraphItem, MakesDoWithWhatIsThere) {
  const auto read = [](const Message& message) {
    return deserialize_graph_item(message.bytes(), "item");
  };
  const GraphItem full = deserialize_graph_item(whole(), "item");
  // Messages that are not wrapped, or wrapped under other names.
  EXPECT_EQ(read(Message().sub(1, graph_def())).nodes, full.nodes);
  EXPECT_EQ(read(Message().sub(1, any("tensorflow/graph", graph_def()))).nodes, full.nodes);
  Message bare;
  bare.sub(1, variable_def("emb:0", true)).sub(1, any("elsewhere", variable_def("W:0", true)));
  bare.sub(1, any(kVariable, variable_def("global_step:0", false)));
  EXPECT_EQ(read(Message().sub(1, graph_def()).sub(3, bare)).variables, full.variables);
  // Fields that nobody has heard of.
  EXPECT_EQ(deserialize_graph_item(whole() + Message().text(77, "?").bytes(), "item"), full);
  // No info: the ops that hold variables; those with gradients are trained, or all that could be.
  const GraphItem paired = read(Message().sub(1, graph_def()).sub(2, pair("g:0", "W:0")));
  ASSERT_EQ(paired.variables.size(), 3U);
  EXPECT_FALSE(paired.variables[0].trainable);
  EXPECT_TRUE(paired.variables[1].trainable);
  EXPECT_EQ(read(Message().sub(1, graph_def())).variables, full.variables);
  // A name that leads to a variable by way of another op.
  Message read_def = graph_def();
  read_def.sub(1, node("emb/IsInitialized", "VarIsInitializedOp", {"emb"}));
  const Message through = Message().sub(1, variable_def("emb/IsInitialized:0", true));
  EXPECT_EQ(read(Message().sub(1, read_def).sub(3, through)).variables[0].shape,
            (std::vector<std::int64_t>{100, 8}));
  // A damaged variable is passed over.
  const Message damaged = Message().sub(1, Message().text(1, kVariable).text(2, "\xff\xff"));
  EXPECT_EQ(read(Message().sub(1, graph_def()).sub(3, damaged)).variables, full.variables);
  // No graph: names alone; twice the same is one.
  const Message twice = Message()
                            .sub(1, variable_def("a:0", true))
                            .sub(1, variable_def("a:0", false))
                            .text(1, "\x07");
  const GraphItem names = read(Message().sub(3, twice));
  ASSERT_EQ(names.variables.size(), 1U);
  EXPECT_EQ(names.variables[0], (ItemVariable{"a", {}, {}, true}));
}

// What fuzzing found: names of nothing came back as others.
TEST(GraphItem, NamesOfNothingAreNoVariables) {
  Message variables;
  variables.sub(1, variable_def(":0", true)).sub(1, variable_def("a:0", true));
  const GraphItem item = deserialize_graph_item(
      Message().sub(2, pair("g:0", "")).sub(2, pair("", "a:0")).sub(3, variables).bytes(), "item");
  ASSERT_EQ(item.variables.size(), 1U);
  EXPECT_EQ(item.variables[0].name, "a");
  EXPECT_EQ(deserialize_graph_item(serialize(item), "again"), item);
}

TEST(GraphItem, TwoNamesMayLeadToOneOp) {
  Message variables;
  variables.sub(1, variable_def("W:0", true)).sub(1, variable_def("W/read:0", true));
  const GraphItem item =
      deserialize_graph_item(Message().sub(1, graph_def()).sub(3, variables).bytes(), "item");
  ASSERT_EQ(item.variables.size(), 2U);
  EXPECT_EQ(item.variables[1].shape, (std::vector<std::int64_t>{8, 3}));
  EXPECT_EQ(deserialize_graph_item(serialize(item), "again"), item);
}

TEST(GraphItem, RefusesWhatIsNone) {
  const auto refused = [](const std::string& bytes) {
    return refusal([&] { deserialize_graph_item(bytes, "f"); });
  };
  EXPECT_NE(refused("").find("neither ops nor variables"), std::string::npos);
  EXPECT_NE(refused("nodes: [{address: a}]").find("f: not a graph_item"), std::string::npos);
  EXPECT_NE(refused(whole().substr(0, whole().size() / 2)).find("truncated"), std::string::npos);
  EXPECT_NE(refused(Message().text(1, "\x07\x07").bytes()).find("damaged"), std::string::npos);
  const Message large =
      Message().sub(1, holder("huge", "VarHandleOp", 1, {1LL << 40, 1LL << 40, 0}));
  EXPECT_NE(refused(Message().sub(1, large).bytes()).find("'huge' has more than 2^48"),
            std::string::npos);
  testing::internal::CaptureStderr();
  EXPECT_NE(refused(Message().sub(1, Message().sub(1, node("\xff", "A"))).bytes()), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(GraphItem, IsToldFromOtherFiles) {
  EXPECT_TRUE(looks_like_graph_item(whole()));
  EXPECT_TRUE(looks_like_graph_item(whole().substr(0, whole().size() / 2)));
  EXPECT_TRUE(looks_like_graph_item(Message().sub(1, graph_def()).bytes()));
  EXPECT_TRUE(looks_like_graph_item(Message().sub(3, info()).bytes()));
  EXPECT_FALSE(looks_like_graph_item(""));
  // A strategy: an id, a path, a node with a name.
  const Message strategy =
      Message().text(1, "20200205T174341M635634").text(2, "p").sub(3, Message().text(1, "W:0"));
  EXPECT_FALSE(looks_like_graph_item(strategy.bytes()));
  EXPECT_FALSE(looks_like_graph_item(Message().sub(3, Message().text(1, "W:0")).bytes()));
}

TEST(GraphItem, HasATextForm) {
  EXPECT_EQ(to_text(deserialize_graph_item(whole(), "item"), 2),
            "graph_item      5 ops of 4 kinds\n"
            "variables       3, 2 trainable with 3.2 KiB, 1 sparse\n"
            "\n"
            "ops  kind\n"
            "  2  VarHandleOp\n"
            "  1  Identity\n"
            "… and 2 rarer kinds\n"
            "\n"
            "variable     shape    dtype     size  gradient\n"
            "emb          [100,8]    f32  3.1 KiB  sparse\n"
            "W            [8,3]      f32     96 B  dense\n"
            "global_step  []         i64      8 B  not trainable\n");
}

TEST(GraphItem, BecomesAGraphOfItsVariables) {
  const Graph graph = variables_of(deserialize_graph_item(whole(), "item"), "item");
  ASSERT_EQ(graph.variables.size(), 2U);
  EXPECT_EQ(graph.variables[0].name, "emb");
  EXPECT_TRUE(graph.variables[0].sparse_gradient);
  EXPECT_EQ(shape_of(graph, VariableId(1)), (std::vector<std::int64_t>{8, 3}));
  EXPECT_FALSE(graph.variables[1].sparse_gradient);
  // Used in order, gradients in the opposite order.
  EXPECT_LT(*graph.variables[0].first_use, *graph.variables[1].first_use);
  EXPECT_LT(*graph.variables[1].gradient_complete, *graph.variables[0].gradient_complete);
  ASSERT_EQ(graph.buffers.size(), 1U);
  EXPECT_EQ(graph.buffers[0].name, "global_step");
  EXPECT_NE(graph.batch_fixed_reason, "");

  GraphItem item;
  add_variable(item, {"a", DType::kFloat32, {{2}}, true});
  add_variable(item, {"b", DType::kFloat32, {{2}}, true});
  EXPECT_TRUE(variables_of(item, "i").variables[1].gradient) << "no pairs: all have gradients";
  item.gradients = {{{"g:0"}, "a"}};
  EXPECT_FALSE(variables_of(item, "i").variables[1].gradient);
  item.variables.push_back({"c", DType::kFloat32, {}, true});
  EXPECT_NE(refusal([&] { variables_of(item, "i"); }).find("i: the variable 'c' has no shape"),
            std::string::npos);
  EXPECT_NE(refusal([] { variables_of({}, "i"); }).find("no variable is trainable"),
            std::string::npos);
}

}  // namespace
}  // namespace autodist::ir
