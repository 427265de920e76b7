// Written by hand: eleven fields do not need a generated class.

#include "autodist/report/chakra.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autodist/program/slice_size.h"

namespace autodist::report {
namespace {

constexpr const char* kVersion = "0.0.4";
enum NodeType { kComp = 4, kSend = 5, kRecv = 6, kCollective = 7 };
constexpr std::uint64_t kAllReduce = 0;

enum WireType { kVarint = 0, kLength = 2 };

void put_varint(std::uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void put(int field, std::uint64_t value, std::string& out) {
  put_varint(static_cast<std::uint64_t>(field) << 3 | kVarint, out);
  put_varint(value, out);
}

void put(int field, const std::string& bytes, std::string& out) {
  put_varint(static_cast<std::uint64_t>(field) << 3 | kLength, out);
  put_varint(bytes.size(), out);
  out += bytes;
}

void put_packed(int field, const std::set<std::uint64_t>& values, std::string& out) {
  if (values.empty()) return;
  std::string packed;
  for (std::uint64_t value : values) put_varint(value, packed);
  put(field, packed, out);
}

std::string delimited(const std::string& message) {
  std::string out;
  put_varint(message.size(), out);
  return out + message;
}

// The fields of Chakra's AttributeProto that hold a value, one for each type.
enum ValueField { kInt64 = 9, kBool = 27, kString = 29 };

template <typename Value>
std::string attribute(const std::string& name, ValueField field, const Value& value) {
  std::string out;
  put(1, name, out);
  put(field, value, out);
  return out;
}

struct Node {
  std::string name;
  NodeType type = kComp;
  std::set<std::uint64_t> data;  // ids that it needs
  Seconds duration;
  std::vector<std::string> attributes;
};

class Writer {
 public:
  Writer(const program::Program& program, program::Rank rank, const std::vector<Seconds>& ops)
      : program_(program), graph_(*program.graph), rank_(rank), ops_(ops) {}

  std::string trace() {
    std::string metadata;
    put(1, std::string(kVersion), metadata);
    put(2, attribute("autodist.graph", kString, graph_.name), metadata);
    put(2, attribute("autodist.rank", kInt64, rank_.value), metadata);
    out_ = delimited(metadata);
    if (program_.computes(rank_)) add_ops();
    for (std::size_t i = 0; i < program_.slices.size(); ++i) add_slice(program::SliceId(i));
    if (program_.computes(rank_)) {
      for (const program::Collective& collective : program_.collectives) add(collective);
    }
    return std::move(out_);
  }

 private:
  std::uint64_t add(const Node& node) {
    std::string message;
    put(1, next_, message);
    put(2, node.name, message);
    put(3, node.type, message);
    put_packed(5, node.data, message);
    const double micros = node.duration.value * 1e6;
    put(7, static_cast<std::uint64_t>(std::ceil(micros)), message);
    put(10, attribute("is_cpu_op", kBool, false), message);
    put(10, attribute("autodist.duration_ns", kInt64, std::llround(micros * 1e3)), message);
    for (const std::string& attribute : node.attributes) put(10, attribute, message);
    out_ += delimited(message);
    return next_++;
  }

  void add_ops() {
    const auto needs = ir::dependencies(graph_);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op& op = graph_.ops[i];
      Node node{op.name, kComp, {}, ops_[i], {}};
      for (ir::OpId each : needs[i]) node.data.insert(op_ids_[each.value]);
      node.attributes = {attribute("num_ops", kInt64, op.flops.at(graph_.example_batch)),
                         attribute("tensor_size", kInt64, op.bytes_moved.at(graph_.example_batch)),
                         attribute("autodist.scope", kString, graph_.scopes[op.scope.value])};
      op_ids_.push_back(add(node));
    }
  }

  // What must be done before the gradients of a slice's variables can leave.
  [[nodiscard]] std::set<std::uint64_t> gradients(const program::Slice& slice) const {
    std::set<std::uint64_t> ids;
    for (const program::Piece& piece : slice.pieces)
      add_gradient(program_.shard(piece.shard).variable, ids);
    return ids;
  }
  void add_gradient(ir::VariableId variable, std::set<std::uint64_t>& ids) const {
    const auto& complete = graph_.variable(variable).gradient_complete;
    if (complete && complete->value < op_ids_.size()) ids.insert(op_ids_[complete->value]);
  }

  Node transfer(NodeType type, program::SliceId id, Bytes bytes, program::Rank from,
                program::Rank to, bool result) const {
    const program::Slice& slice = program_.slice(id);
    const std::string name = program_.shard(slice.pieces.front().shard).name;
    Node node{(result ? "result " : "contribution ") + name, type, {}, {}, {}};
    node.attributes = {attribute("comm_size", kInt64, bytes.value),
                       attribute("comm_src", kInt64, from.value),
                       attribute("comm_dst", kInt64, to.value),
                       attribute("comm_tag", kInt64, 2 * std::int64_t{id.value} + (result ? 1 : 0)),
                       attribute("comm_priority", kInt64, std::llround(slice.needed.value * 1e9))};
    return node;
  }

  void add_slice(program::SliceId id) {
    const program::Slice& slice = program_.slice(id);
    const program::Loads bytes = loads_of(program_, slice, graph_.example_batch);
    const bool is_member =
        std::find(slice.members.begin(), slice.members.end(), rank_) != slice.members.end();
    const bool by_all = goes_to_all(slice.exchange);
    for (program::Rank to : by_all ? slice.members : std::vector{slice.owner}) {
      if (!is_member || to == rank_) continue;
      Node send = transfer(kSend, id, bytes.contribution, rank_, to, false);
      send.data = gradients(slice);
      const std::uint64_t sent = add(send);
      if (by_all) continue;
      Node result = transfer(kRecv, id, bytes.result + bytes.fetched, to, rank_, true);
      result.data = {sent};
      add(result);
    }
    if (slice.owner == rank_ || (by_all && is_member)) add_owned(id, bytes, by_all, is_member);
  }

  void add_owned(program::SliceId id, const program::Loads& bytes, bool by_all, bool is_member) {
    const program::Slice& slice = program_.slice(id);
    Node sum{"sum " + program_.shard(slice.pieces.front().shard).name, kComp, {}, {}, {}};
    if (is_member) sum.data = gradients(slice);
    for (program::Rank member : slice.members) {
      if (member == rank_) continue;
      sum.data.insert(add(transfer(kRecv, id, bytes.contribution, member, rank_, false)));
    }
    const std::uint64_t summed = add(sum);
    for (program::Rank member : slice.members) {
      if (member == rank_ || by_all) continue;
      Node result = transfer(kSend, id, bytes.result + bytes.fetched, rank_, member, true);
      result.data = {summed};
      add(result);
    }
  }

  void add(const program::Collective& collective) {
    Bytes bytes;
    Node node{"all_reduce", kCollective, {}, {}, {}};
    for (ir::VariableId variable : collective.variables) {
      bytes += ir::bytes_of(graph_, variable);
      add_gradient(variable, node.data);
    }
    node.attributes = {attribute("comm_type", kInt64, kAllReduce),
                       attribute("comm_size", kInt64, bytes.value),
                       attribute("pg_name", kString, "")};
    add(node);
  }

  const program::Program& program_;
  const ir::Graph& graph_;
  program::Rank rank_;
  const std::vector<Seconds>& ops_;
  std::string out_;
  std::uint64_t next_ = 1;
  std::vector<std::uint64_t> op_ids_;
};

}  // namespace

std::string chakra_trace(const program::Program& program, program::Rank rank,
                         const std::vector<Seconds>& ops) {
  return Writer(program, rank, ops).trace();
}

}  // namespace autodist::report
