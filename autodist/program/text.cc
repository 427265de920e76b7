#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autodist/ir/text.h"
#include "autodist/program/program.h"

namespace autodist::program {
namespace {

// "{0, 1, 5..63}": runs of three and more are shortened.
std::string set_of(const std::vector<Rank>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end].value == ranks[end - 1].value + 1) ++end;
    if (end - begin >= 3) {
      parts.push_back(fmt::format("{}..{}", ranks[begin], ranks[end - 1]));
    } else {
      for (std::size_t i = begin; i < end; ++i) parts.push_back(fmt::format("{}", ranks[i]));
    }
    begin = end;
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

class ProgramPrinter {
 public:
  explicit ProgramPrinter(const Program& program)
      : program_(program), graph_(*program.graph), names_(graph_) {}

  std::string print() {
    text_ = fmt::format("program format={} digest={} graph=\"{}\" ranks={} replicas={}\n",
                        kProgramFormat, to_string(digest_of(program_)), graph_.name,
                        program_.ranks.size(), program_.replica_count());
    section("ranks", program_.ranks, [&](std::size_t i, const RankInfo& rank) {
      return Row{std::to_string(i), rank.device, rank.replica ? place_of(Rank(i)) : "serves"};
    });
    section("slices", program_.slices,
            [&](std::size_t i, const Slice& each) { return row(i, each); });
    section("collectives", program_.collectives, [&](std::size_t i, const Collective& each) {
      return Row{fmt::format("group={}", i),        variables(each.variables),
                 std::string(name_of(each.dtype)),  "spec=" + each.spec,
                 "members=" + set_of(each.members), to_string(each.exchange)};
    });
    section("variables", program_.variables,
            [&](std::size_t i, const VariablePlan& each) { return row(ir::VariableId(i), each); });
    section("transfers", program_.transfers, [&](std::size_t i, const StageTransfer& each) {
      return Row{fmt::format("@{}", i), carried_by(each),
                 fmt::format("micro_batch={}", each.micro_batch),
                 fmt::format("stage {} -> {}", each.from, fmt::join(each.to, ", "))};
    });
    for (const Role& role : program_.roles) print(role);
    return text_;
  }

 private:
  using Row = std::vector<std::string>;

  template <typename Items, typename MakeRow>
  void section(const char* title, const Items& items, MakeRow make_row) {
    if (items.empty()) return;
    std::vector<Row> rows;
    for (std::size_t i = 0; i < items.size(); ++i) rows.push_back(make_row(i, items[i]));
    text_ += fmt::format("\n{}:\n", title) + ir::align(rows, "  ");
  }

  const std::string& name(ir::VariableId variable) const { return graph_.variable(variable).name; }

  std::string variables(const std::vector<ir::VariableId>& ids) const {
    std::vector<std::string> names;
    for (ir::VariableId id : ids) names.push_back(name(id));
    return fmt::format("{{{}}}", fmt::join(names, ", "));
  }

  std::string clip(ClipId id) const { return fmt::format("clip={}", id); }

  Row row(std::size_t index, const Slice& slice) const {
    std::vector<std::string> pieces;
    for (const Piece& piece : slice.pieces) {
      pieces.push_back(
          fmt::format("{}[{}, {})", program_.shard(piece.shard).name, piece.begin, piece.end));
    }
    return {fmt::format("#{}", index),
            fmt::format("{}", fmt::join(pieces, " + ")),
            std::string(name_of(slice.dtype)),
            to_string(bytes_of(slice)),
            fmt::format("owner={}", slice.owner),
            "needed=" + to_string(slice.needed),
            "members=" + set_of(slice.members),
            to_string(slice.exchange)};
  }

  Row row(ir::VariableId id, const VariablePlan& plan) const {
    std::string how = "local";
    if (plan.collective) how = fmt::format("group={}", *plan.collective);
    if (!plan.slices.empty()) {
      std::vector<std::string> slices;
      for (SliceId slice : plan.slices) slices.push_back(fmt::format("#{}", slice));
      how = fmt::format("slices={}", fmt::join(slices, ","));
    }
    if (plan.clip) how += fmt::format(" {}", clip(*plan.clip));
    std::vector<std::string> shards;
    for (const Shard& shard : program_.shards) {
      if (shard.variable == id && shard.name != name(id)) {
        shards.push_back(
            fmt::format("{}=[{}, {}) of axis {}", shard.name, shard.begin, shard.end, shard.axis));
      }
    }
    return {name(id), to_string(graph_.value(graph_.variable(id).value).type),
            to_string(graph_.variable(id).update), how, fmt::format("{}", fmt::join(shards, " "))};
  }

  std::string place_of(Rank rank) const {
    const std::uint32_t part = program_.batch_part(rank);
    if (!program_.batch_shares.empty()) {
      return fmt::format("replica={} share={}", part, program_.batch_shares[part]);
    }
    if (!program_.is_placed()) return fmt::format("replica={}", part);
    return fmt::format("replica={} stage={}", program_.batch_part(rank), program_.stage(rank));
  }
  std::string carried_by(const StageTransfer& transfer) const {
    return transfer.value ? names_.of(*transfer.value) : "generator";
  }
  // ".1" of micro-batch 1; nothing where there is one alone.
  std::string micro(std::uint32_t micro_batch) const {
    return program_.micro_batches == 1 ? "" : fmt::format(" .{}", micro_batch);
  }

  std::string line(const Send& send) const {
    return fmt::format("send        @{} {}", send.transfer,
                       carried_by(program_.transfer(send.transfer)));
  }
  std::string line(const Receive& receive) const {
    return fmt::format("receive     @{} {}", receive.transfer,
                       carried_by(program_.transfer(receive.transfer)));
  }
  std::string line(const Gate& gate) const { return "gate        " + name(gate.variable); }
  std::string line(const Fetch& fetch) const {
    std::vector<std::string> rows;
    for (ir::ValueId value : fetch.rows) rows.push_back(names_.of(value));
    const char* which = rows.empty() ? "" : " rows ";
    return fmt::format("fetch       {}{}{}", name(fetch.variable), which, fmt::join(rows, ", "));
  }
  std::string line(const KeepFactors& keep) const {
    return fmt::format("keep        {} = {} x {}", name(keep.variable), names_.of(keep.left),
                       names_.of(keep.right));
  }
  std::string line(const Compute& compute) const {
    const ir::Op& op = graph_.op(compute.op);
    const std::string& scope = graph_.scopes[op.scope.value];
    return fmt::format("compute     {}  # {}{}{} {}{}", to_string(names_, op), compute.op,
                       scope.empty() ? "" : " ", scope, name_of(op.phase),
                       micro(compute.micro_batch));
  }
  std::string line(const Contribute& contribute) const {
    return fmt::format("contribute  {} <- {}{}", name(contribute.variable),
                       names_.of(contribute.gradient), micro(contribute.micro_batch));
  }
  std::string line(const Release& release) const { return "release     " + name(release.variable); }
  std::string line(const AllReduce& all_reduce) const {
    return fmt::format("all_reduce  group={}", all_reduce.collective);
  }
  std::string line(const Update& update) const { return "update      " + name(update.variable); }
  std::string line(const Norm& norm) const { return "norm        " + clip(norm.clip); }
  std::string line(const AgreeFinite& agree) const {
    return "agree       finite, loss scaling " + to_string(agree.scaling);
  }
  std::string line(const StepBarrier&) const { return "barrier     step"; }

  void print(const Role& role) {
    text_ +=
        fmt::format("\nrole {}:{}\n", set_of(role.ranks), role.streams.empty() ? " serves" : "");
    for (const Stream& stream : role.streams) {
      text_ += fmt::format("  stream {}:\n", name_of(stream.kind));
      for (const Instruction& instruction : stream.instructions) {
        text_ +=
            "    " + std::visit([&](const auto& each) { return line(each); }, instruction) + "\n";
      }
    }
  }

  const Program& program_;
  const ir::Graph& graph_;
  const ir::Names names_;
  std::string text_;
};

}  // namespace

std::string name_of(StreamKind kind) {
  switch (kind) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kCollective:
      return "collective";
    case StreamKind::kTransfer:
      return "transfer";
  }
  return "";
}

std::string to_text(const Program& program) { return ProgramPrinter(program).print(); }

}  // namespace autodist::program
