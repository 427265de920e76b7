// GraphItem <-> protobuf.

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <map>
#include <set>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/text.h"
#include "autodist/ir/graph_item.h"
#include "autodist/ir/graph_item.pb.h"

namespace autodist::ir {
namespace {

constexpr char kWriteAgain[] = "Let AutoDist write it again (GraphItem.serialize).";

constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr int kMostHops = 8;  // from a variable's name to the op that holds it
const std::string kTypePrefix = "type.googleapis.com/tensorflow.";

// TensorFlow's numbers of element types.
const std::vector<std::pair<std::int32_t, DType>> kTypes{
    {1, DType::kFloat32}, {2, DType::kFloat64},   {3, DType::kInt32},       {4, DType::kUInt8},
    {5, DType::kInt16},   {6, DType::kInt8},      {8, DType::kComplex64},   {9, DType::kInt64},
    {10, DType::kBool},   {14, DType::kBFloat16}, {18, DType::kComplex128}, {19, DType::kFloat16}};
constexpr std::int32_t kReference = 100;  // added for what an older Variable op hands out

std::optional<DType> dtype_of(std::int32_t number) {
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == number || theirs + kReference == number) return ours;
  }
  return std::nullopt;
}

std::int32_t number_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return 0;
}

bool holds_variable(const std::string& op) {
  return op == "VarHandleOp" || op == "VariableV2" || op == "Variable";
}

std::string without_output(const std::string& tensor) {
  const std::size_t colon = tensor.rfind(':');
  return colon == std::string::npos ? tensor : tensor.substr(0, colon);
}

// Only the first output is left out of a name: "x:1" is another tensor.
std::string without_first_output(const std::string& tensor) {
  return tensor.ends_with(":0") ? tensor.substr(0, tensor.size() - 2) : tensor;
}

// Which op holds a variable's dtype and shape.
class Holders {
 public:
  explicit Holders(const std::vector<ItemNode>& nodes) {
    for (const ItemNode& node : nodes) {
      if (node.name.empty()) continue;  // what has no input would lead to it
      nodes_.try_emplace(node.name,
                         Node{holds_variable(node.op), node.inputs.empty() ? "" : node.inputs[0]});
    }
  }

  // The op that holds the variable which this op is or reads: of "W/read" it is W. Nothing where
  // there is none.
  [[nodiscard]] const std::string* of(const std::string& name) const {
    auto node = nodes_.find(name);
    for (int hop = 0; hop < kMostHops && node != nodes_.end(); ++hop) {
      if (node->second.holds) return &node->first;
      node = nodes_.find(without_output(node->second.first_input));
    }
    return nullptr;
  }

 private:
  struct Node {
    bool holds;
    std::string first_input;
  };

  std::map<std::string, Node> nodes_;
};

// --- protobuf -> GraphItem -----------------------------------------------------------------------

// An Any with the message in it, or the message itself; `good` says which of the two it is.
template <typename Message, typename Good>
bool unwrap(const std::string& bytes, Message& message, Good good) {
  proto::Any any;
  if (any.ParseFromString(bytes) && message.ParseFromString(any.value()) && good(any, message)) {
    return true;
  }
  return message.ParseFromString(bytes) && good(proto::Any(), message);
}

bool unwrap(const std::string& bytes, proto::GraphDef& graph) {
  return unwrap(bytes, graph, [](const proto::Any& any, const proto::GraphDef& read) {
    if (any.type_url().find("GraphDef") != std::string::npos) return true;
    return read.node_size() > 0 && !read.node(0).name().empty() && !read.node(0).op().empty();
  });
}

bool unwrap(const std::string& bytes, proto::VariableDef& variable) {
  return unwrap(bytes, variable, [](const proto::Any&, const proto::VariableDef& read) {
    // A damaged one in an Any would be read as bare, and named by the type.
    return !read.variable_name().empty() &&
           read.variable_name().find("/tensorflow.") == std::string::npos;
  });
}

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  GraphItem run(const proto::GraphItem& in) {
    if (!in.graph_def().empty() && !unwrap(in.graph_def(), graph_)) {
      fail(ErrorCode::kUsage, "{}: damaged: its graph_def is no TensorFlow graph. {}", where_,
           kWriteAgain);
    }
    for (const auto& node : graph_.node()) {
      attributes_.try_emplace(node.name(), &node.attr());
      item_.nodes.push_back(
          {node.name(), node.op(), {node.input().begin(), node.input().end()}, node.device()});
    }
    const Holders holders(item_.nodes);
    read_variables(in, holders);
    if (item_.nodes.empty() && item_.variables.empty()) {
      fail(ErrorCode::kUsage, "{}: not a graph_item: it holds neither ops nor variables. {}",
           where_, kWriteAgain);
    }
    read_gradients(in, holders);
    const bool says_trainable =
        std::any_of(item_.variables.begin(), item_.variables.end(),
                    [](const ItemVariable& each) { return each.trainable; });
    if (!says_trainable) guess_trainable();
    item_.table_initializers.assign(in.info().table_initializers().begin(),
                                    in.info().table_initializers().end());
    return std::move(item_);
  }

 private:
  void read_variables(const proto::GraphItem& in, const Holders& holders) {
    for (const std::string& bytes : in.info().variables()) {
      proto::VariableDef variable;
      if (!unwrap(bytes, variable)) continue;
      add(variable.variable_name(), variable.trainable(), holders);
    }
    if (!item_.variables.empty()) return;
    for (const auto& node : graph_.node()) {
      if (holds_variable(node.op())) add(node.name() + ":0", false, holders);
    }
  }

  void add(const std::string& tensor, bool trainable, const Holders& holders) {
    ItemVariable variable;
    variable.name = without_first_output(tensor);
    variable.trainable = trainable;
    if (variable.name.empty() || !names_.insert(variable.name).second) return;
    if (const std::string* holder = holders.of(variable.name)) {
      const auto& attributes = *attributes_.at(*holder);
      const auto dtype = attributes.find("dtype");
      if (dtype != attributes.end()) variable.dtype = dtype_of(dtype->second.type());
      const auto shape = attributes.find("shape");
      if (shape != attributes.end()) variable.shape = read(shape->second, variable.name);
    }
    item_.variables.push_back(std::move(variable));
  }

  std::optional<std::vector<std::int64_t>> read(const proto::AttrValue& attribute,
                                                const std::string& name) const {
    if (!attribute.has_shape() || attribute.shape().unknown_rank()) return std::nullopt;
    std::vector<std::int64_t> sizes;
    std::int64_t elements = 1;
    for (const auto& dim : attribute.shape().dim()) {
      if (dim.size() < 0) return std::nullopt;
      sizes.push_back(dim.size());
      // Sizes of zero hide no overflow of the others.
      const std::int64_t factor = std::max<std::int64_t>(dim.size(), 1);
      if (__builtin_mul_overflow(elements, factor, &elements) || elements > kMostElements) {
        fail(ErrorCode::kUsage, "{}: the variable '{}' has more than 2^48 elements. {}", where_,
             name, kWriteAgain);
      }
    }
    return sizes;
  }

  void read_gradients(const proto::GraphItem& in, const Holders& holders) {
    const std::map<std::string, std::string> pairs(in.grad_target_pairs().begin(),
                                                   in.grad_target_pairs().end());
    for (const auto& [tensors, target] : pairs) {
      ItemGradient gradient{split_all(tensors, ';'), without_first_output(target)};
      // A target may be what is read from the variable.
      const std::string* holder =
          names_.count(gradient.target) > 0 ? nullptr : holders.of(gradient.target);
      if (holder != nullptr && names_.count(*holder) > 0) gradient.target = *holder;
      item_.gradients.push_back(std::move(gradient));
    }
  }

  // Older files do not say it.
  void guess_trainable() {
    std::set<std::string> targets;
    for (const ItemGradient& gradient : item_.gradients) targets.insert(gradient.target);
    for (ItemVariable& variable : item_.variables) {
      variable.trainable = targets.empty() ? variable.dtype && is_floating(*variable.dtype)
                                           : targets.count(variable.name) > 0;
    }
  }

  const std::string& where_;
  proto::GraphDef graph_;
  std::map<std::string, const google::protobuf::Map<std::string, proto::AttrValue>*> attributes_;
  GraphItem item_;
  std::set<std::string> names_;
};

// --- GraphItem -> protobuf -----------------------------------------------------------------------

// Maps in the order of their keys: equal items have equal bytes.
std::string bytes_of(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string wrapped(const std::string& type, const google::protobuf::Message& message) {
  proto::Any any;
  any.set_type_url(kTypePrefix + type);
  any.set_value(bytes_of(message));
  return bytes_of(any);
}

void write_type(const ItemVariable& variable, proto::NodeDef& node) {
  if (variable.dtype) (*node.mutable_attr())["dtype"].set_type(number_of(*variable.dtype));
  if (!variable.shape) return;
  proto::TensorShape& shape = *(*node.mutable_attr())["shape"].mutable_shape();
  shape.Clear();  // two names may lead to one op
  for (const std::int64_t size : *variable.shape) shape.add_dim()->set_size(size);
}

proto::GraphDef graph_def_of(const GraphItem& item, const Holders& holders) {
  proto::GraphDef graph;
  std::map<std::string, proto::NodeDef*> by_name;
  for (const ItemNode& from : item.nodes) {
    proto::NodeDef& node = *graph.add_node();
    node.set_name(from.name);
    node.set_op(from.op);
    for (const std::string& input : from.inputs) node.add_input(input);
    node.set_device(from.device);
    by_name.try_emplace(from.name, &node);
  }
  for (const ItemVariable& variable : item.variables) {
    const std::string* holder = holders.of(variable.name);
    if (holder != nullptr) write_type(variable, *by_name.at(*holder));
  }
  return graph;
}

}  // namespace

std::string serialize(const GraphItem& item) {
  const Holders holders(item.nodes);
  const proto::GraphDef graph = graph_def_of(item, holders);
  std::map<std::string, std::string> kinds;
  for (const ItemNode& node : item.nodes) kinds.try_emplace(node.name, node.op);

  proto::GraphItem out;
  out.set_graph_def(wrapped("GraphDef", graph));
  for (const ItemGradient& gradient : item.gradients) {
    const std::string key = fmt::format("{}", fmt::join(gradient.tensors, ";"));
    (*out.mutable_grad_target_pairs())[key] = gradient.target + ":0";
  }
  for (const ItemVariable& from : item.variables) {
    const std::string* holder = holders.of(from.name);
    proto::VariableDef variable;
    variable.set_variable_name(from.name + ":0");
    variable.set_is_resource(holder != nullptr && kinds.at(*holder) == "VarHandleOp");
    variable.set_trainable(from.trainable);
    out.mutable_info()->add_variables(wrapped("VariableDef", variable));
  }
  for (const std::string& each : item.table_initializers) {
    out.mutable_info()->add_table_initializers(each);
  }
  return bytes_of(out);
}

GraphItem deserialize_graph_item(const std::string& bytes, const std::string& where) {
  proto::GraphItem in;
  const google::protobuf::LogSilencer silencer;  // names that are not UTF-8 are printed otherwise
  if (!in.ParseFromString(bytes)) {
    fail(ErrorCode::kUsage, "{}: not a graph_item: truncated, or another kind of file. {}", where,
         kWriteAgain);
  }
  return Reader(where).run(in);
}

GraphItem read_graph_item(const std::string& path) {
  return deserialize_graph_item(read_file(path, kLargestFile), path);
}

void write_graph_item(const std::string& path, const GraphItem& item) {
  write_file_atomically(path, serialize(item));
}

bool looks_like_graph_item(const std::string& bytes) {
  using google::protobuf::io::CodedInputStream;
  proto::GraphItem in;
  const google::protobuf::LogSilencer silencer;
  // Of a truncated one the beginning counts.
  const bool whole = in.ParseFromString(bytes);
  if (!whole) return bytes.find("tensorflow.GraphDef") < 64;
  proto::GraphDef graph;
  if (!in.graph_def().empty()) return unwrap(in.graph_def(), graph);
  for (const std::string& each : in.info().variables()) {
    proto::Any any;
    if (any.ParseFromString(each) && any.type_url().find("VariableDef") != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace autodist::ir
