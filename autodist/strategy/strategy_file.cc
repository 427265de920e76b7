// Strategy <-> protobuf, raw and as text.

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <cmath>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/text.h"
#include "autodist/strategy/strategy.h"
#include "autodist/strategy/strategy.pb.h"

namespace autodist::strategy {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{64} << 20;
constexpr int kDeepestParts = 1;  // a shard has no shards
constexpr char kExpected[] = "A strategy expected, as `autodist plan -o FILE` writes it.";
constexpr int kDeepestText = 16;  // a file of braces would overflow the stack

void write(const program::Compression& from, proto::Compression& to) {
  to.set_codec(static_cast<proto::Compression::Codec>(from.codec));
  to.set_error_feedback(from.error_feedback);
  to.set_density(from.density);
  to.set_rank(from.rank);
  to.set_cold_start(!from.warm_start);
}

void write(const NodeConfig& node, proto::Strategy::Node& out) {
  out.set_var_name(node.name);
  if (const auto* ps = std::get_if<PsSynchronizer>(&node.synchronizer)) {
    proto::PSSynchronizer& to = *out.mutable_pssynchronizer();
    to.set_reduction_destination(ps->reduction_destination);
    to.set_local_replication(ps->local_replication);
    to.set_sync(ps->sync);
    to.set_staleness(ps->staleness);
    if (ps->compression != program::Compression{}) {
      write(ps->compression, *to.mutable_compression());
    }
    to.set_results_asked(ps->delivery == program::Delivery::kAsked);
  }
  if (const auto* all_reduce = std::get_if<AllReduceSynchronizer>(&node.synchronizer)) {
    proto::AllReduceSynchronizer& to = *out.mutable_allreducesynchronizer();
    to.set_spec(static_cast<proto::AllReduceSynchronizer::Spec>(all_reduce->spec));
    to.set_compressor(
        static_cast<proto::AllReduceSynchronizer::Compressor>(all_reduce->compressor));
    to.set_group(all_reduce->group);
    to.set_algorithm(static_cast<proto::AllReduceSynchronizer::Algorithm>(all_reduce->algorithm));
    if (all_reduce->compression != program::Compression{}) {
      write(all_reduce->compression, *to.mutable_compression());
    }
    if (all_reduce->update_at == program::UpdateAt::kOwner) {
      to.set_update_at(proto::AllReduceSynchronizer::OWNER);
    }
  }
  out.set_partitioner(node.partitioner);
  for (const NodeConfig& part : node.parts) write(part, *out.add_part_config());
  if (node.needed) out.set_needed_seconds(node.needed->value);
}

void write(const Placement& placement, proto::Strategy::Placement& out) {
  for (const std::string& device : placement.devices) out.add_devices(device);
  out.set_stages(placement.stages);
  for (const Placement::Scope& scope : placement.scopes) {
    proto::Strategy::Placement::Scope& to = *out.add_scopes();
    to.set_name(scope.name);
    for (const std::uint32_t stage : scope.stages) to.add_stages(stage);
  }
}

proto::Strategy to_proto(const Strategy& strategy) {
  proto::Strategy out;
  out.set_id(strategy.id);
  out.set_path(strategy.path);
  for (const NodeConfig& node : strategy.nodes) write(node, *out.add_node_config());
  for (const std::string& replica : strategy.replicas) {
    out.mutable_graph_config()->add_replicas(replica);
  }
  out.set_slice_bytes(strategy.slice_bytes.value);
  out.set_window_bytes(strategy.window_bytes.value);
  if (strategy.placement) write(*strategy.placement, *out.mutable_placement());
  for (const std::int64_t share : strategy.batch_shares) out.add_batch_shares(share);
  return out;
}

// Proto3 keeps enum values that it does not know: a newer file, or not a strategy.
template <typename Enum>
Enum checked(int value, int largest, const std::string& what, const std::string& where) {
  if (value < 0 || value > largest) {
    fail(ErrorCode::kUsage, "{}: {}={} is unknown, 0 to {} expected", where, what, value, largest);
  }
  return static_cast<Enum>(value);
}

program::Compression read(const proto::Compression& from, const std::string& where) {
  program::Compression to;
  to.codec = checked<program::Codec>(
      from.codec(), static_cast<int>(std::size(program::kCodecs)) - 1, "codec", where);
  to.error_feedback = from.error_feedback();
  to.density = from.density();
  to.rank = from.rank();
  to.warm_start = !from.cold_start();
  return to;
}

AllReduceSynchronizer read(const proto::AllReduceSynchronizer& from, const std::string& where) {
  AllReduceSynchronizer to;
  to.spec = checked<AllReduceSpec>(from.spec(), 2, "spec", where);
  to.compressor = checked<Compressor>(from.compressor(), 3, "compressor", where);
  to.group = from.group();
  to.algorithm = checked<AllReduceAlgorithm>(from.algorithm(), 6, "algorithm", where);
  to.compression = read(from.compression(), where);
  const auto at_owner = checked<std::uint8_t>(from.update_at(), 1, "update_at", where);
  to.update_at = at_owner == 1 ? program::UpdateAt::kOwner : program::UpdateAt::kEveryRank;
  return to;
}

NodeConfig read(const proto::Strategy::Node& node, const std::string& where, int depth) {
  if (node.var_name().empty()) {
    fail(ErrorCode::kUsage, "{}: not a strategy: a node without a variable's name. {}", where,
         kExpected);
  }
  const std::string here = where + ": " + node.var_name();
  if (depth > kDeepestParts) {
    fail(ErrorCode::kUsage, "{}: shards within shards, one level expected", here);
  }
  NodeConfig result;
  result.name = node.var_name();
  if (node.has_pssynchronizer()) {
    const proto::PSSynchronizer& from = node.pssynchronizer();
    result.synchronizer = PsSynchronizer{
        from.reduction_destination(),
        from.local_replication(),
        from.sync(),
        from.staleness(),
        read(from.compression(), here),
        from.results_asked() ? program::Delivery::kAsked : program::Delivery::kPushed};
  } else if (node.has_allreducesynchronizer()) {
    result.synchronizer = read(node.allreducesynchronizer(), here);
  }
  result.partitioner = node.partitioner();
  for (const auto& part : node.part_config()) result.parts.push_back(read(part, where, depth + 1));
  if (node.has_needed_seconds()) {
    if (!std::isfinite(node.needed_seconds()) || node.needed_seconds() < 0) {
      fail(ErrorCode::kUsage, "{}: needed_seconds={}, a time of 0 or more expected", here,
           node.needed_seconds());
    }
    result.needed = Seconds(node.needed_seconds());
  }
  return result;
}

Placement read(const proto::Strategy::Placement& in, const std::string& where) {
  Placement placement;
  placement.stages = in.stages();
  placement.devices.assign(in.devices().begin(), in.devices().end());
  for (const auto& scope : in.scopes()) {
    placement.scopes.push_back({scope.name(), {scope.stages().begin(), scope.stages().end()}});
  }
  if (placement.stages < 1 || placement.devices.empty() ||
      placement.devices.size() % placement.stages != 0) {
    fail(ErrorCode::kUsage,
         "{}: placement: {} devices for {} stages; a multiple of the stages expected", where,
         placement.devices.size(), placement.stages);
  }
  return placement;
}

Strategy from_proto(const proto::Strategy& in, const std::string& where) {
  if (in.node_config().empty()) {
    fail(ErrorCode::kUsage, "{}: not a strategy: it names no variable. {}", where, kExpected);
  }
  Strategy strategy;
  strategy.id = in.id();
  strategy.path = in.path();
  for (const auto& node : in.node_config()) strategy.nodes.push_back(read(node, where, 0));
  const auto& replicas = in.graph_config().replicas();
  strategy.replicas.assign(replicas.begin(), replicas.end());
  const auto checked_bytes = [&](const char* field, std::int64_t bytes) {
    if (bytes >= 0) return Bytes(bytes);
    fail(ErrorCode::kUsage, "{}: {}={}, 0 or more expected", where, field, bytes);
  };
  strategy.slice_bytes = checked_bytes("slice_bytes", in.slice_bytes());
  strategy.window_bytes = checked_bytes("window_bytes", in.window_bytes());
  if (in.has_placement()) strategy.placement = read(in.placement(), where);
  strategy.batch_shares.assign(in.batch_shares().begin(), in.batch_shares().end());
  return strategy;
}

// The first complaint of protobuf's text parser, which would print it otherwise. Unknown fields
// come as warnings; those of AutoDist's older documentation stay warnings.
class FirstComplaint : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("{}:{}: {}", line + 1, column + 1, message);
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    for (const char* older : {"\"reduction_destinations\"", "\"chunk_size\""}) {
      if (message.find(older) == std::string::npos) continue;
      warnings_.push_back(fmt::format("{}:{}: {} is of an older AutoDist, passed over", line + 1,
                                      column + 1, older));
      return;
    }
    // Behind the name of the message, which is ours alone.
    const std::size_t field = message.find("has no field");
    AddError(line, column,
             field == std::string::npos ? message : "a strategy " + message.substr(field));
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string text_;
  std::vector<std::string> warnings_;
};

// The message that the text says, which its raw form can say, too.
template <typename Message>
Message parse_text(const std::string& text, const std::string& where,
                   std::vector<std::string>* warnings) {
  Message in;
  FirstComplaint complaint;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&complaint);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kDeepestText);
  if (!parser.ParseFromString(text, &in) || !complaint.text().empty()) {
    std::string said = complaint.text();
    if (!said.empty() && said.back() == '.') said.pop_back();
    const bool is_one = std::is_same_v<Message, proto::Strategy>;
    fail(ErrorCode::kUsage, "{}:{}. {}", where, said,
         is_one ? kExpected : "A file that --write-plans has written expected.");
  }
  for (const std::string& warning : complaint.warnings()) {
    if (warnings != nullptr) warnings->push_back(fmt::format("{}:{}", where, warning));
  }
  // Text may hold any bytes; the raw form, in which the chief sends a strategy, only UTF-8.
  const google::protobuf::LogSilencer silencer;
  if (!Message().ParseFromString(in.SerializeAsString())) {
    fail(ErrorCode::kUsage, "{}: a name that is not UTF-8. Mend it, or write the file again.",
         where);
  }
  return in;
}

template <typename Message>
std::string text_of(const Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

}  // namespace

std::string serialize(const Strategy& strategy) { return to_proto(strategy).SerializeAsString(); }

Strategy deserialize(const std::string& bytes, const std::string& where) {
  proto::Strategy in;
  const google::protobuf::LogSilencer silencer;  // names that are not UTF-8 are printed otherwise
  if (!in.ParseFromString(bytes)) {
    fail(ErrorCode::kUsage, "{}: not a strategy: truncated, or another kind of file. {}", where,
         kExpected);
  }
  return from_proto(in, where);
}

std::string to_text(const Strategy& strategy) { return text_of(to_proto(strategy)); }

Strategy from_text(const std::string& text, const std::string& where,
                   std::vector<std::string>* warnings) {
  return from_proto(parse_text<proto::Strategy>(text, where, warnings), where);
}

std::string to_text(const StrategyHistory& history) {
  proto::StrategyHistory out;
  for (const ScheduledStrategy& each : history) {
    proto::StrategyHistory::Entry& entry = *out.add_entry();
    entry.set_step(each.step);
    entry.set_name(each.name);
    *entry.mutable_strategy() = to_proto(each.strategy);
  }
  return text_of(out);
}

StrategyHistory read_history(const std::string& path) {
  const std::string bytes = read_file(path, kLargestFile);
  if (looks_like_strategy(bytes) && bytes.find("entry {") == std::string::npos) {
    fail(ErrorCode::kUsage,
         "{}: one strategy, and a file that --write-plans has written expected. Give it by "
         "--strategy.",
         path);
  }
  const auto in = parse_text<proto::StrategyHistory>(bytes, path, nullptr);
  StrategyHistory history;
  for (const proto::StrategyHistory::Entry& each : in.entry()) {
    if (each.step() < 0 || (!history.empty() && each.step() <= history.back().step)) {
      fail(ErrorCode::kUsage, "{}: a plan from step {}, a later one than that of {} expected", path,
           each.step(), history.empty() ? -1 : history.back().step);
    }
    history.push_back({each.step(), from_proto(each.strategy(), path), each.name()});
  }
  if (history.empty()) {
    fail(ErrorCode::kUsage, "{}: no plan in it. Give a file that --write-plans has written.", path);
  }
  return history;
}

std::size_t entry_at(const StrategyHistory& history, std::int64_t step) {
  std::size_t at = 0;
  while (at + 1 < history.size() && history[at + 1].step <= step) ++at;
  return at;
}

Strategy parse_strategy(const std::string& bytes, const std::string& where,
                        std::vector<std::string>* warnings) {
  return is_text(bytes) ? from_text(bytes, where, warnings) : deserialize(bytes, where);
}

Strategy read_strategy(const std::string& path, std::vector<std::string>* warnings) {
  return parse_strategy(read_file(path, kLargestFile), path, warnings);
}

bool looks_like_strategy(const std::string& bytes) {
  if (is_text(bytes)) return bytes.find("node_config") != std::string::npos;
  proto::Strategy in;
  const google::protobuf::LogSilencer silencer;
  return in.ParseFromString(bytes) && !in.node_config().empty() &&
         !in.node_config(0).var_name().empty();
}

}  // namespace autodist::strategy
