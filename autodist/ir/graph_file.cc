#include "autodist/ir/graph_file.h"

#include <google/protobuf/stubs/logging.h>
#include <zstd.h>

#include <algorithm>
#include <map>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph.pb.h"
#include "autodist/ir/parsed_size.h"
#include "autodist/ir/text.h"

namespace autodist::ir {
namespace {

constexpr char kCaptureAgain[] = "Capture it again: autodist capture MODEL -o FILE";

constexpr char kMagic[] = "ADGRAPH";  // with its terminating zero: 8 bytes
constexpr std::uint8_t kFormat = 1;
constexpr std::size_t kHeader = sizeof kMagic + 1;
// What a file may take in memory: several times what a captured graph's bytes do (some hundred
// each), and room for masks and tables, which pack to next to nothing.
constexpr std::int64_t kRoom = std::int64_t{256} << 20;
constexpr std::int64_t kRoomPerByte = 4096;
constexpr std::int64_t kMostRoom = std::int64_t{8} << 30;
constexpr std::int64_t kMostUnpacked = std::int64_t{1} << 30;
constexpr int kPacking = 19;  // written once, read often

// --- Graph -> protobuf ---------------------------------------------------------------------------

void put(const Affine& affine, proto::Affine* out) {
  out->set_per_sample(affine.per_sample);
  out->set_constant(affine.constant);
}

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  proto::Graph run() {
    out_.set_name(graph_.name);
    out_.set_libtorch_version(graph_.libtorch_version);
    out_.set_device(graph_.device);
    out_.set_example_batch(graph_.example_batch);
    out_.set_batch_fixed_reason(graph_.batch_fixed_reason);
    out_.set_reduction(static_cast<std::uint32_t>(graph_.reduction));
    for (const std::string& scope : graph_.scopes) out_.add_scopes(scope);
    for (const Storage& storage : graph_.storages) {
      proto::Storage* to = out_.add_storages();
      to->set_kind(static_cast<std::uint32_t>(storage.kind));
      put(storage.bytes, to->mutable_bytes());
    }
    for (const Value& value : graph_.values) add(value);
    for (const Op& op : graph_.ops) add(op);
    add_tables();
    for (ValueId output : graph_.outputs) out_.add_outputs(output.value);
    out_.set_slot_count(graph_.slot_count);
    put(graph_.peak_bytes, out_.mutable_peak_bytes());
    for (const Clip& clip : graph_.clips) {
      proto::Clip* to = out_.add_clips();
      to->set_max_norm(clip.max_norm);
      for (VariableId variable : clip.variables) to->add_variables(variable.value);
    }
    out_.mutable_schedule()->set_kind(static_cast<std::uint32_t>(graph_.schedule.kind));
    out_.mutable_schedule()->set_warmup_steps(graph_.schedule.warmup_steps);
    out_.mutable_schedule()->set_period_steps(graph_.schedule.period_steps);
    out_.mutable_schedule()->set_factor(graph_.schedule.factor);
    return std::move(out_);
  }

 private:
  // Few types serve many values.
  std::uint32_t index_of(const TensorType& type) {
    proto::TensorType packed;
    packed.set_dtype(static_cast<std::uint32_t>(type.dtype));
    for (const Affine& size : type.sizes) put(size, packed.add_sizes());
    for (const Affine& stride : type.strides) put(stride, packed.add_strides());
    put(type.offset, packed.mutable_offset());
    packed.set_sparse(type.layout == Layout::kSparseCoo);
    const auto [entry, added] = types_.try_emplace(packed.SerializeAsString(), types_.size());
    if (added) *out_.add_types() = std::move(packed);
    return static_cast<std::uint32_t>(entry->second);
  }

  std::uint32_t index_of_name(const Op& op) {
    const auto [entry, added] = names_.try_emplace(full_name(op), names_.size());
    if (added) out_.add_op_names(entry->first);
    return static_cast<std::uint32_t>(entry->second);
  }

  void add(const Value& value) {
    proto::Value* to = out_.add_values();
    to->set_storage(value.storage.value);
    to->set_version(value.version);
    to->set_slot(value.slot.value);
    to->set_type(index_of(value.type));
  }

  // One overload per alternative of Argument (and Result).
  struct Write {
    proto::Argument* out;
    void operator()(None) const {}
    void operator()(ValueId id) const { out->set_value(id.value); }
    void operator()(const Values& values) const {
      proto::Values* to = out->mutable_values();
      for (const auto& each : values) to->add_ids(each ? each->value + 1 : 0);
    }
    void operator()(const Affine& affine) const { put(affine, out->mutable_integer()); }
    void operator()(double real) const { out->set_real(real); }
    void operator()(bool truth) const { out->set_truth(truth); }
    void operator()(const std::string& text) const { out->set_text(text); }
    void operator()(const std::vector<Affine>& items) const {
      proto::Affines* to = out->mutable_integers();
      for (const Affine& item : items) put(item, to->add_items());
    }
    void operator()(const std::vector<double>& items) const {
      proto::Reals* to = out->mutable_reals();
      for (double item : items) to->add_items(item);
    }
    void operator()(const std::vector<bool>& items) const {
      proto::Truths* to = out->mutable_truths();
      for (bool item : items) to->add_items(item);
    }
    void operator()(RankDevice) const { out->set_place(proto::RANK_DEVICE); }
    void operator()(HostDevice) const { out->set_place(proto::HOST_DEVICE); }
    void operator()(RankGenerator) const { out->set_place(proto::RANK_GENERATOR); }
    void operator()(const Quotient& quotient) const {
      put(quotient.numerator, out->mutable_quotient()->mutable_numerator());
      put(quotient.denominator, out->mutable_quotient()->mutable_denominator());
    }
    void operator()(std::complex<double> number) const {
      out->mutable_complex()->set_real(number.real());
      out->mutable_complex()->set_imaginary(number.imag());
    }
  };

  void add(const Op& op) {
    proto::Op* to = out_.add_ops();
    to->set_name(index_of_name(op));
    for (const Argument& argument : op.arguments) std::visit(Write{to->add_arguments()}, argument);
    for (const Result& result : op.results) std::visit(Write{to->add_results()}, result);
    for (std::uint32_t index : op.writes) to->add_writes(index);
    to->set_random(op.random);
    to->set_phase(static_cast<std::uint32_t>(op.phase));
    to->set_scope(op.scope.value);
    to->set_cost_fixed_seconds(op.cost.fixed.value);
    to->set_cost_per_sample_seconds(op.cost.per_sample.value);
    put(op.cost.scratch, to->mutable_cost_scratch_bytes());
    put(op.flops, to->mutable_flops());
    put(op.bytes_moved, to->mutable_bytes_moved());
  }

  void add(const Variable& variable) {
    proto::Variable* to = out_.add_variables();
    to->set_name(variable.name);
    for (const std::string& alias : variable.aliases) to->add_aliases(alias);
    to->set_value(variable.value.value);
    if (variable.gradient) to->set_gradient(variable.gradient->value);
    to->set_sparse_gradient(variable.sparse_gradient);
    if (variable.first_use) to->set_first_use(variable.first_use->value);
    if (variable.gradient_complete) to->set_gradient_complete(variable.gradient_complete->value);
    if (variable.last_read) to->set_last_read(variable.last_read->value);
    to->mutable_update()->set_rule(static_cast<std::uint32_t>(variable.update.rule));
    for (const auto& [name, value] : variable.update.options) {
      (*to->mutable_update()->mutable_options())[name] = value;
    }
    to->mutable_update()->set_user_rule(variable.update.user_rule);
  }

  void add_tables() {
    for (const Input& input : graph_.inputs) {
      proto::Input* to = out_.add_inputs();
      to->set_name(input.name);
      to->set_value(input.value.value);
      to->set_batched(input.batched);
    }
    for (const Variable& variable : graph_.variables) add(variable);
    for (const Buffer& buffer : graph_.buffers) {
      proto::Buffer* to = out_.add_buffers();
      to->set_name(buffer.name);
      to->set_value(buffer.value.value);
      to->set_mutated(buffer.mutated);
    }
    for (const Constant& constant : graph_.constants) {
      proto::Constant* to = out_.add_constants();
      to->set_name(constant.name);
      to->set_value(constant.value.value);
      to->set_digest_high(constant.digest.high);
      to->set_digest_low(constant.digest.low);
      to->set_contents(constant.bytes);
    }
  }

  const Graph& graph_;
  proto::Graph out_;
  std::map<std::string, std::size_t> types_;
  std::map<std::string, std::size_t> names_;
};

// --- protobuf -> Graph ---------------------------------------------------------------------------

class Reader {
 public:
  Reader(const proto::Graph& in, const std::string& where) : in_(in), where_(where) {}

  Graph run() const {
    Graph graph;
    graph.name = in_.name();
    graph.libtorch_version = in_.libtorch_version();
    graph.device = in_.device();
    graph.example_batch = in_.example_batch();
    graph.batch_fixed_reason = in_.batch_fixed_reason();
    graph.reduction = enumerator<Reduction>(in_.reduction(), 1, "reduction");
    graph.scopes.assign(in_.scopes().begin(), in_.scopes().end());
    for (const auto& storage : in_.storages()) {
      graph.storages.push_back(
          {enumerator<StorageKind>(storage.kind(), 4, "storage kind"), affine(storage.bytes())});
    }
    const std::vector<TensorType> types = read_types();
    for (const auto& value : in_.values()) {
      check_index(value.type(), types.size(), "type");
      graph.values.push_back(
          {StorageId(value.storage()), value.version(), SlotId(value.slot()), types[value.type()]});
    }
    for (const auto& op : in_.ops()) graph.ops.push_back(read(op));
    read_tables(graph);
    for (std::uint32_t output : in_.outputs()) graph.outputs.emplace_back(output);
    graph.slot_count = in_.slot_count();
    graph.peak_bytes = affine(in_.peak_bytes());
    for (const auto& clip : in_.clips()) {
      Clip& to = graph.clips.emplace_back();
      to.max_norm = clip.max_norm();
      for (std::uint32_t variable : clip.variables()) to.variables.emplace_back(variable);
    }
    graph.schedule.kind = enumerator<Schedule::Kind>(in_.schedule().kind(), 4, "schedule");
    graph.schedule.warmup_steps = in_.schedule().warmup_steps();
    graph.schedule.period_steps = in_.schedule().period_steps();
    graph.schedule.factor = in_.schedule().factor();
    return graph;
  }

 private:
  static Affine affine(const proto::Affine& in) { return {in.per_sample(), in.constant()}; }

  template <typename Enum>
  Enum enumerator(std::uint32_t value, std::uint32_t largest, const char* what) const {
    if (value > largest) {
      fail(ErrorCode::kUsage, "{}: unknown {} {}. {}", where_, what, value, kCaptureAgain);
    }
    return static_cast<Enum>(value);
  }

  void check_index(std::size_t index, std::size_t size, const char* what) const {
    if (index >= size) {
      fail(ErrorCode::kUsage, "{}: {} {} of {}. {}", where_, what, index, size, kCaptureAgain);
    }
  }

  std::vector<TensorType> read_types() const {
    std::vector<TensorType> types;
    for (const auto& in : in_.types()) {
      TensorType& type = types.emplace_back();
      if (in.dtype() == 0) {
        fail(ErrorCode::kUsage, "{}: a tensor without a dtype. {}", where_, kCaptureAgain);
      }
      type.dtype =
          enumerator<DType>(in.dtype(), static_cast<std::uint32_t>(DType::kComplex128), "dtype");
      for (const auto& size : in.sizes()) type.sizes.push_back(affine(size));
      for (const auto& stride : in.strides()) type.strides.push_back(affine(stride));
      type.offset = affine(in.offset());
      type.layout = in.sparse() ? Layout::kSparseCoo : Layout::kStrided;
    }
    return types;
  }

  static Values read(const proto::Values& in) {
    Values values;
    for (std::uint32_t id : in.ids()) {
      values.push_back(id == 0 ? std::nullopt : std::optional<ValueId>(ValueId(id - 1)));
    }
    return values;
  }

  static Argument read(const proto::Argument& in) {
    switch (in.kind_case()) {
      case proto::Argument::kValue:
        return ValueId(in.value());
      case proto::Argument::kValues:
        return read(in.values());
      case proto::Argument::kInteger:
        return affine(in.integer());
      case proto::Argument::kReal:
        return in.real();
      case proto::Argument::kTruth:
        return in.truth();
      case proto::Argument::kText:
        return in.text();
      case proto::Argument::kIntegers: {
        std::vector<Affine> items;
        for (const auto& item : in.integers().items()) items.push_back(affine(item));
        return items;
      }
      case proto::Argument::kReals:
        return std::vector<double>(in.reals().items().begin(), in.reals().items().end());
      case proto::Argument::kTruths:
        return std::vector<bool>(in.truths().items().begin(), in.truths().items().end());
      case proto::Argument::kPlace:
        if (in.place() == proto::RANK_DEVICE) return RankDevice{};
        if (in.place() == proto::HOST_DEVICE) return HostDevice{};
        return RankGenerator{};
      case proto::Argument::kQuotient:
        return Quotient{affine(in.quotient().numerator()), affine(in.quotient().denominator())};
      case proto::Argument::kComplex:
        return std::complex<double>(in.complex().real(), in.complex().imaginary());
      case proto::Argument::KIND_NOT_SET:
        return None{};
    }
    return None{};
  }

  Result read_result(const proto::Argument& in) const {
    switch (in.kind_case()) {
      case proto::Argument::kValue:
        return ValueId(in.value());
      case proto::Argument::kValues:
        return read(in.values());
      case proto::Argument::KIND_NOT_SET:
        return None{};
      default:
        fail(ErrorCode::kUsage, "{}: the result of an op is no tensor. {}", where_, kCaptureAgain);
    }
  }

  Op read(const proto::Op& in) const {
    check_index(in.name(), static_cast<std::size_t>(in_.op_names_size()), "op name");
    const std::string& name = in_.op_names(static_cast<int>(in.name()));
    const std::size_t dot = name.find('.');
    Op op;
    op.name = name.substr(0, dot);
    if (dot != std::string::npos) op.overload = name.substr(dot + 1);
    for (const auto& argument : in.arguments()) op.arguments.push_back(read(argument));
    for (const auto& result : in.results()) op.results.push_back(read_result(result));
    op.writes.assign(in.writes().begin(), in.writes().end());
    op.random = in.random();
    op.phase = enumerator<Phase>(in.phase(), 1, "phase");
    op.scope = ScopeId(in.scope());
    op.cost = {Seconds(in.cost_fixed_seconds()), Seconds(in.cost_per_sample_seconds()),
               affine(in.cost_scratch_bytes())};
    op.flops = affine(in.flops());
    op.bytes_moved = affine(in.bytes_moved());
    return op;
  }

  Variable read(const proto::Variable& in) const {
    Variable variable;
    variable.name = in.name();
    variable.aliases.assign(in.aliases().begin(), in.aliases().end());
    variable.value = ValueId(in.value());
    if (in.has_gradient()) variable.gradient = ValueId(in.gradient());
    variable.sparse_gradient = in.sparse_gradient();
    if (in.has_first_use()) variable.first_use = OpId(in.first_use());
    if (in.has_gradient_complete()) variable.gradient_complete = OpId(in.gradient_complete());
    if (in.has_last_read()) variable.last_read = OpId(in.last_read());
    variable.update.rule =
        enumerator<Rule>(in.update().rule(), static_cast<std::uint32_t>(kLastRule), "update rule");
    variable.update.options.insert(in.update().options().begin(), in.update().options().end());
    variable.update.user_rule = in.update().user_rule();
    return variable;
  }

  void read_tables(Graph& graph) const {
    for (const auto& in : in_.inputs()) {
      graph.inputs.push_back({in.name(), ValueId(in.value()), in.batched()});
    }
    for (const auto& in : in_.variables()) graph.variables.push_back(read(in));
    for (const auto& in : in_.buffers()) {
      graph.buffers.push_back({in.name(), ValueId(in.value()), in.mutated()});
    }
    for (const auto& in : in_.constants()) {
      graph.constants.push_back(
          {in.name(), ValueId(in.value()), {in.digest_high(), in.digest_low()}, in.contents()});
    }
  }

  const proto::Graph& in_;
  const std::string& where_;
};

std::string pack(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kPacking);
  AD_CHECK(!ZSTD_isError(size)) << ZSTD_getErrorName(size);
  packed.resize(size);
  return packed;
}

// A file of so many packed bytes.
std::int64_t room_of(std::size_t packed) {
  const auto size = static_cast<std::int64_t>(std::min<std::size_t>(packed, kMostRoom));
  return std::min(kRoom + kRoomPerByte * size, kMostRoom);
}

void expect_room(std::int64_t taken, std::size_t packed, const std::string& where) {
  if (taken < room_of(packed)) return;
  fail(ErrorCode::kUsage,
       "{}: {} packed bytes would take more than {} in memory, which no captured graph does. "
       "Damaged, or made to fill it. {}",
       where, packed, to_string(Bytes{room_of(packed)}), kCaptureAgain);
}

// What many share in the file, a type or an op's name, and each of them has afterwards.
std::int64_t size_of_shared(const proto::Graph& in) {
  std::int64_t size = 0;
  for (const proto::Value& value : in.values()) {
    if (value.type() >= static_cast<std::uint32_t>(in.types_size())) continue;  // refused later
    const proto::TensorType& type = in.types(static_cast<int>(value.type()));
    size += static_cast<std::int64_t>(sizeof(Affine)) * (type.sizes_size() + type.strides_size());
  }
  for (const proto::Op& op : in.ops()) {
    if (op.name() >= static_cast<std::uint32_t>(in.op_names_size())) continue;
    size += static_cast<std::int64_t>(in.op_names(static_cast<int>(op.name())).size());
  }
  return size;
}

std::string unpack(const char* data, std::size_t size, const std::string& where) {
  const unsigned long long unpacked = ZSTD_getFrameContentSize(data, size);
  if (unpacked == ZSTD_CONTENTSIZE_ERROR || unpacked == ZSTD_CONTENTSIZE_UNKNOWN) {
    fail(ErrorCode::kUsage, "{}: damaged: no packed contents. {}", where, kCaptureAgain);
  }
  const std::int64_t most = std::min(room_of(size), kMostUnpacked);
  if (unpacked > static_cast<unsigned long long>(most)) {
    fail(ErrorCode::kUsage, "{}: would unpack to {} bytes, at most {} expected. {}", where,
         unpacked, most, kCaptureAgain);
  }
  std::string bytes(static_cast<std::size_t>(unpacked), '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), data, size);
  if (ZSTD_isError(got) || got != bytes.size()) {
    fail(ErrorCode::kUsage, "{}: damaged or truncated: {}. {}", where,
         ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short", kCaptureAgain);
  }
  return bytes;
}

}  // namespace

std::string serialize(const Graph& graph) {
  std::string bytes(kMagic, sizeof kMagic);
  bytes.push_back(static_cast<char>(kFormat));
  return bytes + pack(Writer(graph).run().SerializeAsString());
}

Graph deserialize(const std::string& bytes, const std::string& where) {
  if (bytes.size() < kHeader || !looks_like_graph(bytes)) {
    fail(ErrorCode::kUsage, "{}: not a graph file. Make one with `autodist capture`.", where);
  }
  const auto format = static_cast<std::uint8_t>(bytes[sizeof kMagic]);
  if (format != kFormat) {
    fail(ErrorCode::kUsage, "{}: graph format {}, this version reads {}. {}", where, format,
         kFormat, kCaptureAgain);
  }
  const std::string unpacked = unpack(bytes.data() + kHeader, bytes.size() - kHeader, where);
  const std::int64_t taken =
      parsed_size(unpacked, *proto::Graph::descriptor(), room_of(bytes.size()));
  expect_room(taken, bytes.size(), where);
  proto::Graph in;
  const google::protobuf::LogSilencer silencer;  // names that are not UTF-8 are printed otherwise
  if (!in.ParseFromString(unpacked)) {
    fail(ErrorCode::kUsage, "{}: damaged: its contents are no graph. {}", where, kCaptureAgain);
  }
  expect_room(taken + size_of_shared(in), bytes.size(), where);
  Graph graph = Reader(in, where).run();
  verify(graph, where);
  return graph;
}

bool looks_like_graph(const std::string& bytes) {
  return bytes.compare(0, sizeof kMagic, kMagic, sizeof kMagic) == 0;
}

Graph read_graph(const std::string& path) { return deserialize(read_file(path), path); }

void write_graph(const std::string& path, const Graph& graph) {
  write_file_atomically(path, serialize(graph));
}

}  // namespace autodist::ir
